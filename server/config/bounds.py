"""The bounds of settings that are numbers: what a daemon can work with.

A value outside of its bounds makes a daemon that no client can use, or that is busy with one duty alone: a
frame of one byte has no room for a greeting, and a heartbeat of 0 is a ping in each moment.  A limit on what
clients may have is 0 where they may have none.

Always: each setting that is a number has bounds, its default is within them, and a daemon with any one
setting at a bound serves a client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from dataspace.errors import UsageError

MOST_SECONDS: Final = 1e10
"""About 300 years: a clock can still add it to the time."""

MOST_BYTES: Final = 1 << 50
"""A pebibyte; sums of a few such numbers are still numbers of 64 bits."""

MOST: Final = 10**12
"""The highest count, for the same reason."""

N = TypeVar("N", int, float)


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
class Within(Generic[N]):
    """Reads a number, and refuses what is not within bounds."""

    read: Callable[[object], N]
    bounds: SettingBounds
    unit: str = ""

    def between(self, least: float, most: float | None = None, *, zero: bool = False) -> Within[N]:
        """Returns the same with narrower bounds; the highest value is its own where none is given."""
        bounds = SettingBounds(least, self.bounds.most if most is None else most, zero)
        return replace(self, bounds=bounds)

    def __call__(self, value: object) -> N:
        found = self.read(value)
        if found not in self.bounds:
            unit = f" {self.unit}" if self.unit else ""
            raise UsageError(f"{self.bounds.words}{unit} is needed, not {found!r:.80}")
        return found
