"""What happens to the connection of a client, for applications that want to know.

A client comes back by itself, so a program may not notice that it was away, that its facts had gone
meanwhile, or that the daemon at this address now serves another space.  Each of these is one event.

Always: after ``CONNECTED``, each ``LOST`` is followed by one of ``RESUMED``, ``ANEW`` and ``ANOTHER_SPACE``,
by ``ENDED``, or by the end of the client.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ConnectionChange(enum.Enum):
    """What has happened to a connection."""

    CONNECTED = "connected"
    """The first connection is there."""
    LOST = "lost"
    """There is no connection; another one is tried, unless ``reconnect=False``."""
    RESUMED = "resumed"
    """There is a connection again, and what the client had asserted had never gone."""
    ANEW = "anew"
    """Back, as a new session: the facts of the old one had gone, and were asserted anew."""
    ANOTHER_SPACE = "another-space"
    """There is a connection again, to a space with another identity: nothing of the one before is in it."""
    LEASE_ENDED = "lease-ended"
    """The lease ended before it was renewed, and its facts with it; another one is asked for."""
    REFUSED = "refused"
    """Some facts could not be asserted anew."""
    ENDED = "ended"
    """The daemon has sent the client away, and there will be no connection any more."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """One event; ``str`` of it is a line for people.

    ``since`` is when the daemon was last heard before the loss, in seconds since 1970, and ``seconds`` how
    long ago that was; 0 where nothing was lost.  ``facts`` counts those asserted anew, or refused.  ``space``
    is the identity of the space now, ``before`` of the one before where that is another.
    """

    change: ConnectionChange
    reason: str = ""
    since: float = 0.0
    seconds: float = 0.0
    facts: int = 0
    space: str = ""
    before: str = ""

    def __str__(self) -> str:
        anew = "as a new session"
        if self.facts:
            anew += f", {self.facts} {'fact was' if self.facts == 1 else 'facts were'} asserted anew"
        back = f"back after {self.seconds:.1f} s" if self.seconds else "back"
        match self.change:
            case ConnectionChange.CONNECTED:
                return "made"
            case ConnectionChange.LOST:
                return f"lost: {self.reason}"
            case ConnectionChange.RESUMED:
                return f"{back}, nothing had gone"
            case ConnectionChange.ANEW:
                return f"{back} {anew}"
            case ConnectionChange.ANOTHER_SPACE:
                return f"{back} {anew}, in another space: it is {self.space}, and was {self.before}"
            case ConnectionChange.LEASE_ENDED:
                return "too late for its lease, the facts of which have gone"
            case ConnectionChange.REFUSED:
                return (
                    f"cannot assert {self.facts} {'fact' if self.facts == 1 else 'facts'} anew: {self.reason}"
                )
            case ConnectionChange.ENDED:
                return f"ended: {self.reason}"
