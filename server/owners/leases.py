"""Leases: owners whose facts stay for as long as they are renewed, whichever client is connected.

A lease outlives connections and restarts of the daemon, but not its time, so the facts of a client that never
returns need no cleaning up.  Its name contains its time to live, ``lease:10000:NAME`` with milliseconds, so
that the log needs no further record of it: a daemon that finds facts of a lease begins its time again.

A lease belongs to the bearer that it was granted to, which its name ends with (``bearers``).

Always: facts are asserted for granted leases only, so that a client that was away for too long gets an error
before anything else is done for it; a lease that ends retracts all it owned.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import trio

from dataspace.errors import Refused
from server.config.principals import NAME_BYTES, check_name
from server.lane import input_handled
from server.owners.accounts import Account
from server.owners.bearers import LEASE as PREFIX

logger = logging.getLogger("dataspace")

AGAIN_SECONDS: Final = 1.0
"""Seconds until an owner that could not be ended is due again."""


class Owners(Protocol):
    """The space as leases use it."""

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts all claims of these owners: in one turn, or in several if they are very many."""

    def end_soon(self, owners: Sequence[str]) -> None:
        """Like ``end_owners``, but with ``end_due`` or before the next turn, all of those in one turn."""

    def end_due(self) -> None:
        """Retracts what owners claim for which ``end_soon`` was called, or begins to where that is much."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


class Deadlines:
    """Owners by the time at which they end; ``run`` calls ``expired`` with the owners that are due
    together.

    A suspended session and a lease that is not renewed both end at a certain time, and both are renewed far
    more often than they end.  So a renewal writes one number, and the heap is corrected only when the earlier
    time has come.

    Always: ``expired`` is called with each owner once that was not renewed or forgotten, not before its time,
    and after what was in the sockets at that time, which may renew it; one entry of the heap for each owner
    that is known.  After an error it is called again, with each owner alone, so that a defect about one
    owner holds back no other owner; ``expired`` must bear that some owners have ended.
    """

    __slots__ = ("_changed", "_deadlines", "_expired", "_heap", "_queued")

    def __init__(self, expired: Callable[[Sequence[str]], None]) -> None:
        self._expired = expired
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._queued: set[str] = set()
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, owner: str) -> bool:
        return owner in self._deadlines

    def renew(self, owner: str, deadline: float) -> None:
        """Sets the deadline of an owner, in trio's time; O(1) for a known one, else O(log owners)."""
        self._deadlines[owner] = deadline
        if owner not in self._queued:
            heapq.heappush(self._heap, (deadline, owner))  # before it is known: a second entry does no harm
            self._queued.add(owner)
            self._changed.set()

    def forget(self, owner: str) -> None:
        """Removes the deadline of an owner."""
        self._deadlines.pop(owner, None)

    async def run(self) -> None:
        """Ends owners in time, until cancelled."""
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else math.inf):
                await self._changed.wait()
            now = trio.current_time()
            if self._heap and self._heap[0][0] <= now:
                await input_handled()
                self._end_those_due(now)

    def _end_those_due(self, now: float) -> None:
        try:
            if due := self._take_due(now):
                self._expire(due, now)
        except Exception:  # a fence around all owners: the heap is made anew, and the task begins again
            self._heap = [(deadline, owner) for owner, deadline in self._deadlines.items()]
            heapq.heapify(self._heap)
            self._queued = set(self._deadlines)
            raise

    def _take_due(self, now: float) -> list[str]:
        """Removes from the heap the owners that are due, and returns them; their deadlines stay."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            _, owner = heapq.heappop(self._heap)
            deadline = self._deadlines.get(owner)
            if deadline is not None and deadline > now:
                heapq.heappush(self._heap, (deadline, owner))
                continue
            self._queued.discard(owner)
            if deadline is not None:
                due.append(owner)
        return due

    def _expire(self, owners: Sequence[str], now: float) -> None:
        """Calls ``expired``, and where it raises with each owner alone, then raises the last error.  An owner
        for which it still raises is due again soon."""
        try:
            for owner in owners:
                self._deadlines.pop(owner, None)
            self._expired(owners)
            return
        except Exception as error:  # noqa: BLE001  # a fence around one owner: it is raised behind the others
            last = error
        for owner in owners:
            try:
                self._expired([owner])
            except Exception as error:  # noqa: BLE001  # as above
                last = error
                self.renew(owner, now + AGAIN_SECONDS)
        raise last


class Leases:
    """The leases of a space, by owner: at most ``most``, each of at most ``longest`` seconds."""

    def __init__(self, owners: Owners, *, most: int, longest: float, name_bytes: int = NAME_BYTES) -> None:
        self._owners = owners
        self._name_bytes = name_bytes
        self._accounts: dict[str, Account] = {}
        self._most = most
        self._longest = longest
        self._running: Final = Deadlines(self._expire)

    def relimit(self, *, most: int, longest: float) -> None:
        """Changes how many there may be, and for how many seconds each is granted at most."""
        self._most, self._longest = most, longest

    def __len__(self) -> int:
        return len(self._running)

    def recover(self, owners: Iterable[str]) -> None:
        """Begins the whole time of every lease among these owners, which the log has facts of."""
        for owner in owners:
            if owner.startswith(PREFIX):
                self._renew(owner)

    async def run(self) -> None:
        """Ends leases that are not renewed, until cancelled."""
        await self._running.run()

    def grant(self, owner: str, account: Account | None = None) -> bool:
        """Begins a lease, or renews a running one; returns True if it is a new one.

        A new one counts for the ``account``, if there is one, until it ends.
        """
        time_to_live(owner, most=self._longest)
        check_name("a lease", owner, self._name_bytes)
        fresh = owner not in self._running
        if fresh and len(self._running) >= self._most:
            raise Refused("limit", f"{len(self._running)} leases, the limit is limits.leases={self._most}")
        if fresh and account is not None:
            account.reserve("leases")
            self._accounts[owner] = account
        self._renew(owner)
        return fresh

    def renew(self, owner: str) -> None:
        """Renews a lease; raises ``Refused("no-lease")`` for a lease that has ended or was never granted."""
        if owner not in self._running:
            raise Refused("no-lease", f"{owner} has ended, or was never granted")
        self._renew(owner)

    def release(self, owner: str) -> None:
        """Ends a lease now; does nothing if there is none."""
        if owner in self._running:
            self._running.forget(owner)
            self._forget(owner)
            self._owners.end_owners([owner])

    def clear(self) -> None:
        """Counts no lease any more, for any account: they go on at another daemon."""
        for owner in [*self._accounts]:
            self._forget(owner)

    def _forget(self, owner: str) -> None:
        account = self._accounts.pop(owner, None)
        if account is not None:
            account.release("leases")

    def _renew(self, owner: str) -> None:
        seconds = time_to_live(owner, most=self._longest)
        self._running.renew(owner, trio.current_time() + seconds)

    def _expire(self, owners: Sequence[str]) -> None:
        for owner in owners:
            logger.info("%s was not renewed", owner)
            self._forget(owner)
            self._owners.end_soon([owner])
        self._owners.end_due()
        self._owners.flush()


def time_to_live(owner: str, *, most: float) -> float:
    """Returns the seconds in ``lease:MILLISECONDS:NAME``; raises ``Refused`` for another form.

    >>> time_to_live("lease:2500:backup", most=60.0)
    2.5
    """
    millis, _, name = owner.removeprefix(PREFIX).partition(":")
    if not (owner.startswith(PREFIX) and millis.isascii() and millis.isdecimal() and name):
        raise Refused("bad-request", f"a lease is named lease:MILLISECONDS:NAME, not {owner!r:.80}")
    if not 0 < int(millis[:18]) <= most * 1000:
        raise Refused("limit", f"lease of {millis:.18} ms, the limit is limits.lease_seconds={most:g}")
    return int(millis) / 1000
