"""The expected figures: a plain batch computation over the flights, without daemon, turns or Spark.

It is apart from everything that it judges, and shares nothing with it but the rows of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from examples.flights.flights import SLOT, Flight


@dataclass(frozen=True, slots=True)
class Figures:
    """What is compared: the same shape from both computations.

    ``flights`` counts by carrier and origin, ``aloft`` is the most that were in the air at once by
    origin, the messages are counted by origin, ``airborne`` is how many are in the air at the end.
    """

    flights: dict[tuple[str, str], int]
    aloft: dict[str, int]
    cancelled: dict[str, int]
    diverted: dict[str, int]
    airborne: dict[str, int]


def figures(flights: Iterable[Flight]) -> Figures:
    """The figures of these flights once all of them have landed; O(n log n)."""
    flights = list(flights)
    flown = [flight for flight in flights if flight.landed is not None]
    return Figures(
        flights=dict(Counter((flight.carrier, flight.origin) for flight in flown)),
        aloft={origin: most_aloft(flown, origin) for origin in sorted({each.origin for each in flown})},
        cancelled=dict(Counter(flight.origin for flight in flights if flight.departed is None)),
        diverted=dict(Counter(f.origin for f in flights if f.departed is not None and f.landed is None)),
        airborne=dict.fromkeys((flight.origin for flight in flown), 0),
    )


def most_aloft(flights: Iterable[Flight], origin: str) -> int:
    """The most flights from one origin that were in the air at once.

    A slot is one epoch, and within an epoch what is added comes before what is removed: a flight that
    lands in the slot in which another departs is still counted beside it.
    """
    edges = []
    for flight in flights:
        if flight.origin == origin and flight.departed is not None and flight.landed is not None:
            edges.append((flight.departed // SLOT, 0, 1))
            edges.append((flight.landed // SLOT, 1, -1))
    most = now = 0
    for _slot, _removal, change in sorted(edges):
        now += change
        most = max(most, now)
    return most
