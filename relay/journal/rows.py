"""Rows: the steps of a topic as entries of its chain, and its state as one row under a seal.

Each topic is a chain of segments (``relay/log/chain``) under its slot.  An entry is one step with the epochs
that it completed, so a segment's ``first`` and ``last`` are positions of steps, ``since`` and ``until`` the
newest completed epoch after its first and its last step, and ``changes`` the number of completed epochs.

Always: whatever a subscriber or a start depends on is under a seal of its segment, of its row, or of the
header, which covers the newest segment of each topic.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from typing import Any, Final, TypeAlias

from dataspace.codec import pack, unpack_own
from index.values.values import Value
from relay.log.segments import CHECKSUM_BYTES, Encoded, Segment
from relay.store.errors import LogDamaged
from relay.store.ports import Row
from relay.store.sqlite.storage import Schema
from relay.store.sqlite.topics import TOPIC_TABLES
from relay.topics.steps import Completed, Step

FORMAT: Final = 3
"""The version of these tables."""

SCHEMA: Final = Schema(TOPIC_TABLES, FORMAT)


@dataclass(frozen=True, slots=True)
class Noted:
    """A step, the epochs that it completed, and when, in microseconds."""

    slot: int
    step: Step
    completed: Sequence[Completed]
    newest: int
    """The newest completed epoch after the step."""
    at: int

    def encoded(self) -> Encoded:
        """Returns the step as an entry of a chain; O(bytes)."""
        done = [
            (each.number, each.time, each.first, each.last, each.size, each.crashed, each.begun)
            for each in self.completed
        ]
        body = pack((self.step.position, self.step.form, done, self.at))
        return Encoded(self.step.position, self.newest, body, len(done))


@dataclass(frozen=True, slots=True)
class Kept:
    """A topic as it is after the step at ``position``.

    Epochs before ``oldest`` go, with the steps that neither retained epochs need nor, from ``needed`` on,
    open ones.
    """

    slot: int
    number: int
    name: str
    dimensions: int
    partitions: int
    retain: int
    age: float | None
    position: int
    state: Value
    anchor: bytes = b""
    """The checksum of the segment before the oldest that is retained."""
    oldest: int = 1
    needed: int = 1
    archived: tuple[int, int] = (0, 0)
    """The newest step and the newest completed epoch that an archive is known to have."""
    upto: int | None = None
    """Steps after this position stay."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a topic."""

    slot: int


Write: TypeAlias = Noted | Kept | Ended


def first_anchor(slot: int) -> bytes:
    """Returns the checksum to which the first segment of a topic is sealed; no other topic has the same."""
    return blake2b(slot.to_bytes(8, "big"), digest_size=CHECKSUM_BYTES, person=b"chain").digest()


def joined(ends: Iterable[bytes]) -> bytes:
    """Returns the exclusive or of the newest checksums of all topics, which the header seals."""
    found = 0
    for each in ends:
        found ^= int.from_bytes(each)
    return found.to_bytes(CHECKSUM_BYTES)


def entries_of(segment: Segment) -> Iterator[tuple[Step, list[Completed], int]]:
    """Yields the steps of a segment, each with the epochs that it completed, and when."""
    for position, form, done, at in segment.every_entry():
        yield Step(position, form), [Completed(*each) for each in done], at


# -- the row of a topic -------------------------------------------------------------------------------


def row_of(kept: Kept) -> Row:
    """Returns a topic as its row."""
    shape = (kept.number, kept.name, kept.dimensions, kept.partitions, kept.retain, kept.age)
    archived = [kept.archived] if kept.archived[0] else []
    body = pack((*shape, kept.position, kept.state, kept.anchor, *archived))
    return kept.slot, seal(b"topic", kept.slot, body), body


def topic_of(slot: int, found: bytes, body: bytes) -> Kept:
    """Returns a topic from its row; raises ``LogDamaged`` for an altered one."""
    if body.__class__ is not bytes or found != seal(b"topic", slot, body):
        raise LogDamaged(f"topic of slot {slot} was altered")
    known: Any = unpack_own(body)
    kept = Kept(slot, *known[:_FIELDS])
    return replace(kept, archived=tuple(known[_FIELDS])) if len(known) > _FIELDS else kept


_FIELDS: Final = 9
"""Fields of a row of a journal without an archive, as earlier versions wrote it."""


def renumbered(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows of topics, each with a new number, its identity: a client with the old number finds
    that it is gone.

    Numbers come from the clock, as in the daemon.  Leaves out altered topics.
    """
    numbers = count(time.time_ns() // 1000)
    found: list[Row] = []
    for row in rows:
        with suppress(LogDamaged):
            found.append(row_of(replace(topic_of(*row), number=next(numbers), archived=(0, 0))))
    return found


def seal(kind: bytes, id_: int, body: bytes) -> bytes:
    """Returns the seal of a row: over its kind, its key and its content."""
    return blake2b(body, digest_size=8, key=id_.to_bytes(8, "big"), person=kind).digest()
