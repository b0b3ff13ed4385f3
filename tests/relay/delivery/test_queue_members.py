"""An observer that shares the queue of its pattern takes what it would take from a queue of its own."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.errors import UsageError
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, SNAPSHOT, Action
from dataspace.kernel.changes import PART, Changes
from dataspace.kernel.space import Space
from dataspace.wire.observing import Policy
from index.patterns.patterns import capture
from index.values.values import Record, Value
from relay.delivery.backlog import DeliveryQueue, SlowCounts
from relay.delivery.memory import MemoryBudget
from relay.delivery.packed import PART_BYTES
from relay.delivery.queue_members import Delivery, QueueMember
from relay.delivery.shared import QueueBounds

PATTERN = Record("n", capture("n"))
PLENTY = 1 << 40


def n(number: Value) -> Record:
    return Record("n", number)


class Writer:
    """A space, and one owner that changes it."""

    def __init__(self) -> None:
        self.space = Space("main")
        self.held: dict[int, int] = {}
        self._handles = 0

    def turn(self, facts: list[int], messages: int = 0) -> None:
        """Asserts those facts that are not there, retracts those that are, and sends so many messages."""
        actions: list[Action] = []
        for fact in dict.fromkeys(facts):
            if fact in self.held:
                actions.append((RETRACT, self.held.pop(fact)))
            else:
                self._handles += 1
                self.held[fact] = self._handles
                actions.append((ASSERT, self._handles, n(fact)))
        self.space.commit("w", actions + [(SEND, n(-each - 1)) for each in range(messages)], 0)

    def state(self) -> Changes:
        return Changes(self.space.epoch, self.space.time, self.space.matches(PATTERN), flags=SNAPSHOT)


@dataclass
class Pair:
    """An observer twice: as a follower, and with a queue of its own that the space feeds directly."""

    follower: QueueMember
    queue: DeliveryQueue
    is_woken: bool = False
    behind: list[str] = field(default_factory=list)


class Machine:
    """A space with observers that come, read, go behind and leave; every one of them as a pair."""

    def __init__(self, bounds: QueueBounds) -> None:
        self.writer = Writer()
        self.bounds = bounds
        self.delivery = Delivery(bounds=bounds)
        self.counts = SlowCounts()
        self.pairs: list[Pair] = []

    def _wake(self, pair: list[Pair]) -> None:
        pair[0].is_woken = True

    def open(self, policy: Policy, snapshot: bool) -> None:
        made: list[Pair] = []
        behind: list[str] = []
        follower = QueueMember(
            self.delivery, self._wake, made, policy=policy, behind=lambda: behind.append("follower")
        )
        queue = DeliveryQueue(
            lambda: None,
            limit=self.bounds.changes,
            message_limit=self.bounds.messages,
            byte_limit=self.bounds.bytes,
            policy=policy,
            counts=self.counts,
            behind=lambda: behind.append("queue"),
        )
        made.append(Pair(follower, queue, behind=behind))
        self._attach(made[0])
        if snapshot:
            state = self.writer.state()
            follower.extend(state)
            queue.extend(state)
        self.pairs += made

    def _attach(self, pair: Pair) -> None:
        pair.follower.follow(self.writer.space, PATTERN)
        self.writer.space.observe(PATTERN, pair.queue)

    def _detach(self, pair: Pair) -> None:
        pair.follower.unfollow()
        interest = self.writer.space.observe(PATTERN, pair.queue)
        self.writer.space.ignore(interest, pair.queue)

    def turn(self, facts: list[int], messages: int) -> None:
        before = [(len(each.follower), each.follower.failure) for each in self.pairs]
        self.writer.turn(facts, messages)
        for pair, (waiting, failure) in zip(self.pairs, before, strict=True):
            news = len(pair.follower) > waiting or pair.follower.failure is not failure
            assert pair.is_woken or not news or waiting, "what finds nothing waiting is woken"

    def take(self, at: int, count: int, size: int) -> None:
        if self.pairs:
            pair = self.pairs[at % len(self.pairs)]
            pair.is_woken = False
            taken = pair.queue.take_packed(count, size)
            assert pair.follower.take_packed(count, size) == taken

    def mark(self, at: int) -> None:
        """Extends one by a value of its own, as a mark of progress does."""
        if self.pairs:
            pair = self.pairs[at % len(self.pairs)]
            changes = Changes(self.writer.space.epoch, 7)
            pair.follower.extend(changes)
            pair.queue.extend(changes)

    def come_back(self, at: int) -> None:
        """One goes on after it was not fed for a while, as those do that have fallen behind."""
        if self.pairs:
            pair = self.pairs[at % len(self.pairs)]
            self._detach(pair)
            pair.follower.catch_up()
            pair.queue.catch_up()
            pair.behind.clear()
            self._attach(pair)

    def close(self, at: int) -> None:
        if self.pairs:
            pair = self.pairs.pop(at % len(self.pairs))
            pair.follower.close()
            self._detach(pair)
            pair.queue.close()
            assert len(pair.follower) == 0
            pair.follower.close()

    def check(self) -> None:
        for pair in self.pairs:
            follower, queue = pair.follower, pair.queue
            assert len(follower) == len(queue)
            assert str(follower.failure) == str(queue.failure)
            assert sorted(pair.behind) in ([], ["follower", "queue"])
            assert follower.newest == queue.newest or not pair.behind, "from where the log is read"
        ours, theirs = self.delivery.counts, self.counts
        assert ours == theirs
        assert bool(self.delivery.patterns) == bool(self.pairs)
        watched = self.writer.space.statistics().observers
        assert watched == 2 * len(self.pairs), "an observer in a shared queue counts like any other"

    def end(self) -> None:
        """All leave, and nothing is left of them."""
        while self.pairs:
            self.close(0)
        budget = self.delivery.budget
        assert (budget.used, budget.observers, self.delivery.patterns) == (0, 0, 0)
        assert self.writer.space.statistics().patterns == 0


_items, _sizes = st.sampled_from([0, 1, 2, 9]), st.sampled_from([0, 1, 30, 999])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.sampled_from(Policy), st.booleans()),
        st.tuples(st.just("turn"), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 3)),
        st.tuples(
            st.just("take"),
            st.integers(0, 5),
            st.sampled_from([0, 1, 2, 9]),
            st.sampled_from([0, 1, 30, 999]),
        ),
        st.tuples(st.just("mark"), st.integers(0, 5)),
        st.tuples(st.just("come_back"), st.integers(0, 5)),
        st.tuples(st.just("close"), st.integers(0, 5)),
    ),
    max_size=40,
)
_bounds = st.builds(QueueBounds, st.integers(1, 9), st.integers(1, 6), st.integers(20, 300))


def _run(bounds: QueueBounds, steps: list[tuple[object, ...]]) -> None:
    machine = Machine(bounds)
    for name, *args in steps:
        getattr(machine, str(name))(*args)
        machine.check()
    machine.end()


@given(_bounds, _steps)
def test_it_takes_what_a_queue_of_its_own_would_have(
    bounds: QueueBounds, steps: list[tuple[object, ...]]
) -> None:
    _run(bounds, steps)


@pytest.mark.slow
@pytest.mark.torture(long=True)
@settings(max_examples=2000)
@given(_bounds, st.lists(_steps, min_size=2, max_size=4))
def test_it_does_over_long(bounds: QueueBounds, steps: list[list[tuple[object, ...]]]) -> None:
    openings: list[tuple[object, ...]] = [("open", policy, True) for policy in Policy]
    _run(bounds, openings + [step for some in steps for step in some])


# -- examples -----------------------------------------------------------------------------------------


class Told:
    """Some followers of one pattern; how often each was woken."""

    def __init__(
        self, count: int, *, delivery: Delivery | None = None, policy: Policy = Policy.CONFLATE
    ) -> None:
        self.writer = Writer()
        self.delivery = delivery or Delivery()
        self.woken = [0] * count
        self.followers = [QueueMember(self.delivery, self._wake, at) for at in range(count)]
        for each in self.followers:
            each.follow(self.writer.space, PATTERN)

    def _wake(self, at: int) -> None:
        self.woken[at] += 1

    def take(self) -> list[tuple[int, bytes]]:
        return [each.take_packed(9, PLENTY) for each in self.followers]


def test_a_member_is_woken_once_for_all_that_comes_before_it_takes() -> None:
    told = Told(3)
    for _ in range(2):
        for number in range(5):
            told.writer.turn([number])
        told.take()
    assert told.woken == [2, 2, 2]


def test_one_that_takes_without_credit_is_woken_again() -> None:
    """For a peek: the stream says how much there is although nothing was asked for."""
    told = Told(2)
    told.writer.turn([1])
    told.followers[0].take_packed(0, 0)
    told.writer.turn([2])
    assert told.woken == [2, 1]
    told.followers[0].take_packed(0, 0)
    told.followers[0].take_packed(0, 0)
    told.followers[0].close()
    told.writer.turn([3])
    assert told.woken == [2, 1]


def test_all_who_stand_at_one_place_get_the_same_bytes() -> None:
    told = Told(3)
    for number in range(5):
        told.writer.turn([number])
    (_, first), *others = told.take()
    assert all(packed is first for _, packed in others)


def test_what_waits_for_all_is_counted_once_and_deleted_after_the_last() -> None:
    told = Told(100)
    told.writer.turn([1])
    budget, one = told.delivery.budget, told.followers[0].used
    assert budget.used == one > 0
    told.writer.turn([2])
    *taking, last = told.followers
    for each in taking:
        each.take_packed(9, PLENTY)
    assert budget.used == last.used == 2 * one
    last.take_packed(1, PLENTY)
    assert budget.used == last.used == one
    last.take_packed(1, PLENTY)
    assert budget.used == last.used == 0


def test_one_that_reads_nothing_leaves_alone() -> None:
    told = Told(3, delivery=Delivery(bounds=QueueBounds(changes=4)))
    for number in range(50):
        told.writer.turn([number])
        for each in told.followers[1:]:
            assert each.take_packed(9, PLENTY)[0] == 1
    assert told.delivery.budget.used == told.followers[0].used
    assert [len(each) for each in told.followers] == [1, 0, 0]
    assert told.delivery.counts.conflated == 50


def test_with_no_memory_left_that_one_leaves_for_which_most_waits() -> None:
    told = Told(2, delivery=Delivery(MemoryBudget(100_000)))
    slow, good = told.followers
    for number in range(0, 40_000, 1000):
        told.writer.turn(list(range(number, number + 1000)))
        assert good.take_packed(9, PLENTY)[0] == 1
    assert told.delivery.counts.conflated > 0
    assert [len(slow), len(good)] == [1, 0]


@pytest.mark.parametrize("text", ["", "x" * (PART_BYTES // 600)])
def test_a_large_epoch_leaves_in_the_same_parts(text: str) -> None:
    space = Space("main")
    pattern = Record("n", capture(), capture())
    delivery, queue = Delivery(), DeliveryQueue(lambda: None)
    follower = QueueMember(delivery, lambda _: None)
    follower.follow(space, pattern)
    space.observe(pattern, queue)
    space.commit("w", [(ASSERT, each, Record("n", each, text)) for each in range(2 * PART + 1)], 0)
    space.commit("w", [(ASSERT, PART * 3, Record("n", -1, "y" * 2 * PART_BYTES))], 0)
    taken = [follower.take_packed(1, PLENTY) for _ in range(40)]
    assert taken == [queue.take_packed(1, PLENTY) for _ in range(40)]
    assert 3 < sum(count for count, _ in taken) < 40
    assert delivery.budget.used == 0


def test_one_that_leaves_amid_an_epoch_takes_the_rest_of_it_first() -> None:
    told = Told(2, delivery=Delivery(bounds=QueueBounds(changes=2 * PART)))
    told.writer.turn(list(range(2 * PART)))
    slow, good = told.followers
    whole = good.take_packed(9, PLENTY)[1]
    begun = slow.take_packed(1, PLENTY)[1]
    for number in range(3):
        told.writer.turn(list(range(-PART * (number + 1), -PART * number)))
        good.take_packed(9, PLENTY)
    assert told.delivery.counts.conflated > 0
    assert begun + slow.take_packed(1, PLENTY)[1] == whole


def test_an_observer_that_keeps_up_takes_little_memory() -> None:
    """Bytes, as Python counts them, for each further observer of one pattern: a position and an entry."""
    told = Told(1)
    more: list[QueueMember | None] = [None] * 1000
    tracemalloc.start()
    try:
        for at in range(1000):
            follower = more[at] = QueueMember(told.delivery, told._wake, at)
            follower.follow(told.writer.space, PATTERN)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / 1000 < 300


def test_a_pattern_that_is_none_leaves_nothing() -> None:
    told = Told(0)
    follower = QueueMember(told.delivery, lambda _: None)
    with pytest.raises(UsageError):
        follower.follow(told.writer.space, Record("lit", 1, 2))
    assert (told.delivery.patterns, told.delivery.budget.observers) == (0, 0)
    assert follower.queue is None


def _fail(_: object) -> None:
    raise ZeroDivisionError


def test_one_that_has_left_follows_nothing_any_more() -> None:
    """As where a replay goes live in the step in which its stream was closed."""
    writer, delivery = Writer(), Delivery()
    follower = QueueMember(delivery, lambda _: None)
    follower.close()
    follower.follow(writer.space, PATTERN)
    follower.extend(writer.state())
    writer.turn([1])
    assert delivery.patterns == 0 and not len(follower) and follower.used == 0


def test_the_defect_of_one_keeps_no_epoch_from_the_others() -> None:
    told = Told(2)
    bad = QueueMember(told.delivery, _fail)
    bad.follow(told.writer.space, PATTERN)
    late = QueueMember(told.delivery, lambda _: None)
    late.follow(told.writer.space, PATTERN)
    with pytest.raises(ZeroDivisionError):
        told.writer.turn([1])
    told.writer.turn([2])
    assert [len(each) for each in (*told.followers, late)] == [2, 2, 2]
    assert all(told.woken)
