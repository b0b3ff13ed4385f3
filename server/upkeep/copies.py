"""The commands ``dataspace backup`` and ``dataspace restore``.

They work on files, in a process of their own: the daemon does nothing for them, and its process must not open
its files a second time, since closing them would drop SQLite's locks.

Always: a target under the requested name is whole and verified; 1 is returned for anything else.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from dataspace.errors import UsageError
from relay.backup import restore as restoring
from relay.backup.backup import BackupDone, back_up, publish, working_directory
from relay.backup.cutting import text_of
from relay.backup.pace import CopyPace
from relay.backup.restore import Restored, RestoreWanted
from server.config.model import default_data
from server.config.units import size
from server.daemon.lock import locked

EVERY: Final = 0.5
"""Seconds between two lines of progress on a terminal; twenty times as many elsewhere."""


def backup(args: argparse.Namespace) -> int:
    """Backs up a data directory; returns the exit code."""
    if args.via is not None:
        raise UsageError("--via is for a backup to a URL; give one, or no --via")
    data, target = args.data or default_data(), args.target
    rate = None if args.rate is None else size(args.rate)
    made = working_directory(data, target)
    with CopyProgress(quiet=args.quiet) as progress:
        try:
            with locked(made):
                done = back_up(data, made, CopyPace(rate, progress.report))
        except KeyboardInterrupt:
            progress.end()
            kept = "what was copied is kept" if made == target else f"what was copied is kept in {made}"
            print(f"dataspace: interrupted; {kept}, and the same command continues", file=sys.stderr)
            return 1
    publish(made, target)
    print_backup(done, target)
    return 0


def print_backup(done: BackupDone, target: Path) -> None:
    """Prints the content of a backup and the copied bytes."""
    for name, log in done.logs.items():
        held = f"epochs {log.oldest} to {log.epoch}, of {text_of(log.time)}" if log.epoch else "no epoch yet"
        how = "copied, all of it anew" if log.anew else "added"
        print(f"space {name}: {held} ({log.added} segments {how})")
    print(f"{target} is whole: {mebibytes(done.bytes)} copied, every checksum verified")


def restore(args: argparse.Namespace) -> int:
    """Restores a backup into a new directory; returns the exit code."""
    made = restoring.working_directory(args.target)
    with CopyProgress(quiet=args.quiet) as progress, locked(made):
        try:
            restoring.begin(made)
            done = restoring.restore(args.backup, made, _wanted(args.at), CopyPace(None, progress.report))
        except BaseException as error:
            progress.end()
            shutil.rmtree(made, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):
                print("dataspace: interrupted; nothing was restored", file=sys.stderr)
                return 1
            raise
        publish(made, args.target)
    for name, each in done.items():
        _print_restored(name, each)
    print(f"{args.target} is whole: every checksum verified; durable topics are as at the backup")
    return 0


def _wanted(at: int | datetime | None) -> RestoreWanted:
    if isinstance(at, datetime):
        return RestoreWanted(time=int(at.timestamp() * 1e6))
    return RestoreWanted(epoch=at)


def _print_restored(name: str, done: Restored) -> None:
    of = f", of {text_of(done.time)}" if done.epoch else ""
    print(
        f"space {name}: state after epoch {done.epoch}{of}; the backup goes to {done.newest};"
        f" new identity {done.identity}, next epoch {done.next_epoch}"
    )


class CopyProgress:
    """One line about how far a copy is, on the standard error; as a context, which ends it."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._began = self._next = time.monotonic()
        if not self._live:
            self._next += 20 * EVERY
        self._shown = False

    def __enter__(self) -> CopyProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def report(self, what: str, copied: int) -> None:
        """Shows what is being copied and how much has been, now and then."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + (EVERY if self._live else 20 * EVERY)
        speed = copied / max(now - self._began, 0.001)
        line = f"{what}: {mebibytes(copied)} copied, {mebibytes(speed)}/s"
        print(f"\r{line}\x1b[K" if self._live else line, end="" if self._live else "\n", file=sys.stderr)
        sys.stderr.flush()
        self._shown = True

    def end(self) -> None:
        """Ends the line that is shown."""
        if self._shown and self._live:
            print(file=sys.stderr)
        self._shown = False


def mebibytes(count: float) -> str:
    """Returns bytes as text.

    >>> mebibytes(1 << 19)
    '0.5 MiB'
    """
    return f"{count / (1 << 20):.1f} MiB"
