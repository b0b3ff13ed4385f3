"""A rule fails by what is there when a tick is settled, and not by what it met on the way."""

from __future__ import annotations

import random

import pytest

from dataspace.rules.engine import deferred_errors as doubts
from dataspace.rules.engine.program import Program
from index.patterns.text import unparse
from index.values.values import Map, Record, Value

NUMBERS = range(4)
GUARDED = """
    p($x) <- left($x).
    same($x, $y) <- p($x), right($y), $x = $y.
    r($x, $y, $z) <- p($x), right($y), not same($x, $y), $z = 12 // ($x - $y).
"""
BARE = "b($x, 12 // ($x - $y)) <- left($x), right($y)."


def run(program: Program, told: set[str], added: list[Value], removed: list[Value]) -> None:
    derived = program.tick(added, removed)
    told.difference_update(map(unparse, derived.removed))
    told.update(map(unparse, derived.added))


def turned(rng: random.Random, claimed: set[tuple[str, int]]) -> tuple[list[Value], list[Value]]:
    """Some facts that come and some that go, in one tick."""
    some = rng.sample([(label, n) for label in ("left", "right") for n in NUMBERS], 3)
    added = [Record(*each) for each in some if each not in claimed]
    removed = [Record(*each) for each in some if each in claimed]
    claimed.symmetric_difference_update(some)
    return list[Value](added), list[Value](removed)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_negation_keeps_from_a_rule_never_fails_it(seed: int) -> None:
    rng, program = random.Random(seed), Program()
    claimed, told = set[tuple[str, int]](), set[str]()
    program.add("guarded", GUARDED)
    for _ in range(40):
        run(program, told, *turned(rng, claimed))
        assert not program.has_trouble
        pairs = [(x, y) for at, x in claimed for to, y in claimed if (at, to) == ("left", "right")]
        wanted = {f"r({x}, {y}, {12 // (x - y)})" for x, y in pairs if x != y}
        assert {each for each in told if each.startswith("r(")} == wanted


@pytest.mark.parametrize("seed", range(12))
def test_a_rule_fails_exactly_if_what_it_cannot_calculate_is_there_in_the_end(seed: int) -> None:
    rng, program = random.Random(seed), Program()
    claimed, told = set[tuple[str, int]](), set[str]()
    program.add("bare", BARE)
    entry = program.entries["bare", BARE]
    while not entry.trouble:
        assert not [n for n in NUMBERS if claimed >= {("left", n), ("right", n)}]
        added, removed = turned(rng, claimed)
        rng.shuffle(added)
        run(program, told, added, removed)
    assert claimed >= {("left", entry.row["x"]), ("right", entry.row["x"])}
    assert entry.row["x"] == entry.row["y"] and "ZeroDivisionError" in entry.trouble
    assert told == set()


def test_a_guard_that_goes_leaves_the_rule_to_fail() -> None:
    program = Program()
    text = "r($x, 1 // $x) <- n($x), not skip($x)."
    program.add("r", text)
    program.tick([Record("n", 0), Record("n", 2), Record("skip", 0)])
    assert not program.has_trouble
    program.tick([], [Record("n", 2)])
    program.tick([], [Record("skip", 0)])
    assert program.entries["r", text].row == Map({"x": 0})


def test_the_row_shows_what_was_known_and_not_what_could_not_be_calculated() -> None:
    program = Program()
    text = "r($x, $z) <- n($x), $z = 1 // $x, m($z)."
    program.add("r", text)
    program.tick([Record("n", 0)])
    assert (program.entries["r", text].row, "ZeroDivisionError" in program.entries["r", text].trouble) == (
        Map({"x": 0}),
        True,
    )


def test_more_doubts_than_are_kept_fail_the_rule_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "MOST", 3)
    program = Program()
    text = "skip($x) <- n($x). r($x, 1 // ($x - $x)) <- n($x), not skip($x)."
    program.add("r", text)
    program.tick([Record("n", 1), Record("n", 2), Record("n", 3)])
    assert not program.has_trouble
    program.tick([Record("n", n) for n in range(4, 9)])
    assert "ZeroDivisionError" in program.entries["r", text].trouble
