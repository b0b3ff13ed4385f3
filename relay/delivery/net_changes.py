"""Net changes: many epochs as one, for an observer that could not take them one by one.

Rows are compared and kept as they are packed.  So a difference takes the bytes of its rows and no more,
whatever their values are, and ``used`` counts these bytes.

Always: a row that came and went again, or the reverse, is not in it; messages are, all of them, in order;
``used`` is at least what the rows take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeAlias

from dataspace.codec import split_rows, unpack_own
from dataspace.kernel.actions import CONFLATED
from dataspace.kernel.changes import Changes
from dataspace.steps import Steps, at_once
from index.values.values import keys
from relay.delivery.memory import OVERHEAD
from relay.delivery.packed import PackedChanges, packing

_NAN: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]", re.DOTALL)
"""The beginning of a number that may be NaN, the one value that has several packed forms."""

NET_PART: Final = 512
"""Rows of one stream value at most: to pack one, or to write it as JSON, takes a millisecond or some."""

Row: TypeAlias = tuple[bool, bytes]
"""True for a row that came, and its packed form."""


class NetChange:
    """The net changes of the epochs from ``first`` on: rows that came or went, and all messages.

    A row is absent, came or went, as it was seen by one observer; ``RowCounts`` of the log counts the facts
    behind each row, so the two are not one class.
    """

    __slots__ = ("epochs", "first", "messages", "net", "number", "time", "used")

    def __init__(self, first: int) -> None:
        self.first = first
        self.number = first
        self.time = 0
        self.epochs = 0
        self.net: dict[Hashable, Row] = {}
        self.messages: list[bytes] = []
        self.used = OVERHEAD
        """Bytes of memory that this, its rows and its messages take, at most."""

    def fold(self, changes: Changes | PackedChanges) -> None:
        """Adds one more epoch, or a part of one; O(its bytes)."""
        self.number, self.time = changes.number, changes.time
        self.epochs += 1
        packed = changes.packed
        added, messages, removed = split_rows(packed)
        place = _place_of_any if _NAN.search(packed) else _place
        self._turn(added, place, came=True)
        if messages:
            self.messages += messages
            self.used += sum(map(len, messages)) + OVERHEAD * len(messages)
        self._turn(removed, place, came=False)

    def _turn(self, rows: Iterable[bytes], place: Callable[[bytes], Hashable], *, came: bool) -> None:
        """Adds rows, or removes them if they are there: a row that comes and goes again leaves no change."""
        net = self.net
        for row in rows:
            at = place(row)
            known = net.pop(at, None)
            if known is None:
                net[at] = (came, row)
                self.used += len(row) + OVERHEAD
            else:
                self.used -= len(known[1]) + OVERHEAD

    def __len__(self) -> int:
        return len(self.net) + len(self.messages)

    def values(self) -> list[PackedChanges]:
        """Returns the net changes as stream values, at least one; O(bytes).

        All but the last are flagged as parts; none is too large, unless one change alone is.
        """
        return at_once(self.packing())

    def packing(self) -> Steps[list[PackedChanges]]:
        """Returns the same as the value of the generator, which yields before each part is packed."""
        rows = self.net.values()
        came = [row for came, row in rows if came]
        yield
        kinds = (came, self.messages, [row for came, row in rows if not came])
        return (yield from packing((self.number, self.time, self.first, CONFLATED), kinds, NET_PART))


def _place(row: bytes) -> Hashable:
    return row


def _place_of_any(row: bytes) -> Hashable:
    """Returns what is the same for two rows that are equal, however they are packed."""
    if not _NAN.search(row):
        return row
    return (keys(unpack_own(row)),)  # type: ignore[arg-type]  # a row; in a tuple, since it may be bytes


def net_of(epochs: Iterable[Changes | PackedChanges]) -> list[PackedChanges]:
    """Returns the net changes of some epochs in order, at least one; O(their bytes)."""
    net: NetChange | None = None
    for each in epochs:
        if net is None:  # one in which nothing is left is not the beginning
            net = NetChange(each.first)
        net.fold(each)
    assert net is not None  # there is one
    return net.values()
