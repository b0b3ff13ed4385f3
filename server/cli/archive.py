"""The commands ``dataspace log archive``, ``dataspace log files`` and ``dataspace log delta``.

They need no daemon, change nothing in its directory, and may run beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict

from index.patterns.text import parse_pattern
from index.values.values import Value
from relay.archive.archive import Archive, only_archive
from relay.archive.archiver import Archiver, archive_all
from relay.archive.manifest import ArchivedFile, Range
from relay.archive.merging import Merger, MergeRules
from relay.archive.states import state_files
from relay.archive.tables import DeltaTables
from relay.archive.verifying import ArchiveVerdict, verify_archive
from relay.objects.objects import Objects
from relay.objects.opening import open_objects
from server.archiving.child import keep_archiving
from server.archiving.logs import read_logs
from server.cli.output import json_line, size_text
from server.config.model import default_data
from server.config.settings import clusters


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
                print("dataspace: interrupted; the same command continues", file=sys.stderr)
                return 1
            _print_archive(archiver.archive, as_json=args.json)
    return 0


class _Reporter:
    """Prints a line on the standard error for each range."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def report(self, added: Range) -> None:
        """Prints what was added."""
        if not self._quiet:
            size = size_text(sum([each.size for each in added.files]))
            text = f"epochs {max(added.first, 1)} to {added.last}: {added.changes} changes in {size}"
            print(text, file=sys.stderr)


def _print_archive(archive: Archive, *, as_json: bool) -> None:
    manifest = archive.manifest
    if as_json:
        names = ("space", "identity", "version", "first", "upto", "missing")
        print(json_line({"archive": archive.shown} | {name: getattr(manifest, name) for name in names}))
        return
    held = f"epochs {manifest.first} to {manifest.upto}" if manifest.version else "no epoch yet"
    print(f"space {manifest.space}: {held}, version {manifest.version} of {archive.shown}")
    for first, last in manifest.missing:
        print(f"epochs {first} to {last} are missing: the log let them go before they were archived")


def verify(prefix: str, space: str, identity: str, *, deep: bool, as_json: bool) -> int:
    """Checks the archive of a space; returns 1 if something is wrong."""
    found = verify_archive(only_archive(open_objects(prefix), space, identity), deep=deep)
    if as_json:
        print(json_line({name: getattr(found, name) for name in ArchiveVerdict.__slots__}))
        return 1 if found.damages else 0
    print(
        f"epochs {found.first} to {found.upto}: {found.changes} changes in {found.ranges} ranges,"
        f" {size_text(found.bytes)}, version {found.version}"
    )
    for first, last in found.missing:
        print(f"epochs {first} to {last} are missing: the log let them go before they were archived")
    for damage in found.damages:
        print(f"DAMAGED: {damage}")
    if not found.damages:
        print("every manifest and every object is what was written")
    return 1 if found.damages else 0


def files(args: argparse.Namespace) -> int:
    """Prints the objects of an archive's version, one to a line; returns the exit code."""
    objects: Objects = open_objects(args.prefix)
    archive = only_archive(objects, args.space or "main", args.identity or "")
    if args.version is not None:
        archive.choose(args.version)
    pattern = None if args.pattern is None else parse_pattern(args.pattern)
    found = list(_listed(archive, pattern, args.as_of))
    if not found:
        print("dataspace: no file of this version may have facts of the pattern", file=sys.stderr)
    for (first, last), file in found:
        address = objects.address(archive.name(file.path))
        if args.json:
            said = {"file": address, "first": first, "last": last}
            print(json_line(said | {name: getattr(file, name) for name in ArchivedFile.__slots__[1:]}))
        else:
            print(address)
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
    for each in tables.keep(pattern):
        print(json_line(asdict(each)) if args.json else each.address)
    for label in tables.left_out(pattern):
        text = f"label {label!r} has no table: its folder has a percent sign, which readers of Delta refuse"
        print(f"dataspace: {text}", file=sys.stderr)
    return 0
