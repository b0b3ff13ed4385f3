"""What a view takes of facts is what its pattern matches, written out or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, strategies as st

from dataspace.errors import UsageError
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.space import Space
from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import Atom
from dataspace.rules.relations.base_facts import BaseFacts
from dataspace.rules.relations.terms import Row
from dataspace.rules.relations.views import View, form_of
from index.patterns.patterns import capture, matcher, skeleton
from index.patterns.text import unparse
from index.values.positions import class_of
from index.values.values import Record, Value, keys
from tests.index.grid import KINDS, judged, nested, wide
from tests.index.strategies import patterns, values_near
from tests.strategies import values

simple = st.builds(
    lambda fields, more: Record("exact", Record("p", *fields)) if more else Record("p", *fields),
    st.lists(
        st.sampled_from([Record("_"), *[Record("$", at, None, Record("_")) for at in "abc"]]), max_size=4
    ),
    st.booleans(),
)
"""Those that are written out, unless a variable is repeated."""


@given(patterns, st.data())
@example(capture(None, "record", capture("who")), None)
@example(capture(None, "null", None), None)
@example(Record("q", capture(None, "record", capture("who"))), None)
def test_a_rule_about_any_pattern_holds_where_it_matches(pattern: Value, data: st.DataObject | None) -> None:
    """In a space, which a body of any form must not end."""
    near = [Record("q"), Record("q", Record("q", None)), None, pattern] if data is None else []
    facts = data.draw(st.lists(values_near(pattern), max_size=4)) if data is not None else near
    rule = f"hit() <- {unparse(pattern)}."
    try:
        read_rules(rule)
    except UsageError:
        assume(False)
    space = Space("main")
    space.commit("o", [(ASSERT, 1, Record("rule", "r", rule))], 1)
    match = matcher(pattern)
    for n, fact in enumerate(facts):
        try:
            space.commit("o", [(ASSERT, 2 + n, fact)], 1)
        except UsageError:  # too deep to be a fact
            assume(False)
        hits = any(match(each) is not None for each in facts[: n + 1])
        assert bool(space.matches(Record("hit"))) == hits
    assert not space.matches(Record("rule-error"))


@given(patterns, st.booleans())
@example(capture("f", None, Record("a", capture("x"))), False)
@example(capture(None, "record", capture("who")), True)
def test_the_names_of_columns_are_in_the_order_in_which_captures_are_read(
    pattern: Value, everything: bool
) -> None:
    form = form_of(Atom(pattern), everything=everything)
    read = [name for name in skeleton(form.pattern).names if name is not None]
    assert read == [f"v{at}" for at in range(len(form.names))]


@given(st.data(), st.one_of(simple, patterns))
def test_rows_are_the_captures_of_facts_that_are_claimed(data: st.DataObject, pattern: Value) -> None:
    base_facts: BaseFacts[None] = BaseFacts()
    form = form_of(Atom(pattern), everything=False)
    view = View(form)
    base_facts.share(view)
    claimed: dict[object, Value] = {}
    for value in data.draw(st.lists(st.one_of(values_near(pattern), values), max_size=6)):
        if keys((value,)) in claimed:
            base_facts.change([], [value])
            del claimed[keys((value,))]
        else:
            base_facts.change([value], [])
            claimed[keys((value,))] = value
        match = matcher(form.pattern)
        rows = [row for fact in claimed.values() if (row := match(fact)) is not None]
        assert view.states.keys() == {base_facts.terms.row(row) for row in rows}
        assert sum(state[0] for state in view.states.values()) == len(rows)
    assert view.root is None or all(view.root == class_of(fact) for fact in claimed.values() if match(fact))


@pytest.mark.parametrize("of", [nested, wide])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_as_the_oracle_says_for_all_small_patterns(
    kind: str, of: Callable[[str], tuple[list[Value], list[Value]]]
) -> None:
    """Every seventh of the patterns; each view gets the facts one by one, and at once."""
    some, facts = of(kind)
    first = KINDS.index(kind)
    for pattern in some[first::7]:
        form = form_of(Atom(pattern), everything=False)
        late: BaseFacts[None] = BaseFacts()
        few = facts[first :: 1 + len(facts) // 150]
        view, base_facts = View(form), BaseFacts[None]()
        base_facts.share(view)
        base_facts.change(few, [])
        late.keep(few)
        late.share(other := View(form))
        ((_, rows),) = judged([form.pattern], few)
        assert {keys(_values(row)) for row in view.states} == {*rows.values()}, pattern
        assert {keys(_values(row)) for row in other.states} == {*rows.values()}, pattern
        base_facts.change([], few)
        assert not view.states


def _values(row: Row) -> tuple[Value, ...]:
    return tuple([term.value for term in row])


@given(st.lists(values, max_size=5))
def test_a_view_that_comes_late_has_the_rows_of_all_facts(facts: list[Value]) -> None:
    base_facts: BaseFacts[None] = BaseFacts()
    base_facts.keep(facts)
    view = View(form_of(Atom(Record("$", "x", None, Record("_"))), everything=False))
    base_facts.share(view)
    assert view.states.keys() == {base_facts.terms.row((fact,)) for fact in facts}
