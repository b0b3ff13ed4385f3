"""Fenced writes: one statement commits, and only under the term of the daemon that sends it.

A statement locks the row of the term (``FOR SHARE``) and compares number and nonce, so a daemon that takes
the space over waits for a commit under way, and an earlier leader writes nothing later.  The nonce matters:
after a failover of the database to a copy that lacks commits the number comes back.

A connection may break in a commit.  Then the same statement is sent again until its outcome is known; where
the first attempt is there after all, one more commit must succeed before anything is acknowledged, since a
row can be seen before it has reached a synchronous standby.  A warning in a commit says that too (a wait for
the standby was cancelled), and counts as an outcome that is not known.  Nothing here cancels a statement: to
end one its socket is shut down.

Always: one statement at a time; a write that returns is on disk, as far as the database promises it; after
``LogFenced`` or ``LogDamaged`` nothing is written any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from struct import Struct
from time import monotonic
from typing import Any, Final, TypeAlias
from uuid import UUID

import psycopg
from psycopg import Connection, errors
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from dataspace.faults import reach
from relay.store.errors import LogAway, LogDamaged, LogFailed, LogFenced
from relay.store.ports import Row
from relay.store.postgres.database import Database, shut_down

logger = logging.getLogger("dataspace")

PAUSES: Final = (0.05, 0.1, 0.2, 0.5)
"""Seconds between attempts to reach the database; the last one stays."""

# MATERIALIZED states what PostgreSQL does here in any case, since the parts are read twice and one locks:
# each is evaluated once, so the insertion and the outcome see the same answer.
_LEAD: Final = """
WITH lead AS MATERIALIZED (
    SELECT term FROM {s}.terms WHERE space = %(led)s AND term = %(term)s AND nonce = %(nonce)s FOR SHARE
), """

_UNCONDITIONAL: Final = "led AS MATERIALIZED (SELECT term FROM lead)"

_FOLLOWS: Final = """led AS MATERIALIZED (
    SELECT term FROM lead WHERE NOT EXISTS (
        SELECT FROM unnest(%(previous)b::int8[], %(sums)b::bytea[]) AS p (segment, checksum)
        LEFT JOIN LATERAL (
            SELECT checksum FROM {s}.segments AS s
            WHERE s.space = %(space)s AND s.segment = p.segment LIMIT 1
        ) AS there ON true
        WHERE there.checksum IS DISTINCT FROM p.checksum
    )
)"""
# LIMIT keeps it a look into the index for each: a join, planned while the table was small and kept, reads
# all segments for each commit, which took 1.6 ms of 20,000.

_OUTCOME: Final = " SELECT (SELECT count(*) FROM lead), (SELECT count(*) FROM led)"

SEGMENT: Final = """
INSERT INTO {s}.segments SELECT $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, lead.term
FROM (SELECT term FROM {s}.terms WHERE space = $1 AND term = $2 AND nonce = $3 FOR SHARE) AS lead
WHERE EXISTS (SELECT FROM {s}.segments WHERE space = $4 AND segment = $14 AND checksum = $15)
"""
"""One segment after another one of its chain: nearly every commit.  It inserts a row, or has done nothing.

It has positions for values, since it goes to libpq with them in binary: psycopg's search for names and
types costs several times what the rest does.
"""

TYPES: Final = (23, 20, 2950, 23, *[20] * 7, 17, 17, 20, 17)
"""The types of its values: int4 is 23, int8 20, uuid 2950, bytea 17; PostgreSQL has fixed them."""

_BINARY: Final = [Format.BINARY] * len(TYPES)
_INT4: Final = Struct("!i").pack
_INT8: Final = Struct("!q").pack
_NAME: Final = b"segment"

LOOK: Final = "SELECT count(*) FROM {s}.terms WHERE space = %(led)s AND term = %(term)s AND nonce = %(nonce)s"

_BARRIER: Final = "UPDATE {s}.spaces SET touched = touched + 1 WHERE space = %(space)s"


_Commit: TypeAlias = Callable[[Connection[Any]], tuple[int, int]]
"""Commits on a connection; returns how many rows the fence has, and how many of those may write."""

IsThere: TypeAlias = Callable[[Connection[Any]], bool]
"""Decides, where rows that are to be inserted exist, whether an earlier attempt wrote them."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The term under which a daemon writes."""

    space: int
    """The space whose row of ``terms`` it is."""
    term: int
    nonce: UUID


