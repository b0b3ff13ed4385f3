"""Changes: the effects of one epoch, on facts and owners, on the observers of a pattern, and for a program.

One ``Changes`` is made per touched pattern and epoch, and shared by all observers of that pattern, so that
its wire form is packed once however many they are.  An ``Epoch`` has facts and
owners; ``Changes`` have captures only, ``EpochChanges`` captures with their names.

Always: the order within is additions, messages, removals; a ``Changes`` never changes after it is made.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, overload

from dataspace.codec import pack
from dataspace.kernel.actions import MORE, PROGRESS, SNAPSHOT
from index.patterns.events import Captures as Captures
from index.values.values import Record, Value, keys


class Numbered(Sequence[tuple[int, Value]]):
    """Values under handles in a row: the pairs of handle and value are made during iteration."""

    __slots__ = ("first", "values")

    def __init__(self, first: int, values: Sequence[Value]) -> None:
        self.first = first
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[int, Value]]:
        return enumerate(self.values, self.first)

    @overload
    def __getitem__(self, at: int) -> tuple[int, Value]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[int, Value]]: ...
    def __getitem__(self, at: int | slice) -> tuple[int, Value] | list[tuple[int, Value]]:
        if isinstance(at, slice):
            return list(self)[at]
        at = range(len(self.values))[at]
        return self.first + at, self.values[at]


class Claims(NamedTuple):
    """What a turn changed of one owner's handles: claims begun, then claims ended.

    A handle that stood for something, was ended and begun again stands for something else: it is only begun.
    """

    owner: str
    asserted: Sequence[tuple[int, Value]] = ()
    retracted: Sequence[int] = ()


class Origin(NamedTuple):
    """Where the turns of a client come from: its connection's name, its principal and its address."""

    client: str
    name: str
    principal: str
    address: str


class Epoch(NamedTuple):
    """One committed turn.

    ``number`` ascends, with gaps where a crash lost unacknowledged epochs; ``time`` is in microseconds
    since 1970 UTC and never goes back.  A *silent* entry changed claims but no fact (another owner
    holds the same one): it repeats the number of the epoch before it and is shown to no observer.
    ``client`` and ``sequence`` name the sender's turn, so that it is never applied twice.

    The kernel makes one for each turn that had an effect; the log stores it, observers and readers of the log
    get their changes from it.

    Always: ``added`` and ``removed`` are net (a value is in at most one of them, and changed its presence),
    in the order in which the turn made them; the order within an epoch is additions, messages, removals.
    """

    number: int
    time: int
    added: Sequence[Value] = ()
    messages: Sequence[Value] = ()
    removed: Sequence[Value] = ()
    claims: Sequence[Claims] = ()
    client: str | None = None
    sequence: int = 0
    silent: bool = False


PART: Final = 2048
"""Changes in one stream value; an epoch with more of them travels in several."""


class Changes:
    """The additions, messages and removals of one pattern in one epoch, as rows of captures.

    ``number`` is the epoch, ``time`` in microseconds since 1970 UTC; ``first`` is the epoch where a conflated
    difference begins, else the same as ``number``; ``flags`` are the flags on the wire.
    """

    __slots__ = ("_packed", "added", "first", "flags", "messages", "number", "removed", "size", "time")

    def __init__(
        self,
        number: int,
        time: int,
        added: Sequence[Captures] = (),
        messages: Sequence[Captures] = (),
        removed: Sequence[Captures] = (),
        *,
        flags: int = 0,
        first: int | None = None,
    ) -> None:
        self.number = number
        self.time = time
        self.added = added
        self.messages = messages
        self.removed = removed
        self.size: Final = len(added) + len(messages) + len(removed)
        """Changes; the same as ``len``, which costs a call where every value counts."""
        self.flags = flags
        self.first = number if first is None else first
        self._packed: bytes | None = None

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return (
            f"Changes({self.number}, +{len(self.added)} !{len(self.messages)} -{len(self.removed)},"
            f" flags={self.flags})"
        )

    @property
    def snapshot(self) -> bool:
        """True if these additions are a state, not changes."""
        return bool(self.flags & SNAPSHOT)

    @property
    def packed(self) -> bytes:
        """Returns the stream value that carries these changes; O(size) once."""
        known = self._packed
        if known is None:
            known = self._packed = self.pack()
        return known

    def pack(self) -> bytes:
        """Returns the same without keeping it, for callers that keep it themselves."""
        return self._packed or pack(
            (self.number, self.time, self.flags, self.added, self.messages, self.removed, self.first)
        )

    def parts(self, size: int = PART) -> Sequence[Changes]:
        """Yields these changes in values of at most ``size`` changes, all but the last flagged ``MORE``."""
        return (self,) if self.size <= size else list(self._cut(size))

    def _cut(self, size: int) -> Iterator[Changes]:
        for start in range(0, self.size, size):
            lists, begin, end = [], start, start + size
            for rows in (self.added, self.messages, self.removed):
                lists.append(rows[max(0, begin) : max(0, end)])
                begin, end = begin - len(rows), end - len(rows)
            more = MORE if start + size < self.size else 0
            yield Changes(self.number, self.time, *lists, flags=self.flags | more, first=self.first)


