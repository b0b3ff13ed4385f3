"""Functions: what rules calculate from values beside arithmetic, such as ``len($name)``.

Each function is pure, has a name, the classes of its arguments and of its result, and a bound on what it
makes.  Its cost is known before it runs, so that a rule pays for it in advance (``budgets``).  Functions of
the host, such as ``geo.distance($a, $b)``, are in ``hosted``.

Always: the same arguments give the same result, on every machine with the same tables of Unicode; a function
raises ``UsageError`` for arguments that it cannot use, and nothing else by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from dataspace.rules.language import zones
from dataspace.rules.language.ordering import PART_BYTES, Pay, ordered
from index.errors import UsageError
from index.patterns.text import unparse
from index.values.values import Map, Record, Value, same, text_of

MAX_MADE: Final = 65_536
"""Characters of a text, and elements of a sequence, that a function makes."""

MAX_DIGITS: Final = 640
"""Digits of a text that ``number`` reads."""

BYTES_OF_WORK: Final = 64
"""Bytes that are derived or calculated in about the time of a row that is looked at: a unit of work."""

NUMBERS: Final = (int, float)

KINDS: Final[dict[type, str]] = {
    int: "number",
    float: "number",
    bool: "truth",
    str: "text",
    bytes: "bytes",
    datetime: "time",
    tuple: "sequence",
    Map: "map",
    Record: "record",
}
"""What the classes of values are called."""


def kind_of(value: Value) -> str:
    """Returns what the class of a value is called: ``number``, ``text`` and so on."""
    return KINDS.get(value.__class__, "null")


def with_article(kind: str) -> str:
    """Returns the name of a class as sentences have it."""
    return kind if kind in ("bytes", "null") else f"a {kind}"


def begun(value: Value) -> str:
    """Returns the beginning of a value, as it is written."""
    text = unparse(value) if value.__class__ in (*NUMBERS, str, bytes, bool, datetime) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _nothing(*_: Any) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Function:
    """One function: ``takes`` are the classes of its arguments, ``gives`` the class of its result.

    Several classes stand with ``|`` between them; ``""`` is any class.  An argument beyond ``least`` may be
    left out, and the last class counts for all further ones, up to ``most``.  ``makes`` bounds the characters
    or elements of the result; ``scans`` are the bytes that are read.  A function that ``pays`` by itself gets
    what takes its pay as its first argument.
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    run: Callable[..., Value]
    makes: Callable[..., int] = _nothing
    scans: Callable[..., int] = _nothing
    pays: bool = False
    least: int = -1
    most: int = -1

    def takes_count(self, count: int) -> bool:
        """True if the function can have so many arguments."""
        least = len(self.takes) if self.least < 0 else self.least
        most = len(self.takes) if self.most < 0 else self.most
        return least <= count <= most

    def class_at(self, at: int) -> str:
        """Returns the classes that the argument at a place may have, or nothing for any."""
        return self.takes[min(at, len(self.takes) - 1)]

    def named_at(self, at: int) -> str:
        """Returns the classes that the argument at a place may have, as sentences have them."""
        return " or ".join([with_article(each) for each in self.class_at(at).split("|")])

    def refusal(self, at: int, shown: str) -> UsageError:
        """Returns the error for an argument of another class; ``shown`` says which."""
        place = "" if len(self.takes) == 1 else f" as argument {at + 1}"
        return UsageError(f"{self.name} takes {self.named_at(at)}{place}, not {shown}")

    def apply(self, pay: Pay, *arguments: Value) -> Value:
        """Returns the result; ``UsageError`` where there is none.  ``pay`` takes the cost before."""
        for at, value in enumerate(arguments):
            wanted = self.class_at(at)
            if wanted and kind_of(value) not in wanted.split("|"):
                raise self.refusal(at, f"{begun(value)}, {with_article(kind_of(value))}")
        cost = self.scans(*arguments)
        try:
            size = self.makes(*arguments)
        except UsageError:
            pay(cost)  # the arguments were read
            raise
        pay(cost + min(size, MAX_MADE))
        if size > MAX_MADE:
            raise UsageError(f"{self.name} would make {size} characters or elements, limit {MAX_MADE}")
        try:
            return self.run(pay, *arguments) if self.pays else self.run(*arguments)
        except UsageError:
            raise
        except (ArithmeticError, ValueError) as error:
            raise UsageError(f"{self.name}: {error}") from None


