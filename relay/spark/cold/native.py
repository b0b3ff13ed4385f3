"""Native scans: archived changes by Spark's own reader of Parquet, where the columns say all.

Spark prunes files, row groups and columns by itself then, and no Python runs.  It is possible for a batch of
one space, where the pattern is answered by columns alone (``forms``) and each wanted field has the type in
which the columns have it.  Everything else is read by the format, which gives the same rows.

Always: the rows equal the rows of the format; a value that is an error there is never passed over.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from relay.archive.archive import Archive
from relay.spark.cold.columns import ColdFile
from relay.spark.cold.forms import CLASSES, ColumnForm, column_form
from relay.spark.cold.plans import column_files
from relay.spark.common.schema import CHANGE_TYPE, CHANGES, EPOCH, EPOCH_TIMESTAMP, SEQ, Column, Columns
from relay.spark.common.where import Compared, Condition, IsNull, IsTrue, Joined, Negated

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression, DataFrame, SparkSession

_TYPES: Final[Mapping[str, DataType]] = {
    "b": BooleanType(),
    "i": LongType(),
    "f": DoubleType(),
    "s": StringType(),
    "y": BinaryType(),
    "t": TimestampType(),
}
"""Spark's type for each letter of a manifest's ``types``."""

_STORED: Final[Mapping[str, DataType]] = {
    EPOCH: LongType(),
    EPOCH_TIMESTAMP: TimestampType(),
    SEQ: IntegerType(),
    CHANGE_TYPE: StringType(),
}
"""The columns of every object, as they are stored."""

_GLOB: Final = frozenset("*?[]{}\\,")
"""Characters of a path that Spark would take for a pattern."""


def native_scan(
    spark: SparkSession, archive: Archive, wanted: Columns, after: int, upto: int
) -> DataFrame | None:
    """Returns the archived changes in (after, upto] with the wanted columns, None if the format must read.

    O(ranges); reads nothing but the manifest.
    """
    form = column_form(wanted.pattern)
    if form is None or not all(each.capture is not None or each.name in CHANGES for each in wanted.all):
        return None
    files = column_files(archive, form, after, upto)
    if not files or not all(each.own for each in files.values()):
        return None
    letters = archive.manifest.types.get(f"{form.label}/{form.fields}")
    paths = [_path(archive, each) for each in files.values()]
    if letters is None or any(_GLOB & {*path} for path in paths):
        return None
    scan = _Scan(form, letters, list(files.values()))
    shown = [scan.shown(each) for each in wanted.all]
    conditions = scan.conditions()
    if conditions is None or any(each is None for each in shown):
        return None
    if any(each.first <= after or each.last > upto for each in files.values()):
        conditions.append((F.col(EPOCH) > after) & (F.col(EPOCH) <= upto))
    frame = spark.read.schema(scan.schema()).parquet(*paths)
    for condition in conditions:
        frame = frame.where(condition)
    frame = frame.select(*[each for each in shown if each is not None])
    return frame if wanted.where is None else frame.where(_expression(wanted.where))


def _expression(of: Condition) -> Expression:
    """A condition in Spark's terms."""
    match of:
        case Compared(column, sign, literal):
            return _COMPARISONS[sign](F.col(column), F.lit(literal))
        case IsNull(column):
            return F.col(column).isNull()
        case IsTrue(column):
            return F.col(column)
        case Negated(part):
            return ~_expression(part)
        case Joined(word, parts):
            return reduce(operator.and_ if word == "and" else operator.or_, map(_expression, parts))


_COMPARISONS: Final[Mapping[str, Callable[[Expression, Expression], Expression]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Scan:
    """The columns that are read from some objects, and the expressions over them."""

    def __init__(self, form: ColumnForm, letters: str, files: Sequence[ColdFile]) -> None:
        self._form = form
        self._letters = letters
        self._others = _fields_with_others(files, form.fields)
        self._read: dict[str, DataType] = {EPOCH: LongType()}

    def schema(self) -> StructType:
        """Returns the schema to read with, for all columns that were asked for until now."""
        return StructType([StructField(name, kind) for name, kind in self._read.items()])

    def shown(self, column: Column) -> Expression | None:
        """Returns what makes a wanted column, None if that needs Python."""
        if column.capture is None:
            self._read[column.name] = _STORED[column.name]
            return F.col(column.name).cast(CHANGES[column.name]).alias(column.name)
        field = self._form.captures[column.capture]
        letter = self._letters[field]
        if _TYPES[letter] != column.spark or self._form.classes.get(field) is not CLASSES[letter]:
            return None
        made = self._values(field)
        return None if made is None else made.alias(column.name)

    def conditions(self) -> list[Expression] | None:
        """Returns what rows must fulfil to match, None if that needs Python."""
        found: list[Expression] = []
        for field, value in self._form.constants.items():
            if value.__class__ is not CLASSES[self._letters[field]] or not _is_comparable(value):
                return None
            self._read[f"f{field}"] = _TYPES[self._letters[field]]
            found.append(F.col(f"f{field}") == F.lit(value))
        for field, kind in self._form.classes.items():
            made = self._values(field) if kind is CLASSES[self._letters[field]] else None
            if made is None:
                return None
            found.append(made.isNotNull())
        return found

    def _values(self, field: int) -> Expression | None:
        """Returns what makes the values of a field that are of its class; null for all others."""
        name, letter = f"f{field}", self._letters[field]
        if letter == "i" and field in self._others:
            return None  # an integer beyond 64 bits is an error, or what the option malformed says
        self._read[name] = _TYPES[letter]
        if letter != "f" or field not in self._others:
            return F.col(name)
        self._read[f"{name}_other"] = BinaryType()
        return F.coalesce(F.col(name), _odd_float(F.hex(F.col(f"{name}_other"))))


def _odd_float(packed: Expression) -> Expression:
    """``-0.0`` or NaN, which stand as msgpack beside the other floats; null for other values."""
    negative = F.when(packed == "CB8000000000000000", F.lit(-0.0))
    return negative.when((F.length(packed) == 18) & packed.rlike("^CB[7F]FF"), F.lit(float("nan")))


def _is_comparable(value: object) -> bool:
    """True if Spark compares a constant as patterns do."""
    return isinstance(value, str | bool) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63)


def _fields_with_others(files: Sequence[ColdFile], fields: int) -> set[int]:
    """Returns the fields that have values of other classes somewhere, or may have some."""
    if any(each.others is None for each in files):
        return {*range(fields)}
    return {field for each in files for field in each.others or ()}


def _path(archive: Archive, file: ColdFile) -> str:
    """Returns the address of an object for Spark, which knows S3 by another name."""
    address = archive.objects.address(file.name)
    return f"s3a://{address.removeprefix('s3://')}" if address.startswith("s3://") else address
