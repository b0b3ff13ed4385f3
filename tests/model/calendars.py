"""What clocks and calendars show at a place, found by looking at its clock minute by minute.

A window is found by what begins it: a clock that shows a full hour or is put, or that shows a day, week,
month or year for the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


@cache
def zone_of(name: str) -> ZoneInfo:
    with (files("tzdata.zoneinfo") / name).open("rb") as data:
        return ZoneInfo.from_file(data)


def shown(time: Any, zone: str) -> datetime:
    """What a clock shows, as a time without a zone; ``AttributeError`` for no time."""
    local: datetime = time.astimezone(zone_of(zone))
    return local.replace(tzinfo=None, fold=0)


def floor(time: Any, unit: str, zone: str) -> datetime:
    whole: datetime = time.replace(second=0, microsecond=0)
    if unit == "1 hour":
        while shown(whole, zone).minute and _gone_by(whole - MINUTE, whole, zone) == MINUTE:
            whole -= MINUTE
        return whole
    return max(each for each in _begun(shown(time, zone).date(), unit, zone) if each <= time)


def following(time: Any, unit: str, zone: str) -> datetime:
    """When the next window begins."""
    begin: datetime = time.replace(second=0, microsecond=0) + MINUTE
    if unit == "1 hour":
        while shown(begin, zone).minute and _gone_by(begin - MINUTE, begin, zone) == MINUTE:
            begin += MINUTE
        return begin
    return min(each for each in _begun(shown(time, zone).date(), unit, zone) if each > time)


def _gone_by(one: datetime, other: datetime, zone: str) -> timedelta:
    return shown(other, zone) - shown(one, zone)


@cache
def _begun(today: date, unit: str, zone: str) -> list[datetime]:
    """When the units around a day begin."""
    return [_first(each, zone) for each in _periods(today, unit)]


def _periods(today: date, unit: str) -> Iterator[datetime]:
    """What clocks show at the beginnings of the units around a day."""
    number, word = unit.split()
    for days in range(-370, 370):
        day = datetime(today.year, today.month, today.day) + timedelta(days=days)
        is_first = {
            "day": abs(days) < 4,
            "week": day.weekday() == 0 and abs(days) < 20,
            "month": day.day == 1 and (day.month - 1) % int(number) == 0 and abs(days) < 32 * int(number),
            "year": day.day == day.month == 1,
        }
        if is_first[word.rstrip("s")]:
            yield day


@cache
def _first(begin: datetime, zone: str) -> datetime:
    """The first whole minute at which a clock shows a time or a later one."""
    time = begin.replace(tzinfo=UTC) - timedelta(hours=26)
    while shown(time, zone) < begin:
        time += MINUTE
    return time
