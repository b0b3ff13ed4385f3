"""Epochs: the effects of one committed turn, as a plain record.

The kernel makes one for each turn that had an effect; the log stores it, observers and readers of the
log get their changes from it.  It is apart from both because neither may import the other.

Always: ``added`` and ``removed`` are net (a value is in at most one of them, and changed its presence),
in the order in which the turn made them; the order within an epoch is additions, messages, removals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from index.values.values import Value


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
