"""A defect at any line of what makes the turns of time, or rebuilds rules, ends nothing.

A text is suspended with the reason, or all goes on as before.  Other texts and turns are untouched.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing

from dataspace.kernel.actions import ASSERT, SEND, Action
from dataspace.kernel.space import Space
from dataspace.rules.engine import engine, program
from dataspace.rules.relations import relations, times, timing
from dataspace.rules.relations.past_rows import PastRows
from dataspace.rules.relations.times import Times
from index.values.values import Record, Value
from relay.log.log import Log
from server.lane import Lane
from server.spaces.rules import hold_from_start, made
from server.spaces.windows import RuleTurns, past_of, rebuild_windows
from tests.server.spaces.test_windows import Logged
from tests.striking import strike

START: Final = 1_000_000_000_000
THOROUGH: Final = os.environ.get("TORTURE_ROUNDS", "0") != "0"
TEXTS: Final = {
    "count": "busy(count()) <- m($x) within 100 ms.",
    "since": "late($x) <- f($x) at $t, $t + 100 ms <= now.",
    "lasting": "held($x) <- (f($x)) for 100 ms.",
    "window": "seen($x, $t) <- m($x) at $t within 150 ms.",
    "final": "final(whole($m, count())) <- m(_) at $t within 300 ms, $m = floor($t, 100 ms).",
    "silent": "silent($x) <- f($x), not m($x) within 100 ms.",
    "plain": "plain($x) <- f($x), not g($x).",
}
HEADS: Final = dict(zip(("busy", "late", "held", "seen", "whole", "silent", "plain"), TEXTS, strict=True))
FENCES: Final = {
    *("hold_from_start", "<lambda>", "rebuild_windows", "made", "run", "_run_fenced"),
    *("until_made", "failed", "_make_timed"),
}
RULES: Final = [Record("rule", name, text) for name, text in TEXTS.items()]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turns of instants in many steps, and no log of each defect."""
    monkeypatch.setattr(times, "MUCH", 1)
    for module in (engine, relations, times, timing, program):
        monkeypatch.setattr(module, "STEP", 2)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def turns() -> list[list[Action]]:
    """Returns what clients do, one turn after the other."""
    rules: list[Action] = [(ASSERT, at, rule) for at, rule in enumerate(RULES, start=1)]
    facts: list[Action] = [(ASSERT, 20 + at, Record("f", at)) for at in range(5)]
    sent: list[Action] = [(SEND, Record("m", at % 3)) for at in (0, 1, 2, 0, 1, 2, 2, 2)]
    return [
        rules,
        [*facts, *sent],
        [(SEND, Record("m", 1))],
        [(ASSERT, 30, Record("g", 2)), (SEND, Record("m", 7))],
    ]


def filled(space: Space) -> Space:
    for at, actions in enumerate(turns()):
        space.commit("durable:a", actions, START + at * 20_000)
    return space


def facts_of(space: Space, without: set[str] = frozenset()) -> set[Value]:  # type: ignore[assignment]  # not changed
    facts = [each for each in space.index.values() if isinstance(each, Record)]
    return {
        each for each in facts if each.label != "rule-error" and HEADS.get(str(each.label)) not in without
    }


def check(space: Space, twin: Space, most: int) -> set[str]:
    """Checks that both hold the same, but for at most so many texts, and returns the names of these."""
    reasons = {}
    for each in space.index.values():
        if isinstance(each, Record) and each.label == "rule-error":
            reasons[str(each.fields[0])] = str(each.fields[3])
    assert all("struck" in reason for reason in reasons.values()), reasons
    assert len(reasons) <= most, reasons
    lost = set(reasons)
    assert facts_of(space, lost) == facts_of(twin, lost)
    assert not {HEADS.get(str(each.label)) for each in facts_of(space) if isinstance(each, Record)} & lost
    assert space.damage is None
    return lost


def lines(most: int) -> Iterator[int]:
    """Yields the lines to strike: with torture all, else some."""
    at, step = 1, 1
    while True:
        yield at
        step = 1 if THOROUGH else max(1, at // 3)
        at += step
        assert at < most, "the operation ends"


def check_fence(error: BaseException) -> None:
    """Checks that the line that was struck is of a fence itself, which has none around it."""
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert names[-3] in FENCES and names[-2:] == ["trace", "visit"], names


# -- the turns of time ------------------------------------------------------------------------------------


async def run_struck(space: Space, at: int, until: int) -> bool:
    """Runs the task of time up to a time, struck at a line; True if it was."""
    wall = space.time

    def turn(time: int) -> None:
        space.advance(time)

    task = RuleTurns(space, lambda: wall, turn, lambda: None, Lane())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run, trio.lowlevel.checkpoint)
        await trio.testing.wait_all_tasks_blocked()
        with strike(at, RuntimeError) as left:
            while wall < until:
                wall += 20_000
                task.due.set()
                await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return left() <= 0


