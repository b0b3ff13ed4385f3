"""Refusals: errors about things that are no values, with the place of each and what to write instead.

Hints look at classes only, so that no code of the thing itself runs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from index.errors import UsageError

Trail: TypeAlias = tuple[Any, ...]
"""The steps to a place: nothing, or the steps before and the last one; put in order only for an error."""


def no_value(thing: object, place: str = "") -> UsageError:
    """What to raise about a thing of a class that values do not have."""
    kind = thing.__class__
    return UsageError(f"{kind.__module__}.{kind.__qualname__} is no value{place}: {ALLOWED}{hint(kind)}")


ALLOWED: Final = (
    "allowed are None, bool, int, float, str, bytes, aware datetime, tuple or list, dict or Map, Record"
)


def checked_text(text: str, trail: Trail) -> str:
    """Returns a text that UTF-8 can hold; ``UsageError`` for any other."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"text with a lone surrogate at position {error.start} is no value{place_of(trail)}"
            ) from None
    return text


def checked_time(time: datetime, trail: Trail) -> datetime:
    """Returns a time in UTC; ``UsageError`` for one without a zone or out of range."""
    if time.utcoffset() is None:
        raise UsageError(f"a time without a zone is no value{place_of(trail)}: {time!r}")
    try:
        return time.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise UsageError(
            f"a time that UTC puts outside the years 1 to 9999{place_of(trail)}: {time!r}"
        ) from None


_SHOWN: Final = 8
"""Steps of a path that an error shows, from the outside."""


def place_of(trail: Trail) -> str:
    """Where a trail leads, for people."""
    steps: list[str] = []
    while trail:
        trail, step = trail[0], trail[1]
        steps.append(f"[{_shown(step)}]")
    more = "…" if len(steps) > _SHOWN else ""
    return f" at {''.join(steps[: -_SHOWN - 1 : -1])}{more}" if steps else ""


def _shown(step: object) -> str:
    """A step as an error shows it: keys are whatever somebody put into a dict."""
    try:
        return f"{step!r:.80}"
    except (RecursionError, UsageError):
        return "…"


BY_CLASS: Final = {
    "enum.Enum": "give its .value",
    "builtins.coroutine": "write `await` before the call",
    "builtins.set": "sets have no order: give sorted(…)",
    "builtins.frozenset": "sets have no order: give sorted(…)",
    "builtins.bytearray": "give bytes(…)",
    "builtins.memoryview": "give bytes(…)",
    "numpy.ndarray": "give its .tolist()",
    "numpy.generic": "give its .item()",
    "pandas._libs.tslibs.timestamps.Timestamp": "give its .to_pydatetime(), with a zone",
    "pandas.Timestamp": "give its .to_pydatetime(), with a zone",
    "datetime.datetime": "give a plain datetime, with a zone",
    "datetime.date": "give its .isoformat()",
    "datetime.time": "give its .isoformat()",
    "datetime.timedelta": "give its .total_seconds()",
    "decimal.Decimal": "give str(…) or float(…)",
    "fractions.Fraction": "give str(…) or float(…)",
    "uuid.UUID": "give str(…)",
    "pathlib.PurePath": "give str(…)",
    "builtins.complex": "give a tuple of its parts",
    "builtins.str": "give a plain str(…)",
    "builtins.int": "give a plain int(…)",
    "builtins.float": "give a plain float(…)",
    "builtins.bytes": "give plain bytes(…)",
    "builtins.tuple": "give a plain tuple(…)",
    "builtins.list": "give a plain list(…)",
    "builtins.dict": "give a plain dict(…)",
}


def hint(kind: type) -> str:
    """What to give instead of a thing of this class, or nothing.

    >>> hint(set), hint(type)
    ('; sets have no order: give sorted(…)', '')
    """
    classes = type.mro(kind) if kind is not type else []
    names = [f"{each.__module__}.{each.__qualname__}" for each in classes]
    for found in "enum.Enum", "numpy.generic", *names:  # some of them are numbers and text as well
        if found in names and found in BY_CLASS:
            return f"; {BY_CLASS[found]}"
    if hasattr(kind, "__dataclass_fields__"):
        return f"; give a record of its fields, Record({kind.__name__!r}, *dataclasses.astuple(…))"
    return ""
