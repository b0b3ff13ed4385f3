"""Resuming: what has to be said again after a lost connection, under which numbers, in what portions?

The daemon's welcome says which turn of this client was the last to take effect, and whether its session goes
on.  If so, only turns without an answer are sent again.  Else the facts of the session went
with the old connection, so what it claims is asserted anew, in turns of its own; then come the turns that
had no answer.  Those that took effect keep their numbers and are answered with their old epochs; the others
are moved up to leave room, since the daemon knows none of them.

It is apart from the connection because it is a plain function of what is known, and the place where a turn
could be lost or doubled.

Always: no portion is beyond what the daemon takes in one turn; numbers ascend in the order of submission.
"""

from __future__ import annotations

from collections.abc import Iterable

from dataspace.client.portions import TurnLimits, portions
from dataspace.client.turns import Claims, Ticket


def unanswered(tickets: Iterable[Ticket], claims: Claims, applied: int) -> list[Ticket]:
    """The turns to send in a session that goes on: those without an answer, as they are."""
    waiting = list(tickets)
    for ticket in waiting:
        if ticket.sequence <= applied:
            claims.apply(ticket)
    return waiting


def restated(tickets: Iterable[Ticket], claims: Claims, applied: int, limits: TurnLimits) -> list[Ticket]:
    """The turns to send in a new session, after a welcome that knows turns up to ``applied``.

    Turns that restated the claims after an earlier loss are left out: their session is over.
    O(claims + tickets).
    """
    waiting = [ticket for ticket in tickets if not ticket.restating]
    done = [ticket for ticket in waiting if ticket.sequence <= applied]
    fresh = [ticket for ticket in waiting if ticket.sequence > applied]
    for ticket in done:
        claims.apply(ticket)
    again = [
        Ticket(applied + at, "", tuple(part), restating=True)
        for at, part in enumerate(
            portions(claims.again(), most=limits.actions_per_turn, size=limits.portion_bytes), 1
        )
    ]
    for ticket in fresh:
        ticket.sequence += len(again)
    return [*done, *again, *fresh]
