"""Spaces of actors: how one engine reaches a space, in a process of its own or within a daemon.

Always: every change of actors to a space goes through ``commit`` and ``end``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dataspace.actors.engine.handlers import checked_name
from dataspace.kernel.actions import Action
from dataspace.kernel.space import Space

Commit = Callable[[str, Sequence[Action], int], object]
End = Callable[[str], None]


class ActorSpace:
    """One space, and how turns are committed to it; a daemon commits through its log."""

    __slots__ = ("commit", "depth", "end", "name", "space")

    def __init__(self, space: Space, wall: Callable[[], int], commit: Commit | None, end: End | None) -> None:
        self.space = space
        self.name = checked_name(space.name, "a space")
        self.depth = 0
        """How many layers lie between this space and the outermost one."""
        self.commit: Commit = commit or space.act
        """Commits the actions of an owner; the time is in microseconds since 1970 UTC."""
        self.end: End = end or (lambda owner: (space.end((owner,), wall()), None)[1])
