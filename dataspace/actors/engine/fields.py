"""Fields: cells of an actor's state, and computations that run again when fields change.

Reading a field within a *computation* (``Turn.dataflow``, a computed assertion or pattern, a derived field)
makes the computation depend on it.  Writing an equal value does nothing.  A computation that depends on a
changed field is damaged, and runs again before the turn commits.

Always: a computation runs when it is made, and afterwards at most once for each change of a field that it
read; a derived field is up to date when it is read; a field is read and written by its own actor only, within
its facet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from dataspace.actors.engine.actors import Dependent, Facet
from index.errors import UsageError
from index.values.values import Map, Record, same

T = TypeVar("T")

ROUNDS: Final = 100
"""How often a computation may run in one turn before ``UsageError`` reports a cycle."""


class Computation(Dependent):
    """A function of fields, the fields that it read, and how to run it again."""

    __slots__ = ("action", "runs", "turn")

    def __init__(self, facet: Facet, name: str, action: Callable[[], object]) -> None:
        super().__init__(facet, name)
        self.action = action
        self.runs = 0
        self.turn = 0

    def run(self) -> None:
        """Runs the function and records what it reads; ``UsageError`` outside of its actor's turns."""
        actor = self.facet.actor
        engine = actor.engine
        if engine.running is not actor or not self.live:
            self._check()
        self._count(engine.turns)
        self.forget()
        before, engine.computation = engine.computation, self
        scope, engine.scope = engine.scope, self.facet
        try:
            self.action()
        except BaseException as error:
            engine.note_raised(error, self.facet)
            raise
        finally:
            engine.computation, engine.scope = before, scope

    def _count(self, turn: int) -> None:
        self.runs = self.runs + 1 if turn == self.turn else 1
        self.turn = turn
        if self.runs > ROUNDS:
            raise UsageError(f"dataflow does not settle: {_cycle(self)}, {ROUNDS} times")

    def damage(self) -> None:
        """Marks it to run again before the turn commits: a field that it read has changed."""
        if self.live:
            self.facet.actor.engine.effects.damaged[self] = None

    def repair(self) -> None:
        """Runs it again, unless it or its facet has ended."""
        if self.live and not self.facet.ended:
            self.run()

    def forget(self) -> None:
        """Removes its dependencies."""
        for field in self.reads:
            field._dependents.pop(self, None)
        self.reads = {}

    def close(self) -> None:
        """Ends it, in a turn of its actor: it does not run again."""
        self.facet.check_running()
        self.end()

    def end(self) -> None:
        """Ends it; the caller has checked that a turn of its actor runs."""
        self.live = False
        self.forget()
        self.action = _nothing  # which refers to what depends on it

    def _check(self) -> None:
        self.facet.check_running()
        raise UsageError(
            f"computation {self.name} of facet {self.facet} of actor {self.facet.actor.name} has ended"
        )


class Field(Generic[T]):
    """One cell of state; ``value`` reads and writes it within a turn of its actor."""

    __slots__ = ("_dependents", "_facet", "_value", "_writer", "name")

    def __init__(self, facet: Facet, name: str, value: T) -> None:
        self._facet = facet
        self._value = value
        self.name = name
        self._dependents: dict[Dependent, None] = {}
        self._writer: Dependent | None = None
        """The computation that wrote it last; None if a handler did."""

    @property
    def value(self) -> T:
        """Its value; ``UsageError`` outside of its actor's turns or its facet."""
        engine = self._facet.actor.engine
        self._check()
        computation = engine.computation
        if computation is not None:
            computation.reads[self] = None
            self._dependents[computation] = None
        return self._value

    @value.setter
    def value(self, value: T) -> None:
        self._check()
        if not equal(self._value, value):
            self._value = value
            self._writer = self._facet.actor.engine.computation
            for computation in list(self._dependents):
                computation.damage()

    def _renew(self, value: T) -> None:
        """Takes a computed value; fields that are derived from this one know already that they are stale."""
        if not equal(self._value, value):
            self._value = value
            for computation in list(self._dependents):
                if not isinstance(computation, _DerivedComputation):
                    computation.damage()

    def _check(self) -> None:
        actor = self._facet.actor
        running = actor.engine.running
        if running is not actor:
            used = f"a turn of {running.name}" if running is not None else "no turn"
            raise UsageError(f"field {self.name} belongs to actor {actor.name}, used in {used}")
        if not self._facet.encloses(actor.engine.scope):
            raise UsageError(f"field {self.name} belongs to facet {self._facet}, used outside of it")

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self._value!r})"


class DerivedField(Field[T]):
    """A field that is computed from others; it cannot be written."""

    __slots__ = ("_computation", "_computing", "_function", "_stale")

    def __init__(self, facet: Facet, name: str, function: Callable[[], T]) -> None:
        super().__init__(facet, name, None)  # type: ignore[arg-type]  # computed in a moment
        self._function = function
        self._stale = True
        self._computing = False
        self._writer = self._computation = _DerivedComputation(self)
        self._refresh()

    @property
    def value(self) -> T:
        """Its value, computed again if a field that it depends on has changed."""
        self._check()
        self._refresh()
        return Field.value.fget(self)  # type: ignore[attr-defined, no-any-return]  # the property above

    @value.setter
    def value(self, value: T) -> None:
        raise UsageError(f"field {self.name} is derived and cannot be written")

    def _refresh(self) -> None:
        if self._computing:
            raise UsageError(f"field {self.name} is derived from itself")
        if self._stale:
            self._computing = True
            try:
                self._computation.run()
            finally:
                self._computing = False

    def _compute(self) -> None:
        value = self._function()
        self._stale = False
        self._renew(value)


