"""Connections to PostgreSQL: a few that read, lent from a pool, and what its errors mean.

Calls block, so the loop's own thread makes no call.  Nothing is bound to a session: no prepared
transaction, no lock, no temporary table outlives a statement.  Behind a pooler, whose connections to the
server are shared, nothing is set and nothing is prepared either.

Always: a connection on which anything went wrong is not lent again; no more read at once than were allowed,
and who waits for one of them gets it in the order in which it came, or an error.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Any, Final
from weakref import WeakSet

import psycopg
from psycopg import Connection, Cursor, errors
from psycopg.pq import TransactionStatus

from relay.store.address import StoreAddress
from relay.store.errors import LogAway, LogDamaged, LogFailed, LogFenced
from relay.store.postgres.schema import check, prepare, quoted

READERS: Final = 4
"""Connections that read at once, where nothing else is said."""

TURN_SECONDS: Final = 30.0
"""How long a question waits for one of them: a copy of a snapshot has one for as long as it takes."""

IDLE_SECONDS: Final = 10.0
"""After how long a connection that nobody has used is closed."""

CONNECT_SECONDS: Final = 2
"""Seconds that an attempt to connect to one host may take; libpq's own least."""

PAUSE_SECONDS: Final = 0.1
"""Seconds between two attempts to reach a database that is waited for."""

_SETTINGS: Final = {
    "client_encoding": "UTF8",  # a database of the encoding SQL_ASCII would return bytes
    "connect_timeout": str(CONNECT_SECONDS),
    "target_session_attrs": "read-write",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "3000",
}
"""What an address does not say itself; a promoted standby is found by its being writable."""

_COMMITS: Final = """
SELECT current_setting('synchronous_commit'), current_setting('fsync'), pg_backend_pid()
"""

_WEAKER: Final = ("off", "local", "remote_write")
"""Values of ``synchronous_commit`` with which a commit may return before it is on the disk of a standby."""

_MOMENT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_AWAY: Final = (
    errors.OperationalError,  # every loss of a connection, a shutdown, a start, too many connections
    errors.InterfaceError,
    errors.ReadOnlySqlTransaction,  # a primary that became a standby
    errors.QueryCanceled,
)

_DAMAGED: Final = (errors.DataCorrupted, errors.IndexCorrupted)

_FULL: Final = (errors.DiskFull, errors.OutOfMemory, errors.ProgramLimitExceeded)


class ReadingTurns:
    """Lets so many read at once, and others in the order in which they came."""

    def __init__(self, most: int) -> None:
        self.most: Final = most
        self._free = most
        self._waiting: deque[threading.Event] = deque()
        self._lock: Final = threading.Lock()

    @contextmanager
    def turn(self, place: str) -> Iterator[None]:
        """Waits for a turn, which lasts for the block; raises ``LogAway`` after ``TURN_SECONDS``."""
        with self._lock:
            turn = None if self._free else threading.Event()
            if turn is None:
                self._free -= 1
            else:
                self._waiting.append(turn)
        if turn is not None and not turn.wait(TURN_SECONDS) and self._leave(turn):
            raise LogAway(
                f"all {self.most} connections that read {place} were busy for {TURN_SECONDS:.0f} s;"
                " cluster.connections allows more"
            )
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._free += 1

    def _leave(self, turn: threading.Event) -> bool:
        """Waits no longer; False if it was its turn meanwhile."""
        with self._lock:
            if turn not in self._waiting:
                return False
            self._waiting.remove(turn)
            return True


