"""What an expression of a rule is worth: ``NoValue`` is raised where it has no value.

Values are not Python's numbers: a truth value is no number, a text is not compared with a number, and a time
has an order with times alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dataspace.rules.language.syntax import (
    Arithmetic,
    Choice,
    Comparison,
    Compound,
    Expression,
    FunctionCall,
    Now,
    Structure,
    Variable,
)
from index.patterns.text import unparse
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, key, order_key, same
from tests.model import calendars

NOW: Final = "the present"
"""Where the time of the state stands among the known variables."""

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOST_BITS: Final = 4096
"""How large an integer an operator makes, and how long a text, in characters."""
MOST_OPERAND: Final = 16 * MOST_BITS
"""How large an integer may be with which it multiplies or divides."""


class NoValue(Exception):
    """An expression has no value."""


def value_of(expression: Expression, known: Mapping[str, Value]) -> Value:
    """The value of an expression; ``KeyError`` for a variable that is not known."""
    match expression:
        case Variable(name):
            return known[name]
        case Structure(template):
            return filled(template, known)
        case Arithmetic(operator, left, right):
            return _calculated(operator, value_of(left, known), value_of(right, known))
        case Now():
            return known[NOW]
        case FunctionCall(name, arguments):
            values = [value_of(each, known) for each in arguments]
            if expression.hosted is not None:
                return freeze(expression.hosted.run(*values))
            try:
                return _CALLS[name](*values)
            except (ValueError, ArithmeticError, AttributeError, TypeError) as error:
                raise NoValue from error
        case Choice(condition, then, otherwise):
            return value_of(then if is_true(condition, known) else otherwise, known)
        case Compound("sequence", parts):
            return tuple([value_of(each, known) for each in parts])
        case Compound("record", parts, label):
            return Record.of(label, tuple([value_of(each, known) for each in parts]))
        case Compound(_, parts):
            values = [value_of(each, known) for each in parts]
            if len(set(map(key, values[::2]))) < len(values) // 2:
                raise NoValue
            return Map(zip(values[::2], values[1::2], strict=True))
    raise AssertionError(expression)


def is_true(comparison: Comparison, known: Mapping[str, Value]) -> bool:
    left, right = value_of(comparison.left, known), value_of(comparison.right, known)
    if comparison.operator in ("=", "!="):
        return same(left, right) == (comparison.operator == "=")
    return _COMPARED[comparison.operator](*_ordered(left, right))


def _ordered(left: Value, right: Value) -> tuple[Any, Any]:
    """Two values that can be compared in Python as the values are; a number that is none where they are in no
    order."""
    kinds = {"number" if _is_number(each) else type(each).__name__ for each in (left, right)}
    if kinds == {"datetime", "number"}:
        raise NoValue
    if len(kinds) > 1 or kinds & {"bool", "NoneType"}:
        return math.nan, math.nan
    if kinds == {"number"}:
        return left, right
    return order_key(left), order_key(right)


_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def _calculated(operator: str, left: Any, right: Any) -> Value:
    try:
        if _is_number(left) and _is_number(right):
            return _of_numbers(operator, left, right)
        if left.__class__ is datetime:
            return _of_time(operator, left, right)
        if operator == "+" and left.__class__ is right.__class__ and left.__class__ in (str, bytes, tuple):
            return _short(left + right)
    except ArithmeticError as error:
        raise NoValue from error
    raise NoValue


def _of_numbers(operator: str, left: Any, right: Any) -> Value:
    if operator not in "+-" and max(_bits(left), _bits(right)) > MOST_OPERAND:
        raise NoValue
    made = _OPERATORS[operator](left, right)
    if _bits(made) > MOST_BITS:
        raise NoValue
    return freeze(made)


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "floor": lambda a, b: a // b * b,
}


def _of_time(operator: str, time: datetime, other: Any) -> Value:
    """What an operator makes of a time: seconds count to the nearest microsecond."""
    if other.__class__ is datetime and operator == "-":
        return (time - other) // timedelta(microseconds=1) / 1_000_000
    if not _is_number(other) or operator not in ("+", "-", "floor"):
        raise NoValue
    try:
        span = round(other * 1_000_000)
    except ValueError as error:
        raise NoValue from error
    if operator == "floor":
        return time_of(micros_of(time) // span * span)
    return time_of(micros_of(time) + (span if operator == "+" else -span))


def micros_of(time: Value) -> int:
    """A time in microseconds since 1970 UTC."""
    assert isinstance(time, datetime)  # as the caller knows
    return (time - BEGINNING) // timedelta(microseconds=1)


def time_of(micros: int) -> datetime:
    """The time so many microseconds after 1970 UTC."""
    return BEGINNING + timedelta(microseconds=1) * micros


def _is_number(value: Any) -> bool:
    return value.__class__ in (int, float)


def _bits(number: Any) -> int:
    return number.bit_length() if number.__class__ is int else 0


def _short(made: Any) -> Value:
    if len(made) > MOST_BITS:
        raise NoValue
    return freeze(made)


def filled(template: Value, known: Mapping[str, Value]) -> Value:
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            return known[name]
        case Record(label="lit", fields=(quoted,)):
            return quoted
        case Record(label=label, fields=fields):
            return Record.of(label, tuple([filled(each, known) for each in fields]))
        case tuple():
            return tuple([filled(each, known) for each in template])
        case Map():
            return Map.of([(at, filled(each, known)) for at, each in template.pairs()])
        case _:
            return template


def _only(value: Any, *classes: type) -> Any:
    if value.__class__ not in classes:
        raise TypeError(value)
    return value


def _texts(function: Callable[..., Value]) -> Callable[..., Value]:
    return lambda *given: function(*[_only(each, str) for each in given])


def _of_number(function: Callable[..., Value]) -> Callable[..., Value]:
    return lambda n: function(_only(n, int, float))


def _split(whole: str, by: str) -> Value:
    parts, rest = [], whole
    while by in rest or not by:
        at = rest.index(by) if by else _fail()
        parts.append(rest[:at])
        rest = rest[at + len(by) :]
    return (*parts, rest)


def _fail() -> int:
    raise ValueError


def _replace(whole: str, old: str, new: str) -> Value:
    return new.join([str(each) for each in _only(_split(whole, old), tuple)])


def _contains(whole: Any, part: Any) -> Value:
    if whole.__class__ is str:
        return whole.find(_only(part, str)) >= 0
    elements = [at for at, _ in whole.pairs()] if whole.__class__ is Map else _only(whole, tuple)
    return key(part) in {key(each) for each in elements}


def _number(of: Any) -> Value:
    if of.__class__ is not str:
        return _only(of, int, float)  # type: ignore[no-any-return]  # a number
    plain = of.strip()
    if not plain.isascii() or "_" in plain:
        raise ValueError
    try:
        return int(plain)
    except ValueError:
        if plain.lstrip("+-").lower() in ("inf", "nan") and plain.lower() == plain:
            return float(plain)
        if not plain.endswith(tuple("0123456789")) or not plain.lstrip("+-")[0].isdigit():
            raise
        if "." in plain and not plain.split(".")[1][:1].isdigit():
            raise
        return float(plain)


def _round(n: Any, *digits: Any) -> Value:
    made: Value = round(_only(n, int, float), *[_only(each, int) for each in digits])
    return made


def _extreme(sign: int) -> Callable[..., Value]:
    def extreme(*values: Any) -> Value:
        is_number = [each.__class__ in (int, float) for each in values]
        if not all(is_number) and len({each.__class__ for each in values}) > 1:
            raise TypeError
        places = [(each if is_number[0] else order_key(each), at) for at, each in enumerate(values)]
        best = places[0]
        for each in places[1:]:
            if each[0] < best[0] if sign < 0 else each[0] > best[0]:
                best = each
        return values[best[1]]  # type: ignore[no-any-return]  # a value

    return extreme


_CALLS: dict[str, Callable[..., Value]] = {
    "len": lambda each: sum(
        1 for _ in (each.pairs() if each.__class__ is Map else _only(each, str, bytes, tuple))
    ),
    "lower": _texts(lambda each: "".join([c.lower() for c in each])),
    "upper": _texts(lambda each: "".join([c.upper() for c in each])),
    "split": _texts(_split),
    "join": lambda parts, by: _only(by, str).join(_only(parts, tuple)),
    "replace": _texts(_replace),
    "starts": _texts(lambda whole, part: whole[: len(part)] == part),
    "ends": _texts(
        lambda whole, part: whole[len(whole) - len(part) :] == part if len(part) <= len(whole) else False
    ),
    "contains": _contains,
    "find": _texts(
        lambda whole, part: next((at for at in range(len(whole) + 1) if whole[at:].startswith(part)), -1)
    ),
    "text": lambda each: each if each.__class__ is str else unparse(each),
    "number": _number,
    "abs": _of_number(lambda n: n if n >= 0 or math.isnan(n) else -n),
    "round": _round,
    "floor": lambda n, *of: calendars.floor(n, *of) if of else math.floor(_only(n, int, float)),
    "next": calendars.following,
    "year": lambda time, zone: calendars.shown(time, zone).year,
    "month": lambda time, zone: calendars.shown(time, zone).month,
    "day": lambda time, zone: calendars.shown(time, zone).day,
    "weekday": lambda time, zone: calendars.shown(time, zone).weekday() + 1,
    "hour": lambda time, zone: calendars.shown(time, zone).hour,
    "ceil": _of_number(lambda n: -math.floor(-n)),
    "min": _extreme(-1),
    "max": _extreme(+1),
    "-": _of_number(lambda n: -n),
}
