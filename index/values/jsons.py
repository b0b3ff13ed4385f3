"""JSON: one documented form for every value.

JSON has fewer kinds than we have, so records, bytes, times, large integers, the floats that JSON lacks
and maps with keys that are no text are objects with a tag, a key that begins with ``@``:

    {"@": "present", "fields": ["Alice"]}     a record
    {"@int": "9007199254740992"}              an integer beyond 53 bits, in base 10, or 16 beyond 2048 bits
    {"@float": "nan"}                         nan, inf, -inf
    {"@bytes": "AP8="}                        bytes in base 64
    {"@time": "2026-01-01T00:00:00Z"}         a time in UTC
    {"@map": [[1, "one"]]}                    a map with a key that is no text, or that begins with "@"

It is apart from the text of values because it is for other programs.  ``TEXT.md`` has all of it.

Always: different values have different JSON, and ``from_json(to_json(v))`` is the same value as ``v``.
An integer and a float differ by the point or exponent, which every float is written with.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from index.errors import UsageError
from index.values.atoms import integer, integer_text, time, time_text
from index.values.freezing import bounded, freeze
from index.values.refusals import no_value
from index.values.values import DEEPEST, Map, Record, Value, below

Json: TypeAlias = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_DEPTH: Final = 64
"""Levels of nesting that ``from_json`` follows unless its caller says otherwise."""

EXACT: Final = (1 << 53) - 1
"""The largest integer that every reader of JSON keeps exactly."""


def to_json(value: Value) -> Json:
    """What ``json.dumps`` makes the JSON of a value from; ``UsageError`` for absurdly deep nesting.

    >>> to_json(Record("present", "Alice", b"!"))
    {'@': 'present', 'fields': ['Alice', {'@bytes': 'IQ=='}]}
    """
    try:
        return _json(value, DEEPEST)
    except RecursionError:
        raise UsageError("a value is nested too deeply for JSON") from None


def captures_json(names: Sequence[str], captures: Sequence[Value]) -> dict[str, Json]:
    """One row of captures by name, unnamed ones by their position among all captures.

    >>> captures_json(("who", "1"), ("Alice", 5))
    {'who': 'Alice', '1': 5}
    """
    return {name: to_json(value) for name, value in zip(names, captures, strict=True)}


def _json(value: Value, depth: int) -> Json:
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -EXACT <= value <= EXACT else {"@int": integer_text(value)}
        case float():
            return value if math.isfinite(value) else {"@float": repr(value)}
        case Record():
            depth = below(depth)
            return {"@": _json(value.label, depth), "fields": [_json(each, depth) for each in value.fields]}
        case tuple():
            depth = below(depth)
            return [_json(each, depth) for each in value]
        case Map():
            return _map_json(value, below(depth))
        case bytes():
            return {"@bytes": b64encode(value).decode()}
        case datetime():
            return {"@time": time_text(value)}
        case _:  # whatever the types say
            raise no_value(value)


def _map_json(value: Map, depth: int) -> Json:
    pairs = value.pairs()
    plain = {at: _json(each, depth) for at, each in pairs if isinstance(at, str) and not at.startswith("@")}
    if len(plain) == len(pairs):
        return plain
    return {"@map": [[_json(at, depth), _json(each, depth)] for at, each in pairs]}


# -- reading ------------------------------------------------------------------------------------------

_Path: TypeAlias = tuple[object, ...]


def from_json(said: object, *, depth: int = MAX_DEPTH, elements: int | None = None) -> Value:
    """The value that was said in JSON, as ``json.loads`` gives it.

    More is understood than ``to_json`` writes: ``{"@int": "5"}``, ``{"@float": "1.5"}`` and ``{"@map": []}``
    are for writers whose language has no such thing.  Raises ``UsageError`` with the path to what is no
    value's JSON, and for more than ``depth`` levels or ``elements``, counted as by ``bounded``.
    """
    try:
        return bounded(_value(said, (), min(depth, DEEPEST)), depth=depth, elements=elements)
    except RecursionError:
        raise UsageError("JSON that is nested too deeply for this interpreter") from None


def _value(item: object, path: _Path, depth: int) -> Value:
    if isinstance(item, (list, dict)):
        if isinstance(item, dict) and len(item) == 1 and not _TAGGED.keys().isdisjoint(item):
            return _tagged(item, path)
        if depth <= 0:
            raise UsageError(f"nested too deeply{_at(path[:8])}…")
        return _sequence(item, path, depth - 1) if isinstance(item, list) else _object(item, path, depth - 1)
    if item is None or isinstance(item, (bool, int, float)):
        return item
    if isinstance(item, str):
        return _text(item, path)
    raise _wrong(f"{type(item).__qualname__} is no JSON", path)


def _text(text: str, path: _Path) -> Value:
    try:
        return freeze(text)
    except UsageError as error:
        raise _wrong(str(error), path) from None


def _sequence(items: list[object], path: _Path, depth: int) -> tuple[Value, ...]:
    return tuple([_value(each, (*path, at), depth) for at, each in enumerate(items)])


def _object(members: dict[object, object], path: _Path, depth: int) -> Value:
    tags = [at for at in members if isinstance(at, str) and at.startswith("@")]
    if not tags:
        return Map.of(
            [(_text(_key(at, path), path), _value(each, (*path, at), depth)) for at, each in members.items()]
        )
    tag = tags[0]
    if tag == "@" and members.keys() == {"@", "fields"} and isinstance(members["fields"], list):
        return Record.of(
            _value(members["@"], (*path, "@"), depth), _sequence(members["fields"], (*path, "fields"), depth)
        )
    if tag == "@map" and len(members) == 1:
        return _map(members["@map"], (*path, "@map"), depth)
    raise _wrong(f"an object with keys {sorted(map(str, members))} is none of the tagged forms", path)


def _key(at: object, path: _Path) -> str:
    if not isinstance(at, str):
        raise _wrong(f"key {at!r} is no text", path)
    return at


def _map(item: object, path: _Path, depth: int) -> Map:
    if not isinstance(item, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in item):
        raise _wrong("a map is a list of pairs", path)
    pairs = [_sequence(pair, (*path, at), depth) for at, pair in enumerate(item)]
    try:
        return Map.of([(at, each) for at, each in pairs])
    except UsageError as error:
        raise _wrong(str(error), path) from None


def _tagged(members: dict[str, object], path: _Path) -> Value:
    """An atom that JSON has no form for; it is no level of nesting."""
    ((tag, text),) = members.items()
    value = _TAGGED[tag](text) if isinstance(text, str) else None
    if value is None:
        raise _wrong(f"{text!r:.80} is no {tag[1:]}", (*path, tag))
    return value


_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+")
"""A number of JSON: ``float`` also takes blanks, underscores and words that other languages do not."""


def _float(text: str) -> float | None:
    if text in ("nan", "inf", "-inf"):
        return float(text)
    number = float(text) if _FLOAT.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


def _bytes(text: str) -> bytes | None:
    try:
        found = b64decode(text, validate=True)
    except ValueError:
        return None
    return found if b64encode(found).decode() == text else None  # each value has one form


_TAGGED: Final[dict[str, Callable[[str], Value]]] = {
    "@int": integer,
    "@float": _float,
    "@bytes": _bytes,
    "@time": time,
}


def _wrong(what: str, path: _Path) -> UsageError:
    return UsageError(what + _at(path))


def _at(path: _Path) -> str:
    return f" at {''.join([f'[{step!r}]' for step in path]) or 'the top'}"
