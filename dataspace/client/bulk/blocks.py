"""Blocks: many changes at once, by the column.

A bulk reader gets them instead of ``EpochChanges``: the captures of some epochs as one tuple for each
capture, and how many rows belong to which epoch.  They are apart from the client that receives them because
code that builds tables from them needs no socket.

Always: rows are in order, epoch by epoch, and in each additions, messages, removals; ``more`` is set on a
block whose last epoch is incomplete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    places: bytes | None = field(default=None, kw_only=True)
    """Which change of its epoch each row is, as integers of 32 bits, the least byte first; None where they
    are 0, 1, 2 and so on in each epoch, or were not requested."""
    since: tuple[bytes, bytes] | None = field(default=None, kw_only=True)
    """The epoch and its time in microseconds from which on each row was there, as integers of 64 bits in the
    same order, -1 where that is not known; None where that was not requested."""
    owners: tuple[str | None, ...] | None = field(default=None, kw_only=True)
    """By whose claim each row came, None where that is not known; None where that was not requested."""

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
            places=None if self.places is None else self.places[4 * rows :],
            since=None if self.since is None else (self.since[0][8 * rows :], self.since[1][8 * rows :]),
            owners=None if self.owners is None else self.owners[rows:],
        )


def block(value: Value, captures: Sequence[int] | None = None) -> Block:
    """Returns the block in a stream value; raises ``ProtocolError`` for anything else.

    ``captures`` are the numbers of the requested captures; all other columns are empty.
    """
    match value:
        case (
            int(flags),
            int(skipped),
            tuple(),
            tuple(),
            tuple(),
            tuple(),
            tuple(),
            tuple() as columns,
            *rest,
        ):
            decoded = Block(bool(flags & SNAPSHOT), bool(flags & MORE), skipped, *value[2:7], columns)  # type: ignore[call-arg, arg-type]  # numbers, from a daemon that is trusted that far
            if decoded.numbers and all(len(column) == len(decoded) for column in decoded.columns):
                return _completed(decoded, captures, rest)
    raise _malformed(value)


def _completed(decoded: Block, captures: Sequence[int] | None, rest: Sequence[Value]) -> Block:
    """Returns a block with columns at the places of their captures, and the parts behind the columns."""
    if captures is not None:
        if len(captures) != len(decoded.columns):
            raise _malformed(decoded.columns)
        found = dict(zip(captures, decoded.columns, strict=True))
        decoded = replace(
            decoded, columns=tuple([found.get(at, ()) for at in range(max(captures, default=-1) + 1)])
        )
    places, since, owners, *more = [*rest, None, None, None][: max(3, len(rest))]
    count = len(decoded)
    if more or not (_are_places(places, count) and _are_times(since, count) and _are_owners(owners, count)):
        raise _malformed(rest)
    return replace(decoded, places=places, since=since, owners=owners)  # type: ignore[arg-type]  # as just checked


def _are_places(places: Value, count: int) -> bool:
    return places is None or (places.__class__ is bytes and len(places) == 4 * count)


def _are_times(since: Value, count: int) -> bool:
    match since:
        case None:
            return True
        case (bytes(epochs), bytes(times)):
            return len(epochs) == len(times) == 8 * count
    return False


def _are_owners(owners: Value, count: int) -> bool:
    if not isinstance(owners, tuple):
        return owners is None
    return len(owners) == count and {str, type(None)}.issuperset(map(type, owners))


def _malformed(value: object) -> ProtocolError:
    return ProtocolError("malformed", f"no block of changes: {value!r:.80}")
