"""How far the log of a space extends."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogFrontier:
    """How far a space's log extends: the highest epoch on disk, the oldest retained, and the identity of the
    space.

    ``gaps`` are pairs of epochs between which crashes have left numbers unused, beyond the requested epoch.
    ``erased`` is when rows of its archive were erased last, in microseconds since 1970, 0 for never.
    """

    epoch: int
    oldest: int
    space: str
    gaps: tuple[tuple[int, int], ...] = ()
    erased: int = field(default=0, kw_only=True)
