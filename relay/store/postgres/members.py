"""Members and terms: which daemons use a store, and which of them leads a space.

A member is one run of a daemon: a row with a lease in the clock of the database, renewed while the lease
lasts, never after.  The term of a space names a member by its nonce.  A lease says who is alive, and no more:
what keeps a daemon that was late from writing is the fence (``fenced``).

Always: of any number of daemons that take a space under one term, one gets it; the term ascends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import CLOCK_BOOTTIME, clock_gettime, monotonic
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import psycopg

from dataspace.version import __version__
from relay.store.errors import LogAway, LogFailed
from relay.store.levels import LATEST, check_known
from relay.store.postgres.database import Database, shut_down
from relay.store.postgres.durability import SETTINGS, Durability
from relay.store.postgres.fenced import Fence

LOCK_SECONDS: Final = 0.5
"""How long a take-over waits for a commit under way before it ends the connection that holds it up."""

_JOIN: Final = """
INSERT INTO {s}.members (nonce, name, url, web, version, config, beat, until, level)
SELECT %(nonce)s, %(name)s, %(url)s, %(web)s, %(version)s, %(config)b, 0,
    clock_timestamp() + make_interval(secs => %(lease)s), %(level)s
FROM {s}.store WHERE level <= %(level)s FOR SHARE
ON CONFLICT DO NOTHING"""
"""It holds the row of the store, so that nobody raises the level meanwhile."""

_LEVEL: Final = "SELECT level FROM {s}.store"
_RENEW: Final = f"""
WITH others AS (
    SELECT name, url, version, config FROM {{s}}.members
    WHERE until > clock_timestamp() AND nonce <> %(nonce)s AND url NOT IN ('', %(url)s)
)
UPDATE {{s}}.members SET beat = beat + 1, url = %(url)s, web = %(web)s, config = %(config)b,
    until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE nonce = %(nonce)s AND until > clock_timestamp()
RETURNING beat,
    ARRAY(SELECT url FROM others WHERE version = %(version)s AND config <> %(config)b ORDER BY url),
    ARRAY(SELECT url FROM others WHERE name = %(name)s ORDER BY url),
    (extract(epoch FROM clock_timestamp()) * 1000000)::int8, (SELECT level FROM {{s}}.store), {SETTINGS}"""
_CONFIRM: Final = """
SELECT pg_logical_emit_message(true, 'dataspace', '') FROM {s}.members
WHERE nonce = %(nonce)s AND beat >= %(beat)s
"""
"""A commit that waits for the synchronous standby, as a message that nobody reads is all it writes: it locks
no row, so that renewals do not wait for it."""

_FORGET: Final = """
DELETE FROM {s}.members AS m WHERE until < clock_timestamp() - make_interval(secs => %(kept)s)
AND NOT EXISTS (SELECT FROM {s}.terms AS t WHERE t.nonce = m.nonce)
"""
_NAME: Final = "INSERT INTO {s}.spaces (name, touched) VALUES (%(name)s, 0) ON CONFLICT DO NOTHING"
_SPACE: Final = "SELECT space FROM {s}.spaces WHERE name = %(name)s"
_FIRST_TERM: Final = """
INSERT INTO {s}.terms VALUES (%(space)s, 0, NULL, NULL, clock_timestamp()) ON CONFLICT DO NOTHING
"""
_STANDINGS: Final = """
SELECT t.space, t.term, t.nonce, t.wanted, m.name, m.url, m.web, m.beat,
    coalesce(extract(epoch FROM m.until - clock_timestamp())::float8, -1),
    EXISTS (
        SELECT FROM {s}.members AS w WHERE w.name = t.wanted AND w.until > clock_timestamp() AND w.url <> ''
        AND NOT EXISTS (SELECT FROM {s}.daemons AS d WHERE d.name = w.name AND d.drained IS NOT NULL)
    )
FROM {s}.terms AS t LEFT JOIN {s}.members AS m USING (nonce) WHERE t.space = ANY(%(spaces)s)
"""
_LIVING: Final = "SELECT name FROM {s}.members WHERE until > clock_timestamp() AND url <> ''"
_WANT: Final = "UPDATE {s}.terms SET wanted = %(wanted)s WHERE space = %(space)s AND nonce IS NOT NULL"
_NUMBER: Final = "SELECT number FROM {s}.members WHERE nonce = %(nonce)s"
_TAKE: Final = """
UPDATE {s}.terms SET term = term + 1, nonce = %(nonce)s, wanted = NULL, since = clock_timestamp(),
    before = leader, leader = (SELECT name FROM {s}.members WHERE nonce = %(nonce)s), why = %(why)s
WHERE space = %(space)s AND term = %(term)s AND nonce IS NOT DISTINCT FROM %(before)s
    AND EXISTS (SELECT FROM {s}.members WHERE nonce = %(nonce)s AND until > clock_timestamp())
