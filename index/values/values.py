"""Values: the data of a dataspace, and their equality.

Everything that is asserted, sent, captured, logged or put on a wire is a *value*: ``None``, ``bool``,
``int``, ``float``, ``str``, ``bytes``, ``datetime`` (UTC), ``tuple`` (a sequence), ``Map`` or ``Record``.
Values are apart from patterns and from text because every layer needs them and nothing else.

Python holds ``1 == True == 1.0``, with equal hashes, and its integer and tuple hashes collide on demand.
Neither is good enough for tables that strangers fill, so every table of the project is keyed by
``key(value)``, and that one function decides equality everywhere.  Strings, bytes and ``None`` are their own
key, since Python hashes them with a secret; integers of up to 60 bits are multiplied by a secret of ours,
which spreads them over any table; all else is keyed by its canonical text, which ``repr`` writes at C speed.

Always: ``key(a) == key(b)`` exactly if ``a`` and ``b`` are the same value (NaN is the same as itself,
``0.0`` and ``-0.0`` differ); a value never changes; ``order_key`` puts all values in one total order.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import datetime
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, Union

from index.errors import UsageError
from index.values.refusals import Trail, checked_text, checked_time, no_value, place_of

Value: TypeAlias = Union[None, bool, int, float, str, bytes, datetime, tuple["Value", ...], "Map", "Record"]

K = TypeVar("K")

MAX_DEPTH: Final = 100
"""How deep ``freeze`` lets things nest unless its caller says otherwise."""

SMALL: Final = 1 << 60
"""Integers below this are keyed by a product: any two of those have different hashes."""

SECRET: Final = 1 << 59 | int.from_bytes(os.urandom(8)) >> 5
"""What integers are multiplied by.

