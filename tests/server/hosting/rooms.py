"""Room on a disk that can be taken and given back: on a small file system, or by a limit on file sizes."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path
from typing import Protocol

import pytest

from tests.server.processes import DaemonProcess


class Room(Protocol):
    """Where a daemon keeps its data."""

    data: Path
    said: str
    """What is said when there is no room."""

    def take(self, daemon: DaemonProcess) -> None:
        """Leaves no room for the daemon."""

    def give_back(self, daemon: DaemonProcess) -> None:
        """Leaves as much as before."""

    def end(self) -> None:
        """Puts everything back."""


class SmallDisk:
    """A file system of a few mebibytes, where there is the right to make one, and a file that fills it."""

    said = "the disk is full"

    def __init__(self, place: Path, size: str = "8m") -> None:
        self.place = place
        self.data = place / "data"
        self._balloon = place / "balloon"
        place.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        )
        if made.returncode:
            pytest.skip("no right to mount a file system")

    def take(self, _daemon: DaemonProcess | None = None) -> None:
        with self._balloon.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError:
                pass

    def give_back(self, _daemon: DaemonProcess | None = None) -> None:
        self._balloon.unlink()

    def make_read_only(self) -> None:
        """From now on nothing can be written there."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.place)], check=True)

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.place)], check=True)


class FileLimit:
    """A limit on the size of files, such as ``ulimit -f`` sets, at what the largest has already."""

    said = "the file may not grow any more, by the limit on the size of files"

    def __init__(self, place: Path) -> None:
        self.data = place

    def take(self, daemon: DaemonProcess) -> None:
        size = max(each.stat().st_size for each in self.data.iterdir())
        self._limit(daemon, size)

    def give_back(self, daemon: DaemonProcess) -> None:
        self._limit(daemon, resource.RLIM_INFINITY)

    def _limit(self, daemon: DaemonProcess, size: int) -> None:
        _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, hard))

    def end(self) -> None:
        """Nothing is left."""
