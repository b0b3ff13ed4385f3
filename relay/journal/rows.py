"""Rows: how the steps, states and completed epochs of durable topics lie in tables, each under a seal.

A row is found by its topic's slot and a number within it, which together are its key; so each topic is one
range of each table.  It is apart from the journal, which knows in what order they are written and read.

Always: whatever a subscriber or a start depends on carries a checksum over its kind, its key and its content;
a row that was altered is ``LogDamaged``, never handed out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias, cast

from dataspace.codec import pack, unpack_own
from index.values.values import Value
from relay.store.errors import LogDamaged
from relay.store.storage import Schema
from relay.topics.steps import Completed, Moved, Step

FORMAT: Final = 2
"""The version of these tables."""

SLOT_BITS: Final = 40
"""Numbers within a slot are below 2 to this."""

SCHEMA: Final = Schema(
    """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics (slot INTEGER PRIMARY KEY, seal BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS states (
    slot INTEGER PRIMARY KEY, position INTEGER NOT NULL, seal BLOB NOT NULL, body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS steps (id INTEGER PRIMARY KEY, seal BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS epochs (
    id INTEGER PRIMARY KEY, seal BLOB NOT NULL, time BLOB NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, size INTEGER NOT NULL, crashed TEXT NOT NULL, at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS frontiers (id INTEGER PRIMARY KEY, seal BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS topic_readers (
    slot INTEGER NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (slot, name)
) WITHOUT ROWID;
""",
    FORMAT,
)


@dataclass(frozen=True, slots=True)
class Begun:
    """A topic as it is made."""

    slot: int
    number: int
    name: str
    dimensions: int
    partitions: int
    retain: int
    age: float | None
    state: Value


@dataclass(frozen=True, slots=True)
class Noted:
    """A step, the epochs that it completed, and perhaps the frontiers after it."""

    slot: int
    step: Step
    completed: Sequence[Completed]
    at: int
    lowers: Moved | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a topic is at a position; its epochs to ``forgotten`` go, and steps that nothing needs."""

    slot: int
    position: int
    state: Value
    forgotten: int
    first_open: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A topic is no more."""

    slot: int


Write: TypeAlias = Begun | Noted | Kept | Ended
Row: TypeAlias = tuple[Any, ...]


def key(slot: int, number: int) -> int:
    """Returns the key of a row."""
    return slot << SLOT_BITS | number


def is_slot(slot: int) -> bool:
    """True if keys can be made of this slot."""
    return 0 < slot < 1 << 63 - SLOT_BITS


def span(slot: int, first: int = 0, last: int = (1 << SLOT_BITS) - 1) -> tuple[int, int]:
    """Returns the first and the last key of a range of rows."""
    return key(slot, first), key(slot, last)


def last_name(slot: int) -> str:
    """The name in ``meta`` of the position of the last step of a topic."""
    return f"last:{slot}"


# -- writing ------------------------------------------------------------------------------------------


def insert_noted(connection: sqlite3.Connection, noted: Sequence[Noted]) -> None:
    """Inserts steps, what they completed, and where each topic ends now."""
    steps, epochs, frontiers = [], [], []
    last: dict[str, int] = {}
    for each in noted:
        id_, body = key(each.slot, each.step.position), pack(each.step.form)
        steps.append((id_, _seal(b"step", id_, body), body))
        epochs += [_epoch_row(each.slot, done, each.at) for done in each.completed]
        if each.lowers is not None:
            lowers = pack(each.lowers)
            frontiers.append((id_, _seal(b"frontier", id_, lowers), lowers))
        last[last_name(each.slot)] = each.step.position
    connection.executemany("INSERT INTO steps VALUES (?, ?, ?)", steps)
    connection.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", epochs)
    connection.executemany("INSERT INTO frontiers VALUES (?, ?, ?)", frontiers)
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", last.items())


def _epoch_row(slot: int, done: Completed, at: int) -> Row:
    content = (pack(done.time), done.first, done.last, done.size, done.crashed, at)
    id_ = key(slot, done.number)
    return (id_, _seal(b"epoch", id_, pack(content)), *content)


def insert_topic(connection: sqlite3.Connection, begun: Begun) -> None:
    """Inserts a new topic with its first state."""
    slot = begun.slot
    body = pack((begun.number, begun.name, begun.dimensions, begun.partitions, begun.retain, begun.age))
    connection.execute("INSERT INTO topics VALUES (?, ?, ?)", (slot, _seal(b"topic", slot, body), body))
    connection.execute("INSERT OR IGNORE INTO meta VALUES (?, 0)", (last_name(slot),))
    _put_state(connection, slot, 0, begun.state)


def renumber(connection: sqlite3.Connection, numbers: Callable[[], int]) -> None:
    """Gives each topic a new number, its identity: a client with the old number finds that it is gone."""
    for slot, seal, body in connection.execute("SELECT slot, seal, body FROM topics").fetchall():
        _, *shape = cast("Sequence[Any]", unpack_own(_unsealed(b"topic", slot, seal, body)))
        body = pack((numbers(), *shape))
        row = (_seal(b"topic", slot, body), body, slot)
        connection.execute("UPDATE topics SET seal = ?, body = ? WHERE slot = ?", row)


def _put_state(connection: sqlite3.Connection, slot: int, position: int, state: Value) -> None:
    body = pack(state)
    row = (slot, position, _seal(b"state", key(slot, position), body), body)
    connection.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", row)


def keep(connection: sqlite3.Connection, kept: Kept) -> None:
    """Puts a newer state in the place of the old one, and deletes what is forgotten."""
    slot = kept.slot
    _put_state(connection, slot, kept.position, kept.state)
    if not kept.forgotten:
        return
    connection.execute("DELETE FROM epochs WHERE id BETWEEN ? AND ?", span(slot, 0, kept.forgotten))
    question = "SELECT min(first) FROM epochs WHERE id BETWEEN ? AND ?"
    first = connection.execute(question, span(slot)).fetchone()[0]
    needed = min(kept.position + 1, kept.first_open, kept.position + 1 if first is None else first)
    connection.execute("DELETE FROM steps WHERE id BETWEEN ? AND ?", span(slot, 0, needed - 1))
    # who begins at a frontier needs every step after it, so those go of which the next step is gone
    connection.execute("DELETE FROM frontiers WHERE id BETWEEN ? AND ?", span(slot, 0, needed - 2))


def delete_topic(connection: sqlite3.Connection, slot: int) -> None:
    """Deletes all rows of a topic."""
    for table in ("steps", "epochs", "frontiers"):
        connection.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", span(slot))
    for table in ("topics", "states", "topic_readers"):
        connection.execute(f"DELETE FROM {table} WHERE slot = ?", (slot,))
    connection.execute("DELETE FROM meta WHERE name = ?", (last_name(slot),))


# -- reading ------------------------------------------------------------------------------------------


def step_of(row: Row) -> Step:
    """A row of ``steps``."""
    id_, seal, body = row
    return Step(_number(id_), unpack_own(_unsealed(b"step", id_, seal, body)))  # type: ignore[arg-type]  # as written


def epoch_of(row: Row) -> tuple[Completed, int]:
    """A row of ``epochs``: the epoch, and when it was completed."""
    id_, seal, time, first, last, size, crashed, at = row
    _unsealed(b"epoch", id_, seal, pack((time, first, last, size, crashed, at)))
    return Completed(_number(id_), unpack_own(time), first, last, size, crashed), at  # type: ignore[arg-type]  # as written


def frontier_of(row: Row) -> tuple[int, Moved]:
    """A row of ``frontiers``: a position, and the frontiers after it."""
    id_, seal, body = row
    return _number(id_), unpack_own(_unsealed(b"frontier", id_, seal, body))  # type: ignore[return-value]  # as written


def topic_of(row: Row) -> tuple[Begun, int]:
    """Slot, seal and body of a topic, then position, seal and body of its state; where that stands."""
    slot, seal, body, position, state_seal, state = row
    if position.__class__ is not int or not 0 <= position < 1 << SLOT_BITS:
        raise LogDamaged(f"state of slot {slot} was altered")
    shape: Any = unpack_own(_unsealed(b"topic", slot, seal, body))
    known = unpack_own(_unsealed(b"state", key(slot, position), state_seal, state))
    number, name, dimensions, partitions, retain, age = shape
    return Begun(slot, number, name, dimensions, partitions, retain, age, known), position


def _number(id_: int) -> int:
    return id_ & (1 << SLOT_BITS) - 1


def _seal(kind: bytes, id_: int, body: bytes) -> bytes:
    return blake2b(body, digest_size=8, key=id_.to_bytes(8, "big"), person=kind).digest()


def _unsealed(kind: bytes, id_: int, seal: bytes, body: bytes) -> bytes:
    if body.__class__ is not bytes or seal != _seal(kind, id_, body):
        slot = id_ if kind == b"topic" else id_ >> SLOT_BITS
        number = "" if kind == b"topic" else f" {_number(id_)}"
        raise LogDamaged(f"{kind.decode()}{number} of slot {slot} was altered")
    return body
