"""Inputs: the sources of a flow that are filled from a space, from a clock and from streams.

An input turns outside changes into items that wait for the next tick.  It does no input or output itself: the
flow host (``host``) passes on the changes of a space, a task (``running/flows``) the changes of a stream or a
clock.

Always: the items of ``Facts`` are the distinct captures that an observer of the pattern would get, +1 when
they come and -1 when they go; the items of ``Messages`` are only added.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from dataspace.flows.operators import SourceOperator
from index.errors import UsageError
from index.patterns.patterns import matcher
from index.patterns.text import parse_pattern
from index.values.values import Value, keys

MICROSECONDS = 1_000_000


class Incoming(Protocol):
    """What a flow needs of a stream to read it: the sources and pipes of ``dataspace.streams`` have it."""

    async def read_some(self, limit: int) -> Sequence[Any]:
        """Returns at least one value, and at most ``limit``; raises ``trio.EndOfChannel`` when there are no
        more."""

    async def abort(self, reason: Any = True) -> None:
        """Ends the stream early."""


class Facts(SourceOperator):
    """Emits the captures of a pattern among the present facts.  O(1) for each change of a fact."""

    def __init__(self, pattern: Value) -> None:
        super().__init__()
        self.match = _matcher(pattern)
        self._counts: dict[Hashable, int] = {}

    def change(self, fact: Value, by: int) -> None:
        """Notes that a fact has come (+1) or gone (-1)."""
        captures = self.match(fact)
        if captures is None:
            return
        at = keys(captures)
        before = self._counts.get(at, 0)
        after = before + by
        if after:
            self._counts[at] = after
        else:
            del self._counts[at]
        if not before or not after:
            self.waiting.append((captures, by))

    def size(self) -> int:
        return len(self._counts) + super().size()


class Messages(SourceOperator):
    """Emits the captures of a pattern in the messages of a tick."""

    def __init__(self, pattern: Value) -> None:
        super().__init__()
        self.match = _matcher(pattern)

    def hear(self, message: Value) -> None:
        """Notes a message."""
        captures = self.match(message)
        if captures is not None:
            self.waiting.append((captures, 1))


class Interval(SourceOperator):
    """Emits the time, in microseconds since 1970 UTC, each time that the interval has passed.

    After a delay it emits one item, not one for each that was missed.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.period = round(seconds * MICROSECONDS)
        if self.period < 1:
            raise UsageError(f"an interval of {seconds} s: more than nought")
        self.due: int | None = None

    def beat(self, now: int) -> bool:
        """Sets the time; True if the interval was over."""
        if self.due is None:
            self.due = now + self.period
        if now < self.due:
            return False
        self.due += self.period * ((now - self.due) // self.period + 1)
        self.waiting.append((now, 1))
        return True


class Streamed(SourceOperator):
    """Emits the values of a stream."""

    def __init__(self, stream: Incoming) -> None:
        super().__init__()
        self.stream = stream


def _matcher(pattern: Value) -> Callable[[Value], tuple[Value, ...] | None]:
    return matcher(parse_pattern(pattern) if isinstance(pattern, str) else pattern)
