"""The JavaScript client at a daemon that follows: it goes to the leader, or its error says why it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.conformance.driving import MODULE, node
from tests.conformance.test_javascript_live import run
from tests.ports import free_port
from tests.server.processes import DaemonProcess, follower, running

pytestmark = pytest.mark.slow

WRITE = """
let changes = 0;
const options = { timeout: %s, onConnection: () => changes++ };
const space = await connect(url, options);
const failed = (error) => [error.name, error.message, error.code];
const told = await space.assert(record("fact", 1)).then((claim) => typeof claim.handle, failed);
const put = await space.put(record("key", 1), { owner: "o", by: "key(_)" }).then(() => 1, failed);
console.log(JSON.stringify([told, put, await space.matches("fact($n)").catch(failed), changes]));
await space.close();
process.exit();
"""


@contextmanager
def _pair(tmp_path: Path, *, leader_has_http: bool) -> Iterator[tuple[DaemonProcess, str]]:
    """A leader and its follower; yields the leader, and where the follower serves HTTP."""
    ports = free_port(), free_port()
    leads = ["--listen", f"http:127.0.0.1:{ports[0]}"] if leader_has_http else []
    leader = DaemonProcess(tmp_path / "data", *leads)
    follows = follower(tmp_path / "data", "--listen", f"http:127.0.0.1:{ports[1]}")
    with running(leader, follows):
        yield leader, f"http://127.0.0.1:{ports[1]}"


async def test_what_only_the_leader_does_goes_to_the_leader(tmp_path: Path) -> None:
    with _pair(tmp_path, leader_has_http=True) as (_, url):
        told = await run(tmp_path, WRITE % "null", url=url)
    assert told[:3] == ["number", 1, [[1]]] and told[3] <= 6


async def test_it_is_refused_where_the_leader_has_no_address_for_this_client(tmp_path: Path) -> None:
    with _pair(tmp_path, leader_has_http=False) as (leader, url):
        told: Any = await run(tmp_path, WRITE % "null", url=url)
        (name, text, code), put, rows, changes = told
        assert (name, code, put[0], rows) == ("Refused", "elsewhere", "Refused", []) and changes <= 3
        assert f"ask {leader.url}" in text


async def test_a_call_ends_in_its_time_while_no_daemon_leads(tmp_path: Path) -> None:
    with _pair(tmp_path, leader_has_http=True) as (leader, url):
        await trio.to_thread.run_sync(leader.kill)
        told, put, rows, _ = await run(tmp_path, WRITE % "400", url=url)
        assert [told[0], put[0], rows] == ["Unreachable", "Unreachable", []], [told, put, rows]


async def test_a_runtime_without_websocket_says_what_to_do(tmp_path: Path) -> None:
    program = tmp_path / "program.mjs"
    program.write_text(
        f"import {{ connect }} from {json.dumps(MODULE.as_uri())};\n"
        "delete globalThis.WebSocket;\n"
        'try { await connect("ws://127.0.0.1:9", { wait: 60_000 }); } catch (error) {\n'
        "  console.log(JSON.stringify([error.name, error.message]));\n}\n"
    )
    with trio.fail_after(30):
        done = await trio.run_process([node(), str(program)], capture_stdout=True)
    name, text = json.loads(done.stdout)
    assert name == "UsageError" and "--experimental-websocket" in text
