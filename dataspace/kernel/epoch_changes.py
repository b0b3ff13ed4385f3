"""Changes as an application meets them: one at a time, or one whole epoch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from dataspace.kernel.actions import PROGRESS, SNAPSHOT
from index.values.values import Value

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
            raise AttributeError(f"no capture named {name!r}, there are {', '.join(self._names)}") from None

    def __repr__(self) -> str:
        return f"<{self.epoch} {self.kind} {', '.join(map(repr, self.captures))}>"


class EpochChanges:
    """All changes of one epoch that match one pattern, never split.

    ``first`` is below ``number`` where the daemon had to conflate: the rows are then the net difference over
    the epochs from ``first`` to ``number``.  ``snapshot`` rows are a state, given as additions.  Where
    ``lost`` is not 0, this is a mark: so many changes of those epochs were dropped, and there are no rows.
    ``flags`` are the flags on the wire.
    """

    __slots__ = (
        "added",
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
        added: list[tuple[Value, ...]],
        messages: list[tuple[Value, ...]],
        removed: list[tuple[Value, ...]],
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
        number, micros, names, snapshot = self.number, self.micros, self.names, self.snapshot
        if self.lost:
            yield Change(LOST, (self.lost,), number, micros, ("lost",), False)
        for row in self.added:
            yield Change(ADDED, row, number, micros, names, snapshot)
        for row in self.messages:
            yield Change(MESSAGE, row, number, micros, names, snapshot)
        for row in self.removed:
            yield Change(REMOVED, row, number, micros, names, snapshot)

    def __repr__(self) -> str:
        return f"<epoch {self.number}: +{len(self.added)} !{len(self.messages)} -{len(self.removed)}>"
