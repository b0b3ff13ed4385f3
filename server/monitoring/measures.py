"""Measurements that repeat: the rates of connections, the lag of the event loop, the time of rules.

Every client waits for the loop, so its *lag* is what all of them see: a task sleeps for a moment again and
again, and measures by how much longer it took.  Rules run in the turns of clients, each for a moment, so no
single run need be slow: the time of each is compared once in a second with its time before.

Always: nothing is counted that connections and rules do not count anyway; a lag is counted once, however long
it was; a connection that has ended is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from relay.store.durations import Durations
from server.monitoring.lags import ReaderLags
from server.parts import PartKey
from server.sessions.peer import Peer

if TYPE_CHECKING:
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

PAUSE: Final = 5.0
"""Seconds between two looks."""

SLICE: Final = 1024
"""Connections that are looked at in one slice, at a microsecond for each."""

LAG_PAUSE: Final = 0.1
"""Seconds between two measurements of the lag, which cost some 30 µs each."""

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

RULES_PAUSE: Final = 1.0
"""Seconds between two looks at the rules, each O(rules)."""


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

    async def measure(self, connections: Iterable[Peer]) -> None:
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
            await self.measure(connections())


async def measure_lag(lags: Durations) -> None:
    """Adds how late the loop was to ``lags``, until cancelled."""
    while True:
        due = trio.current_time() + LAG_PAUSE
        await trio.sleep_until(due)
        lags.add(max(0.0, trio.current_time() - due))


def growths(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, float]:
    """Returns the seconds that each rule has used between two looks; a rule that was made anew began at 0.

    >>> growths({"a": 5_000_000_000, "b": 7_000_000_000}, {"a": 6_000_000_000, "b": 500_000_000, "c": 0})
    {'a': 1.0, 'b': 0.5, 'c': 0.0}
    """
    found = {}
    for name, spent in now.items():
        earlier = before.get(name, 0)
        found[name] = (spent - earlier if spent >= earlier else spent) / 1e9
    return found


async def watch_rules(
    spaces: Callable[[], Iterable[HostedSpace]], took: Callable[[str, str, float], None]
) -> None:
    """Reports each second what each rule of each space has used of it, until cancelled."""
    before: dict[str, Mapping[str, int]] = {}
    while True:
        await trio.sleep(RULES_PAUSE)
        for hosted in spaces():
            program = hosted.space.rules.program
            now = {} if program is None else program.spent()
            for name, seconds in growths(before.get(hosted.name, {}), now).items():
                took(hosted.name, name, seconds)
            before[hosted.name] = now


class Measures:
    """What a daemon measures of itself."""

    def __init__(self, daemon: DaemonState) -> None:
        self.rates = Rates()
        """How much each peer has done in the last seconds."""
        self.reader_lags = ReaderLags(daemon.system)
        """How far named readers are behind."""
        self.loop_lag = Durations(BOUNDS)
        """How late the event loop was."""


MEASURES: Final = PartKey[Measures]("measures")
