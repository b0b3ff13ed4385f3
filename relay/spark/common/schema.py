"""Schema: which columns a pattern makes, and what each of them can hold?

``flight($carrier:str, $n:int, _)`` makes ``carrier string, n bigint`` and, as in Delta's change feeds,
``_change_type``, ``_epoch``, ``_epoch_timestamp`` and ``_seq``.  A capture without an atom class, or of
compounds, has no one Spark type: unless a schema is given it becomes a string with the value's documented
JSON, marked in the column's metadata.  A given schema has some or all of these columns, in any order.

Always: one column holds values of one class, strictly, so that nothing is converted on the way: an
integer is no double here either.  The only other occupant is null, which is a value as well.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dataspace.errors import UsageError
from index.patterns.patterns import capture, capture_names, skeleton
from index.patterns.skeletons import ATOM_CLASSES
from index.patterns.text import ParseError, parse_pattern, unparse
from index.values.jsons import to_json
from index.values.values import Map, Record, Value
from relay.spark.common.parsing import Malformed
from relay.spark.common.versions import arrow_schema

if TYPE_CHECKING:
    from relay.spark.common.where import Condition

CHANGE_TYPE: Final = "_change_type"
EPOCH: Final = "_epoch"
EPOCH_TIMESTAMP: Final = "_epoch_timestamp"
SEQ: Final = "_seq"
DAEMON: Final = "_daemon"
SPACE: Final = "_space"
TIME: Final = "_time"
CRASHED: Final = "_crashed"
VALUE: Final = "_value"
ASSERTED_EPOCH: Final = "_asserted_epoch"
ASSERTED_AT: Final = "_asserted_at"
OWNER: Final = "_owner"

CHANGES: Final[Mapping[str, DataType]] = {
    CHANGE_TYPE: StringType(),
    EPOCH: LongType(),
    EPOCH_TIMESTAMP: TimestampType(),
    SEQ: LongType(),
}

TOPIC: Final[Mapping[str, DataType]] = {
    CHANGE_TYPE: StringType(),
    EPOCH: LongType(),
    TIME: ArrayType(LongType(), containsNull=False),
    CRASHED: StringType(),
    SEQ: LongType(),
}
"""The same for a topic: its times are the application's, and an epoch may have crashed."""

RESERVED: Final[Mapping[str, DataType]] = {**CHANGES, **TOPIC}

ASSERTED: Final[Mapping[str, DataType]] = {ASSERTED_EPOCH: LongType(), ASSERTED_AT: TimestampType()}

EXTRA: Final[Mapping[str, DataType]] = {
    DAEMON: StringType(),
    SPACE: StringType(),
    VALUE: StringType(),
    **ASSERTED,
    OWNER: StringType(),
}
"""Columns that are there when asked for: by several addresses, ``spaces``, ``includeValue``,
``includeAsserted``, ``includeOwner``, or a schema."""

TRACED: Final = frozenset([*ASSERTED, OWNER])
"""Columns of changes that may be null: they say where a row came from."""

OWN: Final[Mapping[str, DataType]] = {**RESERVED, **EXTRA}

JSON_MARK: Final = {"dataspace": "json"}
"""Metadata of a column whose strings are the JSON of values."""

