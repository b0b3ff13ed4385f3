"""The command ``dataspace drain``: asks a daemon to end when its clients have gone."""

from __future__ import annotations

import argparse
from typing import Protocol

from index.values.values import Map, Value
from server.config.units import duration


class Asks(Protocol):
    """A connection to a daemon."""

    async def request(self, verb: str, arguments: Map) -> Value:
        """Returns the answer; raises ``Refused`` where it is denied."""


async def drain(space: Asks, args: argparse.Namespace) -> int:
    """Sends the request, and prints what it began; returns the exit code."""
    within = round(duration(args.within) * 1000)
    answer = await space.request("drain", Map({"within": within, "reason": args.reason}))
    sessions = answer.get("sessions", 0) if isinstance(answer, Map) else 0
    print(f"the daemon takes no new sessions, and ends when {sessions!r} have gone, within {args.within}")
    return 0
