"""Functions and other expressions of rules have the values that a second description gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.rules.engine.program import Program
from dataspace.rules.language.evaluating import evaluate
from dataspace.rules.language.functions import FUNCTIONS, MAX_MADE, Function
from dataspace.rules.language.ordering import free
from dataspace.rules.language.parser import read_rule, read_rules
from dataspace.rules.language.syntax import (
    Arithmetic,
    Choice,
    Comparison,
    Compound,
    Expression,
    FunctionCall,
    Head,
    Rule,
    Structure,
    Variable,
)
from dataspace.rules.relations.budgets import Bounds
from index.errors import UsageError
from index.patterns.text import parse
from index.values.values import Map, Record, Value, key
from tests.model.expressions import NoValue, value_of

TEXTS: list[Value] = [
    "",
    "a",
    "b",
    "aXa",
    "ab",
    "1",
    " 2.50 ",
    "-3e2",
    "+4",
    "inf",
    "1_0",
    "Ⅷ",
    "ß",
    "x.5",
    "5.",
]
VALUES: list[Value] = [
    *TEXTS,
    0,
    3,
    -2,
    True,
    2.5,
    -0.5,
    3.0,
    float("inf"),
    None,
    b"ab",
    (),
    ("a", "b"),
    (1, 3, ("a",)),
    Map(),
    Map([("a", 1), (3, 2)]),
    Record("p", "a"),
    datetime(2026, 1, 1, tzinfo=UTC),
]
FEW: list[Value] = ["", "a", "aXa", 1, 2.5, True, ("a",), None]

CALENDARS: frozenset[str] = frozenset(["year", "month", "day", "weekday", "hour", "next"])
"""Functions with a zone, which is a constant of the text: ``test_calendars`` has their values."""

OTHERS = sorted(FUNCTIONS.keys() - CALENDARS)


def expected(expression: Expression, known: dict[str, Value]) -> Value | NoValue:
    try:
        return value_of(expression, known)
    except NoValue as error:
        return error


def arities(function: Function) -> list[int]:
    return [count for count in range(1, 4) if function.takes_count(count)]


@pytest.mark.parametrize("name", OTHERS)
def test_each_function_has_its_value_for_every_few_values(name: str) -> None:
    function = FUNCTIONS[name]
    for count in arities(function):
        names = [f"x{at}" for at in range(count)]
        call = FunctionCall(name, tuple(map(Variable, names)))
        program = Program()
        program.add("r", f"p($n, {call}) <- v($n, {', '.join(f'${each}' for each in names)}).")
        facts: list[Value] = []
        wanted: dict[object, Value] = {}
        for values in product(VALUES if count < 3 else FEW, repeat=count):
            known = dict(zip(names, values, strict=True))
            there = expected(call, known)
            if isinstance(there, NoValue):
                with pytest.raises(UsageError):
                    evaluate(call, known, free)
                continue
            facts.append(Record("v", len(facts), *values))
            fact = Record("p", len(facts) - 1, there)
            wanted[key(fact)] = fact
        assert wanted
        program.tick(facts)
        assert not program.has_errors
        assert {key(each) for each in program.derived()} == set(wanted)
        program.tick((), facts)
        assert program.size() == 0


@pytest.mark.parametrize("name", [each for each in FUNCTIONS if FUNCTIONS[each].takes != ("",)])
def test_a_function_of_a_wrong_value_suspends_its_rule_and_names_it(name: str) -> None:
    function = FUNCTIONS[name]
    given = ["$x", *['"a"' if "text" in each else "1" for each in function.takes[1:]]]
    if name in CALENDARS:
        given[1:] = ['"1 day"', '"UTC"'][-len(given) + 1 :]
    call = f"-{given[0]}" if name == "-" else f"{name}({', '.join(given)})"
    program = Program()
    program.add("r", f"p({call}) <- v($x).")
    program.tick([Record("v", None)])
    (entry,) = program.entries.values()
    assert f"{name} takes" in entry.error and "not None, null" in entry.error
    program.tick((), [Record("v", None)])
    assert not program.has_errors


CONSTANTS: list[Value] = [0, 1, 2.5, "", "a", "aXa", True, ("a",)]
LEAVES: st.SearchStrategy[Expression] = st.one_of(
    st.sampled_from([Variable("x"), Variable("y"), Variable("z")]),
    st.sampled_from([Structure(each) for each in CONSTANTS]),
)


def _grown(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    comparison = st.builds(Comparison, st.sampled_from(["=", "!=", "<", ">="]), inner, inner)
    calls = st.sampled_from(OTHERS).flatmap(
        lambda name: st.builds(
            FunctionCall,
            st.just(name),
            st.tuples(
                *[inner] * max(each for each in arities(FUNCTIONS[name]) if each < 3 or name == "replace")
            ),
        )
    )
    return st.one_of(
        calls,
        st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner),
        st.builds(Choice, comparison, inner, inner),
        st.builds(Compound, st.just("sequence"), st.tuples(inner, inner)),
        st.builds(Compound, st.just("record"), st.tuples(inner), st.sampled_from(["p", "len"])),
        st.builds(Compound, st.just("map"), st.tuples(inner, inner)),
    )


EXPRESSIONS = st.recursive(LEAVES, _grown, max_leaves=8)
ROWS = st.lists(st.tuples(*[st.sampled_from([0, -2, 1.5, "", "a", "aXa", ("a", "b"), True])] * 3), max_size=4)


@pytest.mark.slow
@settings(max_examples=150)
@given(EXPRESSIONS, ROWS)
def test_an_expression_has_its_value_in_heads_and_where_it_binds(
    expression: Expression, rows: list[tuple[Value, Value, Value]]
) -> None:
    head = Head("p", (*map(Variable, "xyz"), expression))
    body = (read_rule("a() <- v($x, $y, $z).").body[0],)
    text = str(Rule(head, body))
    try:
        (rule,) = read_rules(text)
    except UsageError:
        return  # something in it could never be calculated, or is no map
    assert read_rules(str(rule)) == (rule,)
    bound = str(
        Rule(Head("p", tuple(map(Variable, "xyzw"))), (*body, Comparison("=", Variable("w"), expression)))
    )
    facts = {key(each): each for each in [Record("v", *row) for row in rows]}
    known = [dict(zip("xyz", fact.fields, strict=True)) for fact in facts.values()]
    values = [expected(expression, each) for each in known]
    for each in (text, bound):
        program = Program()
        program.add("r", each)
        program.tick(list(facts.values()))
        if any(isinstance(value, NoValue) for value in values):
            assert program.has_errors and not program.derived()
        else:
            wanted = [Record("p", *row.values(), value) for row, value in zip(known, values, strict=True)]
            assert not program.has_errors
            assert set(map(key, program.derived())) == set(map(key, wanted))
        program.tick((), list(facts.values()))
        assert program.derived() == [] and program.size() == 0 and not program.has_errors


def test_only_one_branch_of_a_choice_is_calculated() -> None:
    program = Program()
    program.add("r", 'p($x, if($x != 0, 12 // $x, 0)) <- v($x). q(if(starts($t, "a"), 1, 2)) <- t($t).')
    program.tick([Record("v", 0), Record("v", 4), Record("t", "ab")])
    assert not program.has_errors
    assert {key(each) for each in program.derived()} == {
        key(parse(each)) for each in ("p(0, 0)", "p(4, 3)", "q(1)")
    }


@pytest.mark.parametrize(
    ("text", "fact", "reason"),
    [
        ('p(replace($x, "a", "bbbbbbbb")) <- v($x).', Record("v", "a" * 10_000), f"limit {MAX_MADE}"),
        ('p(join(split($x, "a"), "bbbbbbbb")) <- v($x).', Record("v", "a" * 10_000), f"limit {MAX_MADE}"),
        ("p(upper($x)) <- v($x).", Record("v", "a" * (MAX_MADE + 1)), f"limit {MAX_MADE}"),
        ("p(number($x)) <- v($x).", Record("v", "9" * 641), "number reads no number"),
        ("p(floor($x)) <- v($x).", Record("v", float("inf")), "floor: cannot convert"),
        ("p({$x: 1, 1: 2}) <- v($x).", Record("v", 1), "only 1 different keys"),
    ],
)
def test_what_a_function_makes_is_bounded(text: str, fact: Value, reason: str) -> None:
    program = Program()
    program.add("r", text)
    program.tick([fact])
    (entry,) = program.entries.values()
    assert reason in entry.error


def test_what_a_function_reads_is_paid_for() -> None:
    program = Program(bounds=Bounds(work=5_000, work_per_action=0))
    program.add("r", 'p($n) <- v($n, $t), contains($t, "b") = true.')
    assert not program.tick([Record("v", 1, "a" * 100_000)]) and not program.has_errors
    program.tick([Record("v", n, "a" * 100_000) for n in range(2, 9)])
    (entry,) = program.entries.values()
    assert "more than 5000 units of work in one turn" in entry.error
