"""Rows: the steps of a topic as entries of its chain, and its state as one row under a seal.

Each topic is a chain of segments (``relay/log/chain``) under its slot.  An entry is one step with the epochs
that it completed, so a segment's ``first`` and ``last`` are positions of steps, ``since`` and ``until`` the
newest completed epoch after its first and its last step, and ``changes`` the number of completed epochs.

Always: whatever a subscriber or a start depends on is under a seal of its segment, of its row, or of the
header, which covers the newest segment of each topic.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from dataspace.codec import pack, unpack_own
from dataspace.faults import reach
from index.values.values import Value
from relay.log.chain import KEY_BITS, META_SCHEMA, SCHEMA as CHAIN_SCHEMA, Chain, put_meta
from relay.log.segments import CHECKSUM_BYTES, Encoded, Segment, cut
from relay.store.errors import LogDamaged, LogFailed
from relay.store.storage import Schema, Storage, closed_on_failure
from relay.topics.steps import Completed, Step

FORMAT: Final = 3
"""The version of these tables."""

SCHEMA: Final = Schema(
    f"""
{META_SCHEMA}
{CHAIN_SCHEMA}
CREATE TABLE IF NOT EXISTS topics (slot INTEGER PRIMARY KEY, seal BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS topic_readers (
    slot INTEGER NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (slot, name)
) WITHOUT ROWID;
""",
    FORMAT,
)


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


def put_topic(connection: sqlite3.Connection, kept: Kept) -> None:
    """Writes a topic's row, in the place of an earlier one."""
    shape = (kept.number, kept.name, kept.dimensions, kept.partitions, kept.retain, kept.age)
    body = pack((*shape, kept.position, kept.state, kept.anchor))
    row = (kept.slot, seal(b"topic", kept.slot, body), body)
    connection.execute("INSERT OR REPLACE INTO topics VALUES (?, ?, ?)", row)


def topic_of(slot: int, found: bytes, body: bytes) -> Kept:
    """Returns a topic from its row; raises ``LogDamaged`` for an altered one."""
    if body.__class__ is not bytes or found != seal(b"topic", slot, body):
        raise LogDamaged(f"topic of slot {slot} was altered")
    known: Any = unpack_own(body)
    return Kept(slot, *known)


def renumber(connection: sqlite3.Connection) -> None:
    """Gives each topic a new number, its identity: a client with the old number finds that it is gone.

    Numbers come from the clock, as in the daemon.  An altered topic is left as it is.
    """
    numbers = count(time.time_ns() // 1000)
    for row in connection.execute("SELECT slot, seal, body FROM topics").fetchall():
        with suppress(LogDamaged):
            put_topic(connection, replace(topic_of(*row), number=next(numbers)))


def seal(kind: bytes, id_: int, body: bytes) -> bytes:
    """Returns the seal of a row: over its kind, its key and its content."""
    return blake2b(body, digest_size=8, key=id_.to_bytes(8, "big"), person=kind).digest()


# -- Upgrading from format 2 -----------------------------------------------------------------------
# A journal of format 2 has steps, completed epochs and states in tables of their own, each row
# under a seal. Which step completed an epoch is not in it: the epoch is put beside its last batch,
# or an earlier epoch's.
#
# Always: the upgrade is one transaction, so a crash leaves the one format or the other; an altered
# or missing row is ``LogDamaged``, and no row is changed.


logger = logging.getLogger("dataspace")

UPGRADED: Final = 2
"""The format that is upgraded."""


def opened(path: Path, *, accept_damage: bool = False) -> Storage:
    """Opens the file of a journal to write it, in the format of today.

    Raises ``LogDamaged`` for a damaged file of format 2; with ``accept_damage``, leaves out the topic.
    """
    if path.exists() and _format(path) == UPGRADED:
        storage = Storage(path, Schema(SCHEMA.tables))
        with closed_on_failure(storage), storage.transaction() as connection:
            _upgrade(storage, connection, accept_damage)
            reach("upgrade-before-commit")
        storage.close()
        logger.info("%s: upgraded from format %d to %d", path, UPGRADED, FORMAT)
    return Storage(path, SCHEMA)


def _format(path: Path) -> object:
    with closing(Storage(path)) as storage, suppress(LogDamaged, LogFailed):  # opening it to write says more
        return dict(storage.rows("SELECT name, value FROM meta")).get("format")
    return None


def _upgrade(storage: Storage, connection: sqlite3.Connection, accept_damage: bool) -> None:
    meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    ends: dict[int, bytes] = {}
    slots = {slot for (slot,) in connection.execute("SELECT slot FROM topics")}
    for slot in sorted(slots | _ended(meta)):
        connection.execute("SAVEPOINT topic")
        try:
            ends[slot] = _move(storage, connection, slot, meta.get(f"last:{slot}"))
        except (LogDamaged, TypeError, ValueError, OverflowError) as damage:  # also of another type
            if not accept_damage:
                raise LogDamaged(f"{storage.path}: {damage}") from None
            logger.warning("%s: %s; the topic is dropped, as accept_damage allows", storage.path, damage)
            connection.execute("ROLLBACK TO topic")
            for table in ("topics", "topic_readers"):
                connection.execute(f"DELETE FROM {table} WHERE slot = ?", (slot,))
        connection.execute("RELEASE topic")
    for table in ("steps", "epochs", "frontiers", "states"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DELETE FROM meta")
    put_meta(connection, format=FORMAT, steps=meta.get("steps", 0), ends=joined(ends.values()))


def _ended(meta: dict[str, Any]) -> set[int]:
    """Returns the slots whose last position the header has."""
    names = [name.removeprefix("last:") for name in meta if name.startswith("last:")]
    return {int(name) for name in names if name.isdecimal()}


def _move(storage: Storage, connection: sqlite3.Connection, slot: int, lastly: int | None) -> bytes:
    """Writes the chain and the row of a topic; returns the newest checksum."""
    ask = connection.execute
    shape, state = (
        ask("SELECT seal, body FROM topics WHERE slot = ?", (slot,)).fetchone(),
        ask("SELECT position, seal, body FROM states WHERE slot = ?", (slot,)).fetchone(),
    )
    if shape is None or state is None or lastly is None:
        raise LogDamaged(f"the topic in slot {slot} is missing")
    known: Any = unpack_own(_unsealed(b"topic", slot, *shape))
    dumped = unpack_own(_unsealed(b"state", _key(slot, state[0]), *state[1:]))
    chain = Chain(storage, first_anchor(slot), slot)
    end, position = chain.checksum, state[0]
    for segment in cut(map(Noted.encoded, _noted(connection, slot)), chain.last + 1, end):
        chain.insert(connection, [segment])
        end, position = segment.checksum, segment.last
    if position < lastly:
        raise LogDamaged(f"steps of slot {slot} after {position} are missing")
    put_topic(connection, Kept(slot, *(*known, state[0], dumped, chain.anchor)))
    return end


def _noted(connection: sqlite3.Connection, slot: int) -> Iterator[Noted]:
    """Yields the steps of a topic, each with the epochs that are put beside it."""
    span = (_key(slot, 0), _key(slot + 1, 0) - 1)
    epochs = _epochs(connection, slot, span)
    newest, position = epochs[-1][0].number - 1 if epochs else 0, 0
    for id_, found, body in connection.execute(
        "SELECT * FROM steps WHERE id BETWEEN ? AND ? ORDER BY id", span
    ):
        step = Step(_number(id_), unpack_own(_unsealed(b"step", id_, found, body)))  # type: ignore[arg-type]
        if position and step.position != position + 1:
            raise LogDamaged(f"step {position + 1} of slot {slot} is missing")
        position, done, at = step.position, list[Completed](), 0
        while epochs and epochs[-1][0].last <= step.position:
            epoch, at = epochs.pop()
            done.append(epoch)
            newest = epoch.number
        yield Noted(slot, step, done, newest, at)
    if epochs:
        raise LogDamaged(f"steps of epoch {epochs[-1][0].number} of slot {slot} are missing")


def _epochs(connection: sqlite3.Connection, slot: int, span: tuple[int, int]) -> list[tuple[Completed, int]]:
    """Returns the completed epochs, the newest first, and when each was completed."""
    found: list[tuple[Completed, int]] = []
    begun = 1 << KEY_BITS
    question = "SELECT * FROM epochs WHERE id BETWEEN ? AND ? ORDER BY id DESC"
    for id_, sealed, at_time, first, last, size, crashed, at in connection.execute(question, span):
        _unsealed(b"epoch", id_, sealed, pack((at_time, first, last, size, crashed, at)))
        begun = min(begun, first)
        number = _number(id_)
        if found and found[-1][0].number != number + 1:
            raise LogDamaged(f"epoch {number + 1} of slot {slot} is missing")
        place: Any = unpack_own(at_time)
        found.append((Completed(number, place, first, last, size, crashed, begun), at))
    return found


def _key(slot: int, number: int) -> int:
    return slot << KEY_BITS | number


def _number(id_: int) -> int:
    return id_ & (1 << KEY_BITS) - 1


def _unsealed(kind: bytes, id_: int, found: bytes, body: bytes) -> bytes:
    if body.__class__ is not bytes or found != seal(kind, id_, body):
        raise LogDamaged(f"{kind.decode()} {id_} was altered")
    return body
