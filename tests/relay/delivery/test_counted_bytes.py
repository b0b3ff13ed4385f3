"""What waits is counted as it lies in memory, whatever the policy: a walk over all that is reachable says so.

After each step of a machine the bytes that can be reached from the queues of all observers are compared with
those that are counted.  Values are of many forms, since what is small on the wire may be large as a value.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.kernel.actions import ASSERT, CONFLATED, RETRACT, SEND, Action
from dataspace.kernel.changes import Changes
from dataspace.kernel.space import Space
from dataspace.version import compiled_parts
from dataspace.wire.observing import Policy
from index.patterns.patterns import capture
from index.values.values import Map, Record
from relay.delivery.backlog import SlowCounts
from relay.delivery.memory import LEAST, MemoryBudget
from relay.delivery.net_changes import net_of
from relay.delivery.paced import PacedMember
from relay.delivery.pacing import Pacing
from relay.delivery.queue_members import Delivery, PatternQueue, QueueMember
from relay.delivery.shared import QueueBounds

pytestmark = pytest.mark.skipif(
    "delivery" in compiled_parts(), reason="machine code has no slots through which a walk could go"
)

IDLE = 4096
"""Bytes that an observer and its queue take themselves, which streams and patterns are counted for."""

KINDS = (
    lambda n: n,
    lambda n: f"{n} {'x' * 40_000}",
    lambda n: f"\N{SNOWMAN}{n} {'x' * 9_000}",
    lambda n: bytes([n % 256]) * 30_000,
    lambda n: tuple([Record("a", (each,), Map({})) for each in range(n % 9, 300)]),
    lambda n: Map({f"{each}": (n,) for each in range(100)}),
    lambda n: tuple(range(1000, 1500 + n % 9)),
    lambda n: float("nan") if n % 2 else (n, float("nan")),
)


def reachable(roots: Iterable[object], shared: Iterable[object]) -> int:
    """Returns the bytes of all objects that can be reached, each once; ``shared`` are where it ends."""
    seen = {id(each) for each in shared}
    size = 0
    todo = list(roots)
    while todo:
        each = todo.pop()
        if id(each) in seen or each is None or isinstance(each, type | ModuleType | bool):
            continue
        seen.add(id(each))
        size += sys.getsizeof(each)
        if isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset) or hasattr(each, "popleft"):
            todo += each  # type: ignore[arg-type]  # a deque is iterable
        elif isinstance(each, Record):
            todo += [each.label, *each.fields]
        elif isinstance(each, Map):
            todo += [half for pair in each.pairs() for half in pair]
        elif not isinstance(each, str | bytes | bytearray | int | float) and not callable(each):
            slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
            todo += [getattr(each, name) for name in slots if hasattr(each, name)]
    return size


class Machine:
    """Spaces' worth of patterns with observers of all kinds, and one budget for all of them."""

    def __init__(self, bounds: QueueBounds, limit: int) -> None:
        self.space = Space("main")
        self.now = 0.0
        self.delivery = Delivery(MemoryBudget(limit), SlowCounts(), bounds, Pacing(lambda: self.now))
        self.followers: list[QueueMember] = []
        self._held: dict[int, list[int]] = {}
        self._handles = 0

    def open(self, policy: Policy, place: int, paced: bool) -> None:
        """One more observer of one of some patterns, which begins with what is live."""
        made = (
            PacedMember(self.delivery, lambda _: None, pace=1.0)
            if paced
            else QueueMember(self.delivery, lambda _: None, policy=policy, behind=lambda: None)
        )
        made.follow(self.space, Record("n", place % 4, capture(), *[capture()] * (place // 4)))
        self.followers.append(made)

    def send(self, place: int, kind: int, count: int) -> None:
        """Messages in one epoch."""
        self._commit([(SEND, self._fact(place, kind, n)) for n in range(count)])

    def claim(self, place: int, kind: int, count: int) -> None:
        """Asserts facts of a place, or retracts those that are there."""
        actions: list[Action] = [(RETRACT, handle) for handle in self._held.pop(place, ())]
        if not actions:
            self._held[place] = []
            for n in range(count):
                self._handles += 1
                self._held[place].append(self._handles)
                actions.append((ASSERT, self._handles, self._fact(place, kind, n)))
            actions.append((SEND, self._fact(place, kind, -1)))
        self._commit(actions)

    def _fact(self, place: int, kind: int, n: int) -> Record:
        return Record("n", place % 4, KINDS[kind % len(KINDS)](n), n)

    def _commit(self, actions: list[Action]) -> None:
        if actions:
            self.space.commit("w", actions, 0)

    def read(self, at: int, kind: int, count: int) -> None:
        """One is fed from the log: epochs that nothing else refers to."""
        if self.followers:
            made = [Changes(n, 0, [(KINDS[kind % len(KINDS)](n),)]) for n in range(count + 1)]
            self.followers[at % len(self.followers)].extend_all(made)

    def take(self, at: int, count: int, size: int) -> None:
        self.now += 0.5
        if self.followers:
            self.followers[at % len(self.followers)].take_packed(count, size)

    def close(self, at: int) -> None:
        if self.followers:
            self.followers.pop(at % len(self.followers)).close()

    def check(self) -> None:
        """Compares what is counted with what lies there, and with its bounds."""
        budget, bounds = self.delivery.budget, self.delivery.bounds
        queues = {id(each.queue): each.queue for each in self.followers if each.queue is not None}
        roots = [*self.followers, *queues.values()]
        ends: list[object] = [self.delivery, budget, bounds, self.delivery.pacing, self.space]
        ends += [self.delivery.counts]
        for queue in queues.values():
            assert isinstance(queue, PatternQueue)
            ends += [queue.interest]
        lying = reachable(roots, ends)
        idle = IDLE * len(roots)
        copies = LEAST * len(queues)  # what was taken last is kept for those who take the same
        assert lying <= 1.5 * budget.used + idle + copies
        assert budget.used <= 2 * lying + 256 * self._values()
        assert budget.used == self._counted(queues.values())
        if not self.followers:
            assert budget.used == 0

    def _counted(self, queues: Iterable[PatternQueue]) -> int:
        """What each says that it holds: shared values once."""
        own = sum([each.used for each in self.followers if each._own is not None])
        return own + sum([each._waiting.used(0) for each in queues if each._waiting is not None])

    def _values(self) -> int:
        """What waits for each: its values, and the changes in them."""
        own = [each._own for each in self.followers if each._own is not None]
        changes = sum([each.size + len(each._difference or ()) for each in own])
        return changes + sum(map(len, self.followers))

    def end(self) -> None:
        while self.followers:
            self.close(0)
            self.check()
        assert (self.delivery.budget.used, self.delivery.budget.observers) == (0, 0)


_few = st.integers(0, 7)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.sampled_from(Policy), _few, st.booleans()),
        st.tuples(st.just("send"), _few, _few, st.integers(1, 4)),
        st.tuples(st.just("claim"), _few, _few, st.integers(1, 4)),
        st.tuples(st.just("read"), _few, _few, st.integers(0, 3)),
        st.tuples(
            st.just("take"), _few, st.sampled_from([0, 1, 2, 9]), st.sampled_from([0, 1, 50_000, 1 << 30])
        ),
        st.tuples(st.just("close"), _few),
    ),
    max_size=30,
)
_bounds = st.builds(
    QueueBounds, st.integers(1, 30), st.integers(1, 20), st.sampled_from([20, 10_000, 400_000])
)
_limits = st.sampled_from([0, 100_000, 1 << 30])


