"""Outputs: the ends of a flow that assert, send, and write into a stream.

An output changes nothing by itself: its assertions and messages are collected in the flow's ``Outcome``, from
which the runner of the tick publishes them, in the epoch of their cause.

Always: a fact is reported as asserted when its weight rises above zero, and as retracted when it falls back
to zero, over all outputs of a flow; between two takes only the net difference is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from dataspace.flows.operators import STATIC, TICK, Emit, Operator, added, known_lifetime
from dataspace.flows.results import Derived
from index.values.freezing import freeze
from index.values.values import Value, key

Make = Callable[[Any], Any]


class Outgoing(Protocol):
    """What a flow needs of a stream to write to it: ``dataspace.streams.pushable()`` has it."""

    def push(self, value: Any) -> object:
        """Takes a value, without waiting."""

    def end(self) -> object:
        """Ends the stream."""


class Outcome:
    """What the outputs of one flow assert and send."""

    __slots__ = ("_counts", "_said", "_touched", "messages")

    def __init__(self) -> None:
        self.messages: list[Value] = []
        self._counts: dict[Hashable, int] = {}
        self._said: dict[Hashable, Value] = {}
        self._touched: dict[Hashable, Value] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def change(self, fact: Value, weight: int) -> None:
        """Changes the weight of a fact; O(1)."""
        at = key(fact)
        after = self._counts.get(at, 0) + weight
        if after:
            self._counts[at] = after
        else:
            self._counts.pop(at, None)
        self._touched[at] = fact

    def take(self) -> Derived:
        """Returns what has changed since the last call; O(changes)."""
        derived = Derived([], self.messages, [])
        self.messages = []
        for at, fact in self._touched.items():
            is_there = self._counts.get(at, 0) > 0
            if is_there and at not in self._said:
                self._said[at] = fact
                derived.added.append(fact)
            elif not is_there and at in self._said:
                derived.removed.append(self._said.pop(at))
        self._touched.clear()
        return derived

    def asserted(self) -> list[Value]:
        """Returns the facts that were last reported as asserted."""
        return list(self._said.values())


class Asserting(Operator):
    """Asserts a fact for each item: as long as it is not retracted, or for one tick."""

    def __init__(self, outcome: Outcome, make: Make, lifetime: str = STATIC) -> None:
        super().__init__()
        self.lifetime = known_lifetime(lifetime)
        self._outcome = outcome
        self._make = make
        self._now: list[Value] = []
        self._last: list[Value] = []

    @property
    def forgets(self) -> bool:
        return self.lifetime == TICK

    def receiver(self, port: str) -> Emit:
        make, change = self._make, self._outcome.change
        if self.lifetime == STATIC:
            return lambda item, weight: change(freeze(make(item)), weight)
        now = self._now
        return lambda item, weight: now.extend([freeze(make(item))] * added(weight, "assert_ for one tick"))

    def end_tick(self) -> None:
        for fact in self._now:
            self._outcome.change(fact, +1)
        for fact in self._last:
            self._outcome.change(fact, -1)
        self._last = self._now[:]
        self._now.clear()

    def size(self) -> int:
        return len(self._last)


class Sending(Operator):
    """Sends a message for each added item; retractions are ignored."""

    def __init__(self, outcome: Outcome, make: Make) -> None:
        super().__init__()
        self._outcome = outcome
        self._make = make

    def receiver(self, port: str) -> Emit:
        outcome, make = self._outcome, self._make

        def receive(item: Any, weight: int) -> None:
            for _ in range(weight):
                outcome.messages.append(freeze(make(item)))

        return receive


class Writing(Operator):
    """Writes each item into a stream; with ``changes``, pairs of an item and its weight."""

    def __init__(self, stream: Outgoing, *, changes: bool = False) -> None:
        super().__init__()
        self.stream = stream
        self.waiting: Final[deque[Any]] = deque()
        """What the stream had no room for: ``pump`` waits for it before it reads on."""
        self._changes = changes

    def receiver(self, port: str) -> Emit:
        put = self._put

        def write(item: Any, weight: int) -> None:
            put((item, weight))

        def receive(item: Any, weight: int) -> None:
            for _ in range(added(weight, "write (without changes=True)")):
                put(item)

        return write if self._changes else receive

    def _put(self, value: Any) -> None:
        self.flush()
        if self.waiting or is_full(self.stream):
            self.waiting.append(value)
        else:
            self.stream.push(value)

    def flush(self) -> None:
        """Writes what waits, as far as there is room."""
        while self.waiting and not is_full(self.stream):
            self.stream.push(self.waiting.popleft())

    def size(self) -> int:
        return len(self.waiting)


def is_full(stream: Outgoing) -> bool:
    """True if a stream has no room; False for a stream that does not say."""
    return bool(getattr(stream, "is_full", False))
