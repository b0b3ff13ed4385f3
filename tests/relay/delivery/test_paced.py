"""An observer with a pace ends with the state of one without, and takes something only now and then."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.client.epochs.assembling import Assembler
from dataspace.codec import array_head, unpack
from dataspace.kernel.actions import CONFLATED, SNAPSHOT
from dataspace.kernel.changes import PART, EpochChanges
from index.values.values import Value
from relay.delivery.net_changes import NET_PART
from relay.delivery.paced import PacedMember
from relay.delivery.pacing import LEAST_PART, Pacing
from relay.delivery.queue_members import Delivery, QueueMember
from relay.delivery.shared import QueueBounds
from tests.relay.delivery.test_queue_members import PATTERN, PLENTY, Writer

TICK = 1 / 64
"""Seconds by which time goes on, at least; exact in binary."""


class Clock:
    """A clock that stands still until the test moves it on, and calls who is due then."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pacing = Pacing(lambda: self.now)

    def go_on(self, seconds: float) -> None:
        """Lets time pass, with each turn in its moment."""
        until = self.now + seconds
        while self.pacing.next <= until:
            self.now = max(self.now, self.pacing.next)
            while self.pacing.step():
                pass
        self.now = until


class Watcher:
    """An observer with a pace, and what it knows by what it has taken."""

    def __init__(self, delivery: Delivery, clock: Clock, pace: float) -> None:
        self.pace = pace
        self.clock = clock
        self.follower = PacedMember(delivery, self._wake, pace=pace)
        self._is_woken = False
        self.facts: set[Value] = set()
        self.messages: list[object] = []
        self.epochs: list[EpochChanges] = []
        self.times: list[float] = []
        self._assembler = Assembler(("n",))

    def _wake(self, _: object) -> None:
        self._is_woken = True

    def woken(self) -> bool:
        """True if something was announced that it has not taken."""
        return self._is_woken

    def oldest(self) -> tuple[int, int] | None:
        """Returns epoch and time of what is late."""
        return self.follower.oldest

    def take(self, count: int = 1 << 30, size: int = PLENTY) -> int:
        """Takes what there is for it, and believes it; returns the number of values."""
        is_own = self.follower._own is not None
        number, packed = self.follower.take_packed(count, size)
        if count > 0 and size > 0:  # else it takes again when there is credit
            self._is_woken = number > 0 and len(self.follower) > 0
        for value in unpack(array_head(number) + packed):  # type: ignore[union-attr]  # a tuple
            epoch = self._assembler.feed(value)
            if epoch is not None:
                self._believe(epoch)
        if number and not is_own:
            self.times.append(self.clock.now)
        return number

    def _believe(self, epoch: EpochChanges) -> None:
        came, went = {row[0] for row in epoch.added}, {row[0] for row in epoch.removed}
        if epoch.flags & SNAPSHOT:
            self.facts = came
        else:
            assert not came & self.facts and went <= self.facts, "a net difference to what it knows"
            self.facts = (self.facts | came) - went
        self.messages += [row[0] for row in epoch.messages]
        self.epochs.append(epoch)


