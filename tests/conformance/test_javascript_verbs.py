"""The JavaScript client's further verbs, in Node: conditional turns, put, first, leases and topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.text import parse
from tests.conformance.driving import Driver, javascript, program
from tests.conformance.test_javascript import connected, daemon, read, rows, said, turn
from tests.ports import free_port
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

Json = Any


async def ask(driver: Driver, of: str, **command: Json) -> Json:
    """Gives a command whose event has this name, and returns the event."""
    await driver.do({**command, "as": of, "of": of})
    return await driver.event(of)


async def step(driver: Driver, of: str, *said: Json) -> None:
    told = await ask(driver, of, do="step", step=said)
    assert told == {"of": of, "done": said[0]}


async def attempt(driver: Driver, expects: Json, *actions: Json) -> Json:
    return await ask(driver, "turn", do="turn", actions=actions, expects=expects)


async def owner_of(witness: dataspace.RemoteSpace, pattern: str) -> str:
    """Returns the owner of the one fact that matches."""
    found: Json = await witness.request("owners", dataspace.Map({"pattern": parse(pattern)}))
    (claim,) = found
    return str(claim["owner"])


# -- turns that expect something ------------------------------------------------------------------------


async def test_a_turn_happens_only_if_what_it_expects_holds(tmp_path: Path) -> None:
    async with daemon(tmp_path) as (_, http), program(*javascript()) as page:
        await connected(page, http)
        lead = ["assert", "lead", said("leader", "page")]
        first = await attempt(page, [["absent", "leader(_)"]], lead)
        assert first["epoch"] > 0
        again = await attempt(
            page,
            [["absent", "other(_)"], ["absent", "leader($who)"]],
            ["assert", "other", said("leader", "other")],
        )
        found = {"expectation": 2, "rows": [["page"]], "count": 1, "epoch": 0}
        assert (again["error"], again["found"]) == ("expectation", found)
        swap = ["replace", "lead", said("leader", "next")]
        done = await attempt(page, [["exactly", "leader($who)", [["page"]]]], swap)
        late = [["unchanged", "leader(_)", first["epoch"]]]
        refused = await attempt(page, late, ["send", said("bell")])
        assert refused["found"]["epoch"] == done["epoch"]
        assert "epoch" in await attempt(
            page, [["unchanged", "leader(_)", done["epoch"]]], ["send", said("bell")]
        )
        assert await rows(page, "leader($who)") == [["next"]]


async def test_put_keeps_one_fact_for_each_key(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        program(*javascript()) as other,
    ):
        await connected(page, http)
        await page.do({"do": "observe", "as": "rate", "pattern": "config($k, $v)", "options": {}})
        assert (await read(page, "rate"))["added"] == []
        for n in (1, 2):
            await ask(page, "put", do="put", value=said("config", "rate", n))
            changes = await read(page, "rate")
            assert changes["added"] == [["rate", n]]
            assert changes["removed"] == ([["rate", n - 1]] if n > 1 else []), "in one epoch"
        await ask(page, "put", do="put", value=said("task", 1, "open", "ann"), by="task(1)")
        await ask(page, "put", do="put", value=said("task", 1, "shut", "ben"), by="task(1)")
        assert await rows(page, "task($n, $state, $who)") == [[1, "shut", "ben"]]
        assert (await ask(page, "put", do="put", value=said("lone", 1)))["error"] == "usage-error"
        # two clients of one durable owner: the daemon finds what is replaced
        for at, each in enumerate((page, other)):
            await connected(each, http, owner="settings")
            await ask(each, "put", do="put", value=said("config", "theme", at))
        async with dataspace.connect(tcp) as witness:
            assert await witness.matches('config("theme", $v)') == [(1,)]


async def test_first_waits_for_a_match(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as witness,
    ):
        await connected(page, http)
        late = await ask(page, "none", do="first", pattern="none($n)", options={"timeout": 1})
        assert late["error"] == "timed-out"
        await page.do({"do": "first", "as": "n", "pattern": "n($n)", "options": {}})
        await page.do({"do": "request", "as": "sync", "verb": "sync", "arguments": {}})
        await page.event("sync")
        await witness.send(Record("n", 7))
        assert (await page.event("n"))["row"] == [7]


# -- leases ---------------------------------------------------------------------------------------------


async def test_a_lease_that_ended_is_asked_for_again_with_its_facts(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as witness,
    ):
        await connected(page, http, name="page", lease=60_000)
        await turn(page, ["assert", "here", said("present", "page")])
        assert (await page.event("connection"))["change"] == "connected"
        owner = await owner_of(witness, "present(_)")
        # as if it had not been renewed in time
        await witness.request("release", dataspace.Map({"owner": owner}))
        assert await witness.matches("present(_)") == []
        await turn(page, ["assert", "more", said("present", "more")])
        assert (await page.event("connection"))["change"] == "lease-ended"
        assert sorted(await witness.matches("present($who)")) == [("more",), ("page",)]


# -- topics ---------------------------------------------------------------------------------------------


async def test_a_topic_from_python_comes_in_whole_epochs(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as source,
    ):
        await connected(page, http)
        assert (await ask(page, "none", do="subscribe", topic="none", options={}))["error"] == "no-topic"
        async with (
            source.publish("prices", partitions=2, retain=1 << 20) as left,
            source.publish("prices", partition=1, partitions=2, retain=1 << 20) as right,
        ):
            begun = await ask(page, "feed", do="subscribe", topic="prices", options={})
            assert begun["partitions"] == [0, 1]
            await right.send("b", at=0)
            await left.send("a", 1.0)
            await left.advance(3)
            await page.do({"do": "epoch", "of": "feed"})
            await left.send("c")
            await right.advance(5)
            assert await page.event("feed") == {
                "of": "feed",
                "time": 0,
                "items": ["a", {"@float": "1.0"}, "b"],
                "crashed": "",
            }
            await left.release()
            third = {"of": "feed", "time": 3, "items": ["c"], "crashed": ""}
            assert await ask(page, "feed", do="epoch") == third
            await page.do({"do": "frontier", "of": "feed"})
            assert (await page.event("feed"))["frontier"] == [5]
            # what is retained, from a time on
            await ask(page, "past", do="subscribe", topic="prices", options={"asOf": 1, "upTo": 4})
            assert (await ask(page, "past", do="epoch"))["time"] == 3
            assert (await ask(page, "past", do="epoch")) == {"of": "past", "end": True}
            right.crash("the pump failed")
        assert (await ask(page, "feed", do="epoch"))["end"]


async def test_an_epoch_of_a_producer_that_crashed_says_so(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path) as (tcp, http),
        program(*javascript()) as page,
        dataspace.connect(tcp) as reader,
    ):
        await connected(page, http)
        publisher = await ask(page, "out", do="publish", topic="t", options={"retain": 1 << 20})
        assert publisher["time"] == 0
        async with reader.subscribe("t") as seen:
            await ask(page, "own", do="subscribe", topic="t", options={})
            await step(page, "out", "send", [1, said("x", {"@float": "1.0"})])
            await step(page, "out", "finish", [2], 4)
            whole = await seen.next_epoch()
            assert whole is not None and (whole.time, whole.items) == (0, (1, Record("x", 1.0), 2))
            await step(page, "out", "hold", 9)
            await step(page, "out", "send", ["late"], 12)
            early = await ask(page, "out", do="step", step=["send", ["early"], 3])
            assert early["error"] == "usage-error"
            await step(page, "out", "flush")
            await step(page, "out", "crash", "out of paper")
            crashed = await seen.next_epoch()
            assert crashed is not None and (crashed.time, crashed.items, crashed.crashed) == (
                12,
                ("late",),
                "out of paper",
            )
        assert (await ask(page, "own", do="epoch"))["time"] == 0
        assert (await ask(page, "own", do="epoch"))["crashed"] == "out of paper"


async def test_a_lease_and_a_durable_topic_go_on_over_a_killed_daemon(tmp_path: Path) -> None:
    process = DaemonProcess(tmp_path / "data", "--listen", f"http:127.0.0.1:{free_port()}")
    await trio.to_thread.run_sync(process.start)
    try:
        async with program(*javascript()) as page:
            await connected(page, process.url, name="page", lease=60_000)
            assert (await page.event("connection"))["change"] == "connected"
            await turn(page, ["assert", "here", said("present", "page")])
            await ask(page, "out", do="publish", topic="t", options={"durable": True, "away": 60_000})
            await ask(page, "feed", do="subscribe", topic="t", options={"slow": "wait"})
            for n in range(5):
                await step(page, "out", "finish", [n, n], n + 1)
            await step(page, "out", "send", ["half"])
            await step(page, "out", "flush")
            assert [(await ask(page, "feed", do="epoch"))["time"] for _ in range(3)] == [0, 1, 2]
            await trio.to_thread.run_sync(process.kill)
            assert (await page.event("connection"))["change"] == "lost"
            for n in range(5, 10):  # while there is no daemon
                await step(page, "out", "finish", [n], n + 1)
            await trio.to_thread.run_sync(process.start)
            assert (await page.event("connection"))["change"] == "resumed", "the lease goes on"
            await step(page, "out", "close")
            came = [await ask(page, "feed", do="epoch") for _ in range(7)]
            assert [each["time"] for each in came] == list(range(3, 10))
            assert [each["items"] for each in came] == [[3, 3], [4, 4], ["half", 5], [6], [7], [8], [9]]
            assert not any(each["crashed"] for each in came)
            async with dataspace.connect(process.url) as witness:
                seen = witness.observe("present($who)")
                state = await seen.next_epoch()
                assert state is not None and [*state.added] == [("page",)]
                owner = await owner_of(witness, "present(_)")
                assert owner.startswith("lease:60000:page-")
                await page.do({"do": "close"})
                assert (await page.event("close"))["done"]
                ended = await seen.next_epoch()
                assert ended is not None and [*ended.removed] == [("page",)], "the lease ends with its client"
    finally:
        await trio.to_thread.run_sync(process.stop)
