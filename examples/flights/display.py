"""The display: how many are in the air, and how far everything has come, while it runs.

On a terminal a few lines are drawn over and over; elsewhere (a pipe, a log of CI) a plain line is printed
now and then, so that nothing there fills with control characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TextIO

from examples.flights.check import spelled

_BAR: Final = 32
"""Characters of a full bar; every line fits a terminal of eighty."""

_PLAIN_EVERY: Final = 5.0
"""Seconds between two lines where there is no terminal."""


@dataclass(slots=True)
class Progress:
    """What is shown: filled by those who replay, count and observe."""

    changes: int = 0
    """All changes that the replay will have made, messages included."""
    rows: int = 0
    """Those among them that the queries read: all but the messages."""
    replayed: int = 0
    counted: int = 0
    at: datetime | None = None
    """The flight time that the replay has come to."""
    memory: int = 0
    airborne: dict[str, int] = field(default_factory=dict)
    busy: dict[str, int] | None = None
    """Where more than a dozen aircraft are on their way to, as rules derive it; None without rules."""
    missed: int = 0


class Display:
    """Draws a progress on a stream."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._drawn = 0
        self._last = float("-inf")

    def note(self, text: str) -> None:
        """Prints a line above whatever is drawn from now on."""
        print(text, file=self._out, flush=True)
        self._drawn = 0

    def show(self, progress: Progress, now: float) -> None:
        """Shows where things are; ``now`` is in seconds of any clock that only goes forward."""
        if self._terminal:
            self._draw(lines(progress))
        elif now - self._last >= _PLAIN_EVERY:
            self._last = now
            print(plain(progress), file=self._out, flush=True)

    def end(self, progress: Progress) -> None:
        """Shows the end once more and leaves it standing."""
        if self._terminal:
            self._draw(lines(progress))
            self._drawn = 0
        else:
            print(plain(progress), file=self._out, flush=True)

    def _draw(self, text: list[str]) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._out.write(up + "".join(f"\r\x1b[2K{line}\n" for line in text))
        self._out.flush()
        self._drawn = len(text)


def lines(progress: Progress) -> list[str]:
    """What a terminal shows: the airports with a mark for every two, then replay, Spark and daemon."""
    at = f"{progress.at:%a %d %b %Y %H:%M} UTC" if progress.at else "waiting for the first flight"
    return [
        f"  in the air, as Spark last wrote it back          {at}",
        *(f"    {origin}  {n:3d}  {'▪' * (n // 2)}" for origin, n in sorted(progress.airborne.items())),
        *_ruled(progress),
        f"  replayed {_share(progress.replayed, progress.changes)}",
        f"  counted  {_share(progress.counted, progress.rows)}   daemon {progress.memory >> 20} MB",
    ]


def plain(progress: Progress) -> str:
    """The same on one line.

    >>> plain(Progress(changes=1000, rows=800, replayed=500, counted=200, airborne={"EWR": 7}))
    'replayed 50 %, counted 25 %, in the air: EWR 7'
    """
    return (
        f"replayed {_percent(progress.replayed, progress.changes)} %, "
        f"counted {_percent(progress.counted, progress.rows)} %, in the air: {_aloft(progress.airborne)}"
    )


def _ruled(progress: Progress) -> list[str]:
    """What rules derive: the airports with the most on their way, and all connections that were missed."""
    if progress.busy is None:
        return []
    most = sorted(progress.busy.items(), key=lambda each: (-each[1], each[0]))[:5]
    crowds = "  ".join([f"{dest} {n}" for dest, n in most]) or "nowhere"
    return [f"  crowds on the way to {crowds:42} {progress.missed:4d} missed"]


def _aloft(airborne: Mapping[str, int]) -> str:
    return " ".join(f"{origin} {n}" for origin, n in sorted(airborne.items())) or "nobody yet"


def _share(done: int, whole: int) -> str:
    full = _BAR * min(done, whole) // max(whole, 1)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {_percent(done, whole):3d} %  {spelled(done)}"


def _percent(done: int, whole: int) -> int:
    return 100 * done // max(whole, 1)
