"""The commands that work on a log in a directory or a store: verify, compact, export.

They need no daemon.  Verifying and exporting change nothing and may run beside one; compacting takes the
directory's lock, or leads the space in the store, as a daemon does.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import BinaryIO

from dataspace.errors import UsageError
from dataspace.wire.features import MAIN
from index.patterns.text import parse_pattern
from relay.export import export
from relay.journal.journal import compact_topics
from relay.journal.reader import TopicsVerdict, topics_verdict, verify_topics
from relay.log.compaction import Compacted, compact, trim
from relay.log.log import Log
from relay.log.reader import LogReader, Verdict, verdict
from relay.log.retention import Retention
from relay.space_registers import space_registers
from relay.store.lock import locked, unfollowed
from server.cli.output import json_line, say, size_text, write
from server.config.model import default_data
from server.config.units import duration, size
from server.stores import compact_in, log_in


def verify_log(args: argparse.Namespace) -> int:
    """Checks the whole log; returns 1 if something is wrong."""
    if args.deep or args.identity:
        raise UsageError("--deep and --identity are for --archive PREFIX")
    with _reading(args) as (log, topics_of):
        found, topics = verdict(log), topics_of()
    damages = [*found.damages, *(topics.damages if topics else ())]
    if args.json:
        report = {"identity": found.identity, **asdict(found.statistics), "damages": damages}
        if topics is not None:
            report["topics"] = {"topics": topics.topics, "steps": topics.steps, "epochs": topics.epochs}
        write(json_line(report))
    else:
        _print_verdict(found, topics, damages)
    return 1 if damages else 0


def _print_verdict(found: Verdict, topics: TopicsVerdict | None, damages: Sequence[str]) -> None:
    held = found.statistics
    write(
        f"epochs {held.oldest} to {held.last}: {held.changes} changes in {held.segments} segments,"
        f" {size_text(held.bytes)}, state at epoch {held.snapshot_epoch}"
    )
    if topics is not None and topics.topics:
        write(
            f"durable topics: {topics.topics} with {topics.epochs} completed epochs in {topics.steps} steps,"
            f" {size_text(topics.bytes)}"
        )
    for damage in damages:
        write(f"DAMAGED: {damage}")
    if not damages:
        write("every checksum holds, and nothing that was acknowledged is missing")


def compact_log(args: argparse.Namespace) -> int:
    """Deletes what is past retention, then rewrites the log without the holes; returns the exit code."""
    retention = _retention(args)
    if isinstance(args.data, str):
        _print_compacted(compact_in(args.data, args.space or MAIN, retention))
        return 0
    directory = _directory(args)
    with locked(directory), unfollowed(directory):
        if not retention.endless:
            trim(Log.open(directory, registers=space_registers), retention)
        done, topics = compact(directory, space_registers), compact_topics(directory)
    _print_compacted(done)
    if topics is not None and topics[0] != topics[1]:
        write(f"durable topics in {size_text(topics[0])} are now in {size_text(topics[1])}")
    return 0


def _retention(args: argparse.Namespace) -> Retention:
    """Returns the retention that the options ``--keep-…`` of a command ask for."""
    return Retention(
        age=None if args.keep_for is None else duration(args.keep_for),
        size=None if args.keep_bytes is None else size(args.keep_bytes),
        acknowledged=args.keep_unread,
    )


def _print_compacted(done: Compacted) -> None:
    write(
        f"{done.segments_before} segments in {size_text(done.bytes_before)}"
        f" are now {done.segments} in {size_text(done.bytes)}"
    )


def export_log(args: argparse.Namespace) -> int:
    """Writes the changes of a pattern to a file, or to the standard output."""
    with _reading(args) as (log, _), _target(args) as file:
        count = export(
            log,
            parse_pattern(args.pattern),
            file,
            args.format,
            since=args.since,
            until=args.until,
            state=args.state,
        )
    say(f"exported {count} changes")
    return 0


@contextlib.contextmanager
def _target(args: argparse.Namespace) -> Iterator[BinaryIO]:
    if args.output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with args.output.open("wb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot write {args.output}: {error.strerror}") from error


@contextlib.contextmanager
def _reading(args: argparse.Namespace) -> Iterator[tuple[LogReader, Callable[[], TopicsVerdict | None]]]:
    """Lends the log that ``--data`` names, and what checks its topics; ``UsageError`` if there is none."""
    if isinstance(args.data, str):
        with log_in(args.data, args.space or MAIN) as (log, opened):
            yield log, partial(topics_verdict, opened)
        return
    directory = _directory(args)
    with contextlib.closing(LogReader.open(directory, registers=space_registers)) as log:
        yield log, partial(verify_topics, directory)


def _directory(args: argparse.Namespace) -> Path:
    """Returns the directory of the log; raises ``UsageError`` if there is none."""
    directory: Path = args.data or default_data()
    if getattr(args, "space", None):
        directory = directory / "spaces" / args.space
    if not (directory / "log.sqlite").exists():
        raise UsageError(f"there is no log in {directory}; give the daemon's directory with --data")
    return directory