class _DerivedComputation(Computation):
    __slots__ = ("derived",)

    def __init__(self, derived: DerivedField[T]) -> None:
        super().__init__(derived._facet, derived.name, derived._compute)
        self.derived: DerivedField[object] = derived  # type: ignore[assignment]  # of whatever type

    def damage(self) -> None:
        """Marks it and the fields derived from it as stale; only a changed value damages others."""
        if self.live and not self.derived._stale:
            self.derived._stale = True
            self.facet.actor.engine.effects.stale[self] = None
            for computation in list(self.derived._dependents):
                if isinstance(computation, _DerivedComputation):
                    computation.damage()

    def repair(self) -> None:
        """Computes the field again, unless it has ended."""
        if self.live:
            self.derived._refresh()


class QueryField(Field[T]):
    """A field of what matches: computed once it is read, or, where computations depend on it, once a turn.

    At a start all matches come in one turn; a value for each of them would cost their square.
    """

    __slots__ = ("_function", "_stale")

    def __init__(self, facet: Facet, name: str, function: Callable[[], T]) -> None:
        super().__init__(facet, name, function())
        self._function = function
        self._stale = False

    @property
    def value(self) -> T:
        """Its value, computed again if the matches have changed."""
        self._check()
        self._refresh()
        return Field.value.fget(self)  # type: ignore[attr-defined, no-any-return]  # the property above

    @value.setter
    def value(self, value: T) -> None:
        self._check()
        self._refresh()
        Field.value.fset(self, value)  # type: ignore[attr-defined]  # the same

    def change(self) -> None:
        """Notes that the matches have changed; only a changed value damages computations."""
        if self._stale:
            return
        engine = self._facet.actor.engine
        self._stale = True
        self._writer = engine.computation
        if self._dependents:
            engine.effects.stale[_QueryRepair(self)] = None  # a new one: the field must be in no cycle
            for computation in list(self._dependents):
                if isinstance(computation, _DerivedComputation):
                    computation.damage()

    def _refresh(self) -> None:
        if self._stale:
            value = self._function()
            self._stale = False
            self._renew(value)


class _QueryRepair(Dependent):
    """Computes a ``QueryField`` again before a turn commits."""

    __slots__ = ("field",)

    def __init__(self, field: QueryField[T]) -> None:
        super().__init__(field._facet, field.name)
        self.field: QueryField[object] = field  # type: ignore[assignment]  # of whatever type

    def damage(self) -> None:
        """Nothing damages it: it reads no fields."""

    def repair(self) -> None:
        """Computes the field again, unless its facet has ended."""
        if not self.facet.ended:
            self.field._refresh()

    def end(self) -> None:
        """Its facet ends it."""


def _nothing() -> None:
    """The action of a computation that has ended."""


def _cycle(computation: Dependent) -> str:
    """Returns how a computation damages itself: computation -> field that it writes -> its reader -> …"""
    ways = [(computation, f"-> {computation.name}")]
    seen: set[Dependent] = set()
    while ways:
        reader, way = ways.pop(0)
        for field in reader.reads:
            writer = field._writer
            if writer is computation:
                return f"{computation.name} -> {field.name} {way}"
            if writer is not None and writer not in seen:
                seen.add(writer)
                through = "" if isinstance(writer, _DerivedComputation) else f"-> {writer.name} "
                ways.append((writer, f"{through}-> {field.name} {way}"))
    fields = ", ".join([field.name for field in computation.reads])
    return f"{computation.name} -> ({fields}) -> {computation.name}"


# -- equality ----------------------------------------------------------------------------------------
#
# By Python's ``==``, ``[1]`` equals ``[True]``, ``0.0`` equals ``-0.0``, and NaN differs from itself; a fact
# computed from a field would then be stale, or computed for ever.  So what could be a value is compared as
# values are, strictly by type, and so are lists, tuples, dicts and sets of other objects; objects that are no
# values are compared by their own ``==``.

PLAIN: Final = frozenset([int, str, bytes, bool])
SAME: Final = frozenset([float, Record, Map])


def equal(one: Any, other: Any) -> bool:
    """True if one may stand for the other.

    >>> equal(0.0, -0.0), equal([1], [True]), equal(float("nan"), float("nan")), equal({"a": 1}, {"a": 1})
    (False, False, True, True)
    """
    if one is other:
        return True
    kind = one.__class__
    if kind is not other.__class__:
        return False
    if kind in PLAIN:
        return bool(one == other)
    if kind in SAME:
        return same(one, other)
    if kind is list or kind.__eq__ is tuple.__eq__:  # named tuples too
        return len(one) == len(other) and all(map(equal, one, other))
    if kind is dict:
        return len(one) == len(other) and _same_entries(one, other)
    if kind is set or kind is frozenset:
        return len(one) == len(other) and _same_entries(dict.fromkeys(one), dict.fromkeys(other))
    return bool(one == other)


def _same_entries(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """True if two tables have the same entries, in any order."""
    keys = {_at(at): at for at in other}
    for at, value in one.items():
        there = keys.get(_at(at), keys)
        if there is keys or not equal(at, there) or not equal(value, other[there]):
            return False
    return True


def _at(at: Any) -> object:
    """Returns a key by which equal keys are found: NaN finds NaN, and ``1`` does not find ``True``."""
    kind = at.__class__
    if kind is tuple:
        return (tuple, tuple(map(_at, at)))
    return (float, repr(at)) if kind is float else (kind, at)
