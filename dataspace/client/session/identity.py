"""Identities: the name of a client, and how long its facts last without it, as asked for in ``connect``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dataspace.errors import UsageError


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Name, identity and times of a client: see ``connect``.  ``heartbeat``, ``grace`` and ``lease`` are in
    seconds; with ``reads`` it sends no turns, so that any daemon of the store may serve it."""

    name: str
    client: str
    owner: str
    space: str
    heartbeat: float
    grace: float
    lease: float
    reads: bool = False

    def __post_init__(self) -> None:
        """Raises ``UsageError`` for times that are not valid."""
        if not (_is_time(self.heartbeat) and self.heartbeat > 0):
            raise UsageError(
                f"heartbeat is in seconds, above 0 (math.inf for none), not {self.heartbeat!r:.40}"
            )
        for name in ("grace", "lease"):
            if not (_is_time(seconds := getattr(self, name)) and seconds < math.inf):
                raise UsageError(f"{name} is in seconds, 0 for none, not {seconds!r:.40}")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and value >= 0  # false for nan