Python hashes an integer to its remainder by 2**61 - 1, and an integer below that to itself.  Even where all
hashes differ, who knows them can lay small integers as a wall through the slots that a table probes, so
that each look-up behind it takes thousands of steps.  The remainder of a product with a secret cannot be
known, and is as good as random (multiplicative hashing by a prime: Carter and Wegman, 1979).
"""

COMPILED: Final = not __file__.endswith(".py")  # HOWITWORKS, "Compiled"
_KNOWN: Final = object()  # in the place of a label: frozen label and fields follow


class _RecordParts:
    """The parts of a record, before they become one immutable record."""

    __slots__ = ("_text", "fields", "label")

    label: Value
    fields: tuple[Value, ...]
    _text: str | None


class Record(_RecordParts):
    """A labelled tuple: ``Record("present", "Alice")`` is the fact ``present("Alice")``.

    Fields are frozen on entry (``UsageError`` names the offending one).  Equality is strict by type,
    and the hash is keyed.  What both rest on, the text, is computed once, when first asked for.

    >>> Record("p", 1) == Record("p", 1), Record("p", 1) == Record("p", True)
    (True, False)
    """

    __slots__ = ()

    def __new__(cls, label: object, *fields: object) -> Record:
        record: Record = object.__new__(cls)
        if label is _KNOWN:
            _fill_record(record, *fields)  # type: ignore[arg-type]  # as ``of`` gave them
        else:
            _fill_record(record, freeze_at(label, (), MAX_DEPTH), frozen_fields(fields))
        return record

    @staticmethod
    def of(label: Value, fields: tuple[Value, ...], text: str | None = None) -> Record:
        """The record of a label and fields that are known to be frozen; nothing is checked or copied.

        ``text`` is what stands for it, where that is known already: see ``record_frame``.
        """
        if COMPILED:
            return Record(_KNOWN, label, fields, text)
        parts: Any = _RecordParts()
        parts.label = label
        parts.fields = fields
        parts._text = text
        parts.__class__ = Record  # from here on it never changes; half the time of passing by its guard
        return parts  # type: ignore[no-any-return]  # see above

    @property
    def text(self) -> str:
        """What stands for this record among records; O(size) once, then O(1).

        It is the text of the fields, which tells where it ends, and then the label.
        """
        known = self._text
        if known is None:
            label = self.label
            fields = row_text(self.fields)
            known = fields + label if label.__class__ is str else f"{fields[:-1]};{text_of(label)}"
            if COMPILED:
                _keep_text(self, known)
            else:
                _set_text(self, known)
        return known

    @property
    def key(self) -> tuple[str, str]:
        """The key form of this record; costs as ``text``."""
        return "", self._text or self.text

    def order(self, depth: int) -> tuple[object, ...]:
        """Returns the place in the total order (``order_key``), for at most so many further levels."""
        return 8, order_within(self.label, depth), tuple([order_within(each, depth) for each in self.fields])

    def __repr__(self) -> str:
        known = self._text
        if known is None:
            try:
                return f"Record({repr(self.label)}, {repr(self.fields)[1:]}"  # noqa: RUF010  # as in row_text
            except UsageError:  # which is a ValueError as well
                raise
            except RecursionError:
                raise _too_deep() from None
            except ValueError:  # as in text_of; kept, since whatever holds this record fails and asks again
                known = self.text
        label = self.label
        if label.__class__ is str:
            return _written(label, known[: len(known) - len(label)])
        return _written(label, known[: -1 - len(text_of(label))] + ")")

    def __eq__(self, other: object) -> bool:
        if type(other) is not Record:
            return NotImplemented
        return self is other or self.text == other.text

    def __hash__(self) -> int:
        return hash(self._text or self.text)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UsageError(f"a record never changes: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise UsageError(f"a record never changes: cannot delete {name}")

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Record.of, (self.label, self.fields)

    def __copy__(self) -> Record:
        return self

    def __deepcopy__(self, _memo: object) -> Record:
        return self


def _written(label: Value, fields: str) -> str:
    """Returns the text of a record from the text of its fields."""
    return f"Record({text_of(label)}, {fields[1:]}"


_set_label: Any = None if COMPILED else vars(_RecordParts)["label"].__set__
_set_fields: Any = None if COMPILED else vars(_RecordParts)["fields"].__set__
_set_text: Any = None if COMPILED else vars(_RecordParts)["_text"].__set__
"""The slots themselves, past ``__setattr__``.  Compiled code gets past it by calling a record its parts."""


def _fill_record(
    record: _RecordParts, label: Value, fields: tuple[Value, ...], text: str | None = None
) -> None:
    if COMPILED:
        record.label = label
        record.fields = fields
        record._text = text
    else:
        _set_label(record, label)
        _set_fields(record, fields)
        _set_text(record, text)


def _keep_text(record: _RecordParts, text: str) -> None:
    record._text = text


class _MapParts:
    """The parts of a map, before they become one immutable map."""

    __slots__ = ("_entries", "_key")

    _entries: dict[Hashable, tuple[Value, Value]]
    _key: tuple[str] | None


class Map(_MapParts):
    """An immutable mapping whose keys are compared strictly, held in the total order of its keys.

    >>> Map([(True, "yes"), (1, "one")])[1]
    'one'

    Raises ``UsageError`` for a key given twice.  Look-up is O(1), building O(n log n).
    """

    __slots__ = ()

    def __new__(cls, entries: Mapping[K, object] | Iterable[tuple[object, object]] | _Known = ()) -> Map:
        instance: Map = object.__new__(cls)
        if isinstance(entries, _Known):
            _fill_map(instance, entries.pairs)
        else:
            pairs = entries.items() if isinstance(entries, Mapping) else entries
            _fill_map(
                instance, [(freeze_at(k, (), MAX_DEPTH), freeze_at(v, ((), k), MAX_DEPTH)) for k, v in pairs]
            )
        return instance

    @staticmethod
    def of(pairs: Iterable[tuple[Value, Value]]) -> Map:
        """The map of pairs whose halves are known to be frozen; only duplicates are looked for."""
        return Map(_Known(list(pairs)))

    @property
    def key(self) -> tuple[str]:
        """The key form of this map; O(size) once, then O(1)."""
        known = self._key
        if known is None:
            known = (text_of(self),)
            _keep_key(self, known)
        return known

    def __getitem__(self, at: Value) -> Value:
        return self._entries[key(at)][1]

    def get(self, at: Value, default: Value = None) -> Value:
        """The value under a key, or a default."""
        entry = self._entries.get(key(at))
        return default if entry is None else entry[1]

    def find(self, at: Hashable) -> tuple[Value, Value] | None:
        """The entry whose key has the key form ``at``, or None."""
        return self._entries.get(at)

    def __contains__(self, at: object) -> bool:
        return key(at) in self._entries  # type: ignore[arg-type]  # whatever is no value is not in here

    def __iter__(self) -> Iterator[Value]:
        return iter([pair[0] for pair in self._entries.values()])

    def __len__(self) -> int:
        return len(self._entries)

    def pairs(self) -> list[tuple[Value, Value]]:
        """The entries in the order of their keys; quicker than ``items()``, whose look-ups it spares."""
        return list(self._entries.values())

    def order(self, depth: int) -> tuple[object, ...]:
        """Returns the place in the total order (``order_key``), for at most so many further levels."""
        return 9, tuple([(order_within(k, depth), order_within(v, depth)) for k, v in self.pairs()])

    def keys(self) -> KeysView[Value]:
        """The keys, in their order."""
        return KeysView(self)

    def values(self) -> ValuesView[Value]:
        """The values, in the order of their keys."""
        return ValuesView(self)

    def items(self) -> ItemsView[Value, Value]:
        """The entries, in the order of their keys."""
        return ItemsView(self)

    def __repr__(self) -> str:
        known = self._key
        if known is not None:
            return known[0]
        try:
            return f"Map({tuple(self._entries.values())!r})"
        except UsageError:
            raise
        except RecursionError:
            raise _too_deep() from None
        except ValueError:  # as in text_of; kept, since whatever holds this map fails and asks again
            _keep_key(self, (_long_text(self, DEEPEST),))
            return self.key[0]

    def __eq__(self, other: object) -> bool:
        if type(other) is not Map:
            return NotImplemented
        return self is other or self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UsageError(f"a map never changes: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise UsageError(f"a map never changes: cannot delete {name}")

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Map.of, (self.pairs(),)

    def __copy__(self) -> Map:
        return self

    def __deepcopy__(self, _memo: object) -> Map:
        return self


Mapping.register(Map)


class _Known:
    """Pairs whose halves are known to be frozen."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[Value, Value]]) -> None:
        self.pairs = pairs


