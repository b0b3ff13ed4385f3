"""Since when facts have been there is kept over restarts, however little of the log retention has left."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dataspace.instants import GRID
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.space import Space
from dataspace.rules.engine import engine
from dataspace.rules.relations import relations, times, timing
from index.values.values import Record, Value
from relay.log.compaction import compact
from relay.log.log import Log
from relay.log.retention import Retention
from relay.log.snapshots import RecoveredState
from server.spaces.windows import past_of, with_windows
from tests.server.spaces.test_windows import Logged

START: Final = 1_000_000_000_000
TEXT: Final = """
opened($id, $t) <- ticket($id, _) at $t.
late($id) <- ticket($id, _) at $t, $t + 700 ms <= now.
hot($id) <- (ticket($id, $v), $v > 1) for 300 ms.
gone($id, $t) <- ticket($id, $v) at $t within 250 ms.
tickets(count()) <- ticket(_) within 200 ms.
final(many($m, count())) <- ticket($id, $v) at $t within 70 ms, $m = floor($t, 40 ms).
"""
HOWS: Final = ("plainly", "trimmed", "twice", "half way", "compacted", "in a turn")
"""How a space begins again."""


def snapshot(one: Logged) -> None:
    """Writes one, as group commits do."""
    state = one.log.recover()
    state.past, state.past_epoch = past_of(one.space), state.epoch
    write(one.log, state)
    one.log.past_epoch = state.past_epoch


def write(log: Log, state: RecoveredState) -> None:
    writer = log.snapshot(state)
    while writer.step():
        pass


def trim(one: Logged, time: int) -> None:
    """Deletes all epochs that no window needs."""
    while one.log.trim(with_windows(Retention(age=0.0), one.space), time).more:
        pass


def begun_again(one: Logged, how: str, time: int, place: Path) -> Logged:
    """Returns a space that goes on from the log alone."""
    match how:
        case "trimmed":
            snapshot(one)
            trim(one, time)
        case "twice":
            snapshot(one)
            trim(one, time)
            one = one.again()
            snapshot(one)
            trim(one, time)
        case "half way":  # a start writes a snapshot as well, which has the past of an earlier one
            one.log.recover(snapshot=True)
            trim(one, time)
        case "compacted":
            snapshot(one)
            trim(one, time)
            one.log.close()
            compact(place)
            one.log = Log.open(place)
        case "in a turn":  # of a later instant, that is made in steps and undone
            if one.space.rules.due < time + 5_000_000:
                for at, _ in enumerate(one.space.making_instant()):
                    if at == 1:
                        break
                snapshot(one)
                one.space.abandon()
            trim(one, time)
    return one.again()


def facts_of(space: Space) -> set[Value]:
    return {each for each in space.index.values() if isinstance(each, Record) and each.label != "rule"}


def turns(chosen: random.Random) -> Iterator[tuple[int, list[Action]]]:
    """Yields turns with how much later than the one before they are."""
    there: dict[int, tuple[int, int]] = {}
    handle = 1
    for _ in range(30):
        number, value = chosen.randrange(3), chosen.randrange(4)
        handle += 1
        actions: list[Action] = [(ASSERT, handle, Record("ticket", number, value))]
        if number in there:
            actions.insert(0, (RETRACT, there[number][0]))
            if chosen.random() < 0.5 or there[number][1] == value:
                actions.pop()
        if len(actions) == 2 or number not in there:
            there[number] = handle, value
        else:
            del there[number]
        if chosen.random() < 0.3:
            actions.append((SEND, Record("ticket", 9, value)))
        yield chosen.choice([0, 1, 9_999, 50_000, 150_001, 400_000]), actions


@pytest.mark.parametrize("how", HOWS)
def test_a_space_that_begins_again_derives_the_same(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "MUCH", 1)
    for module in (engine, relations, times, timing):
        monkeypatch.setattr(module, "STEP", 1)
    for seed in range(2):
        chosen = random.Random(seed)
        log = Log.open(place := tmp_path / str(seed))
        one, twin, time = Logged(log), Space("s"), START
        rule: list[Action] = [(ASSERT, 1, Record("rule", "r", TEXT))]
        one.commit(rule, START)
        twin.commit("durable:a", rule, START)
        snapshot(one)
        for later, actions in turns(chosen):
            time += later
            one.commit(actions, time)
            twin.until(time)
            twin.commit("durable:a", actions, time)
            if chosen.random() < 0.4:
                one = begun_again(one, how, time, place)
                before = one.log.last
                found = one.facts(time)
                assert found == facts_of(twin), (seed, time - START)
                assert one.log.last == before, list(one.log.read(before))
        time += 2_000_000
        twin.until(time)
        assert one.facts(time) == facts_of(twin)
        assert how == "plainly" or one.log.oldest > 1
        one.log.close()


def test_a_log_without_the_past_of_rules_begins_with_its_oldest_epoch(tmp_path: Path) -> None:
    with_past, without = (Logged(Log.open(tmp_path / name)) for name in ("with", "without"))
    for one in (with_past, without):
        rule = Record("rule", "r", "late($id) <- ticket($id) at $t, $t + 1 s <= now.")
        one.commit([(ASSERT, 1, rule), (ASSERT, 2, Record("ticket", 1))], START)
        one.commit([(SEND, Record("other"))], START + 900_000)
        one.commit([(SEND, Record("other"))], START + 950_000)
    snapshot(with_past)
    write(without.log, without.log.recover())
    for one in (with_past, without):
        trim(one, START + 950_000)
        assert one.log.oldest > 1
    assert Record("late", 1) in with_past.again().facts(START + 1_000_000)
    late = without.again()
    assert Record("late", 1) not in late.facts(START + 1_000_000 + GRID)
    assert Record("late", 1) in late.facts(START + 2_000_000)
    for one in (with_past, without):
        one.log.close()


def check_the_newest_epoch_is_enough(place: Path, made: dict[int, list[Action]], pause: int = 0) -> None:
    """A space whose log was trimmed to its newest epoch, after a pause, goes on as one without a log."""
    one, twin = Logged(Log.open(place)), Space("s")
    for later, actions in made.items():
        one.commit(actions, time := START + later)
        twin.until(time)
        twin.commit("durable:a", actions, time)
    snapshot(one)
    trim(one, time + pause)
    assert one.log.oldest == one.log.last
    one = one.again()
    for _ in range(10):
        time += GRID
        twin.until(time)
        assert one.facts(time) == facts_of(twin)
    one.log.close()


def test_what_stays_began_when_the_snapshot_says_from_the_oldest_epoch_on(tmp_path: Path) -> None:
    text = "final(many($m, count())) <- ticket($id) at $t within 70 ms, $m = floor($t, 40 ms)."
    first: list[Action] = [(ASSERT, 1, Record("rule", "r", text))]
    ticket: list[Action] = [(ASSERT, 2, Record("ticket", 1))]
    other: list[Action] = [(SEND, Record("other"))]
    made = {0: first, 14_927: ticket, 56_651: other, 84_975: other}
    check_the_newest_epoch_is_enough(tmp_path, made, pause=500_000)


def test_what_goes_in_the_oldest_epoch_was_there_before_it(tmp_path: Path) -> None:
    text = """gone($id, $t) <- ticket($id) at $t within 250 ms.
    final(many($m, count())) <- ticket($id) at $t within 50 ms, $m = floor($t, 40 ms)."""
    first: list[Action] = [(ASSERT, 1, Record("rule", "r", text)), (ASSERT, 2, Record("ticket", 1))]
    other: list[Action] = [(SEND, Record("other"))]
    made: dict[int, list[Action]] = {0: first, 1_000_000: other, 1_100_000: other, 2_009_435: [(RETRACT, 2)]}
    check_the_newest_epoch_is_enough(tmp_path, made)