RETURNING term
"""
_GIVE_UP: Final = """
UPDATE {s}.terms SET nonce = NULL, wanted = coalesce(%(wanted)s, wanted)
WHERE space = %(space)s AND term = %(term)s AND nonce = %(nonce)s
"""
_OTHERS: Final = """
SELECT nonce, name FROM {s}.members WHERE nonce <> %(nonce)s AND until > clock_timestamp()
"""
_LEAVE: Final = "DELETE FROM {s}.members WHERE nonce = %(nonce)s"
_BLOCKERS: Final = "SELECT pg_terminate_backend(pid) FROM unnest(pg_blocking_pids(%(pid)s)) AS b (pid)"

_KEPT_SECONDS: Final = 86_400
"""How long the row of a member that has gone is kept: ``cluster status`` shows it as gone."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a daemon says of itself."""

    name: str
    url: str = ""
    """Where clients reach it."""
    web: str = ""
    config: bytes = b""
    """A digest of the settings in which all members must agree."""


class Standing(NamedTuple):
    """The term of a space, and the daemon that leads it."""

    term: int
    nonce: UUID | None
    wanted: str | None
    """The member that is to take it, by name."""
    name: str | None
    url: str | None
    web: str | None
    beat: int | None
    left: float
    """For how many seconds the lease of its leader lasts, in the clock of the database."""
    wanted_lives: bool = False
    """True if the member that is to take it has a lease, serves clients, and is not drained."""

    @property
    def lives(self) -> bool:
        """True if its leader has a lease."""
        return self.left > 0


class Renewal(NamedTuple):
    """A lease that was renewed, and the state of the database then."""

    beat: int
    """How often it was renewed."""
    until: float
    """How long the lease lasts at least, on ``CLOCK_BOOTTIME``."""
    time: int
    """The database's clock, in microseconds since 1970."""
    level: int
    """The level of features in force in the store."""
    durability: Durability
    sent: float
    """When it was sent, as of ``monotonic``."""
    answers: Sequence[Any]
    """What else was asked with it, as of its moment but for this member."""


class _Asking:
    """A connection for questions about members and terms; one at a time."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database
        self._connection: psycopg.Connection[Any] | None = None
        self._lock: Final = threading.RLock()

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()

    def ask_rows(self, question: str, **values: object) -> list[Any]:
        """Returns the rows that a statement answers, sent twice if the connection had been lost meanwhile;
        raises ``LogAway``."""
        statement = self._database.statement(question)
        with self._lock:
            lent = self._connection is not None
            while True:
                try:
                    with self._database.translated("use"):
                        cursor = self._connected().execute(statement, values)
                        return cursor.fetchall() if cursor.description else []
                except LogFailed:
                    self.close()
                    if not lent:
                        raise
                    lent = False

    def _connected(self) -> psycopg.Connection[Any]:
        """Returns the connection; its commits wait for no standby, since a fence guards what is written.

        Behind a pooler they do, since a writer might get the connection to the server afterwards.
        """
        if self._connection is None:
            self._connection = self._database.connect()
            if not self._database.is_pooled:
                self._connection.execute("SET synchronous_commit TO local")
        return self._connection


class Membership(_Asking):
    """One run of a daemon as a member."""

    def __init__(self, database: Database, profile: Profile, lease: float, asked: str = "") -> None:
        """``lease`` is in seconds.  ``asked`` are columns that each renewal answers as well: a statement of
        their own would be one more transaction for each."""
        super().__init__(database)
        self._renew: Final = f"{_RENEW}{asked and ', '}{asked}"
        self.profile = profile
        self.lease: Final = lease
        self.nonce = uuid4()
        self.number = 0
        """The number of this lease: no other member of the store has had it."""
        self.differing: list[str] = []
        """The other members of this version whose digest is another one, by URL, as of the last renewal."""
        self.namesakes: list[str] = []
        """The other members of the same name, likewise."""

    def join(self) -> float:
        """Begins a lease under a new nonce; returns until when it lasts at least, on ``CLOCK_BOOTTIME``.

        Raises ``LogAway`` for a database that has lost the row at once, as where it has failed over, and
        ``LogDamaged`` for a store of a level that this program does not know.
        """
        self.nonce = uuid4()
        sent = clock_gettime(CLOCK_BOOTTIME)
        self.ask_rows(_JOIN, **self._said())
        numbers = self.ask_rows(_NUMBER, nonce=self.nonce)
        if not numbers:
            ((level,),) = self.ask_rows(_LEVEL)
            check_known(level, self._database.place)
            raise LogAway(f"{self._database.place}: this member joined, and is not there")
        ((self.number,),) = numbers
        self.ask_rows(_FORGET, kept=_KEPT_SECONDS)
        return sent + self.lease

    def renew(self) -> Renewal | None:
        """Renews the lease; None if it had run out, for good."""
        sent, at = clock_gettime(CLOCK_BOOTTIME), monotonic()
        rows = self.ask_rows(self._renew, **self._said())
        if not rows:
            return None
        beat, self.differing, self.namesakes, time, level, *found = rows[0]
        settings = Durability(*found[: len(Durability._fields)])
        return Renewal(beat, sent + self.lease, time, level, settings, at, found[len(settings) :])

    def _said(self) -> dict[str, object]:
        """What the row of this member has."""
        profile = self.profile
        return {
            "nonce": self.nonce,
            "name": profile.name,
            "url": profile.url,
            "web": profile.web,
            "version": __version__,
            "config": profile.config,
            "lease": self.lease,
            "level": LATEST,
        }

    def others(self) -> list[tuple[UUID, str]]:
        """Returns nonce and name of each other member that has a lease."""
        return self._database.rows(_OTHERS, {"nonce": self.nonce})

    def leave(self) -> None:
        """Ends the lease."""
        with suppress(LogFailed):
            self.ask_rows(_LEAVE, nonce=self.nonce)
        self.close()


class Confirmations(_Asking):
    """Confirms the renewals of a lease by commits that wait for the synchronous standby.

    A renewal waits for no standby, so that a leader leads on while that is away.  A standby that was promoted
    meanwhile has not seen such renewals, and other daemons lead there.  Once a commit has waited for the
    standby after a renewal, no other daemon leads anywhere before that lease has run out.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._warnings: list[str] = []
        self._is_over = False

    def confirm(self, nonce: UUID, beat: int) -> bool:
        """Returns once the synchronous standby has a renewal, at once where there is none; False if the
        renewal is not there.  Raises ``LogFailed``.  May wait for ever, until ``interrupt``."""
        with self._lock:
            self._warnings.clear()
            try:
                with self._database.translated("use"):
                    asked = self._database.statement(_CONFIRM), {"nonce": nonce, "beat": beat}
                    connection = self._connected()
                    if self._is_over:  # else ``interrupt`` finds the connection
                        raise LogFailed("no lease is to be confirmed any more")
                    rows = connection.execute(*asked).fetchall()
            except LogFailed:
                self.close()
                raise
            if self._warnings:  # such as a wait for the standby that was cancelled
                self.close()
                return False
            return bool(rows)

    def interrupt(self) -> None:
        """Ends a question that is under way, from any thread, for good."""
        self._is_over = True
        if (connection := self._connection) is not None:
            shut_down(connection)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = self._database.connect()
            self._connection.add_notice_handler(self._note)
        return self._connection

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "a warning without words")


