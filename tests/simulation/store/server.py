"""A store in memory, in place of PostgreSQL: what comes to it when, what is on disk, what a failover keeps.

A statement is one step at an instant after it was sent.  A fenced write is two: first it looks, and locks the
row of its term; then it is on the disk of the primary, and once the standby has it, others see it and the
lock is gone.  So is the row of the term locked in PostgreSQL, and so is a commit there before anybody sees
it.  Statements about members and terms wait for no standby.

Answers may be late, or lost before the statement had an effect, or after.  A restart ends all connections;
all that was on the disk is seen afterwards.  A failover goes on with the copy that the standby has, or with
one that lacks some commits.

Always: what is seen was written by one statement after the other; a copy is a prefix of what was on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import psycopg
import trio
from psycopg.pq import ExecStatus

from relay.store.postgres.database import _COMMITS, _MOMENT
from relay.store.postgres.schema import quoted
from tests.simulation.hosts import Host, here, outside
from tests.simulation.store.rows import (
    EMPTY,
    EXCLUSIVE,
    NUMBERED,
    PLAIN,
    READS,
    SYNCHRONOUS,
    Change,
    Content,
    FencedWrite,
    changed,
    named,
    segment_values,
)
from tests.simulation.store.threads import Wait, check_alive, current, pass_time, present

TIMEOUT: Final = 3.0
"""Seconds after which a connection to a silent store is given up, as by ``tcp_user_timeout``."""

LOST: Final = "server closed the connection unexpectedly"


def _calm() -> float:
    return 0.0


class Store:
    """The database, as all processes share it."""

    def __init__(
        self,
        now: Callable[[], float],
        random: Random | None = None,
        *,
        delay: Callable[[], float] = _calm,
        loss: float = 0.0,
        trace: Callable[..., None] = lambda *_: None,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``loss`` is how often an answer is lost."""
        self._now = now
        self.random: Final = random or Random(0)
        self._delay = delay
        self.slow = 0.0
        """Seconds by which all is late, about."""
        self.loss: Final = loss
        self.trace: Final = trace
        self.count: Final = count
        self.offset = 0.0
        """Seconds by which its clock is wrong."""
        self.log: list[Sequence[Change]] = []
        """What was written, in the order in which it came to the disk."""
        self.written: Content = EMPTY
        """What is on the disk of the primary."""
        self.seen: Content = EMPTY
        self.copied = 0
        """So many entries of the log the standby has."""
        self.is_up = True
        self.is_full = False
        self.has_standby = True
        self.numbers = 0
        self.life = 0
        """How often it was started."""
        self.barred: dict[str, int] = {}
        """Hosts from which nothing comes here, and to which nothing goes; how often each is barred."""
        self.sessions: dict[int, Connection] = {}
        """Open connections, by the process that serves each."""
        self.active: dict[Request, None] = {}
        """Statements that are under way."""
        self.pids = 0
        self.changed: Final = trio.lowlevel.ParkingLot()
        """Wakes what waits for a lock, a standby, a link or the store."""
        self._shown: set[int] = set()
        """The places in the log of what others see."""
        self.went_back = False
        """True once a failover has lost segments that somebody may have seen."""
        self.lost_acknowledged = False
        """True once it has lost segments that the standby had as well."""

    def time(self) -> float:
        """Returns its clock, in seconds since 1970."""
        return self._now() + self.offset

    def delay(self) -> float:
        """Returns how long something takes to come here, to be done, or to go back."""
        return self._delay() + (self.random.expovariate(1 / self.slow) if self.slow > 1e-9 else 0.0)

    # -- connections ----------------------------------------------------------------------------------

    def connect(self, **_parameters: object) -> Connection:
        """Returns a new connection of the present host; in place of ``psycopg.connect``."""
        connection = Connection(self, here())
        connection.ask(None)
        self.pids += 1
        connection.pid = self.pids
        self.sessions[self.pids] = connection
        return connection

    def reaches(self, host: Host | None) -> bool:
        """True if a host and the store reach each other."""
        return self.is_up and (host is None or not self.barred.get(host.name))

    def bar(self, host: str) -> None:
        """Cuts a host off."""
        self.barred[host] = self.barred.get(host, 0) + 1

    def admit(self, host: str) -> None:
        """Ends one ``bar``."""
        self.barred[host] = self.barred.get(host, 1) - 1
        self.changed.unpark_all()

    # -- what is on disk ------------------------------------------------------------------------------

    def write(self, changes: Sequence[Change]) -> int:
        """Puts changes on the disk of the primary, where nobody sees them yet; returns their place."""
        self.log.append(changes)
        self.written = changed(self.written, changes)
        return len(self.log)

    def show(self, place: int, changes: Sequence[Change]) -> None:
        """Has everybody see the changes at a place of the log."""
        self._shown.add(place)
        self.seen = changed(self.seen, changes)

    def replay(self, upto: int) -> None:
        """Goes on with a copy of so much of the log."""
        self.log = self.log[:upto]
        self._shown = {place for place in self._shown if place <= upto}
        self.copied = upto
        content = EMPTY
        for changes in self.log:
            content = changed(content, changes)
        self.written = self.seen = content

    def mend(self) -> None:
        """Ends all that is wrong with it."""
        self.has_standby, self.is_full, self.slow = True, False, 0.0
        self.barred.clear()
        if not self.is_up:
            self.start()
        self.changed.unpark_all()

    # -- faults ---------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends all connections; until ``start`` there is no store."""
        self.is_up = False
        for connection in list(self.sessions.values()):
            connection.leave()
        for request in list(self.active):
            request.connection.leave()
            request.end(LOST)
        self.changed.unpark_all()

    def start(self) -> None:
        """Recovers what is on the disk."""
        self.life += 1
        self.seen = self.written
        self._shown.update(range(1, len(self.log) + 1))
        self.is_up = True
        self.trace("store", "started", len(self.log))
        self.changed.unpark_all()

    def fail_over(self, lacking: int = 0) -> None:
        """Goes on with the copy of the standby, or with one that lacks so many commits of segments."""
        # The numbers of the spaces, which daemons keep in memory, are lost in no life.
        made = [at for at, each in enumerate(self.log, 1) if any(table == "spaces" for table, *_ in each)]
        upto, lost = self.random.randint(max(self.copied, *made[-1:], 0), len(self.log)), 0
        places = [at for at in range(self.copied) if _has_segments(self.log[at])]
        if lacking and len(places) > lacking:
            upto, lost = places[-lacking], lacking
        gone = [at + 1 for at in range(upto, len(self.log)) if _has_segments(self.log[at])]
        self.went_back |= bool(self._shown.intersection(gone))
        self.lost_acknowledged |= lost > 0
        self.trace("store", "fails over to", upto, "of", len(self.log), "without", lost)
        self.replay(upto)

    def terminate(self, pid: int) -> None:
        """Ends the connections for which that of ``pid`` waits."""
        waiting = [each for each in self.active if each.connection.pid == pid]
        for each in [each for request in waiting for each in self.holders(request.space)]:
            if each not in waiting:
                self.count("TERMINATED")
                each.connection.leave()
                each.end("terminating connection due to administrator command")

    def holders(self, space: int | None) -> list[Request]:
        """Returns the requests that hold the row of a term."""
        return [each for each in self.active if each.holds is not None and each.holds == space]