_OF_CLASS: Final[Mapping[str, DataType]] = {
    "str": StringType(),
    "int": LongType(),
    "float": DoubleType(),
    "bool": BooleanType(),
    "bytes": BinaryType(),
    "time": TimestampType(),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and types, and which capture fills it (None for the columns of our own).

    ``fits`` are the classes of values that it holds, None standing for all; ``convert`` makes of each what
    Arrow is given, where that is not the value itself.
    """

    name: str
    spark: DataType
    arrow: pa.DataType
    capture: int | None
    fits: frozenset[type] | None
    convert: Convert | None = None

    def misfits(self, values: Sequence[Value]) -> bool:
        """Whether there is a value of a class that this column does not hold; one pass at C speed."""
        return self.fits is not None and not self.fits.issuperset(map(type, values))

    def holds(self, value: Value) -> bool:
        """True if one value fits, with its size and its parts."""
        if self.fits is not None and type(value) not in self.fits:
            return False
        try:
            pa.array(self.encoded([value]), self.arrow)
        except (pa.ArrowInvalid, OverflowError, Unfit):
            return False
        return True

    def encoded(self, values: Sequence[Value]) -> Sequence[object]:
        """Returns the values in Arrow's form; ``Unfit`` for a value whose inside differs from the type."""
        convert = self.convert
        if convert is None:
            return values
        if self.fits is None:
            return [convert(value) for value in values]
        return [None if value is None else convert(value) for value in values]

    def remedy(self, value: Value) -> str:
        """Returns the reader's remedy for a value that does not fit, and the flaw inside it."""
        inside = unfit_part(self.spark, value)
        if inside is not None:
            return f"{inside}; change the schema, or leave it away to get JSON, or say malformed=drop or null"
        too_large = type(value) is int and self.fits is not None and int in self.fits
        way = (
            f"ask for ${self.name}:int and the schema {self.name} string"
            if too_large
            else "ask for the class"
        )
        return (
            f"let the pattern {way}, or leave the class and the schema away to get JSON, "
            f"or say malformed=drop or null"
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """All columns of a source, in order, and the Arrow schema that Spark expects of its batches.

    ``pattern`` is the pattern sent to the daemon for them: with the whole fact captured where it is wanted.
    ``where`` is what rows must fulfil.
    """

    all: tuple[Column, ...]
    arrow: pa.Schema
    pattern: Value
    malformed: Malformed = "fail"
    where: Condition | None = None

    @property
    def captures(self) -> tuple[int, ...]:
        """Returns the numbers of the captures that fill a column; no others are sent."""
        return tuple(sorted({each.capture for each in self.all if each.capture is not None}))

    @property
    def placed(self) -> bool:
        """True if rows say where in their epochs they are."""
        return any(each.name == SEQ for each in self.all)

    @property
    def asserted(self) -> bool:
        """True if rows say since when they were there."""
        return any(each.name in ASSERTED for each in self.all)

    @property
    def owned(self) -> bool:
        """True if rows say by whose claim they came."""
        return any(each.name == OWNER for each in self.all)

    @property
    def traced(self) -> bool:
        """True if rows say what only a replay from the oldest epoch on finds out."""
        return self.asserted or self.owned


def inferred(
    pattern: str,
    *,
    include_value: bool = False,
    several: bool = False,
    spaces: bool = False,
    topic: bool = False,
    asserted: bool = False,
    owned: bool = False,
) -> StructType:
    """The schema of a pattern: its captures, then our own columns.

    Raises ``UsageError`` for a pattern that does not parse, and for names of captures that Spark could
    not tell apart.

    >>> inferred("present($who:str)").simpleString()
    'struct<who:string,_change_type:string,_epoch:bigint,_epoch_timestamp:timestamp,_seq:bigint>'
    """
    fields = [_inferred_field(name, kind) for name, kind in _captured(pattern)]
    reserved = TOPIC if topic else CHANGES
    own = [StructField(name, kind, name == CRASHED) for name, kind in reserved.items()]
    extra = [StructField(DAEMON, StringType(), False)] * several
    extra += [StructField(SPACE, StringType(), False)] * spaces
    extra += [StructField(VALUE, StringType(), False)] * include_value
    extra += [StructField(name, kind, True) for name, kind in ASSERTED.items()] * asserted
    extra += [StructField(OWNER, StringType(), True)] * owned
    return StructType(fields + own + extra)


def selected(schema: StructType, names: Sequence[str]) -> StructType:
    """Returns the named columns of a schema; raises ``UsageError`` for a name that it has not.

    >>> selected(inferred("p($a:str, $b:int)"), ["b"]).simpleString()
    'struct<b:bigint>'
    """
    known = {field.name: field for field in schema.fields}
    known |= {
        name: StructField(name, kind, name in TRACED) for name, kind in EXTRA.items() if name not in known
    }
    for name in names:
        if name not in known:
            raise _unknown_column(name, [*known])
    return StructType([known[name] for name in names])


def _unknown_column(name: str, known: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f", did you mean {near[0]}?" if near else ""
    listed = ", ".join([each for each in known if each not in EXTRA])
    return UsageError(f"column {name} is none of the pattern's{hint} (it makes {listed})")


def columns(
    pattern: str,
    schema: StructType,
    *,
    include_value: bool = False,
    malformed: Malformed = "fail",
    topic: bool = False,
) -> Columns:
    """How the captures of a pattern fill the columns of a schema, inferred or given.

    Raises ``UsageError`` for a column that the pattern does not make, and for a type that cannot hold
    what the pattern captures.
    """
    own = TOPIC if topic else CHANGES
    for name in schema.fieldNames():
        if name in OWN and name not in own and name not in EXTRA:
            raise UsageError(f"column {name} is one of {'changes' if topic else 'topics'} only")
    for name in schema.fieldNames():
        if name in TRACED and (topic or not schema[name].nullable):
            raise UsageError(
                f"column {name} is one of changes only"
                if topic
                else f"column {name} may be null: declare it so"
            )
    whole = include_value or VALUE in schema.fieldNames()
    first = 1 if whole else 0  # the whole fact is captured before everything inside
    known = {name: (at, kind) for at, (name, kind) in enumerate(_captured(pattern), first)}
    arrow = arrow_schema(schema)
    all_columns = [
        _own(field, arrow.field(field.name).type)
        if field.name in OWN
        else _captured_column(field, arrow.field(field.name).type, known, own)
        for field in schema.fields
    ]
    asked = capture(None, None, parsed(pattern)) if whole else parsed(pattern)
    return Columns(tuple(all_columns), arrow, asked, malformed)


def parsed(pattern: str) -> Value:
    """The pattern that an option says; ``UsageError`` points at what is wrong with it."""
    try:
        return parse_pattern(pattern)
    except ParseError as error:
        raise UsageError(f"option pattern: {error}") from None


def json_text(value: Value) -> str:
    """The documented JSON of a value, in one line."""
    return json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def is_json(field: StructField) -> bool:
    """Whether a column holds the JSON of values rather than texts."""
    marked = field.metadata.get("dataspace") == JSON_MARK["dataspace"]
    return marked and isinstance(field.dataType, StringType)


def _captured(pattern: str) -> list[tuple[str, str | None]]:
    """Name and atom class of every capture, in the order of the captures."""
    found = capture_classes(parsed(pattern))
    folded: dict[str, str] = {name.lower(): name for name in OWN}
    for name, _ in found:
        other = folded.setdefault(name.lower(), name)
        if other != name or name in OWN:
            raise UsageError(f"capture ${name} cannot be told from column {other}: give it another name")
    return found


def _inferred_field(name: str, kind: str | None) -> StructField:
    known = _OF_CLASS.get(kind or "")
    # Nullable in any case, so that a later decision on facts that do not fit cannot change a schema.
    return StructField(name, known, True) if known else StructField(name, StringType(), True, dict(JSON_MARK))


def _own(field: StructField, arrow: pa.DataType) -> Column:
    if field.dataType != OWN[field.name]:
        wanted = OWN[field.name].simpleString()
        raise UsageError(f"column {field.name} is {wanted}, the schema says {field.dataType.simpleString()}")
    if field.name == VALUE:
        return Column(field.name, field.dataType, arrow, 0, None, unparse)
    return Column(field.name, field.dataType, arrow, None, None)


def _captured_column(
    field: StructField,
    arrow: pa.DataType,
    known: Mapping[str, tuple[int, str | None]],
    own: Mapping[str, DataType],
) -> Column:
    if field.name not in known:
        raise _unknown_column(field.name, [*known, *own, *EXTRA])
    at, kind = known[field.name]
    if is_json(field):
        return Column(field.name, field.dataType, arrow, at, None, json_text)
    held = held_class(field.dataType)
    convert = conversion(field.dataType)
    if kind == "int" and isinstance(field.dataType, StringType):
        held, convert = int, str
    if held is None or (kind is not None and ATOM_CLASSES[kind] is not held):
        raise UsageError(_unfit(field, kind))
    nulls = {type(None)} if field.nullable else set()
    return Column(field.name, field.dataType, arrow, at, frozenset({held} | nulls), convert)


def _unfit(field: StructField, kind: str | None) -> str:
    declared = field.dataType.simpleString()
    if kind is not None and kind in _OF_CLASS:
        allowed = [each().simpleString() for each, of in ATOMS.items() if of is ATOM_CLASSES[kind]]
        allowed += ["string"] if kind == "int" else []
    else:
        compound = {"record": ["struct<…>"], "seq": ["array<…>"], "map": ["map<string,…>"]}
        atoms = [each().simpleString() for each in ATOMS]
        allowed = compound.get(kind or "", [*atoms, "struct<…>", "array<…>", "map<string,…>"])
    return (
        f"column {field.name} captures {kind or 'values of any class'} and the schema says {declared}, "
        f"allowed are {', '.join(allowed)}"
    )


def capture_classes(pattern: Value) -> list[tuple[str, str | None]]:
    """Name and class of each capture of a pattern, outer before inner; O(size).

    >>> capture_classes(parse_pattern("at($who:str, $p(point($, _)))"))
    [('who', 'str'), ('p', None), ('2', None)]
    """
    form = skeleton(pattern)
    classes = {check.path: str(check.argument) for check in form.checks if check.kind == "class"}
    names = capture_names(pattern)
    return [(name, classes.get(path)) for name, path in zip(names, form.captures, strict=True)]


ATOMS: Final[Mapping[type[DataType], type]] = {
    StringType: str,
    ByteType: int,
    ShortType: int,
    IntegerType: int,
    LongType: int,
    DoubleType: float,
    BooleanType: bool,
    BinaryType: bytes,
    TimestampType: datetime,
}
"""The class of values that each plain type holds."""

_COMPOUNDS: Final[Mapping[type[DataType], type]] = {StructType: Record, ArrayType: tuple, MapType: Map}

LABEL: Final = "_label"
"""The field of a struct that takes the record's label; it must be the first."""

Convert: TypeAlias = "Callable[[Value], object]"


class Unfit(Exception):
    """A value is other inside than its type; the caller looks for the row."""


def held_class(kind: DataType) -> type | None:
    """The class of values that a type holds, or None for a type that holds no value.

    >>> held_class(ArrayType(LongType())).__name__
    'tuple'
    """
    known = ATOMS.get(type(kind)) or _COMPOUNDS.get(type(kind))
    return known if known is not None and all(map(held_class, _inner(kind))) else None


def conversion(kind: DataType) -> Convert | None:
    """What makes Arrow's form of a value that is of the type's class, or None where it is that already."""
    match kind:
        case StructType():
            return _struct(kind)
        case ArrayType():
            element = _checked(kind.elementType, nullable=kind.containsNull)
            return lambda value: [element(item) for item in value]  # type: ignore[union-attr]  # a sequence, by its class
        case MapType():
            at = _checked(kind.keyType, nullable=False)
            held = _checked(kind.valueType, nullable=kind.valueContainsNull)
            return lambda value: [(at(k), held(v)) for k, v in value.pairs()]  # type: ignore[union-attr]  # a map
    return None


def _struct(kind: StructType) -> Convert:
    fields = [(field.name, _checked(field.dataType, nullable=field.nullable)) for field in kind.fields]
    labelled = bool(fields) and fields[0][0] == LABEL

    def convert(value: Value) -> object:
        assert isinstance(value, Record)  # by its class
        parts = (value.label, *value.fields) if labelled else value.fields
        if len(parts) != len(fields):
            raise Unfit
        return {name: inner(part) for (name, inner), part in zip(fields, parts, strict=True)}

    return convert


def _checked(kind: DataType, *, nullable: bool) -> Convert:
    """The conversion of a part, which must be of the type's class, or null where that may be."""
    held, inner = held_class(kind), conversion(kind)

    def convert(value: Value) -> object:
        if value is None and nullable:
            return None
        if value.__class__ is not held:
            raise Unfit
        return value if inner is None else inner(value)

    return convert


def unfit_part(kind: DataType, value: Value) -> str | None:
    """Returns which part of a compound value is other than its type, and how; None if no part is.

    >>> unfit_part(StructType([StructField("x", LongType())]), Record("point", 1, 2))
    'the record has 2 fields, the struct 1 (x)'
    """
    if type(kind) not in _COMPOUNDS or type(value) is not held_class(kind):
        return None
    found = _flaw(kind, value, nullable=True, path="")
    if found is None:
        return None
    path, why = found
    return f"in {path.removeprefix('.')}: {why}" if path else why


def _flaw(kind: DataType, value: Value, *, nullable: bool, path: str) -> tuple[str, str] | None:
    """Returns the path to the first part that does not fit, and its flaw."""
    if value is None:
        return None if nullable else (path, "null, which the schema does not allow")
    if type(value) is not held_class(kind):
        return path, f"{_brief(value)} is no {kind.simpleString()}"
    if type(value) is int and not -(1 << _BITS[type(kind)] - 1) <= value < 1 << _BITS[type(kind)] - 1:
        return path, f"{_brief(value)} is too large for {kind.simpleString()}"
    if isinstance(value, Record) and (why := _miscounted(kind, value)):
        return path, why
    flaws = (
        _flaw(inner, part, nullable=may_be_null, path=path + at)
        for at, inner, may_be_null, part in _parts(kind, value)
    )
    return next(filter(None, flaws), None)


_BITS: Final[Mapping[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


def _miscounted(kind: DataType, value: Record) -> str | None:
    """Says that a record has other fields than a struct, if it has."""
    assert isinstance(kind, StructType)  # which is the one type that holds records
    names = kind.fieldNames()
    labelled = names[:1] == [LABEL]
    wanted, there = names[labelled:], len(value.fields)
    if len(wanted) == there:
        return None
    beside = f" beside {LABEL}" if labelled else ""
    said = f"{there} field{'' if there == 1 else 's'}"
    return f"the record has {said}, the struct {len(wanted)} ({', '.join(wanted)}){beside}"


def _parts(kind: DataType, value: Value) -> list[tuple[str, DataType, bool, Value]]:
    """Where each part of a compound is, its type, whether it may be null, and the part."""
    match kind, value:
        case StructType(), Record():
            labelled = kind.fieldNames()[:1] == [LABEL]
            parts = (value.label, *value.fields) if labelled else value.fields
            pairs = zip(kind.fields, parts, strict=True)
            return [(f".{field.name}", field.dataType, field.nullable, part) for field, part in pairs]
        case ArrayType(), tuple():
            return [(f"[{at}]", kind.elementType, kind.containsNull, part) for at, part in enumerate(value)]
        case MapType(), Map():
            keys = [(f" key {at!r:.40}", kind.keyType, False, at) for at, _ in value.pairs()]
            return keys + [
                (f"[{at!r:.40}]", kind.valueType, kind.valueContainsNull, part) for at, part in value.pairs()
            ]
    return []


def _brief(value: Value) -> str:
    said = repr(value)
    return f"{type(value).__name__} {said if len(said) <= 60 else said[:57] + '…'}"


def _inner(kind: DataType) -> list[DataType]:
    """The types inside a type."""
    match kind:
        case StructType():
            return [field.dataType for field in kind.fields]
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
    return []