class Lost(Changes):
    """A mark among the changes of an observer with the policy ``drop``: so many were dropped here.

    It waits and is taken like the changes whose place it has, and grows while it waits.
    """

    __slots__ = ("count",)

    def __init__(self, first: int) -> None:
        super().__init__(first, 0)
        self.count = 0

    def add(self, number: int, count: int) -> None:
        """Adds one more lost epoch, of so many changes."""
        self.count += count
        self.number = number

    @property
    def packed(self) -> bytes:
        """Returns the stream value: ``lost(changes, first epoch, last epoch)``."""
        return self.pack()

    def pack(self) -> bytes:
        """Returns the same."""
        return pack(Record("lost", self.count, self.first, self.number))


ADDED: Final = "+"
REMOVED: Final = "-"
MESSAGE: Final = "!"
LOST: Final = "?"

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(micros: int) -> datetime:
    """Returns a time from microseconds since 1970 UTC."""
    return _ZERO + timedelta(microseconds=micros)


def micros_of(time: datetime) -> int:
    """Returns a time as microseconds since 1970 UTC; one without a zone is in UTC."""
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (known - _ZERO) // timedelta(microseconds=1)


class Change:
    """One fact that came or went, or one message: ``kind`` is ``+``, ``-`` or ``!``.

    An observation that lets old changes go has one of kind ``?`` in their place, with their number as its
    only capture.  Captures are a tuple in the order of the pattern; named ones are attributes as well, and
    ``change["name"]`` finds a capture whose name means something else here.
    """

    __slots__ = ("_names", "captures", "epoch", "kind", "micros", "snapshot")

    def __init__(
        self,
        kind: str,
        captures: tuple[Value, ...],
        epoch: int,
        micros: int,
        names: tuple[str, ...],
        snapshot: bool,
    ) -> None:
        self.kind = kind
        self.captures = captures
        self.epoch = epoch
        self.micros = micros
        self.snapshot = snapshot
        self._names = names

    @property
    def time(self) -> datetime:
        """Returns when the epoch was made."""
        return time_of(self.micros)

    @property
    def named(self) -> dict[str, Value]:
        """Returns the captures by name; unnamed ones by their position among all."""
        return dict(zip(self._names, self.captures, strict=True))

    def __getitem__(self, name: str | int) -> Value:
        return self.captures[name if isinstance(name, int) else self._names.index(name)]

    def __getattr__(self, name: str) -> Value:
        try:
            return self.captures[self._names.index(name)]
        except ValueError:
            if name in ("replaces", "replaced_by"):
                raise AttributeError(f"only with observe(…, by=…) a change has {name}") from None
            raise AttributeError(f"no capture named {name!r}, there are {', '.join(self._names)}") from None

    def __repr__(self) -> str:
        return f"<{self.epoch} {self.kind} {', '.join(map(repr, self.captures))}>"


class KeyedChange(Change):
    """A change of an observation by a key (``observe(by=…)``), which knows its counterpart in the epoch."""

    __slots__ = ("_other",)

    def __init__(self, change: Change, other: tuple[Value, ...] | None = None) -> None:
        """``other`` are the captures of the counterpart."""
        super().__init__(
            change.kind, change.captures, change.epoch, change.micros, change._names, change.snapshot
        )
        self._other = other

    @property
    def replaces(self) -> Change | None:
        """Returns the fact with the same key that goes in this epoch, as this one comes; else None."""
        return self._counterpart(REMOVED) if self.kind == ADDED else None

    @property
    def replaced_by(self) -> Change | None:
        """Returns the fact with the same key that comes in this epoch, as this one goes; else None."""
        return self._counterpart(ADDED) if self.kind == REMOVED else None

    def _counterpart(self, kind: str) -> Change | None:
        if self._other is None:
            return None
        other = Change(kind, self._other, self.epoch, self.micros, self._names, False)
        return KeyedChange(other, self.captures)