class Machine:
    """A space and observers with some paces, one of them without: a state, and all messages."""

    def __init__(self, bounds: QueueBounds) -> None:
        self.writer = Writer()
        self.clock = Clock()
        self.delivery = Delivery(bounds=bounds, pacing=self.clock.pacing)
        self.watchers = [Watcher(self.delivery, self.clock, pace * TICK) for pace in (4, 4, 10)]
        self.touched: list[int] = []
        self.messages: list[object] = []
        self.steady = QueueMember(self.delivery, lambda _: None)
        for follower in (self.steady, *[each.follower for each in self.watchers]):
            follower.follow(self.writer.space, PATTERN)
            follower.extend(self.writer.state())
        self.steady.take_packed(9, PLENTY)

    def turn(self, facts: list[int], messages: int) -> None:
        at_rest = [self._is_at_rest(each) for each in self.watchers]
        self.writer.turn(facts, messages)
        self.touched.append(self.writer.space.epoch)
        self.messages += [-each - 1 for each in range(messages)]
        for each, was_at_rest in zip(self.watchers, at_rest, strict=True):
            assert each.woken() or not was_at_rest, "the first change after a rest leaves at once"

    def _is_at_rest(self, watcher: Watcher) -> bool:
        follower = watcher.follower
        return not len(follower) and follower.failure is None and self.clock.now >= follower._due

    def take(self, at: int, count: int, size: int) -> None:
        watcher = self.watchers[at]
        taken = watcher.take(count, size)
        follower = watcher.follower
        if taken and follower._own is None:
            assert not len(follower), "all that waited"

    def go_on(self, ticks: int) -> None:
        self.clock.go_on(ticks * TICK)

    def steady_takes(self) -> None:
        self.steady.take_packed(1 << 30, PLENTY)

    def check(self) -> None:
        for each in self.watchers:
            follower = each.follower
            due = follower._own is not None or self.clock.now > follower._due
            assert each.woken() or not (due and len(follower)), "what waits in its turn is announced"
            self._check_ranges(each)

    def _check_ranges(self, watcher: Watcher) -> None:
        """Each epoch begins with the next one that concerned the pattern, and ends with one that did."""
        expected = iter(self.touched)
        for epoch in watcher.epochs[1:]:
            assert epoch.first == next(expected)
            number = epoch.first
            while number < epoch.number:
                number = next(expected)
            assert epoch.number == number
            assert bool(epoch.flags & CONFLATED) == (epoch.first < epoch.number)

    def check_times(self) -> None:
        """Nothing is nearer than the least part of the pace, and each interval has one turn."""
        for each in self.watchers:
            times = each.times
            for before, after in pairwise(times):
                assert after - before >= LEAST_PART * each.pace
                assert before // each.pace < after // each.pace

    def end(self) -> None:
        """All take what is left, know the same, and leave nothing behind."""
        for watcher in self.watchers:
            while len(watcher.follower):
                watcher.take()
                self.clock.go_on(watcher.pace)
            if watcher.follower.failure is None:
                assert watcher.facts == set(self.writer.held)
                assert watcher.messages == self.messages
                assert not self.touched or watcher.epochs[-1].number == self.touched[-1]
            else:
                assert self.messages, "only they end it"
            watcher.follower.close()
        self.steady.close()
        budget = self.delivery.budget
        assert (budget.used, budget.observers, self.delivery.patterns) == (0, 0, 0)
        assert len(self.clock.pacing) == 0


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2)),
        st.tuples(st.just("go_on"), st.integers(1, 12)),
        st.tuples(
            st.just("take"), st.integers(0, 2), st.sampled_from([0, 1, 2, 9]), st.sampled_from([0, 1, 999])
        ),
        st.tuples(st.just("take"), st.integers(0, 2), st.just(9), st.just(999)),
        st.tuples(st.just("steady_takes")),
    ),
    max_size=50,
)
_SMALL = st.builds(QueueBounds, st.integers(1, 9), st.integers(1, 6), st.integers(20, 300))


def _run(bounds: QueueBounds, steps: list[tuple[object, ...]]) -> Machine:
    machine = Machine(bounds)
    for each in machine.watchers:
        each.take()
    for name, *args in steps:
        getattr(machine, str(name))(*args)
        machine.check()
    machine.end()
    return machine


@settings(max_examples=2000 if "TORTURE_ROUNDS" in os.environ else 100)
@given(_STEPS)
def test_it_takes_in_its_turn_what_leads_to_the_same_state(steps: list[tuple[object, ...]]) -> None:
    _run(QueueBounds(), steps).check_times()


@settings(max_examples=2000 if "TORTURE_ROUNDS" in os.environ else 100)
@given(_SMALL, _STEPS)
def test_it_does_within_any_bounds(bounds: QueueBounds, steps: list[tuple[object, ...]]) -> None:
    _run(bounds, steps)


# -- examples -----------------------------------------------------------------------------------------


class Told:
    """Some watchers of one pattern with one pace of a second."""

    def __init__(self, count: int = 1, bounds: QueueBounds | None = None) -> None:
        self.writer = Writer()
        self.clock = Clock()
        self.delivery = Delivery(bounds=bounds, pacing=self.clock.pacing)
        self.watchers = [Watcher(self.delivery, self.clock, 1.0) for _ in range(count)]
        for each in self.watchers:
            each.follower.follow(self.writer.space, PATTERN)


def test_the_first_change_leaves_at_once_and_later_ones_as_one_in_the_next_turn() -> None:
    told = Told()
    watcher = told.watchers[0]
    told.writer.turn([1])
    assert watcher.woken() and watcher.take() == 1
    for number in (2, 3, 2):
        told.clock.go_on(0.125)
        told.writer.turn([number], messages=1)
        assert not watcher.woken() and watcher.take() == 0
    told.clock.go_on(0.5)
    assert not watcher.woken()
    told.clock.go_on(0.125)
    assert watcher.woken() and watcher.take() == 1
    assert [(each.first, each.number, [*each.added], [*each.removed]) for each in watcher.epochs] == [
        (1, 1, [(1,)], []),
        (2, 4, [(3,)], []),
    ]
    assert watcher.messages == [-1, -1, -1]
    assert watcher.epochs[0].flags == 0


