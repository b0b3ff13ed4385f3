"""Writing facts: what each row of a result asserts, retracts or sends.

How is stated by a template, a fact in which captures name columns (``airborne($origin, $n)``), or
by a label that goes before all columns in their order.  Apart from the sink because it needs no Spark
process and no daemon: record batches go in, operations come out.

Always: a column's values keep their class (a bigint becomes an int, a double a float, an array a sequence,
null is null, and a string that is marked as a value's JSON that value), or have the form that ``conversions``
gives them; a type without a value form is refused when the query starts and not in the middle; the order of
rows is kept.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.types import StructField, StructType

from dataspace.client.bulk.packed import PackedColumns, Pairs
from dataspace.errors import DataspaceError, UsageError
from index.patterns.patterns import DISCARD, capture, exact
from index.patterns.skeletons import ATOM_CLASSES
from index.patterns.text import ParseError, parse_pattern
from index.values.jsons import from_json
from index.values.values import Map, Record, Value
from relay.spark.common.schema import CHANGE_TYPE, RESERVED, capture_classes, is_json
from relay.spark.sink.conversions import conversion_to_value

if TYPE_CHECKING:
    import pyarrow as pa


Operation: TypeAlias = tuple[str, "Value"]

VERBS: Final[Mapping[object, str]] = {
    "insert": "assert",
    "update_postimage": "assert",
    "delete": "retract",
    "update_preimage": "retract",
    "message": "send",
}
"""What a row's ``_change_type`` has the sink do, in the words of Delta's change feeds and in ours."""


RETRACT: Final = "retract"


class BadRow(DataspaceError):
    """A row of a result that means no fact."""


class FactWriter:
    """Turns record batches of one schema into operations; raises ``UsageError`` for what cannot work."""

    def __init__(
        self,
        schema: StructType,
        *,
        template: str | None = None,
        label: str | None = None,
        keys: Sequence[str] = (),
        messages: bool = False,
        dead_letter: str | None = None,
    ) -> None:
        names = schema.fieldNames()
        parsed: Value = None
        if template is not None:
            parsed = _parsed(template)
            wanted = _named(parsed, names)
        else:
            wanted = [name for name in names if name not in RESERVED]
        if CHANGE_TYPE in names:
            wanted.append(CHANGE_TYPE)
        self._columns = list(dict.fromkeys(wanted))
        self._converters = [_converter(schema[name]) for name in self._columns]
        places = {name: at for at, name in enumerate(self._columns)}
        self._kinds = places.get(CHANGE_TYPE)
        self._default = "send" if messages else "assert"
        self._dead_letter = dead_letter
        self._required = _required(parsed, template, keys, places)
        self.by = _key_pattern(parsed, label, wanted, keys, names) if keys else None
        """The pattern whose captures are the key of a fact, or None."""
        width = len(self._columns) - (self._kinds is not None)
        self._build = _builder(parsed, places) if template is not None else _labelled(label, width)
        self._fields = _fields_of(parsed, places) if template is not None else (label, range(width))

    def parts(self, batch: pa.RecordBatch) -> list[Part]:
        """Returns the additions and the retractions of the rows, each in their order.

        Records, as nearly always, come by the column.  Raises ``BadRow`` as ``operations``.
        """
        if self._fields is None:
            return _apart(self.operations(batch))
        try:
            verbs, columns = self._read(batch)
        except BadRow:
            return _apart(self.operations(batch))  # which finds the row, and may have somewhere to put it
        label, sources = self._fields
        fields = [
            columns[source] if isinstance(source, int) else list(map(source, zip(*columns, strict=True)))
            for source in sources
        ]
        return _columns_apart(PackedColumns(verbs, label, fields, batch.num_rows))

    def operations(self, batch: pa.RecordBatch) -> list[Operation]:
        """One operation for each row, in order: what its ``_change_type`` says, else what all do.

        Raises ``BadRow`` for a row that means no fact, or sends it to the dead letters if there are any.
        """
        try:
            return self._operations(batch)
        except BadRow:
            if self._dead_letter is None:
                raise
        return [each for at in range(batch.num_rows) for each in self._one(batch.slice(at, 1))]

    def _one(self, row: pa.RecordBatch) -> list[Operation]:
        """The operation of one row, or the message that says why there is none."""
        try:
            return self._operations(row)
        except BadRow as error:
            said = json.dumps(row.to_pylist()[0], default=str, ensure_ascii=False)
            return [("send", Record(self._dead_letter, said, str(error)))]

    def _operations(self, batch: pa.RecordBatch) -> list[Operation]:
        verbs, columns = self._read(batch)
        rows = zip(*columns, strict=True) if columns else repeat((), batch.num_rows)
        each = repeat(verbs) if isinstance(verbs, str) else verbs
        return list(zip(each, map(self._build, rows), strict=False))

    def _read(self, batch: pa.RecordBatch) -> tuple[str | Sequence[str], list[Sequence[Value]]]:
        """The verbs of a batch, one if all are alike, and its columns as values."""
        columns = [
            convert(batch.column(name)) for name, convert in zip(self._columns, self._converters, strict=True)
        ]
        for at, classes, what in self._required:
            if not classes.issuperset(map(type, columns[at])):
                raise _unfit(self._columns[at], what, columns, at, classes)
            if what == _KEY and any(value != value for value in columns[at]):
                row = next(row for row in zip(*columns, strict=True) if row[at] != row[at])
                raise BadRow(f"column {self._columns[at]} is NaN, which is no key, in the row {row!r:.200}")
        return self._default if self._kinds is None else _verbs(self._kinds, columns), columns


def _labelled(label: str | None, width: int) -> _Build:
    return lambda row: Record.of(label, row[:width])


def _verbs(kinds: int, columns: Sequence[Sequence[Value]]) -> list[str]:
    try:
        return [VERBS[kind] for kind in columns[kinds]]
    except KeyError:
        row = next(row for row in zip(*columns, strict=True) if row[kinds] not in VERBS)
    raise BadRow(f"{CHANGE_TYPE} is {row[kinds]!r} in {row!r}, allowed are {', '.join(map(str, VERBS))}")


Part: TypeAlias = tuple[bool, PackedColumns | Pairs]
"""Whether these operations retract, and the operations."""


def _apart(operations: Sequence[Operation]) -> list[Part]:
    """Returns the operations that add and the operations that retract, as far as there are any."""
    adding = [each for each in operations if each[0] != RETRACT]
    retracting = [each for each in operations if each[0] == RETRACT]
    return [(retracts, Pairs(part)) for retracts, part in ((False, adding), (True, retracting)) if part]


def _columns_apart(columns: PackedColumns) -> list[Part]:
    """The same by the column."""
    verbs = columns.verbs
    kinds = {verbs} if isinstance(verbs, str) else set(verbs)
    if len(kinds) == 1:
        (verb,) = kinds
        return [(verb == RETRACT, replace(columns, verbs=verb))]
    parts: list[Part] = []
    for retracts in (False, True):
        chosen = [(verb == RETRACT) == retracts for verb in verbs]
        count = sum(chosen)
        fields = [list(compress(field, chosen)) for field in columns.fields]
        if count:
            parts.append(
                (retracts, PackedColumns(list(compress(verbs, chosen)), columns.label, fields, count))
            )
    return parts


_KEY: Final = "a key"
Required: TypeAlias = tuple[int, frozenset[type], str]
"""A column, the classes of values that it must have, and why."""


def _required(
    parsed: Value, template: str | None, keys: Sequence[str], places: Mapping[str, int]
) -> list[Required]:
    """What a template with classes asks of its columns, and what a key must not be."""
    classes = dict(capture_classes(parsed)) if template is not None else {}
    required: list[Required] = [
        (places[name], frozenset([ATOM_CLASSES[kind]]), f"the {kind} that the template asks for")
        for name, kind in classes.items()
        if kind is not None
    ]
    not_null = frozenset(ATOM_CLASSES.values()) - {type(None)}
    return required + [(places[name], not_null, _KEY) for name in keys if name in places]


def _unfit(
    name: str, what: str, columns: Sequence[Sequence[Value]], at: int, classes: frozenset[type]
) -> BadRow:
    row = next(row for row in zip(*columns, strict=True) if type(row[at]) not in classes)
    return BadRow(f"column {name} is {row[at]!r:.60}, which is not {what}, in the row {row!r:.200}")


Convert: TypeAlias = Callable[["pa.Array"], Sequence["Value"]]


def _converter(field: StructField) -> Convert:
    """What makes the values of a column; ``UsageError`` for a type that has no value form."""
    each = _from_json if is_json(field) else conversion_to_value(field.name, field.dataType)
    if each is None:
        return lambda column: column.to_pylist()
    return lambda column: [None if item is None else each(item) for item in column.to_pylist()]


def _from_json(text: object) -> Value:
    try:
        return from_json(json.loads(str(text)))
    except ValueError as error:  # no JSON, or JSON of no value
        raise BadRow(f"{text!r:.60} is not the JSON of a value: {error}") from None


# -- templates -------------------------------------------------------------------------------------
#
# ``airborne($origin, $n)`` makes of each row the record of that label with these two columns. Templates may
# nest and hold constants. What a template cannot mean is refused when it is read, with the columns that there
# are.


_Row: TypeAlias = tuple["Value", ...]
_Build: TypeAlias = Callable[[_Row], "Value"]


def _parsed(template: str) -> Value:
    """The template that a text is; ``UsageError`` says where it is none."""
    try:
        return parse_pattern(template)
    except ParseError as error:
        raise UsageError(f"option template: {error}") from None


def _named(template: Value, columns: Sequence[str]) -> list[str]:
    """Returns the columns that a template names; ``UsageError`` for a missing column."""
    wanted = [name for name, _ in capture_classes(template)]
    for name in wanted:
        if name not in columns:
            raise UsageError(f"option template: {_no_column(name, columns)}")
    return wanted


def _builder(template: Value, places: Mapping[str, int]) -> _Build:
    """What makes the template's value of a row."""
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            return itemgetter(places[name])
        case Record(label="_"):
            raise UsageError(
                "option template: _ says nothing that could be asserted; name a column, as in $n"
            )
        case Record(label="lit", fields=(value,)):
            return lambda _row: value
        case Record(label="exact", fields=(inner,)):
            return _builder(inner, places)
        case Record(label=label, fields=parts):
            return _record(label, [_builder(part, places) for part in parts])
        case tuple():
            return _sequence([_builder(part, places) for part in template])
        case Map():
            return _map([(at, _builder(part, places)) for at, part in template.pairs()])
        case _:
            return lambda _row: template


