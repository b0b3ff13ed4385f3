"""Blocks: many changes at once, by the column.

A bulk reader gets them instead of ``EpochChanges``: the captures of some epochs as one tuple for each
capture, and how many rows belong to which epoch.  They are apart from the client that receives them because
code that builds tables from them needs no socket.

Always: rows are in order, epoch by epoch, and in each additions, messages, removals; ``more`` is set on a
block whose last epoch is incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from dataspace.errors import ProtocolError
from dataspace.kernel.actions import MORE, SNAPSHOT
from index.values.values import Value

Counts: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Epochs ``numbers`` made at ``times`` (microseconds), with so many rows of each kind in ``columns``.

    ``skipped`` rows of the first epoch came in blocks before; with ``more``, the last epoch continues in the
    next block.
    """

    snapshot: bool
    more: bool
    skipped: int
    numbers: Counts
    times: Counts
    added: Counts
    messages: Counts
    removed: Counts
    columns: tuple[tuple[Value, ...], ...]

    def __len__(self) -> int:
        return sum(self.added) + sum(self.messages) + sum(self.removed)

    def totals(self) -> list[int]:
        """Returns the number of rows of each epoch in this block."""
        return [*map(sum, zip(self.added, self.messages, self.removed, strict=True))]

    def without(self, rows: int) -> Block:
        """Returns the rest after the first ``rows`` rows of the first epoch, which came before; O(epochs)."""
        kinds, left = [], rows
        for counts in (self.added, self.messages, self.removed):
            cut = min(left, counts[0])
            kinds.append((counts[0] - cut, *counts[1:]))
            left -= cut
        return replace(
            self,
            skipped=self.skipped + rows,
            added=kinds[0],
            messages=kinds[1],
            removed=kinds[2],
            columns=tuple([column[rows:] for column in self.columns]),
        )


def block(value: Value) -> Block:
    """Returns the block in a stream value; raises ``ProtocolError`` for anything else."""
    match value:
        case (
            int(flags),
            int(skipped),
            tuple() as numbers,
            tuple() as times,
            tuple(),
            tuple(),
            tuple(),
            tuple(),
        ):
            made = Block(bool(flags & SNAPSHOT), bool(flags & MORE), skipped, numbers, times, *value[4:])  # type: ignore[arg-type]  # numbers, from a daemon that is trusted that far
            if numbers and all(len(column) == len(made) for column in made.columns):
                return made
    raise ProtocolError("malformed", f"no block of changes: {value!r:.80}")
