"""Groups of literals hold as the naive evaluator says, whatever comes and goes, and explain themselves."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.rules.engine.program import Program
from dataspace.rules.language.groups import ungrouped
from dataspace.rules.language.parser import read_rules
from dataspace.rules.relations.budgets import Bounds
from index.errors import UsageError
from index.patterns.text import parse
from index.values.values import Record, Value, key
from tests.model.rules import follow

INSIDE = [
    "a($x)",
    "not b($x)",
    "$x > 1",
    "c($x, $y)",
    "c(_, $x)",
    "not c($x, $x)",
    "$y = $x",
    "not (c($x, $z), b($z))",
    "count() of (c($x, _)) >= 2",
    "(b($x) or c($x, $x))",
    "$y in [$x, 2, 2]",
]
FORMS = {
    "or": "p($x) <- n($x), ({0} or {1}).",
    "or alone": "p($x) <- ({0} or {1}).",
    "or counted": "p($x, count()) <- n($x), ({0} or {1}).",
    "or beside a count": "p($k) <- ({0} or {1}), count() of (c($x, _)) = $k.",
    "or beside a not": "p(1) <- not (c($x, $x), b($x)), ({0} or {1}).",
    "or with another": "p($x, $y) <- c($x, $y), ({0} or {1}).",
    "not": "p($x) <- n($x), not ({0}, {1}).",
    "not of two": "p($x, $y) <- c($x, $y), not ({0}, {1}).",
    "count": "p($x, $k) <- n($x), count() of ({0}, {1}) = $k.",
    "count by": "p($k, $x) <- $k = count() of ({0}, {1}).",
    "sum": "p($x) <- n($x), sum($x) of ({0}, {1}) > 2.",
}
FACTS: list[Value] = [
    *[Record(label, n) for label in "nab" for n in range(3)],
    *[Record("c", n, m) for n in range(3) for m in range(3)],
]


def hold(text: str, seed: int, ticks: int) -> bool:
    """Runs a random history; returns False if the rule is refused."""
    try:
        rules = read_rules(text)
    except UsageError:
        return False
    assert read_rules(" ".join(map(str, rules))) == rules
    rng = random.Random(seed)
    program = Program()
    told = {key(each): each for each in program.add("r", text).added}
    there: dict[object, Value] = {}
    for _ in range(ticks):
        changed = rng.sample(FACTS, rng.choice([1, 1, 2, 5]))
        removed = [each for each in changed if key(each) in there]
        added = [each for each in changed if key(each) not in there]
        for each in removed:
            del there[key(each)]
        there.update((key(each), each) for each in added)
        derived = program.tick(added, removed)
        told.update((key(each), each) for each in derived.added)
        for each in derived.removed:
            del told[key(each)]
        assert not program.has_errors, [each.error for each in program.entries.values()]
        wanted = set(follow(rules, there.values())) - set(there)
        assert set(told) == wanted == {key(each) for each in program.derived()}, text
    return True


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_two_literals_in_a_group(form: str) -> None:
    read = sum(hold(FORMS[form].format(one, other), 1, 8) for one, other in product(INSIDE, INSIDE))
    assert read >= 15


LITERALS = st.recursive(
    st.sampled_from(
        ["a($x)", "b($x)", "c($x, $y)", "c($y, _)", "not a($y)", "not b($x)", "$x < $y", "$x in [1, $y, 1]"]
    ),
    lambda inner: st.one_of(
        st.builds("({0}, {1} or {2})".format, inner, inner, inner),
        st.builds("({0} or {1} or {2})".format, inner, inner, inner),
        st.builds("not ({0}, {1})".format, inner, inner),
        st.builds("count() of ({0}, {1}) = 1".format, inner, inner),
        st.builds("max($y) of ({0}, {1}) > $x".format, inner, inner),
        st.builds("count(distinct $y) of ({0}, {1}) = $y".format, inner, inner),
    ),
    max_leaves=6,
)
HEADS = ["p($x)", "p($y, $x)", "p($x, count())", "p(sum($y), $x)"]


@pytest.mark.slow
@settings(max_examples=100)
@given(st.sampled_from(HEADS), st.lists(LITERALS, min_size=1, max_size=3), st.integers(0, 9))
def test_random_groups_in_groups(head: str, body: list[str], seed: int) -> None:
    hold(f"{head} <- n($x), n($y), {', '.join(body)}.", seed, 6)


def test_a_literal_beside_a_group_gives_its_branches_what_they_compare() -> None:
    (rule,) = read_rules("p($x) <- q($x, $n), ($n > 3 or vip($x)).")
    main, *branches = ungrouped(rule)
    assert str(main) == "p($x) <- q($x, $n), ($n > 3 or vip($x))."
    assert [str(each).partition(" <- ")[2] for each in branches] == [
        "q($x, $n), $n > 3.",
        "q($x, $n), vip($x).",
    ]


def tell(text: str, *facts: str) -> Program:
    program = Program()
    program.add("r", text)
    program.tick([parse(each) for each in facts])
    assert not program.has_errors, [each.error for each in program.entries.values()]
    return program


def test_why_shows_the_branch_that_holds() -> None:
    program = tell(
        "p($x) <- q($x, $n), ($n > 3, big($x) or not poor($x)).", "q(1, 2)", "q(2, 5)", "big(2)", "poor(2)"
    )
    assert str(program.explainer().why(parse("p(1)"))).splitlines() == [
        "p(1)    by p($x) <- q($x, $n), ($n > 3, big($x) or not poor($x)).",
        "    q(1, 2)    claimed",
        "    (2 > 3, big(1) or not poor(1))    holds",
        "        q(1, 2)    claimed",
        "        not poor(1)",
    ]
    assert "big(2)    claimed" in str(program.explainer().why(parse("p(2)")))


def test_why_shows_what_is_not_there_and_what_is_counted() -> None:
    program = tell(
        "p($x, $k) <- q($x), not (r($x, $y), s($y)), count($z) of (t($x, $z)) = $k.",
        "q(1)",
        "r(1, 2)",
        "t(1, 5)",
        "t(1, 6)",
    )
    lines = str(program.explainer().why(parse("p(1, 2)"))).splitlines()
    assert [*lines[:3], *sorted(lines[3:5]), *lines[5:]] == [
        "p(1, 2)    by p($x, $k) <- q($x), not (r($x, $y), s($y)), count($z) of (t($x, $z)) = $k.",
        "    q(1)    claimed",
        "    count($z) of (t(1, $z)) = 2    holds",
        "        t(1, 5)    claimed",
        "        t(1, 6)    claimed",
        "    not (r(1, $y), s($y))",
    ]


def test_why_not_says_what_each_branch_lacks() -> None:
    program = tell(
        "p($x) <- q($x), (a($x) or b($x)), not (c($x, $y), d($y)).", "q(1)", "q(2)", "a(2)", "c(2, 3)", "d(3)"
    )
    explainer = program.explainer()
    assert (
        "(a(1) or b(1)) does not hold: no match of a($x)  with $x = 1; no match of b($x)"
        in explainer.why_not(parse("p(1)"))
    )
    assert "(c(2, $y), d($y)) holds" in explainer.why_not(parse("p(2)"))
    program = tell("p($x) <- q($x), count() of (t($x, _)) > 1.", "q(1)", "t(1, 1)")
    assert "$value-1 > 1 does not hold" in program.explainer().why_not(parse("p(1)"))


def test_explain_and_monotone_name_groups_and_hide_their_heads() -> None:
    program = tell("p($x) <- q($x), (a($x) or not b($x)).", "q(1)")
    said = program.explainer().description.explain()
    assert "p($x) <- q($x), (a($x) or not b($x))." in said and "[" not in said.split("\n\n")[1]
    assert "not monotone: waits for all of not b($x)" in program.explainer().description.monotonicity()


def test_elements_are_gone_through_once_each_or_asked_for() -> None:
    program = tell(
        "p($x, $y) <- q($x, $l), $y in $l. t($x) <- q($x, $l), r($y), $y in $l. m($k, $v) <- s($m),"
        " $k: $v in $m.",
        "q(1, [2, 2, 3.0, [2]])",
        "q(2, [])",
        "r(3)",
        "r([2])",
        's({"a": 1, 2: null})',
    )
    wanted = ["p(1, 2)", "p(1, 3.0)", "p(1, [2])", "t(1)", 'm("a", 1)', "m(2, null)"]
    assert {key(each) for each in program.derived()} == {key(parse(each)) for each in wanted}
    lines = str(program.explainer().why(parse("p(1, [2])"))).splitlines()
    assert lines[1:] == ["    q(1, [2, 2, 3.0, [2]])    claimed"]
    assert "$y in $l does not hold  with $x = 2, $y = 1" in program.explainer().why_not(parse("p(2, 1)"))
    assert "$y in $l" in program.explainer().description.explain()


def test_what_has_no_elements_fails_only_where_the_rest_of_the_body_holds() -> None:
    text = "p($x, $y) <- q($x, $l), $y in $l, a($y). r($x) <- q($x, $l), $n in $l, $n > 2, 1 / ($x - 1) > 0."
    program = tell("n(1) <- q(0, 0).", "q(0, [])", "a(1)")
    program.add("s", text)
    assert not program.has_errors
    program.tick([parse("q(1, [1, 2])")])
    assert not program.has_errors, "no element is above 2, so nothing is divided by zero"
    program.tick([parse("q(2, 7)")])
    assert "in goes through the elements of a sequence, not 7, a number" in program.entries["s", text].error
    program.tick((), [parse("q(2, 7)")])
    assert not program.has_errors
    program.tick([parse("q(1, [1, 3])")])
    assert "ZeroDivisionError" in program.entries["s", text].error


def test_a_long_sequence_is_paid_for() -> None:
    program = Program(bounds=Bounds(work=5_000, work_per_action=0))
    program.add("r", "p($y) <- q($l), $y in $l, $y < 0.")
    program.tick([Record("q", tuple(range(20_000)))])
    (entry,) = program.entries.values()
    assert "more than 5000 units of work in one turn" in entry.error


def test_a_cycle_through_a_group_is_refused_and_named() -> None:
    program = Program()
    program.add("r", "p($x) <- q($x), not (p($y), q($y)).")
    (entry,) = program.entries.values()
    assert "-!->" in entry.error and "not (p($y), q($y))" in entry.error and "[" not in entry.error


def test_a_failed_calculation_beside_a_group_resumes_when_the_group_ends() -> None:
    program = tell("p(1 / $n) <- q($n), (a($n) or b($n)).", "q(0)")
    program.tick([parse("a(0)")])
    assert program.has_errors
    program.tick((), [parse("a(0)")])
    assert not program.has_errors


def test_a_rule_of_too_many_parts_is_refused() -> None:
    def text(groups: int) -> str:
        compared = ", ".join([f"($n > {n} or c{n}($x))" for n in range(groups)])
        return f"p($x) <- (a($x, $n) or b($x, $n)), {compared}."

    (rule,) = read_rules(text(10))
    assert len(ungrouped(rule)) == 63
    with pytest.raises(UsageError, match="a rule of more than 64 parts: derive some by rules of their own"):
        read_rules(text(11))
