"""Rates: how much each connection does in a second, from two looks at what it counts anyway.

Always: to look takes a microsecond for each connection, in slices; a connection that has ended is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import trio

from server.sessions.peer import Peer

PAUSE: Final = 5.0
"""Seconds between two looks."""

SLICE: Final = 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """Turns, bytes received and bytes sent, in a second."""

    turns: float = 0.0
    received: float = 0.0
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class _Look:
    """What a connection had counted at a time, and its rate until then."""

    at: float
    turns: int
    received: int
    sent: int
    rate: Rate


class Rates:
    """The rates of all connections."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}

    def of(self, connection: Peer) -> Rate:
        """Returns the rate in the last few seconds; of a new connection since it came."""
        look = self._looks.get(connection.number)
        return self._look(connection, trio.current_time()).rate if look is None else look.rate

    def _look(self, connection: Peer, now: float) -> _Look:
        before = self._looks.get(connection.number)
        turns, received, sent = connection.turns, connection.received, connection.sending.sent
        if before is None:
            before = _Look(connection.since, 0, 0, 0, Rate())
        spent = max(now - before.at, 1e-3)
        rate = Rate(
            (turns - before.turns) / spent, (received - before.received) / spent, (sent - before.sent) / spent
        )
        return _Look(now, turns, received, sent, rate)

    async def look(self, connections: Iterable[Peer]) -> None:
        """Looks at all connections, in slices."""
        looks: dict[int, _Look] = {}
        for at, connection in enumerate(list(connections), 1):
            looks[connection.number] = self._look(connection, trio.current_time())
            if not at % SLICE:
                await trio.lowlevel.checkpoint()
        self._looks = looks

    async def run(self, connections: Callable[[], Iterable[Peer]]) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await trio.sleep(PAUSE)
            await self.look(connections())