def _size(value: Any) -> int:
    """Returns the bytes that are read where a value is gone through: of a compound its own parts alone."""
    if value.__class__ in (tuple, Map):
        return PART_BYTES * len(value)
    if value.__class__ is int:
        return int(value.bit_length()) // 8
    return len(value) if value.__class__ in (str, bytes) else 0


def _sizes(*values: Value) -> int:
    return sum(map(_size, values))


def _common(one: str, other: str) -> int:
    return min(len(one), len(other))


def _whole(value: Value) -> int:
    """Returns the bytes of the text of a value, with all of its parts."""
    return 0 if value.__class__ is str else len(text_of(value))


def _split(text: str, by: str) -> Value:
    return tuple(text.split(by))


def _split_size(text: str, by: str) -> int:
    if not by:
        raise UsageError("split needs a text to split at, not an empty one")
    return len(text) + 4 * text.count(by)


def _join(parts: Sequence[Value], by: str) -> Value:
    return by.join([str(each) for each in parts])


def _join_size(parts: Sequence[Value], by: str) -> int:
    for each in parts:
        if each.__class__ is not str:
            raise UsageError(f"join takes a sequence of texts, not {begun(each)} in it: text(…) makes a text")
    return sum([len(str(each)) for each in parts]) + len(by) * len(parts)


def _replace_size(text: str, old: str, new: str) -> int:
    if not old:
        raise UsageError("replace needs a text to look for, not an empty one")
    return len(text) + max(0, len(new) - len(old)) * text.count(old)


def _contains(pay: Pay, whole: Any, part: Value) -> bool:
    if whole.__class__ is str:
        if part.__class__ is not str:
            raise UsageError(f"contains looks in a text for a text, not {begun(part)}")
        return part in whole
    parts = whole if whole.__class__ is tuple else whole.keys()
    if part.__class__ in (tuple, Record, Map):
        return any(each.__class__ is part.__class__ and not ordered(pay, each, part) for each in parts)
    return any(same(each, part) for each in parts)


def _text(value: Value) -> Value:
    return value if value.__class__ is str else unparse(value)


_NUMBER: Final = re.compile(r"[-+]?\d+((\.\d+)?([eE][-+]?\d+)?)|[-+]?(inf|nan)", re.ASCII)


def _number(value: Any) -> Value:
    if value.__class__ is not str:
        return float(value) if value.__class__ is float else int(value)
    found = _NUMBER.fullmatch(value.strip()) if len(value) <= MAX_DIGITS else None
    if found is None:
        raise UsageError(f"number reads no number in {begun(value)}")
    return int(value) if found[1] == "" else float(value)


def _round(number: Any, digits: Any = None) -> Value:
    if digits is None:
        whole: int = round(number)
        return whole
    if digits.__class__ is not int or abs(digits) > MAX_DIGITS:
        raise UsageError(f"round takes a whole number of digits, not {begun(digits)}")
    made: Value = round(number, digits)
    return made


def _least(pay: Pay, *values: Any) -> Value:
    return _extreme("min", pay, values, least=True)


def _greatest(pay: Pay, *values: Any) -> Value:
    return _extreme("max", pay, values, least=False)


