"""The client in JavaScript finds the daemon that serves it among several addresses, as the one in Python."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from dataspace import Record, connect
from dataspace.transport.addresses import parse_url
from dataspace.transport.candidates import may_send_on
from index.values.values import Value
from server.config.model import Config, Follow
from server.daemon.serve import serve
from tests.conformance.driving import MODULE, node
from tests.dataspace.transport.test_candidates import OTHERS, OWN
from tests.server.proxies import Proxy
from tests.server.relays import Way, relay

DRIVERS = Path(__file__).with_name("drivers")

GRID = """
import { addressesOf, maySendOn } from "%s";
const [pairs, texts] = JSON.parse(process.argv[1]);
console.log(JSON.stringify([pairs.map(([a, b]) => maySendOn(a, b)), texts.map(addressesOf)]));
"""

WRITE = """
import { connect, record } from "%s";
import { tcp } from "%s";
const [urls] = JSON.parse(process.argv[1]);
const space = await connect(urls, { transport: tcp });
await space.assert(record("fact", 1));
const [row] = await space.matches("fact($n)");
console.log(JSON.stringify(row));
await space.request("lease", { owner: "lease:1000:x" });
await space.close();
"""


def _run(program: str, given: object, *modules: Path) -> Any:
    code = program % tuple(module.as_uri() for module in modules)
    command = [node(), "--no-warnings", "--input-type=module", "-e", code, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert not done.returncode and not done.stderr, done.stderr
    return json.loads(done.stdout)


def test_where_a_daemon_may_send_a_client_is_as_in_python() -> None:
    urls = ["tcp://127.0.0.1:1", "tls://localhost:1", "tcp://far:1", "tls://far:1"]
    urls += [f"tcp://{host}:1" for host in (*OWN, *OTHERS)]
    pairs = list(itertools.product(urls, repeat=2))
    texts = ["ws://a/ws, wss://b/ws", "tcp://a:1", "/ws"]
    allowed, listed = _run(GRID, [pairs, texts], MODULE.with_name("candidates.js"))
    assert allowed == [may_send_on(parse_url(a), parse_url(b)) for a, b in pairs]
    assert listed == [["ws://a/ws", "wss://b/ws"], ["tcp://a:1"], ["/ws"]]


@pytest.mark.parametrize("way", ["hello", "asked", "welcomed"])
@pytest.mark.parametrize("loops", [False, True])
async def test_it_goes_where_it_is_sent(tmp_path: Path, nursery: trio.Nursery, way: Way, loops: bool) -> None:
    (address,) = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path))
    url = parse_url(address).url
    async with relay(url, way) as one, relay(url, way) as two:
        if loops:
            one.said, two.said = ("elsewhere", "", two.here), ("elsewhere", "", one.here)
        urls = ["tcp://127.0.0.1:9", one.here, two.here, url] if loops else [one.here]
        given = [urls]
        with trio.fail_after(30):
            assert await trio.to_thread.run_sync(_run, WRITE, given, MODULE, DRIVERS / "tcp.mjs") == [1]
        assert len(one.hellos) + len(two.hellos) <= 6


READ_ANYWHERE = """
import { connect, record } from "%s";
import { tcp } from "%s";
const [follower] = JSON.parse(process.argv[1]);
const space = await connect(follower, { transport: tcp, read: "any" });
const seen = space.observe("fact($n)", { quiet: true });
const found = [];
for (let n = 0; n < 20; n++) {
  await space.assert(record("fact", n));
  found.push((await space.matches("fact($n)")).length);
}
await space.assert(record("read", 20));
await space.first("looked(1)");
const heard = [];
for await (const { added } of seen) {
  for (const [n] of added) heard.push(n);
  if (heard.length === 20) break;
}
seen.close();
await space.close();
console.log(JSON.stringify([found, heard.sort((a, b) => a - b)]));
"""


ENDED = """
import { Session } from "%s";
const [spaces] = JSON.parse(process.argv[1]);
const seen = spaces.map((space) => {
  const streams = new Map([[1, { seen: 7 }], [2, {}], [3, { seen: 9 }]]);
  const session = Object.assign(Object.create(Session.prototype), { options: { space }, seen: 3, streams });
  const taken = [1, 2, 4].map((number) => Boolean(session.takeStream(number)));
  return [...taken, streams.size, session.seen];
});
console.log(JSON.stringify(seen));
"""


def test_epochs_of_an_observation_that_has_ended_stay_seen() -> None:
    taken = [True, True, False, 1]
    assert _run(ENDED, [["main", "system"]], MODULE.with_name("session.js")) == [[*taken, 7], [*taken, 3]]


async def test_it_reads_at_a_follower_what_it_wrote_at_the_leader(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    listen = ("tcp:127.0.0.1:0",)
    (leader,) = await nursery.start(serve, Config(listen, tmp_path))
    (follower,) = await nursery.start(serve, Config(listen, tmp_path, follow=Follow(tmp_path)))
    streams: list[Value] = []

    async def look() -> None:
        async with (
            connect(parse_url(follower).url) as asking,
            connect(parse_url(leader).url, owner="looker") as leads,
        ):
            await leads.first("read(20)")
            for space in (asking, leads):
                streams.append((await space.status())["streams"])
            await leads.assert_(Record("looked", 1))

    with trio.fail_after(60):
        async with trio.open_nursery() as looking:
            looking.start_soon(look)
            given = [parse_url(follower).url]
            found, heard = await trio.to_thread.run_sync(
                _run, READ_ANYWHERE, given, MODULE, DRIVERS / "tcp.mjs"
            )
    assert found == [*range(1, 21)], "each time all that it had written"
    assert heard == [*range(20)]
    assert streams[0] in (1, 2) and streams[1] == 0, "of the observation, and of what it waits for"


WAITING = """
import { createInterface } from "node:readline/promises";
import { connect, record } from "%s";
import { tcp } from "%s";
const [urls] = JSON.parse(process.argv[1]);
const space = await connect(urls, { transport: tcp, owner: "map" });
await space.assert(record("fact", 1));
const { epoch } = await space.request("status", {});
await createInterface({ input: process.stdin, output: process.stdout }).question(`${epoch}\\n`);
console.log(JSON.stringify(await space.matches("fact($n)")));
process.exit();
"""


async def test_a_session_with_the_leader_that_is_at_a_follower_waits_for_what_it_has_seen(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    (address,) = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path))
    proxy = Proxy(address)
    await nursery.start(proxy.run)
    code = WAITING % (MODULE.as_uri(), (DRIVERS / "tcp.mjs").as_uri())
    async with relay(parse_url(address).url, "asked", proxy.url) as follower:
        given = json.dumps([[proxy.url, follower.here]])
        command = [node(), "--no-warnings", "--input-type=module", "-e", code, given]
        with trio.fail_after(60):
            process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdin is not None and process.stdout is not None  # pipes, as asked for
            async with process.stdin as told, process.stdout as said:
                follower.newest = int(await said.receive_some()) - 1
                proxy.refusing = True
                proxy.cut()
                while not follower.hellos:  # noqa: ASYNC110  # of another process
                    await trio.sleep(0.01)
                await told.send_all(b"\n")
                await trio.sleep(0.3)
                assert follower.opened == [], "opened at a daemon that is behind"
                follower.newest += 1
                assert json.loads(await said.receive_some()) == [[1]]
            await process.wait()
