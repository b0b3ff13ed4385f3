"""The chain: segments, each sealed to the one before, and the header of their file under one seal.

The chain finds segments by epoch, returns them in order, and checks the seal of each on the way, so that no
reader gets what was altered.  A file may have several chains, each under a key: the log of a space is the
chain under 0 of its file, a durable topic the chain under its slot.  The header is a few named numbers by
which everything else is read: the oldest epoch, the numbers that may have been issued, the newest snapshot.
They change in place, so they cannot be chained.  The log decides what an epoch number is worth and what to do
about damage.

Always: segments are handed out as they were written, each after its predecessor; memory is bounded by the
bytes that a reader fetches at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from dataspace.codec import pack
from dataspace.errors import Refused
from relay.log.segments import CHECKSUM_BYTES, Segment
from relay.store.errors import LogDamaged
from relay.store.storage import Storage

KEY_BITS: Final = 40
"""Segments of a chain are numbered on from ``key << KEY_BITS``."""

READ_BYTES: Final = 256 << 10
READ_SEGMENTS: Final = 256
"""What a reader fetches at once: segments up to so many, and up to about so many bytes."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS segments (
    segment INTEGER PRIMARY KEY,
    first INTEGER NOT NULL, last INTEGER NOT NULL, entries INTEGER NOT NULL, changes INTEGER NOT NULL,
    since INTEGER NOT NULL, until INTEGER NOT NULL, checksum BLOB NOT NULL, body BLOB NOT NULL
);
"""


class ChainHead(NamedTuple):
    """The newest epoch of a segment, its time in microseconds, and the segment's checksum."""

    last: int
    until: int
    checksum: bytes


def refuse(damage: str) -> None:
    """Raises ``LogDamaged``: the reaction to damage unless the caller handles it."""
    raise LogDamaged(damage)


