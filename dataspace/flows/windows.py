"""Windows: the items of a span of time, and sessions, which end where nothing comes for a while.

The time of an item is what ``at`` makes of it: microseconds since 1970, or a time value.  Without ``at``
it is the time of the tick in which it comes.  The *watermark* is the newest time that has come, less the
lateness, or the time of the tick; it never goes back.  A window is *complete* once the watermark is at its
end.  Its items leave then, or ``keep`` later; with ``final`` they are passed on then, and leave in a later
tick.

Always: within a tick no order matters; a complete window does not change.  An item that comes for a complete
window, or is taken back from a complete window, is late: it goes to the output ``late`` and is counted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any, ClassVar, Final, Protocol

from dataspace.flows.blocking import BLOCKING, net
from dataspace.flows.inputs import MICROSECONDS
from dataspace.flows.operators import Emit, Operator, Ports
from dataspace.instants import NEVER, instant_of
from index.errors import UsageError
from index.values.values import key

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Clock(Protocol):
    """The flow, as far as windows need it: with the time of the tick, in microseconds."""

    time: int


class Windows(Operator):
    """What all windows have in common; times and spans are microseconds."""

    inputs: ClassVar[Ports] = BLOCKING
    outputs: ClassVar[tuple[str, ...]] = ("", "late")

    def __init__(self, clock: Clock, at: Callable[[Any], Any] | None, lateness: float) -> None:
        super().__init__()
        self.lateness: Final = micros_in(lateness, "a lateness", least=0)
        if self.lateness and at is None:
            raise UsageError("a lateness needs at=: without it, items have the time of their tick")
        self.watermark = -NEVER
        self.late = 0
        """Items that came, or were taken back, too late."""
        self._clock = clock
        self._at = at
        self._waiting: list[tuple[Any, int]] = []
        self._shows_times = False
        """True if the times of items are time values."""

    @property
    def every_tick(self) -> bool:
        return self._at is None

    @property
    def due(self) -> int:
        """When a tick is needed in which something is passed on or leaves, if the time of ticks counts."""
        return self._next() if self._at is None else NEVER

    def receiver(self, port: str) -> Emit:
        waiting = self._waiting
        return lambda item, weight: waiting.append((item, weight))

    def release(self) -> None:
        newest = self._clock.time if self._at is None else self.watermark + self.lateness
        if self._waiting:
            for item, weight in self._changes():
                time = self._take(item, weight)
                if time > newest:
                    newest = time
            self._waiting.clear()
        self.watermark = max(self.watermark, newest - self.lateness)
        self._advance(self.watermark)

    def _changes(self) -> list[tuple[Any, int]]:
        """Returns what has come in this tick; where something is taken back, the net of it."""
        is_mixed = any(weight < 0 for _, weight in self._waiting)
        return net(self._waiting) if is_mixed else self._waiting

    def _take(self, item: Any, weight: int) -> int:
        """Takes an item, or takes it back; returns its time."""
        time = self._clock.time if self._at is None else self._time_of(item)
        if weight > 0:
            if not self._add(time, item, weight):
                self._refuse(item, weight)
            return time
        for _ in range(-weight):
            came = time if self._at is not None else self._oldest(item)
            if came is None or not self._remove(came, item):
                self._refuse(item, -1)
        return time

    def _time_of(self, item: Any) -> int:
        assert self._at is not None  # else it is the clock's
        time = self._at(item)
        if time.__class__ is int:
            return int(time)
        if time.__class__ is datetime:
            self._shows_times = True
            return (time - _EPOCH) // _MICROSECOND
        raise UsageError(f"the time of an item is microseconds or a time value, not {time!r:.60}")

    def _shown(self, time: int) -> int | datetime:
        """Returns a time as the items have theirs."""
        return _EPOCH + time * _MICROSECOND if self._shows_times else time

    def _refuse(self, item: Any, weight: int) -> None:
        self.late += abs(weight)
        self.emits["late"](item, weight)

    @abstractmethod
    def _add(self, time: int, item: Any, copies: int) -> bool:
        """Adds copies of an item, and passes them on; False if they are late."""

    @abstractmethod
    def _remove(self, time: int, item: Any) -> bool:
        """Removes a copy that came at a time; False if none is in a window that is open."""

    @abstractmethod
    def _oldest(self, item: Any) -> int | None:
        """Returns when the oldest present copy of an item came; None if there is none."""

    @abstractmethod
    def _advance(self, watermark: int) -> None:
        """Passes on and takes back what is due."""

    @abstractmethod
    def _next(self) -> int:
        """Returns the next time at which ``_advance`` has anything to do."""


class _Steps:
    """Items by the step of time in which they came.

    They are listed as they come until the first of them is taken back: only then their keys are needed.
    """

    __slots__ = ("_came", "_is_keyed", "listed")

    def __init__(self) -> None:
        self.listed: dict[int, Any] = {}
        self._is_keyed = False
        self._came: dict[Hashable, dict[int, None]] = {}

    def add(self, step: int, item: Any, copies: int) -> bool:
        """Adds copies of an item; True if they are the first of their step.  O(1)."""
        held: Any = self.listed.get(step)
        is_first = held is None
        if is_first:
            held = self.listed[step] = {} if self._is_keyed else []
        if self._is_keyed:
            self._count(held, step, item, copies)
        else:
            held.extend([item] * copies)
        return is_first

    def _count(self, held: dict[Hashable, list[Any]], step: int, item: Any, copies: int) -> None:
        at = key(item)
        entry = held.get(at)
        if entry is None:
            held[at] = [item, copies]
            self._came.setdefault(at, {})[step] = None
        else:
            entry[1] += copies

    def remove(self, step: int, item: Any) -> bool:
        """Removes a copy of an item; False if none is there.  O(1), the first time O(items)."""
        self._index()
        at, held = key(item), self.listed.get(step, {})
        entry = held.get(at)
        if entry is None:
            return False
        entry[1] -= 1
        if not entry[1]:
            del held[at]
            self._forget(at, step)
        return True

    def oldest(self, item: Any) -> int | None:
        """Returns the first step that has an item; None if none has it.  O(1), the first time O(items)."""
        self._index()
        return next(iter(self._came.get(key(item), ())), None)

    def _index(self) -> None:
        if not self._is_keyed:
            self._is_keyed = True
            for step, items in self.listed.items():
                held: dict[Hashable, list[Any]] = {}
                self.listed[step] = held
                for item in items:
                    self._count(held, step, item, 1)

    def _forget(self, at: Hashable, step: int) -> None:
        steps = self._came[at]
        del steps[step]
        if not steps:
            del self._came[at]

    def items(self, step: int) -> Iterable[tuple[Any, int]]:
        """Returns the items of a step, with their numbers."""
        held = self.listed.get(step, ())
        if self._is_keyed:
            return [(item, copies) for item, copies in held.values()] if held else ()
        return [(item, 1) for item in held]

    def drop(self, step: int) -> None:
        """Forgets a step.  O(its items)."""
        held = self.listed.pop(step, ())
        if self._is_keyed:
            for at in held:
                self._forget(at, step)

    def __len__(self) -> int:
        """Returns how many items there are; O(steps)."""
        return sum(map(len, self.listed.values()))


class Sliding(Windows):
    """Passes on each item, and takes it back once the watermark is ``size`` later than its time.

    An item leaves at an instant on the grid, so at most that much later.  O(1) for each item that comes or
    leaves, O(log instants) for each instant.
    """

    def __init__(
        self, size: float, clock: Clock, at: Callable[[Any], Any] | None = None, lateness: float = 0
    ) -> None:
        super().__init__(clock, at, lateness)
        self.length: Final = micros_in(size, "a window")
        self._steps = _Steps()
        self._instants: list[int] = []

    def _add(self, time: int, item: Any, copies: int) -> bool:
        leaves = instant_of(time + self.length)
        if leaves <= self.watermark:
            return False
        if self._steps.add(leaves, item, copies):
            heappush(self._instants, leaves)
        self.emit(item, copies)
        return True

    def _remove(self, time: int, item: Any) -> bool:
        step = time if self._at is None else instant_of(time + self.length)
        is_there = self._steps.remove(step, item)
        if is_there:
            self.emit(item, -1)
        return is_there

    def _oldest(self, item: Any) -> int | None:
        return self._steps.oldest(item)

    def _advance(self, watermark: int) -> None:
        instants, emit = self._instants, self.emit
        while instants and instants[0] <= watermark:
            step = heappop(instants)
            for item, copies in self._steps.items(step):
                emit(item, -copies)
            self._steps.drop(step)

    def _next(self) -> int:
        return self._instants[0] if self._instants else NEVER

    def size(self) -> int:
        return len(self._steps)


class Completing(Windows):
    """Windows that are complete at their end: the items that they have passed on leave later."""

    def __init__(
        self, clock: Clock, at: Callable[[Any], Any] | None, lateness: float, keep: float, final: bool
    ) -> None:
        super().__init__(clock, at, lateness)
        self.keep: Final = micros_in(keep, "keep", least=0)
        self.final: Final = final
        self._order: Final = count()
        self._leaving: list[tuple[int, int, Any, list[tuple[Any, int]]]] = []

    def _say(self, window: Any, item: Any, weight: int) -> None:
        """Passes on a change of a window that is open."""
        if not self.final:
            self.emit((window, item), weight)

    def _complete(self, end: int, window: Any, items: list[tuple[Any, int]]) -> None:
        """Notes the items of a window that is complete, and passes them on if nothing was before."""
        if self.final:
            for item, copies in items:
                self.emit((window, item), copies)
        heappush(self._leaving, (end + self.keep, next(self._order), window, items))

    def _advance(self, watermark: int) -> None:
        if self.final:  # in another tick than they came in
            self._leave(watermark)
        self._end(watermark)
        if not self.final:
            self._leave(watermark)

    @abstractmethod
    def _end(self, watermark: int) -> None:
        """Completes the windows that end at the watermark or before it."""

    def _leave(self, watermark: int) -> None:
        leaving, emit = self._leaving, self.emit
        while leaving and leaving[0][0] <= watermark:
            _, _, window, items = heappop(leaving)
            for item, copies in items:
                emit((window, item), -copies)

    def _next(self) -> int:
        first = self._next_end()
        return min(first, self._leaving[0][0]) if self._leaving else first

    @abstractmethod
    def _next_end(self) -> int:
        """Returns when the next window may be complete."""

    def size(self) -> int:
        return sum([len(items) for _, _, _, items in self._leaving])


class Hopping(Completing):
    """Passes on ``(start, item)`` for each window that has the item: windows of ``size``, one each ``slide``.

    They begin at multiples of the slide since 1970.  An item is kept once, and passed on ``size / slide``
    times.
    """

    def __init__(
        self,
        size: float,
        slide: float,
        clock: Clock,
        at: Callable[[Any], Any] | None = None,
        lateness: float = 0,
        *,
        keep: float = 0,
        final: bool = False,
    ) -> None:
        super().__init__(clock, at, lateness, keep, final)
        self.length: Final = micros_in(size, "a window")
        self.slide: Final = micros_in(slide, "a slide")
        if self.length % self.slide:
            raise UsageError(
                f"a window of {size} s that slides by {slide} s: its size is no multiple of that"
            )
        self._steps = _Steps()
        self._open: set[int] = set()
        self._starts: list[int] = []

    def _windows(self, step: int) -> range:
        """Returns the starts of the open windows that have a step."""
        first = step - self.length + self.slide
        past = self.watermark - self.length
        if first <= past:
            first += ((past - first) // self.slide + 1) * self.slide
        return range(first, step + 1, self.slide)

    def _add(self, time: int, item: Any, copies: int) -> bool:
        step = time // self.slide * self.slide
        starts = self._windows(step)
        if not starts:
            return False
        if self._steps.add(step, item, copies):
            for start in starts:
                if start not in self._open:
                    self._open.add(start)
                    heappush(self._starts, start)
        for start in starts:
            self._say(self._shown(start), item, copies)
        return True

    def _remove(self, time: int, item: Any) -> bool:
        step = time // self.slide * self.slide
        starts = self._windows(step)
        if not starts or not self._steps.remove(step, item):
            return False
        for start in starts:
            self._say(self._shown(start), item, -1)
        return True

    def _oldest(self, item: Any) -> int | None:
        return self._steps.oldest(item)

    def _end(self, watermark: int) -> None:
        while self._starts and self._starts[0] + self.length <= watermark:
            start = heappop(self._starts)
            self._open.discard(start)
            steps = range(start, start + self.length, self.slide)
            items = [each for step in steps for each in self._steps.items(step)]
            self._steps.drop(start)
            self._complete(start + self.length, self._shown(start), items)

    def _next_end(self) -> int:
        return self._starts[0] + self.length if self._starts else NEVER

    def size(self) -> int:
        return len(self._steps) + super().size()


def micros_in(seconds: float, what: str, *, least: int = 1) -> int:
    """Returns a span in microseconds; raises ``UsageError`` for a span that is too short."""
    micros = round(seconds * MICROSECONDS)
    if micros < least:
        raise UsageError(f"{what} of {seconds} s: {'more than nought' if least else 'nought or more'}")
    return micros
