"""Verifying the archive of a durable topic: as any archive, and its steps and completed epochs besides.

Always: the archive of a topic that verifies has every step and every completed epoch from its first to its
newest, except the steps that it declares missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relay.archive.archive import Archive
from relay.archive.verifying import ArchiveVerdict, verify_archive
from relay.journal.rows import entries_of


def verify_topic(archive: Archive, *, deep: bool = False) -> ArchiveVerdict:
    """Checks an archive as ``verify_archive``; with ``deep`` also that steps and epochs follow each other."""
    found = verify_archive(archive, deep=deep)
    if not deep or found.damages:
        return found
    return replace(found, damages=tuple(_gaps(archive)))


def _gaps(archive: Archive) -> Iterator[str]:
    """Yields where a step or the number of a completed epoch is not the next one."""
    ends = {last + 1 for _, last in archive.manifest.missing}
    position = number = 0
    for of in archive.ranges():
        completed = 0
        for segment in archive.segments_of(of):
            for step, done, _ in entries_of(segment):
                anew = step.position in ends or not position
                if not anew and step.position != position + 1:
                    yield f"{archive.shown}: step {step.position} comes after {position}"
                position = step.position
                for epoch in done:
                    if number and not anew and epoch.number != number + 1:
                        yield f"{archive.shown}: completed epoch {epoch.number} comes after {number}"
                    number, completed, anew = epoch.number, completed + 1, False
        if (completed, position) != (of.changes, of.last):
            yield f"{archive.shown}: steps {of.first} to {of.last} are not what their range says"
    if number and number != archive.manifest.until:
        yield f"{archive.shown}: the newest completed epoch is {number}, not {archive.manifest.until}"