class EpochChanges:
    """All changes of one epoch that match one pattern, never split.

    ``first`` is below ``number`` where the daemon had to conflate: the rows are then the net difference over
    the epochs from ``first`` to ``number``.  ``snapshot`` rows are a state, given as additions.  Where
    ``lost`` is not 0, this is a mark: so many changes of those epochs were dropped, and there are no rows.
    ``flags`` are the flags on the wire.  Rows of a stream are tuples.  ``by`` are the places of the captures
    that are a key, for an observation by a key: then the changes know what replaces what.
    """

    __slots__ = (
        "added",
        "by",
        "first",
        "flags",
        "lost",
        "messages",
        "micros",
        "names",
        "number",
        "removed",
    )

    def __init__(
        self,
        number: int,
        micros: int,
        first: int,
        names: tuple[str, ...],
        added: Sequence[tuple[Value, ...]],
        messages: Sequence[tuple[Value, ...]],
        removed: Sequence[tuple[Value, ...]],
        flags: int = 0,
        lost: int = 0,
    ) -> None:
        self.number = number
        self.micros = micros
        self.first = first
        self.names = names
        self.flags = flags
        self.lost = lost
        self.added = added
        self.messages = messages
        self.removed = removed
        self.by: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.added) + len(self.messages) + len(self.removed)

    @property
    def snapshot(self) -> bool:
        """True if the additions are a state."""
        return bool(self.flags & SNAPSHOT)

    @property
    def progress(self) -> bool:
        """True if this is only a progress mark: all changes up to it were delivered."""
        return bool(self.flags & PROGRESS)

    @property
    def conflated(self) -> bool:
        """True if these rows stand for more than one epoch."""
        return self.first != self.number and not self.lost

    @property
    def time(self) -> datetime:
        """Returns when the epoch was made."""
        return time_of(self.micros)

    def __iter__(self) -> Iterator[Change]:
        """Yields the changes in their order: additions, messages, removals."""
        if self.by:
            yield from self._by_key()
            return
        number, micros, names, snapshot = self.number, self.micros, self.names, self.snapshot
        if self.lost:
            yield Change(LOST, (self.lost,), number, micros, ("lost",), False)
        for row in self.added:
            yield Change(ADDED, row, number, micros, names, snapshot)
        for row in self.messages:
            yield Change(MESSAGE, row, number, micros, names, snapshot)
        for row in self.removed:
            yield Change(REMOVED, row, number, micros, names, snapshot)

    def extend(self, part: EpochChanges | Changes) -> None:
        """Adds the rows of the next part of the same epoch."""
        self.added = _longer(self.added, part.added)
        self.messages = _longer(self.messages, part.messages)
        self.removed = _longer(self.removed, part.removed)
        self.flags = part.flags  # the last part does not have the flag for more

    def listed(self) -> Sequence[Change]:
        """Returns the same changes at once, which for an epoch of one spares a generator."""
        if self.by or self.lost or len(self.added) + len(self.messages) + len(self.removed) != 1:
            return [*self]
        if self.added:
            kind, row = ADDED, self.added[0]
        elif self.messages:
            kind, row = MESSAGE, self.messages[0]
        else:
            kind, row = REMOVED, self.removed[0]
        return (Change(kind, row, self.number, self.micros, self.names, bool(self.flags & SNAPSHOT)),)

    def _by_key(self) -> Iterator[Change]:
        """Yields the changes, each with the one of the same key that it replaces or that replaces it.

        Of several the first to come replaces the first to go; O(rows).
        """
        if self.lost:
            yield KeyedChange(Change(LOST, (self.lost,), self.number, self.micros, ("lost",), False))
        gone: dict[Hashable, list[int]] = {}
        for at, row in enumerate(self.removed):
            gone.setdefault(self._key_of(row), []).append(at)
        for places in gone.values():
            places.reverse()  # the first is taken first
        replaced: list[tuple[Value, ...] | None] = [None] * len(self.removed)
        number, micros, names, snapshot = self.number, self.micros, self.names, self.snapshot
        for row in self.added:
            places = gone.get(self._key_of(row), []) if gone else []
            other = None
            if places:
                at = places.pop()
                other, replaced[at] = self.removed[at], row
            yield KeyedChange(Change(ADDED, row, number, micros, names, snapshot), other)
        for row in self.messages:
            yield KeyedChange(Change(MESSAGE, row, number, micros, names, snapshot))
        for row, other in zip(self.removed, replaced, strict=True):
            yield KeyedChange(Change(REMOVED, row, number, micros, names, snapshot), other)

    def _key_of(self, row: tuple[Value, ...]) -> Hashable:
        return keys(tuple([row[at] for at in self.by]))

    def __repr__(self) -> str:
        return f"<epoch {self.number}: +{len(self.added)} !{len(self.messages)} -{len(self.removed)}>"


def _longer(rows: Sequence[Captures], more: Sequence[Captures]) -> Sequence[Captures]:
    longer = rows if isinstance(rows, list) else [*rows]  # once: the next part finds the list
    longer.extend(more)
    return longer
