"""Whatever heads rules have, they derive exactly what follows, or are suspended, within bounds."""

from __future__ import annotations

import os
import tracemalloc

import pytest
from hypothesis import event, given, settings, strategies as st

from dataspace.codec import pack, unpack
from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.kernel.derivation import RULES
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine.program import Program
from dataspace.rules.language.parser import read_rules
from dataspace.rules.relations.budgets import Bounds, size_of
from dataspace.rules.relations.failures import complaint
from dataspace.rules.relations.terms import MAX_DEPTH, MAX_FACT
from dataspace.wire.outgoing import FACT_DEPTH
from index.errors import UsageError
from index.values.freezing import bounded
from index.values.values import Map, Record, Value, key, text_of
from tests.model.rules import Facts, follow
from tests.strategies import values

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))

SMALL = 40
"""Facts that may be there before a set of rules is taken to have no end."""


def failed(program: Program) -> bool:
    """Whether any text is not carried out now."""
    return program.has_errors


# -- the law -----------------------------------------------------------------------------------------

HEADS = (
    "a($f)",
    "b($f, $f)",
    "a([$f])",
    "c($x, $f)",
    "a(b($f, 1))",
    "d($x)",
    "b($x, $x)",
    'a({"k": $x})',
    "next(a($f))",
)
BODIES = (
    "$f, n($x)",
    "$f, a($x)",
    "$f(a($x))",
    "$f, n($x), not gone($x)",
    "n($f), $x = $f",
    "a($f), b($x, _)",
)
texts = st.lists(
    st.builds(lambda head, body: f"{head} <- {body}.", st.sampled_from(HEADS), st.sampled_from(BODIES)),
    min_size=1,
    max_size=3,
).map(" ".join)
facts: st.SearchStrategy[Value] = st.sampled_from(
    [
        Record("n", 1),
        Record("n", (1, "ü")),
        Record("a", "x" * 300),
        Record("gone", 1),
        Record("b", 1, 2),
        "plain",
        Record("n", Record("a", Record("a", 1))),
    ]
)
turns = st.lists(st.lists(facts, max_size=3, unique_by=text_of), min_size=1, max_size=4)


def end_of(text: str, claimed: Facts) -> Facts | None:
    """What follows, or None where it has no end, or nests deeper than a derived fact may."""
    rules = read_rules(text)
    known = dict(claimed)
    while True:
        more = follow(rules, known.values(), rounds=1)
        if more.keys() == known.keys():
            return known
        if len(more) > SMALL or any(_is_endless(more[at]) for at in more.keys() - known.keys()):
            return None
        known = more


def _is_endless(value: Value) -> bool:
    """Whether a fact is larger or deeper than one that follows from these in a few steps."""
    try:
        bounded(value, depth=MAX_DEPTH)
    except UsageError:
        return True
    return len(text_of(value)) > 5_000


@pytest.mark.slow
@settings(max_examples=80 * ROUNDS or 20, deadline=None)
@given(texts, turns)
def test_rules_hold_what_follows_or_are_suspended_within_their_bytes(
    text: str, turns: list[list[Value]]
) -> None:
    # each place of a rule that makes values is handed a part of 16 KiB, however little that place needs
    bounds = Bounds(600, made=240_000, held=240_000)
    program = Program(bounds=bounds)
    program.add("r", text)
    if failed(program):  # a cycle that cannot be put in order, or an unsafe text
        event("refused")
        return
    claimed: Facts = {}
    tracemalloc.start()
    try:
        for turn in turns:
            added = [each for each in turn if key(each) not in claimed]
            removed = [each for each in turn if key(each) in claimed]
            for each in removed:
                del claimed[key(each)]
            claimed.update((key(each), each) for each in added)
            program.tick(added, removed)
            assert size_of(program.derived()) == program.budget.held <= bounds.held
            if failed(program):
                event("suspended")
                assert program.derived() == []
                if "next" not in text:
                    assert end_of(text, claimed) is None
                break
            if "next" not in text:
                known = claimed | {key(each): each for each in program.derived()}
                assert follow(read_rules(text), known.values(), rounds=1).keys() == known.keys()
                expected = end_of(text, claimed)
                assert expected is None or expected.keys() == known.keys()
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    program.tick((), list(claimed.values()))
    assert program.budget.held == size_of(program.derived())


# -- single cases ------------------------------------------------------------------------------------

RUNAWAYS = {
    "a fact about every fact": ("audit($f) <- $f.", f"nested deeper than {MAX_DEPTH} levels"),
    "facts about pairs of facts": ("pair($f, $g) <- $f, $g.", "new facts in one tick"),
    "a fact twice in a fact": ("twice($f, $f) <- $f.", "bytes"),
    "a fact deep in a fact": ("deep([[[[$f]]]]) <- $f.", "nested"),
    "large fields": ("wide($x, $x, $x, $x, $x, $x) <- large($x).", "of about"),
    "a large collection": ("all(collect($x)) <- part($x).", "bytes"),
    "a product of large texts": ("p($a, $b) <- part($a), part($b).", "bytes were derived in one tick"),
    "a product for the next tick": ("next(p($a, $b)) <- part($a), part($b).", "bytes were derived in one"),
    "messages of large texts": ("send(p($a, $b)) <- part($a), part($b).", "bytes were derived in one tick"),
}
LARGE = [
    Record("n", 1),
    Record("large", "x" * 300_000),
    *[Record("part", f"{n}" + "x" * 100_000) for n in range(100)],
]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNAWAYS)
@pytest.mark.parametrize("first", [True, False])
def test_heads_are_paid_for_in_depth_and_bytes(name: str, first: bool) -> None:
    text, reason = RUNAWAYS[name]
    program = Program(bounds=Bounds(20_000))
    program.add("harmless", "fine($x) <- n($x).")
    tracemalloc.start()
    try:
        if first:
            program.add("hostile", text)
        program.tick(LARGE if "part" in text or "large" in text else LARGE[:1])
        if not first:
            program.add("hostile", text)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reason in program.entries["hostile", text].error
    assert (
        program.derived() == [Record("fine", 1)]
        and not program.entries["harmless", "fine($x) <- n($x)."].error
    )
    assert most < 150 << 20