def test_where_one_epoch_waits_it_comes_as_it_is() -> None:
    told = Told()
    watcher = told.watchers[0]
    for number in range(5):
        told.writer.turn([number])
        told.clock.go_on(1)
        watcher.take()
    assert [each.flags for each in watcher.epochs] == [0] * 5
    assert [each.number for each in watcher.epochs] == [1, 2, 3, 4, 5]


def test_a_turn_that_is_late_does_not_cost_the_next() -> None:
    told = Told()
    watcher = told.watchers[0]
    taken = 0
    for number in range(1000):
        told.writer.turn([number])
        told.clock.go_on(1 / 100)
        if watcher.woken() and number % 10 == 7:  # not at once
            taken += watcher.take()
    assert taken in (10, 11)


def test_those_who_stand_at_one_place_share_one_difference() -> None:
    told = Told(count=3)
    for number in range(5):
        told.writer.turn([number])
    packed = [each.follower.take_packed(9, PLENTY) for each in told.watchers]
    assert [count for count, _ in packed] == [1, 1, 1]
    assert packed[0][1] is packed[1][1] is packed[2][1]
    assert told.delivery.budget.used == 0


@pytest.mark.parametrize(("epochs", "values"), [(1, 2), (2, 4 * PART // NET_PART)])
def test_what_is_too_large_for_one_value_leaves_in_several_and_what_comes_then_is_paced_again(
    epochs: int, values: int
) -> None:
    told = Told()
    watcher = told.watchers[0]
    for each in range(epochs):
        told.writer.turn(list(range(2 * PART * each, 2 * PART * (each + 1))))
    count = 0
    while taken := watcher.take(1):
        count += taken
    assert count == values
    assert len(watcher.facts) == 2 * PART * epochs and len(watcher.epochs) == 1
    told.writer.turn([-1])
    assert watcher.take() == 0
    told.clock.go_on(2)
    assert watcher.woken() and watcher.take() == 1
    assert told.delivery.budget.used == 0


def test_facts_beyond_the_bounds_become_a_difference_that_does_not_wait_for_its_turn() -> None:
    told = Told(bounds=QueueBounds(changes=10))
    watcher = told.watchers[0]
    told.writer.turn([0])
    watcher.take()
    for number in range(1, 12):
        told.writer.turn([number])
    assert watcher.woken() and watcher.take() == 1
    assert len(watcher.facts) == 12
    assert told.delivery.budget.used == 0


def test_messages_up_to_the_bound_within_one_pace_do_not_end_it() -> None:
    told = Told(bounds=QueueBounds(messages=10))
    watcher = told.watchers[0]
    told.writer.turn([0])
    watcher.take()
    for number in range(1, 15):
        told.writer.turn([number], messages=1)
    assert len(watcher.follower) > 0
    assert watcher.woken() and watcher.take() == 4, "what is too much as one, and what comes then"
    assert len(watcher.messages) == 14
    for number in range(1, 40):
        told.writer.turn([number], messages=1)
    assert watcher.follower.failure is not None
    assert watcher.woken()


def test_what_waits_for_its_turn_is_not_late() -> None:
    told = Told()
    watcher = told.watchers[0]
    told.writer.turn([1])
    assert watcher.oldest() == (1, told.writer.space.time)
    watcher.take()
    told.writer.turn([2])
    assert watcher.oldest() is None and len(watcher.follower) == 1
    told.clock.go_on(2)
    assert watcher.oldest() == (2, told.writer.space.time)


def test_a_state_is_not_paced() -> None:
    told = Told()
    watcher = told.watchers[0]
    told.writer.turn([1])
    watcher.take()
    watcher.follower.extend(told.writer.state())
    assert watcher.take() == 1


def test_one_that_leaves_before_its_turn_is_not_called() -> None:
    told = Told(count=2)
    for each in told.watchers:
        told.writer.turn([1])
        each.take()
    told.writer.turn([2])
    assert len(told.clock.pacing) == 2
    told.watchers[0].follower.close()
    assert len(told.clock.pacing) == 1
    told.watchers[0]._is_woken = False
    told.clock.go_on(3)
    assert [each.woken() for each in told.watchers] == [False, True]
    assert len(told.clock.pacing) == 0


def test_what_comes_and_goes_again_is_an_epoch_without_rows() -> None:
    """So that a reader that has asked for it gets it, and knows how far it is."""
    told = Told()
    watcher = told.watchers[0]
    told.writer.turn([1])
    watcher.take()
    told.writer.turn([2])
    told.writer.turn([2])
    told.clock.go_on(2)
    assert watcher.take() == 1
    last = watcher.epochs[-1]
    assert (last.first, last.number, [*last.added], [*last.removed]) == (2, 3, [], [])
