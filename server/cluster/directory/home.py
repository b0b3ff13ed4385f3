"""A directory as the home of a daemon: SQLite's files, and the lock that makes one daemon write them."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import UsageError
from relay.backup.manifest import is_backup
from relay.following.following import FollowedLog
from relay.journal.followed import FollowedJournal
from relay.journal.journal import Journal
from relay.journal.reader import JournalReader
from relay.log.log import Log
from relay.space_registers import space_registers
from relay.store.levels import LATEST
from relay.store.lock import DataInUse, DataUnusable, followed, locked
from relay.store.sqlite.staged import SqliteStaged
from relay.store.sqlite.storage import file_bytes, has_tables
from server.home import SteppedDown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

from server.config.model import Config

WAIT_SECONDS: Final = 0.5
"""How often a follower looks whether its leader has made a log."""

LOOK_SECONDS: Final = 0.5
"""How often a follower looks whether the log that it reads is still in its directory."""

LOCK_SECONDS: Final = 0.02
"""How often a stand-by asks whether its leader has ended."""

PARTS: Final = ("log", "staged", "topics")
"""What the files of a data directory begin with; others are counted as ``other``."""

logger = logging.getLogger("dataspace")


class DirectoryHome:
    """The data directory of a daemon, with one directory for each further space."""

    def __init__(self, config: Config) -> None:
        self.directory = directory_of(config)
        self.place: str = str(self.directory)
        self._spaces: Final = {each.name: Path(each.data) for each in config.all_spaces()}  # type: ignore[arg-type]
        self._follows: Final = config.follow.data is not None
        self.stands_by: bool = config.follow.stand_by
        self.has_stand_by: bool = False
        self.leads_each: bool = False
        self._followed: dict[str, tuple[int, int]] = {}
        """The file of each log that is followed, by space."""

    async def enter(self, held: ExitStack) -> Collection[str]:
        if is_backup(self.directory):
            raise DataUnusable(
                f"{self.directory} is a backup, with the identity and the numbers of its original; "
                "restore it to another directory: dataspace restore BACKUP DIR"
            )
        await trio.lowlevel.checkpoint()
        if self._follows:
            return ()
        for directory in self._spaces.values():
            held.enter_context(locked(directory))
        return self._spaces

    async def wait_turn(self, held: ExitStack, followed: Callable[[], Collection[str]]) -> Collection[str]:
        if not (names := followed()):  # for good, as nothing is given up here
            await trio.sleep_forever()
        for name in names:
            await self._wait_lock(self._spaces[name], held)
        for name in names:
            self._check_followed(name, file_at(self._log(name)))
        return names

    async def _wait_lock(self, directory: Path, held: ExitStack) -> None:
        """Takes the lock of a directory once no process has it.

        It asks again and again: a thread that waits for the kernel would stay after a cancellation, take the
        lock in place of the next role of this daemon, and keep it.
        """
        while True:
            try:
                held.enter_context(locked(directory))
                break
            except DataInUse:
                await trio.sleep(LOCK_SECONDS)
        await trio.lowlevel.checkpoint()

    async def wait_move(self) -> tuple[str, str]:
        """Waits: a lock is passed on by the end of its holder alone."""
        await trio.sleep_forever()

    async def retire(self) -> bool:
        """Returns False: followers report to the leader that they stand by."""
        await trio.lowlevel.checkpoint()
        return False

    async def give_up(self, space: str, successor: str, ago: float) -> None:
        raise AssertionError("no space moves")

    async def note_served(self, spaces: Collection[str]) -> None:
        """Does nothing: no space moves."""
        await trio.lowlevel.checkpoint()

    async def keep(self) -> None:
        """Looks whether what is followed is still there, as ``_check_followed``; the kernel keeps a lock."""
        while self._followed:
            await trio.sleep(LOOK_SECONDS)
            for name in [*self._followed]:
                if (found := file_at(self._log(name))) is not None:  # else it may be about to come
                    self._check_followed(name, found)
        await trio.sleep_forever()

    def _check_followed(self, space: str, found: tuple[int, int] | None) -> None:
        """Raises ``SteppedDown`` if a file is not the log that is followed: the directory was made anew, or
        another one was put in its place.  To go on would be to serve, or to lead, a log that is gone."""
        if found != self._followed.get(space, found):
            raise SteppedDown(f"the log in {self._spaces[space]} is another one than this daemon follows")

    def _log(self, space: str) -> Path:
        return self._spaces[space] / FollowedLog.FILE

    def is_sure(self) -> bool:
        """Returns True: the kernel gives the lock to nobody else before the process ends."""
        return True

    def numbering(self, log: Log | FollowedLog) -> int:
        return log.term

    async def follower(self, proof: str) -> None:
        """Returns None: followers come over the socket in the directory."""
        await trio.lowlevel.checkpoint()

    def now(self) -> int:
        return time.time_ns() // 1000

    def durability(self) -> str:
        return ""

    def level(self) -> int:
        return LATEST

    def sizes(self, space: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for file in self._spaces[space].iterdir():
            stem = file.name.partition(".")[0]
            part = stem if stem in PARTS else "other"
            found[part] = found.get(part, 0) + file_bytes(file)
        return found

    def tell(self, url: str, web: str, config: Config) -> None:
        """Does nothing: followers ask over the socket in the directory."""

    async def wait_log(self, space: str) -> bool:
        directory = self._spaces[space]
        files = [directory / FollowedLog.FILE]
        files += [directory / JournalReader.FILE] if directory == self.directory else []
        if all(map(has_tables, files)):
            return False
        logger.warning("there is no log in %s yet, waiting for its leader", directory)
        while not all(map(has_tables, files)):  # noqa: ASYNC110  # no event tells of files
            await trio.sleep(WAIT_SECONDS)
        return False

    def open_log(self, space: str, *, accept_damage: bool) -> Log:
        self._followed.pop(space, None)
        return Log.open(self._spaces[space], accept_damage=accept_damage, registers=space_registers)

    def follow_log(self, space: str, held: ExitStack) -> FollowedLog:
        held.enter_context(followed(self._spaces[space]))
        if (found := file_at(self._log(space))) is not None:
            self._followed[space] = found
        return FollowedLog.open(self._spaces[space], registers=space_registers)

    def open_journal(self, *, accept_damage: bool) -> Journal:
        return Journal.open(self.directory, accept_damage=accept_damage)

    def follow_journal(self) -> FollowedJournal:
        return FollowedJournal.open(self.directory)

    def open_staged(self, space: str) -> SqliteStaged:
        return SqliteStaged.open(self._spaces[space])


def file_at(path: Path) -> tuple[int, int] | None:
    """Returns the numbers of the device and the file at a path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def directory_of(config: Config) -> Path:
    """Returns the data directory of a daemon; ``UsageError`` if its data is in a database."""
    if isinstance(config.data, Path):
        return config.data
    raise UsageError(f"a directory is needed, not {config.data}")
