"""Snapshots: the claims of all owners after a segment, so that a start need not read the whole log.

A snapshot is written in chunks, each a transaction of its own between two appends, so that a large state
does not hold up the turns; a last transaction declares it complete and drops the ones before.  It holds the
newest turn of each client as well, so that turns stay recognised when the log that had them is gone, and the
sessions that may be resumed.

Always: an incomplete snapshot is never read; the newest complete one is never dropped; its chunks are
chained by checksums like the segments.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dataspace.codec import pack, unpack_own
from dataspace.kernel.changes import Epoch
from dataspace.kernel.handles import Handles, Held
from index.values.values import Value, key
from relay.log.chain import put_meta
from relay.log.notes import SESSION, KnownSession, Note, check_kind, take_in
from relay.log.segments import CHECKSUM_BYTES, checksum, rows_of, table
from relay.store.errors import LogDamaged
from relay.store.storage import Storage

CHUNK_CLAIMS: Final = 4096
"""Claims, or clients, in one chunk."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS snapshots (
    snapshot INTEGER PRIMARY KEY, segment INTEGER NOT NULL, epoch INTEGER NOT NULL, time INTEGER NOT NULL,
    chunks INTEGER
);
CREATE TABLE IF NOT EXISTS chunks (
    snapshot INTEGER NOT NULL, chunk INTEGER NOT NULL, checksum BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (snapshot, chunk)
) WITHOUT ROWID;
"""

Owners = Mapping[str, Held]


@dataclass(slots=True)
class RecoveredState:
    """What holds after ``segment``: claims by owner and handle, the newest turn and epoch of each client, the
    sessions that may be resumed."""

    owners: dict[str, Held] = field(default_factory=dict)
    clients: dict[str, tuple[int, int]] = field(default_factory=dict)
    sessions: dict[str, KnownSession] = field(default_factory=dict)
    epoch: int = 0
    time: int = 0
    oldest: int = 1
    segment: int = 0

    def facts(self) -> list[Value]:
        """Returns the distinct values that are claimed; O(claims)."""
        return list({key(v): v for claims in self.owners.values() for v in claims.values()}.values())

    def apply(self, epoch: Epoch | Note, *, strict: bool = True) -> None:
        """Takes in the next epoch or note; O(its claims).

        Raises ``LogDamaged`` if it ends a claim that was never made; ignores that if not ``strict``.
        """
        if isinstance(epoch, Note):
            take_in(self.sessions, epoch)
            return
        for change in epoch.claims:
            claims = self.owners.setdefault(change.owner, Handles())
            claims.update(change.asserted)
            for handle in change.retracted:
                if claims.pop(handle, self) is self and strict:
                    raise LogDamaged(f"epoch {epoch.number} ends claim {handle} of {change.owner}, unknown")
            if not claims:
                del self.owners[change.owner]
        if epoch.client is not None:
            self.clients[epoch.client] = (epoch.sequence, epoch.number)
        self.epoch, self.time = epoch.number, epoch.time


class SnapshotWriter:
    """Writes one snapshot, a chunk at each ``step``; the state must not change meanwhile."""

    __slots__ = ("_bodies", "_checksum", "_chunk", "_snapshot", "_storage", "done")

    def __init__(self, storage: Storage, state: RecoveredState) -> None:
        self._storage = storage
        self._bodies = _bodies(state)
        self._chunk = 0
        self._checksum = bytes(CHECKSUM_BYTES)
        self.done = False
        with storage.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO snapshots (segment, epoch, time) VALUES (?, ?, ?)",
                (state.segment, state.epoch, state.time),
            )
            self._snapshot: Final = cursor.lastrowid or 0

    def step(self) -> bool:
        """Writes the next chunk, or ends the snapshot; True if there is more to do.  O(chunk)."""
        if not self.done:
            body = next(self._bodies, None)
            if body is None:
                self._complete()
            else:
                self._write(body)
        return not self.done

    def _write(self, body: bytes) -> None:
        self._checksum = _chained(self._checksum, self._snapshot, self._chunk, body)
        with self._storage.transaction() as connection:
            connection.execute(
                "INSERT INTO chunks VALUES (?, ?, ?, ?)", (self._snapshot, self._chunk, self._checksum, body)
            )
        self._chunk += 1

    def _complete(self) -> None:
        with self._storage.transaction() as connection:
            connection.execute(
                "UPDATE snapshots SET chunks = ? WHERE snapshot = ?", (self._chunk, self._snapshot)
            )
            _put_head(connection)
            connection.execute("DELETE FROM chunks WHERE snapshot < ?", (self._snapshot,))
            connection.execute("DELETE FROM snapshots WHERE snapshot < ?", (self._snapshot,))
        self.done = True


def drop_incomplete(storage: Storage) -> None:
    """Forgets what a crash left of a snapshot in the making."""
    newest_segment(storage)  # an altered one might look like one in the making
    with storage.transaction() as connection:
        unfinished = "SELECT snapshot FROM snapshots WHERE chunks IS NULL"
        connection.execute(f"DELETE FROM chunks WHERE snapshot IN ({unfinished})")
        connection.execute("DELETE FROM snapshots WHERE chunks IS NULL")


def newest(storage: Storage) -> RecoveredState | None:
    """Returns the state of the newest complete snapshot, or None.  ``LogDamaged`` if it was altered."""
    with storage.reading() as connection:
        # One transaction, so that the snapshot cannot be replaced by a newer one while it is read.
        connection.execute("BEGIN")
        try:
            head = _head(connection)
            return _load(connection, *head) if head else None
        finally:
            connection.execute("COMMIT")


def rechained(old: Storage, connection: sqlite3.Connection, segment: int) -> None:
    """Copies the newest complete snapshot to another log, where it was made after another segment."""
    with old.reading() as source:
        head = _head(source)
        if head is None:
            return
        snapshot, _, epoch, time, chunks = head
        row = (snapshot, segment, epoch, time, chunks)
        connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", row)
        rows = source.execute("SELECT * FROM chunks WHERE snapshot = ?", (snapshot,))
        connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?)", rows)
        _put_head(connection)


def newest_segment(storage: Storage) -> int:
    """Returns the segment after which the newest complete snapshot was made; 0 if there is none."""
    with storage.reading() as connection:
        head = _head(connection)
    return head[1] if head else 0


def newest_epoch(storage: Storage) -> int | None:
    """Returns the epoch of the newest complete snapshot, or None."""
    with storage.reading() as connection:
        head = _head(connection)
    return head[2] if head else None


Head = tuple[int, int, int, int, int]
"""Number, segment, epoch, time and chunks of a snapshot."""

_NEWEST: Final = (
    "SELECT snapshot, segment, epoch, time, chunks FROM snapshots"
    " WHERE chunks IS NOT NULL ORDER BY snapshot DESC LIMIT 1"
)
_WITH_KNOWN: Final = (
    "SELECT known.value, newest.* FROM (SELECT (SELECT value FROM meta WHERE name = 'snapshot') AS value)"
    f" AS known LEFT JOIN ({_NEWEST}) AS newest"
)


def _put_head(connection: sqlite3.Connection) -> None:
    """Writes into the header, under its seal, which snapshot is the newest complete one."""
    put_meta(connection, snapshot=pack(connection.execute(_NEWEST).fetchone()))


def _head(connection: sqlite3.Connection) -> Head | None:
    """Returns the newest complete snapshot; raises ``LogDamaged`` if another snapshot was completed last."""
    known, *row = connection.execute(_WITH_KNOWN).fetchone()
    if known is not None and known != pack(tuple(row)):
        raise LogDamaged(f"snapshot {row[0]}, after epoch {row[2]}, is not the one that was made last")
    return None if row[0] is None else tuple(row)


def _load(
    connection: sqlite3.Connection, snapshot: int, segment: int, epoch: int, time: int, chunks: int
) -> RecoveredState:
    state = RecoveredState(epoch=epoch, time=time, segment=segment)
    rows = connection.execute(
        "SELECT checksum, body FROM chunks WHERE snapshot = ? ORDER BY chunk", (snapshot,)
    )
    seal = bytes(CHECKSUM_BYTES)
    read = 0
    for found, body in rows:
        seal = _chained(seal, snapshot, read, body)
        if found != seal:
            break
        _take_in(state, body)
        read += 1
    if read != chunks:
        raise LogDamaged(f"snapshot at epoch {epoch}: chunk {read} of {chunks} was altered or is gone")
    return state


def _chained(previous: bytes, snapshot: int, chunk: int, body: bytes) -> bytes:
    return checksum(previous, (snapshot, chunk, 0, 0, 0, 0, 0), body)


def _bodies(state: RecoveredState) -> Iterator[bytes]:
    for owner, claims in state.owners.items():
        for part in _parts(list(claims.items())):
            rows, plain = rows_of([value for _, value in part])
            yield pack((owner, [handle for handle, _ in part], rows, plain))
    for part in _parts(list(state.clients.items())):
        yield pack((None, [(client, *turn) for client, turn in part]))
    for part in _parts(list(state.sessions.values())):
        yield pack((None, SESSION, True, part))


def _parts(whole: list[Any]) -> Iterator[list[Any]]:
    return (whole[at : at + CHUNK_CLAIMS] for at in range(0, len(whole), CHUNK_CLAIMS))


def _take_in(state: RecoveredState, body: bytes) -> None:
    form: Any = unpack_own(body)
    if form[0] is None and isinstance(form[1], str):
        _, kind, required, rows = form
        check_kind(kind, required)
        if kind == SESSION:
            state.sessions.update((row[0], KnownSession(*row)) for row in rows)
        return
    if form[0] is None:
        state.clients.update((client, (sequence, epoch)) for client, sequence, epoch in form[1])
        return
    owner, handles, rows, plain = form
    claims = state.owners.setdefault(owner, Handles())
    claims.update(zip(handles, table(rows, plain, len(rows)), strict=True))
