"""What expressions of rules are worth, written down a second time, without costs and without classes.

Expressions and functions are held to this.  ``NoValue`` is raised where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dataspace.rules.language.arithmetic import calculate, compare
from dataspace.rules.language.ordering import free
from dataspace.rules.language.syntax import (
    Arithmetic,
    Choice,
    Comparison,
    Compound,
    Expression,
    FunctionCall,
    Structure,
    Variable,
)
from index.patterns.text import unparse
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, key, order_key, same


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
            try:
                return calculate(operator, value_of(left, known), value_of(right, known), free)
            except (ValueError, ArithmeticError) as error:
                raise NoValue from error
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
    return compare(comparison.operator, left, right, free)


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
    "floor": _of_number(math.floor),
    "ceil": _of_number(lambda n: -math.floor(-n)),
    "min": _extreme(-1),
    "max": _extreme(+1),
    "-": _of_number(lambda n: -n),
}
