"""Zones: what clocks and calendars show at a place, by its name in the IANA database.

The data is that of the package ``tzdata``, and never the system's: daemons of one cluster derive the same,
and a daemon derives the same after its machine was upgraded.  ``VERSION`` is the release of the database.

A window of an hour begins when the clock shows a full hour, and where it is put ahead or back: an hour that
exists twice is two windows.  A day, a week, a month or a year begins with the first instant at which the
clock shows a time in it, so a day without midnight begins later, and lasts until the next begins.

Always: windows have no gaps and do not overlap; each instant is in the window that ``floor_of`` says, which
ends where ``next_of`` says.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

import tzdata

from index.errors import UsageError

VERSION: Final[str] = tzdata.IANA_VERSION
"""The release of the IANA time zone database, such as ``2026f``."""

HOUR: Final = "1 hour"

LONGEST: Final[dict[str, timedelta]] = {
    HOUR: timedelta(hours=1),
    "1 day": timedelta(hours=28),
    "1 week": timedelta(days=7, hours=4),
    **{f"{n} month{'s' * (n > 1)}": timedelta(days=31 * n, hours=4) for n in (1, 2, 3, 4, 6)},
    "1 year": timedelta(days=366, hours=4),
}
"""Units of windows, and how long one lasts at most: since 1902, clocks were put back by up to three hours."""

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_NAME: Final = re.compile(r"[A-Za-z][\w+-]*(/[A-Za-z][\w+-]*)*", re.ASCII)


@cache
def _names() -> frozenset[str]:
    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


def check_zone(name: str) -> None:
    """Raises ``UsageError`` for a zone that the data does not have, with the nearest name."""
    if name not in _names():
        last = {each.rpartition("/")[2].lower(): each for each in sorted(_names())}
        word = name.rpartition("/")[2].strip().replace(" ", "_").lower()[:40]
        near = get_close_matches(name[:40], _names(), 1, 0.8) or [
            last[each] for each in get_close_matches(word, last, 1, 0.8)
        ]
        hint = f"did you mean {near[0]}?" if near else "zones are named like Europe/Zurich and UTC"
        raise UsageError(f"no zone {name:.80} in tzdata {VERSION}: {hint}")


def check_unit(unit: str) -> None:
    """Raises ``UsageError`` for a unit that no windows have."""
    if unit not in LONGEST:
        raise UsageError(f"no windows of {unit!r:.80}: units are {', '.join(LONGEST)}")


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    check_zone(name)
    assert _NAME.fullmatch(name)  # as all names are: no path leads elsewhere
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


# -- what a clock shows ---------------------------------------------------------------------------


def year(time: datetime, zone: str) -> int:
    return time.astimezone(_zone(zone)).year


def month(time: datetime, zone: str) -> int:
    return time.astimezone(_zone(zone)).month


def day(time: datetime, zone: str) -> int:
    return time.astimezone(_zone(zone)).day


def weekday(time: datetime, zone: str) -> int:
    """Returns 1 for Monday, and so on to 7 for Sunday."""
    return time.astimezone(_zone(zone)).isoweekday()


def hour(time: datetime, zone: str) -> int:
    return time.astimezone(_zone(zone)).hour


# -- windows --------------------------------------------------------------------------------------


def floor_of(time: datetime, unit: str, zone: str) -> datetime:
    """Returns the instant at which the window of a unit begins in which a time is.

    >>> print(floor_of(datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "1 hour", "Europe/Zurich"))
    2026-10-25 01:00:00+00:00
    """
    check_unit(unit)
    of, local = _zone(zone), time.astimezone(_zone(zone))
    if unit == HOUR:
        begin = time - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        return begin if _offset(begin, of) == _offset(time, of) else _changed(begin, time, of)
    shown = local.replace(tzinfo=None, fold=0)
    period = _period(shown, unit)
    following = _following(period, unit)
    if following - shown < _DAY and (begin := _first(following, of)) <= time:
        return begin  # it had begun before the clock was put back
    return _first(period, of)


def next_of(time: datetime, unit: str, zone: str) -> datetime:
    """Returns the instant at which the window of a unit ends in which a time is, and the next begins."""
    check_unit(unit)
    of, local = _zone(zone), time.astimezone(_zone(zone))
    if unit == HOUR:
        past = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        end = time + timedelta(hours=1) - past
        return end if _offset(end, of) == _offset(time, of) else _changed(time, end, of)
    period = _following(_period(local.replace(tzinfo=None, fold=0), unit), unit)
    while (begin := _first(period, of)) <= time:
        period = _following(period, unit)
    return begin


def _period(shown: datetime, unit: str) -> datetime:
    """Returns what a clock shows at the beginning of the day, week, month or year of what it shows now."""
    number, _, word = unit.partition(" ")
    midnight = datetime(shown.year, shown.month, shown.day)
    match word.removesuffix("s"):
        case "week":
            return midnight - (midnight.isoweekday() - 1) * _DAY
        case "month":
            return midnight.replace(month=(shown.month - 1) // int(number) * int(number) + 1, day=1)
        case "year":
            return midnight.replace(month=1, day=1)
    return midnight


def _following(period: datetime, unit: str) -> datetime:
    """Returns the beginning of the next one."""
    number, _, word = unit.partition(" ")
    match word.removesuffix("s"):
        case "week":
            return period + 7 * _DAY
        case "month":
            months = 12 * period.year + period.month - 1 + int(number)
            return period.replace(year=months // 12, month=months % 12 + 1)
        case "year":
            return period.replace(year=period.year + 1)
    return period + _DAY


def _first(shown: datetime, zone: ZoneInfo) -> datetime:
    """Returns the first instant at which a clock shows this or, where that is left out, more."""
    found = shown.replace(tzinfo=zone).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None, fold=0) == shown:
        return found
    return _changed(shown.replace(tzinfo=zone, fold=1).astimezone(UTC), found, zone)


def _offset(time: datetime, zone: ZoneInfo) -> timedelta | None:
    return time.astimezone(zone).utcoffset()


def _changed(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Returns the instant between two at which the clock is put ahead or back; these are at whole seconds."""
    low, high = before.replace(microsecond=0), after
    wanted = _offset(after, zone)
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        if middle == low:
            middle += _SECOND
        if _offset(middle, zone) == wanted:
            high = middle
        else:
            low = middle
    return low + _SECOND
