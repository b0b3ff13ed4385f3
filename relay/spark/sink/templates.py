"""Templates: a fact in which captures name columns, and what makes facts of rows by it.

``airborne($origin, $n)`` makes of each row the record of that label with these two columns.  Templates may
nest and hold constants.  Apart from facts, which define a row and its effect.

Always: what a template cannot mean is refused when it is read, with the columns that there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

from dataspace.errors import UsageError
from index.patterns.patterns import DISCARD, capture, exact
from index.patterns.text import ParseError, parse_pattern
from index.values.values import Map, Record, Value
from relay.spark.common.schema import RESERVED, capture_classes

Row: TypeAlias = tuple["Value", ...]
Build: TypeAlias = Callable[[Row], "Value"]


def parsed(template: str) -> Value:
    """The template that a text is; ``UsageError`` says where it is none."""
    try:
        return parse_pattern(template)
    except ParseError as error:
        raise UsageError(f"option template: {error}") from None


def named(template: Value, columns: Sequence[str]) -> list[str]:
    """Returns the columns that a template names; ``UsageError`` for a missing column."""
    wanted = [name for name, _ in capture_classes(template)]
    for name in wanted:
        if name not in columns:
            raise UsageError(f"option template: {_no_column(name, columns)}")
    return wanted


def builder(template: Value, places: Mapping[str, int]) -> Build:
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
            return builder(inner, places)
        case Record(label=label, fields=parts):
            return _record(label, [builder(part, places) for part in parts])
        case tuple():
            return _sequence([builder(part, places) for part in template])
        case Map():
            return _map([(at, builder(part, places)) for at, part in template.pairs()])
        case _:
            return lambda _row: template


def fields_of(template: Value, places: Mapping[str, int]) -> tuple[Value, Sequence[int | Build]] | None:
    """The label of the template's records and what makes each field: a column, or a row; or None."""
    if isinstance(template, Record) and template.label == "exact":
        return fields_of(template.fields[0], places)
    if not isinstance(template, Record) or template.label in ("$", "_", "lit"):
        return None
    return template.label, [
        builder(part, places) if (column := _column(part)) is None else places[column]
        for part in template.fields
    ]


def _column(part: Value) -> str | None:
    """The column that a part of a template names, if it is nothing else."""
    match part:
        case Record(label="$", fields=(str(name), _, _)):
            return name
    return None


def key_pattern(
    said: Value, label: str | None, wanted: Sequence[str], keys: Sequence[str], names: Sequence[str]
) -> Value:
    """The facts that have a key, with the key captured."""
    for name in keys:
        if name not in wanted or name in RESERVED:
            raise UsageError(f"option keyColumns: {_no_key(name, label, wanted, names)}")
    if label is not None:
        fields = [capture(name) if name in keys else DISCARD for name in wanted if name not in RESERVED]
        return exact(Record(label, *fields))
    return _only_keys(said, frozenset(keys))


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


def _record(label: Value, parts: Sequence[Build]) -> Build:
    return lambda row: Record.of(label, tuple([part(row) for part in parts]))


def _sequence(parts: Sequence[Build]) -> Build:
    return lambda row: tuple([part(row) for part in parts])


def _map(parts: Sequence[tuple[Value, Build]]) -> Build:
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