class Chain:
    """The segments under one key.

    ``first`` and ``last`` are the ordinals of the oldest and the newest segment (``last`` is one less than
    ``first`` if there is none), ``epoch`` is the newest epoch, ``checksum`` seals the newest segment.
    ``anchor`` is the checksum of the segment before the oldest, ``end`` an ordinal beyond all of this key.
    """

    def __init__(self, storage: Storage, anchor: bytes = bytes(CHECKSUM_BYTES), key: int = 0) -> None:
        self._storage = storage
        self._before, self.end = key << KEY_BITS, (key + 1) << KEY_BITS
        self._of, self._unit = (f" of slot {key}", "step") if key else ("", "epoch")
        self.trimmed_elsewhere: Callable[[], bool] = _never
        """Called before damage is reported: True if another process has deleted segments, and ``renew`` has
        noted that."""
        with storage.reading() as connection:
            self.renew(connection, anchor)

    def renew(self, connection: sqlite3.Connection, anchor: bytes) -> None:
        """Takes over where the chain begins and ends in the file; another process may write it."""
        oldest, newest = [
            connection.execute(f"{question} {_SPAN} {order} LIMIT 1", (self._before, self.end)).fetchall()
            for question, order in (
                ("SELECT segment", "ORDER BY segment"),
                ("SELECT segment, last, checksum", "ORDER BY segment DESC"),
            )
        ]
        self.anchor = anchor
        self.first: int = oldest[0][0] if oldest else self._before + 1
        self.last: int
        self.epoch: int
        self.checksum: bytes
        self.last, self.epoch, self.checksum = newest[0] if newest else (self._before, 0, anchor)

    # -- writing --------------------------------------------------------------------------------------

    @staticmethod
    def insert(connection: sqlite3.Connection, segments: Iterable[Segment]) -> None:
        """Writes segments that follow the newest ones of their chains, within a transaction of the caller."""
        connection.executemany(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(_COLUMNS, segments)
        )

    def extended(self, newest: Segment) -> None:
        """Notes that the transaction is on disk."""
        self.last, self.epoch, self.checksum = newest.ordinal, newest.last, newest.checksum

    @contextmanager
    def dropping(self, ordinal: int) -> Iterator[None]:
        """Hides segments before this ordinal from readers until they are deleted, or the block raises."""
        before = self.first, self.anchor
        self.first, self.anchor = ordinal, self.checksum_of(ordinal - 1)
        try:
            yield
        except BaseException:
            self.first, self.anchor = before
            raise

    def delete(self, connection: sqlite3.Connection, ordinal: int) -> None:
        """Deletes the segments before an ordinal, within a transaction of the caller's."""
        connection.execute(f"DELETE {_SPAN}", (self._before, ordinal))

    # -- reading --------------------------------------------------------------------------------------

    def walk(
        self,
        ordinal: int,
        upto: int | None = None,
        *,
        found: Callable[[str], None] = refuse,
        limit: int = READ_SEGMENTS,
    ) -> Iterator[Segment]:
        """Yields the segments from an ordinal on that begin no later than epoch ``upto``.

        Damage goes to ``found`` as text; if that returns, the segment is passed over.  At most ``limit``
        are fetched at once.  The one beyond the end is read, too, lest its number be altered.
        """
        path, previous = self._storage.path, self.checksum_of(ordinal - 1)
        while fetched := self._fetch(ordinal, upto, limit):
            for segment in fetched:
                self._check_held(ordinal)
                as_it_should = segment.ordinal == ordinal and segment.sealed_by(previous)
                if not as_it_should and self.trimmed_elsewhere():
                    self._check_held(ordinal)
                    previous = self.checksum_of(ordinal - 1)
                if segment.ordinal != ordinal:
                    found(f"{path}: {self._named(ordinal)}, before {self._unit} {segment.first}, is gone")
                elif as_it_should or segment.sealed_by(previous):
                    if upto is not None and segment.first > upto:
                        return
                    yield segment
                else:
                    numbers = f"{self._unit}s {segment.first} to {segment.last}"
                    found(f"{path}: {self._named(ordinal)} with {numbers} was altered")
                ordinal, previous = segment.ordinal + 1, segment.checksum

        self._check_held(ordinal)  # that there is nothing may be because it went

    def after(self, epoch: int, upto: int) -> Iterator[Segment]:
        """Returns the segments that hold the epochs in (epoch, upto], and more at both ends.

        Their beginning is looked up at once: a segment that is deleted later is missed, and refused, when it
        is read.
        """
        return self._from(self.beyond(epoch), epoch, upto)

    def _from(self, ordinal: int, epoch: int, upto: int) -> Iterator[Segment]:
        at = epoch
        for segment in self.walk(ordinal, upto):
            if at == epoch and segment.first > epoch + 1:
                self.check_found(ordinal, attrgetter("last"), epoch + 1)
            at = segment.last
            yield segment
        if at == epoch:
            self.check_found(ordinal, attrgetter("last"), epoch + 1)

    def check_found(self, ordinal: int, number: Callable[[Segment], int], least: int) -> None:
        """Raises ``LogDamaged`` if an earlier segment has a number of at least so much.

        Then an altered segment has misled the search that found the ordinal.
        """
        try:
            for segment in islice(self.walk(ordinal - 1, limit=1), 1 if ordinal > self.first else 0):
                if number(segment) >= least:
                    refuse(f"{self._storage.path}: {self._named(ordinal - 1)}, or one after it, was altered")
        except Refused:
            pass  # it has just been deleted, so no reader needs it

    def _named(self, ordinal: int) -> str:
        return f"segment {ordinal - self._before}{self._of}"

    def _check_held(self, ordinal: int) -> None:
        if ordinal < self.first:
            raise Refused(
                "epoch-gone", f"{self._named(ordinal)} was deleted while it was read: it is past retention"
            )

    def backwards(self, upto: int | None = None) -> Iterator[Segment]:
        """Yields all segments, the newest first, beginning at the segment that ends epoch ``upto`` if that is
        given."""
        last = self.last if upto is None else min(self.last, self.beyond(upto))
        for ordinal in range(last, self.first - 1, -1):
            yield from islice(self.walk(ordinal, limit=1), 1)

    def beyond(self, epoch: int) -> int:
        """Returns the ordinal of the first segment with an epoch later than this; O(log segments)."""
        return self._first_where(_LAST, epoch + 1)

    def first_needed(self, oldest: int, snapshot: int) -> int:
        """Returns the ordinal of the first segment that is still needed; O(log segments).

        They are needed for the epochs from ``oldest`` on, and for a start, which goes on after the segment of
        the snapshot (0 without a snapshot): a silent entry has the number of the epoch before it, so a silent
        entry written after the snapshot may belong to a deleted epoch.
        """
        return max(self.first, min(self.beyond(oldest - 1), snapshot + 1))

    def _first_where(self, question: str, least: int) -> int:
        """Returns the first ordinal where a number that ascends with it is at least so much."""
        low, high = self.first, self.last + 1
        while low < high:
            middle = (low + high) // 2
            found = _column(self._storage.rows(question, middle))
            if not found or found[0] >= least:
                high = middle
            else:
                low = middle + 1
        return low

    def checksum_of(self, ordinal: int) -> bytes:
        """Returns the checksum of a segment; the anchor for a segment that is not there."""
        question = "SELECT checksum FROM segments WHERE segment = ?"
        found: list[bytes] = _column(self._storage.rows(question, ordinal))
        return found[0] if found else self.anchor

    def head_of(self, ordinal: int) -> ChainHead:
        """Returns the newest epoch of a segment, its time, and the checksum."""
        question = "SELECT last, until, checksum FROM segments WHERE segment = ?"
        return ChainHead(*self._storage.rows(question, ordinal)[0])

    def since(self, time: int) -> int:
        """Returns the ordinal of the first segment with an epoch as late as this; O(log segments)."""
        return self._first_where(_UNTIL, time)

    def used(self) -> int:
        """Returns the bytes of the file that are in use, snapshots included; O(1)."""
        return self._storage.used()

    def bytes_between(self, first: int, beyond: int) -> int:
        """Returns the bytes of the segments from one ordinal up to before another; O(those)."""
        question = f"SELECT ifnull(sum(length(body)), 0) {_SPAN}"
        return int(self._storage.rows(question, first - 1, beyond)[0][0])

    def portion(self, beyond: int, limit: int) -> tuple[int, int]:
        """Returns where the oldest segments of about ``limit`` bytes end, before an ordinal, and their bytes.

        O(those).
        """
        size, ordinal = 0, self.first
        with self._storage.reading() as connection:
            for ordinal, each in connection.execute(_SIZES, (self._before, beyond)):
                if size and size + each > limit:
                    return ordinal, size
                size += each
        return max(self.first, beyond), size

    def counts(self) -> tuple[int, int]:
        """Returns how many segments and changes there are; O(segments)."""
        question = f"SELECT count(*), ifnull(sum(changes), 0) {_SPAN}"
        segments, changes = self._storage.rows(question, self._before, self.end)[0]
        return segments, changes

    def _fetch(self, ordinal: int, upto: int | None, limit: int) -> list[Segment]:
        """Returns some segments from an ordinal on, as they are in the file, in one short transaction."""
        fetched: list[Segment] = []
        size = 0
        with self._storage.reading() as connection:
            cursor = connection.execute(f"SELECT * {_SPAN} ORDER BY segment", (ordinal - 1, self.end))
            for row in cursor:
                segment = Segment(*map(_of_kind, _KINDS, row))
                fetched.append(segment)
                size += len(segment.body)
                beyond = upto is not None and segment.first > upto
                if beyond or size >= READ_BYTES or len(fetched) >= limit:
                    break
            cursor.close()
        return fetched


