"""The lease of a daemon, renewed by a thread of its own, since the loop is busy while a log is recovered."""

from __future__ import annotations

import logging
import threading
from time import CLOCK_BOOTTIME, clock_gettime
from typing import TYPE_CHECKING, Final

from relay.store.errors import LogFailed

if TYPE_CHECKING:
    from relay.store.postgres.members import Membership

logger = logging.getLogger("dataspace")

MARGIN: Final = 0.1
"""The part of a lease before whose end it counts as ended here."""


class MemberLease:
    """Renews the lease of a member, every third of it."""

    def __init__(self, member: Membership) -> None:
        self._member: Final = member
        self._until = 0.0
        self._due: Final = threading.Event()
        self._is_over = False
        self._warned: set[str | tuple[str, str]] = set()
        self._thread: Final = threading.Thread(target=self._renew, name="lease", daemon=True)

    def begin(self) -> None:
        """Joins, and renews from now on."""
        self._until = self._member.join()
        self._thread.start()

    @property
    def left(self) -> float:
        """The seconds for which this daemon may still act as a member; negative after that."""
        return self._until - MARGIN * self._member.lease - clock_gettime(CLOCK_BOOTTIME)

    def end(self) -> None:
        """Ends the renewals and the lease."""
        self._is_over = True
        self._due.set()
        if self._thread.is_alive():
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
                until = self._member.renew()
            except LogFailed as failure:
                logger.warning("%s; the lease lasts for %.1f s", failure, self.left)
                pause = lease / 5
            else:
                if until is None:  # it has run out: what it led it leads no longer
                    logger.warning("the lease of %s has run out", self._member.profile.name)
                    return
                self._until = until
                self._warn()

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
