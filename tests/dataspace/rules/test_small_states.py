"""Aggregates follow from the facts that are there, whichever facts were there before: for each text, all
turns from each small state to each other."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Final

import pytest

from dataspace.rules.engine.program import Program
from dataspace.rules.language.parser import read_rules
from dataspace.text import parse
from index.values.values import Value, key
from tests.model.rules import Facts, follow

TEXTS: Final[dict[str, tuple[str, str]]] = {
    "maybe": (
        "p($q, count($j)) <- queue($q), maybe job($q, $j).",
        'queue("a") queue("b") job("a", 1) job("a", 2) job("b", 1)',
    ),
    "sum beside maybe": (
        "p($q, sum($n), count($j), min($j) else null) <- queue($q, $n), maybe job($q, $j).",
        "queue(0, 3) queue(0, 4) queue(1, 4) job(0, 1) job(0, 2) job(1, 2)",
    ),
    "two maybe": (
        "p($q, count($j), sum($w)) <- queue($q), maybe job($q, $j), maybe worker($q, $w).",
        "queue(0) queue(1) job(0, 1) job(0, 2) worker(0, 3) worker(1, 5)",
    ),
    "maybe of a group": (
        "p($q, count($j)) <- queue($q), maybe (job($q, $j), not done($j)).",
        "queue(0) queue(1) job(0, 1) job(0, 2) job(1, 2) done(2)",
    ),
    "maybe of the same": (
        "p($x, count($y), count(distinct $y)) <- e($x, _), maybe e($y, $x).",
        "e(0, 1) e(1, 0) e(0, 0) e(1, 1) e(2, 0)",
    ),
    "maybe before it": (
        "p($x, count($y)) <- maybe e($x, $y), e($x, _).",
        "e(0, 1) e(1, 0) e(0, 0) e(1, 1)",
    ),
    "first and last": (
        "p($d, first($v, $n), last($v, $n), last([$v, $n], -$n)) <- t($d, $v, $n).",
        't("a", 1, 1) t("a", 2, 1) t("a", 0, 2) t("a", 1, 3) t("b", 1, 3) t("a", "x", 3)',
    ),
    "last beside maybe": (
        "p($d, last($v, $n) else null, count($v)) <- d($d), maybe t($d, $v, $n).",
        'd("a") t("a", 1, 1) t("a", 2, 1) t("a", 0, 2) t("b", 1, 3)',
    ),
    "deviation": (
        "p($d, stddev($v), count($v)) <- t($d, $v). q(stddev(distinct $v) else -1) <- t(_, $v)."
        " r($d) <- t($d, _), stddev($v) of (t($d, $v)) > 1.",
        't("a", 1) t("a", 2.5) t("a", 1.0) t("b", 7) t("b", -3.25) t("c", 1)',
    ),
    "deviation beside maybe": (
        "p($d, stddev($v) else null, max($v) else 0) <- d($d), maybe t($d, $v, _).",
        'd("a") t("a", 1, 1) t("a", 1, 2) t("a", 0.1, 2) t("b", 1, 3)',
    ),
    "percentile": (
        "p($d, percentile($v, 50), percentile($v, 100), percentile(distinct $v, 33.4)) <- t($d, $v, _)."
        " q(percentile($v, 0.1), percentile($v, 67)) <- t(_, $v, _).",
        't("a", 1, 1) t("a", 1, 2) t("a", 1.0, 1) t("a", "x", 1) t("b", 2, 1) t("b", 3, 1)',
    ),
    "percentile beside maybe": (
        "p($d, percentile($v, 50) else 0) <- d($d), maybe t($d, $v, _).",
        'd("a") d("b") t("a", 1, 1) t("a", 3, 2) t("b", 1, 3)',
    ),
    "maybe of no other": (
        "p(count($j), sum($j), collect($j)) <- maybe job(_, $j), not closed().",
        "job(0, 1) job(0, 2) job(1, 2) closed()",
    ),
    "maybe of what is derived": (
        "d($x, $y) <- e($x, $y). d($x, $z) <- d($x, $y), e($y, $z)."
        " p($x, count($y)) <- n($x), maybe d($x, $y).",
        "e(0, 1) e(1, 0) e(1, 2) n(0) n(1) n(2)",
    ),
}
"""Rules, and the facts of which any are there."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_each_turn_from_a_state_to_another_derives_the_other(name: str) -> None:
    text, facts = TEXTS[name]
    values = [parse(f"{each})") for each in facts.split(")") if each.strip()]
    states = list(chain.from_iterable(combinations(values, size) for size in range(len(values) + 1)))
    expected = [_derived(text, state) for state in states]
    program = Program()
    program.add(name, text)
    known: dict[object, Value] = {key(each): each for each in program.derived()}
    for state, follows in zip(states, expected, strict=True):
        started = Program(lambda state=state: state)  # type: ignore[misc]  # bound at once
        started.add(name, text)
        assert {key(each) for each in started.derived()} == follows.keys(), state
    at = 0
    path = [place for one in range(len(states)) for other in range(one) for place in (one, other)]
    for place in [*path, *reversed(path), 0]:
        before, after = states[at], states[place]
        derived = program.tick([e for e in after if e not in before], [e for e in before if e not in after])
        for value in derived.removed:
            del known[key(value)]
        known.update((key(value), value) for value in derived.added)
        assert known.keys() == expected[place].keys(), (before, after)
        at = place
    assert [entry.error for entry in program.entries.values()] == [""]


def _derived(text: str, state: tuple[Value, ...]) -> Facts:
    given = {key(each) for each in state}
    return {at: each for at, each in follow(read_rules(text), state).items() if at not in given}