def _fields_of(template: Value, places: Mapping[str, int]) -> tuple[Value, Sequence[int | _Build]] | None:
    """The label of the template's records and what makes each field: a column, or a row; or None."""
    if isinstance(template, Record) and template.label == "exact":
        return _fields_of(template.fields[0], places)
    if not isinstance(template, Record) or template.label in ("$", "_", "lit"):
        return None
    return template.label, [
        _builder(part, places) if (column := _column(part)) is None else places[column]
        for part in template.fields
    ]


def _column(part: Value) -> str | None:
    """The column that a part of a template names, if it is nothing else."""
    match part:
        case Record(label="$", fields=(str(name), _, _)):
            return name
    return None


def _key_pattern(
    template: Value, label: str | None, wanted: Sequence[str], keys: Sequence[str], names: Sequence[str]
) -> Value:
    """The facts that have a key, with the key captured."""
    for name in keys:
        if name not in wanted or name in RESERVED:
            raise UsageError(f"option keyColumns: {_no_key(name, label, wanted, names)}")
    if label is not None:
        fields = [capture(name) if name in keys else DISCARD for name in wanted if name not in RESERVED]
        return exact(Record(label, *fields))
    return _only_keys(template, frozenset(keys))


def _only_keys(part: Value, keys: frozenset[str]) -> Value:
    """A template in which only keys are captured, and whatever else varies is left open."""
    match part:
        case Record(label="$", fields=(str(name), _, _)):
            return capture(name) if name in keys else DISCARD
        case Record(label="lit"):
            return part
        case Record(label=label, fields=parts):
            return Record(label, *[_only_keys(each, keys) for each in parts])
        case tuple():
            return tuple([_only_keys(each, keys) for each in part])
        case Map():
            return Map([(at, _only_keys(each, keys)) for at, each in part.pairs()])
    return part


