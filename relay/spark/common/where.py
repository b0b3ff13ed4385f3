"""Conditions on columns: the option ``where``, which is fixed when a frame is made.

Spark can push filters into a Python source, but then leaks them into other uses of a DataFrame (SPARK.md).
So a condition that is to save work is an option.  It is a small part of Spark's SQL with the same meaning:
comparisons of a column with a literal, ``in``, ``between``, ``is null``, ``and``, ``or``, ``not``.

Always: a row is kept if the condition is true of it, neither false nor null; a column and a literal have the
same type; NaN is greater than any other number and equal to itself, and -0.0 equals 0.0, as in Spark.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from dataspace.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Literal: TypeAlias = "str | int | float | bool | datetime"

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>[^`]+)`|'(?P<text>(?:[^'\\]|'')*)'"
    r"|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign><=>|<=|>=|<>|!=|==|=|<|>|\(|\)|,))"
)
_WORDS: Final = frozenset(["and", "or", "not", "in", "between", "is", "null", "true", "false", "timestamp"])
_SIGNS: Final = {"=": "==", "==": "==", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of a column with a literal: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``."""

    column: str
    sign: str
    literal: Literal


@dataclass(frozen=True, slots=True)
class IsNull:
    """A test whether a column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A column of booleans as a condition."""

    column: str


@dataclass(frozen=True, slots=True)
class Negated:
    """A condition that must be false."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Combined:
    """Conditions joined by ``and`` or by ``or``."""

    word: str
    parts: tuple[Condition, ...]


Condition: TypeAlias = "Compared | IsNull | IsTrue | Negated | Combined"


def condition(text: str, schema: StructType) -> Condition:
    """Returns the condition that a text means for some columns.

    Raises ``UsageError`` for a text that is none, for an unknown column, and for a literal of another type.
    """
    return _Reader(text, schema).read()


def bounds(of: Condition, column: str) -> tuple[int, int | None]:
    """Returns bounds of a column of numbers: a condition is not true up to one, and not after the other."""
    after, upto = 0, None
    for conjunct in conjuncts(of):
        if isinstance(conjunct, Compared) and conjunct.column == column and isinstance(conjunct.literal, int):
            at = conjunct.literal
            if conjunct.sign in ("==", ">", ">="):
                after = max(after, at if conjunct.sign == ">" else at - 1)
            if conjunct.sign in ("==", "<", "<="):
                end = at - 1 if conjunct.sign == "<" else at
                upto = end if upto is None else min(upto, end)
    return after, upto


def conjuncts(of: Condition) -> Iterator[Condition]:
    """Yields the parts of a condition that must all be true."""
    if isinstance(of, Combined) and of.word == "and":
        for part in of.parts:
            yield from conjuncts(part)
    else:
        yield of


def kept(of: Condition, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows of a batch for which a condition is true; O(rows) in Arrow."""
    return batch.filter(_mask(of, batch))  # which drops what is null


def _mask(of: Condition, batch: pa.RecordBatch) -> Any:
    import pyarrow.compute as compute

    match of:
        case Compared(column, sign, literal):
            values = batch.column(column)
            kind = (
                pa.int64() if pa.types.is_integer(values.type) else values.type
            )  # it may be beyond smaller ones
            mask = _FUNCTIONS[sign](compute)(values, pa.scalar(literal, kind))
            if sign in (">", ">=") and pa.types.is_floating(values.type):
                return compute.or_(mask, compute.is_nan(values))  # of which Arrow says false
            return mask
        case IsNull(column):
            return batch.column(column).is_null()
        case IsTrue(column):
            return batch.column(column)
        case Negated(part):
            return compute.invert(_mask(part, batch))
        case Combined(word, parts):
            join = compute.and_kleene if word == "and" else compute.or_kleene
            mask = _mask(parts[0], batch)
            for part in parts[1:]:
                mask = join(mask, _mask(part, batch))
            return mask


_FUNCTIONS: Final[dict[str, Callable[[Any], Callable[..., Any]]]] = {
    "==": lambda compute: compute.equal,
    "!=": lambda compute: compute.not_equal,
    "<": lambda compute: compute.less,
    "<=": lambda compute: compute.less_equal,
    ">": lambda compute: compute.greater,
    ">=": lambda compute: compute.greater_equal,
}


