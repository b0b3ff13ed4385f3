"""Locks and elections: one holder at a time, with a token that rises.

A lock is the fact ``lock(NAME, WHO, TERM)``.  It belongs to a lease of its own (``terms``), so it outlasts a
lost connection and ends when it is not renewed; the term ties each fact to one acquisition.  It is claimed in
a turn that expects that there is none.  Waiting clients state ``contender(NAME, WHO, TERM)``, and take turns
in the order in which they came (``queues``).  An election is a lock whose holder is announced, in the same
turn, as ``leader(NAME, WHO)``.

The *token* is the epoch of the claim: it is on disk, and of two holders the later one has the higher token.

Always: the lock is held only once its claim is accepted, and only while its lease surely runs; a lost lock is
never taken back, nor asserted again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final

from dataspace.client.coordination.ports import Coordinated
from dataspace.client.coordination.queues import Queue
from dataspace.client.coordination.terms import Term
from dataspace.client.session.session import ClientSession
from dataspace.errors import ExpectationFailed, Refused
from dataspace.facts import literally
from dataspace.kernel.actions import ASSERT, Action
from dataspace.kernel.expectations import Expectation, absent, exactly
from dataspace.loops.here import loop
from dataspace.loops.primitives import Event
from index.values.freezing import freeze
from index.values.values import Record

TTL: Final = 10.0
"""Seconds after which the lock of a holder that does not renew it is free."""

AGAIN: Final = 32
"""The time of a lease is divided into so many parts; one part passes before another attempt."""

ANY: Final = Record("_")

CONTENDER, LOCK, LEADER = 1, 2, 3
"""Handles of the facts of one term."""


class Lock:
    """A lock, or an election, that is held; made by ``space.lock`` and ``space.elect``."""

    def __init__(self, space: Coordinated, name: object, me: object, ttl: float, *, announce: bool) -> None:
        self.name: Final = freeze(name)
        self.me: Final = freeze(me)
        self.token = 0
        """The epoch of the claim; of two holders, the later one has the higher token."""
        self.identity = ""
        """The identity of the space: tokens of another one cannot be compared."""
        self._space = space
        self._session: Final[ClientSession] = space.session
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
        observation = self._space.watch(self._pattern("contender"))
        observation.open()
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


class Held:
    """Holds a lock for as long as an ``async with`` block runs, which is cancelled if the lock is lost."""

    def __init__(
        self,
        space: Coordinated,
        name: object,
        me: object,
        *,
        ttl: float,
        timeout: float | None,
        announce: bool = False,
    ) -> None:
        self.lock: Final = Lock(space, name, me, ttl, announce=announce)
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