_set_entries: Any = None if COMPILED else vars(_MapParts)["_entries"].__set__  # as for records
_set_key: Any = None if COMPILED else vars(_MapParts)["_key"].__set__


def _fill_map(instance: _MapParts, pairs: list[tuple[Value, Value]]) -> None:
    if len(pairs) > 1:
        pairs.sort(key=lambda pair: order_key(pair[0]))
    entries = {key(pair[0]): pair for pair in pairs}
    if len(entries) != len(pairs):
        raise UsageError(f"a map of {len(pairs)} entries has only {len(entries)} different keys")
    if COMPILED:
        instance._entries = entries
        instance._key = None
    else:
        _set_entries(instance, entries)
        _set_key(instance, None)


def _keep_key(instance: _MapParts, known: tuple[str]) -> None:
    if COMPILED:
        instance._key = known
    else:
        _set_key(instance, known)


class _Truth:
    """The key of a bool: equal to itself only, where Python would say that it equals 0 or 1."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


_TRUE: Final = _Truth("key(True)")
_FALSE: Final = _Truth("key(False)")


def key(value: Value) -> Hashable:
    """What stands for a value in a table; equal exactly for the same value.

    >>> len({key(v) for v in (1, 1.0, True, "1", b"1")})
    5

    O(1) for strings, bytes, None, small integers, and for records and maps asked before; else O(size).
    Raises ``UsageError`` for a value that nests too deeply to be written down.
    """
    kind = type(value)
    if kind is str:
        return value
    if kind is int:
        return value * SECRET if -SMALL < value < SMALL else (text_of(value),)  # type: ignore[operator]
    if kind is Record or kind is Map:
        return value.key  # type: ignore[union-attr]  # narrowed by class
    if value is None or kind is bytes:
        return value
    if kind is bool:
        return _TRUE if value else _FALSE
    return (text_of(value),)


def keys(values: tuple[Value, ...]) -> Hashable:
    """What stands for a row of values in a table whose rows all have the same length.

    One value is keyed as by ``key``, several by their common text.
    """
    if len(values) == 1:
        return key(values[0])
    return row_text(values) if values else ()


def row_text(values: tuple[Value, ...]) -> str:
    """``text_of`` for a few values, sooner: a tuple's ``repr`` is on its guard against cycles."""
    try:
        if len(values) == 2:  # repr is called since mypyc knows that, and not !r
            return f"({repr(values[0])}, {repr(values[1])})"  # noqa: RUF010
        if len(values) == 3:
            return f"({repr(values[0])}, {repr(values[1])}, {repr(values[2])})"  # noqa: RUF010
        return repr(values)
    except UsageError:
        raise
    except (ValueError, RecursionError):
        return text_of(values)


