"""The JavaScript client in Node: it has the values of the kit, and is a good client of a real daemon."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map, Record
from index.values.jsons import from_json
from server.config.model import Config
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from tests.conformance.driving import MODULE, RUNTIMES, Driver, elsewhere, javascript, node, program
from tests.conformance.vectors import FOLDER, patterns, plain
from tests.ports import free_port
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

Json = Any


def test_its_values_are_those_of_the_kit() -> None:
    command = [node(), str(FOLDER / "drivers" / "vectors.mjs"), str(MODULE), str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert told["held"] > 1000


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_its_values_are_those_of_the_kit_elsewhere(runtime: str) -> None:
    command = [*elsewhere(runtime, "vectors.mjs"), str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert told["held"] > 1000


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_a_page_elsewhere_speaks_websocket_to_a_daemon(runtime: str, tmp_path: Path) -> None:
    async with daemon(tmp_path) as (_, http), program(*elsewhere(runtime, "javascript.mjs")) as page:
        await connected(page, http)
        await turn(page, ["assert", "here", said("present", runtime)])
        assert await rows(page, "present($who)") == [[runtime]]


# -- against a daemon -----------------------------------------------------------------------------------


@asynccontextmanager
async def daemon(data: Path, **settings: Any) -> AsyncIterator[tuple[str, str]]:
    """The addresses of a daemon in this process, for TCP and for WebSocket, for as long as the block runs."""
    listen = ("tcp:127.0.0.1:0", "http:127.0.0.1:0")
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(serve, Config(listen, data, **settings))
        tcp, http = [address.rpartition(":")[2] for address in addresses]
        yield f"tcp://127.0.0.1:{tcp}", f"http://127.0.0.1:{http}"
        nursery.cancel_scope.cancel()


async def connected(driver: Driver, url: str, **options: Any) -> None:
    await driver.do({"do": "connect", "url": url, "options": options})
    assert await driver.event("connect") == {"of": "connect", "done": True}


async def turn(driver: Driver, *actions: Json) -> int:
    await driver.do({"do": "turn", "as": "turn", "actions": actions})
    told = await driver.event("turn")
    assert "epoch" in told, told
    epoch: int = told["epoch"]
    return epoch


async def rows(driver: Driver, pattern: str) -> Json:
    await driver.do({"do": "matches", "as": "rows", "pattern": pattern})
    return (await driver.event("rows"))["rows"]


async def read(driver: Driver, name: str) -> Json:
    await driver.do({"do": "read", "of": name})
    told = await driver.event(name)
    assert "changes" in told, told
    return told["changes"]


def said(label: str, *fields: Json) -> Json:
    return {"@": label, "fields": list(fields)}


async def test_it_asserts_replaces_sends_and_observes(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as witness,
    ):
        await connected(page, http, name="page")
        await page.do({"do": "observe", "as": "seen", "pattern": "present($who)", "options": {}})
        first = await read(page, "seen")
        assert (first["added"], first["removed"]) == ([], [])
        epoch = await turn(
            page,
            ["assert", "ann", said("present", "Ann")],
            ["assert", "ben", said("present", "Ben")],
            ["send", said("present", "bell")],
        )
        both = await read(page, "seen")
        assert both["number"] == epoch
        assert (sorted(both["added"]), both["messages"]) == ([["Ann"], ["Ben"]], [["bell"]])
        assert sorted(await witness.matches("present($who)")) == [("Ann",), ("Ben",)]
        await turn(page, ["replace", "ann", said("present", {"@float": "1.0"})], ["retract", "ben"])
        after = await read(page, "seen")
        assert (after["added"], sorted(after["removed"])) == ([[{"@float": "1.0"}]], [["Ann"], ["Ben"]])
        await witness.assert_(Record("present", 1))
        assert (await read(page, "seen"))["added"] == [[1]]
        await page.do({"do": "turn", "as": "late", "actions": [["retract", "ben"]]})
        assert (await page.event("late"))["error"] == "unknown-handle"
        await page.do({"do": "request", "as": "none", "verb": "none", "arguments": {}})
        assert (await page.event("none"))["error"] == "unknown-verb"
        await page.do({"do": "close"})
        await page.event("close")
        assert await witness.matches("present($who)") == [(1,)], "its facts go with it"


async def test_patterns_mean_the_same_to_the_daemon(tmp_path: Path) -> None:
    kept: Json = patterns()["patterns"]
    async with daemon(tmp_path) as (tcp, _), program(*javascript()) as page:
        await connected(page, tcp)
        held = [(n, each["json"]) for n, one in enumerate(kept) for each in one["against"]]
        actions = [["assert", f"{at}", said("probe", n, at, value)] for at, (n, value) in enumerate(held)]
        await turn(page, *actions)
        at = 0
        for n, one in enumerate(kept):
            found = {each[0]: each[1:] for each in await rows(page, f"probe({n}, $, {one['text']})")}
            for each in one["against"]:
                assert found.get(at) == each["captures"], (one["text"], each)
                at += 1


async def test_a_state_in_many_parts_comes_as_one_epoch(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as witness,
    ):
        async with witness.turn() as draft:
            for n in range(6000):
                draft.assert_(Record("n", n, "x" * 500))
            draft.assert_(Record("n", -1, "x" * 70_000))
        await connected(page, http)
        # less credit than the state has values and bytes: its parts must be asked for as they come
        await page.do({"do": "observe", "as": "all", "pattern": "n($n, _)", "options": {"window": 2}})
        state = await read(page, "all")
        assert sorted(row[0] for row in state["added"]) == list(range(-1, 6000))
        await turn(page, ["assert", "big", said("n", 7000, "y" * 70_000)])
        assert (await read(page, "all"))["added"] == [[7000]]
        assert await rows(page, "n(7000, $text)") == [["y" * 70_000]]


async def test_a_slow_reader_is_bounded_by_its_credit(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as witness,
    ):
        await connected(page, http)
        await page.do({"do": "observe", "as": "slow", "pattern": "v($k, $n, _)", "options": {}})
        assert (await read(page, "slow"))["added"] == []
        claims = [await witness.assert_(Record("v", k, 0, "")) for k in range(8)]
        for n in range(1, 60):
            async with witness.turn() as draft:
                claims = [draft.replace(claims[k], Record("v", k, n, "x" * 10_000)) for k in range(8)]
        assert await rows(page, "v(0, $n, _)") == [[59]], "what was sent before this has come"
        await page.do({"do": "waiting", "of": "slow"})
        waiting = await page.event("slow")
        assert 0 < waiting["bytes"] <= (1 << 20) + (1 << 16), "a window, and what overdraws it"
        known: set[tuple[int, int]] = set()
        while known != {(k, 59) for k in range(8)}:
            epoch = await read(page, "slow")
            came, went = ({(k, n) for k, n in epoch[which]} for which in ("added", "removed"))
            assert went <= known and not came & known
            known = (known - went) | came
        assert len(known) == 8


async def test_a_token_is_needed_and_bounds_what_it_may(tmp_path: Path) -> None:
    rights = Rights.read(Map({"observe": True, "assert": ("present(_)",)}))
    key = Key("page", "0123456789abcdef", rights)
    async with daemon(tmp_path, keys=(key,)) as (_, http), program(*javascript()) as page:
        for wrong in ("", "another secret of 16"):
            await page.do({"do": "connect", "url": http, "options": {"token": wrong}})
            assert (await page.event("connect"))["error"] == "unauthorized"
        await connected(page, http, token="0123456789abcdef")
        await turn(page, ["assert", "here", said("present", "page")])
        await page.do({"do": "turn", "as": "no", "actions": [["assert", "x", said("absent", "page")]]})
        assert (await page.event("no"))["error"] == "not-allowed"


async def test_a_killed_daemon_leaves_no_gap_and_no_ghost(tmp_path: Path) -> None:
    http = f"127.0.0.1:{free_port()}"
    process = DaemonProcess(tmp_path / "data", "--listen", f"http:{http}")
    await trio.to_thread.run_sync(process.start)
    try:
        async with program(*javascript()) as page:
            await connected(page, process.url, name="page")
            await page.do({"do": "observe", "as": "who", "pattern": "present($who)", "options": {}})
            every = {"policy": "wait", "durable": True, "window": 3}
            await page.do({"do": "observe", "as": "all", "pattern": "n($n)", "options": every})
            await read(page, "who")
            await read(page, "all")
            await turn(page, ["assert", "page", said("present", "page")])
            known = [row[0] for row in (await read(page, "who"))["added"]]
            for n in range(10):
                await turn(page, ["send", said("n", n)])
            async with dataspace.connect(process.url, reconnect=False) as guest:
                await guest.assert_(Record("present", "guest"))
                known += [row[0] for row in (await read(page, "who"))["added"]]
                await trio.to_thread.run_sync(process.kill)
                # under way while there is no daemon: it waits for the next one
                await page.do({"do": "turn", "as": "waits", "actions": [["send", said("n", 10)]]})
                assert (await page.event("connection"))["change"] == "connected"
                assert (await page.event("connection"))["change"] == "lost"
            await trio.to_thread.run_sync(process.start)
            assert (await page.event("connection"))["change"] == "anew"
            assert "epoch" in await page.event("waits")
            for n in range(11, 20):
                await turn(page, ["send", said("n", n)])
            heard: list[int] = []
            while len(heard) < 20:
                heard += [row[0] for row in (await read(page, "all"))["messages"]]
            assert heard == list(range(20)), "every message, once, in order"
            assert known == ["page", "guest"]
            while known != ["page"]:
                epoch = await read(page, "who")
                known = [who for who in known if [who] not in epoch["removed"]]
                known += [row[0] for row in epoch["added"]]
            assert await rows(page, "present($who)") == [["page"]], "asserted again, and nothing else stands"
    finally:
        await trio.to_thread.run_sync(process.stop)


async def test_every_value_comes_to_another_client_as_it_was(tmp_path: Path) -> None:
    vectors: Json = json.loads((FOLDER / "values.json").read_text())["values"]
    shallow = [each["json"] for each in vectors if "[[[[" not in each["text"]]
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as witness,
    ):
        await connected(page, http)
        await turn(page, *[["assert", f"{at}", said("value", at, each)] for at, each in enumerate(shallow)])
        found = {row[0]: row[1] for row in await witness.matches("value($at, $value)")}
        assert [plain(found[at]) for at in range(len(shallow))] == shallow
        assert sorted(await rows(page, "value($at, $value)"), key=lambda row: row[0]) == [
            [at, plain(from_json(each))] for at, each in enumerate(shallow)
        ]
