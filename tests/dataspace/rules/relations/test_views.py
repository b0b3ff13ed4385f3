"""What a view takes of facts is what its pattern matches, written out or not."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.rules.language.syntax import Atom
from dataspace.rules.relations.base_facts import BaseFacts, FactReader
from dataspace.rules.relations.views import View, form_of
from index.patterns.patterns import matcher
from index.values.positions import class_of
from index.values.values import Record, Value, keys
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


@given(st.data(), st.one_of(simple, patterns))
def test_rows_are_the_captures_of_facts_that_are_claimed(data: st.DataObject, pattern: Value) -> None:
    base_facts: BaseFacts[FactReader] = BaseFacts()
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


@given(st.lists(values, max_size=5))
def test_a_view_that_comes_late_has_the_rows_of_all_facts(facts: list[Value]) -> None:
    base_facts: BaseFacts[FactReader] = BaseFacts()
    base_facts.keep(facts)
    view = View(form_of(Atom(Record("$", "x", None, Record("_"))), everything=False))
    base_facts.share(view)
    assert view.states.keys() == {base_facts.terms.row((fact,)) for fact in facts}
