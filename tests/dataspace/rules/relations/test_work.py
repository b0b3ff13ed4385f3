"""What rules do in a turn is bounded by what caused the turn, whatever the rules are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.derivation import RULES
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine.pool import SUSPECT
from dataspace.rules.engine.program import Program
from dataspace.rules.relations.budgets import Bounds
from index.values.values import Record, Value, key
from tests.model.rules import Facts, follow

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))

ATTEMPTS = len(SUSPECT) + 2
"""How often a tick is computed at most: as it comes, with one rule less, and with ever more rules less."""


def lines_of(act: Callable[[], object]) -> int:
    """How many lines of Python are carried out, in files and in generated functions."""
    count = 0

    def local(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    before = sys.gettrace()
    sys.settrace(local)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def space_with(*texts: str, work: int = 2_000, per_action: int = 20) -> Space:
    space = Space("main", limits=SpaceLimits(derive_work=work, derive_work_per_action=per_action))
    rules: list[Action] = [(ASSERT, n, Record("rule", f"r{n}", text)) for n, text in enumerate(texts)]
    space.commit("ops", rules, 0)
    return space


def suspended(space: Space) -> dict[str, str]:
    return {name: reason for name, _, reason in space.rules.suspended()}


HOSTILE = {
    "a product": "p($a, $b) <- go(_), n($a), n($b).",
    "a product that derives nothing": "p($a) <- go(_), n($a), n($b), $a + $b < 0.",
    "a counter": "m($x) <- go($x). m($y) <- m($x), $y = $x + 1.",
    "a product for the next tick": "next(p($a, $b)) <- go(_), n($a), n($b).",
    "messages of a product": "send(p($a, $b)) <- go(_), n($a), n($b).",
    "a count of a product": "c(count($a)) <- go(_), n($a), n($b), n($c).",
    "facts in facts": "w([$a, $b]) <- go(_), n($a), n($b). w([$a, $a]) <- w($a).",
    "a product that is negated": "p($a) <- n($a), go(_), not q($a). q($a) <- n($a), n($b), n($c), go(_).",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_runaway_holds_a_turn_up_by_a_bounded_number_of_lines(name: str) -> None:
    space = space_with(HOSTILE[name])
    space.commit("a", [(ASSERT, n, Record("n", n)) for n in range(150)], 0)
    assert suspended(space) == {}
    lines = lines_of(lambda: space.commit("b", [(ASSERT, 1, Record("go", 1))], 0))
    assert "more than 2020 units of work in one turn, limits derive_work=2000" in suspended(space)["r0"]
    assert lines < 30 * 2_020


@pytest.mark.slow
def test_a_hundred_runaways_hold_a_turn_up_no_longer_than_a_few() -> None:
    texts = [f"p{n}($a, $b) <- go(_), n($a), n($b). fine{n}($x) <- n($x), $x < 0." for n in range(100)]
    space = space_with(*texts, "fine($x) <- n($x), $x < 3.")
    space.commit("a", [(ASSERT, n, Record("n", n)) for n in range(150)], 0)
    program = space.rules.program
    assert program is not None
    before = program.statistics().work
    space.commit("b", [(ASSERT, 1, Record("go", 1))], 0)
    assert len(suspended(space)) == 100
    assert program.statistics().work - before <= ATTEMPTS * (2_020 + 20 * 151)
    assert len(space.matches(Record("fine", Record("$", "x", None, Record("_"))))) == 3


def test_a_turn_of_many_facts_allows_as_much_as_they_need() -> None:
    space = space_with("p($x, $y) <- n($x), m($y).", work=100)
    space.commit("a", [(ASSERT, 0, Record("m", 1))], 0)
    space.commit("a", [(ASSERT, n, Record("n", n)) for n in range(1, 2_001)], 0)
    assert suspended(space) == {} and len(space.claims(RULES)) == 2_000
    space.commit("a", [(RETRACT, n) for n in range(1, 2_001)], 0)
    assert suspended(space) == {} and len(space.claims(RULES)) == 0


def test_a_rule_that_comes_late_may_do_more_for_each_fact_that_it_reads() -> None:
    space = Space("main", limits=SpaceLimits(derive_work=100))
    space.commit("a", [(ASSERT, n, Record("n", n)) for n in range(2_000)], 0)
    space.commit("b", [(ASSERT, 0, Record("rule", "fine", "p($x) <- n($x), $x > 9."))], 0)
    assert suspended(space) == {} and len(space.claims(RULES)) == 1_990
    space.commit("b", [(ASSERT, 1, Record("rule", "bad", "q($x, $y) <- n($x), n($y)."))], 0)
    assert suspended(space).keys() == {"bad"} and len(space.claims(RULES)) == 1_991


def test_a_component_that_has_to_be_made_anew_may_do_again_what_it_did() -> None:
    copies = " ".join([f"p{n}($x) <- n($x)." for n in range(5)])
    space = space_with(f"{copies} sum($x) <- p0($x).", "bad(1 / $x) <- p0($x).", work=100)
    for n in range(1, 501):
        space.commit("a", [(ASSERT, n, Record("n", n))], 0)
    assert suspended(space) == {}
    space.commit("b", [(ASSERT, 0, Record("n", 0))], 0)
    assert suspended(space).keys() == {"r1"}
    assert len(space.claims(RULES)) == 6 * 501 + 1


def test_a_start_may_do_what_many_turns_did() -> None:
    space = space_with("p($x, $y) <- n($x), n($y).", work=600, per_action=1)
    for n in range(60):
        space.commit("a", [(ASSERT, n, Record("n", n))], 0)
    assert suspended(space) == {} and len(space.claims(RULES)) == 3_600
    again = Space("main", limits=space.limits)
    again.restore({owner: dict(space.claims(owner)) for owner in space.owners()}, space.epoch, 0)
    assert again.advance(0) is None
    assert suspended(again) == {} and len(again.claims(RULES)) == 3_600


def test_what_next_leaves_for_a_tick_is_allowed_by_the_turn_that_caused_it() -> None:
    space = space_with("next(p($x)) <- n($x).", "q($x) <- p($x).", work=100)
    space.commit("a", [(ASSERT, n, Record("n", n)) for n in range(2_000)], 0)
    space.commit("other", [(ASSERT, 0, Record("other", 0))], 0)
    assert suspended(space) == {} and len(space.claims(RULES)) == 4_000


def test_ticks_that_next_causes_without_end_are_bounded_by_their_work_as_well() -> None:
    space = space_with("next(m($n + 1)) <- m($n). m(0) <- go(_).", "q($n, $x) <- m($n), x($x).", work=1_000)
    space.commit("a", [(ASSERT, n, Record("x", n)) for n in range(200)], 0)
    space.commit("b", [(ASSERT, 0, Record("go", 1))], 0)
    ticks = 0
    while space.rules.pending:
        space.advance(0)
        ticks += 1
    assert 100 <= ticks < 400
    assert "caused by next alone, took more than 100000 units of work" in suspended(space)["r0"]


def test_what_many_turns_have_led_to_may_go_in_one() -> None:
    keep = "next(seen($x)) <- n($x). next(seen($x)) <- seen($x), not forget(_)."
    space = space_with(
        keep, "old($x) <- seen($x), not n($x).", "pair($x, $y) <- seen($x), m($y).", work=1_000
    )
    space.commit("b", [(ASSERT, n, Record("m", n)) for n in range(5)], 0)
    for n in range(500):
        space.commit("a", [(ASSERT, n, Record("n", n))], 0)
        space.commit("a", [(RETRACT, n)], 0)
        space.advance(0)
    assert suspended(space) == {} and len(space.claims(RULES)) == 500 + 500 + 2_500
    space.commit("a", [(ASSERT, 0, Record("forget", 1))], 0)
    while space.rules.pending:
        space.advance(0)
    assert suspended(space) == {} and len(space.claims(RULES)) == 0


# -- the law -----------------------------------------------------------------------------------------

HEADS = ("p($x, $y)", "q($x)", "p($y, $x)", "n($x + 1)", "n($y)", "s(sum($x))")
BODIES = ("n($x), n($y)", "p($x, $y)", "p($x, $z), p($z, $y)", "q($x), n($y), not off($y)", "n($x), $y = $x")
texts = st.lists(
    st.builds(lambda head, body: f"{head} <- {body}.", st.sampled_from(HEADS), st.sampled_from(BODIES)),
    min_size=1,
    max_size=4,
)
turns = st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=12), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=200 * ROUNDS or 40, deadline=None)
@given(texts, turns, st.integers(50, 2_000))
def test_whatever_rules_there_are_a_turn_does_bounded_work_and_what_holds_follows(
    texts: list[str], turns: list[set[int]], work: int
) -> None:
    space = space_with(*texts, work=work)
    claimed: dict[int, Value] = {}
    for turn in turns:
        program = space.rules.program
        assert program is not None
        done, held = program.statistics().work, len(space.claims(RULES)) + len(claimed)
        actions: list[Action] = [
            (RETRACT, n) if n in claimed else (ASSERT, n, Record("n", n)) for n in sorted(turn)
        ]
        space.commit("a", actions, 0)
        for n in turn:
            if claimed.pop(n, None) is None:
                claimed[n] = Record("n", n)
        allowed = work + 20 * (len(turn) + held)
        assert program.statistics().work - done <= ATTEMPTS * allowed
        rules = [rule for entry in program.entries.values() if not entry.error for rule in entry.rules]
        known: Facts = {key(each): each for each in claimed.values()}
        for _ in range(40):
            more = follow(rules, known.values(), rounds=1)
            if more.keys() == known.keys():
                break
            known = more
        derived = [each for each in space.claims(RULES).values() if each.label != "rule-error"]  # type: ignore[union-attr]  # records all
        assert {key(each) for each in (*derived, *claimed.values())} == known.keys()


def test_rules_that_come_may_read_so_many_facts_in_one_turn_and_no_more() -> None:
    facts: list[Value] = [Record("reading", n, n % 7) for n in range(100)]
    facts += [Record("other", n) for n in range(10)]
    program = Program(lambda: facts, bounds=Bounds(reads=99))
    said = program.add("all", "hot($x) <- reading($x, 6).")
    assert not said.added
    (entry,) = program.entries.values()
    assert entry.error.startswith("100 facts to be read in one turn, limit limits.rule_reads=99: raise it")
    assert len(program.add("few", "few($x) <- other($x).").added) == 10, (
        "what it does not ask for does not count"
    )
    program.tick((), facts[:1])
    assert len(program.resume(["all"]).added) == 14
    assert not program.has_errors


def test_what_is_read_counts_once_in_a_turn_and_not_again_where_it_has_been_read() -> None:
    facts: list[Value] = [Record("reading", n, n % 7) for n in range(60)]
    facts += [Record("other", n) for n in range(30)]
    program = Program(lambda: facts, bounds=Bounds(reads=99))
    program.change([(f"r{n}", f"a{n}($x) <- reading($x, $y), $y > {n}.") for n in range(5)], [])
    assert not program.has_errors
    program.change([("again", "b($x) <- reading($x, $y)."), ("other", "c($x) <- other($x).")], [])
    program.change([("more", "d($x) <- reading($x, 5). e($x) <- other($x), reading($x, 4).")], [])
    assert [entry.name for entry in program.entries.values() if entry.error] == ["more"]


def test_a_start_reads_all_there_is() -> None:
    facts: list[Value] = [Record("reading", n, n % 7) for n in range(100)]
    program = Program(lambda: facts, bounds=Bounds(reads=9), start=True)
    assert len(program.add("all", "hot($x) <- reading($x, 6).").added) == 14
