"""How far a space extends, in its log and in its archive."""

from __future__ import annotations

from dataclasses import dataclass

from dataspace.client.bulk.frontiers import LogFrontier


@dataclass(frozen=True, slots=True)
class SourceFrontier(LogFrontier):
    """How far a space extends: ``oldest`` is the oldest epoch in the archive or the log.

    ``held_from`` is the oldest that the daemon has and that no erasure reached, ``archived`` the newest one
    in the archive.
    """

    held_from: int = 0
    archived: int = 0
