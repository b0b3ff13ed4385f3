"""However much a turn expects, no step of judging it takes long, and what it took is given back."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from dataspace.errors import Refused
from dataspace.kernel.expectations import Condition, Expectation, absent, exactly
from index.trie.trie import Index
from index.values.values import Record
from server.config.model import Limits
from server.spaces.turns.conditions import Conditions
from server.turns.conditions import Judgement
from tests.abuse.sizes import LARGE

MANY: Final = 100_000 if LARGE else 20_000
STEP: Final = 8_000_000
"""Nanoseconds of CPU that a step may take: 2 ms, at a quarter of the speed."""


class _Home:
    """A space, as far as expectations of facts need it."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self.limits = Limits()


@pytest.fixture(scope="module")
def index() -> Index:
    made = Index()
    made.patch([Record("big", n, n % 7, f"t{n}") for n in range(MANY)], ())
    made.patch([Record("some", n, f"t{n}") for n in range(9_000)], ())
    return made


EXPECTED: Final[dict[str, tuple[Callable[[], Sequence[Expectation]], str]]] = {
    "exactly none of many": (lambda: [exactly("big($a, _, $t)", [])], "limit"),
    "many of one value": (lambda: [absent("big(_, 9, $t)")], ""),
    "rows that hold": (lambda: [exactly("some($n, _)", [(n,) for n in range(9_000)])], ""),
    "rows that do not": (lambda: [exactly("some($n, _)", [(n,) for n in range(1, 9_001)])], "expectation"),
    "more rows than allowed": (lambda: [exactly("some($n, _)", [(n,) for n in range(20_000)])], "limit"),
    "201 of the same positions": (lambda: [absent(f'big({-n}, _, "x")') for n in range(1, 202)], ""),
    "labels that are not there": (lambda: [absent(f"none{n}(_)") for n in range(9)], ""),
    "few rows of many facts": (lambda: [exactly("big(_, $k, _)", [(n,) for n in range(7)])], ""),
}


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_no_step_takes_long(index: Index, name: str) -> None:
    make, code = EXPECTED[name]
    before = index.statistics()
    longest = []
    for _ in range(3):
        said, slowest = _judged(index, make())
        assert said == code
        longest.append(slowest)
    assert min(longest) < STEP
    assert index.statistics() == before
    index.check()


def _judged(index: Index, expected: Sequence[Expectation]) -> tuple[str, int]:
    """Returns the code of the refusal, or none, and the nanoseconds of CPU of the slowest step."""
    conditions = Conditions(index)
    packed = [each.packed() for each in expected]
    slowest, code = 0, ""
    gc.collect()
    gc.disable()
    try:
        judgement = Judgement(_Home(conditions), list(Condition.reading(packed)))  # type: ignore[arg-type]  # a part of one
        steps = judgement.prepare(lambda _facts, _size: None)
        going_on = True
        while going_on:
            began = time.thread_time_ns()
            try:
                going_on = next(steps, judgement) is None
            except Refused as refusal:
                going_on, code = False, refusal.code
            slowest = max(slowest, time.thread_time_ns() - began)
        began = time.thread_time_ns()
        if not code:
            try:
                assert judgement.decide()
            except Refused as refusal:
                code = refusal.code
        slowest = max(slowest, time.thread_time_ns() - began)
        judgement.close()
    finally:
        gc.enable()
    for at, (_, form, _) in list(conditions._kept.items()):
        conditions._drop(at, form)
    return code, slowest