_COLUMNS: Final = attrgetter(*[each.name for each in fields(Segment)])
_LAST: Final = "SELECT last FROM segments WHERE segment >= ? ORDER BY segment LIMIT 1"
_UNTIL: Final = "SELECT until FROM segments WHERE segment >= ? ORDER BY segment LIMIT 1"
_SPAN: Final = "FROM segments WHERE segment > ? AND segment < ?"
_SIZES: Final = f"SELECT segment, length(body) {_SPAN} ORDER BY segment"


_KINDS: Final = (int, int, int, int, int, int, int, bytes, bytes)


def _of_kind(kind: type, value: Any) -> Any:
    """Returns a column as it was written.

    An altered one of another type becomes the empty value of its type, so that the seal does not fit.
    """
    return value if value.__class__ is kind else kind()


def _never() -> bool:
    return False


def _column(rows: list[tuple[Any, ...]]) -> list[Any]:
    return [row[0] for row in rows]


META_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS starts (first INTEGER PRIMARY KEY, before INTEGER NOT NULL);
"""

SEAL: Final = "seal"


def read_meta(storage: Storage, found: Callable[[str], None] = refuse) -> dict[str, Any]:
    """Returns the header by name; O(starts).

    Damage is passed to ``found``; if that returns, the header is returned as it is.
    """
    with storage.reading() as connection:
        connection.execute("BEGIN")  # a writer must not come between the names and their seal
        try:
            return meta_of(connection, storage.path, found)
        finally:
            connection.execute("COMMIT")


def meta_of(
    connection: sqlite3.Connection, path: Path, found: Callable[[str], None] = refuse
) -> dict[str, Any]:
    """Like ``read_meta``, for a connection that is in a transaction of the file at ``path``."""
    meta = dict(connection.execute("SELECT name, value FROM meta"))
    if meta.get(SEAL, b"") not in (b"", _seal(connection)):
        found(f"{path}: the header of the log was altered")
    meta.pop(SEAL, None)
    return meta


def put_meta(connection: sqlite3.Connection, **named: object) -> None:
    """Writes names of the header, as the last step of a transaction that changes ``starts``; O(starts)."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", named.items())
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SEAL, _seal(connection)))


def _seal(connection: sqlite3.Connection) -> bytes:
    meta = connection.execute("SELECT name, value FROM meta WHERE name <> ? ORDER BY name", (SEAL,))
    starts = connection.execute("SELECT first, before FROM starts ORDER BY first")
    body = pack((tuple(meta.fetchall()), tuple(starts.fetchall())))
    return blake2b(body, digest_size=CHECKSUM_BYTES, person=b"meta").digest()
