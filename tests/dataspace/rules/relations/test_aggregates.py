"""An aggregate is what its values say, whatever came and went before, to the last bit."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from statistics import stdev
from typing import Final

import pytest

from dataspace.errors import UsageError
from dataspace.rules.relations.grouping import Deviation, Percentile
from dataspace.rules.relations.terms import RuleTerm, Terms

NUMBERS: Final = (
    0,
    1,
    -3,
    7,
    10**40,
    0.1,
    2.5,
    -0.0,
    5e-324,
    -5e-324,
    1e308,
    1.7e308,
    1e-308,
    3.0,
    2**53 + 1,
)


def test_a_deviation_is_rounded_once_after_any_changes() -> None:
    rng, terms = random.Random(3), Terms()
    for _ in range(60):
        one, held = Deviation(), list[RuleTerm]()
        chosen = rng.sample(NUMBERS, 5)
        for _ in range(60):
            if held and rng.random() < 0.45:
                one.change(held.pop(rng.randrange(len(held))), -1)
            else:
                held.append(terms.of(rng.choice(chosen) if rng.random() < 0.7 else rng.gauss(1e6, 1e-3)))
                one.change(held[-1], +1)
            assert one.has_value() == (len(held) > 1)
            if one.has_value():
                values = [Fraction(each.value) for each in held]  # type: ignore[arg-type]  # numbers
                assert one.value() == _expected(values), held
        for term in held:
            one.change(term, -1)
        assert {name: getattr(one, name) for name in one.__slots__} == dict.fromkeys(one.__slots__, 0)


def _expected(values: list[Fraction]) -> float:
    try:
        return float(stdev(values))
    except OverflowError:
        return math.inf


def test_a_deviation_of_what_is_not_finite_is_none() -> None:
    terms, one = Terms(), Deviation()
    for each in (1, 2, math.inf):
        one.change(terms.of(each), +1)
    assert math.isnan(float(str(one.value())))
    one.change(terms.of(math.inf), -1)
    assert one.value() == stdev([1, 2])


def test_a_percentile_is_the_value_with_the_nearest_rank() -> None:
    terms = Terms()
    for percent, rank in ("5", 1), ("30", 2), ("40", 2), ("50", 3), ("80", 4), ("80.1", 5), ("100", 5):
        one = Percentile(Fraction(percent))
        for each in (50, 20, 15, 40, 35):
            one.change(terms.of(each), +1)
        assert one.value() == (15, 20, 35, 40, 50)[rank - 1]


def test_a_deviation_refuses_what_it_cannot_square() -> None:
    terms, one = Terms(), Deviation()
    with pytest.raises(UsageError, match="stddev of a number of 4097 bits, limit 4096"):
        one.change(terms.of(1 << 4096), +1)
    with pytest.raises(UsageError, match="stddev of numbers, not of True"):
        one.change(terms.of(True), +1)
