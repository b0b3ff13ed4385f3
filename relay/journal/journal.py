"""A journal: the steps and completed epochs of durable topics, in one SQLite file.

It is apart from the log of the space because topics begin, shrink and end one by one, each with its own
budget.  What is common is how a transaction is made safe (``relay/log/storage``), and the mark beside the
file that shows when it holds less than was acknowledged.  All calls block.

A row is found by its topic's slot and a number within it, which together are its key; so each topic is one
range of each table.  Every step carries a checksum over its key and its bytes.

Always: ``write`` is on disk, whole, when it returns; a step that was altered or is missing is ``LogDamaged``,
never served; a slot is not used again while rows of it are there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeAlias

from dataspace.topics import forms
from dataspace.topics.antichains import Antichain
from dataspace.topics.times import Time
from dataspace.wire.codec import pack, unpack_own
from index.values import Value
from relay.faults import reach
from relay.log.acknowledged import AcknowledgedFile, Mark
from relay.log.refusals import LogDamaged
from relay.log.storage import Storage
from relay.topics.ledger import Completed, Moved, Step

SLOT_BITS: Final = 40
"""Numbers within a slot are below 2 to this."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics (
    slot INTEGER PRIMARY KEY, number INTEGER NOT NULL, name TEXT NOT NULL, dimensions INTEGER NOT NULL,
    partitions INTEGER NOT NULL, retain INTEGER NOT NULL, age REAL, position INTEGER NOT NULL,
    state BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS steps (id INTEGER PRIMARY KEY, seal BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS epochs (
    id INTEGER PRIMARY KEY, time BLOB NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    size INTEGER NOT NULL, crashed TEXT NOT NULL, at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS frontiers (id INTEGER PRIMARY KEY, lowers BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS topic_readers (
    slot INTEGER NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (slot, name)
) WITHOUT ROWID;
"""

PART_BYTES: Final = 1 << 20
"""About what one reading of steps gives."""


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


@dataclass(frozen=True, slots=True)
class Piece:
    """One epoch, or a part of it: packed batches, and whether there are more in the next piece."""

    number: int
    time: Time
    crashed: str
    items: tuple[bytes, ...]
    next: tuple[int, int] | None
    """Where to go on within the epoch: a partition and a position."""


class Journal:
    """The file ``topics.sqlite`` of a data directory."""

    def __init__(self, directory: Path, *, accept_damage: bool = False) -> None:
        """Opens it or makes it.  ``LogDamaged`` if it holds less than was acknowledged."""
        directory.mkdir(parents=True, exist_ok=True)
        self._storage = Storage(directory / "topics.sqlite", SCHEMA)
        self._mark = AcknowledgedFile(directory / "topics-acknowledged")
        found = self._storage.rows("SELECT value FROM meta WHERE name = 'steps'")
        self._count: int = found[0][0] if found else 0
        if self._count < self._mark.mark.epoch and not accept_damage:
            raise LogDamaged(
                f"{self._storage.path}: {self._mark.mark.epoch} steps of topics were acknowledged, it holds"
                f" {self._count}; accept the damage to go on without what is missing"
            )

    # -- writing --------------------------------------------------------------------------------------

    def write(self, writes: Sequence[Write]) -> None:
        """Writes these in order, in one transaction, on disk when it returns; else ``LogFailed``."""
        count = self._count + sum(1 for each in writes if isinstance(each, Noted))
        with self._storage.transaction() as connection:
            reach("topics-before-write")
            _insert_noted(connection, [each for each in writes if isinstance(each, Noted)])
            for each in writes:
                match each:
                    case Begun():
                        _begin(connection, each)
                    case Kept():
                        _keep(connection, each)
                    case Ended(slot):
                        _end(connection, slot)
                    case Noted():
                        pass
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('steps', ?)", (count,))
        self._count = count
        self._mark.write(Mark(count))
        reach("topics-after-write")

    def close(self) -> None:
        """Closes the file."""
        self._mark.write(Mark(self._count), sync=True)
        self._storage.close()
        self._mark.close()

    # -- recovery -------------------------------------------------------------------------------------

    def topics(self) -> list[tuple[Begun, int]]:
        """The topics that are here, each with its state at a position."""
        found = []
        for row in self._storage.rows("SELECT * FROM topics ORDER BY slot"):
            slot, number, name, dimensions, partitions, retain, age, position, state = row
            begun = Begun(slot, number, name, dimensions, partitions, retain, age, unpack_own(state))
            found.append((begun, position))
        return found

    def steps_after(self, slot: int, position: int) -> Iterator[Step]:
        """All steps of a topic after a position."""
        while part := self.steps(slot, position):
            yield from part
            position = part[-1].position

    # -- reading --------------------------------------------------------------------------------------

    def steps(self, slot: int, after: int, upto: int = (1 << SLOT_BITS) - 1) -> list[Step]:
        """Some steps after a position, about a mebibyte; none at the end."""
        found: list[Step] = []
        size = 0
        with self._storage.reading() as connection:
            asked = (_id(slot, after + 1), _id(slot, upto))
            for id_, seal, body in connection.execute(
                "SELECT id, seal, body FROM steps WHERE id BETWEEN ? AND ? ORDER BY id", asked
            ):
                found.append(self._step(slot, after + 1 + len(found), id_, seal, body))
                size += len(body)
                if size >= PART_BYTES:
                    break
        return found

    def _step(self, slot: int, position: int, id_: int, seal: bytes, body: bytes) -> Step:
        if id_ != _id(slot, position):
            raise LogDamaged(f"{self._storage.path}: step {position} of slot {slot} is missing")
        if seal != _seal(id_, body):
            raise LogDamaged(f"{self._storage.path}: step {position} of slot {slot} was altered")
        return Step(position, unpack_own(body))  # type: ignore[arg-type]  # what write has packed

    def beginning(self, slot: int, since: Antichain, oldest: int, open_first: int) -> tuple[int, Moved]:
        """Where to begin to read for all at or after some times: a position, and the frontiers there.

        O(completed epochs) for tuples, O(log) and those wanted for integers.
        """
        first = min(self._first_of(slot, since, oldest), open_first)
        rows = self._storage.rows(
            "SELECT id, lowers FROM frontiers WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1",
            _id(slot, 0),
            _id(slot, first - 1),
        )
        if rows:
            return rows[0][0] - _id(slot, 0), unpack_own(rows[0][1])  # type: ignore[return-value]  # as packed
        return first - 1, ()

    def _first_of(self, slot: int, since: Antichain, oldest: int) -> int:
        wanted = self.number_at(slot, since, oldest) + 1
        question = "SELECT min(first) FROM epochs WHERE id BETWEEN ? AND ?"
        first = self._storage.rows(question, _id(slot, wanted), _id(slot + 1, 0) - 1)[0][0]
        return (1 << SLOT_BITS) - 1 if first is None else int(first)

    def number_at(self, slot: int, since: Antichain, oldest: int) -> int:
        """The number before the first completed epoch at or after some times, or the newest there is."""
        newest = self._storage.rows(
            "SELECT max(id) FROM epochs WHERE id BETWEEN ? AND ?", _id(slot, 0), _id(slot + 1, 0) - 1
        )[0][0]
        low, high = oldest - 1, (oldest - 1 if newest is None else newest - _id(slot, 0))
        if all(isinstance(each, int) for each in since):  # numbers go with times
            while low < high:
                middle = (low + high) // 2 + 1
                if since.less_equal(self._time(slot, middle)):
                    high = middle - 1
                else:
                    low = middle
            return low
        question = "SELECT id, time FROM epochs WHERE id BETWEEN ? AND ? ORDER BY id"
        with self._storage.reading() as connection:
            for id_, time in connection.execute(question, (_id(slot, low + 1), _id(slot, high))):
                if since.less_equal(unpack_own(time)):  # type: ignore[arg-type]  # a time
                    return int(id_ - _id(slot, 0) - 1)
        return high

    def _time(self, slot: int, number: int) -> Time:
        rows = self._storage.rows("SELECT time FROM epochs WHERE id = ?", _id(slot, number))
        if not rows:
            raise LogDamaged(f"{self._storage.path}: epoch {number} of slot {slot} is missing")
        return unpack_own(rows[0][0])  # type: ignore[return-value]  # as packed

    def oldest_epochs(self, slot: int, oldest: int, most: int) -> list[tuple[int, Time, int, int]]:
        """The oldest completed epochs: number, time, size, and when each was completed."""
        question = "SELECT id, time, size, at FROM epochs WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?"
        rows = self._storage.rows(question, _id(slot, oldest), _id(slot + 1, 0) - 1, most)
        return [(id_ - _id(slot, 0), unpack_own(time), size, at) for id_, time, size, at in rows]  # type: ignore[misc]  # as packed

    def pieces(
        self, slot: int, partitions: int, after: int, upto: int, at: tuple[int, int] | None, budget: int
    ) -> list[Piece]:
        """Completed epochs (after, upto], in pieces of about so many bytes together; the same each time.

        ``at`` goes on within the first of them.  Batches are in the order of partitions, then of sending.
        """
        question = "SELECT * FROM epochs WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 4096"
        rows = self._storage.rows(question, _id(slot, after + 1), _id(slot, upto))
        epochs: list[Completed] = []
        for id_, time, first, last, size, crashed, _ in rows:
            budget -= size
            if epochs and budget < 0:
                break
            number = id_ - _id(slot, 0)
            epochs.append(Completed(number, unpack_own(time), first, last, size, crashed))  # type: ignore[arg-type]  # as packed
        if [each.number for each in epochs] != list(range(after + 1, after + 1 + len(epochs))):
            raise LogDamaged(f"{self._storage.path}: epochs after {after} of slot {slot} are missing")
        if epochs and (at is not None or epochs[0].size > 2 * PART_BYTES):
            return [self._part(slot, partitions, epochs[0], at or (0, epochs[0].first))]
        return self._whole(slot, epochs) if epochs else []

    def _whole(self, slot: int, epochs: list[Completed]) -> list[Piece]:
        """Epochs that are small, read together."""
        batches: dict[Time, list[tuple[int, bytes]]] = {each.time: [] for each in epochs}
        last = max(each.last for each in epochs)
        at = min(each.first for each in epochs) - 1
        while at < last:
            part = self.steps(slot, at, last)
            if not part:
                raise LogDamaged(f"{self._storage.path}: step {at + 1} of slot {slot} is missing")
            for step in part:
                match step.form:
                    case (forms.SEND, _, partition, time, items) if time in batches:
                        batches[time].append((partition, items))
            at = part[-1].position
        return [
            Piece(
                each.number,
                each.time,
                each.crashed,
                tuple(items for _, items in sorted(batches[each.time], key=lambda batch: batch[0])),
                None,
            )
            for each in epochs
        ]

    def _part(self, slot: int, partitions: int, epoch: Completed, at: tuple[int, int]) -> Piece:
        """Some of a large epoch, one partition after the other, so that no more than this is held."""
        (partition, position), items, size = at, list[bytes](), 0
        while size < PART_BYTES and partition < partitions:
            part = self.steps(slot, position - 1, epoch.last)
            for step in part:
                match step.form:
                    case (forms.SEND, _, here, time, batch) if here == partition and time == epoch.time:
                        items.append(batch)
                        size += len(batch)
            position += len(part)
            if position > epoch.last or not part:
                partition, position = partition + 1, epoch.first
        rest = (partition, position) if partition < partitions else None
        return Piece(epoch.number, epoch.time, epoch.crashed, tuple(items), rest)

    # -- readers --------------------------------------------------------------------------------------

    def acknowledge(self, slot: int, reader: str, number: int, now: int) -> None:
        """Notes on disk that a named reader is done with all epochs to this one; it never goes back."""
        with self._storage.transaction() as connection:
            connection.execute(
                "INSERT INTO topic_readers VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET number = max(number, excluded.number), seen = excluded.seen",
                (slot, reader, number, now),
            )

    def acknowledged(self, slot: int) -> list[tuple[str, int, int]]:
        """The named readers: what each is done with, and when it was last heard of."""
        return self._storage.rows("SELECT name, number, seen FROM topic_readers WHERE slot = ?", slot)


def _id(slot: int, number: int) -> int:
    return slot << SLOT_BITS | number


def _seal(id_: int, body: bytes) -> bytes:
    return blake2b(body, digest_size=8, key=id_.to_bytes(8, "big")).digest()


def _insert_noted(connection: sqlite3.Connection, noted: Sequence[Noted]) -> None:
    steps, epochs, frontiers = [], [], []
    for each in noted:
        id_, body = _id(each.slot, each.step.position), pack(each.step.form)
        steps.append((id_, _seal(id_, body), body))
        for done in each.completed:
            place = (_id(each.slot, done.number), pack(done.time), done.first, done.last)
            epochs.append((*place, done.size, done.crashed, each.at))
        if each.lowers is not None:
            frontiers.append((id_, pack(each.lowers)))
    connection.executemany("INSERT INTO steps VALUES (?, ?, ?)", steps)
    connection.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?)", epochs)
    connection.executemany("INSERT INTO frontiers VALUES (?, ?)", frontiers)


def _begin(connection: sqlite3.Connection, begun: Begun) -> None:
    row = (begun.slot, begun.number, begun.name, begun.dimensions, begun.partitions, begun.retain, begun.age)
    connection.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)", (*row, pack(begun.state)))


def _keep(connection: sqlite3.Connection, kept: Kept) -> None:
    slot = kept.slot
    connection.execute(
        "UPDATE topics SET position = ?, state = ? WHERE slot = ?", (kept.position, pack(kept.state), slot)
    )
    if not kept.forgotten:
        return
    gone = (_id(slot, 0), _id(slot, kept.forgotten))
    connection.execute("DELETE FROM epochs WHERE id BETWEEN ? AND ?", gone)
    question = "SELECT min(first) FROM epochs WHERE id BETWEEN ? AND ?"
    first = connection.execute(question, (_id(slot, 0), _id(slot + 1, 0) - 1)).fetchone()[0]
    needed = min(kept.position + 1, kept.first_open, kept.position + 1 if first is None else first)
    steps = (_id(slot, 0), _id(slot, needed - 1))
    connection.execute("DELETE FROM steps WHERE id BETWEEN ? AND ?", steps)
    # one before what is needed stays, to begin from
    question = "SELECT max(id) FROM frontiers WHERE id BETWEEN ? AND ?"
    newest = connection.execute(question, steps).fetchone()[0]
    if newest is not None:
        connection.execute("DELETE FROM frontiers WHERE id BETWEEN ? AND ?", (_id(slot, 0), newest - 1))


def _end(connection: sqlite3.Connection, slot: int) -> None:
    for table in ("steps", "epochs", "frontiers"):
        rows = (_id(slot, 0), _id(slot + 1, 0) - 1)
        connection.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", rows)
    connection.execute("DELETE FROM topics WHERE slot = ?", (slot,))
    connection.execute("DELETE FROM topic_readers WHERE slot = ?", (slot,))
