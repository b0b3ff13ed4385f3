"""Counts of what the daemon has done since its start, as plain integers.

The counts of each connection (turns, bytes) are added when it ends, so that a turn costs nothing more; a
reader of the sums adds the counts of the open connections.

Always: no count goes down; codes that are counted are the daemon's own, and so few.
"""

from __future__ import annotations

from typing import Final

MOST_CODES: Final = 64
"""Codes that are counted apart; others are counted as ``other``."""

REFUSED: Final = ("limit", "not-allowed", "bad-request", "disk-full")
GOODBYES: Final = (
    "internal",
    "limit",
    "malformed",
    "unauthorized",
    "timeout",
    "stalled",
    "superseded",
    "ended",
)
KINDS: Final = ("turn", "request", "replay", "rules")
"""Kinds that are counted from 0: Prometheus sees no increase in a series that begins with 1."""


class Counts:
    """Counts of events since the start."""

    def __init__(self) -> None:
        self.connections = 0
        """Connections that were accepted."""
        self.turned_away = 0
        """Connections for which there was no room."""
        self.logins_refused = 0
        """Hellos with a token that was not valid."""
        self.turns: dict[str, int] = {}
        """Turns of connections that have ended, by space."""
        self.received = self.sent = 0
        """Bytes of connections that have ended."""
        self.refused = dict.fromkeys(REFUSED, 0)
        """Turns, requests and streams that were refused, by code."""
        self.goodbyes = dict.fromkeys(GOODBYES, 0)
        """Connections that the daemon has ended, by code."""
        self.slow = dict.fromkeys(KINDS, 0)
        """Lines of the slow log, omitted lines included, by kind."""

    def left(self, space: str, turns: int, received: int, sent: int) -> None:
        """Adds what a connection has counted that has ended."""
        self.turns[space] = self.turns.get(space, 0) + turns
        self.received += received
        self.sent += sent


def count(counts: dict[str, int], code: str) -> None:
    """Counts one more of a code.

    >>> counts = {"limit": 1}
    >>> count(counts, "limit"); counts
    {'limit': 2}
    """
    if code not in counts and len(counts) >= MOST_CODES:
        code = "other"
    counts[code] = counts.get(code, 0) + 1
