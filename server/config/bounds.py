"""The bounds of settings that are numbers: what a daemon can work with.

A value outside of its bounds makes a daemon that no client can use, or that is busy with one duty alone: a
frame of one byte has no room for a greeting, and a heartbeat of 0 is a ping in each moment.  A limit on what
clients may have is 0 where they may have none.

Always: each setting that is a number has bounds, its default is within them, and a daemon with any one
setting at a bound serves a client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dataspace.errors import UsageError

MOST_SECONDS: Final = 1e10
"""About 300 years: a clock can still add it to the time."""

MOST_BYTES: Final = 1 << 50
"""A pebibyte; sums of a few such numbers are still numbers of 64 bits."""

MOST: Final = 10**12
"""The highest count, for the same reason."""

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SettingBounds:
    """The least and the highest value; with ``zero`` also 0, which stands for something else."""

    least: float
    most: float
    zero: bool = False

    def __contains__(self, value: object) -> bool:
        assert isinstance(value, int | float)  # the settings with bounds are numbers
        return self.least <= value <= self.most or (self.zero and value == 0)

    @property
    def words(self) -> str:
        """The bounds as text.

        >>> SettingBounds(0.05, 86_400.0).words, SettingBounds(128 << 20, 1 << 50, zero=True).words
        ('0.05 to 86400', '0, or 134217728 to 1125899906842624')
        """
        return f"{'0, or ' if self.zero else ''}{_shown(self.least)} to {_shown(self.most)}"


def _shown(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class Within:
    """Reads a number, and refuses what is not within bounds."""

    read: Callable[[object], object]
    bounds: SettingBounds
    unit: str = ""

    def __call__(self, value: object) -> object:
        found = self.read(value)
        if found not in self.bounds:
            unit = f" {self.unit}" if self.unit else ""
            raise UsageError(f"{self.bounds.words}{unit} is needed, not {found!r:.80}")
        return found


SECONDS: Final = SettingBounds(0.0, MOST_SECONDS)
BYTES: Final = SettingBounds(0, MOST_BYTES)
COUNT: Final = SettingBounds(0, MOST)

_WAIT: Final = SettingBounds(0.01, MOST_SECONDS)
"""A time for another machine to do something: less is over before a packet arrives."""

_SOME: Final = SettingBounds(1, MOST)
"""A count without which no client is served at all."""

BOUNDS: Final = {
    "heartbeat": SettingBounds(0.05, 86_400.0),
    "stall": SettingBounds(0.001, MOST_SECONDS),
    "hang": SettingBounds(0.05, MOST_SECONDS),
    "stop": SettingBounds(0.01, 86_400.0),
    "cluster.lease": SettingBounds(0.2, 3600.0),  # it is renewed every third of it, over a network
    "followers": SettingBounds(0, 64),  # each costs the daemon a datagram for each group of epochs on disk
    "log.archive_every": SettingBounds(0.01, MOST_SECONDS),
    "limits.connections": _SOME,
    "limits.strangers": _SOME,
    "limits.hello_seconds": _WAIT,
    "limits.heartbeat_least": SettingBounds(0.01, 86_400.0),
    "limits.memory": SettingBounds(
        128 * MIB, MOST_BYTES, zero=True
    ),  # a daemon without facts takes some 60 MiB
    "limits.waiting_bytes": SettingBounds(4096, MOST_BYTES),
    "limits.name_bytes": SettingBounds(
        64, MOST_BYTES
    ),  # names that clients choose for themselves are of 30 bytes
    "limits.lease_seconds": _WAIT,
    "limits.frame_seconds": _WAIT,
    "limits.stalled_seconds": _WAIT,
    "limits.frame_bytes": SettingBounds(4096, 1 << 30),  # a greeting needs some 300 bytes
    "limits.frame_elements": SettingBounds(256, 1 << 30),
    "limits.streams": _SOME,
    "limits.all_streams": _SOME,
    "limits.unsent_bytes": SettingBounds(4096, MOST_BYTES),
    "limits.requests": _SOME,
    "limits.actions_per_turn": _SOME,
    "quota.connections": _SOME,
    "quota.strangers": _SOME,
    "web.header_bytes": SettingBounds(1024, MOST_BYTES),
    "web.header_seconds": _WAIT,
    "web.idle_seconds": _WAIT,
    "web.body_seconds": _WAIT,
}
"""Settings with narrower bounds than all times, sizes and counts have, by name."""
