"""Checks and reads the packed operations of a bulk writer.

They come as columns, as plain rows (``client/bulk/packed``) or as pairs of verb and value.  They are checked
when they come, stored as they are, and read when they are published.  This is apart from publishing, which
depends on what operations do but not on how they were encoded.

Always: what ``check`` accepts, ``read`` can read; ``check`` builds no values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dataspace.errors import Refused
from index.values.columns import records
from index.values.values import Value
from relay.log.segments import table

VERBS: Final = ("assert", "retract", "send")

LIMIT_BYTES: Final = 2 << 20
"""Packed bytes whose operations a space keeps in memory, where they take some fifteen times that."""


class Operations(NamedTuple):
    """As many verbs as values."""

    verbs: Sequence[str]
    values: Sequence[Value]


def check(staged: Value) -> int:
    """Returns the number of operations; raises ``Refused("bad-request")`` for anything else.  O(size)."""
    match staged:
        case (verbs, _, tuple() as fields, count) if count.__class__ is int:
            if fields and all(_are(each, count) for each in fields) and _are_verbs(verbs, count):
                return int(count)
        case (verbs, tuple() as rows, tuple() as plain) if _all_integers(plain):
            bare = set(plain)
            arrays = all(row.__class__ is tuple and row for at, row in enumerate(rows) if at not in bare)
            if arrays and _are_verbs(verbs, len(rows)):
                return len(rows)
        case tuple():
            for operation in staged:
                check_pair(operation)
            return len(staged)
    raise Refused("bad-request", f"no operations: {staged!r:.80}, verbs are {', '.join(VERBS)}")


def read(staged: Any) -> Operations:
    """Returns the operations, which were checked; O(size)."""
    match staged:
        case (verbs, label, tuple() as fields, count) if count.__class__ is int:
            values: Sequence[Value] = records(label, fields)
        # three pairs have the same shape, but each begins with a verb
        case (verbs, tuple() as rows, tuple() as plain) if _all_integers(plain):
            values = table(rows, plain, len(rows))
        case _:
            return Operations([verb for verb, _ in staged], [value for _, value in staged])
    return Operations([verbs] * len(values) if isinstance(verbs, str) else verbs, values)


def check_pair(operation: Value) -> None:
    """Raises ``Refused`` for anything but a pair of a verb and a value."""
    if operation.__class__ is not tuple or len(operation) != 2 or operation[0] not in VERBS:
        raise Refused("bad-request", f"no operation: {operation!r:.80}, known are {', '.join(VERBS)}")


def _are(values: Value, count: int) -> bool:
    return values.__class__ is tuple and len(values) == count


def _are_verbs(verbs: Value, count: int) -> bool:
    if isinstance(verbs, tuple):
        return len(verbs) == count and all(each.__class__ is str and each in VERBS for each in verbs)
    return verbs in VERBS


def _all_integers(values: tuple[Value, ...]) -> bool:
    return all(each.__class__ is int for each in values)


@dataclass(frozen=True, slots=True)
class PreparedStatistics:
    """Pieces and their packed bytes that are kept now; how many were used, and how many were dropped
    unused."""

    pieces: int
    bytes: int
    used: int
    unused: int


class Prepared:
    """The operations that one space has read ahead, by the bytes from which they were read.

    A small batch of a bulk writer is one request, and reading it is half of its cost, while the writer's
    driver waits.  The writer's tasks have the rows some time earlier.  So they send them to the daemon as
    soon as they are done, and it reads them while the writer collects the results of its tasks.  When a
    request to publish the same bytes comes, they are read already.  This is apart from staging, which stores
    what it is given on disk.

    Always: prepared operations are not visible, grant no right and may be dropped at any moment, and then
    publishing costs the usual time; their bytes are bounded, and the oldest are dropped first.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._read: OrderedDict[bytes, Operations] = OrderedDict()
        self._bytes = self._used = self._unused = 0

    def remember(self, body: bytes, operations: Operations) -> None:
        """Keeps the operations of some packed bytes, as long as there is memory for it; O(bytes)."""
        if body not in self._read:
            self._read[body] = operations
            self._bytes += len(body)
        while self._bytes > self._limit:
            self._bytes -= len(self._read.popitem(last=False)[0])
            self._unused += 1

    def taken(self, body: bytes) -> Operations | None:
        """Returns the operations of these bytes and drops them; None if they are not kept.  O(bytes)."""
        operations = self._read.pop(body, None)
        if operations is not None:
            self._bytes -= len(body)
            self._used += 1
        return operations

    def statistics(self) -> PreparedStatistics:
        """Returns counts, in O(1)."""
        return PreparedStatistics(len(self._read), self._bytes, self._used, self._unused)
