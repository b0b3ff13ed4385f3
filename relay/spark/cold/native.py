"""Native scans: archived changes by Spark's own reader of Parquet, where the columns say all.

Spark prunes files, row groups and columns by itself then, and no Python runs.  It is possible for a batch of
one space, where the pattern is answered by columns alone (``forms``) and each wanted field has the type in
which the columns have it.  Everything else is read by the format, which gives the same rows.

Always: the rows equal the rows of the format; a value that is an error there is never passed over.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Window, functions as F
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
from relay.spark.cold.plans import column_files, summed_files
from relay.spark.common.schema import CHANGE_TYPE, CHANGES, EPOCH, EPOCH_TIMESTAMP, SEQ, Column, Columns
from relay.spark.common.where import Combined, Compared, Condition, IsNull, IsTrue, Literal, Negated

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression, DataFrame, SparkSession

log: Final = logging.getLogger("dataspace.spark")

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

_NO_FILE_SYSTEM: Final = ("ClassNotFoundException", "UnsupportedFileSystemException")

_GLOB: Final = frozenset("*?[]{}\\,")
"""Characters of a path that Spark would take for a pattern."""


def native_scan(
    spark: SparkSession, archive: Archive, wanted: Columns, after: int, upto: int
) -> DataFrame | None:
    """Returns the archived changes in (after, upto] with the wanted columns, None if the format must read.

    O(ranges); reads nothing but the manifest.  Where facts are to be counted, Spark reads from the nearest
    state on, and parts rows by their captures.
    """
    manifest, form = archive.manifest, column_form(wanted.pattern)
    if form is None or not all(each.capture is not None or each.name in CHANGES for each in wanted.all):
        return None
    files = column_files(archive, form, after, upto) if form.faithful else None
    if files is not None:
        if not all(each.own for each in files.values()):
            return None
        scan = _Scan(archive, form, form.fields, list(files.values()))
        made = scan.frame(spark, wanted.all, after, upto)
    else:
        made = _counted(spark, archive, form, wanted, after, upto)
    if archive.manifest is not manifest:
        return None  # another thread read a newer one, whose files may have other classes
    return made if made is None or wanted.where is None else made.where(_expression(wanted.where))


def _counted(
    spark: SparkSession, archive: Archive, form: ColumnForm, wanted: Columns, after: int, upto: int
) -> DataFrame | None:
    """Returns changes of captures: the first of facts with the same captures comes, and the last goes."""
    files = summed_files(archive, form, after, upto)
    inside = _everything(form, wanted)
    if files is None or inside is None:
        return None
    parts = [
        _Scan(archive, form, fields, part, exactly=True).frame(spark, inside, files.begin, upto)
        for fields, some in sorted(files.by_fields.items())
        for part in ([each for each in some if each.is_state], [each for each in some if not each.is_state])
        if part
    ]
    if not parts or any(each is None for each in parts):
        return None
    rows = reduce(lambda one, other: one.unionByName(other), [each for each in parts if each is not None])
    captures = [F.col(each.name) for each in inside if each.capture is not None]
    so_far = Window.partitionBy(*captures).orderBy(EPOCH, SEQ).rowsBetween(Window.unboundedPreceding, 0)
    kind = F.col(CHANGE_TYPE)
    change = F.when(kind == "insert", 1).when(kind == "delete", -1).otherwise(0)
    counted = rows.withColumn(_COUNT, F.sum(change).over(so_far))
    first = (kind == "insert") & (F.col(_COUNT) == 1)
    last = (kind == "delete") & (F.col(_COUNT) == 0)
    seen = counted.where(first | last | (kind == "message")).where(F.col(EPOCH) > after)
    return seen.select(*[each.name for each in wanted.all])


_COUNT: Final = "_facts with the same captures"


def _everything(form: ColumnForm, wanted: Columns) -> list[Column] | None:
    """Returns the wanted columns, all other captures, and the columns of the order of changes.

    None for a capture without a class.
    """
    columns = [*wanted.all]
    captured = {each.capture for each in columns}
    letters = {kind: letter for letter, kind in CLASSES.items()}
    for at, field in enumerate(form.captures):
        letter = letters.get(form.classes.get(field, object))
        if letter is None:
            return None
        if at not in captured:
            columns.append(Column(f"capture {at}", _TYPES[letter], pa.null(), at, None))
    named = {each.name for each in columns}
    needed = [name for name in (EPOCH, SEQ, CHANGE_TYPE) if name not in named]
    return columns + [Column(name, CHANGES[name], pa.null(), None, None) for name in needed]


def _expression(of: Condition) -> Expression:
    """A condition in Spark's terms."""
    match of:
        case Compared(column, sign, literal):
            return _COMPARISONS[sign](F.col(column), _literal(literal))
        case IsNull(column):
            return F.col(column).isNull()
        case IsTrue(column):
            return F.col(column)
        case Negated(part):
            return ~_expression(part)
        case Combined(word, parts):
            return reduce(operator.and_ if word == "and" else operator.or_, map(_expression, parts))


