"""Packed operations: the compact form in which a bulk writer sends operations.

With records as extensions, and pairs of verb and value as arrays, a million of each, most of the bytes and of
the time would be spent on what is the same in all of them.  So equal parts are sent once.  Of facts that are
all records of one label, as nearly always, each field is one column, which is packed, unpacked and turned
into rows at the speed of C.  ``server/publication/packed.py`` is the other end; WIRE.md describes the bytes.

Always: both forms mean the same operations, in the same order; ``unpacked`` reverses ``packed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from dataspace.codec import pack, unpack_own
from index.values.values import Record, Value


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """Operations on records of one label: a verb for each, or one for all, and a column for each field."""

    verbs: str | Sequence[str]
    label: Value
    fields: Sequence[Sequence[Value]]
    count: int

    def __len__(self) -> int:
        return self.count

    def operations(self) -> Iterator[tuple[str, Value]]:
        """Yields the operations, one by one."""
        rows = zip(*self.fields, strict=True) if self.fields else repeat((), self.count)
        verbs = repeat(self.verbs, self.count) if isinstance(self.verbs, str) else self.verbs
        return zip(verbs, map(Record.of, repeat(self.label), rows), strict=False)

    def packed(self) -> bytes:
        """Returns the bytes of these operations; records without fields have no columns, and are sent as
        pairs."""
        if not self.fields:
            return staged_form(list(self.operations()))
        return pack((self.verbs, self.label, self.fields, self.count))

    def halves(self) -> tuple[PackedColumns, PackedColumns]:
        """Returns the first and the second half, for facts that are too large for one request."""
        return self._part(0, self.count // 2), self._part(self.count // 2, self.count)

    def _part(self, start: int, stop: int) -> PackedColumns:
        verbs = self.verbs if isinstance(self.verbs, str) else self.verbs[start:stop]
        return PackedColumns(verbs, self.label, [field[start:stop] for field in self.fields], stop - start)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Operations as pairs of verb and value."""

    pairs: Sequence[tuple[str, Value]]

    def __len__(self) -> int:
        return len(self.pairs)

    def operations(self) -> Iterator[tuple[str, Value]]:
        """Yields the operations, one by one."""
        return iter(self.pairs)

    def packed(self) -> bytes:
        """Returns the bytes of these operations."""
        return staged_form(self.pairs)

    def halves(self) -> tuple[Pairs, Pairs]:
        """Returns the first and the second half, for pairs that are too large for one request."""
        half = len(self.pairs) // 2
        return Pairs(self.pairs[:half]), Pairs(self.pairs[half:])


def unpacked(body: bytes) -> PackedColumns | Pairs:
    """Returns the operations from which this client's own ``packed`` made these bytes."""
    form: Any = unpack_own(body)
    if len(form) == 4:
        return PackedColumns(*form)
    verbs, rows, plain = form
    bare = set(plain)
    values = [row if at in bare else Record.of(row[0], row[1:]) for at, row in enumerate(rows)]
    return Pairs(list(zip(repeat(verbs) if isinstance(verbs, str) else verbs, values, strict=False)))


def staged_form(operations: Sequence[tuple[str, Value]]) -> bytes:
    """Returns operations as bytes: verbs (one if all are alike), plain rows, and the positions of the values
    that are no records.

    A record as an extension costs a call for each; as the array of its label and fields it costs nothing.
    """
    verbs = [verb for verb, _ in operations]
    rows: list[Value] = []
    plain: list[int] = []
    for _, value in operations:
        if value.__class__ is Record:
            rows.append((value.label, *value.fields))
        else:
            plain.append(len(rows))
            rows.append(value)
    return pack((verbs[0] if len(set(verbs)) == 1 else verbs, rows, plain))
