"""Locks and elections: one holder at a time, with a token that rises.

A lock is the fact ``lock(NAME, WHO, TERM)``.  It belongs to a lease of its own (a ``Term``), so it outlasts a
lost connection and ends when it is not renewed; the term ties each fact to one acquisition.  It is claimed in
a turn that expects that there is none.  Waiting clients state ``contender(NAME, WHO, TERM)``, and take turns
in the order in which they came (a ``Queue``).  An election is a lock whose holder is announced, in the same
turn, as ``leader(NAME, WHO)``.

The *token* is the epoch of the claim: it is on disk, and of two holders the later one has the higher token.

Always: the lock is held only once its claim is accepted, and only while its lease surely runs; a lost lock is
never taken back, nor asserted again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final

from dataspace.client.observations import Observation
from dataspace.client.session.session import ClientSession
from dataspace.errors import Broken, DataspaceError, ExpectationFailed, LockLost, Refused, UsageError
from dataspace.facts import literally
from dataspace.kernel.actions import ASSERT, Action
from dataspace.kernel.changes import EpochChanges
from dataspace.kernel.expectations import Expectation, absent, exactly
from dataspace.loops.blocks import AsyncOnly, Unentered
from dataspace.loops.here import loop
from dataspace.loops.primitives import Event
from dataspace.streams.stages.protocol import Aborted
from dataspace.wire.observing import ObserveOptions
from index.values.freezing import freeze
from index.values.values import Map, Record, Value

TTL: Final = 10.0
"""Seconds after which the lock of a holder that does not renew it is free."""

AGAIN: Final = 32
"""The time of a lease is divided into so many parts; one part passes before another attempt."""

ANY: Final = Record("_")

CONTENDER, LOCK, LEADER = 1, 2, 3
"""Handles of the facts of one term."""


class Lock:
    """A lock, or an election, that is held; made by ``space.lock`` and ``space.elect``."""

    def __init__(
        self, session: ClientSession, name: object, me: object, ttl: float, *, announce: bool
    ) -> None:
        self.name: Final = freeze(name)
        self.me: Final = freeze(me)
        self.token = 0
        """The epoch of the claim; of two holders, the later one has the higher token."""
        self.identity = ""
        """The identity of the space: tokens of another one cannot be compared."""
        self._session: Final = session
        self._ttl = ttl
        self._announce = announce
        self._term: Term

    @property
    def lost(self) -> Event:
        """Set when the lock is lost, before another client can hold it; and when it is released."""
        return self._term.lost

    @property
    def valid(self) -> bool:
        """True while the lock is surely held; reads the clock."""
        return self.token > 0 and self._term.valid

    @property
    def remaining(self) -> float:
        """Seconds for which the lock is surely held, if it is not renewed."""
        return self._term.remaining if self.token else 0.0

    @property
    def held(self) -> Expectation:
        """What a turn expects that must happen under this lock only: that this claim still stands."""
        return exactly(Record("lock", literally(self.name), literally(self.me), self._term.id), [()])

    def check(self) -> None:
        """Raises ``LockLost`` unless the lock is surely held now."""
        self._term.check(str(self))

    def on_lost(self, call: Callable[[], None]) -> None:
        """Calls a function when the lock that is held is lost, or released; at once if it is."""
        self._term.on_lost(call)

    def __str__(self) -> str:
        return f"{'the election' if self._announce else 'the lock'} {self.name!r:.80}"

    # -- taking it -------------------------------------------------------------------------------------

    async def acquire(self, timeout: float | None = None) -> None:
        """Waits until the lock is held; raises ``TimeoutError`` after so many seconds."""
        if timeout is None:
            await self._acquire()
            return
        with loop().move_on_after(timeout):
            await self._acquire()
            return
        raise TimeoutError(f"{self} is still held by another client after {timeout:g} s")

    async def _acquire(self) -> None:
        while True:
            term = self._term = Term(self._session, self._ttl)
            try:
                await term.begin()
                self._session.start_soon(term.keep)
                token = await self._attempt(term)
                if token is not None and term.valid:
                    welcome = self._session.welcome
                    assert welcome is not None  # else nothing could be claimed
                    self.token, self.identity = token, welcome.space
                    return
            except Refused as refusal:
                if refusal.code != "no-lease":  # the lease ended while this client waited
                    await term.end()
                    raise
            except BaseException:
                await term.end()
                raise
            await term.end()
            await loop().sleep(self._ttl / AGAIN)

    async def _attempt(self, term: Term) -> int | None:
        """Returns the epoch of the claim; None if this client must begin again, behind all others."""
        nobody = [absent(self._pattern("lock")), absent(self._pattern("contender"))]
        enter = (ASSERT, CONTENDER, self._fact("contender", term))
        try:
            return await self._submit(term, [enter, *self._claim(term)], nobody)
        except ExpectationFailed:
            return await self._queue(term, enter)

    async def _queue(self, term: Term, enter: Action) -> int | None:
        queue = Queue(term.id)
        contenders = ObserveOptions.of(self._pattern("contender"), quiet=True)
        observation = Observation(self._session, contenders, None)
        observation.open()
        # Its end need not be told: where its fact came and went in a gap, nothing is.
        term.on_lost(observation.close)
        try:
            await self._submit(term, [enter], [])
            async for epoch in observation.epochs():
                queue.take(epoch)
                while queue.is_first and not queue.is_unclear:
                    try:
                        free = [absent(self._pattern("lock"))]
                        return await self._submit(term, self._claim(term), free)
                    except ExpectationFailed as failure:
                        queue.wait_for(failure.rows)
                        if queue.is_first:  # the end of that holder was lost with a daemon; this will be told
                            await loop().sleep(self._ttl / AGAIN)
                if queue.is_out or queue.is_unclear:
                    return None
            return None
        except Aborted:
            return None  # the lease was lost
        finally:
            observation.close()

    def _claim(self, term: Term) -> list[Action]:
        claim: list[Action] = [(ASSERT, LOCK, self._fact("lock", term))]
        if self._announce:
            claim.append((ASSERT, LEADER, Record("leader", self.name, self.me)))
        return claim

    async def _submit(self, term: Term, actions: list[Action], expected: list[Expectation]) -> int:
        ticket = await self._session.submit(tuple(actions), tuple(expected), owner=term.owner)
        return await ticket.wait()

    def _fact(self, label: str, term: Term) -> Record:
        return Record(label, self.name, self.me, term.id)

    def _pattern(self, label: str) -> Record:
        return Record(label, literally(self.name), _capture("who"), _capture("term"))

    # -- the end ---------------------------------------------------------------------------------------

    async def release(self) -> None:
        """Gives the lock up; if the connection is lost, it is free once its time is over."""
        await self._term.end()


class Held(AsyncOnly, Unentered):
    """Holds a lock for as long as an ``async with`` block runs, which is cancelled if the lock is lost."""

    def __init__(
        self,
        session: ClientSession,
        name: object,
        me: object,
        *,
        ttl: float,
        timeout: float | None,
        announce: bool = False,
    ) -> None:
        verb = "elect" if announce else "lock"
        self._usage = f"async with space.{verb}(…) as lock"
        self.lock: Final = Lock(session, name, me, ttl, announce=announce)
        self._timeout = timeout
        self._block = self._hold()

    async def take(self) -> None:
        """Waits until the lock is held; raises ``TimeoutError`` where that takes too long."""
        await self.lock.acquire(self._timeout)

    @asynccontextmanager
    async def _hold(self) -> AsyncIterator[Lock]:
        await self.take()
        try:
            with loop().scope() as scope:
                self.lock.on_lost(scope.cancel)
                yield self.lock
            self.lock.check()
        finally:
            await self.lock.release()

    async def __aenter__(self) -> Lock:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)


def _capture(name: str) -> Record:
    return Record("$", name, None, ANY)


# -- queues ----------------------------------------------------------------------------------------
#
# Each contender states a fact, and observes the facts of the others. Contenders whose facts were there when
# its own appeared are ahead of it, and no others: so contenders need no numbers, and no two are each ahead of
# the other. The contenders ahead only become fewer, but for a holder that was found; where the order is not
# known, because epochs came as one, ``is_unclear`` is true, and the contender must begin again, behind all
# others.


class Queue:
    """Those before one contender, by their terms."""

    def __init__(self, mine: str) -> None:
        self._mine = mine
        self._ahead: set[Value] = set()
        self._gone: set[Value] = set()
        self._is_in = False
        self.is_out = False
        """True once the contender's own fact has gone."""
        self.is_unclear = False

    @property
    def is_first(self) -> bool:
        """True while this contender waits, and nothing is ahead of it."""
        return self._is_in and not self.is_out and not self._ahead

    def take(self, epoch: EpochChanges) -> None:
        """Takes in one epoch of ``contender(NAME, $who, $term)``."""
        came = [row[1] for row in epoch.added]
        if self._mine in came and len(came) > 1:
            self.is_unclear = True
        self._gone.difference_update(came)  # back, since a daemon that was killed had not written its end
        for term in came:
            if term == self._mine:
                self._is_in = True
            elif not self._is_in:
                self._ahead.add(term)
        for _, term in epoch.removed:
            self._ahead.discard(term)
            self._gone.add(term)
            self.is_out |= term == self._mine

    def wait_for(self, rows: Iterable[tuple[Value, ...]]) -> None:
        """Waits for holders that were found, unless they are known to have gone."""
        self._ahead.update([row[1] for row in rows if row[1] not in self._gone])


