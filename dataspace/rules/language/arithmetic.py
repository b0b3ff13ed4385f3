"""Arithmetic and comparisons: what the operators of rules make of values.

Values are not Python's numbers: a truth value is no number, text is not compared with numbers, and what a
rule computes stays within bounds.

Always: a comparison raises only for a time and a number; arithmetic raises ``UsageError`` (or
``ZeroDivisionError``) for operands that it cannot use; the same operands give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dataspace.rules.language.functions import NUMBERS, begun, kind_of, with_article
from dataspace.rules.language.ordering import AT_ONCE, PART_BYTES, Pay, ordered
from dataspace.rules.language.syntax import FLOOR, TIMELY
from index.errors import UsageError
from index.values.freezing import freeze
from index.values.values import Value

MAX_BITS: Final = 4096
"""How large an integer, and 8 × how long a text or a sequence, an expression may make."""


MAX_OPERAND: Final = 16 * MAX_BITS
"""How large an integer may be with which an expression calculates."""

_LARGEST: Final = 1 << MAX_OPERAND
_TOO_LARGE: Final = "an expression made a value that is too large"


def calculate(operator: str, left: Value, right: Value, pay: Pay) -> Value:
    """Returns the result of an operator on two values.

    Numbers know all operators; texts, bytes and sequences can be put together by ``+``.  ``pay`` takes the
    cost of large operands.
    """
    if operator == TIMELY:
        refuse_number(left)
        return left
    if left.__class__ in NUMBERS and right.__class__ in NUMBERS:
        return _bounded(_OPERATIONS[operator](left, right))
    if left.__class__ is datetime and (result := _of_time(operator, left, right)) is not None:
        return result
    if operator == "+" and left.__class__ is right.__class__ and left.__class__ in (str, bytes, tuple):
        return _joined(left, right, pay)
    kinds = kind_of(left), kind_of(right)
    hint = (
        ": text(…) makes a text of a number" if operator == "+" and set(kinds) == {"number", "text"} else ""
    )
    raise UsageError(
        f"cannot calculate {begun(left)} {operator} {begun(right)}:"
        f" {with_article(kinds[0])} and {with_article(kinds[1])}{hint}"
    )


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def micros_of(time: datetime) -> int:
    """Returns a time in microseconds since 1970 UTC."""
    return (time - EPOCH) // MICROSECOND


def time_of(micros: int) -> datetime:
    """Returns the time so many microseconds after 1970 UTC; ``OverflowError`` beyond the years 1 to 9999."""
    return EPOCH + micros * MICROSECOND


def _of_time(operator: str, time: Any, other: Any) -> Value:
    """Returns what an operator makes of a time; None where it makes nothing.

    Durations are numbers of seconds, and count to the nearest microsecond.
    """
    if other.__class__ is datetime:
        return (time - other) // MICROSECOND / 1_000_000 if operator == "-" else None
    if other.__class__ not in NUMBERS or operator not in ("+", "-", FLOOR):
        return None
    span = round(other * 1_000_000)
    if operator == FLOOR:
        return time_of(micros_of(time) // span * span)
    return time_of(micros_of(time) + (span if operator == "+" else -span))


def _joined(left: Any, right: Any, pay: Pay) -> Value:
    """Returns two texts, bytes or sequences as one, and pays for it."""
    size = len(left) + len(right)
    if size > MAX_BITS:
        raise UsageError(_TOO_LARGE)
    if size > AT_ONCE:
        pay(PART_BYTES * size if left.__class__ is tuple else size)
    return _bounded(left + right)


def _quick(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns an operator that takes the square of the size of integers, and refuses too large ones."""

    def checked(one: Any, other: Any) -> Any:
        if not (-_LARGEST < one < _LARGEST and -_LARGEST < other < _LARGEST):
            sizes = [each.bit_length() for each in (one, other) if each.__class__ is int]
            if sizes and max(sizes) > MAX_OPERAND:
                raise UsageError(f"an integer of {max(sizes)} bits is calculated with, limit {MAX_OPERAND}")
        return operate(one, other)

    return checked


def _bounded(result: Any) -> Value:
    if result.__class__ is int:
        size = result.bit_length()
    else:
        size = 0 if result.__class__ is float else 8 * len(result)
    if size > MAX_BITS * (1 if result.__class__ is int else 8):
        raise UsageError(_TOO_LARGE)
    return freeze(result)


_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": _quick(lambda a, b: a * b),
    "/": _quick(lambda a, b: a / b),
    "//": _quick(lambda a, b: a // b),
    "%": _quick(lambda a, b: a % b),
    FLOOR: _quick(lambda a, b: a // b * b),
}


def compare(operator: str, left: Value, right: Value, pay: Pay) -> bool:
    """True if values of one kind are in this order; values of different kinds are in none.

    Numbers are one kind, in which an integer and the equal float are alike.  Raises ``UsageError`` for a time
    and a number: the author of the rule has forgotten that a time is no number of seconds.
    ``pay`` takes the cost of large values.
    """
    if left.__class__ in NUMBERS and right.__class__ in NUMBERS:
        return _COMPARISONS[operator](left, right)
    if left.__class__ is not right.__class__ or left.__class__ in (bool, type(None)):
        if datetime in (left.__class__, right.__class__):
            refuse_number(left, right)
        return False
    if left.__class__ is datetime:
        return _COMPARISONS[operator](left, right)
    return _COMPARISONS[operator](ordered(pay, left, right), 0)


def refuse_number(value: Value, other: Value = None) -> None:
    """Raises ``UsageError`` if one of two values is a number; the other one is a time, or the present."""
    if value.__class__ in NUMBERS or other.__class__ in NUMBERS:
        with_what = "now" if other is None else begun(other)
        raise UsageError(
            f"cannot compare {begun(value)} with {with_what}: a time is compared with a time, as in $t + 60"
        )


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}
