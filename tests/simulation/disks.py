"""Disks: what a daemon has written, what of it was synced, and what is left after its end.

The files are real, in a directory of the memory, and SQLite is real; each write, truncation, sync and
deletion is asked of the disk first, which may refuse it, or end the host instead.  After a kill the files are
as they were written, since the kernel has them; after a power failure some of what was not synced is missing,
and some is torn.  The next daemon has them in a new directory, with files of its own.

Always: nothing is written for a host that is dead.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from relay.store.errors import LogFailed
from tests.relay.log.disk import Event, hook_sqlite
from tests.relay.store.losses import Disk
from tests.relay.store.memory import Fault
from tests.simulation.hosts import Host, here
from tests.simulation.occurrences import Occurrence

Count = Callable[..., None]

_ERRNO: Final = {sqlite3.SQLITE_FULL: errno.ENOSPC}

_mounted: dict[str, Volume] = {}
_is_hooked = False


class Volume:
    """The directory of one host, or of several."""

    def __init__(self, host: Host | None, place: Path, count: Count) -> None:
        """Without a host it is used by the present one each time."""
        self._count = count
        self._owner = host
        self.place = place
        self.is_full = False
        self.fails_next_sync = False
        self.asked = 0
        """What was asked of it so far."""
        self.dies_at: tuple[int, bool] | None = None
        """The number of the operation instead of which its host dies, and whether by a power failure."""
        self.dies_at_sync = False
        """Whether it is the first sync from that number on."""
        self._disk = Disk()
        for name, file in _files(place):
            self._disk.take(("write", name, 0, file.read_bytes()))
            self._disk.take(("sync", name))

    def ask(self, event: Event) -> int:
        """Returns 0 for what may be done, else a code of SQLite."""
        code = self._refusal(event)
        if not code:
            self._disk.take(event)
        return code

    def fault(self, name: str) -> Fault | None:
        """Returns what happens to a write of tables in memory, which is done and synced in one step."""
        if self._host.is_dead:
            raise LogFailed("its process has ended")  # another one may go on with them
        code = self._refusal(("write", name))
        if code:
            return Fault.FULL if code == sqlite3.SQLITE_FULL else Fault.FAILED
        if self._refusal(("sync", name)):
            return self._host.random.choice((Fault.FAILED, Fault.UNKNOWN))
        return None

    @property
    def _host(self) -> Host:
        host = self._owner or here()
        assert host is not None  # what writes is on a host
        return host

    def _refusal(self, event: Event) -> int:
        if self._host.is_dead:
            return sqlite3.SQLITE_IOERR
        self.asked += 1
        if self._is_deadly(event):
            assert self.dies_at is not None  # as it has said
            _, power = self.dies_at
            self.dies_at = None  # it is not the next one to use it
            self._count(Occurrence.AT_WRITE)
            self._host.die(power=power)
            return sqlite3.SQLITE_IOERR
        if self.is_full and event[0] == "write":
            self._count(Occurrence.FULL)
            return sqlite3.SQLITE_FULL
        if self.fails_next_sync and event[0] == "sync":
            self.fails_next_sync = False
            self._count(Occurrence.SYNC)
            return sqlite3.SQLITE_IOERR_FSYNC
        return 0

    def _is_deadly(self, event: Event) -> bool:
        if self.dies_at is None or self.asked < self.dies_at[0]:
            return False
        return event[0] == "sync" or not self.dies_at_sync

    def leave(self, place: Path, random: Random | None) -> None:
        """Makes a directory of what is left; ``random`` decides what a power failure took."""
        if random is not None:
            self._disk.stop(place, random)
            self._count(Occurrence.MISSING, self._disk.missing)
            self._count(Occurrence.TORN, self._disk.torn)
            return
        place.mkdir()
        for name, file in _files(self.place):
            if file.name != "lock" and not name.endswith("-shm"):
                (place / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(file, place / name)


def _files(place: Path) -> list[tuple[str, Path]]:
    """Returns the files in a directory and in those below it, by their names there."""
    found = [each for each in place.rglob("*") if each.is_file()]
    return sorted((str(each.relative_to(place)), each) for each in found)


@contextmanager
def mounted(volume: Volume) -> Iterator[None]:
    """Has all that is written below its directory asked of the volume."""
    _hook()
    at = str(volume.place.absolute())
    _mounted[at] = volume
    try:
        yield
    finally:
        del _mounted[at]


def _hook() -> None:
    """Looks over SQLite's shoulder, and over that of ``os.pwrite`` and ``os.fsync``, from now on."""
    global _is_hooked
    if _is_hooked:
        return
    _is_hooked = True
    hook_sqlite(_ask, names=str)
    really_write, really_sync = os.pwrite, os.fsync

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        _check(("write", _path(descriptor), offset, bytes(data)))
        return really_write(descriptor, data, offset)

    def fsync(descriptor: int) -> None:
        _check(("sync", _path(descriptor)))
        really_sync(descriptor)

    os.pwrite, os.fsync = pwrite, fsync  # type: ignore[assignment]  # the same for what we call them with


def _path(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _ask(event: Event) -> int:
    directory, _, name = event[1].rpartition("/")
    volume = _mounted.get(directory)
    if volume is None:  # the log of another space, in a directory below
        directory, _, space = directory.rpartition("/")
        volume, name = _mounted.get(directory), f"{space}/{name}"
    return 0 if volume is None else volume.ask((event[0], name, *event[2:]))


def fault_of(path: Path) -> Fault | None:
    """Returns what happens to a write of the tables under a path; it is for ``in_memory``."""
    for place in (path.parent, path.parent.parent):  # the latter for the log of another space
        volume = _mounted.get(str(place.absolute()))
        if volume is not None:
            return volume.fault(path.name)
    return None


def _check(event: Event) -> None:
    code = _ask(event)
    if code:
        number = _ERRNO.get(code, errno.EIO)
        raise OSError(number, os.strerror(number))
