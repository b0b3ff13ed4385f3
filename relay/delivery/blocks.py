"""Blocks: changes of one pattern by the column, packed, as they wait for one bulk reader.

Apart from the replay that makes them, since they may be made anywhere.

Always: blocks are taken in the order in which they came; a block is whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from dataspace.errors import Refused
from relay.delivery.memory import MemoryBudget
from relay.delivery.packed import joined

AHEAD: Final = 2
"""Blocks of columns that wait for one stream."""


class ColumnBlock:
    """Some epochs of one pattern as a stream value, packed; ``len`` is how many changes are in it."""

    __slots__ = ("_length", "packed")

    def __init__(self, length: int, packed: bytes) -> None:
        self._length = length
        self.packed = packed

    def __len__(self) -> int:
        return self._length


Part = tuple[list[tuple[int, ...]], int, int, int, bool]
"""Some epochs, how many changes of the first went before, their rows, and whether the last one goes on."""


def cut(runs: Sequence[tuple[int, ...]], most: int) -> Iterator[Part]:
    """Yields epochs cut into parts of at most ``most`` changes.

    An epoch is divided only where it is larger.
    """
    part: list[tuple[int, ...]] = []
    start = at = 0
    for run in runs:
        size = sum(run[2:])
        if part and at + size - start > most:
            yield part, 0, start, at, False
            part, start = [], at
        if size <= most:
            part.append(run)
            at += size
            continue
        for skipped in range(0, size, most):
            stop = min(skipped + most, size)
            yield [_sliced(run, skipped, stop)], skipped, at + skipped, at + stop, stop < size
        at += size
        start = at
    if part:
        yield part, 0, start, at, False


def _sliced(run: tuple[int, ...], start: int, stop: int) -> tuple[int, ...]:
    """Returns the counts of an epoch for its changes ``start`` to ``stop``."""
    number, time, *counts = run
    sliced, at = [], 0
    for count in counts:
        sliced.append(max(0, min(stop, at + count) - max(start, at)))
        at += count
    return (number, time, sliced[0], sliced[1], sliced[2])


class Blocks:
    """The waiting room of one bulk reader: a few blocks, whole (see ``relay/delivery/backlog.py``)."""

    __slots__ = ("_left", "_budget", "_waiting", "failure", "used")

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        """``budget`` is the budget of all observers together."""
        self.failure: Refused | None = None
        self._waiting: deque[ColumnBlock] = deque()
        self._budget = budget or MemoryBudget()
        self._budget.observers += 1
        self._left = False
        self.used = 0
        """Bytes of the blocks that wait."""

    @property
    def full(self) -> bool:
        """True if as many blocks wait as should."""
        return len(self._waiting) >= AHEAD or (self.used > 0 and self._budget.pauses(self.used))

    def __len__(self) -> int:
        return len(self._waiting)

    def extend(self, block: ColumnBlock) -> None:
        """Queues one more block, unless the stream has ended; the caller keeps them few."""
        if not self._left:
            self._waiting.append(block)
            self._use(len(block.packed))

    def close(self) -> None:
        """Drops what waits when the stream has ended; may be called again."""
        if not self._left:
            self._left = True
            self._waiting.clear()
            self._use(-self.used)
            self._budget.observers -= 1

    def _use(self, size: int) -> None:
        self.used += size
        self._budget.used += size

    def take(self, count: int, size: int) -> list[ColumnBlock]:
        """Returns up to ``count`` blocks of about ``size`` bytes in all; the last may go beyond."""
        taken: list[ColumnBlock] = []
        while self._waiting and len(taken) < count and size > 0:
            taken.append(self._waiting.popleft())
            size -= len(taken[-1].packed)
            self._use(-len(taken[-1].packed))
        return taken

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Takes as ``take`` does; returns how many blocks, and their wire form."""
        return joined(self.take(count, size))
