"""The event loop: how late it is, and which rules use it.

Every client waits for the loop, so its *lag* is what all of them see: a task sleeps for a moment again and
again, and measures by how much longer it took.  Rules run in the turns of clients, each for a moment, so no
single run need be slow: the time of each is compared once in a second with its time before.

Always: a lag is counted once, however long it was; nothing is measured that the rules do not measure anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from relay.store.durations import Durations

if TYPE_CHECKING:
    from server.spaces.space import HostedSpace

PAUSE: Final = 0.1
"""Seconds between two measurements of the lag, which cost some 30 µs each."""

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

RULES_PAUSE: Final = 1.0
"""Seconds between two looks at the rules, each O(rules)."""


async def measure_lag(lags: Durations) -> None:
    """Adds how late the loop was to ``lags``, until cancelled."""
    while True:
        due = trio.current_time() + PAUSE
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
        for home in spaces():
            program = home.space.rules.program
            now = {} if program is None else program.spent()
            for name, seconds in growths(before.get(home.name, {}), now).items():
                took(home.name, name, seconds)
            before[home.name] = now
