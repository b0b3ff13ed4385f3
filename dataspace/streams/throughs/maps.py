"""Throughs that look at one value at a time: map, filter, through, unique and their like.

``map``, ``filter``, ``filter_not`` and ``through`` have no state but the caller's, so ``pipe`` can fuse
neighbours of them; each says what it is by a ``Step``.

Always: values keep their order; equal means equal and of the same type, also within tuples and mappings
(``1``, ``1.0`` and ``True`` are three), for dataspace values, else what ``==`` and ``hash`` say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from dataspace.errors import UsageError
from dataspace.streams.stages.marks import Reason
from dataspace.streams.throughs.base import Map, Transform
from index.values.values import key as value_key

T = TypeVar("T")
U = TypeVar("U")


class Step(NamedTuple):
    """What a pure stage does: with ``keep`` the function is a test, without it makes the next value."""

    fn: Callable[[Any], Any]
    keep: bool = False
    wanted: bool = True


class PureMap(Map[T, U], Generic[T, U]):
    """A map that can be fused."""

    steps: tuple[Step, ...]

    def __init__(self, fn: Callable[[T], U], description: str, *steps: Step) -> None:
        super().__init__(fn, description)
        self.steps = steps or (Step(fn),)


class Sift(Transform[T, Any]):
    """A test, or several pure steps one after another of which at least one is a test."""

    def __init__(self, description: str, *steps: Step) -> None:
        super().__init__(description)
        self.steps: Final = steps

    def _feed(self, value: Any) -> None:
        for fn, keep, wanted in self.steps:
            if not keep:
                value = fn(value)
            elif bool(fn(value)) is not wanted:
                return
        self._held.append(value)


def map(fn: Callable[[T], U]) -> PureMap[T, U]:
    """``fn(value)`` for each value."""
    return PureMap(fn, f"map({_name(fn)})")


def filter(test: Callable[[T], object]) -> Transform[T, T]:
    """The values for which ``test(value)`` is true."""
    return Sift(f"filter({_name(test)})", Step(test, True, True))


def filter_not(test: Callable[[T], object]) -> Transform[T, T]:
    """The values for which ``test(value)`` is false."""
    return Sift(f"filter_not({_name(test)})", Step(test, True, False))


class Through(PureMap[T, T]):
    """Values as they are, shown to a function; and the end, shown to another."""

    def __init__(
        self,
        show: Callable[[T], object] | None = None,
        on_end: Callable[[Reason | None], object] | None = None,
    ) -> None:
        def shown(value: T) -> T:
            if show is not None:
                show(value)
            return value

        super().__init__(shown, f"through({_name(show)})" if show else "through")
        self._on_end = on_end
        if on_end is not None:
            self.steps = ()  # the end must be seen by this stage: not to be fused

    def _close(self, reason: Reason | None) -> None:
        if self._on_end is not None:
            self._on_end(reason)


through = Through


class Unique(Transform[T, T]):
    """The first of each kind, or all but the first; remembers one key for each kind."""

    def __init__(self, key: Callable[[T], Any] | None, *, first: bool) -> None:
        super().__init__("unique" if first else "non_unique")
        self._key = key
        self._first = first
        self._seen: set[Hashable] = set()

    def _feed(self, value: T) -> None:
        at = strict(value if self._key is None else self._key(value))
        if (at not in self._seen) is self._first:
            self._held.append(value)
        self._seen.add(at)

    def _close(self, reason: Reason | None) -> None:
        self._seen.clear()


def unique(key: Callable[[T], Any] | None = None) -> Transform[T, T]:
    """The first value of each kind (``key(value)``, else the value); memory grows with the kinds."""
    return Unique(key, first=True)


def non_unique(key: Callable[[T], Any] | None = None) -> Transform[T, T]:
    """The values whose kind has been seen before."""
    return Unique(key, first=False)


def strict(value: Any) -> Hashable:
    """A key that keeps types apart; ``UsageError`` for what cannot be hashed."""
    try:
        return value_key(value)
    except UsageError:
        try:
            hash(value)
        except TypeError:
            raise UsageError(f"unique needs a key for {value!r:.80}, which cannot be hashed") from None
        return (type(value), value)


def fused(stages: Sequence[Any]) -> PureMap[Any, Any] | Sift[Any]:
    """Neighbouring pure stages as one: the same values and errors, one frame instead of many."""
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


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", None) or repr(fn)
