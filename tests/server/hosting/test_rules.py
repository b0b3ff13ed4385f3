"""Rules over the wire: whoever asserts one has it carried out, for as long as they are there."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import trio

import dataspace
from dataspace import Map, Record
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.space import Space
from server.config.rules import RuleText, rule_facts
from server.spaces.rules import OWNER, actions_to_hold, warn_of_errors
from tests import warm
from tests.server.processes import DaemonProcess

REACH = "reach($x, $y) <- road($x, $y). reach($x, $z) <- reach($x, $y), road($y, $z)."
CUT = "apart($x, $y) <- town($x), town($y), not reach($x, $y), $x != $y."


def holder(url: str, *facts: str) -> subprocess.Popen[str]:
    """A process that holds facts, once it says so."""
    made = warm.Popen(
        [sys.executable, "-m", "dataspace", "assert", "--url", url, *facts],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert made.stderr is not None  # a pipe, as asked for
    assert "asserted" in made.stderr.readline()
    return made


def rule(name: str, text: str) -> str:
    return f'rule("{name}", "{text}")'


@pytest.mark.slow
async def test_rules_of_two_clients_lean_on_each_other_and_go_with_whoever_held_them(
    daemon: DaemonProcess,
) -> None:
    async with dataspace.connect(daemon.url) as space:
        for town in "abc":
            await space.assert_(Record("town", town))
        await space.assert_(Record("road", "a", "b"))
        first = await trio.to_thread.run_sync(holder, daemon.url, rule("reach", REACH))
        second = await trio.to_thread.run_sync(holder, daemon.url, rule("apart", CUT))
        async with space.observe("apart($x, $y)") as changes, space.observe("reach($x, $y)") as reached:
            state = {tuple((await anext(changes)).captures) for _ in range(5)}
            assert state == {("b", "a"), ("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")}
            assert (await anext(reached)).captures == ("a", "b")
            await space.assert_(Record("road", "b", "c"))
            caused = await space.sync()
            gone = [await anext(changes) for _ in range(2)]
            assert {change.captures for change in gone} == {("a", "c"), ("b", "c")}
            assert {change.epoch for change in gone} == {caused}, "published with their cause"
            came = [await anext(reached) for _ in range(2)]
            assert {(change.epoch, change.kind) for change in came} == {(caused, "+")}
            first.send_signal(signal.SIGKILL)
            vanished = [await anext(reached) for _ in range(3)]
            assert {change.kind for change in vanished} == {"-"}
            assert len({change.epoch for change in vanished}) == 1, "all in one epoch"
            follows = [await anext(changes) for _ in range(3)]
            assert {change.epoch for change in follows} == {vanished[0].epoch}
            assert {change.captures for change in follows} == {("a", "b"), ("a", "c"), ("b", "c")}
            assert len(await space.matches("apart($x, $y)")) == 6, "the other rule stands"
        second.terminate()
        for process in (first, second):
            process.wait()
            process.stderr.close()  # type: ignore[union-attr]  # a pipe, as asked for


@pytest.mark.slow
async def test_derived_facts_are_back_before_the_first_client_after_a_crash(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url, owner="map") as space:
        await space.assert_(Record("rule", "reach", REACH))
        await space.assert_(Record("road", "a", "b"))
        await space.assert_(Record("road", "b", "c"))
    async with dataspace.connect(daemon.url) as space:
        await space.assert_(Record("road", "c", "d"))
        assert len(await space.matches("reach($x, $y)")) == 6
        await trio.to_thread.run_sync(daemon.kill)
    daemon.start()
    async with dataspace.connect(daemon.url) as space:
        assert sorted(await space.matches("reach($x, $y)")) == [("a", "b"), ("a", "c"), ("b", "c")]
        newest = await space.sync()
        changes = await _history(space, newest)
    assert changes == {("a", "b"), ("a", "c"), ("b", "c")}, "the log agrees, change by change"


@pytest.mark.slow
async def test_starts_keep_what_next_holds_and_send_nothing_twice(daemon: DaemonProcess) -> None:
    standing = "send(alarm($x)) <- level($x), $x > 3."
    seen = "next(seen($w)) <- said($w). next(seen($w)) <- seen($w), not forget($w)."
    quiet = "hot($x) <- level($x), $x > 90."
    async with dataspace.connect(daemon.url, owner="map") as space:
        for name, text in (("standing", standing), ("seen", seen), ("quiet", quiet)):
            await space.assert_(Record("rule", name, text))
        await space.assert_(Record("level", 5))
        await space.send(Record("said", "A"))
        while not await space.matches("seen($w)"):
            await space.sync()
        await space.sync()  # what a rule makes next is shown before it is on disk
    for kill in (True, False, True):
        await trio.to_thread.run_sync(daemon.kill if kill else daemon.stop)
        daemon.start()
    async with dataspace.connect(daemon.url, owner="map") as space:
        assert await space.matches("seen($w)") == [("A",)]
        claim = await space.assert_(Record("level", 95))
        assert await space.matches("hot($x)") == [(95,)], "a rule from which nothing had followed goes on"
        await space.retract(claim)
        newest = await space.sync()
        async with space.observe("alarm($x)", after=0, upto=newest, durable=True) as changes:
            assert [change.captures async for change in changes if change.captures] == [(5,), (95,)]


async def _history(space: dataspace.RemoteSpace, newest: int) -> set[tuple[object, ...]]:
    """What the log's changes add up to."""
    held: set[tuple[object, ...]] = set()
    async with space.observe("reach($x, $y)", after=0, upto=newest, durable=True, quiet=True) as changes:
        async for change in changes:
            (held.add if change.kind == "+" else held.remove)(tuple(change.captures))
    return held


