"""Rules that come one by one, in any order and between facts, derive what they would have from the start."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from typing import Any, Final

import pytest

from dataspace.flows.results import Derived
from dataspace.rules.engine.pool import EnginePool
from dataspace.rules.engine.program import Program
from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import Verb
from index.patterns.text import parse, unparse
from index.values.values import Record, Value, key
from tests.model.rules import follow

SEEDS: Final = range(8 if "TORTURE_ROUNDS" in os.environ else 5)
LABELS: Final = 6
"""Labels that rules derive; what is negated or summed up has a lower number, so that no cycle blocks."""


def written(rng: random.Random) -> str:
    """A text of one rule, which may be recursive, lean on others, negate, or sum up."""
    head = rng.randrange(LABELS)
    kind = rng.random()
    if kind < 0.12 and head:
        discarded = rng.choice(["$x", "_"])
        return f"p{head}($y, count($y)) <- {atom(rng, rng.randrange(head), discarded, '$y')}."
    body = [atom(rng, rng.randrange(-2, LABELS), "$x", "$y")]
    if rng.random() < 0.6:
        body.append(atom(rng, rng.randrange(-2, LABELS), "$y", "$z"))
    if kind > 0.85 and head:
        body.append(f"not {atom(rng, rng.randrange(-1, head), '$x', '$y')}")
    last = "$z" if any("$z" in each for each in body) else "$y"
    return f"p{head}($x, {last}) <- {', '.join(body)}."


def atom(rng: random.Random, number: int, one: str, other: str) -> str:
    if number >= 0:
        return f"p{number}({one}, {other})"
    return f"e({one}, {other})" if number == -1 else f"{one} = {one}, f({other}, {one})"


STRANGE: Final = [
    "w($x) <- p1($x).",
    "w($x, $y, $x) <- p2($x, $y).",
    "any($x) <- $x, box($x).",
    "any($f) <- $f(p1(_, 3)).",
    "one($x) <- exact(p3($x, _)).",
    "p0($x, $x) <- w($x).",
    "p4($x, 12 / $y) <- e($x, $y), p2($y, _).",
    "next(p2($x, $y)) <- said($x), p1($x, $y).",
    "send(loud($x)) <- p3($x, $y), not p1($x, $y).",
    "next(k($x)) <- k($x), not said($x). k($x) <- p5($x, $x).",
    "p5($x, sum($y)) <- p1($x, $y). low(min($x), max($y)) <- p5($x, $y).",
    "lone() <- not p0(_, _), not w(_).",
    "p3($x, $y) <- p3($y, $x), f($x, $y).",
]


def fits(texts: list[str], text: str) -> bool:
    program = Program()
    program.change([(each, each) for each in [*texts, text]], [])
    return not program.has_errors


def supports(program: Program) -> dict[str, Counter[str]]:
    """How many derivations the rows of each head have, where claims do not count as well."""
    return {
        f"{head.name}/{head.width}": Counter(
            {unparse(head.fact(row)): state[0] for row, state in head.states.items() if state[0]}
        )
        for engine in program.components
        for head in engine.dependencies.heads.values()
        if head.verb is Verb.ASSERT and not head.is_shown
    }


def sound(program: Program) -> None:
    """Checks all rows: those that are there have support that goes down to facts, and are in each index."""
    for engine in program.components:
        for relation in engine.dependencies.relations():
            assert not relation.pending
            there = {row for row, state in relation.states.items() if state[2] > 0}
            for row, state in relation.states.items():
                assert (row in there) == (state[0] > 0), (relation.name, row)
                assert row not in there or 0 < state[1] <= state[0], (relation.name, row, state)
            for columns, index in relation.indexes.items():
                filed = {row for bucket in index.values() for row in bucket}
                assert filed == there, (relation.name, columns)


def told(state: dict[object, Value], derived: Derived) -> None:
    for value in derived.added:
        assert key(value) not in state, value
        state[key(value)] = value
    for value in derived.removed:
        del state[key(value)]


def conversation(seed: int, steps: int, *, strange: bool) -> tuple[Program, list[object]]:
    """Adds and removes rules and facts; returns what was said, in no stated order within a tick."""
    rng = random.Random(seed)
    labels = ("e", "f", "p1", "p4")
    facts: list[Value] = [Record(label, a, b) for label in labels for a in range(3) for b in range(4)]
    facts += [Record("p2", 1, 2, 3), Record("w", 2), Record("p1", 1)]
    facts += [Record("box", Record(label, a, 1)) for label in ("p0", "p1") for a in range(3)]
    program, state = Program(), dict[object, Value]()
    there: list[str] = []
    claimed: dict[object, Value] = {}
    lines: list[object] = []
    for _ in range(steps):
        text = rng.choice(STRANGE) if rng.random() < 0.4 * strange else written(rng)
        changed = rng.sample(facts, rng.choice([0, 0, 1, 2, 5]))
        messages: list[Value] = [Record("said", rng.randrange(3))] * (rng.random() < 0.2 * strange)
        added = [fact for fact in changed if key(fact) not in claimed]
        removed = [fact for fact in changed if key(fact) in claimed]
        claimed.update({key(fact): fact for fact in added})
        for fact in removed:
            del claimed[key(fact)]
        come, gone = list[tuple[str, str]](), list[tuple[str, str]]()
        choice = rng.random()
        if choice < 0.6 and text not in there and fits(there, text):
            come.append((text, text))
            there.append(text)
        elif choice > 0.85 and there:
            lost = there.pop(rng.randrange(len(there)))
            gone.append((lost, lost))
        derived = [program.declare_and_tick((come, gone), added, removed, messages)]
        while program.pending:
            derived.append(program.tick_again())
        for each in derived:
            told(state, each)
            errors = {entry.name: entry.error.split(":")[0] for entry in program.entries.values()}
            lines.append((sorted(map(unparse, state.values())), Counter(map(unparse, each.messages)), errors))
        sound(program)
        assert set(state) == {key(value) for value in program.derived()}
        if not strange:
            equals_the_whole(program, there, claimed)
    told(state, program.tick((), list(claimed.values())))
    while program.pending:
        told(state, program.tick_again())
    if not strange:
        assert not state and program.size() == 0, "when nothing is claimed no table has an entry"
    program.change([], [(each, each) for each in there])
    assert not program.base_facts.views and not program.base_facts._routes and not list(program.components)
    return program, lines


def equals_the_whole(program: Program, there: list[str], claimed: dict[object, Value]) -> None:
    """Compares a program with one that got all rules at once, and with what follows by trying everything."""
    derived = {key(value) for value in program.derived()}
    assert derived | set(claimed) == set(follow(read_rules(" ".join(there)), claimed.values())), there
    whole = Program(lambda: list(claimed.values()))
    whole.change([(each, each) for each in there], [])
    grown, made = supports(program), supports(whole)
    for name in grown.keys() & made.keys():
        assert grown[name] == made[name], (there, name)


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("seed", SEEDS)
def test_rules_that_come_one_by_one_are_the_same_as_all_at_once(seed: int) -> None:
    conversation(seed, 50, strange=False)


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("seed", SEEDS)
def test_what_an_engine_says_that_takes_rules_in_is_what_one_that_is_made_anew_says(seed: int) -> None:
    grown, said = conversation(seed, 50, strange=True)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(EnginePool, "extension", lambda *_: None)
        anew, expected = conversation(seed, 50, strange=True)
    assert said == expected
    assert grown.statistics().engines < anew.statistics().engines


FACTS: Final = [
    "e(3, 2)",
    "e(5, 9)",
    "a(1, 2)",
    "a(3, 2)",
    "f(3)",
    "f(1)",
    "g(5)",
    "h(a(1, 2))",
    "h(b(3))",
    "c(8)",
]
CONNECTED: Final = "a($x, $y) <- e($x, $y). b($x) <- a($x, $y). c($x) <- b($x). d($x) <- b($x), f($x)."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n($y, count($x)) <- a($x, $y).", ["n(2, 2)", "n(9, 1)"]),
        ("n(count($y)) <- a(_, $y).", ["n(3)"]),
        ("n($x) <- $x, h($x).", ["n(a(1, 2))", "n(b(3))"]),
        ("n($x) <- exact(a($x, _)).", ["n(1)", "n(3)", "n(5)"]),
        ("n($y) <- a($x, $y), not d($x).", ["n(9)"]),
        ("a($x, $x) <- d($x).", ["a(1, 1)", "a(3, 3)"]),
        ("e($x, 7) <- f($x).", ["a(1, 7)", "a(3, 7)", "e(1, 7)", "e(3, 7)"]),
        ("f($x) <- g($x).", ["d(5)", "f(5)"]),
        (
            "k($x) <- d($x). a($x, $y) <- k($x), g($y).",
            ["a(1, 5)", "a(3, 5)", "k(1)", "k(3)"],
        ),
        ("n() <- not c(9).", ["n()"]),
        ("n($y) <- exact(a($x, $y)), h(_).", ["n(2)", "n(9)"]),
        ("n($x) <- c($x).", ["n(1)", "n(3)", "n(5)", "n(8)"]),
        ("n($x) <- exact(c($x)). m($x) <- c($x).", [f"{n}({x})" for n in "mn" for x in (1, 3, 5, 8)]),
        ("n($x) <- a($x, $y), a($y, $x).", []),
    ],
)
def test_a_rule_that_comes_late_sees_the_rows_there_are_and_each_claim_once(
    text: str, expected: list[str]
) -> None:
    facts = [parse(each) for each in FACTS]
    program = Program(lambda: facts)
    program.add("connected", CONNECTED)
    engines = program.statistics().engines
    derived = program.add("late", text)
    assert not program.has_errors and not derived.removed
    assert sorted(map(unparse, derived.added)) == expected
    closes_a_cycle = text.startswith(("k", "a"))
    assert program.statistics().engines == engines + closes_a_cycle
    gone = program.tick((), facts)
    assert not gone.added
    sound(program)
    assert set(program.derived()) <= {Record("n")}


SHAPES: Final = {
    "chain": lambda at: f"p{at + 1}($x) <- p{at}($x).",
    "fan": lambda at: f"p{at}($x) <- hub($x), base($x)." if at else "hub($x) <- base($x), on($x).",
    "one head": lambda at: f"p($x) <- base{at}($x), on($x).",
    "closure": lambda at: f"r($x, $z) <- r($x, $y), e{at}($y, $z)." if at else "r($x, $y) <- e($x, $y).",
    "blocking": lambda at: f"p{at + 1}($x) <- p{at}($x), not q{at}($x). q{at + 1}($x) <- p{at}($x), on($x).",
}
"""Programs of connected rules, which come one by one: the text of each."""


def calls_of(shape: str, count: int, *, backwards: bool, facts: int) -> int:
    """Returns how many functions were called to add so many texts, one after the other."""
    texts = [(f"r{at}", SHAPES[shape](at)) for at in range(count)]
    known: list[Value] = [Record(label, n) for label in ("p0", "base", "on") for n in range(facts)]
    program, calls = Program(lambda: known), 0

    def called(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    for pair in reversed(texts) if backwards else texts:
        sys.setprofile(called)
        try:
            program.change([pair], [])
        finally:
            sys.setprofile(None)
    statistics = program.statistics()
    assert (statistics.components, statistics.failed) == (1, 0)
    assert statistics.compiled <= 4 * statistics.rules
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("facts", [0, 2])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_rules_that_come_one_by_one_cost_in_proportion_to_their_number(
    shape: str, backwards: bool, facts: int
) -> None:
    few, many = [calls_of(shape, count, backwards=backwards, facts=facts) for count in (50, 100)]
    assert many < 2.5 * few, "twice as many: were each to make all others anew, it would be four times"
