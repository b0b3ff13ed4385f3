"""Upgrading a journal of format 2, in its SQLite file.

It has steps, completed epochs and states in tables of their own, each row under a seal.  Which step completed
an epoch is not in it: the epoch is put beside its last batch, or an earlier epoch's.

Always: the upgrade is one transaction, so a crash leaves the one format or the other; an altered or missing
row is ``LogDamaged``, and no row is changed.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from dataspace.codec import pack, unpack_own
from dataspace.faults import reach
from relay.journal.rows import FORMAT, Kept, Noted, first_anchor, joined, row_of, seal
from relay.log.chain import rows_of_segments
from relay.log.segments import cut
from relay.store.errors import LogDamaged, LogFailed, closed_on_failure
from relay.store.ports import KEY_BITS
from relay.store.sqlite.storage import Schema, Storage
from relay.store.sqlite.tables import insert_segments, put_header
from relay.store.sqlite.topics import TOPIC_TABLES, delete_topic, put_topics
from relay.topics.steps import Completed, Step

logger = logging.getLogger("dataspace")

UPGRADED: Final = 2
"""The format that is upgraded."""


def upgrade(path: Path, *, accept_damage: bool = False) -> None:
    """Brings the file of a journal, if there is one of that format, to the format of today.

    Raises ``LogDamaged`` for a damaged file of format 2; with ``accept_damage``, leaves out the topic.
    """
    if path.exists() and _format(path) == UPGRADED:
        storage = Storage(path, Schema(TOPIC_TABLES))
        with closed_on_failure(storage), storage.transaction() as connection:
            _upgrade(path, connection, accept_damage)
            reach("upgrade-before-commit")
        storage.close()
        logger.info("%s: upgraded from format %d to %d", path, UPGRADED, FORMAT)


def _format(path: Path) -> object:
    with closing(Storage(path)) as storage, suppress(LogDamaged, LogFailed):  # opening it to write says more
        return dict(storage.rows("SELECT name, value FROM meta")).get("format")
    return None


def _upgrade(path: Path, connection: sqlite3.Connection, accept_damage: bool) -> None:
    meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    ends: dict[int, bytes] = {}
    slots = {slot for (slot,) in connection.execute("SELECT slot FROM topics")}
    for slot in sorted(slots | _ended(meta)):
        connection.execute("SAVEPOINT topic")
        try:
            ends[slot] = _move(connection, slot, meta.get(f"last:{slot}"))
        except (LogDamaged, TypeError, ValueError, OverflowError) as damage:  # also of another type
            if not accept_damage:
                raise LogDamaged(f"{path}: {damage}") from None
            logger.warning("%s: %s; the topic is dropped, as accept_damage allows", path, damage)
            connection.execute("ROLLBACK TO topic")
            delete_topic(connection, slot)
        connection.execute("RELEASE topic")
    for table in ("steps", "epochs", "frontiers", "states"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DELETE FROM meta")
    put_header(connection, format=FORMAT, steps=meta.get("steps", 0), ends=joined(ends.values()))


def _ended(meta: dict[str, Any]) -> set[int]:
    """Returns the slots whose last position the header has."""
    names = [name.removeprefix("last:") for name in meta if name.startswith("last:")]
    return {int(name) for name in names if name.isdecimal()}


def _move(connection: sqlite3.Connection, slot: int, lastly: int | None) -> bytes:
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
    anchor = end = first_anchor(slot)
    position = state[0]
    for segment in cut(map(Noted.encoded, _noted(connection, slot)), (slot << KEY_BITS) + 1, end):
        insert_segments(connection, rows_of_segments([segment]))
        end, position = segment.checksum, segment.last
    if position < lastly:
        raise LogDamaged(f"steps of slot {slot} after {position} are missing")
    put_topics(connection, [row_of(Kept(slot, *(*known, state[0], dumped, anchor)))])
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
