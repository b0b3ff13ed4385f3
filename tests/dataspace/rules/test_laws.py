"""Whatever came and went before, what rules derive is what follows from the facts that are there now."""

from __future__ import annotations

import os
import random

import pytest

from dataspace.rules.program import Program
from dataspace.rules.reading import read_rules
from index.values import Record, Value, key
from tests.dataspace.rules.oracle import follow

PROGRAMS = {
    "left": "r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), e($y, $z).",
    "right": "r($x, $y) <- e($x, $y). r($x, $z) <- e($x, $y), r($y, $z).",
    "non-linear": "r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), r($y, $z).",
    "mutual": """
        odd($x, $y) <- e($x, $y). odd($x, $z) <- even($x, $y), e($y, $z).
        even($x, $z) <- odd($x, $y), e($y, $z).
    """,
    "same generation": "s($x, $x) <- n($x). s($x, $y) <- e($a, $x), s($a, $b), e($b, $y).",
    "cut": "r($x, $y) <- e($x, $y), not gone($x). r($x, $z) <- r($x, $y), e($y, $z), not gone($y).",
    "unreached": """
        r($x) <- n($x), $x = 0. r($y) <- r($x), e($x, $y). far($x) <- n($x), not r($x).
        lonely($x) <- far($x), not e($x, _), not e(_, $x).
    """,
    "aggregates": """
        d($x, count($y)) <- e($x, $y). t(sum($n), avg($n), min($n), max($n)) <- d(_, $n).
        most(top(2, $n), collect($x)) <- d($x, $n). w(count($x)) <- e($x, _).
    """,
    "hubs": """
        r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), e($y, $z).
        d($x, count($y)) <- r($x, $y). hub($x) <- d($x, $n), $n >= 3, not gone($x).
        only($x) <- n($x), not hub($x).
    """,
    "constants": """
        r($x) <- e(0, $x). r($y) <- r($x), e($x, $y), $y != 2. p($x, 7) <- r($x).
        q($x) <- p($x, 7), e($x, 1). self($x) <- e($x, $x). two() <- e(0, 1), e(1, 0).
    """,
    "wildcards": """
        s($x) <- e($x, _). s($x) <- s($y), e($y, $x). any() <- e(_, _).
        end($y) <- e(_, $y), not s($y).
    """,
    "arithmetic": """
        c($x, 0) <- n($x), $x < 2. c($x, $n + 1) <- c($y, $n), e($y, $x:int), $n < 4.
        far($x, max($n)) <- c($x, $n).
        pair($x, $y, $z) <- e($x:int, $y:int), $z = $x * 10 + $y, $z % 3 != 0.
    """,
    "structure": """
        p($x, point($x, [$y])) <- e($x, $y). q($y) <- p(_, point(_, [$y])).
        r($v) <- p($v(0), _). u($f) <- $f(e(1, _)). k($x) <- exact(e($x, _)).
    """,
    "claimed too": "e($x, $z) <- e($x, $y), e($y, $z). d($x, count($y)) <- e($x, $y).",
    "overlap": """
        p($x, $y) <- e($x, $y). p($x, $y, 1) <- e($y, $x). q($x) <- p($x, $y), n($y).
        q($x) <- p($x, _, 1), not p(_, $x).
    """,
    "self negation": """
        a($x) <- e($x, $y), not e($y, $x). b($x) <- e($x, $x), not a($x).
        z($x) <- n($x), not n($x).
    """,
    "triangles": "t($x, $y, $z) <- e($x, $y), e($y, $z), e($z, $x). c(count($x)) <- t($x, _, _).",
    "through a part": "r($x, $y) <- e($x, $y). r($x, $y) <- r($x, _), r(_, $y), n($x).",
    "doubly": """
        a($x) <- n($x). a($x) <- b($x). b($x) <- a($x), n($x). b($x) <- c($x). c($x) <- b($x).
        c($x) <- e($x, _).
    """,
}
NODES = 5
LONG = int(os.environ.get("TORTURE_ROUNDS", "0"))


def universe() -> list[Value]:
    facts: list[Value] = [Record("e", a, b) for a in range(NODES) for b in range(NODES)]
    facts += [Record("n", a) for a in range(NODES)] + [Record("gone", a) for a in range(NODES)]
    facts += [
        Record("e", 0, 1, 2),
        Record("e", 1, True),
        Record("e", 1.0, 2),
        Record("r", 1, 2),
        Record("p", 1, 2, 3),
    ]
    return facts


def check(program: Program, text: str, claimed: dict[object, Value], told: dict[object, Value]) -> None:
    everything = follow(read_rules(text), claimed.values())
    derived = {key(value): value for value in program.derived()}
    assert set(told) == set(derived), "the changes add up to the state"
    assert set(claimed) | set(derived) == set(everything)


def changes(
    rng: random.Random, facts: list[Value], claimed: dict[object, Value], most: int
) -> tuple[list[Value], list[Value]]:
    """A random turn: what appears and what vanishes."""
    added, removed = [], []
    for fact in rng.sample(facts, rng.randint(1, most)):
        if key(fact) in claimed:
            del claimed[key(fact)]
            removed.append(fact)
        elif len(claimed) < 14 or rng.random() < 0.2:
            claimed[key(fact)] = fact
            added.append(fact)
    return added, removed


def live(name: str, seed: int, ticks: int) -> None:
    rng = random.Random(f"{name}:{seed}")
    facts, text = universe(), PROGRAMS[name]
    program = Program()
    claimed: dict[object, Value] = {}
    told: dict[object, Value] = {}
    program.add(name, text)
    for _ in range(ticks):
        derived = program.tick(*changes(rng, facts, claimed, 1 if rng.random() < 0.7 else 6))
        for value in derived.added:
            assert key(value) not in told
            told[key(value)] = value
        for value in derived.removed:
            del told[key(value)]
        check(program, text, claimed, told)
    assert [entry.trouble for entry in program.entries.values()] == [""]
    program.tick((), list(claimed.values()))
    assert program.derived() == []
    assert program.engine.size() == 0, "when nothing is claimed no table has an entry"


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_derived_is_what_follows_after_every_tick(name: str) -> None:
    for seed in range(3 + 10 * LONG):
        live(name, seed, 60)
