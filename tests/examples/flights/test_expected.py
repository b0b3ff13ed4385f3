"""The expected figures count what they say, on flights small enough to count by hand."""

from __future__ import annotations

from hypothesis import given, strategies as st

from examples.flights.expected import figures, most_aloft
from examples.flights.flights import SLOT, Flight, turns


def flown(row: int, departed: int, landed: int, origin: str = "EWR", carrier: str = "UA") -> Flight:
    return Flight(row, carrier, row, "N1", origin, "IAH", departed, departed, landed)


def test_flights_are_counted_by_carrier_and_origin() -> None:
    found = figures([flown(1, 0, 60), flown(2, 0, 60), flown(3, 0, 60, "JFK"), flown(4, 0, 60, "JFK", "B6")])
    assert found.flights == {("UA", "EWR"): 2, ("UA", "JFK"): 1, ("B6", "JFK"): 1}


def test_messages_are_counted_by_origin_and_are_no_flights() -> None:
    cancelled = Flight(1, "UA", 1, None, "LGA", "IAH", 0, None, None)
    diverted = Flight(2, "UA", 2, "N1", "LGA", "IAH", 0, 5, None)
    found = figures([cancelled, diverted, diverted._replace(row=3), flown(4, 0, 60)])
    assert (found.cancelled, found.diverted) == ({"LGA": 1}, {"LGA": 2})
    assert found.flights == {("UA", "EWR"): 1}


def test_a_landing_counts_beside_a_departure_of_its_slot() -> None:
    assert most_aloft([flown(1, 0, SLOT), flown(2, SLOT, 2 * SLOT)], "EWR") == 2


def test_a_landing_in_an_earlier_slot_does_not() -> None:
    assert most_aloft([flown(1, 0, SLOT), flown(2, 2 * SLOT, 3 * SLOT)], "EWR") == 1


def test_origins_are_counted_apart() -> None:
    assert figures([flown(1, 0, 60), flown(2, 0, 60, "JFK")]).aloft == {"EWR": 1, "JFK": 1}


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(SLOT, 300)), max_size=30))
def test_the_most_aloft_is_what_the_turns_say(times: list[tuple[int, int]]) -> None:
    flights = [flown(row, departed, departed + aloft) for row, (departed, aloft) in enumerate(times)]
    most = now = 0
    for turn in turns(flights, "EWR"):
        now += len(turn.departures)
        most = max(most, now)
        now -= len(turn.landings)
    assert (most_aloft(flights, "EWR"), now) == (most, 0)
