"""Sources of values that are at hand: of a sequence, a mapping, a count, a function, of nothing.

Always: nothing is computed before it is requested; ``None``, ``False`` and ``0`` are values like any other.
(pull-stream's sources; where those give values after their end, these do not.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count as counter
from typing import Any, TypeVar

from dataspace.errors import UsageError
from dataspace.streams.sources.base import Iterated
from dataspace.streams.stages.functions import check_plain, check_sync, close_iterator
from dataspace.streams.stages.marks import SIGNALS, End, check_reason

K = TypeVar("K")
T = TypeVar("T")


def from_iterable(items: Iterable[T]) -> Iterated[T]:
    """Returns a source of the items of an iterable; closes the iterator at the end."""
    return Iterated("from_iterable", iter(items))


def values(items: Iterable[T] | Mapping[Any, T]) -> Iterated[T]:
    """Returns the same as ``from_iterable``, and for a mapping a source of its values."""
    return Iterated("values", iter(items.values() if isinstance(items, Mapping) else items))


def keys(items: Mapping[K, Any] | Iterable[Any]) -> Iterated[K | int]:
    """Returns a source of the keys of a mapping, or of the positions in an iterable."""
    if isinstance(items, Mapping):
        return Iterated("keys", iter(items))
    return Iterated("keys", _positions(iter(items)))


def _positions(items: Iterator[Any]) -> Iterator[int]:
    try:
        for at, _ in enumerate(items):
            yield at
    finally:
        close_iterator(items)


def count(last: int | None = None) -> Iterated[int]:
    """Returns a source of 0, 1, 2, … up to and including ``last``, or without end."""
    return Iterated("count", iter(range(last + 1)) if last is not None else counter())


def infinite(make: Callable[[], T] = random.random) -> Iterated[T]:  # type: ignore[assignment]  # T is float then
    """Returns a source that calls ``make()`` for each value, without end."""
    check_sync(make, "infinite")
    return Iterated("infinite", _made(make))


def _made(make: Callable[[], T]) -> Iterator[T]:
    while True:
        value = make()
        check_plain(value, "infinite")
        yield value


def once(value: T) -> Iterated[T]:
    """Returns a source of one value."""
    return Iterated("once", iter((value,)))


def empty() -> Iterated[Any]:
    """Returns a source that ends at once."""
    return Iterated("empty", iter(()))


def error(reason: Exception) -> Iterated[Any]:
    """Returns a source that has failed: the first read raises ``reason``, later ones ``Aborted``."""
    check_reason(reason)
    if isinstance(reason, SIGNALS):
        raise UsageError(f"error() needs an error, got {reason!r:.80}; empty() is a stream that just ends")
    failed = Iterated[Any]("error", _none())
    failed._end = End(reason, owed=True)
    return failed


def _none() -> Iterator[Any]:
    return iter(())