async def test_what_is_wrong_with_a_rule_is_a_fact(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.observe("rule-error($name, _, $row, $why)") as errors:
            broken = await space.assert_(Record("rule", "broken", "p($x) <- q($y)."))
            change = await anext(errors)
            assert change.name == "broken" and "$x in the head is bound by no" in str(change.why)
            await space.retract(broken)
            assert (await anext(errors)).kind == "-"
            await space.assert_(Record("rule", "ratio", "ratio($x, $a / $b) <- pair($x, $a, $b)."))
            await space.assert_(Record("pair", "one", 6, 3))
            assert await space.matches("ratio($x, $r)") == [("one", 2.0)]
            await space.assert_(Record("pair", "two", 6, 0))
            change = await anext(errors)
            assert change.name == "ratio" and change.row == Map({"x": "two", "a": 6, "b": 0})
            assert await space.matches("ratio($x, $r)") == [], "what it derived goes with it"
            assert len(await space.matches("pair($x, _, _)")) == 2, "the turn went on without it"


def test_a_daemon_says_which_of_its_own_rules_are_not_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    space, facts = Space("main"), rule_facts([RuleText("half", "half(1 / $n) <- n($n).")])
    space.commit("somebody", [(ASSERT, 1, Record("n", 0))], 0)
    space.commit(OWNER, actions_to_hold(space, facts), 0)
    warn_of_errors(space.rules, facts)
    assert "rule half is not carried out: ZeroDivisionError" in caplog.text


async def test_next_goes_on_by_itself(url: str) -> None:
    text = "next(count($n + 1)) <- count($n), $n < 20. next(count($n)) <- count($n), $n >= 20."
    async with dataspace.connect(url) as space:
        await space.assert_(Record("rule", "count", text))
        async with space.observe("count($n)") as counts:
            claim = await space.assert_(Record("count", 1))
            await space.retract(claim)
            seen = []
            with trio.fail_after(20):
                async for change in counts:
                    seen.append((change.kind, change.n))
                    if change.n == 20:
                        break
        assert [n for kind, n in seen if kind == "+"] == list(range(1, 21))
