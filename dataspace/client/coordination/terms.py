"""Terms: a lease of its own, and until when its holder may believe that it still runs.

The daemon ends a lease that is not renewed for so many seconds.  A holder that was stopped, or cut off, must
stop believing before that, by its own clock and without an answer.  So the deadline is counted from the
moment *before* a renewal was sent whose answer has come: the daemon has received it later, and keeps the
lease for at least that long.  A fifth of the time is left out: a clock may be a quarter too slow.

The clock goes on while the machine is suspended, where the system has such a clock.

Always: a term that is lost stays lost, whatever is answered later; ``lost`` is set, and ``valid`` is false,
before the daemon may end the lease.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Final

from dataspace.client.session.session import ClientSession
from dataspace.errors import Broken, DataspaceError, LockLost, Refused, UsageError
from dataspace.loops.here import loop
from index.values.values import Map

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
            try:
                await self._session.request("lease", self._about)
            except Broken:
                if not self._session.is_open:
                    raise
                continue  # requested again after the client has reconnected
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