class Database:
    """The connections to one store.  Any number of threads may read.

    ``place`` names it for messages, without passwords.
    """

    def __init__(self, address: StoreAddress, *, readers: int = READERS, name: str = "") -> None:
        """At most so many ``readers`` at once.  The server shows the ``name`` of who uses it."""
        self.address: Final = address
        self.place: Final = str(address)
        self._schema: Final = quoted(address.schema)
        self._settings: Final = {**_SETTINGS, "application_name": application(name)}
        self._turns: Final = ReadingTurns(readers)
        self._idle: list[tuple[Connection[Any], float]] = []
        """Connections that are not lent, and since when."""
        self._open: WeakSet[Connection[Any]] = WeakSet()
        """All connections that were made."""
        self._lock: Final = threading.Lock()
        self._closed = False
        self._is_abandoned = False
        self.is_pooled = False
        """True if the last connection was to a pooler, such as PgBouncer, and not to the server."""

    @property
    def held(self) -> int:
        """The number of connections that are open now."""
        with self._lock:
            return sum([not each.closed for each in self._open])

    def statement(self, text: str) -> str:
        """Returns a statement in which the names of tables stand as ``{s}.NAME``."""
        return text.replace("{s}", self._schema)

    def prepare(self) -> None:
        """Makes the tables if there are none.

        Raises ``LogDamaged`` for tables of another version, ``LogFailed`` where the database refuses.
        """
        self._open_with(prepare, writes=True)

    def check(self) -> None:
        """Raises ``LogDamaged`` for tables of another version, ``LogFailed`` where there are none."""
        self._open_with(check)

    def _open_with(
        self, function: Callable[[Connection[Any], str, str], None], *, writes: bool = False
    ) -> None:
        """Calls the function with a connection, for which it waits as long as the address says."""
        until = monotonic() + self.address.wait
        while True:
            try:
                with self.translated("open"), self.connect(writes=writes) as connection:
                    function(connection, self.address.schema, self.place)
                    return
            except LogAway as away:
                if away.is_refusal or monotonic() >= until:
                    raise
            sleep(PAUSE_SECONDS)

    def connect(self, *, writes: bool = False) -> Connection[Any]:
        """Returns a new connection, on which each statement is a transaction.

        Raises ``LogFailed`` after ``close``, ``LogFenced`` after ``abandon``; if it ``writes``, ``LogFailed``
        also for a database that has ``fsync`` switched off, so that its commits are on no disk.
        """
        self._check_open()
        given = psycopg.conninfo.conninfo_to_dict(self.address.url)
        connection = psycopg.connect(**{**self._settings, **given}, autocommit=True)  # type: ignore[arg-type]
        with self._lock:
            self._open.add(connection)
        try:
            commits, fsync, process = connection.execute(_COMMITS).fetchall()[0]
            if writes and fsync != "on":
                raise LogFailed(
                    f"{self.place} has fsync = off, so that a crash may lose acknowledged turns, or all;"
                    " switch it on (a database for tests may have its files in memory instead)"
                )
            self.is_pooled = process != connection.info.backend_pid
            if self.is_pooled:
                connection.prepare_threshold = None
            if commits in _WEAKER:
                self._check_pooled(commits)
                connection.execute("SET synchronous_commit TO on")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_pooled(self, commits: str) -> None:
        if self.is_pooled:
            raise LogFailed(
                f"{self.place} is reached through a pooler, where synchronous_commit is {commits} and cannot"
                " be set for a connection: ALTER ROLE … SET synchronous_commit = on"
            )

    @contextmanager
    def translated(self, verb: str) -> Iterator[None]:
        """Turns what PostgreSQL raises into ``LogAway``, ``LogFailed`` or ``LogDamaged``."""
        try:
            yield
        except _DAMAGED as error:
            raise LogDamaged(f"cannot {verb} {self.place}: {said(error)}") from error
        except _FULL as error:
            raise LogFailed(f"cannot {verb} {self.place}: {said(error)}", full=True) from error
        except _AWAY as error:
            text = said(error)
            full = "; it has no connection free" if has_none_free(text) else ""
            refusal = is_refusal(text)
            raise LogAway(f"cannot {verb} {self.place}: {text}{full}", is_refusal=refusal) from error
        except psycopg.Error as error:
            raise LogFailed(f"cannot {verb} {self.place}: {said(error)}") from error

    # -- reading --------------------------------------------------------------------------------------

    def rows(self, question: str, values: Mapping[str, object]) -> list[Any]:
        """Returns the answer to one question.

        It is asked twice if the connection had been lost meanwhile.  Raises as ``translated``.
        """
        with self._answered(self.statement(question), values) as (_, cursor):
            return cursor.fetchall()

    @contextmanager
    def moment(self) -> Iterator[Connection[Any]]:
        """Lends a connection that reads one moment; a writer does not come between its questions."""
        with self._answered(_MOMENT, {}) as (connection, _):
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _answered(
        self, statement: str, values: Mapping[str, object]
    ) -> Iterator[tuple[Connection[Any], Cursor[Any]]]:
        """Lends a connection and its answer to a statement, sent twice if it had been lost meanwhile."""
        with self._turns.turn(self.place), self.translated("read"):
            connection, lent = self._lend()
            try:
                try:
                    cursor = connection.execute(statement, values, binary=True)
                except _AWAY:
                    if not lent:
                        raise
                    connection.close()
                    connection = self.connect()
                    cursor = connection.execute(statement, values, binary=True)
                yield connection, cursor
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)

    def _lend(self) -> tuple[Connection[Any], bool]:
        with self._lock:
            self._check_open()
            if self._idle:
                return self._idle.pop()[0], True
        return self.connect(), False

    def _check_open(self) -> None:
        if self._is_abandoned:
            raise LogFenced(f"{self.place} is not used any more")
        if self._closed:
            raise LogFailed(f"{self.place} is closed")

    def _give_back(self, connection: Connection[Any]) -> None:
        now, over = monotonic(), [connection]
        with self._lock:
            if not self._closed:
                over = [each for each, since in self._idle if now - since > IDLE_SECONDS]
                self._idle = [each for each in self._idle if each[0] not in over]
                self._idle.append((connection, now))
        for each in over:
            each.close()

    def close(self) -> None:
        """Closes the connections; a lent connection ends with its questions."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for each, _ in idle:
            with suppress(psycopg.Error):
                each.close()

    def abandon(self) -> None:
        """Ends all connections, from any thread: each question that is under way fails with ``LogAway``, and
        each later one with ``LogFenced``.

        A server that is stopped, or no longer reached, may keep one waiting for ever.
        """
        with self._lock:
            self._closed = self._is_abandoned = True
        self.interrupt()

    def interrupt(self) -> None:
        """Ends the present connections, as ``abandon`` does; later questions have new ones."""
        with self._lock:
            found = list(self._open)
        for each in found:
            shut_down(each)


class DatabaseMoment(Database):
    """One moment of a store: all questions are asked in one transaction, of one thread.

    Within ``later`` it is the moment at which that block began.
    """

    def __init__(self, address: StoreAddress) -> None:
        """Raises as ``check``."""
        super().__init__(address)
        self.check()
        with self.translated("open"):
            self._connection: Final = self.connect()
            self._connection.execute(_MOMENT)

    def rows(self, question: str, values: Mapping[str, object]) -> list[Any]:
        with self.translated("read"):
            return self._connection.execute(self.statement(question), values, binary=True).fetchall()

    @contextmanager
    def moment(self) -> Iterator[Connection[Any]]:
        with self.translated("read"):
            yield self._connection

    @contextmanager
    def later(self) -> Iterator[None]:
        """Ends the present transaction, if there is one; the block sees the store as it is now."""
        with self.translated("read"):
            if self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.execute("COMMIT")
            self._connection.execute(_MOMENT)
        yield
        with self.translated("read"):
            self._connection.execute("COMMIT")

    def close(self) -> None:
        super().close()
        with suppress(psycopg.Error):
            self._connection.close()


def shut_down(connection: Connection[Any]) -> None:
    """Ends a connection that another thread uses."""
    with suppress(psycopg.Error, OSError):
        shared = socket.socket(fileno=os.dup(connection.fileno()))
        with suppress(OSError):
            shared.shutdown(socket.SHUT_RDWR)
        shared.close()


_PASSING: Final = (
    "starting up",
    "shutting down",
    "in recovery",
    "cannot connect to server",
    "server_login_retry",
)
"""What servers and poolers answer while they are about to be there."""

_NONE_FREE: Final = (
    "too many",  # clients, or connections of a role or a database
    "connection slots",
    "no more connections",  # and below: PgBouncer's words
    "query_wait_timeout",
)


def has_none_free(text: str) -> bool:
    """True if a message says that all connections which a server, or a pooler, allows are used.

    >>> has_none_free("FATAL: sorry, too many clients already"), has_none_free("timeout expired")
    (True, False)
    """
    return any(word in text for word in _NONE_FREE)


def application(name: str) -> str:
    """Returns how the server shows a connection: at most 63 bytes, of which it shows ASCII alone.

    >>> application("a"), application(""), len(application("a" * 99))
    ('dataspace a', 'dataspace', 63)
    """
    return f"dataspace {name}".strip()[:63]


def is_refusal(text: str) -> bool:
    """True if a message says that a connection was refused for good; libpq has no code for that.

    >>> is_refusal("FATAL: role x does not exist"), is_refusal("FATAL: the database system is starting up")
    (True, False)
    """
    if any(word in text for word in _PASSING) or has_none_free(text):
        return False
    return any(word in text for word in ("FATAL", "SSL", "certificate", "password", "does not exist"))


def said(error: psycopg.Error) -> str:
    """Returns the message of the database, on one line."""
    text = error.diag.message_primary or str(error)
    return " ".join(text.split()) or error.__class__.__name__
