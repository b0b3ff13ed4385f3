"""The index agrees with matching every pattern against every value, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from index.errors import UsageError
from index.patterns import DISCARD, capture, discard, exact, lit, matcher, skeleton
from index.trie import Event, Index
from index.values import Map, Record, Value, key, keys

Captures = tuple[Value, ...]
Heard = list[tuple[str, Captures]]

small: st.SearchStrategy[Value] = st.sampled_from([0, 1, True, 1.0, "a", "b", None, b"a"])
labels = st.sampled_from(["p", "q", 1])


def _compounds(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.builds(lambda label, fields: Record(label, *fields), labels, st.lists(inner, max_size=3)),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["k", "l"]), inner, max_size=2).map(Map),
    )


facts = st.recursive(small, _compounds, max_leaves=5)


def _patterns(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        _compounds(inner),
        st.builds(lambda sub: capture(None, None, sub), inner),
        st.builds(exact, _compounds(inner)),
    )


patterns = st.recursive(
    st.one_of(
        small,
        st.just(DISCARD),
        st.just(capture()),
        st.just(capture("x")),
        st.sampled_from(["int", "str", "record", "seq", "map", "null"]).map(discard),
        facts.map(lit),
    ),
    _patterns,
    max_leaves=5,
)


class _Ear:
    """A callback that remembers what it heard."""

    def __init__(self) -> None:
        self.heard: Heard = []

    def __call__(self, event: Event, captures: Captures) -> None:
        self.heard.append((event.value, captures))

    def take(self) -> list[tuple[str, object]]:
        heard, self.heard = self.heard, []
        return [(event, keys(captures)) for event, captures in heard]


class IndexMachine(RuleBasedStateMachine):
    """The index beside a bag of values, a list of patterns, and one matcher for each."""

    @initialize()
    def begin(self) -> None:
        self.index = Index()
        self.bag: dict[object, list[Value]] = {}
        self.handlers: list[tuple[Value, Callable[[Value], Captures | None], _Ear]] = []

    def _told(self, match: Callable[[Value], Captures | None]) -> set[object]:
        rows = (match(copies[0]) for copies in self.bag.values())
        return {keys(row) for row in rows if row is not None}

    @rule(added=st.lists(facts, max_size=3), picks=st.lists(st.integers(0, 9), max_size=3), said=facts)
    def patch(self, added: list[Value], picks: list[int], said: Value) -> None:
        present = [value for copies in self.bag.values() for value in copies]
        removed = [present[at] for at in sorted({pick for pick in picks if pick < len(present)})]
        before = [(ear, match, self._told(match)) for _, match, ear in self.handlers]
        self.index.patch(added, removed, [said])
        for value in added:
            self.bag.setdefault(key(value), []).append(value)
        for value in removed:
            self.bag[key(value)].pop()
            if not self.bag[key(value)]:
                del self.bag[key(value)]
        for ear, match, was in before:
            now, row, heard = self._told(match), match(said), ear.take()
            messages = [] if row is None else [("!", keys(row))]
            assert sorted(map(repr, heard)) == sorted(
                map(repr, [("+", at) for at in now - was] + messages + [("-", at) for at in was - now])
            )
            order = [event for event, _ in heard]
            assert order == sorted(order, key="+!-".index)

    @rule(pattern=patterns)
    def listen(self, pattern: Value) -> None:
        ear, match = _Ear(), matcher(pattern)
        self.index.add_handler(skeleton(pattern), ear)
        self.handlers.append((pattern, match, ear))
        assert sorted(map(repr, ear.take())) == sorted(repr(("+", at)) for at in self._told(match))
        assert {keys(row) for row in self.index.matches(skeleton(pattern))} == self._told(match)

    @rule(pattern=patterns)
    def look(self, pattern: Value) -> None:
        assert {keys(row) for row in self.index.matches(skeleton(pattern))} == self._told(matcher(pattern))

    @rule(pick=st.integers(0, 5))
    def stop_listening(self, pick: int) -> None:
        if pick < len(self.handlers):
            pattern, match, ear = self.handlers.pop(pick)
            held: list[Captures] = []
            self.index.remove_handler(skeleton(pattern), ear)
            self.index.add_handler(skeleton(pattern), ear, cleanup=held.extend)
            ear.take()
            self.index.remove_handler(skeleton(pattern), ear)
            assert {keys(row) for row in held} == self._told(match)

    @invariant()
    def everything_holds(self) -> None:
        self.index.check()
        assert len(self.index) == len(self.bag)

    def teardown(self) -> None:
        for pattern, _, ear in self.handlers:
            self.index.remove_handler(skeleton(pattern), ear)
        for copies in self.bag.values():
            for value in copies:
                self.index.remove(value)
        self.index.check()
        left = self.index.statistics()
        assert (left.values, left.nodes, left.groups, left.leaves, left.handlers) == (0, 1, 0, 0, 0)


IndexMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=15, deadline=None)
TestIndexMachine = IndexMachine.TestCase


@given(facts, patterns)
def test_one_value_and_one_pattern_meet_in_the_index_as_in_the_matcher(fact: Value, pattern: Value) -> None:
    index, ear = Index(), _Ear()
    index.add_handler(skeleton(pattern), ear)
    index.add(fact)
    row = matcher(pattern)(fact)
    assert ear.take() == ([] if row is None else [("+", keys(row))])


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_removing_what_is_not_there_is_refused_and_changes_nothing(copies: int) -> None:
    index, ear = Index(), _Ear()
    index.add_handler(skeleton(Record("p", capture())), ear)
    for _ in range(copies):
        index.add(Record("p", 1))
    ear.take()
    with pytest.raises(UsageError, match=r"not there|but there"):
        index.patch([Record("p", 2)], [Record("p", 1)] * (copies + 1))
    with pytest.raises(UsageError, match="not there"):
        index.remove(Record("q", 1))
    assert (ear.take(), index.count(Record("p", 1)), index.count(Record("p", 2))) == ([], copies, 0)
    index.check()


def test_a_replacement_in_one_patch_does_not_blink() -> None:
    index, ear = Index(), _Ear()
    index.add_handler(skeleton((DISCARD,)), ear)
    index.add((3,))
    assert ear.take() == [("+", ())]
    index.patch([(4,)], [(3,)])
    assert ear.take() == []


def test_a_handler_is_installed_once_and_removed_once() -> None:
    index, ear, form = Index(), _Ear(), skeleton(Record("p", capture()))
    index.add_handler(form, ear)
    with pytest.raises(UsageError, match="installed"):
        index.add_handler(form, ear)
    index.remove_handler(form, ear)
    with pytest.raises(UsageError, match="not installed"):
        index.remove_handler(form, ear)
