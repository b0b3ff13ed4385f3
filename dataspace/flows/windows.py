"""Windows by time: which items of a flow belong together by times that they have themselves?

Items come in any order.  The *watermark* is the newest time so far, less a ``lateness``: windows that end up
to the watermark are closed, and their items are forgotten.  An item, or a retraction, that comes for a closed
window is *late*: it is dropped and counted.

Always: the output depends on the items of each tick and not on their order in it; the output for open windows
follows from the items that are there, whatever came and went before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, ClassVar, Final, TypeAlias

from dataspace.flows.operators import Emit, Operator, Port, Ports, pair
from index.errors import UsageError
from index.values.values import key, order_key

_BEFORE: Final = -(1 << 62)
"""Earlier than any time."""

MICROSECONDS: Final = 1_000_000

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class _Entry:
    """One item with its time in microseconds, and how often it is there."""

    __slots__ = ("at", "before", "count", "item")

    def __init__(self, item: Any, at: int) -> None:
        self.item = item
        self.at = at
        self.count = 0
        self.before = 0
        """The count at the end of the tick before, while the entry has changed in this one."""


_Due: TypeAlias = tuple[int, int, Hashable]
"""A time, a number that tells equal times apart, and the key of the window or item to be looked at then."""


class TimeWindow(Operator):
    """The common part: takes a tick's items, counts late ones, and moves the watermark on.

    ``at`` gives the time of an item: a time value, or a number of seconds.  ``final`` emits each window once,
    when it is closed; else it is emitted as it changes, and taken back when it is closed.
    """

    inputs: ClassVar[Ports] = (Port(blocking=True),)

    def __init__(self, at: Callable[[Any], Any], lateness: float, *, final: bool) -> None:
        super().__init__()
        if lateness < 0:
            raise UsageError(f"a lateness of {lateness} s: nought or more")
        self.late = 0
        """How many items and retractions came for windows that were closed."""
        self.watermark = _BEFORE
        self.final = final
        self._at = at
        self._lateness = round(lateness * MICROSECONDS)
        self._are_times = False  # whether times are values, and no numbers of seconds
        self._waiting: list[tuple[Any, int]] = []
        self._due: list[_Due] = []
        self._number = 0

    def receiver(self, port: str) -> Emit:
        waiting = self._waiting
        return lambda item, weight: waiting.append((item, weight))

    def release(self) -> None:
        at, until, newest = self._at, self._until, _BEFORE
        for item, weight in self._waiting:
            time = at(item)
            if time.__class__ is datetime:
                self._are_times, micros = True, (time - _ZERO) // _MICROSECOND
            else:
                micros = round(time * MICROSECONDS)
            if until(micros) <= self.watermark:
                self.late += abs(weight)
                continue
            if micros > newest:
                newest = micros
            self._take(item, micros, weight)
        self._waiting.clear()
        self.watermark = max(self.watermark, newest - self._lateness)
        self._conclude()

    @abstractmethod
    def _until(self, micros: int) -> int:
        """Returns the watermark from which on an item of a time is late."""

    @abstractmethod
    def _take(self, item: Any, micros: int, weight: int) -> None:
        """Notes that an item comes or goes."""

    @abstractmethod
    def _conclude(self) -> None:
        """Emits what has changed, after the watermark has moved on."""

    def _plan(self, time: int, what: Hashable) -> None:
        self._number += 1
        heappush(self._due, (time, self._number, what))

    def _come_due(self) -> Iterator[Hashable]:
        """Yields what is to be looked at by now, the earliest first."""
        while self._due and self._due[0][0] <= self.watermark:
            yield heappop(self._due)[2]

    def _shown(self, micros: int) -> Any:
        """Returns a time as the items have theirs."""
        if self._are_times:
            return _ZERO + micros * _MICROSECOND
        return micros / MICROSECONDS if micros % MICROSECONDS else micros // MICROSECONDS


def _changed(entry: _Entry) -> int:
    """Returns by how much the count of an entry has changed; raises ``UsageError`` below nought."""
    if entry.count < 0:
        raise UsageError(f"a window cannot retract {entry.item!r:.60}, which it does not have")
    return entry.count - entry.before


class SlidingWindow(TimeWindow):
    """Emits items that are later than ``size`` seconds before the watermark; takes the others back."""

    def __init__(self, size: float, at: Callable[[Any], Any], lateness: float = 0.0) -> None:
        super().__init__(at, lateness, final=False)
        self._size = _span(size, "a window")
        self._held: dict[Hashable, _Entry] = {}
        self._touched: dict[Hashable, _Entry] = {}

    def _until(self, micros: int) -> int:
        return micros + self._size

    def _take(self, item: Any, micros: int, weight: int) -> None:
        place = key(item)
        entry = self._held.get(place)
        if entry is None:
            self._held[place] = entry = _Entry(item, micros)
            self._plan(micros + self._size, place)
        if place not in self._touched:
            self._touched[place] = entry
            entry.before = entry.count
        entry.count += weight

    def _conclude(self) -> None:
        held, touched, emit = self._held, self._touched, self.emit
        changes = [(entry, _changed(entry)) for entry in touched.values()]
        for place in self._come_due():
            entry = held.get(place)
            if entry is None or entry.at + self._size > self.watermark:
                continue
            del held[place]
            if count := entry.before if place in touched else entry.count:
                emit(entry.item, -count)
        for entry, change in changes:
            if entry.at + self._size > self.watermark and change:
                emit(entry.item, change)
        for place, entry in touched.items():
            if not entry.count:
                held.pop(place, None)
        touched.clear()

    def size(self) -> int:
        return len(self._held) + len(self._waiting)


class HoppingWindow(TimeWindow):
    """Emits pairs of the beginning of a window and an item in it.

    Windows are ``size`` seconds long, and one begins every ``slide`` seconds since 1970 UTC.
    """

    def __init__(
        self,
        size: float,
        slide: float,
        at: Callable[[Any], Any],
        lateness: float = 0.0,
        *,
        final: bool = False,
    ) -> None:
        super().__init__(at, lateness, final=final)
        self._size, self._slide = _span(size, "a window"), _span(slide, "a slide")
        if self._size < self._slide:
            raise UsageError(
                f"a window of {size} s every {slide} s leaves items out: slide by {size} s at most"
            )
        self._held: dict[Hashable, _Entry] = {}
        self._touched: dict[Hashable, _Entry] = {}
        self._windows: dict[int, dict[Hashable, _Entry]] = {}

    def _until(self, micros: int) -> int:
        return micros // self._slide * self._slide + self._size

    def _begins(self, micros: int) -> Iterator[int]:
        """Yields the beginnings of all windows of a time, the latest first."""
        begin = micros // self._slide * self._slide
        while begin + self._size > micros:
            yield begin
            begin -= self._slide

    def _take(self, item: Any, micros: int, weight: int) -> None:
        place = key(item)
        entry = self._held.get(place)
        if entry is None:
            self._held[place] = entry = _Entry(item, micros)
            for begin in self._begins(micros):
                if begin + self._size > self.watermark:
                    if begin not in self._windows:
                        self._windows[begin] = {}
                        self._plan(begin + self._size, begin)
                    self._windows[begin][place] = entry
        if place not in self._touched:
            self._touched[place] = entry
            entry.before = entry.count
        entry.count += weight

    def _conclude(self) -> None:
        held, touched, emit = self._held, self._touched, self.emit
        changes = [(place, entry, _changed(entry)) for place, entry in touched.items()]
        for begin in self._come_due():
            assert isinstance(begin, int)  # it was planned so
            shown = self._shown(begin)
            for place, entry in self._windows.pop(begin).items():
                count = entry.count if self.final else -(entry.before if place in touched else entry.count)
                if count:
                    emit((shown, entry.item), count)
                if self._until(entry.at) <= self.watermark:
                    held.pop(place, None)
        for place, entry, change in changes:
            open_ = [begin for begin in self._begins(entry.at) if begin in self._windows]
            if change and not self.final:
                for begin in open_:
                    emit((self._shown(begin), entry.item), change)
            if not entry.count:
                held.pop(place, None)
                for begin in open_:
                    self._windows[begin].pop(place, None)
        touched.clear()

    def size(self) -> int:
        return sum(map(len, self._windows.values())) + len(self._waiting)


class SessionWindow(TimeWindow):
    """Emits sessions of pairs of a key and a value: ``(key, (begin, end, values))``.

    Items of a key that are less than ``gap`` seconds apart are in one session, which ends a gap after
    the last.  A change of a session takes it back and emits the new one: several may merge, or one be split.
    O(items of the key in open sessions), for each key that has changes in a tick.
    """

    def __init__(
        self, gap: float, at: Callable[[Any], Any], lateness: float = 0.0, *, final: bool = False
    ) -> None:
        super().__init__(at, lateness, final=final)
        self._gap = _span(gap, "a gap")
        self._items: dict[Hashable, dict[Hashable, _Entry]] = {}
        self._names: dict[Hashable, Any] = {}
        self._emitted: dict[Hashable, dict[Hashable, Any]] = {}
        self._touched: dict[Hashable, None] = {}

    def _until(self, micros: int) -> int:
        return micros + self._gap

    def _take(self, item: Any, micros: int, weight: int) -> None:
        name = pair(item, "sessions")[0]
        at, place = key(name), key(item)
        entries = self._items.setdefault(at, {})
        self._names[at] = name
        entry = entries.get(place)
        if entry is None:
            entries[place] = entry = _Entry(item, micros)
        entry.count += weight
        self._touched[at] = None

    def _conclude(self) -> None:
        due = dict.fromkeys(at for at in self._come_due() if at in self._items)
        for at in {**self._touched, **due}:
            self._look_at(at)
        self._touched.clear()

    def _look_at(self, at: Hashable) -> None:
        """Emits what has become of the sessions of a key."""
        name, entries = self._names[at], self._items[at]
        for place in [place for place, entry in entries.items() if not entry.count]:
            del entries[place]
        for entry in entries.values():
            _changed(entry)
        now: dict[Hashable, Any] = {}
        for members in self._sessions(entries):
            end = members[-1].at + self._gap
            values = tuple([each.item[1] for each in members for _ in range(each.count)])
            session = name, (self._shown(members[0].at), self._shown(end), values)
            if end > self.watermark:
                now[key(session)] = session
                self._plan(end, at)
            else:
                for each in members:
                    del entries[key(each.item)]
                if self.final:
                    self.emit(session, 1)
        if not self.final:
            before = self._emitted.pop(at, {})
            for place, session in before.items():
                if place not in now:
                    self.emit(session, -1)
            for place, session in now.items():
                if place not in before:
                    self.emit(session, 1)
            if now:
                self._emitted[at] = now
        if not entries:
            del self._items[at], self._names[at]

    def _sessions(self, entries: dict[Hashable, _Entry]) -> list[list[_Entry]]:
        """Returns the items of a key by session, each in order of time."""
        found: list[list[_Entry]] = []
        for entry in sorted(entries.values(), key=lambda each: (each.at, order_key(each.item[1]))):
            if found and entry.at < found[-1][-1].at + self._gap:
                found[-1].append(entry)
            else:
                found.append([entry])
        return found

    def size(self) -> int:
        return sum(map(len, self._items.values())) + len(self._waiting)


def _span(seconds: float, what: str) -> int:
    """Returns a duration in microseconds; raises ``UsageError`` unless it is more than nought."""
    micros = round(seconds * MICROSECONDS)
    if micros < 1:
        raise UsageError(f"{what} of {seconds} s: more than nought")
    return micros
