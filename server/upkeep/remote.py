"""``dataspace backup URL`` and ``dataspace restore URL``: a backup in a directory, copied to a store and
back.

The directory is the backup proper: it is made, verified and brought up to date as one without a URL is. The
store has a copy of it in blocks.

Always: the store is looked at before anything is copied, so that a wrong credential costs no time.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dataspace.errors import DataspaceError, UsageError
from relay.backup import restore as restoring
from relay.backup.backup import MAIN, back_up, publish, spaces_of, working_directory
from relay.backup.blocks import LOCK, Pushed, check_identity, fetch, newest, push, wanted
from relay.backup.manifest import is_backup
from relay.backup.pace import CopyPace
from relay.backup.source import identity_of
from relay.backup.store import Store
from server.config.model import default_data
from server.config.units import size
from server.daemon.lock import locked
from server.upkeep import copies

if TYPE_CHECKING:
    from relay.backup.backup import BackupDone


def backup(args: argparse.Namespace) -> int:
    """Backs up a data directory to a URL; returns the exit code."""
    data = args.data or default_data()
    via = args.via or data.with_name(f"{data.name}.backup")
    rate = None if args.rate is None else size(args.rate)
    made = working_directory(data, via)
    store = Store(args.target)
    with copies.CopyProgress(quiet=args.quiet) as progress:
        try:
            _look(store, data)
            pace = CopyPace(rate, progress.report)
            made = _with_history(via, made, store, pace)
            with locked(made):
                done = back_up(data, made, pace)
            publish(made, via)
            with locked(via):
                pushed = push(via, store, CopyPace(rate, progress.report))
        except KeyboardInterrupt:
            progress.end()
            print(
                "dataspace: interrupted; what was copied is kept, and the same command continues",
                file=sys.stderr,
            )
            return 1
    _print(done, pushed, via, store)
    return 0


def _look(store: Store, data: Path) -> None:
    """Raises ``StoreFailed`` or ``NotThisLog`` where this log cannot be backed up to a store."""
    store.probe()
    check_identity(newest(store), identity_of(spaces_of(data)[MAIN]), store)


def _with_history(via: Path, made: Path, store: Store, pace: CopyPace) -> Path:
    """Returns the directory to back up into; fetches an earlier backup if it is in the store alone.

    Else the older snapshots in it, and what retention has deleted since, would be gone from the store.
    """
    found = newest(store)
    if is_backup(via) or made.exists() or found is None:
        return made
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
    with locked(directory):
        yield


def _print(done: BackupDone, pushed: Pushed, via: Path, store: Store) -> None:
    copies.print_backup(done, via)
    print(
        f"{store.shown} is whole: {copies.mebibytes(pushed.held)} in all, {pushed.blocks} blocks"
        f" ({copies.mebibytes(pushed.bytes)}) written now"
    )
    if pushed.kept:
        print(f"dataspace: {pushed.kept}", file=sys.stderr)


def restore(args: argparse.Namespace) -> int:
    """Restores a backup at a URL into a new directory; returns the exit code.

    The fetched files are deleted once they are restored, and kept else.
    """
    target: Path = args.target
    restoring.working_directory(target)
    store, fetched = Store(args.backup), target.with_name(f"{target.name}.fetched")
    found = wanted(store)
    with copies.CopyProgress(quiet=args.quiet) as progress:
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
        code = copies.restore(argparse.Namespace(**vars(args) | {"backup": fetched}))
    except DataspaceError:
        print(
            f"dataspace: what was fetched is kept in {fetched}, which can be restored like {store.shown}",
            file=sys.stderr,
        )
        raise
    if code == 0:
        shutil.rmtree(fetched)
    return code