def _has_segments(changes: Sequence[Change]) -> bool:
    return any(table == "segments" and row for table, _, row in changes)


class Request(Wait):
    """One statement, from its sending to its answer; None connects."""

    def __init__(self, connection: Connection, text: str | None, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.connection: Final = connection
        self._store: Final = connection.store
        self._text = text
        self._values = values
        self.space: int | None = values.get("space") if text in EXCLUSIVE else None
        """The space whose term it changes."""
        self.holds: int | None = None
        """The space whose term it has locked."""
        self.is_over = False
        """The store does nothing more for it."""
        self.answer: list[Any] = []
        self.error: psycopg.Error | None = None
        self._fenced = FencedWrite(text, values) if text and FencedWrite.is_one(text) else None
        self._term = 0
        self._changes: Sequence[Change] = ()
        self._place = 0
        self._has_begun = False

    # -- what the store does --------------------------------------------------------------------------

    def begin(self) -> bool:
        """Looks, and takes its lock; a statement without a fence is over then.  False if it must wait."""
        store, connection = self._store, self.connection
        if self.space is not None and [each for each in store.holders(self.space) if each is not self]:
            store.count("LOCKED")
            return False
        self._has_begun = True
        content = connection.moment or store.seen
        if self._text is None:
            return self._finish()
        if self._fenced is None:
            self._run(self._text, content)
            return self._finish()
        leads, led, self._term = self._fenced.begin(content)
        self.answer = [(leads, led)]
        if not led:
            return self._finish()
        if self._fenced.locks:
            self.holds = self._values["led"]
        return True

    def flush(self) -> None:
        """Has a fenced write on the disk of the primary."""
        store = self._store
        assert self._fenced is not None  # others are over before
        if store.is_full:
            store.count("STORE_FULL")
            self._fail(psycopg.errors.DiskFull("could not extend file: No space left on device"))
            return
        try:
            self._changes = self._fenced.changes(store.written, self._term)
        except psycopg.errors.UniqueViolation as error:
            self._fail(error)
            return
        self._place = store.write(self._changes)

    def show(self) -> None:
        """Has everybody see a write, since the standby has it."""
        self._store.copied = max(self._store.copied, self._place)
        self._store.show(self._place, self._changes)
        self._finish()

    def _run(self, text: str, content: Content) -> None:
        store, connection, v = self._store, self.connection, self._values
        if text == _MOMENT:
            connection.moment = content
        elif text == "COMMIT":
            connection.moment = None
        elif text == _COMMITS:
            self.answer = [("on", "on", connection.pid)]
        elif text in READS:
            self.answer = READS[text](content, v)
        elif text in PLAIN:
            store.numbers += text in NUMBERED
            self.answer, self._changes = PLAIN[text](content, v, store.time(), store.numbers)
            if self._changes:
                self._place = store.write(self._changes)
                store.show(self._place, self._changes)
            if text in SYNCHRONOUS:
                store.copied = max(store.copied, self._place or len(store.log))
        elif "pg_terminate_backend" in text:
            store.terminate(v["pid"])
        elif not text.startswith("SET synchronous_commit"):
            raise NotImplementedError(f"the simulated store does not know {text!r}")

    def _fail(self, error: psycopg.Error) -> None:
        self.error = error
        self._finish()

    def _finish(self) -> bool:
        self.is_over, self.holds = True, None
        self._store.active.pop(self, None)
        self._store.changed.unpark_all()
        return True

    def end(self, why: str) -> None:
        """Ends it on both sides; what is on disk is seen from now on, although its standby may lack it."""
        if not self.is_over:
            if self._place:
                self._store.count("UNCONFIRMED")
                self._store.show(self._place, self._changes)
            self._finish()
        self.lose(why)

    def lose(self, why: str) -> None:
        """Its client gets no answer."""
        if self.error is None:
            self.error = psycopg.OperationalError(why)
        self.set()

    # -- the way there and back -----------------------------------------------------------------------

    async def serve(self) -> None:
        """Has it go its way."""
        store, random = self._store, self._store.random
        await trio.sleep(store.delay())
        fate = random.random() if self._text else 1.0
        if fate < store.loss / 2 or not await self._passes():
            store.count("LOST_BEFORE")
            self.connection.leave()
            self.lose(LOST)
            self._finish()
            return
        while not self.is_over and self._text in SYNCHRONOUS and not store.has_standby:
            await store.changed.park()
        while not self.is_over and not self._has_begun and not self.begin():
            await store.changed.park()
        if not self.is_over:
            await trio.sleep(store.delay())
        if not self.is_over:
            self.flush()
            await trio.sleep(store.delay())
        while not self.is_over and not store.has_standby:
            await store.changed.park()
        if not self.is_over:
            self.show()
        await trio.sleep(store.delay())
        if fate < store.loss or not await self._passes():
            store.count("LOST_AFTER")
            self.connection.leave()
            self.lose(LOST)
        self.set()

    async def _passes(self) -> bool:
        """Returns once something passes between its host and the store; False if that takes too long."""
        store, host = self._store, self.connection.host
        with trio.move_on_after(TIMEOUT):
            while not store.reaches(host):
                if not store.is_up:
                    return False  # nobody listens
                await store.changed.park()
            return True
        return False

    def force(self) -> None:
        """Has it done in no time."""
        store = self._store
        waits = not store.has_standby and (self._fenced is not None or self._text in SYNCHRONOUS)
        if waits or not store.reaches(self.connection.host):
            self.connection.leave()
            self.end(LOST)
            return
        if not self.is_over and not self._has_begun and not self.begin():
            for each in store.holders(self.space):
                each.force()
            self.begin()
        if not self.is_over and not self._place:
            self.flush()
        if not self.is_over:
            self.show()
        self.set()


class _Cursor:
    """An answer."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows
        self.description: object = True
        self.rowcount = len(rows)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None


class Libpq:
    """A connection as libpq has it; a statement that fails raises what psycopg makes of its result."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def prepare(self, _name: bytes, text: bytes, _types: object) -> _Result:
        """Keeps the statement for ``exec_prepared``."""
        self._connection.prepared = text.decode()
        return _Result(0)

    def exec_prepared(self, _name: bytes, values: Sequence[bytes], _formats: object) -> _Result:
        """Runs the statement."""
        found = self._connection.execute(self._connection.prepared, segment_values(values))
        return _Result(found.fetchall()[0][1])


class _Result(NamedTuple):
    command_tuples: int
    status: int = ExecStatus.COMMAND_OK


class Connection:
    """A connection, as psycopg has them."""

    prepared = ""
    """The statement that is prepared on it."""

    def __init__(self, store: Store, host: Host | None) -> None:
        self.store: Final = store
        self.host: Final = host
        self.pid = 0
        self.moment: Content | None = None
        """What it reads, within a transaction."""
        self.request: Request | None = None
        self.closed = False
        self.prepare_threshold: int | None = 5

    @property
    def pgconn(self) -> Libpq:
        """Returns what libpq has of it."""
        return Libpq(self)

    @property
    def info(self) -> Connection:
        """Itself."""
        return self

    @property
    def backend_pid(self) -> int:
        """Returns the number of the process that serves it."""
        return self.pid

    def add_notice_handler(self, handler: Callable[[Any], None]) -> None:
        """It has no notices."""

    def execute(self, text: str, values: Any = None, *, binary: bool = False) -> _Cursor:
        """Runs a statement."""
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        given = values if isinstance(values, Mapping) else {}
        return _Cursor(self.ask(named(text, quoted(self.store_schema)), given))

    store_schema = "dataspace"

    def ask(self, text: str | None, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Sends a statement, and returns its answer."""
        if self.host is not None:
            check_alive(self.host)
        self.request = request = Request(self, text, values or {})
        self.store.active[request] = None
        threads = current()
        if present() is None or threads is None:
            request.force()
        else:
            with outside():
                threads.nursery.start_soon(request.serve)
            pass_time(request)
        self.request = None
        if request.error is not None:
            if isinstance(request.error, psycopg.OperationalError):
                self.leave()
            raise request.error
        return request.answer

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def shut_down(self) -> None:
        """Ends it from this side: the store goes on with what has reached it."""
        self.leave()
        if self.request is not None:
            self.request.lose("the connection was shut down")

    def leave(self) -> None:
        """It is of no use any more."""
        self.closed = True
        self.store.sessions.pop(self.pid, None)

    def close(self) -> None:
        """Closes it."""
        self.leave()
