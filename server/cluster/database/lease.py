"""The lease of a daemon, renewed by a thread of its own, since the loop is busy while a log is recovered.

A second thread confirms each renewal by a commit that waits for the synchronous standby of the database, if
it has one.
While that is away the lease goes on, so that this daemon leads on once it is back; but nobody can tell
whether the standby was promoted elsewhere, so this daemon is not sure to lead.

Each renewal brings the database's clock, by which epochs have their times, and what the database promises of
acknowledged turns.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from time import CLOCK_BOOTTIME, clock_gettime, time_ns
from typing import TYPE_CHECKING, Final

from relay.store.errors import LogDamaged, LogFailed
from relay.store.levels import FIRST
from server.cluster.database.cluster_state import StoreView

if TYPE_CHECKING:
    from relay.store.postgres.durability import Durability
    from relay.store.postgres.members import Confirmations, Membership, Renewal

logger = logging.getLogger("dataspace")

MARGIN: Final = 0.1
"""The part of a lease before whose end it counts as ended here."""

LATE: Final = 1 / 3
"""The part of a lease in which a renewal is late: the first attempt has failed, or was slow."""

FAR_MICROSECONDS: Final = 1_000_000
"""A difference between two clocks that is worth a line of the log."""


def wall() -> int:
    """Returns the time of this machine in microseconds since 1970 UTC."""
    return time_ns() // 1000


def corrected(ahead: int, asked: int, answered: int, theirs: int) -> int:
    """Returns by how much another clock is ahead of ours, changed no more than an answer demands.

    It read ``theirs`` at some moment between ``asked`` and ``answered`` by our clock, so clocks that agree
    are not corrected, however long an answer takes.

    >>> corrected(0, 100, 200, 150), corrected(0, 100, 200, 1000), corrected(0, 100, 200, 50)
    (0, 800, -50)
    """
    return min(max(ahead, theirs - answered), theirs - asked)


class MemberLease:
    """Renews the lease of a member, every third of it."""

    def __init__(
        self,
        member: Membership,
        confirmations: Confirmations | None = None,
        before: MemberLease | None = None,
    ) -> None:
        """Without ``confirmations`` the lease is never sure.  ``before`` is the lease of this daemon that has
        ended."""
        self._member: Final = member
        self._confirmations: Final = confirmations
        self._confirmed_until = 0.0
        self.view: StoreView | None = None
        """The store as the latest renewal has seen it; None for a member that does not ask for that."""
        self._renewal: Renewal | None = None
        """The latest renewal."""
        self._unconfirmed: Final = threading.Event()
        self._confirming: Final = threading.Thread(target=self._confirm, name="confirmation", daemon=True)
        self._until = 0.0
        self._due: Final = threading.Event()
        self._is_over = False
        self._warned: set[str | tuple[str, str]] = set()
        self._thread: Final = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.ahead: int = 0 if before is None else before.ahead
        """The microseconds by which the database's clock is ahead of this machine's."""
        self.durability: Durability | None = None if before is None else before.durability
        self.late: int = 0 if before is None else before.late
        """How often the last third of a lease had begun before it was renewed: another daemon nearly led."""
        self._is_late = False
        self.level: int = FIRST if before is None else before.level
        """The level of features in force in the store."""

    def begin(self) -> None:
        """Joins, and renews from now on."""
        self._until = self._member.join()
        self._renewed()
        self._thread.start()
        if self._confirmations is not None:
            self._confirming.start()

    @property
    def left(self) -> float:
        """The seconds for which this daemon may still act as a member; negative after that."""
        return self._until - MARGIN * self._member.lease - clock_gettime(CLOCK_BOOTTIME)

    @property
    def sure(self) -> float:
        """The seconds for which no other daemon can lead what this one leads; negative after that.

        Less than ``left`` where the latest renewals were not confirmed.
        """
        return self._confirmed_until - MARGIN * self._member.lease - clock_gettime(CLOCK_BOOTTIME)

    def now(self) -> int:
        """Returns the time in microseconds since 1970 UTC, by the database's clock as far as it is known."""
        return wall() + self.ahead

    def end(self) -> None:
        """Ends the renewals and the lease."""
        lasts = self._thread.is_alive()  # else it has run out, or was not begun
        self._is_over = True
        self._due.set()
        self._unconfirmed.set()
        if self._confirmations is not None:
            self._confirmations.interrupt()
            if self._confirming.is_alive():
                self._confirming.join()
            self._confirmations.close()
        if lasts:
            self._thread.join()
            self._member.leave()

    def hasten(self) -> None:
        """Renews at once, with what the daemon says of itself by now."""
        self._due.set()

    def _renew(self) -> None:
        pause = lease = self._member.lease
        while True:
            self._due.wait(pause / 3)
            self._due.clear()
            if self._is_over:
                return
            pause = lease
            try:
                lasts = self._renewed()
            except (LogFailed, LogDamaged) as failure:  # damaged may be what else it has read
                logger.warning("%s; the lease lasts for %.1f s", failure, self.left)
                pause = lease / 5
            else:
                if not lasts:  # it has run out: what it led it leads no longer
                    logger.warning("the lease of %s has run out", self._member.profile.name)
                    return
                self._warn()

    def _renewed(self) -> bool:
        """Renews the lease; False if it had run out."""
        asked = wall()
        try:
            renewal = self._member.renew()
        finally:
            was_late, self._is_late = self._is_late, self.left < LATE * self._member.lease
            self.late += self._is_late and not was_late
        if renewal is None:
            return False
        self._until, self._renewal = renewal.until, renewal
        if self._confirmations is None or renewal.durability.synchronous.strip():
            self._unconfirmed.set()
        else:  # its own commit has waited for all that there is to wait for
            self._confirmed_until = renewal.until
        self.view = StoreView.of(renewal.sent, *renewal.answers) if renewal.answers else None
        self._correct(asked, wall(), renewal.time)
        self._note(renewal.durability)
        if renewal.level != self.level:
            self.level = renewal.level
            logger.info("the store has features of level %d", self.level)
        return True

    def _confirm(self) -> None:
        """Confirms the latest renewal again and again; one wait for the standby may be for many renewals."""
        confirmations = self._confirmations
        assert confirmations is not None  # else the thread is not started
        while True:
            self._unconfirmed.wait()
            self._unconfirmed.clear()
            if self._is_over:
                return
            renewal, nonce = self._renewal, self._member.nonce
            with suppress(LogFailed, LogDamaged):  # the next renewal is confirmed, or the lease runs out
                if renewal is not None and confirmations.confirm(nonce, renewal.beat):
                    self._confirmed_until = max(self._confirmed_until, renewal.until)

    def _correct(self, asked: int, answered: int, theirs: int) -> None:
        before, self.ahead = self.ahead, corrected(self.ahead, asked, answered, theirs)
        if abs(self.ahead - before) > FAR_MICROSECONDS:
            logger.warning(
                "the clock of the database is %.1f s ahead of this machine's: epochs have its time",
                self.ahead / 1e6,
            )

    def _note(self, durability: Durability) -> None:
        """Says in the log what the database promises, if that is another promise than before."""
        before, self.durability = self.durability, durability
        if before is None or before.words != durability.words:
            level = logging.INFO if durability.holds else logging.WARNING
            logger.log(level, "durability of the store: %s", durability.words)

    def _warn(self) -> None:
        """Warns of other members that are not as they should be, once of each."""
        name = self._member.profile.name
        for url in self._member.namesakes:
            if (name, url) not in self._warned:
                logger.warning("the daemon at %s is named %s too; cluster.name is for one daemon", url, name)
        for url in self._member.differing:
            if url not in self._warned:
                logger.warning("the settings of the daemon at %s differ from those of %s", url, name)
        self._warned = {*self._member.differing, *[(name, url) for url in self._member.namesakes]}