def text_of(value: Value) -> str:
    """The canonical Python text of a value, the same exactly for the same value; O(size)."""
    try:
        try:
            return repr(value)
        except UsageError:
            raise
        except ValueError:  # an integer beyond the digits that Python agrees to write
            return _long_text(value, DEEPEST)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> UsageError:
    return UsageError("a value is nested too deeply to be written down")


def _long_text(value: Value, depth: int) -> str:
    """What ``repr`` would write if it wrote huge integers, which are in base sixteen here.

    It asks ``repr`` about no compound, which could fail again at each level and double the time there.
    """
    match value:
        case bool():
            return repr(value)
        case int():
            return whole_text(value)
        case Record(_text=None, label=label, fields=fields):
            return f"Record({_long_text(label, below(depth))}, {_long_text(fields, depth)[1:]}"
        case tuple():
            inner = ", ".join([_long_text(each, below(depth)) for each in value])
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case Map(_key=None):
            return f"Map({_long_text(tuple(value.pairs()), depth)})"
        case _:
            return repr(value)


def whole_text(number: int) -> str:
    """Returns an integer in base ten, or in base sixteen where Python refuses so many digits."""
    try:
        return repr(number)
    except ValueError:
        return hex(number)


def same(one: Value, other: Value) -> bool:
    """Whether two values are the same, strictly by type."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    return one == other if kind is int or kind is str else key(one) == key(other)


_PLAIN: Final = frozenset([type(None), bool, int, float, bytes, Record, Map])


def frozen_fields(fields: tuple[object, ...]) -> tuple[Value, ...]:
    """The fields of a record, each frozen: the same tuple if all are as they come, as mostly."""
    for field in fields:
        if field.__class__ not in _PLAIN and not (field.__class__ is str and field.isascii()):
            return tuple([freeze_at(each, ((), at), MAX_DEPTH) for at, each in enumerate(fields)])
    return fields  # type: ignore[return-value]  # looked at one by one


def freeze_at(thing: object, trail: Trail, depth: int) -> Value:
    """Returns the value of a thing; ``trail`` is where it stands in the whole, for errors."""
    kind = thing.__class__
    if kind is str:
        return checked_text(thing, trail)  # type: ignore[arg-type]  # narrowed by class
    if kind in _PLAIN:
        return thing  # type: ignore[return-value]  # one of the classes above
    if kind is datetime:
        return checked_time(thing, trail)  # type: ignore[arg-type]  # narrowed by class
    if depth <= 0:
        raise UsageError(f"nested too deeply{place_of(trail)}")
    if kind is list or kind is tuple:
        parts: Iterable[object] = thing  # type: ignore[assignment]  # narrowed by class
        return tuple([freeze_at(each, (trail, at), depth - 1) for at, each in enumerate(parts)])
    if kind is dict:
        return Map.of(
            (freeze_at(k, (trail, k), depth - 1), freeze_at(v, (trail, k), depth - 1))
            for k, v in thing.items()  # type: ignore[attr-defined]  # narrowed by class
        )
    raise no_value(thing, place_of(trail))


# -- order -----------------------------------------------------------------------------------------


DEEPEST: Final = 200
"""How deep whatever is read, written or put in order may nest at most, whatever its caller allows."""


def order_key(value: object) -> tuple[object, ...]:
    """Where a value stands in the total order: sort by this.

    Null, bools, NaN, numbers by size (an integer before the equal float, ``-0.0`` before ``0.0``), text,
    bytes, times, sequences, records (label, then fields), maps (entry by entry).  O(size).

    >>> sorted([2, 1.0, 1, None, "a"], key=order_key)
    [None, 1, 1.0, 2, 'a']
    """
    try:
        return order_within(value, DEEPEST)
    except RecursionError:
        raise UsageError("a value is nested too deeply to be put in order") from None


def order_within(value: object, depth: int) -> tuple[object, ...]:
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case int():
            return (3, value, 0)
        case float():
            return (2,) if math.isnan(value) else (3, value, 1, math.copysign(1.0, value))
        case str():
            return (4, value)
        case bytes():
            return (5, value)
        case datetime():
            return (6, value)
        case tuple():
            depth = below(depth)
            return (7, tuple([order_within(each, depth) for each in value]))
        case _:
            order = getattr(value, "order", None)
            if order is None:
                raise no_value(value)
            place: tuple[object, ...] = order(below(depth))
            return place


def below(depth: int) -> int:
    """Returns one level less; raises ``RecursionError`` at none: compiled code does not see its stack end."""
    if depth <= 0:
        raise RecursionError
    return depth - 1
