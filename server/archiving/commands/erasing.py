"""The command ``dataspace log erase``: the past of a pattern goes from an archive.

A daemon does it, or with ``--archive`` this process.  Both say what was erased, and what that does not reach.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from dataspace.errors import UsageError
from dataspace.wire.features import MAIN
from index.patterns.text import parse_pattern
from index.values.values import Map
from server.cli.connecting import connect_short
from server.cli.output import json_line, say, write

WAIT: Final = 10_000
"""Milliseconds that the daemon is given to answer; it is asked again until all is done."""

UNREACHED: Final = (
    "not erased: backups, epochs not archived yet, topics, values within other facts, jobs that a group has "
    "read and not done, copies, versions that the store itself keeps"
)
"""What no erasure reaches."""


def erase_past(args: argparse.Namespace) -> int:
    """Erases the past of a pattern; returns the exit code."""
    before = round(args.before.timestamp() * 1_000_000)
    if args.archive is None:
        if args.by or args.identity:
            raise UsageError("--by and --identity go with --archive: the daemon knows who asks, and its log")
        return _by_daemon(args, before)
    from getpass import getuser

    from relay.archive.archive import only_archive
    from relay.archive.erasure.erasing import erase
    from relay.objects.opening import open_objects

    archive = only_archive(open_objects(args.archive), args.space or MAIN, args.identity or "")
    counts = asdict(erase(archive, parse_pattern(args.pattern), before, args.by or getuser()))
    _warn_of_tables(counts.pop("tables_error"))
    _tell(args, counts, "the disk of its daemon until retention deletes what is archived")
    return 0


def _by_daemon(args: argparse.Namespace, before: int) -> int:
    asked = {"pattern": parse_pattern(args.pattern), "before": before, "wait": WAIT}
    previous = ""
    with connect_short(args) as space:
        while True:
            answer = space.request("erase", asked)
            assert isinstance(answer, Map)  # by WIRE.md
            if answer["done"]:
                break
            now = str(answer["error"]) or "the daemon archives and erases"
            if now != previous:
                say(f"not done yet: {now}")
                previous = now
    counts = {str(name): count for name, count in answer.pairs() if isinstance(count, int)}
    del counts["done"]
    _warn_of_tables(str(answer["tables_error"]) if "tables_error" in answer else "")
    held = counts["held_from"]
    left = f"epochs {held} to {counts['upto']} on the daemon's disk, until retention deletes them"
    _tell(args, counts, left if held <= counts["upto"] else "")
    return 0


def _warn_of_tables(error: str) -> None:
    if error:
        say(f"all is erased, but Delta tables were not made anew: {error}; `dataspace log delta` retries")


def _tell(args: argparse.Namespace, counts: Mapping[str, int], disk: str) -> None:
    """Says what was erased."""
    if args.json:
        write(json_line(counts))
        return
    write(
        f"{counts['rows']} changes up to epoch {counts['upto']} are erased, in {counts['ranges']} ranges;"
        f" {counts['objects']} objects and {counts['manifests']} manifests are deleted"
    )
    if counts["holding"]:
        held = f"{counts['holding']} facts still held then, and stay: retract them first"
        write(f"{held} (dead letters: dataspace groups retry)")
    say(", ".join(filter(None, [UNREACHED, disk])))
