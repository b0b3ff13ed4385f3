"""The log keeps what windows need: a space that starts again derives the same as one that never stopped."""

from __future__ import annotations

import random
from pathlib import Path

import trio
import trio.testing

from dataspace.instants import GRID
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.kernel.state import SteadyClock
from dataspace.rules.language.arithmetic import time_of
from index.values.values import Record, Value
from relay.log.log import Log
from relay.log.notes import derived_messages
from relay.log.retention import Retention
from relay.log.segments import encode, encode_note
from server.lane import Lane
from server.spaces.windows import RuleTurns, derived_in, rebuild_windows, with_windows

RULES = """
busy($d, count($v)) <- reading($d, $v) within 1 s.
steady($d) <- (up($d)) for 700 ms.
silent($d) <- up($d), not reading($d, _) within 300 ms.
send(reading($d, 9)) <- silent($d).
send(reading("a", $n)) <- busy("b", $n), $n > 1.
"""
START = 1_000_000_000_000


class Logged:
    """A space whose epochs go into a log, one transaction each."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.space = Space("s", limits=SpaceLimits(rule_window=2.0))
        self.space.submit_timed = self.append

    def append(self, epoch: Epoch) -> None:
        if epoch.claims or not epoch.silent:
            count = derived_in(self.space, epoch)
            notes = [encode_note(epoch.number, epoch.time, derived_messages(count))] if count else []
            self.log.append([encode(epoch), *notes])

    def commit(self, actions: list[Action], time: int) -> None:
        self.space.until(time)
        self.append(self.space.commit("durable:a", actions, time))

    def again(self) -> Logged:
        """Returns another one, which has only the log."""
        made = Logged(self.log)
        state = self.log.recover()
        made.space.restore(state.owners, state.epoch, state.time)
        rebuild_windows(made.space, self.log)
        return made

    def facts(self, time: int) -> set[Value]:
        self.space.until(time)
        epoch = self.space.advance(time)
        if epoch is not None:
            self.append(epoch)
        return {
            fact for fact in self.space.index.values() if isinstance(fact, Record) and fact.label != "rule"
        }


def shorten(log: Log, space: Space, now: int) -> None:
    """Drops all that may go, after a snapshot."""
    writer = log.snapshot(log.recover())
    while writer.step():
        pass
    while log.trim(with_windows(Retention(age=0.0), space), now).more:
        pass


def test_a_log_without_age_keeps_what_windows_need_and_no_more(tmp_path: Path) -> None:
    for seed in range(6):
        chosen = random.Random(seed)
        log = Log.open(tmp_path / str(seed))
        one, twin = Logged(log), Space("s")
        rule: list[Action] = [(ASSERT, 1, Record("rule", "r", RULES))]
        one.commit(rule, START)
        twin.commit("durable:a", rule, START)
        time, up = START, {"a": False, "b": False}
        for _ in range(60):
            time += chosen.choice([0, 1, 1_234, 9_999, 33_333, 150_001])
            device = chosen.choice("ab")
            actions: list[Action] = [(SEND, Record("reading", device, chosen.randrange(3)))]
            if chosen.random() < 0.2:
                handle = 2 + "ab".index(device)
                actions = [(RETRACT, handle) if up[device] else (ASSERT, handle, Record("up", device))]
                up[device] = not up[device]
            one.commit(actions, time)
            twin.until(time)
            twin.commit("durable:a", actions, time)
            if chosen.random() < 0.2:
                shorten(log, one.space, time)
            if chosen.random() < 0.2:
                one = one.again()
            twin.advance(time)
            found = {
                each for each in twin.index.values() if isinstance(each, Record) and each.label != "rule"
            }
            assert one.facts(time) == found, (seed, time - START)
        assert log.oldest > 1, "what no window needs has gone"
        log.close()


def test_a_window_that_is_refused_keeps_no_epochs(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    one = Logged(log)
    one.commit([(ASSERT, 1, Record("rule", "r", "p($x) <- q($x) within 3 s."))], START)
    facts = [fact for fact in one.facts(START) if isinstance(fact, Record)]
    assert [fact.label for fact in facts] == ["rule-error"]
    assert str(facts[0].fields[3]) == (
        "q($x) within 3 s looks back for longer than limits.rule_window (2 s): write a shorter time, or raise"
        " the limit"
    )
    assert not with_windows(Retention(), one.space).windows
    again = one.again()
    assert not again.space.rules.times.rows
    log.close()


def test_time_goes_on_a_little_slower_while_the_clock_is_behind() -> None:
    space, elapsed, behind = Space("s"), 0, 0
    clock = SteadyClock(space, lambda: START + elapsed - behind, lambda: elapsed * 1000)

    def passes(micros: int) -> int:
        nonlocal elapsed
        elapsed += micros
        time = clock.now()
        space.commit("a", [(SEND, Record("tick"))], time)
        assert space.time == time, "never earlier than before"
        return time - START

    assert [passes(1_000), passes(15_000)] == [1_000, 16_000]
    behind = 10_000_000
    assert passes(16_000) == 16_000, "the clock was put back since the last epoch"
    assert [passes(16_000), passes(16_000)] == [16_000 + 15_000, 16_000 + 30_000]
    assert passes(16_000_000) == 46_000 + 15_000_000, "still behind"
    assert passes(160_000_000) == elapsed - behind, "the clock has caught up"
    behind = 0
    assert passes(1_000) == elapsed, "a jump ahead is taken at once"


def test_time_goes_on_after_a_turn_without_effect_that_the_clock_is_behind() -> None:
    space, elapsed = Space("s"), 0
    clock = SteadyClock(space, lambda: START + elapsed, lambda: elapsed * 1000)
    space.commit("a", [(ASSERT, 1, Record("r"))], START)
    assert space.commit("a", [(ASSERT, 2, Record("r"))], START + 3_600_000_000).silent
    assert clock.now() == START + 3_600_000_000
    elapsed = 32_000_000
    assert clock.now() == START + 3_630_000_000


def test_a_space_that_is_ahead_of_the_clock_at_its_start_does_not_stand_still() -> None:
    space, elapsed = Space("s"), 0
    space.restore({}, 1, START + 3_600_000_000)
    clock = SteadyClock(space, lambda: START + elapsed, lambda: elapsed * 1000)
    assert clock.now() == space.time
    elapsed = 32_000_000
    assert clock.now() == space.time + 30_000_000
    elapsed = 3_600_000_000 * 16
    assert clock.now() == START + elapsed


async def test_instants_that_are_late_give_way_to_other_tasks_and_come_in_order() -> None:
    space, wall = Space("s"), START
    text = "due($n) <- job($n, $t), $t <= now."
    space.commit("a", [(ASSERT, 0, Record("rule", "r", text))], START)
    jobs = [Record("job", n, time_of(START + n * GRID)) for n in range(1, 301)]
    space.commit("a", [(ASSERT, n, job) for n, job in enumerate(jobs, start=1)], START)
    order: list[int] = []

    def turn(time: int) -> None:
        space.advance(time)
        order.append(space.time)

    async def room() -> None:
        await trio.lowlevel.checkpoint()

    turns = RuleTurns(space, lambda: wall, turn, lambda: None, Lane())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run, room)
        wall = START + 200 * GRID  # two seconds without the thread
        while space.time < START + 200 * GRID:
            order.append(0)
            await trio.lowlevel.checkpoint()
        assert [each for each in order if each] == [START + n * GRID for n in range(1, 201)]
        assert order.count(0) > 100, "this task ran in between"
        assert space.timed_late == 0 and space.rules.claimed == 200
        wall = START + 300 * GRID
        turns.due.set()
        while space.time < wall:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert space.rules.claimed == 300


async def test_rows_that_leave_together_go_in_slices_for_which_turns_wait() -> None:
    space, wall = Space("s"), START
    space.commit("a", [(ASSERT, 0, Record("rule", "r", "recent($n) <- m($n) within 1 s."))], START)
    space.commit("a", [(SEND, Record("m", n)) for n in range(2_000)], START)
    times, slices, order = iter(range(1 << 30)), 0, list[str]()
    lane = Lane(clock=lambda: float(next(times)))  # each step takes as long as a slice
    epochs: list[Epoch] = []
    space.submit_timed = epochs.append

    def turn(time: int) -> None:
        space.advance(time)
        order.append("turn")

    async def client() -> None:
        while not turns.has_much():
            await trio.lowlevel.checkpoint()
        await turns.wait_settled()
        order.append("client")

    turns = RuleTurns(space, lambda: wall, turn, lambda: None, lane)
    assert not turns.has_much(), "nothing makes them yet"
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.run, trio.lowlevel.checkpoint)
            await trio.testing.wait_all_tasks_blocked()
            assert not turns.has_much(), "nothing is due"
            nursery.start_soon(client)
            wall = START + 1_000_000
            turns.due.set()
            while space.epoch < 3:
                assert space.rules.claimed == 2_000 and not epochs
                slices += 1
                await trio.lowlevel.checkpoint()
            while len(order) < 2:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert slices > 50 and [len(each.removed) for each in epochs] == [2_000]
    assert order == ["turn", "client"] and lane.statistics().slices > 50
    assert not turns.has_much()
