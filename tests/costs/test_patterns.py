"""What observers cost grows with what they are told: patterns that no fact matches cost a turn nothing.

n facts and messages meet n observers: of one pattern, of patterns that differ in a constant, and of patterns
whose constants stand in n different combinations of fields (shapes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Final

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.interests import Interest
from index.patterns.patterns import DISCARD, capture
from index.values.values import Record, Value
from tests.costs.counting import Cost, Known, cost, counted, judge
from tests.costs.kernel import SPREADS, MeasuredSpace, Watcher

N: Final = 32
FIELDS: Final = 10
"""Of each fact; patterns of two or more of them have more than 600 shapes."""

SHAPES: Final = [shape for shape in product((True, False), repeat=FIELDS) if sum(shape) >= 2]


def _fact(number: int) -> Value:
    return counted("m", *[number] * FIELDS)


def _pattern(number: int, shape: Sequence[bool]) -> Value:
    return Record("m", *[number if is_constant else DISCARD for is_constant in shape])


PATTERNS: Final[dict[str, Callable[[int], list[Value]]]] = {
    "one that all match": lambda n: [Record("m", *[DISCARD] * FIELDS)],
    "one of everything": lambda n: [capture("x")],
    "n of one shape": lambda n: [_pattern(number, SHAPES[0]) for number in range(n)],
    "n of n shapes": lambda n: [_pattern(number, SHAPES[number]) for number in range(n)],
    "n of n shapes that nothing matches": lambda n: [
        _pattern(-1 - number, SHAPES[number]) for number in range(n)
    ],
    "n of other labels": lambda n: [Record(f"m{number}", DISCARD) for number in range(n)],
}

LOOKED: Final = Known(
    "looked up among", "a pattern that is not observed is compared with all facts of its label"
)
KNOWN: Final = {
    "n of one shape": [LOOKED],
    "n of n shapes": [LOOKED, Known("come to facts", "each shape files all facts of its label")],
    "n of n shapes that nothing matches": [LOOKED, Known("come to facts", "each shape files all facts")],
    "n of other labels": [LOOKED, Known("come to facts", "the first pattern of a label looks for its facts")],
}


def _observed(patterns: str, spread: str, count: int) -> dict[str, Cost]:
    """Facts come and go under observers, who leave; then observers come to facts that are there."""
    space = MeasuredSpace()
    watchers = [(pattern, Watcher()) for pattern in PATTERNS[patterns](count)]
    facts = [_fact(number) for number in range(count)]
    coming: list[Action] = [(ASSERT, at, fact) for at, fact in enumerate(facts)]
    turns = SPREADS[spread]

    interests: list[Interest] = []

    def observe() -> None:
        interests.extend([space.space.observe(*each) for each in watchers])

    def ignore() -> None:
        for interest, (_, watcher) in zip(interests, watchers, strict=True):
            space.space.ignore(interest, watcher)

    def match() -> None:
        for pattern, _ in watchers:
            space.space.matches(pattern)

    space.costs["observers come"] = cost(observe)
    space.turns("facts come", turns(coming))
    space.turns("messages come", turns([(SEND, fact) for fact in facts]))
    space.turns("facts go", turns([(RETRACT, at) for at in range(count)]))
    space.costs["observers go"] = cost(ignore)
    interests.clear()
    space.turns("facts come again", turns(coming))
    space.costs["patterns are looked up among facts"] = cost(match)
    space.costs["observers come to facts"] = cost(observe)
    space.costs["observed patterns are looked up"] = cost(match)
    space.costs["observers go from facts"] = cost(ignore)
    return space.costs


@pytest.mark.parametrize(("patterns", "spread"), list(product(PATTERNS, ("in one turn", "of n owners"))))
def test_an_observer_costs_what_it_is_told(patterns: str, spread: str) -> None:
    _observed(patterns, spread, 3 * N)  # the functions of each shape are made once in a process
    judge(partial(_observed, patterns, spread), N, KNOWN.get(patterns, ()))


def _shared(count: int) -> dict[str, Cost]:
    space = MeasuredSpace()
    pattern, watchers = _pattern(0, SHAPES[0]), [Watcher() for _ in range(count)]
    costs = {"observers come": cost(lambda: [space.space.observe(pattern, each) for each in watchers])}
    space.turns("a fact comes", [("a", [(ASSERT, 1, _fact(0))])])
    assert {each.count for each in watchers} == {1}
    (interest,) = space.space.interests
    costs["observers go"] = cost(lambda: [space.space.ignore(interest, each) for each in watchers])
    return costs | space.costs


def test_n_observers_of_one_pattern() -> None:
    _shared(N)
    judge(_shared, N)