def _extreme(name: str, pay: Pay, values: Sequence[Any], *, least: bool) -> Value:
    """Returns the first of the least, or greatest, values of one class."""
    kinds = sorted({kind_of(each) for each in values})
    if len(kinds) > 1:
        raise UsageError(f"{name} compares values of one class, not {' and '.join(map(with_article, kinds))}")
    best = values[0]
    for value in values[1:]:
        if kinds[0] == "number":
            is_better = value < best if least else value > best
        else:
            sign = ordered(pay, value, best)
            is_better = sign < 0 if least else sign > 0
        if is_better:
            best = value
    return best  # type: ignore[no-any-return]  # a value, as they all are


def _calendar(*_: Value) -> int:
    return BYTES_OF_WORK


def _windows(*_: Value) -> int:
    return 8 * BYTES_OF_WORK


NEGATIVE: Final = "-"
"""The name of the minus before one number."""

FUNCTIONS: Final[dict[str, Function]] = {
    each.name: each
    for each in (
        Function("len", ("text|bytes|sequence|map",), "number", len),
        Function("lower", ("text",), "text", str.lower, len, len),
        Function("upper", ("text",), "text", str.upper, len, len),
        Function("split", ("text", "text"), "sequence", _split, _split_size, _sizes),
        Function("join", ("sequence", "text"), "text", _join, _join_size, _sizes),
        Function("replace", ("text", "text", "text"), "text", str.replace, _replace_size, _sizes),
        Function("starts", ("text", "text"), "truth", str.startswith, scans=_common),
        Function("ends", ("text", "text"), "truth", str.endswith, scans=_common),
        Function("contains", ("text|sequence|map", ""), "truth", _contains, scans=_sizes, pays=True),
        Function("find", ("text", "text"), "number", str.find, scans=_sizes),
        Function("text", ("",), "text", _text, _whole, _whole),
        Function("number", ("text|number",), "number", _number),
        Function("abs", ("number",), "number", abs, scans=_sizes),
        Function("round", ("number", "number"), "number", _round, scans=_sizes, least=1),
        Function("floor", ("number",), "number", math.floor, scans=_sizes),
        Function("ceil", ("number",), "number", math.ceil, scans=_sizes),
        Function("min", ("",), "", _least, pays=True, least=2, most=64),
        Function("max", ("",), "", _greatest, pays=True, least=2, most=64),
        Function(NEGATIVE, ("number",), "number", lambda number: -number, scans=_sizes),
        *[
            Function(each.__name__, ("time", "text"), "number", each, scans=_calendar)
            for each in (zones.year, zones.month, zones.day, zones.weekday, zones.hour)
        ],
        Function("next", ("time", "text", "text"), "time", zones.next_of, scans=_windows),
    )
}
"""All functions by their names; ``floor`` to a multiple is arithmetic, and of a calendar ``FLOOR_OF``."""

FLOOR_OF: Final = Function("floor", ("time", "text", "text"), "time", zones.floor_of, scans=_windows)

CALENDAR: Final[dict[str, Function]] = {
    FLOOR_OF.name: FLOOR_OF,
    **{name: FUNCTIONS[name] for name in ("year", "month", "day", "weekday", "hour", "next")},
}
"""Functions of a time in a zone; all but the first argument are constants."""

CHOICE: Final = "if"

ELSEWHERE: Final[dict[str, str]] = {
    "abs": "",
    "ceiling": "ceil",
    "concat": "+",
    "endswith": "ends",
    "indexof": "find",
    "lcase": "lower",
    "mod": "%",
    "pow": "",
    "sqrt": "",
    "startswith": "starts",
    "strlen": "len",
    "substr": "",
    "substring": "",
    "to_string": "text",
    "tolower": "lower",
    "tostring": "text",
    "toupper": "upper",
    "trim": "",
    "ucase": "upper",
}
"""Names that functions have in other languages, and the function here."""


def nearest(name: str) -> str:
    """Returns the function that a name may have meant, or nothing."""
    if ELSEWHERE.get(name):
        return ELSEWHERE[name]
    near = get_close_matches(name, [each for each in (*FUNCTIONS, CHOICE) if each != NEGATIVE], 1, 0.8)
    return near[0] if near else ""
