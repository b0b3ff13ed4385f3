"""Throughs that look at one value at a time: map, filter, through, unique and their like.

``map``, ``filter``, ``filter_not`` and ``through`` have no state but the caller's, so ``pipe`` can fuse
neighbours of them; each is described by a ``MapStep``.

Always: values keep their order; equal means equal and of the same type, also within sequences and mappings
(``1``, ``1.0`` and ``True`` are three), and otherwise by ``==`` and ``hash``; a function that returns a
coroutine is refused, since nothing here awaits it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import CoroutineType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from dataspace.errors import UsageError
from dataspace.streams.stages.functions import check_plain, check_sync, truth
from dataspace.streams.stages.protocol import Reason
from dataspace.streams.throughs.base import MapThrough, Transform
from index.values.values import Map as ValueMap, Record, key as value_key

T = TypeVar("T")
U = TypeVar("U")


class MapStep(NamedTuple):
    """The step of a pure stage: with ``keep`` the function is a test, without it makes the next value."""

    fn: Callable[[Any], Any]
    keep: bool = False
    wanted: bool = True


class PureMap(MapThrough[T, U], Generic[T, U]):
    """A map that can be fused."""

    steps: tuple[MapStep, ...]

    def __init__(self, fn: Callable[[T], U], description: str, *steps: MapStep) -> None:
        super().__init__(fn, description)
        self.steps = steps or (MapStep(fn),)


class Sift(Transform[T, Any]):
    """A test, or several pure steps one after another, at least one of them a test."""

    def __init__(self, description: str, *steps: MapStep) -> None:
        super().__init__(description)
        self.steps: Final = steps

    def _feed(self, value: Any) -> None:
        for fn, keep, wanted in self.steps:
            found = fn(value)
            if not keep:
                value = found
            elif (found if found is True or found is False else truth(found, self.description)) is not wanted:
                return
        if type(value) is CoroutineType:
            check_plain(value, self.description)
        self._held.append(value)


def map(fn: Callable[[T], U]) -> PureMap[T, U]:
    """Returns a through that passes on ``fn(value)`` for each value."""
    return PureMap(fn, f"map({check_sync(fn, 'map')})")


def filter(test: Callable[[T], object]) -> Transform[T, T]:
    """Returns a through that passes on the values for which ``test(value)`` is true."""
    return Sift(f"filter({check_sync(test, 'filter')})", MapStep(test, True, True))


def filter_not(test: Callable[[T], object]) -> Transform[T, T]:
    """Returns a through that passes on the values for which ``test(value)`` is false."""
    return Sift(f"filter_not({check_sync(test, 'filter_not')})", MapStep(test, True, False))


class Through(PureMap[T, T]):
    """Passes values on as they are, and calls a function with each, and another with the end."""

    def __init__(
        self,
        show: Callable[[T], object] | None = None,
        on_end: Callable[[Reason | None], object] | None = None,
    ) -> None:
        description = "through" if show is None else f"through({check_sync(show, 'through')})"
        if on_end is not None:
            check_sync(on_end, "through")

        def shown(value: T) -> T:
            if show is not None:
                answer = show(value)
                if answer is not None:
                    check_plain(answer, description)
            return value

        super().__init__(shown, description)
        self._on_end = on_end
        if on_end is not None:
            self.steps = ()  # the end must be seen by this stage: not to be fused

    def _close(self, reason: Reason | None) -> None:
        if self._on_end is not None:
            check_plain(self._on_end(reason), self.description)


through = Through


class UniqueThrough(Transform[T, T]):
    """Passes on the first of each kind, or all but the first; remembers one key for each kind."""

    def __init__(self, key: Callable[[T], Any] | None, *, first: bool) -> None:
        super().__init__("unique" if first else "non_unique")
        if key is not None:
            check_sync(key, self.description)
        self._key = key
        self._first = first
        self._seen: set[Hashable] = set()

    def _feed(self, value: T) -> None:
        at = strict(value if self._key is None else self._key(value), self.description)
        if (at not in self._seen) is self._first:
            self._held.append(value)
        self._seen.add(at)

    def _close(self, reason: Reason | None) -> None:
        self._seen.clear()


def unique(key: Callable[[T], Any] | None = None) -> Transform[T, T]:
    """Returns a through that passes on the first of equal values, or of values with equal ``key(value)``.

    Equal means: of one type, and equal by ``==`` and ``hash``. Remembers each key: O(kinds) of memory.
    """
    return UniqueThrough(key, first=True)


def non_unique(key: Callable[[T], Any] | None = None) -> Transform[T, T]:
    """Returns a through that passes on what ``unique`` drops."""
    return UniqueThrough(key, first=False)


ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None), Record, ValueMap})
"""Values of a dataspace that are keyed as one: they hold nothing else, or nothing but values."""


def strict(value: Any, where: str = "unique") -> Hashable:
    """Returns a key that is equal where the values are, in type as well; ``UsageError`` for a value without a
    hash.

    >>> len({strict(v) for v in (1, 1.0, True, (1, 2), (1, True), [1, 2])})
    6
    """
    kind = type(value)
    if kind in ATOMS:
        return value_key(value)
    if kind is tuple or kind is list:
        return (kind, tuple([strict(each, where) for each in value]))
    if kind is frozenset or kind is set:
        return (kind, frozenset([strict(each, where) for each in value]))
    if kind is dict:
        return (kind, frozenset([(strict(at, where), strict(each, where)) for at, each in value.items()]))
    check_plain(value, where)
    try:
        hash(value)
    except TypeError:
        raise UsageError(f"{where} needs a key for {value!r:.80}, which cannot be hashed") from None
    return (kind, value)


def fused(stages: Sequence[Any]) -> PureMap[Any, Any] | Sift[Any]:
    """Returns neighbouring pure stages as one: the same values and errors, one frame instead of many."""
    steps = [step for stage in stages for step in stage.steps]
    description = " | ".join(stage.description for stage in stages)
    if any(step.keep for step in steps):
        return Sift(description, *steps)
    functions = tuple(step.fn for step in steps)

    def composed(value: Any) -> Any:
        for fn in functions:
            value = fn(value)
        return value

    return PureMap(composed, description, *steps)
