"""Typed rows: captures as instances of a class of the application, a dataclass or a ``NamedTuple``.

    class Reading(NamedTuple):
        device: str
        value: float

    for reading in await space.matches("reading($device, $value)", row=Reading): ...

A row's class names the captures and their types.  Captures that do not fit raise ``UsageError`` with the
name, the value and the type, so that what a type checker believes is true.

Always: the checks of a class of rows are fixed when it is made, not by the values that come; a row that does
not fit ends neither the observation nor the connection.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from dataspace.client.epoch_streams import ITERATE, EpochStream
from dataspace.client.observations import Observation
from dataspace.client.query.rows import Rows
from dataspace.errors import UsageError
from dataspace.kernel.changes import LOST, Change, EpochChanges, time_of
from dataspace.loops.blocks import AsyncOnly
from dataspace.streams.stages.functions import check_sync
from dataspace.streams.stages.protocol import Iteration
from index.patterns.skeletons import ATOM_CLASSES
from index.values.values import Map, Record, Value, key

R = TypeVar("R")

TypedRows = Rows
"""The former name of ``Rows`` with a class of rows."""

Check: TypeAlias = Callable[[Value], Any]
"""Returns a value as the type has it; raises ``TypeError`` if it does not fit."""

_PLAIN: Final = (bool, int, str, bytes, datetime, tuple, Map, Record, type(None))

_SHOWN: Final = 80
"""Characters that an error shows of a value."""


class RowType(Generic[R]):
    """Makes rows of one class from captures of these names; raises ``UsageError`` where they do not agree.

    Captures go to the fields of their names; where no capture has a name, to the fields in order.  Types are
    types of values (``int``, ``float``, ``str``, ``datetime`` …), ``tuple[…]``, ``Literal``, enumerations,
    unions, ``None``, and ``object`` or ``Any`` for all.  An ``int`` fits a ``float`` that is exactly as
    large.
    """

    def __init__(self, row: type[R], names: Sequence[str]) -> None:
        fields, needed = _fields_of(row)
        if any(name.isidentifier() for name in names):
            chosen = list(names)
        else:
            chosen = list(fields)[: len(names)]
        given = set(chosen)
        if len(chosen) < len(names) or given - set(fields) or needed - given:
            raise UsageError(
                f"{row.__name__} takes {_listed(fields)}, and the captures are {_listed(names)}: "
                "name a capture for each field, such as $" + next(iter(fields), "x")
            )
        self._row: Final[Callable[..., R]] = row
        self._name: Final = row.__name__
        self._checks: Final = [
            (name, check_of(fields[name], f"{row.__name__}.{name}"), fields[name]) for name in chosen
        ]

    def __call__(self, captures: tuple[Value, ...]) -> R:
        """Returns a row; raises ``UsageError`` with the capture that does not fit.  O(captures)."""
        given: dict[str, Any] = {}
        for (name, check, kind), value in zip(self._checks, captures, strict=True):
            try:
                given[name] = check(value)
            except TypeError:
                others = [f"{each[0]}={_shown(it)}" for each, it in zip(self._checks, captures, strict=True)]
                raise UsageError(
                    f"the capture {name!r} is {_shown(value)}, and {self._name}.{name} takes {_named(kind)}, "
                    f"for the fact with {', '.join(others):.300}: {_way_out(name, kind)}"
                ) from None
        return self._row(**given)

    def change(self, change: Change) -> TypedChange[R]:
        """Returns a change with its row."""
        return TypedChange(change, None if change.kind == LOST else self(change.captures), self)

    def epoch(self, changes: EpochChanges) -> TypedEpoch[R]:
        """Returns an epoch with its rows.  O(changes)."""
        return TypedEpoch(changes, self)

    def calling(self, function: Callable[[TypedChange[R]], object]) -> Callable[[Change], object]:
        """Returns what calls a function of ``each`` with the row of a change.

        Raises ``UsageError`` for an asynchronous function.
        """
        check_sync(function, "each", instead=ITERATE)
        return lambda change: function(self.change(change))


def check_of(kind: Any, where: str) -> Check:
    """Returns the check of a type; raises ``UsageError`` for a type that no value has."""
    if kind in (Any, object, Value):
        return _anything
    if kind is None or kind is type(None):
        return _exactly(type(None))
    if kind is float:
        return _float
    if kind in _PLAIN:
        return _exactly(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _one_of({key(value): value for value in arguments})
    if origin in (Union, types.UnionType):
        ordered = sorted(arguments, key=lambda each: each is float)  # an int stays one where that is allowed
        return _either([check_of(each, where) for each in ordered])
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return _sequence(check_of(arguments[0], where))
        return _fixed([check_of(each, where) for each in arguments])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _one_of({key(each.value): each for each in kind})
    raise UsageError(f"{where} is {_named(kind)}, which no value is: write int, float, str, object and so on")


def is_row_class(row: object) -> bool:
    """True if ``RowType`` takes this: a dataclass or a ``NamedTuple``."""
    return isinstance(row, type) and (
        dataclasses.is_dataclass(row) or (issubclass(row, tuple) and hasattr(row, "_fields"))
    )


def _fields_of(row: Any) -> tuple[dict[str, Any], set[str]]:
    """Returns the types of the fields by name, in order, and the names of those without a default."""
    if not is_row_class(row):
        raise UsageError(f"row is a dataclass or a NamedTuple, not {row!r}")
    if dataclasses.is_dataclass(row):
        known = [each for each in dataclasses.fields(row) if each.init]
        missing = dataclasses.MISSING
        needed = {each.name for each in known if each.default is missing and each.default_factory is missing}
        names = [each.name for each in known]
    else:
        names = list(row._fields)
        needed = set(names) - set(row._field_defaults)
    try:
        hints = typing.get_type_hints(row)
    except NameError as error:
        raise UsageError(f"the types of {row.__name__} are not known here: {error}") from error
    return {name: hints.get(name, object) for name in names}, needed


def _anything(value: Value) -> Any:
    return value


def _exactly(kind: type) -> Check:
    def check(value: Value) -> Any:
        if type(value) is kind or (kind is not int and isinstance(value, kind)):
            return value
        raise TypeError

    return check


def _float(value: Value) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            near = float(value)
        except OverflowError:
            raise TypeError from None
        if near == value:
            return near
    raise TypeError


def _one_of(known: dict[Any, Any]) -> Check:
    def check(value: Value) -> Any:
        try:
            return known[key(value)]
        except KeyError:
            raise TypeError from None

    return check


def _either(checks: Sequence[Check]) -> Check:
    def check(value: Value) -> Any:
        for alternative in checks:
            try:
                return alternative(value)
            except TypeError:
                pass
        raise TypeError

    return check


def _sequence(item: Check) -> Check:
    def check(value: Value) -> Any:
        if not isinstance(value, tuple):
            raise TypeError
        return tuple([item(each) for each in value])

    return check


def _fixed(items: Sequence[Check]) -> Check:
    def check(value: Value) -> Any:
        if not isinstance(value, tuple) or len(value) != len(items):
            raise TypeError
        return tuple([item(each) for item, each in zip(items, value, strict=True)])

    return check


def _way_out(name: str, kind: Any) -> str:
    """Returns what to write so that a fact that does not fit a type is left out, or fits."""
    of_class = next((each for each, of in ATOM_CLASSES.items() if of is kind), "")
    loses = ", which leaves out integers too" if kind is float else ""
    leave = f"write ${name}:{of_class} in the pattern to leave such facts out{loses}, or " if of_class else ""
    return f"{leave}let the class take it, as by object; `dataspace owners` shows whose fact it is"


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)


def _shown(value: Value) -> str:
    from index.patterns.text import unparse  # an error is rare

    text = unparse(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(name if name.isidentifier() else "one without a name" for name in names) or "nothing"


class TypedChange(Generic[R]):
    """One fact that came or went, or one message, with its captures as ``row``.

    In place of changes that were dropped comes one of kind ``?`` without a row; ``lost`` is their number.
    """

    __slots__ = ("_row", "_type", "change")

    def __init__(self, change: Change, row: R | None, made_by: RowType[R]) -> None:
        self._type = made_by
        self.change: Final = change
        """The change as ``observe`` gives it without a class of rows."""
        self._row = row

    @property
    def kind(self) -> str:
        """``+``, ``-``, ``!`` or ``?``."""
        return self.change.kind

    @property
    def row(self) -> R:
        """The captures; raises ``UsageError`` where changes were dropped and so there is no row."""
        if self._row is None:
            raise UsageError(f"{self.lost} changes were dropped here: there is no row")
        return self._row

    @property
    def replaces(self) -> TypedChange[R] | None:
        """The fact with the same key that this one takes the place of; for observations with ``by``."""
        other: Change | None = self.change.replaces  # type: ignore[assignment]  # of a KeyedChange, else it says so
        return None if other is None else self._type.change(other)

    @property
    def replaced_by(self) -> TypedChange[R] | None:
        """The fact with the same key that takes the place of this one; for observations with ``by``."""
        other: Change | None = self.change.replaced_by  # type: ignore[assignment]  # as above
        return None if other is None else self._type.change(other)

    @property
    def lost(self) -> int:
        """How many changes were dropped; 0 for a row."""
        lost = self.change.captures[0] if self._row is None else 0
        assert isinstance(lost, int)  # by EpochChanges
        return lost

    @property
    def epoch(self) -> int:
        """The number of its epoch."""
        return self.change.epoch

    @property
    def time(self) -> datetime:
        """When the epoch was made."""
        return self.change.time

    @property
    def snapshot(self) -> bool:
        """True if it is of the state that an observation begins with."""
        return self.change.snapshot

    def __repr__(self) -> str:
        return f"<{self.epoch} {self.kind} {self._row!r}>"


class TypedEpoch(Generic[R]):
    """The rows of one epoch that match one pattern: ``added``, ``messages``, ``removed``."""

    __slots__ = ("added", "changes", "messages", "removed")

    def __init__(self, changes: EpochChanges, make: Callable[[tuple[Value, ...]], R]) -> None:
        self.changes: Final = changes
        """The epoch as ``observe`` gives it without a class of rows."""
        self.added: Final[list[R]] = [make(row) for row in changes.added]
        self.messages: Final[list[R]] = [make(row) for row in changes.messages]
        self.removed: Final[list[R]] = [make(row) for row in changes.removed]

    @property
    def number(self) -> int:
        """The number of the epoch; of the last one, where several are conflated."""
        return self.changes.number

    @property
    def snapshot(self) -> bool:
        """True if the additions are a state."""
        return self.changes.snapshot

    @property
    def time(self) -> datetime:
        """When the epoch was made."""
        return time_of(self.changes.micros)


class TypedObservation(AsyncOnly, Iteration["TypedChange[R]"], Generic[R]):
    """The changes of one pattern as rows of a class.  Iterate over changes, or over ``epochs()``.

    A row that does not fit raises ``UsageError`` once; the next read goes on behind it.
    """

    _usage = "async for change in space.observe(…, row=…)"

    def __init__(self, observation: Observation, row: type[R]) -> None:
        self.make: Final = RowType(row, observation.names)
        self.untyped: Final = observation
        """The observation without a class of rows; changes read from one of them are not in the other."""

    async def read(self) -> TypedChange[R]:
        """Returns the next change; raises ``EndOfStream`` at the end."""
        return self.make.change(await self.untyped.read())

    async def each(self, function: Callable[[TypedChange[R]], object]) -> None:
        """Calls a plain function with each change; see ``Observation.each``.

        A row that does not fit ends the observation with ``UsageError``, as the function's own exceptions do.
        """
        await self.untyped.each(self.make.calling(function))

    async def next_epoch(self) -> TypedEpoch[R] | None:
        """Returns the next whole epoch, or None when the observation is complete."""
        changes = await self.untyped.next_epoch()
        return None if changes is None else self.make.epoch(changes)

    def epochs(self) -> TypedEpochs[R]:
        """Returns the whole epochs; by default the first one is the state."""
        return TypedEpochs(self.untyped.epochs(), self.make)

    def open(self) -> None:
        """Opens the observation now rather than at the first read."""
        self.untyped.open()

    async def __aenter__(self) -> Self:
        await self.untyped.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.untyped.__aexit__(*raised)

    async def aclose(self) -> None:
        """Ends the observation and waits until its interest is retracted."""
        await self.untyped.aclose()

    def close(self) -> None:
        """Ends the observation without waiting."""
        self.untyped.close()


class TypedEpochs(AsyncOnly, Iteration["TypedEpoch[R]"], Generic[R]):
    """The whole epochs of a typed observation."""

    _usage = "async for epoch in space.observe(…, row=…).epochs()"

    def __init__(self, epochs: EpochStream, make: RowType[R]) -> None:
        self._epochs: Final = epochs
        self._make: Final = make

    async def read(self) -> TypedEpoch[R]:
        """Returns the next epoch; raises ``EndOfStream`` at the end."""
        return self._make.epoch(await self._epochs.read())

    async def each(self, function: Callable[[TypedEpoch[R]], object]) -> None:
        """Calls a plain function with each epoch; see ``TypedObservation.each``."""
        check_sync(function, "each", instead=ITERATE)
        await self._epochs.each(lambda epoch: function(self._make.epoch(epoch)))
