"""Loop lag: how late the event loop runs a task that is ready, which is what every client waits for.

A task sleeps for a moment again and again, and measures by how much longer it took.

Always: a lag is counted once, however long it was.
"""

from __future__ import annotations

from typing import Final

import trio

from relay.store.durations import Durations

PAUSE: Final = 0.1
"""Seconds between two measurements, which cost some 30 µs each."""

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


async def measure_lag(lags: Durations) -> None:
    """Adds how late the loop was to ``lags``, until cancelled."""
    while True:
        due = trio.current_time() + PAUSE
        await trio.sleep_until(due)
        lags.add(max(0.0, trio.current_time() - due))
