"""What operators see of an archive: its ranges and bytes, what waits to be merged, the last erasure."""

from __future__ import annotations

from dataclasses import dataclass

from relay.archive.archive import Archive
from relay.archive.merging import ranges_due


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    """The figures of one version of an archive.

    ``ranges`` and ``bytes`` (of the objects of ranges and states) leave out what was replaced and stays for a
    day.  ``due`` is how many ranges would be merged now.  ``erased_at`` is when something was erased last, in
    microseconds since 1970, and 0 for never.
    """

    version: int = 0
    ranges: int = 0
    bytes: int = 0
    due: int = 0
    erased_at: int = 0


def figures_of(archive: Archive) -> ArchiveFigures:
    """Returns the figures of the version that was read last; O(ranges), and reads chapters not read yet."""
    manifest, ranges, total = archive.manifest, 0, 0
    for each in archive.ranges():
        ranges, total = ranges + 1, total + each.stored
    total += sum([file.size for each in archive.states() for file in each.files])
    return ArchiveFigures(manifest.version, ranges, total, ranges_due(manifest), archive.erased_at())