class FencedWriter:
    """The connection that writes for a space."""

    def __init__(self, database: Database, fence: Fence) -> None:
        self._database: Final = database
        self.fence: Final = fence
        self._lock: Final = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._segment: Final = database.statement(SEGMENT).encode()
        self._is_prepared = False
        self._warnings: list[str] = []
        self._ending: Final = threading.Event()
        self._failure: LogFailed | LogDamaged | None = None
        self.away_since: float | None = None
        """Since when an outcome is not known, as of ``monotonic``."""

    def write(
        self,
        changes: str,
        values: Mapping[str, object],
        *,
        follows: bool = False,
        is_there: IsThere | None = None,
    ) -> None:
        """Runs one statement: ``changes`` are its ``WITH`` parts, which select from ``led``.

        With ``follows`` the segments ``previous`` must be there with the checksums ``sums``.

        Raises ``LogFenced``, ``LogDamaged`` where the database has lost what was written before, and
        ``LogFailed`` where it refuses.  While it is not reached this waits, until ``abandon``.
        """
        condition = _FOLLOWS if follows else _UNCONDITIONAL
        statement = self._database.statement(f"{_LEAD}{condition}{changes and ', '}{changes}{_OUTCOME}")

        def commit(connection: Connection[Any]) -> tuple[int, int]:
            leads, led = self._committed(connection, statement, {**values, **self._fenced()})[0]
            return leads, led

        self._write(commit, int(str(values["space"])), is_there)

    def write_segment(self, space: int, row: Row, previous: tuple[int, bytes], is_there: IsThere) -> None:
        """Writes one segment after its predecessor, an ordinal and a checksum.  Raises as ``write``."""
        fence, (before, checksum) = self.fence, previous
        values = [
            _INT4(fence.space),
            _INT8(fence.term),
            fence.nonce.bytes,
            _INT4(space),
            *map(_INT8, row[:7]),
            *row[7:],
            _INT8(before),
            checksum,
        ]
        self._write(partial(self._inserted, values), space, is_there)

    def _fenced(self) -> dict[str, object]:
        return {"led": self.fence.space, "term": self.fence.term, "nonce": self.fence.nonce}

    def _write(self, commit: _Commit, space: int, is_there: IsThere | None) -> None:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                self._until_known(commit, space, is_there)
            except (LogFenced, LogDamaged) as failure:
                self._failure = failure
                raise
            except LogFailed as failure:
                self._failure = None if failure.full else failure
                raise
            finally:
                self.away_since = None

    def _until_known(self, commit: _Commit, space: int, is_there: IsThere | None) -> None:
        attempts = 0
        while True:
            try:
                self._attempt(commit, space, is_there if attempts else None)
            except LogAway as away:
                failure: LogFailed = away
            except LogFailed as refused:
                if not attempts or not refused.full:
                    raise
                failure = refused  # what was sent before may be there
            else:
                if attempts:
                    logger.warning("%s: it is reached again", self._database.place)
                return
            if not attempts:
                self.away_since = monotonic()
                logger.warning("%s; the same is tried until the outcome is known", failure)
            if self._ending.wait(PAUSES[min(attempts, len(PAUSES) - 1)]):
                raise LogFenced(f"{failure}; whether the last write is there is not known")
            attempts += 1

    def _attempt(self, commit: _Commit, space: int, is_there: IsThere | None) -> None:
        try:
            with self._database.translated("write"):
                connection = self._connected()
                reach("database-before-write")
                try:
                    leads, led = commit(connection)
                except errors.UniqueViolation as error:
                    if is_there is None or not is_there(connection):
                        raise LogDamaged(
                            f"{self._database.place} has segments that this daemon did not write: {error}"
                        ) from error
                    self._committed(connection, self._database.statement(_BARRIER), {"space": space})
                    return
                reach("database-after-write")
        except BaseException:
            self._disconnect()  # its answer may still come, and would be taken for that of the next statement
            raise
        if not leads:
            fence = self.fence
            raise LogFenced(f"{self._database.place}: term {fence.term} of space {fence.space} has ended")
        if not led:
            raise LogDamaged(f"{self._database.place} lacks segments that it had acknowledged")

    def _committed(
        self, connection: Connection[Any], statement: str, values: Mapping[str, object]
    ) -> list[tuple[int, int]]:
        """Returns the outcome of a statement; ``LogAway`` if the database warned about its commit."""
        self._warnings.clear()
        cursor = connection.execute(statement, values)
        found = cursor.fetchall() if cursor.description else []
        self._check_warnings()
        return found

    def _inserted(self, values: Sequence[bytes], connection: Connection[Any]) -> tuple[int, int]:
        """Returns the outcome of ``SEGMENT``.  Raises as ``_committed``."""
        self._warnings.clear()
        inserted = self._run_segment(connection, values)
        self._check_warnings()
        if inserted:
            return 1, 1
        return connection.execute(self._database.statement(LOOK), self._fenced()).fetchall()[0][0], 0

    def _run_segment(self, connection: Connection[Any], values: Sequence[bytes]) -> int:
        """Returns how many rows ``SEGMENT`` has inserted."""
        server = connection.pgconn
        if connection.prepare_threshold is None:  # behind a pooler, the next one may be on another connection
            return self._done(server, server.exec_params(self._segment, values, TYPES, _BINARY))
        if not self._is_prepared:
            self._done(server, server.prepare(_NAME, self._segment, TYPES))
            self._is_prepared = True
        return self._done(server, server.exec_prepared(_NAME, values, _BINARY))

    def _done(self, server: PGconn, result: PGresult) -> int:
        """Returns how many rows a statement has changed; raises what psycopg makes of one that failed."""
        if result.status == ExecStatus.COMMAND_OK:
            return result.command_tuples or 0
        if result.error_field(DiagnosticField.SQLSTATE) is None:  # from libpq itself, as of a lost connection
            raise psycopg.OperationalError(server.get_error_message())
        raise errors.error_from_result(result)

    def _check_warnings(self) -> None:
        if self._warnings:
            raise LogAway(f"{self._database.place} warned in a commit: {self._warnings[0]}")

    def _connected(self) -> Connection[Any]:
        connection = self._connection
        if connection is None:
            if self._ending.is_set():
                raise LogFenced(f"{self._database.place} is not written any more")
            self._connection = connection = self._database.connect(writes=True)
            self._is_prepared = False
            connection.add_notice_handler(self._note)
        return connection

    def _note(self, notice: errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "a warning without words")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def abandon(self) -> None:
        """Ends the attempts of another thread, whose outcome stays unknown; later writes raise ``LogFenced``.

        Safe from any thread.
        """
        self._ending.set()
        connection = self._connection
        if connection is not None:
            # libpq's connection belongs to the thread that waits in it; its socket may be shut down by any.
            shut_down(connection)
        if self._lock.acquire(blocking=False):
            try:
                self._disconnect()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Closes the connection once no statement is under way."""
        with self._lock:
            self._ending.set()
            self._disconnect()