def _record(label: Value, parts: Sequence[_Build]) -> _Build:
    return lambda row: Record.of(label, tuple([part(row) for part in parts]))


def _sequence(parts: Sequence[_Build]) -> _Build:
    return lambda row: tuple([part(row) for part in parts])


def _map(parts: Sequence[tuple[Value, _Build]]) -> _Build:
    return lambda row: Map.of([(at, part(row)) for at, part in parts])


def _no_key(name: str, label: str | None, wanted: Sequence[str], names: Sequence[str]) -> str:
    """Returns why a column cannot be a key, and which can."""
    could = [each for each in wanted if each not in RESERVED]
    there = ", ".join(could) or "none"
    if name in RESERVED:
        return f"column {name} is not part of a fact, as a key must be (there are {there})"
    if name in names and label is None:
        return f"column {name} is not in the template, which has {there}: a key is part of the fact"
    near = difflib.get_close_matches(name, could, n=1)
    return f"no column {name}{f', did you mean {near[0]}?' if near else ''} (there are {there})"


def _no_column(name: str, columns: Sequence[str]) -> str:
    there = f"(there are {', '.join(columns)})"
    if name.isdigit():
        return f"a $ without a name, but each names its column, as in $n {there}"
    near = difflib.get_close_matches(name, columns, n=1)
    return f"no column ${name}{f', did you mean ${near[0]}?' if near else ''} {there}"
