"""A cost that grows by the square is seen, wherever it is; one that grows by n, or n log n, is not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from index.values.values import Value, key
from tests.costs.counting import Cost, Known, compared, cost, counted, judge


class Thing:
    """An object that is equal to itself alone."""


def _rows(count: int) -> list[Value]:
    return [counted("k", number) for number in range(count)]


def _loop(count: int) -> None:
    for _ in range(count):
        for _ in range(count):
            pass


def _one_line(count: int) -> None:
    for _ in range(count): [None for _ in range(count)]  # noqa: E701  # fmt: skip


def _generator(count: int) -> None:
    for _ in range(count):
        all(each >= 0 for each in range(count))


def _contains(count: int) -> None:
    rows = _rows(count)
    for each in _rows(count):
        assert each in rows


def _keys(count: int) -> None:
    rows = [key(each) for each in _rows(count)]
    for each in _rows(count):
        rows.index(key(each))


def _remove(count: int) -> None:
    numbers = list(range(count))
    for number in range(count):
        numbers.remove(number)


def _queue(count: int) -> None:
    things = deque([Thing() for _ in range(count)])
    for each in list(things)[::-1]:
        with compared(Thing):
            things.remove(each)


def _table(count: int) -> None:
    rows = {key(each): each for each in _rows(count)}
    for each in _rows(count):
        assert key(each) in rows


def _sorted(count: int) -> None:
    sorted(_rows(count), key=key)  # type: ignore[arg-type]  # keys of records


SQUARES: Final = (_loop, _one_line, _generator, _contains, _keys, _remove, _queue)
LINES: Final = (_table, _sorted)


def _beside_much(count: int) -> None:
    """A small square: 400 steps for each, and 4 for each before it."""
    for number in range(count):
        for _ in range(400):
            pass
        for _ in range(4 * number):
            pass


def _run(work: Callable[[int], None], count: int) -> dict[str, Cost]:
    return {"all": cost(partial(work, count))}


@pytest.mark.parametrize("work", (*SQUARES, _beside_much))
def test_a_square_is_seen(work: Callable[[int], None]) -> None:
    with pytest.raises(AssertionError, match="all: 20 things cost"):
        judge(partial(_run, work), 20)
    judge(partial(_run, work), 20, [Known("all", "as it is")])


@pytest.mark.parametrize("work", LINES)
def test_what_grows_with_n_is_within_the_law(work: Callable[[int], None]) -> None:
    judge(partial(_run, work), 20)
    assert _run(work, 20) == _run(work, 20)
    with pytest.raises(AssertionError, match="these laws hold now"):
        judge(partial(_run, work), 20, [Known("all", "not any more")])
