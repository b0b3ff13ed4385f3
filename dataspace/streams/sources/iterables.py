"""Sources of values that are at hand: of a sequence, a mapping, a count, a function, of nothing.

Always: nothing is computed before it is asked for; ``None``, ``False`` and ``0`` are values like any other.
(pull-stream's sources; where those give values after their end, these do not.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count as counter, repeat
from typing import Any, TypeVar

from dataspace.streams.sources.base import Iterated
from dataspace.streams.stages.marks import End, check_reason

K = TypeVar("K")
T = TypeVar("T")


def from_iterable(items: Iterable[T]) -> Iterated[T]:
    """The items of any iterable, taken one by one as they are asked for."""
    return Iterated("from_iterable", iter(items))


def values(items: Iterable[T] | Mapping[Any, T]) -> Iterated[T]:
    """The items of an iterable, or the values of a mapping."""
    return Iterated("values", iter(items.values() if isinstance(items, Mapping) else items))


def keys(items: Mapping[K, Any] | Iterable[Any]) -> Iterated[K | int]:
    """The keys of a mapping, or the positions in an iterable."""
    if isinstance(items, Mapping):
        return Iterated("keys", iter(items))
    return Iterated("keys", (at for at, _ in enumerate(items)))


def count(last: int | None = None) -> Iterated[int]:
    """0, 1, 2, … up to and with ``last``, or for ever."""
    return Iterated("count", iter(range(last + 1)) if last is not None else counter())


def infinite(make: Callable[[], T] = random.random) -> Iterated[T]:  # type: ignore[assignment]  # T is float then
    """What ``make()`` returns, anew for each read, for ever."""
    return Iterated("infinite", (make() for _ in repeat(None)))


def once(value: T) -> Iterated[T]:
    """One value."""
    return Iterated("once", iter((value,)))


def empty() -> Iterated[Any]:
    """No value: the end at once."""
    return Iterated("empty", iter(()))


def error(reason: Exception) -> Iterated[Any]:
    """A stream that has failed: the first read raises ``reason``, later ones ``Aborted``."""
    check_reason(reason)
    failed = Iterated[Any]("error", _none())
    failed._end = End(reason, owed=True)
    return failed


def _none() -> Iterator[Any]:
    return iter(())
