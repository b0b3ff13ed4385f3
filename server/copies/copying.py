"""The command ``dataspace log copy``: everything of one home into another, a directory or a store.

Always: a target under its name is whole and verified; 1 is returned for anything else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from dataspace.errors import UsageError
from relay.backup.backup import MAIN, SPACES, beside, publish, spaces_of
from relay.backup.copies import CopyPace
from relay.backup.copy_home import LOG_SCHEMA, CopyEnd, copy_home
from relay.journal.reader import JournalReader
from relay.journal.rows import SCHEMA as TOPICS_SCHEMA
from relay.log.reader import LogReader
from relay.store.address import StoreAddress
from relay.store.lock import locked, working
from relay.store.sqlite.staged import STAGED, SqliteStaged
from relay.store.sqlite.storage import Storage
from relay.store.sqlite.tables import SqliteLog
from relay.store.sqlite.topics import SqliteTopics
from server.copies.backups import CopyProgress, mebibytes
from server.stores import copy_from, copy_to


def copy(args: argparse.Namespace) -> int:
    """Copies logs, topics and staged batches from one home to another; returns the exit code."""
    pace: CopyPace
    with source_at(args.source) as source:
        spaces = _wanted(source, args.space)
        with _target(args.target, spaces) as target, CopyProgress(quiet=args.quiet) as progress:
            pace = CopyPace(None, progress.report)
            others = sorted({*target.spaces} - {*spaces})
            if others and args.space is None:
                raise UsageError(f"{args.target} is not empty: it has the log of space {others[0]!r}")
            try:
                done = copy_home(source, target, spaces, pace)
            except KeyboardInterrupt:
                progress.end()
                print(
                    f"dataspace: interrupted; what was copied is kept in {target.place}, where no daemon"
                    " starts before the same command has ended it",
                    file=sys.stderr,
                )
                return 1
    if isinstance(args.target, Path):
        publish(beside(args.target), args.target)
    for space, held in done.items():
        print(f"space {space}: epochs {held.oldest} to {held.last} in {held.segments} segments")
    print(f"{_shown(args.target)} is whole: {mebibytes(pace.copied)} copied, every checksum verified")
    print("both have one identity and one numbering: serve only one of them")
    return 0


def _wanted(source: CopyEnd, space: str | None) -> Sequence[str]:
    if space is not None and space not in source.spaces:
        there = ", ".join(source.spaces) or "none"
        raise UsageError(f"there is no log of space {space!r} in {source.place}, but of {there}")
    if not source.spaces:
        raise UsageError(f"there is no log in {source.place}")
    return source.spaces if space is None else [space]


def _shown(place: Path | str) -> str:
    """Returns the name of a home without passwords."""
    return str(place if isinstance(place, Path) else StoreAddress.parse(place))


# -- the ends of a copy ---------------------------------------------------------------------------------


def source_at(place: Path | str) -> AbstractContextManager[CopyEnd]:
    """Lends a home to be read; no daemon uses a directory meanwhile."""
    return _directory_source(place) if isinstance(place, Path) else copy_from(place)


def _target(place: Path | str, spaces: Sequence[str]) -> AbstractContextManager[CopyEnd]:
    return _directory_target(place) if isinstance(place, Path) else copy_to(place, spaces)


@contextmanager
def _directory_source(data: Path) -> Iterator[CopyEnd]:
    """Lends a data directory, or a backup, that no daemon uses meanwhile."""
    found = spaces_of(data)
    with ExitStack() as held:
        for directory in found.values():
            held.enter_context(locked(directory))

        def topics() -> SqliteTopics | None:
            if not (data / JournalReader.FILE).exists():
                return None
            return SqliteTopics.read(data / JournalReader.FILE, data / JournalReader.MARK)

        def staged(space: str) -> SqliteStaged | None:
            path = found[space] / STAGED
            return SqliteStaged(Storage(path)) if path.exists() else None

        yield CopyEnd(str(data), list(found), lambda space: _log_in(found[space]), topics, staged)


def _log_in(directory: Path) -> SqliteLog:
    return SqliteLog.read(directory / LogReader.FILE, directory / LogReader.MARK)


@contextmanager
def _directory_target(target: Path) -> Iterator[CopyEnd]:
    """Lends a directory beside a new or empty target; it gets the target's name once the copy is whole."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError(f"{target} is not empty; give a directory that is empty or new")
    path = beside(target)

    def place(space: str) -> Path:
        return path if space == MAIN else path / SPACES / space

    def log(space: str) -> SqliteLog:
        return SqliteLog.open(place(space) / LogReader.FILE, place(space) / LogReader.MARK, LOG_SCHEMA)

    def topics() -> SqliteTopics:
        return SqliteTopics.open(path / JournalReader.FILE, path / JournalReader.MARK, TOPICS_SCHEMA)

    with working(path):
        yield CopyEnd(
            str(path), list(spaces_of(path)), log, topics, lambda space: SqliteStaged.open(place(space))
        )