class SpaceTerms(_Asking):
    """The terms of the spaces of a store."""

    def space(self, name: str) -> int:
        """Returns the number of a space, which is made if it is not there."""
        rows = self.ask_rows(_SPACE, name=name)
        if not rows:
            self.ask_rows(_NAME, name=name)
            rows = self.ask_rows(_SPACE, name=name)
        number = int(rows[0][0])
        self.ask_rows(_FIRST_TERM, space=number)
        return number

    def standing(self, space: int) -> Standing:
        """Returns who leads a space."""
        return self.standings([space])[space]

    def standings(self, spaces: Sequence[int]) -> dict[int, Standing]:
        """Returns who leads each of these spaces."""
        return {space: Standing(*row) for space, *row in self.ask_rows(_STANDINGS, spaces=list(spaces))}

    def ask(self, columns: str) -> Sequence[Any]:
        """Returns some columns, as of now."""
        found: Sequence[Any] = self.ask_rows(f"SELECT {columns}")[0]
        return found

    def living(self) -> list[str]:
        """Returns the name of each member whose lease lasts, and which serves clients already."""
        return [name for (name,) in self.ask_rows(_LIVING)]

    def take_space(self, space: int, seen: Standing, nonce: UUID, why: str = "") -> Fence | None:
        """Takes a space for a member; None if another one was quicker, so that the term is not ``seen``.

        ``why`` is a word about the end of the term before.

        Whether it may be taken, the caller judges.  It waits for a commit under way, and ends the connection
        that holds up the row for longer than ``LOCK_SECONDS``.
        """
        if seen.nonce == nonce:  # an earlier attempt, whose outcome was not known
            return Fence(space, seen.term, nonce)
        with self._lock:
            with self._database.translated("take over a space in"):
                pid = self._connected().info.backend_pid
            timer = threading.Timer(LOCK_SECONDS, self._end_blockers, (pid,))
            timer.daemon = True
            if not self._database.is_pooled:  # else the number is the pooler's
                timer.start()
            try:
                rows = self.ask_rows(
                    _TAKE, space=space, term=seen.term, before=seen.nonce, nonce=nonce, why=why
                )
            finally:
                timer.cancel()
        return Fence(space, int(rows[0][0]), nonce) if rows else None

    def give_up(self, fence: Fence, wanted: str | None = None) -> None:
        """Ends a term, for the member ``wanted`` or any other to take the space at once."""
        self.ask_rows(_GIVE_UP, space=fence.space, term=fence.term, nonce=fence.nonce, wanted=wanted)

    def want(self, space: int, wanted: str) -> None:
        """Asks the leader of a space to hand it over to this member."""
        self.ask_rows(_WANT, space=space, wanted=wanted)

    def _end_blockers(self, pid: int) -> None:
        """Ends the connections that a connection waits for: a stopped program, or a commit that waits for a
        standby, which its daemon then does not acknowledge."""
        with suppress(LogFailed), self._database.translated("end a connection to"):
            with self._database.connect() as connection:
                connection.execute(self._database.statement(_BLOCKERS), {"pid": pid})
