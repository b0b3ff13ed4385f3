"""Verifying: is all there that was acknowledged, and is it what was written?

Reads everything that is retained, whether or not anybody would read it soon, and goes on after a damage to
find all of them.  It changes nothing, so that it can be run beside a daemon or on a copy.

Always: a log with no damage found has every epoch that was acknowledged, unaltered, and a state to recover.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relay.log.reader import LogReader, LogStatistics


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a log holds, and what is wrong with it: nothing, if ``damages`` is empty."""

    identity: str
    statistics: LogStatistics
    damages: tuple[str, ...]


def verify(directory: Path) -> Verdict:
    """Checks the log in a directory; O(log).  Raises ``LogFailed`` if there is none that can be read."""
    reader = LogReader.open(directory)
    try:
        damages = tuple(reader.damages())
        return Verdict(reader.identity, reader.statistics(), damages)
    finally:
        reader.close()
