"""A handler that is filled in steps holds what one holds that was there before, whatever comes between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from index.patterns.patterns import DISCARD, capture, discard, skeleton
from index.trie.trie import Index
from index.values.values import Map, Record, Value, key, keys

X = capture("x")
PATTERNS: list[Value] = [
    Record("p", X, DISCARD),
    Record("p", DISCARD, X),
    Record("p", X, 1),
    Record("p", 1, X),
    Record("p", X, X),
    Record("p", Record("q", X), DISCARD),
    Record("p", Record("q", DISCARD), X),
    X,
    discard("record"),
]
parts: st.SearchStrategy[Value] = st.sampled_from([0, 1, 2, Record("q", 1), Record("q", 2), Map({"k": 1})])
facts = st.one_of(st.builds(Record, st.just("p"), parts, parts), parts)
limits = st.sampled_from([16, 0, 1])
"""Forms of a label in the trie, and leaves of a form in a net, before others go elsewhere."""
steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "patch", "swap", "fill", "other", "reset"]), facts, facts),
    max_size=25,
)


def _rows(index: Index, pattern: Value) -> dict[object, int]:
    form = skeleton(pattern)
    return {keys(row): index.row_count(form, row) for row in index.matches(form)}


@settings(max_examples=400, deadline=None)
@given(st.lists(facts, min_size=1, max_size=12), st.permutations(PATTERNS), steps, limits, limits)
def test_it_holds_what_it_would_hold_had_it_been_there_from_the_start(
    before: list[Value],
    order: list[Value],
    done: list[tuple[str, Value, Value]],
    in_trie: int,
    in_net: int,
) -> None:
    """Three handlers are filled at a time; in the other index they are installed before anything is there."""
    index, other, some = Index(in_trie=in_trie, in_net=in_net), Index(), order[:3]
    for pattern in some:
        other.add_handler(skeleton(pattern), lambda _event, _row: None)
    index.add_handler(skeleton(order[3]), lambda _event, _row: None)
    for fact in before:
        index.add(fact)
        other.add(fact)
    for pattern in some:
        index.fill(skeleton(pattern), 1)
    for step, fact, second in done:
        if step == "fill":
            for pattern in some:
                index.fill(skeleton(pattern), 1)
        elif step == "other":  # in the same places, and in others
            index.add_handler(skeleton(order[4]), ear := _Ear())
            index.remove_handler(skeleton(order[4]), ear)
        else:
            for each in (index, other):
                _change(each, step, fact, second)
    for pattern in some:
        while not index.fill(skeleton(pattern), 1):
            pass
        index.add_handler(skeleton(pattern), lambda _event, _row: None, tells=False)
    index.check()
    for pattern in some:
        assert _rows(index, pattern) == _rows(other, pattern)
    for value in list(index.values()):
        for _ in range(index.count(value)):
            index.remove(value)
    index.check()
    assert [index.matches(skeleton(pattern)) for pattern in some] == [[]] * 3


class _Ear:
    def __call__(self, *_heard: object) -> None:
        """Hears nothing."""


def _change(index: Index, step: str, fact: Value, second: Value) -> None:
    there = {key(each) for each in index.values()}
    if step == "add":
        index.add(fact)
    elif step == "remove" and key(fact) in there:
        index.remove(fact)
    elif step == "patch":
        index.patch([second], [fact] if key(fact) in there else [], [fact])
    elif step == "swap" and key(fact) in there:
        index.replace(second, fact)
    elif step == "reset":
        index.reset([each for each in index.values() for _ in range(index.count(each))])


@pytest.mark.parametrize(
    "use",
    [
        lambda index, form: index.matches(form),
        lambda index, form: index.add_handler(form, _Ear()),
        lambda index, _form: index.check(),
    ],
)
def test_what_is_used_before_its_time_is_filled_at_once(use: Callable[[Index, object], object]) -> None:
    index, form = Index(), skeleton(Record("p", X))
    for n in range(10):
        index.add(Record("p", n))
    assert not index.fill(form, 3) and not index.fill(form, 3)
    use(index, form)
    assert index.fill(form, 1) and len(index.matches(form)) == 10


def test_what_is_dropped_leaves_nothing_behind() -> None:
    index, form = Index(), skeleton(Record("p", Record("q", X)))
    for n in range(10):
        index.add(Record("p", Record("q", n)))
    before = index.statistics()
    index.fill(form, 3)
    assert index.statistics() != before
    index.drop_idle(form)
    index.drop_idle(form)
    assert index.statistics() == before
    index.remove(Record("p", Record("q", 3)))
    index.check()
    assert not index.fill(form, 100) and not index.fill(form, 100) and index.fill(form, 100)
    index.add_handler(form, _Ear())
    index.drop_idle(form)
    assert len(index.matches(form)) == 9, "what is used is not dropped"


def test_rows_are_in_the_order_in_which_their_values_appeared() -> None:
    index, form = Index(), skeleton(Record("p", X))
    for n in range(10):
        index.add(Record("p", n))
    index.fill(form, 1)
    index.remove(Record("p", 4))
    while not index.fill(form, 2):
        pass
    assert index.matches(form) == [(n,) for n in range(10) if n != 4]