def _literal(value: Literal) -> Expression:
    """Returns a literal in Spark's terms.

    A time goes as its number: ``F.lit`` takes the day of one before 1582 for a day of the Julian calendar.
    """
    if isinstance(value, datetime):
        return F.timestamp_micros(F.lit((value - _BEGIN) // timedelta(microseconds=1)))
    return F.lit(value)


_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)


_COMPARISONS: Final[Mapping[str, Callable[[Expression, Expression], Expression]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Scan:
    """The columns that are read from some objects with as many fields, and the expressions over them.

    With ``exactly``, values must be told apart as dataspace does, and not as Spark does.
    """

    def __init__(
        self,
        archive: Archive,
        form: ColumnForm,
        fields: int,
        files: Sequence[ColdFile],
        *,
        exactly: bool = False,
    ) -> None:
        self._form = form
        self._letters = archive.manifest.types.get(f"{form.label}/{fields}", "")
        self._paths = [_path(archive, each) for each in files]
        self._bounds = [(each.first, each.last) for each in files if not each.is_state]
        self._others = _fields_with_others(files, fields)
        self._exactly = exactly
        self._read: dict[str, DataType] = {EPOCH: LongType()}

    def frame(
        self, spark: SparkSession, columns: Sequence[Column], after: int, upto: int
    ) -> DataFrame | None:
        """Returns the changes of some epochs with some columns, None if that needs Python."""
        if not self._paths or not self._letters or any(_GLOB & {*path} for path in self._paths):
            return None
        shown = [self.shown(each) for each in columns]
        conditions = self.conditions()
        if conditions is None or any(each is None for each in shown):
            return None
        if any(first <= after or last > upto for first, last in self._bounds):
            conditions.append((F.col(EPOCH) > after) & (F.col(EPOCH) <= upto))
        try:
            frame = spark.read.schema(self.schema()).parquet(*self._paths)
        except Py4JJavaError as error:
            if not any(each in str(error) for each in _NO_FILE_SYSTEM):
                raise
            log.warning("Spark has no file system for %s: tasks in Python read it", self._paths[0])
            return None
        for condition in conditions:
            frame = frame.where(condition)
        return frame.select(*[each for each in shown if each is not None])

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
            values = self._values(field) if kind is CLASSES[self._letters[field]] else None
            if values is None:
                return None
            found.append(values.isNotNull())
        return found

    def _values(self, field: int) -> Expression | None:
        """Returns what makes the values of a field that are of its class; null for all others."""
        name, letter = f"f{field}", self._letters[field]
        if letter == "i" and field in self._others:
            return None  # an integer beyond 64 bits is an error, or what the option malformed says
        if letter == "f" and field in self._others and self._exactly:
            return None  # Spark takes 0.0 and -0.0 for one value
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