# -- terms -----------------------------------------------------------------------------------------
#
# The daemon ends a lease that is not renewed for so many seconds. A holder that was stopped, or cut off, must
# stop believing before that, by its own clock and without an answer. So the deadline is counted from the
# moment *before* a renewal was sent whose answer has come: the daemon has received it later, and keeps the
# lease for at least that long. A fifth of the time is left out: a clock may be a quarter too slow. The clock
# goes on while the machine is suspended, where the system has such a clock. A term that is lost stays lost,
# whatever is answered later; ``lost`` is set, and ``valid`` is false, before the daemon may end the lease.


BELIEVED: Final = 0.8
"""The part of a lease's time, counted from before it was renewed, for which it is believed to run."""

RENEWALS: Final = 4
"""How often a lease is renewed in its time."""

RELEASE_SECONDS: Final = 1.0
"""Seconds that the end of a term waits for its answer; the lease ends by itself else."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time() -> float:
    """Returns seconds by a clock that only rises, while the machine is suspended as well."""
    return time.clock_gettime(_CLOCK)


class Term:
    """One lease, for ``seconds`` after each renewal; begun with ``begin``, renewed by ``keep``."""

    def __init__(
        self, session: ClientSession, seconds: float, *, clock: Callable[[], float] | None = None
    ) -> None:
        if not 0.01 <= seconds <= 86_400:
            raise UsageError(f"ttl is in seconds, from 0.01 to 86400, not {seconds!r:.40}")
        self.id: Final = uuid.uuid4().hex
        self.owner: Final = f"lease:{max(1, round(seconds * 1000))}:term-{self.id}"
        self.lost: Final = loop().event()
        self.reason = ""
        self._session = session
        self._seconds = seconds
        self._clock = clock or boot_time
        self._about = Map({"owner": self.owner})
        self._renewed = self._until = -1.0
        self._scope = loop().scope()
        self._calls: list[Callable[[], None]] = []

    @property
    def remaining(self) -> float:
        """Seconds for which the lease surely runs; 0 once it is lost."""
        left = self._until - self._clock()
        if left <= 0 and not self.lost.is_set():
            self.lose(f"not renewed within {self._seconds:g} s")
        return 0.0 if self.lost.is_set() else left

    @property
    def valid(self) -> bool:
        """True while the lease surely runs, by the clock of now."""
        return self.remaining > 0

    def check(self, what: str) -> None:
        """Raises ``LockLost`` unless the lease surely runs now."""
        if not self.valid:
            raise LockLost(f"{what} was lost: {self.reason}")

    def on_lost(self, call: Callable[[], None]) -> None:
        """Calls a function when the term is lost, at once if it is."""
        if self.lost.is_set():
            call()
        else:
            self._calls.append(call)

    def lose(self, reason: str) -> None:
        """Notes that the lease may have ended, for good."""
        if not self.lost.is_set():
            self.reason = reason
            self.lost.set()
            for call in self._calls:
                call()

    async def begin(self) -> None:
        """Requests the lease, until it surely runs; raises ``Refused`` where it is not granted."""
        while True:
            before = self._clock()
            await self._session.request("lease", self._about)
            self._renewed, self._until = before, before + BELIEVED * self._seconds
            if self._clock() < self._until:
                return

    async def keep(self) -> None:
        """Renews the lease until it is lost, or ended; raises nothing."""
        with self._scope:
            while self.valid:
                due = self._renewed + self._seconds / RENEWALS - self._clock()
                if due > 0:
                    await loop().sleep(min(due, self.remaining))
                elif not await self._renew():
                    await loop().sleep(min(self._seconds / RENEWALS / RENEWALS, self.remaining))

    async def _renew(self) -> bool:
        """Renews the lease, or loses it; False if there was no answer."""
        before = self._clock()
        try:
            with loop().move_on_after(self.remaining):
                await self._session.request("renew", self._about)
                if self.valid:  # else the answer is too late, and says nothing of now
                    self._renewed, self._until = before, before + BELIEVED * self._seconds
                return True
        except Refused as refusal:
            self.lose(refusal.text)
        except Broken as error:
            if not self._session.is_open:
                self.lose(str(error))
        except DataspaceError as error:  # there will be no further connection
            self.lose(str(error))
        return False

    async def end(self) -> None:
        """Ends the lease, which retracts its facts and no others; if it cannot, the lease runs out."""
        self._scope.cancel()
        self.lose("it was released")
        with loop().move_on_after(RELEASE_SECONDS) as patience:
            patience.shield = True
            if self._session.is_open and self._session.uplink.up:
                try:
                    await self._session.request("release", self._about)
                except DataspaceError:
                    pass  # the connection was lost: nothing renews the lease any more
