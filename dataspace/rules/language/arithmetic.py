"""Arithmetic: the values of expressions in rules.

It is apart because values are not Python's numbers: a truth value is no number, text is not compared with
numbers, and what a rule computes must stay within bounds.

Always: a comparison never raises; arithmetic raises ``UsageError`` (or ``ZeroDivisionError``) for operands
that it cannot use; the same operands give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from dataspace.rules.language.syntax import Structure, template_variables
from index.errors import UsageError
from index.patterns.text import unparse
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, order_key

MAX_BITS: Final = 4096
"""How large an integer, and 8 × how long a text or a sequence, an expression may make."""


def calculate(operator: str, left: Value, right: Value) -> Value:
    """Returns the result of an operator on two values.

    Numbers know all operators; texts, bytes and sequences can be put together by ``+``.
    """
    if left.__class__ in _NUMBERS and right.__class__ in _NUMBERS:
        return _bounded(_OPERATIONS[operator](left, right))
    if operator == "+" and left.__class__ is right.__class__ and left.__class__ in (str, bytes, tuple):
        return _bounded(left + right)  # type: ignore[operator]  # two of a class that has it
    raise UsageError(
        f"cannot calculate {_begun(left)} {operator} {_begun(right)}: {_kind(left)} and {_kind(right)}"
    )


def _begun(value: Value) -> str:
    """Returns the beginning of a value, as it is written."""
    text = unparse(value) if value.__class__ in (*_NUMBERS, str, bytes, bool, datetime) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _kind(value: Value) -> str:
    return _KINDS.get(value.__class__, "null")


def _bounded(made: Any) -> Value:
    if made.__class__ is int:
        size = made.bit_length()
    else:
        size = 0 if made.__class__ is float else 8 * len(made)
    if size > MAX_BITS * (1 if made.__class__ is int else 8):
        raise UsageError("an expression made a value that is too large")
    return freeze(made)


_NUMBERS: Final = (int, float)
_KINDS: Final[dict[type, str]] = {
    int: "a number",
    float: "a number",
    bool: "a truth",
    str: "a text",
    bytes: "bytes",
    datetime: "a time",
    tuple: "a sequence",
    Map: "a map",
    Record: "a record",
}
_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def compare(operator: str, left: Value, right: Value) -> bool:
    """True if values of one kind are in this order; values of different kinds are in none.

    Numbers are one kind, in which an integer and the equal float are alike.
    """
    if left.__class__ in _NUMBERS and right.__class__ in _NUMBERS:
        return _COMPARISONS[operator](left, right)
    if left.__class__ is not right.__class__ or left.__class__ in (bool, type(None)):
        return False
    if left.__class__ in (str, bytes, datetime):
        return _COMPARISONS[operator](left, right)
    return _COMPARISONS[operator](order_key(left), order_key(right))


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def maker(structure: Structure) -> tuple[tuple[str, ...], Callable[..., Value]]:
    """Returns the variables of a structure, and the function that makes its value from theirs."""
    names = tuple(dict.fromkeys(template_variables(structure.template)))
    return names, lambda *values: _filled(structure.template, dict(zip(names, values, strict=True)))


def _filled(template: Value, given: dict[str, Value]) -> Value:
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            return given[name]
        case Record(label="lit", fields=(value,)):
            return value
        case Record(label=label, fields=parts):
            return Record.of(label, tuple([_filled(part, given) for part in parts]))
        case tuple():
            return tuple([_filled(part, given) for part in template])
        case Map():
            return Map.of([(at, _filled(part, given)) for at, part in template.pairs()])
        case _:
            return template
