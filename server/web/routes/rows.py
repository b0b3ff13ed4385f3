"""Rows: values, rows of captures and epochs as JSON text.

The form of values is the documented one (TEXT.md); a row is an object with the names of the captures.

Always: the parts of one epoch, written one after the other, are one JSON object without an empty line, and
each part ends between two rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from dataspace.kernel.actions import CONFLATED, MORE, SNAPSHOT
from dataspace.kernel.epoch_changes import time_of
from index.values.atoms import time_text
from index.values.jsons import EXACT, to_json
from index.values.values import Map, Value

LISTS: Final = ("added", "messages", "removed")


class Part(NamedTuple):
    """A value of a stream, as WIRE.md has it: one epoch, or a part of one."""

    number: int
    micros: int
    flags: int
    added: Sequence[Sequence[Value]]
    messages: Sequence[Sequence[Value]]
    removed: Sequence[Sequence[Value]]
    first: int


def part_of(value: Any) -> Part:
    """Returns what a value of a stream is, which the daemon has written."""
    return Part(*value)


def value_json(value: Value) -> bytes:
    """Returns the JSON of a value."""
    return orjson.dumps(to_json(value))


def row_json(names: Sequence[str], row: Sequence[Value]) -> bytes:
    """Returns the JSON of a row of captures, by name.

    >>> row_json(("who", "1"), ("Alice", 5))
    b'{"who":"Alice","1":5}'
    """
    return orjson.dumps({name: _plain(value) for name, value in zip(names, row, strict=True)})


def _plain(value: Value) -> Any:
    """Does ``to_json``, without a call for what most captures are."""
    if value.__class__ is str or (value.__class__ is int and -EXACT <= value <= EXACT):
        return value
    return to_json(value)


def rows_json(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> bytes:
    """Returns rows with commas between them."""
    return b",".join([row_json(names, row) for row in rows])


def time_json(micros: int) -> str | None:
    """Returns a time of the wire as text; None for the time of the state before the first epoch."""
    return time_text(time_of(micros)) if micros else None


def change_line(names: Sequence[str], change: Map) -> bytes:
    """Returns a change with who made it, as the request ``who`` returns it, as a line of JSON."""
    told: dict[str, Any] = {str(name): to_json(value) for name, value in change.pairs()}
    captures: Any = change["captures"]
    told["time"] = time_json(change["time"])  # type: ignore[arg-type]  # by WIRE.md
    told["captures"] = {name: to_json(value) for name, value in zip(names, captures, strict=True)}
    return orjson.dumps(told) + b"\n"


class EpochWriter:
    """Writes the values of a stream as JSON objects, one for each epoch, however many values it has."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._list: int | None = None
        self._is_fresh = True
        self.number = 0
        """The epoch of the newest part."""
        self.whole = True
        """True if that part was the last one of its epoch."""

    def part(self, part: Part) -> bytes:
        """Returns the JSON of a part, whose epoch may go on in the next one."""
        self.number = part.number
        pieces = [] if self._list is not None else [self._head(part)]
        for at, rows in enumerate((part.added, part.messages, part.removed)):
            if rows:
                pieces.append(self._advanced(at))
                pieces.append(b"" if self._is_fresh else b",")
                pieces.append(rows_json(self._names, rows))
                self._is_fresh = False
        self.whole = not part.flags & MORE
        if self.whole:
            pieces.append(self._advanced(len(LISTS) - 1) + b"]}")
            self._list = None
        return b"".join(pieces)

    def _head(self, part: Part) -> bytes:
        head: dict[str, object] = {"epoch": part.number, "time": time_json(part.micros)}
        if part.flags & SNAPSHOT:
            head["state"] = True
        if part.flags & CONFLATED:
            head["first"] = part.first
        self._list, self._is_fresh = 0, True
        return orjson.dumps(head)[:-1] + b',"added":['

    def _advanced(self, at: int) -> bytes:
        """Closes the lists before this one, and opens it."""
        assert self._list is not None  # within an epoch
        opened = [b'],"%s":[' % name.encode() for name in LISTS[self._list + 1 : at + 1]]
        if opened:
            self._list, self._is_fresh = at, True
        return b"".join(opened)