def test_a_rule_that_is_caught_by_what_another_used_up_is_not_to_blame() -> None:
    program = Program(bounds=Bounds(100_000, made=100_000))
    program.tick([Record("n", n) for n in range(60)])
    program.add("small", "fine($x) <- n($x), $x < 3.")
    program.change([("hog", "p($x, $y) <- n($x), n($y)."), ("late", "q($x) <- n($x), n($x).")], [])
    assert {entry.name for entry in program.entries.values() if entry.error} == {"hog"}


def test_a_fact_that_is_too_large_only_in_the_middle_of_a_tick_suspends_nothing() -> None:
    program, text = Program(), "p($x, $y) <- a($x), b($y)."
    half = "x" * (MAX_FACT * 2 // 3)
    program.add("p", text)
    program.tick([Record("a", half), Record("b", 1)])
    program.tick([Record("b", half), Record("a", 1)], [Record("a", half), Record("b", 1)])
    assert not failed(program) and program.derived() == [Record("p", 1, half)]
    program.tick([Record("a", half)])
    assert "a derived fact of about" in program.entries["p", text].error


def test_what_rules_hold_is_bounded_in_all_and_is_no_part_of_what_owners_may_hold() -> None:
    space = Space("main", limits=SpaceLimits(facts=20, derived_bytes=3_000))
    space.commit("me", [(ASSERT, 1, Record("rule", "r", "copy($x, $y) <- n($x), m($y)."))], 0)
    space.commit("me", [(ASSERT, n, Record("m", n)) for n in range(2, 7)], 0)
    for n in range(7, 17):
        space.commit("me", [(ASSERT, n, Record("n", n))], 0)
        assert len(space.claims(RULES)) <= 3_000 // 64
    held = {fact.label for fact in space.claims(RULES).values() if isinstance(fact, Record)}
    assert held == {"rule-error"}, "there was no room for all ten"
    space.commit("me", [(ASSERT, n, Record("k", n)) for n in range(17, 21)], 0)
    with pytest.raises(Refused, match="21 facts in the space"):
        space.commit("me", [(ASSERT, 21, Record("n", 21))], 0)


def test_what_goes_makes_room_for_what_comes() -> None:
    program = Program(bounds=Bounds(1_000, held=4_000))
    program.add("copy", "copy($x) <- n($x).")
    program.tick([Record("n", n) for n in range(-20, 0)])
    for n in range(0, 400, 20):
        program.tick(
            [Record("n", n + at) for at in range(20)], [Record("n", n + at - 20) for at in range(20)]
        )
    assert not failed(program) and len(program.derived()) == 20
    program.add("more", "more($x) <- copy($x).")
    program.remove("copy", "copy($x) <- n($x).")
    assert not failed(program) and program.budget.held == 0


@given(st.text(max_size=3), values, st.text(max_size=50))
def test_what_is_said_of_a_rule_can_be_written(name: str, value: Value, reason: str) -> None:
    deep: Value = value
    for _ in range(60):
        deep = (deep,)
    row = Map({"small": 1, "deep": deep, "large": (value,) * 3_000, "text": "ü" * 100_000})
    fact = complaint(name * 100_000, value, row, reason * 1_000)
    assert unpack(pack((fact,) * 4)) == (fact,) * 4
    assert len(pack(fact)) < 300_000


def test_rules_that_have_no_room_are_facts_and_say_so() -> None:
    space = Space("main", limits=SpaceLimits(rules=0))
    rule = Record("rule", "r", "audit($f) <- $f.")
    space.commit("me", [(ASSERT, 1, rule), (ASSERT, 2, Record("n", 1))], 0)
    (error,) = space.claims(RULES).values()
    assert isinstance(error, Record) and "--without-rules" in str(error.fields[3])
    space.commit("me", [(RETRACT, 1)], 0)
    assert not space.claims(RULES) and not space.rules.awake


def test_a_rule_can_have_each_fact_of_a_client() -> None:
    """Else one deep fact of whomever suspends each rule that has it, and no query has an answer."""
    assert MAX_DEPTH == FACT_DEPTH
    deepest = Record("p", 1)
    for _ in range(FACT_DEPTH - 1):
        deepest = Record("p", deepest)
    program = Program()
    program.add("r", "q($x) <- p($x).")
    program.tick([deepest])
    assert not failed(program)
    program.tick([Record("p", deepest)])
    assert failed(program)
