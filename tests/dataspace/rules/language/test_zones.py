"""Calendars and windows are what the clocks of a place show, minute by minute, also where they are put."""

from __future__ import annotations

import random
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from dataspace.errors import UsageError
from dataspace.rules.language import zones
from tests.model import calendars

MICRO: Final = timedelta(microseconds=1)

CHANGES: Final = {
    "Europe/Zurich": ("2026-03-29", "2026-10-25"),
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),  # by half an hour
    "America/Sao_Paulo": ("2018-11-04", "2018-02-18"),  # days without midnight, and with two hours before it
    "America/St_Johns": (
        "2010-11-07",
        "2010-03-14",
    ),  # at a minute after midnight: a day begins, and goes back
    "Pacific/Apia": ("2011-12-30", "2011-04-02"),  # a day that is left out
    "Africa/Casablanca": ("2026-02-15", "2026-03-22"),
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),  # by two hours
    "Asia/Kathmandu": ("1985-12-31",),  # by a quarter of an hour, at midnight
    "America/Havana": ("2026-03-08", "2026-11-01"),
    "Asia/Gaza": ("2021-03-27", "2021-10-29"),
    "UTC": ("2026-12-31",),
}
"""Days, in UTC, on which clocks are put, by zone."""


def around(zone: str) -> Iterator[datetime]:
    """Yields times around the changes of a zone, on and beside whole hours."""
    for day in CHANGES[zone]:
        begin = datetime.fromisoformat(f"{day}T00:00:00Z") - timedelta(hours=14)
        for minutes in range(0, 52 * 60, 15):
            for beside in (-1, 1) if minutes % 60 else (-1, 0, 1):
                yield begin + timedelta(minutes=minutes + beside, seconds=beside * 30)


@pytest.mark.slow
@pytest.mark.parametrize("zone", CHANGES)
def test_what_clocks_show_where_they_are_put(zone: str) -> None:
    for time in around(zone):
        shown = calendars.shown(time, zone)
        assert zones.year(time, zone) == shown.year
        assert zones.month(time, zone) == shown.month
        assert zones.day(time, zone) == shown.day
        assert zones.weekday(time, zone) == shown.weekday() + 1
        assert zones.hour(time, zone) == shown.hour
        for unit in zones.LONGEST:
            assert zones.floor_of(time, unit, zone) == calendars.floor(time, unit, zone), (time, unit)
            assert zones.next_of(time, unit, zone) == calendars.following(time, unit, zone), (time, unit)


@pytest.mark.slow
def test_windows_have_no_gaps_and_last_no_longer_than_said() -> None:
    rng, names = random.Random(11), sorted(zones._names())
    begin = datetime(1902, 1, 1, tzinfo=UTC)
    for zone in names:
        for unit, longest in zones.LONGEST.items():
            time = begin + timedelta(seconds=rng.randrange(200 * 365 * 86_400), microseconds=rng.randrange(9))
            first, end = zones.floor_of(time, unit, zone), zones.next_of(time, unit, zone)
            assert first <= time < end and end - first <= longest, (zone, unit, time)
            assert zones.floor_of(first, unit, zone) == first and zones.floor_of(end, unit, zone) == end
            assert zones.floor_of(end - MICRO, unit, zone) == first, (zone, unit, time)
            assert zones.next_of(first, unit, zone) == zones.next_of(end - MICRO, unit, zone) == end


def test_the_data_of_the_system_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "Asia").mkdir()
    (tmp_path / "Asia/Tokyo").write_bytes((files("tzdata.zoneinfo") / "America/New_York").read_bytes())
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    zoneinfo.ZoneInfo.clear_cache()
    zones._zone.cache_clear()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    try:
        assert noon.astimezone(zoneinfo.ZoneInfo("Asia/Tokyo")).hour == 7, "as the system has it now"
        assert zones.hour(noon, "Asia/Tokyo") == 21
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.parametrize(
    ("name", "hint"),
    {
        "Europe/Zuerich": "did you mean Europe/Zurich?",
        "zurich": "did you mean Europe/Zurich?",
        "New York": "did you mean America/New_York?",
        "../../etc/passwd": "zones are named like Europe/Zurich and UTC",
        "": "zones are named like Europe/Zurich and UTC",
    }.items(),
)
def test_a_zone_that_there_is_not_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        zones.check_zone(name)
    assert str(refused.value) == f"no zone {name} in tzdata {zones.VERSION}: {hint}"
