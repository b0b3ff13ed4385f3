"""Ruled: what rules make of the flights, live, and whether it was right in every epoch.

The daemon holds ``flights.rules``.  Here are the travellers whose connections they are about, the clock that
they look at, and the judge: it reads from the log what was there and what was derived, epoch by epoch, and
computes plainly from the one what the other must be.  So it does not matter in which order the three
airports' turns came.

Always: the judge knows nothing of rules but the two sentences that they stand for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import trio

from dataspace import Record, RemoteSpace, Value, connect
from examples.flights.display import Progress
from examples.flights.flights import Flight, time_of

RULES: Final = Path(__file__).with_name("flights.rules")
CROWDED: Final = 12

_EVERY: Final = 7
"""Of so many flights one has a traveller who wants to go on."""
_ONWARD: Final = 100
"""Minutes from the scheduled departure until the onward flight leaves."""
_AT_ONCE: Final = 500
_GRACE: Final = 60.0
"""Seconds for which travellers outlive their connection, or the daemon that leads."""
_CLOCK: Final = 1_000_000
"""Handles from here on are the clock's, above those of what travellers want."""

Row = tuple[Value, ...]

PATTERNS: Final = {
    "rule": f'rule("{RULES.stem}", $text)',
    "flight": "flight($carrier, $number, _, $origin, $dest, $scheduled)",
    "connection": "connection($who, $carrier, $number, $scheduled, $dest, $leaves)",
    "clock": "clock($now)",
    "busy": "busy($dest, $n)",
    "missed": "missed($who, $dest)",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """In how many of the ``epochs`` what was derived is ``wrong``, and how much there was to derive."""

    epochs: int
    wrong: int
    busy: int
    missed: int

    def __str__(self) -> str:
        said = f"WRONG in {self.wrong} of" if self.wrong else "right in all"
        return (
            f"what rules derived is {said} {self.epochs} epochs: "
            f"{self.busy} times another crowd on the way to an airport, {self.missed} connections missed"
        )


def connections(flights: Iterable[Flight]) -> list[Record]:
    """Who wants to go on, from every seventh flight."""
    return [
        Record.of(
            "connection",
            (
                f"P{each.row}",
                each.carrier,
                each.number,
                time_of(each.scheduled),
                each.dest,
                time_of(each.scheduled + _ONWARD),
            ),
        )
        for each in flights
        if each.landed is not None and each.row % _EVERY == 0
    ]


async def travel(url: str, wanted: Sequence[Record], *, started: trio.Event) -> None:
    """Holds what travellers want, and says what time it is by the departures, until it is cancelled."""
    async with connect(url, name="travellers", grace=_GRACE) as space:
        for begin in range(0, len(wanted), _AT_ONCE):
            async with space.turn() as turn:
                for each in wanted[begin : begin + _AT_ONCE]:
                    turn.assert_(each)
        async with space.observe("flight(_, _, _, _, _, $scheduled)", quiet=True) as departures:
            started.set()
            now, handle = time_of(0), _CLOCK
            while (epoch := await departures.next_epoch()) is not None:
                latest = max([row[0] for row in epoch.added if isinstance(row[0], datetime)], default=now)
                if latest > now:
                    draft = space.draft()
                    draft.assert_(Record.of("clock", (latest,)), handle=handle + 1)
                    if handle > _CLOCK:
                        draft.retract(handle)
                    await space.submit(draft)
                    now, handle = latest, handle + 1


async def watch(url: str, progress: Progress, read: str = "leader") -> None:
    """Keeps what is derived, as any observer of the daemon sees it, until it is cancelled."""
    progress.busy = crowds = {}
    async with connect(url, name="display", read=read) as space, trio.open_nursery() as nursery:
        nursery.start_soon(_count_missed, space, progress)
        async with space.observe(PATTERNS["busy"], quiet=True) as changes:
            async for change in changes:
                match change.captures:
                    case (str(dest), int(n)) if change.kind == "+":
                        crowds[dest] = n
                    case (str(dest), int(n)) if crowds.get(dest) == n:
                        del crowds[dest]


async def _count_missed(space: RemoteSpace, progress: Progress) -> None:
    async with space.observe(PATTERNS["missed"], quiet=True) as changes:
        async for change in changes:
            progress.missed += change.kind == "+"


async def judged(url: str, read: str = "leader") -> Verdict:
    """Reads the log from its beginning and judges every epoch of it."""
    told: defaultdict[int, list[tuple[str, str, Row]]] = defaultdict(list)
    async with connect(url, name="judge", read=read) as space:
        newest = await space.sync()
        for label, pattern in PATTERNS.items():
            async with space.observe(pattern, after=0, upto=newest, durable=True, quiet=True) as changes:
                async for change in changes:
                    told[change.epoch].append((label, change.kind, tuple(change.captures)))
    return judge([told[epoch] for epoch in sorted(told)])


def judge(epochs: Iterable[Iterable[tuple[str, str, Row]]]) -> Verdict:
    """Whether after each epoch, given as changes of the patterns, all is there that must be.

    O(changes + epochs × what is in the air).
    """
    held: dict[str, set[Row]] = {label: set() for label in PATTERNS}
    aloft: Counter[Row] = Counter()
    on_the_way: Counter[Value] = Counter()
    wanted: defaultdict[Row, set[Row]] = defaultdict(set)
    count = wrong = busy = 0
    missed: set[Row] = set()
    for changes in epochs:
        for label, kind, row in changes:
            by = +1 if kind == "+" else -1
            (held[label].add if by > 0 else held[label].discard)(row)
            if label == "flight":
                carrier, number, _, dest, scheduled = row
                flight = (carrier, number, scheduled)
                aloft[flight] += by
                if not aloft[flight]:
                    del aloft[flight]
                on_the_way[dest] += by
            elif label == "connection":
                wanted[row[1:4]] ^= {row}
            busy += label == "busy" and by > 0
        crowds = {(dest, n) for dest, n in on_the_way.items() if n > CROWDED}
        late = {
            (who, dest)
            for flight in aloft.keys() & wanted.keys()
            for who, _, _, _, dest, leaves in wanted[flight]
            for (now,) in held["clock"]
            if now >= leaves  # type: ignore[operator]  # two times
        }
        if not held["rule"]:
            crowds, late = set(), set()
        count += 1
        wrong += held["busy"] != crowds or held["missed"] != late
        missed |= late
    return Verdict(count, wrong, busy, len(missed))
