"""The commands ``dataspace backup`` and ``dataspace restore``.

They work on files, or read a store, in a process of their own: the daemon does nothing for them, and its
process must not open its files a second time, since closing them would drop SQLite's locks.

A backup to a URL is a backup in a directory, which is made, verified and brought up to date as any other, and
then copied to the store in blocks.

Always: a target under the requested name is whole and verified; 1 is returned for anything else; a store is
looked at before anything is copied, so that a wrong credential costs no time.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Final

from dataspace.errors import DataspaceError, UsageError
from relay.backup import restore as restoring
from relay.backup.backup import (
    BackupDone,
    BackupSource,
    back_up,
    identity_of,
    of_directory,
    publish,
    working_directory,
)
from relay.backup.blocks import LOCK, Pushed, check_identity, fetch, newest, push, wanted
from relay.backup.copies import CopyPace
from relay.backup.manifest import is_backup
from relay.backup.restore import Restored, RestoreWanted, text_of
from relay.objects.remote import RemoteObjects
from relay.store.address import StoreAddress
from relay.store.lock import locked, working
from server.config.model import default_data
from server.config.units import size
from server.stores import backup_of

EVERY: Final = 0.5
"""Seconds between two lines of progress on a terminal; twenty times as many elsewhere."""


def backup(args: argparse.Namespace) -> int:
    """Backs up a data directory or a store, to a directory or a URL; returns the exit code."""
    if isinstance(args.target, str):
        return _backup_to_url(args)
    if args.via is not None:
        raise UsageError("--via is for a backup to a URL; give one, or no --via")
    target: Path = args.target
    rate = None if args.rate is None else size(args.rate)
    with _source(args.data) as source, CopyProgress(quiet=args.quiet) as progress:
        path = working_directory(target)
        try:
            with _held(path, target):
                done = back_up(source, path, CopyPace(rate, progress.report))
        except KeyboardInterrupt:
            progress.end()
            kept = "what was copied is kept" if path == target else f"what was copied is kept in {path}"
            print(f"dataspace: interrupted; {kept}, and the same command continues", file=sys.stderr)
            return 1
    publish(path, target)
    _print_backup(done, target)
    return 0


def _held(path: Path, named: Path | None) -> AbstractContextManager[None]:
    """Locks a directory; a directory that the operator did not name must belong to this user."""
    return locked(path) if path == named else working(path)


def _source(data: Path | str | None) -> AbstractContextManager[BackupSource]:
    """Lends a data directory or a store; ``UsageError`` where there is no log."""
    return backup_of(data) if isinstance(data, str) else nullcontext(of_directory(data or default_data()))


def _print_backup(done: BackupDone, target: Path) -> None:
    """Prints the content of a backup and the copied bytes."""
    for name, log in done.logs.items():
        held = f"epochs {log.oldest} to {log.epoch}, of {text_of(log.time)}" if log.epoch else "no epoch yet"
        how = "copied, all of it anew" if log.anew else "added"
        print(f"space {name}: {held} ({log.added} segments {how})")
    print(f"{target} is whole: {mebibytes(done.bytes)} copied, every checksum verified")


def restore(args: argparse.Namespace) -> int:
    """Restores a backup, from a directory or a URL, into a new directory; returns the exit code."""
    if isinstance(args.target, str):
        raise UsageError(
            f"restore makes a directory, and {StoreAddress.parse(args.target)} is none; restore into a"
            " directory, then copy that: dataspace log copy --from DIR --to ADDRESS"
        )
    if isinstance(args.backup, str):
        return _restore_from_url(args)
    path = restoring.working_directory(args.target)
    with CopyProgress(quiet=args.quiet) as progress, working(path):
        try:
            restoring.begin(path)
            done = restoring.restore(args.backup, path, _wanted(args.at), CopyPace(None, progress.report))
        except BaseException as error:
            progress.end()
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):
                print("dataspace: interrupted; nothing was restored", file=sys.stderr)
                return 1
            raise
        publish(path, args.target)
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


# -- at a URL ---------------------------------------------------------------------------------------


def _backup_to_url(args: argparse.Namespace) -> int:
    """Backs up to a URL; returns the exit code."""
    via = _via(args)
    rate = None if args.rate is None else size(args.rate)
    with _source(args.data) as source, CopyProgress(quiet=args.quiet) as progress:
        path = working_directory(via)
        store = RemoteObjects(args.target)
        try:
            _look(store, source)
            pace = CopyPace(rate, progress.report)
            path = _with_history(via, path, store, pace)
            with _held(path, args.via):
                done = back_up(source, path, pace)
            publish(path, via)
            with _held(via, args.via):
                pushed = push(via, store, CopyPace(rate, progress.report))
        except KeyboardInterrupt:
            progress.end()
            print(
                "dataspace: interrupted; what was copied is kept, and the same command continues",
                file=sys.stderr,
            )
            return 1
    _print_pushed(done, pushed, via, store)
    return 0


def _via(args: argparse.Namespace) -> Path:
    """Returns the backup on this machine that is copied to a URL."""
    if args.via is not None:
        via: Path = args.via
        return via
    if isinstance(args.data, str):
        raise UsageError("a backup of a store to a URL needs --via DIR, the backup on this machine")
    data: Path = args.data or default_data()
    return data.with_name(f"{data.name}.backup")


def _look(store: RemoteObjects, source: BackupSource) -> None:
    """Raises ``StoreFailed`` or ``NotThisLog`` where this log cannot be backed up to a store."""
    store.probe()
    check_identity(newest(store), identity_of(source), store)


def _with_history(via: Path, path: Path, store: RemoteObjects, pace: CopyPace) -> Path:
    """Returns the directory to back up into; fetches an earlier backup if it is in the store alone.

    Else the older snapshots in it, and what retention has deleted since, would be gone from the store.
    """
    found = newest(store)
    if is_backup(via) or path.exists() or found is None:
        return path
    fetched = via.with_name(f"{via.name}.fetched")
    with _fetching(fetched):
        fetch(found, store, fetched, pace)
    publish(fetched, via)
    return via


@contextmanager
def _fetching(directory: Path) -> Iterator[None]:
    """Holds the directory that is made what is in a store, with which whatever else is in it is deleted.

    Raises ``UsageError`` for one in which nothing was fetched before, and that is not empty.
    """
    is_ours = not directory.exists() or (directory / LOCK).exists()
    if not is_ours and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory} is needed for what is fetched, and has something else in it; rename it, or give "
            "another directory"
        )
    with working(directory):
        yield


def _print_pushed(done: BackupDone, pushed: Pushed, via: Path, store: RemoteObjects) -> None:
    _print_backup(done, via)
    print(
        f"{store.shown} is whole: {mebibytes(pushed.held)} in all, {pushed.blocks} blocks"
        f" ({mebibytes(pushed.bytes)}) written now"
    )
    if pushed.kept:
        print(f"dataspace: {pushed.kept}", file=sys.stderr)


def _restore_from_url(args: argparse.Namespace) -> int:
    """Restores a backup at a URL into a new directory; returns the exit code.

    The fetched files are deleted once they are restored, and kept else.
    """
    target: Path = args.target
    restoring.working_directory(target)
    store, fetched = RemoteObjects(args.backup), target.with_name(f"{target.name}.fetched")
    found = wanted(store)
    with CopyProgress(quiet=args.quiet) as progress:
        try:
            with _fetching(fetched):
                fetch(found, store, fetched, CopyPace(None, progress.report))
        except KeyboardInterrupt:
            progress.end()
            print(
                "dataspace: interrupted; what was fetched is kept, and the same command continues",
                file=sys.stderr,
            )
            return 1
    try:
        code = restore(argparse.Namespace(**vars(args) | {"backup": fetched}))
    except DataspaceError:
        print(
            f"dataspace: what was fetched is kept in {fetched}, which can be restored like {store.shown}",
            file=sys.stderr,
        )
        raise
    if code == 0:
        shutil.rmtree(fetched)
    return code
