"""Steps: long work cut into steps, between which others may have the thread.

Always: done in steps or at once, the value is the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, MutableMapping
from itertools import islice
from typing import Any, TypeAlias, TypeVar, cast

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that yields after each step, and returns a value of this type."""


def at_once(steps: Steps[T]) -> T:
    """Does all steps, and returns their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)


def emptying(table: MutableMapping[Any, Any], at_once: int = 1_000) -> Steps[None]:
    """Empties a table in steps, where nothing else has what is in it: to free a million objects takes long.

    >>> table = dict.fromkeys(range(5))
    >>> len(list(emptying(table, 2))), table
    (3, {})
    """
    while table:
        for _ in range(min(len(table), at_once)):
            table.popitem()
        yield


def batched(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields what there is in lists of so many, the last of fewer; as ``itertools`` does from Python 3.12 on.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(things)
    while some := [*islice(rest, size)]:
        yield some