def _run(bounds: QueueBounds, limit: int, steps: list[tuple[object, ...]]) -> None:
    machine = Machine(bounds, limit)
    for name, *args in steps:
        getattr(machine, str(name))(*args)
        machine.check()
    machine.end()


@given(_bounds, _limits, _steps)
@settings(max_examples=60)
def test_the_bytes_that_are_counted_lie_there(
    bounds: QueueBounds, limit: int, steps: list[tuple[object, ...]]
) -> None:
    openings: list[tuple[object, ...]] = [("open", policy, 0, False) for policy in Policy]
    _run(bounds, limit, openings + steps)


@pytest.mark.slow
@pytest.mark.torture(long=True)
@settings(max_examples=5000)
@given(_bounds, _limits, st.lists(_steps, min_size=2, max_size=4))
def test_they_do_over_long(bounds: QueueBounds, limit: int, steps: list[list[tuple[object, ...]]]) -> None:
    openings: list[tuple[object, ...]] = [
        ("open", policy, place, False) for policy in Policy for place in range(4)
    ]
    _run(bounds, limit, openings + [step for some in steps for step in some])


@pytest.mark.parametrize("policy", Policy)
def test_what_waits_for_those_who_take_nothing_is_bounded_by_the_budget(policy: Policy) -> None:
    limit, many = 1 << 20, 8
    machine = Machine(QueueBounds(), limit)
    for place in range(many):
        machine.open(policy, place, False)
    for n in range(400):
        machine.send(n, 1, 1)
        machine.check()
        assert machine.delivery.budget.used <= limit + many * LEAST
    failed = [each for each in machine.followers if each.failure is not None]
    assert bool(failed) == (policy in (Policy.CONFLATE, Policy.FAIL))
    for each in failed:
        assert "for all observers, limit 1048576" in str(each.failure)
    machine.end()


def test_a_difference_in_which_nothing_is_left_goes_on() -> None:
    """What came and went before belongs to its epochs."""
    epochs = [
        Changes(1, 10, [(0,)], [], []),
        Changes(2, 20, [], [], [(0,)]),
        Changes(3, 30, [(0,)], [], []),
    ]
    (value,) = net_of(epochs)
    assert (value.first, value.number, value.flags) == (1, 3, CONFLATED)
    assert value.changes().added == [(0,)]