class _Reader:
    """A reader of one text, word by word."""

    def __init__(self, text: str, schema: StructType) -> None:
        self._text = text
        self._kinds: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
        self._words = [*self._split()]
        self._at = 0

    def read(self) -> Condition:
        found = self._any()
        if self._next()[0] != "end":
            raise self._wrong("and, or or the end")
        return found

    def _split(self) -> Iterator[tuple[str, str]]:
        at, text = 0, self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise UsageError(f"option where: cannot read {text[at:].strip()[:20]!r} in {self._text!r}")
            at = match.end()
            kind = str(match.lastgroup)
            value = match[kind]
            if kind == "name" and value.lower() in _WORDS:
                yield "word", value.lower()
            else:
                yield "name" if kind == "quoted" else kind, value
        yield "end", ""

    # -- words ----------------------------------------------------------------------------------------

    def _next(self) -> tuple[str, str]:
        return self._words[self._at]

    def _take(self, kind: str, *values: str) -> str | None:
        """Takes the next word if it is one of those; None if it is not."""
        found, value = self._next()
        if found != kind or (values and value not in values):
            return None
        self._at += 1
        return value

    def _need(self, kind: str, value: str) -> None:
        if self._take(kind, value) is None:
            raise self._wrong(value)

    def _wrong(self, wanted: str) -> UsageError:
        value = self._next()[1] or "the end"
        return UsageError(f"option where: expected {wanted}, found {value} in {self._text!r}")

    # -- conditions -----------------------------------------------------------------------------------

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._take("word", "or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Combined("or", tuple(parts))

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._take("word", "and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Combined("and", tuple(parts))

    def _one(self) -> Condition:
        if self._take("word", "not"):
            return Negated(self._one())
        if self._take("sign", "("):
            found = self._any()
            self._need("sign", ")")
            return found
        return self._of_column(self._column())

    def _column(self) -> str:
        name = self._take("name")
        if name is None:
            raise self._wrong("a column")
        if name not in self._kinds:
            near = difflib.get_close_matches(name, self._kinds, n=1, cutoff=0.5)
            hint = f", did you mean {near[0]}?" if near else ""
            raise UsageError(f"option where: no column {name}{hint} (there are {', '.join(self._kinds)})")
        return name

    def _of_column(self, column: str) -> Condition:
        if self._take("word", "is"):
            negated = self._take("word", "not")
            self._need("word", "null")
            return Negated(IsNull(column)) if negated else IsNull(column)
        negated = self._take("word", "not")
        found = self._among(column)
        if found is None and negated:
            raise self._wrong("in or between")
        if found is None:
            sign = self._take("sign", *_SIGNS)
            if sign is not None:
                return Compared(column, _SIGNS[sign], self._literal(column))
            if isinstance(self._kinds[column], BooleanType):
                return IsTrue(column)
            raise self._wrong("a comparison")
        return Negated(found) if negated else found

    def _among(self, column: str) -> Condition | None:
        """``in (…)`` or ``between … and …``, if that follows."""
        if self._take("word", "in"):
            self._need("sign", "(")
            values = [self._literal(column)]
            while self._take("sign", ","):
                values.append(self._literal(column))
            self._need("sign", ")")
            return _either([Compared(column, "==", value) for value in values])
        if self._take("word", "between"):
            low = self._literal(column)
            self._need("word", "and")
            return Combined(
                "and", (Compared(column, ">=", low), Compared(column, "<=", self._literal(column)))
            )
        return None

    def _literal(self, column: str) -> Literal:
        kind, is_time = self._kinds[column], self._take("word", "timestamp") is not None
        found, text = self._next()
        value = _value(kind, "time" if is_time or isinstance(kind, TimestampType) else found, text)
        if value is None or (is_time and found != "text"):
            wanted = kind.simpleString()
            raise UsageError(
                f"option where: column {column} is {wanted}, and {text!r} is no literal of that; allowed are "
                f"'texts', numbers, true, false and timestamp '2026-01-31T12:00:00Z'"
            )
        self._at += 1
        return value


def _either(parts: Sequence[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else Combined("or", tuple(parts))


def _value(kind: DataType, found: str, text: str) -> Literal | None:
    """Returns the literal that a word is for a column, None if it is none of its type."""
    match kind, found:
        case StringType(), "text":
            return text.replace("''", "'")
        case BooleanType(), "word" if text in ("true", "false"):
            return text == "true"
        case DoubleType(), "number":
            return float(text)
        case TimestampType(), "time":
            return _time(text)
    if isinstance(kind, _WHOLE) and found == "number" and re.fullmatch(r"[-+]?\d{1,19}", text):
        number = int(text)
        return number if -(1 << 63) <= number < 1 << 63 else None
    return None


def _time(text: str) -> datetime | None:
    """Returns a time in UTC, also where the text has no zone; None for a text that is no time."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
