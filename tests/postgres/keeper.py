"""Ends the servers of a test run and deletes their directories, however that run has ended.

    python keeper.py PLACE

reads its standard input, whose other end the run keeps open: at its end, or after a line, nothing is left of
the servers in PLACE.  In a session of its own, so that neither Ctrl-C nor the end of the run ends it too.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

PATIENCE = 20.0
"""Seconds that a server has to end at once."""


def end(place: Path) -> None:
    """Ends each server of a place, stopped ones as well."""
    pids = [pid for file in place.glob("*/data/postmaster.pid") if (pid := running(file, place))]
    for sent in (signal.SIGQUIT, signal.SIGKILL):
        for pid in pids:
            signalled(pid, sent)
            for each in (pid, *children(pid)):
                signalled(each, signal.SIGCONT)
        until = time.monotonic() + PATIENCE
        while pids and time.monotonic() < until:
            time.sleep(0.01)
            pids = [pid for pid in pids if signalled(pid, 0)]


def running(file: Path, place: Path) -> int:
    """Returns the process that a file of a server names; 0 if the number is another program's by now."""
    try:
        pid = int(file.read_text().split("\n")[0])
        command = Path(f"/proc/{pid}/cmdline")
        ours = str(place).encode() in command.read_bytes() if Path("/proc/self").exists() else True
    except (OSError, ValueError):
        return 0
    return pid if ours else 0


def children(pid: int) -> list[int]:
    """Returns the processes that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        if int(parent) == pid:
            found.append(int(folder.name))
    return found


def signalled(pid: int, sent: int) -> bool:
    """Sends a signal; False if there is no such process."""
    try:
        os.kill(pid, sent)
    except ProcessLookupError:
        return False
    return True


def delete(place: Path) -> None:
    """Deletes a place, in which processes that are about to end may still make files."""
    for _ in range(100):
        shutil.rmtree(place, ignore_errors=True)
        if not place.exists():
            break
        time.sleep(0.05)


if __name__ == "__main__":
    sys.stdin.readline()
    end(Path(sys.argv[1]))
    delete(Path(sys.argv[1]))
