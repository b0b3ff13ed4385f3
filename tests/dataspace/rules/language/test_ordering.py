"""Large values are in the order of their keys, and what reads a large value is paid for by its size."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

import pytest
from hypothesis import given

from dataspace.rules.language.arithmetic import MAX_OPERAND, calculate, compare
from dataspace.rules.language.functions import FUNCTIONS, Function
from dataspace.rules.language.ordering import PART_BYTES, free, ordered
from index.errors import UsageError
from index.values.values import Map, Record, Value, order_key, same
from tests.index.strategies import anything


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _paid(function: Callable[[Callable[[int], None]], object]) -> int:
    """Returns what a function has paid in all, also if it has no result."""
    paid: list[int] = []
    try:
        function(paid.append)
    except UsageError:
        pass
    return sum(paid)


@given(anything, anything)
def test_the_order_is_that_of_keys(one: Value, other: Value) -> None:
    left, right = order_key(one), order_key(other)
    for before, after in (((left,), (right,)), ((left, left), (left, right))):
        wanted = (before > after) - (before < after)
        sides = ((one,), (other,)) if len(before) == 1 else ((one, one), (one, other))
        assert _sign(ordered(free, *sides)) == wanted
        assert _sign(ordered(free, Record("r", *sides[0]), Record("r", *sides[1]))) == wanted
        assert _sign(ordered(free, Map({"k": sides[0]}), Map({"k": sides[1]}))) == wanted
    assert (ordered(free, one, other) == 0) == same(one, other)


LARGE: Final[dict[str, Callable[[int], Value]]] = {
    "text": lambda n: "a" * n,
    "bytes": lambda n: b"a" * n,
    "sequence": lambda n: ("a",) * n,
    "map": lambda n: Map({f"k{at}": 0 for at in range(n)}),
    "number": lambda n: 1 << 8 * n,
    "record": lambda n: Record("r", *range(n)),
    "nested": lambda n: (((0,) * n,),),
}
"""Values of about n bytes or parts."""

SIZE: Final = 600


@pytest.mark.parametrize(("operator", "kind"), list(product(("<", "<=", ">", ">="), sorted(LARGE))))
def test_a_comparison_is_paid_by_what_is_alike(operator: str, kind: str) -> None:
    if kind == "number":
        return  # they are of the size of a word as far as a rule can make them
    one, other = [
        _paid(lambda pay, n=n: compare(operator, LARGE[kind](n), LARGE[kind](n), pay))  # type: ignore[misc]  # a default
        for n in (SIZE, 8 * SIZE)
    ]
    assert other >= 6 * one > 0
    if kind == "sequence":
        assert other >= PART_BYTES * 7 * SIZE
    assert _paid(lambda pay: compare(operator, (1, LARGE[kind](9_999)), (2, LARGE[kind](9_999)), pay)) == 0


UNREAD: Final = {("len", kind) for kind in ("text", "bytes", "sequence", "map")}
"""What takes as long for a large value as for a small one."""


SMALL: Final[dict[str, Value]] = {
    "text": "b",
    "number": 1,
    "sequence": ("b",),
    "bytes": b"b",
    "map": Map({}),
    "": 0,
}


def _of_size(function: Function, n: int, kind: str) -> list[Value]:
    """Returns arguments for a function of which the first is large, and others like it where they may be."""
    count = next(each for each in (len(function.takes), 2) if function.takes_count(each))
    arguments = [SMALL[function.class_at(each).split("|")[0]] for each in range(count)]
    arguments[0] = LARGE[kind](n)
    if function.name in ("min", "max", "starts", "ends"):
        arguments = [LARGE[kind](n) for _ in arguments]
    return arguments


def _cost(name: str, kind: str, n: int) -> int:
    return _paid(lambda pay: FUNCTIONS[name].apply(pay, *_of_size(FUNCTIONS[name], n, kind)))


@pytest.mark.parametrize(
    "name", sorted({name for name in FUNCTIONS if FUNCTIONS[name].class_at(0) != "time"})
)
def test_each_function_pays_for_what_it_reads(name: str) -> None:
    wanted = FUNCTIONS[name].class_at(0)
    for kind in wanted.split("|") if wanted else sorted(LARGE):
        is_unread = (name, kind) in UNREAD or (name in ("min", "max", "text") and kind in ("number", name))
        if is_unread or name == "number":  # of 640 digits at most
            continue
        one, other = _cost(name, kind, SIZE), _cost(name, kind, 8 * SIZE)
        assert other >= 6 * one > 0, (name, kind, one, other)


def test_a_part_that_is_looked_for_is_paid_each_time_as_far_as_it_is_alike() -> None:
    part = ((0,) * SIZE, 1)
    whole = tuple([((0,) * SIZE, 2)] * 10)
    paid = _paid(lambda pay: FUNCTIONS["contains"].apply(pay, whole, part))
    assert paid >= 10 * PART_BYTES * (SIZE - 64)
    assert FUNCTIONS["contains"].apply(free, (*whole, part), part) is True


@pytest.mark.parametrize("operator", ["*", "//", "%"])
def test_integers_that_are_too_large_are_not_calculated_with(operator: str) -> None:
    large = 1 << 8 * MAX_OPERAND
    for left, right in ((large, large - 1), (large, 3), (3, large)):
        with pytest.raises(UsageError, match=r"too large|calculated with, limit 65536"):
            calculate(operator, left, right, free)
    assert calculate("//", 1 << 5_000, 1 << 4_000, free) == 1 << 1_000


def test_what_is_put_together_is_paid_by_its_size() -> None:
    assert _paid(lambda pay: calculate("+", ("a",) * 500, ("a",) * 500, pay)) == 1_000 * PART_BYTES
    assert _paid(lambda pay: calculate("+", "a" * 9, "b", pay)) == 0
    with pytest.raises(UsageError, match="too large"):
        calculate("+", "a" * 5_000, "b", free)