@pytest.mark.slow
async def test_the_task_of_time_goes_on_after_a_defect_at_any_line(
    autojump_clock: trio.testing.MockClock,
) -> None:
    end, lost = START + 500_000, set[str]()
    twin = filled(Space("s"))
    twin.until(end)
    for at in lines(200_000):
        space = filled(Space("s"))
        try:
            is_struck = await run_struck(space, at, end)
        except* RuntimeError as errors:
            (error,) = errors.exceptions
            check_fence(error)
            is_struck = True
        space.until(end)
        space.advance(end)
        lost |= check(space, twin, 1)
        if not is_struck:
            break
    assert at > 1000 and lost, "some lines are of one form"


# -- rebuilding -------------------------------------------------------------------------------------------


def logged(place: Path) -> tuple[Log, set[Value]]:
    """Returns a log of a space, with a snapshot in the middle, and the facts at its end."""
    one = Logged(Log.open(place))
    for at, actions in enumerate(turns()):
        one.commit(actions, START + at * 20_000)
        if at == 1:
            state = one.log.recover()
            state.past, state.past_epoch = past_of(one.space), state.epoch
            writer = one.log.snapshot(state)
            while writer.step():
                pass
    return one.log, facts_of(one.space)


def begun(log: Log) -> Space:
    """Returns a space that has the state of a log, and no rules yet."""
    state, space = log.recover(), Space("s")
    space.restore(state.owners, state.epoch, state.time)
    return space


def start(space: Space, log: Log) -> None:
    """Begins to lead, as a daemon does when it starts or takes over."""
    rebuild_windows(space, log)
    now = START + 100_000
    made(space, lambda: space.end([each for each in space.owners() if each == "session:9"], now))
    hold_from_start(space, [], lambda: now, lambda _epoch: None)


@pytest.mark.slow
def test_a_start_goes_on_after_a_defect_at_any_line(tmp_path: Path) -> None:
    log, _ = logged(tmp_path / "log")
    twin = begun(log)
    start(twin, log)
    for later in (100_000, 500_000):
        twin.until(START + later)
    for at in lines(500_000):
        space = begun(log)
        with strike(at, RuntimeError) as left:
            try:
                start(space, log)
            except RuntimeError as error:
                check_fence(error)
                continue
        space.until(START + 500_000)
        space.advance(START + 500_000)
        check(space, twin, 1)
        if left() > 0:
            break
    assert at > 5_000
    log.close()


# -- a defect that comes again ----------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, name: str, kind: type[object], shown: str) -> None:
    """Has a method raise, for rows of the literals that are shown so."""
    whole: Callable[..., object] = getattr(kind, name)

    def raising(self: object, *args: object, **named: object) -> object:
        forms = [self, getattr(self, "form", None), *args]
        if any(isinstance(each, PastRows) and shown in each.of.shown for each in forms):
            raise RuntimeError("struck")
        return whole(self, *args, **named)

    monkeypatch.setattr(kind, name, raising)


@pytest.mark.parametrize(
    ("kind", "name", "shown", "text"),
    [
        (PastRows, "read", "m($x) within 100 ms", "count"),
        (Times, "shown_time", "at $t within 150 ms", "window"),
        (Times, "plan_at", "at $t within 300 ms", "final"),
        (Times, "_look_at", "for 100 ms", "lasting"),
        (timing.Timing, "_begin", "f($x) at $t", "since"),
        (timing.Timing, "_row", "for 100 ms", "lasting"),
        (timing.Timing, "conclude", "f($x) at $t", "since"),
        (Times, "_load", "f($x) at $t", "since"),
    ],
)
def test_a_text_that_fails_again_and_again_is_suspended_alone(
    kind: type[object], name: str, shown: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = logged(tmp_path / "log")
    twin, whole = begun(log), filled(Space("s"))
    start(twin, log)
    for each in (twin, whole):
        each.until(START + 500_000)
    failing(monkeypatch, name, kind, shown)
    space = begun(log)
    start(space, log)
    space.until(START + 500_000)
    assert check(space, twin, 2) >= {text}
    if name != "_load":
        live = filled(Space("s"))
        live.until(START + 500_000)
        assert check(live, whole, 2) >= {text}
    log.close()


def test_a_space_whose_rules_cannot_be_rebuilt_at_all_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = logged(tmp_path / "log")

    def raising(*_: object, **_named: object) -> object:
        raise RuntimeError("struck")

    monkeypatch.setattr(program.Program, "_tick_anew", raising)
    space = begun(log)
    start(space, log)
    labels = {each.label for each in space.index.values() if isinstance(each, Record)}
    assert labels == {"rule", "rule-error", "f", "g"}
    assert space.commit("durable:a", [(ASSERT, 99, Record("f", 99))], START + 200_000).added
    log.close()


def test_without_rules_nothing_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = logged(tmp_path / "log")
    monkeypatch.setattr("server.spaces.windows.rebuild", None)
    monkeypatch.setattr("server.spaces.windows.forms_of", None)
    state = log.recover()
    space = Space("s", limits=replace(Space("other").limits, rules=0))
    space.restore(state.owners, state.epoch, state.time)
    start(space, log)
    labels = {each.label for each in space.index.values() if isinstance(each, Record)}
    assert labels == {"rule", "rule-error", "f", "g"}
    log.close()
