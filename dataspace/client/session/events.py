"""Events about a client's connection, for applications that must react to its loss and return.

A client reconnects by itself, so a program may not notice that it was disconnected, that its facts had been
retracted meanwhile, or that the daemon at this address now serves another space.  Each of these is one event.

Always: after ``CONNECTED``, each ``LOST`` is followed by one of ``RESUMED``, ``ANEW`` and ``ANOTHER_SPACE``,
by ``ENDED``, or by the end of the client.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ConnectionChange(enum.Enum):
    """Kinds of events in the life of a client's connection."""

    CONNECTED = "connected"
    """The client has connected for the first time."""
    LOST = "lost"
    """The connection was lost; the client tries to reconnect, unless ``reconnect=False``."""
    RESUMED = "resumed"
    """The client has reconnected, and none of its facts were retracted meanwhile."""
    ANEW = "anew"
    """The client has reconnected with a new session: the facts of the old one were retracted, and asserted
    again, unless it was made with ``reassert=False``."""
    ANOTHER_SPACE = "another-space"
    """The client has reconnected to a space with another identity, which holds nothing of the one before."""
    LEASE_ENDED = "lease-ended"
    """The lease ended before it was renewed, and its facts were retracted; the client requests another
    lease, and asserts them again as above."""
    REFUSED = "refused"
    """The daemon refused to assert some facts again."""
    ENDED = "ended"
    """The daemon has ended the session; the client will not reconnect."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """One event; ``str`` of it is one line for a log or a terminal.

    ``since`` is when data last came from the daemon before the loss, in seconds since 1970, and ``seconds``
    how long ago that was; 0 where nothing was lost.  ``facts`` counts those asserted again, or refused.
    ``turns`` counts the turns that had no answer and are not sent to another space: each raises
    ``AnotherSpace``.  ``space`` is the identity of the current space, ``before`` the identity of the previous
    space if it is another.
    """

    change: ConnectionChange
    reason: str = ""
    since: float = 0.0
    seconds: float = 0.0
    facts: int = 0
    turns: int = 0
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
                elsewhere = f"{back} {anew}, in another space: it is {self.space}, and was {self.before}"
                if self.turns:
                    lost = f"{self.turns} {'turn' if self.turns == 1 else 'turns'} without an answer"
                    elsewhere += f"; {lost} {'is' if self.turns == 1 else 'are'} not sent to it"
                return elsewhere
            case ConnectionChange.LEASE_ENDED:
                return "too late for its lease, the facts of which have gone"
            case ConnectionChange.REFUSED:
                return (
                    f"cannot assert {self.facts} {'fact' if self.facts == 1 else 'facts'} anew: {self.reason}"
                )
            case ConnectionChange.ENDED:
                return f"ended: {self.reason}"
