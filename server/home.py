"""The home of a daemon: where its logs, topics and staged batches are, and who may write them.

A directory is the home of one daemon that writes and of any number of followers on the same machine; a store
in PostgreSQL is the home of all daemons that name it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from dataspace.errors import DataspaceError

if TYPE_CHECKING:
    from relay.following.following import FollowedLog
    from relay.journal.followed import FollowedJournal
    from relay.journal.journal import Journal
    from relay.log.log import Log
    from relay.store.ports import StagedTables
    from server.config.model import Config


class SteppedDown(DataspaceError):
    """This daemon leads no longer: its lease ran out, or another daemon leads by now."""


class LeaderContact(Protocol):
    """How a daemon that follows knows where its leader is."""

    is_up: bool
    """True while a leader is known."""

    async def run(self) -> None:
        """Keeps in touch with the leader, until cancelled or ended."""

    def end(self) -> None:
        """Ends ``run``."""


class Home(Protocol):
    """Where the data of a daemon is.  Its logs are opened after ``enter``."""

    place: str
    """Where it is, for messages."""

    stands_by: bool
    """True if a daemon that follows here leads once its leader has ended."""

    has_stand_by: bool
    """True if a daemon that follows this one has said that it stands by."""

    leads_each: bool
    """True if each space is led by itself, so that topics may be led by another daemon than a space."""

    async def enter(self, held: ExitStack) -> Collection[str]:
        """Begins the use of the home, until ``held`` ends it; returns the spaces that this daemon leads.

        Raises ``DataInUse`` and ``DataUnusable``, and ``LogFailed`` where a database refuses.
        """

    async def wait_turn(self, held: ExitStack, followed: Callable[[], Collection[str]]) -> Collection[str]:
        """Waits until the leader of some followed spaces has ended; returns the spaces that this daemon leads
        in its place, until ``held`` ends."""

    async def wait_move(self) -> tuple[str, str]:
        """Waits until a space that this daemon leads should go to another one; returns both names."""

    async def retire(self) -> bool:
        """Leaves the daemons that may lead: this one takes no space from now on, and is given none.

        Returns True if another daemon is there that leads what this one gives up.
        """

    async def give_up(self, space: str, successor: str, ago: float) -> None:
        """Ends the lead of a space, whose log is closed, for another daemon to take it at once: the
        ``successor``, or any if that is empty.  Its turns have ended ``ago`` seconds ago."""

    async def note_served(self, spaces: Collection[str]) -> None:
        """Notes that the turns of these spaces, which were taken over, are possible from now on."""

    async def keep(self) -> None:
        """Keeps what was entered, until cancelled.  Raises ``SteppedDown`` if this daemon leads no longer."""

    def is_sure(self) -> bool:
        """True unless this daemon may have been replaced as the leader, and does not know it yet.

        Where it is False nothing may be said that comes from memory: it may be what was true before.
        """

    def numbering(self, log: Log | FollowedLog) -> int:
        """Returns what no other leader of a space numbers its sessions by."""

    async def follower(self, proof: str) -> str | None:
        """Returns the name of the daemon that follows this one here, and whose proof that is, if there is
        one."""

    def now(self) -> int:
        """Returns the time of epochs, in microseconds since 1970 UTC, by the clock of the home."""

    def durability(self) -> str:
        """Returns in words what a failover of the database may lose; empty where there is no database."""

    def level(self) -> int:
        """Returns the level of features in force here (``relay/store/levels.py``)."""

    def sizes(self, space: str) -> dict[str, int]:
        """Returns the bytes on disk of a space by part; may wait for a disk, but for no database."""

    def tell(self, url: str, web: str, config: Config) -> None:
        """Notes where clients reach this daemon, and the configuration by which it serves them."""

    async def wait_log(self, space: str) -> bool:
        """Returns False once there is a log of a space to follow, True once this daemon leads it instead."""

    def open_log(self, space: str, *, accept_damage: bool) -> Log:
        """Opens the log of a space to write it.  Raises ``LogFailed`` and ``LogDamaged``."""

    def follow_log(self, space: str, held: ExitStack) -> FollowedLog:
        """Opens the log of a space to read it on, as ``open_log``."""

    def open_journal(self, *, accept_damage: bool) -> Journal:
        """Opens the durable topics to write them, as ``open_log``."""

    def follow_journal(self) -> FollowedJournal:
        """Opens the durable topics to read them on, as ``open_log``."""

    def open_staged(self, space: str) -> StagedTables:
        """Opens the staged batches of a space.  Raises ``LogFailed``."""
