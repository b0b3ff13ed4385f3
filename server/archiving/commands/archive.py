"""The commands ``dataspace log archive``, ``log files`` and ``log delta``, and others of an archive.

They need no daemon, change nothing in its directory, and may run beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from dataspace.client.completed import CompletedEpoch
from dataspace.codec import unpack
from dataspace.errors import UsageError
from dataspace.wire.features import MAIN
from index.patterns.text import parse_pattern, unparse
from index.values.values import Value
from relay.archive.archive import Archive, only_archive, topics_in
from relay.archive.archiver import Archiver, archive_all
from relay.archive.manifest import ArchivedFile, Range
from relay.archive.merging import Merger, MergeRules
from relay.archive.states import state_files
from relay.archive.tables import DeltaTables
from relay.archive.topics.past import TopicArchive
from relay.archive.topics.verifying import verify_topic
from relay.archive.verifying import ArchiveVerdict, verify_archive
from relay.journal.past import every_piece
from relay.log.reader import LogReader
from relay.objects.objects import Objects
from relay.objects.opening import open_objects
from server.archiving.child import keep_archiving
from server.archiving.logs import read_logs, read_topics
from server.archiving.topics import TopicsArchiver
from server.cli.output import json_line, say, size_text, write
from server.config.kinds import clusters
from server.config.model import default_data


def archive(args: argparse.Namespace) -> int:
    """Archives what a home has and its archive lacks; returns the exit code."""
    if args.for_daemon:
        return keep_archiving()
    objects = open_objects(args.prefix)
    with read_logs(args.data or default_data(), args.space) as logs:
        for space, log in logs.items():
            archiver = Archiver(log, objects, space, term=log.term)
            archiver.begin()
            try:
                reporter = _Reporter(quiet=args.quiet or args.json)
                archive_all(archiver, reporter.report)
                if args.merge:
                    rules = MergeRules(clusters=clusters(args.cluster or ()))
                    Merger(archiver.archive, term=log.term, rules=rules).merge_all(reporter.report)
            except KeyboardInterrupt:
                say("dataspace: interrupted; the same command continues")
                return 1
            _print_archive(archiver.archive, as_json=args.json)
        if MAIN in logs:
            return _archive_topics(args, logs[MAIN], objects)
    return 0


def _archive_topics(args: argparse.Namespace, log: LogReader, objects: Objects) -> int:
    """Archives the durable topics beside a log."""
    with read_topics(args.data or default_data()) as tables:
        if tables is not None:
            topics = TopicsArchiver(tables, objects, MAIN, log.identity, term=log.term)
            try:
                reporter = _Reporter(quiet=args.quiet or args.json, what="steps")
                for archive in topics.all(reporter.report):
                    if args.merge:
                        Merger(archive, term=log.term).merge_all(reporter.report)
                    _print_archive(archive, as_json=args.json)
            except KeyboardInterrupt:
                say("dataspace: interrupted; the same command continues")
                return 1
    return 0


class _Reporter:
    """Prints a line on the standard error for each range."""

    def __init__(self, *, quiet: bool, what: str = "epochs") -> None:
        self._quiet = quiet
        self._what = what

    def report(self, added: Range) -> None:
        """Prints what was added."""
        if not self._quiet:
            size = size_text(sum([each.size for each in added.files]))
            done = "changes" if self._what == "epochs" else "completed epochs"
            first = max(added.first, 1)
            text = f"{self._what} {first} to {added.last}: {added.changes} {done} in {size}"
            say(text)


def _print_archive(archive: Archive, *, as_json: bool) -> None:
    manifest, topic = archive.manifest, archive.manifest.topic
    if as_json:
        names = ("space", "identity", "version", "first", "upto", "missing")
        fields = {"archive": archive.shown} | {name: getattr(manifest, name) for name in names}
        write(json_line(fields | _numbers(archive)))
        return
    if archive.place.topic:
        name = archive.place.topic if topic is None else unparse(topic.name)
        held = f"epochs {topic.oldest} to {manifest.until}" if topic else "no epoch yet"
        write(f"topic {name}: {held}, version {manifest.version} of {archive.shown}")
        return
    held = f"epochs {manifest.first} to {manifest.upto}" if manifest.version else "no epoch yet"
    write(f"space {manifest.space}: {held}, version {manifest.version} of {archive.shown}")
    for first, last in manifest.missing:
        write(f"epochs {first} to {last} are missing: the log let them go before they were archived")


def _numbers(archive: Archive) -> dict[str, object]:
    """Returns the topic that an archive is of, and its completed epochs; nothing for a log."""
    topic = archive.manifest.topic
    if topic is None:
        return {}
    return {
        "topic": topic.name,
        "number": topic.number,
        "oldest": topic.oldest,
        "completed": archive.manifest.until,
    }


def verify(args: argparse.Namespace) -> int:
    """Checks the archives of a space and of the topics beside the log.

    Returns 1 if something is wrong, or an interrupted erasure is still to delete something.
    """
    archive = only_archive(open_objects(args.archive), args.space or MAIN, args.identity or "")
    sound = _verify(archive, deep=args.deep, as_json=args.json)
    for each in topics_in(archive):
        sound = _verify(each, deep=args.deep, as_json=args.json) and sound
    return 0 if sound else 1


def _verify(archive: Archive, *, deep: bool, as_json: bool) -> bool:
    found = (verify_topic if archive.place.topic else verify_archive)(archive, deep=deep)
    if as_json:
        fields = {name: getattr(found, name) for name in ArchiveVerdict.__slots__}
        write(json_line(fields | _numbers(archive)))
        return not found.damages and not found.waiting
    topic = archive.manifest.topic
    if archive.place.topic:
        name = archive.place.topic if topic is None else unparse(topic.name)
        write(f"topic {name}: completed epochs {topic.oldest if topic else 1} to {archive.manifest.until}")
    what = "steps" if archive.place.topic else "epochs"
    done = "completed epochs" if archive.place.topic else "changes"
    write(
        f"{what} {found.first} to {found.upto}: {found.changes} {done} in {found.ranges} ranges,"
        f" {size_text(found.bytes)}, version {found.version}"
    )
    for first, last in found.missing:
        write(f"{what} {first} to {last} are missing: they were let go before they were archived")
    for damage in found.damages:
        write(f"DAMAGED: {damage}")
    if found.waiting:
        write(
            f"AN ERASURE WAITS: {found.waiting} with erased values are still to be deleted; the process that "
            "archives does this, or the same `dataspace log erase` again"
        )
    if not found.damages:
        write("every manifest and every object is what was written")
    return not found.damages and not found.waiting


def _topic_of(archive: Archive, name: str) -> Archive:
    """Returns the newest archive of a topic, by its name or its number; ``UsageError`` if there is none."""
    there = topics_in(archive)
    for each in reversed(there):
        topic = each.refresh().topic
        if name in (str(each.place.topic), topic and topic.name):
            return each
    raise UsageError(f"{archive.shown} has no archive of a topic {name!r}, but of {len(there)} topics")


def topic(args: argparse.Namespace) -> int:
    """Prints completed epochs of an archived topic, as ``topic read`` does."""
    from server.topics.commands import print_completed  # the archiving process does without

    for epoch in _epochs(args):
        print_completed(epoch, as_json=args.json)
    return 0


def _epochs(args: argparse.Namespace) -> Iterator[CompletedEpoch]:
    """Yields the completed epochs of an archived topic, as far as a command asks for them."""
    place = only_archive(open_objects(args.archive), args.space or MAIN)
    archive = TopicArchive(_topic_of(place, args.topic))
    shape = archive.shape
    if shape is None:
        return
    after = archive.oldest - 1 if args.after is None else args.after
    upto = archive.completed if args.until is None else args.until
    if after < archive.oldest - 1 or upto > archive.completed:
        raise UsageError(
            f"{archive.shown} has completed epochs {archive.oldest} to {archive.completed},"
            f" not {after + 1} to {upto}"
        )
    items: list[Value] = []
    for piece in every_piece(archive, shape.partitions, after, upto):
        for batch in piece.items:
            items.extend(unpack(batch))  # type: ignore[arg-type]  # an array, as the daemon had checked
        if piece.next is None:
            yield CompletedEpoch(piece.number, piece.time, tuple(items), piece.crashed)
            items = []


def files(args: argparse.Namespace) -> int:
    """Prints the objects of an archive's version, one to a line; returns the exit code."""
    objects: Objects = open_objects(args.prefix)
    archive = only_archive(objects, args.space or MAIN, args.identity or "")
    if args.topic is not None:
        archive = _topic_of(archive, args.topic)
    if args.version is not None:
        archive.choose(args.version)
    pattern = None if args.pattern is None else parse_pattern(args.pattern)
    found = list(_listed(archive, pattern, args.as_of))
    if not found:
        say("dataspace: no file of this version may have facts of the pattern")
    for (first, last), file in found:
        address = objects.address(archive.name(file.path))
        if args.json:
            fields = {"file": address, "first": first, "last": last}
            write(json_line(fields | {name: getattr(file, name) for name in ArchivedFile.__slots__[1:]}))
        else:
            write(address)
    return 0


def _listed(
    archive: Archive, pattern: Value, epoch: int | None
) -> Iterator[tuple[tuple[int, int], ArchivedFile]]:
    """Yields objects, each with the first and last epoch that it may have."""
    if epoch is None:
        yield from (((each.first, each.last), file) for each, file in archive.files(pattern))
        return
    found = state_files(archive, epoch, pattern)
    if found.state is not None:
        yield from (((found.state.epoch, found.state.epoch), file) for file in found.facts)
    yield from (((each.first, each.last), file) for each, file in found.changes)


def delta(args: argparse.Namespace) -> int:
    """Brings the Delta tables of an archive up to date and prints where they are; returns the exit code."""
    tables = DeltaTables(only_archive(open_objects(args.prefix), args.space or "main", args.identity or ""))
    pattern = None if args.pattern is None else parse_pattern(args.pattern)
    for each in tables.update(pattern):
        write(json_line(asdict(each)) if args.json else each.address)
    for label in tables.left_out(pattern):
        text = f"label {label!r} has no table: its folder has a percent sign, which readers of Delta refuse"
        say(f"dataspace: {text}")
    return 0
