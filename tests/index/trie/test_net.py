"""Many forms of patterns of one label are met as a few are, and a value costs those that it may meet."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice, permutations, product
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from index.patterns.events import Captures, Event, Restricted
from index.patterns.patterns import DISCARD, capture, discard, exact, lit, skeleton
from index.trie.net import BUCKET, WIDE
from index.trie.trie import Index
from index.values.values import COMPILED, Map, Record, Value, key, keys
from tests.model import patterns as oracle

WIDTH = 12
TOPIC = tuple("abcdefghijkl")


class _Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Hashable]] = []

    def __call__(self, event: Event, row: Captures) -> None:
        self.heard.append((event.value, keys(row)))

    def take(self) -> list[tuple[str, Hashable]]:
        heard, self.heard = self.heard, []
        return heard


class _Room:
    """An index beside a list of patterns, each with an ear."""

    def __init__(self, in_trie: int = 0, in_net: int = 1_000) -> None:
        self.index = Index(in_trie=in_trie, in_net=in_net)
        self.ears: list[tuple[Value, _Ear]] = []

    def observe(self, pattern: Value) -> None:
        self.ears.append((pattern, _Ear()))
        self.index.add_handler(skeleton(pattern), self.ears[-1][1])

    def leave(self, pattern: Value) -> None:
        for at, (here, ear) in enumerate(self.ears):
            if here is pattern:
                self.index.remove_handler(skeleton(pattern), ear)
                del self.ears[at]
                return

    def check(self, values: Sequence[Value]) -> None:
        """Each value passes as a message, comes and goes, and is heard where the oracle says so.

        None of them is here yet.
        """
        there: list[set[Hashable]] = []
        for pattern, ear in self.ears:
            ear.take()
            there.append({keys(row) for row in self.index.matches(skeleton(pattern))})
        for value in values:
            self.index.send(value)
            self.index.add(value)
            self.index.remove(value)
            self.index.patch([value], [], [value])
            self.index.patch([], [value])
            for (pattern, ear), rows in zip(self.ears, there, strict=True):
                row = oracle.match(pattern, value)
                events = "" if row is None else "!!" if keys(row) in rows else "!+-+!-"
                expected = [] if row is None else [(each, keys(row)) for each in events]
                assert ear.take() == expected, (pattern, value)


# -- small worlds, whole ------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_constants_of_two_values_at_all_positions(width: int) -> None:
    """In all ways: each position is compared with one, with the other, or not."""
    room = _Room()
    for fields in product((DISCARD, "a", "b"), repeat=width):
        room.observe(Record("p", *fields))
    room.check([Record("p", *fields) for fields in product("abc", repeat=width)])
    room.check([Record("p", *"ab"[: width - 1]), Record("p", *"ab" * width), Record("q", "a")])
    room.index.check()


def _others() -> list[Value]:
    return [
        Record("p", "b", DISCARD, "a"),
        Record("p", "b", DISCARD, "b"),
        Record("p", DISCARD, "b", "b"),
        Record("p", "a", "a", "a", "a"),
        Record("p", capture("x"), capture("x")),
        Record("p", discard("str"), Record("q", "a")),
    ]


@pytest.mark.slow
def test_handlers_come_and_go_in_any_order() -> None:
    """Beside as many as a branch holds, so that one more divides it, and one less joins it."""
    fields = islice(product((DISCARD, "a", "b"), repeat=3), BUCKET)
    some: list[Value] = [Record("p", *each) for each in fields]
    values: list[Value] = [Record("p", *each) for each in product("ab", repeat=3)]
    values += [Record("p", "a", Record("q", "a"))]
    room = _Room()
    for pattern in some:
        room.observe(pattern)
    for coming in permutations(_others(), 3):
        for pattern in coming:
            room.observe(pattern)
            room.index.check()
        room.check(values[:3])
        for pattern in (coming[1], coming[0], coming[2]):
            room.leave(pattern)
            room.index.check()
    room.check(values)
    for going in permutations(some, 3):
        for pattern in going:
            room.leave(pattern)
        room.index.check()
        for pattern in going:
            room.observe(pattern)
    room.check(values)
    for pattern in list(some):
        room.leave(pattern)
    assert room.index.statistics().groups == 0 and not room.index._nets


@pytest.mark.parametrize("in_trie", [0, 1, 3])
@pytest.mark.parametrize("in_net", [0, 1, 2])
def test_leaves_go_to_the_trie_or_to_a_net(in_trie: int, in_net: int) -> None:
    """Where a leaf is matters to nobody, and each goes from where it is."""
    fields = [[x if at == by else DISCARD for at in range(3)] for by in range(3) for x in "abc"]
    patterns: list[Value] = [Record("p", *each) for each in fields]
    values: list[Value] = [Record("p", *each) for each in product("abd", repeat=3)]
    chance = Random(1)
    room = _Room(in_trie, in_net)
    for value in values[::2]:
        room.index.add(value)
    for _ in range(60):
        pattern = chance.choice(patterns)
        if chance.random() < 0.6 and pattern not in [here for here, _ in room.ears]:
            room.observe(pattern)
        else:
            room.leave(pattern)
        room.index.check()
    room.check(values[1::2])
    while room.ears:
        room.leave(room.ears[0][0])
        room.index.check()
    assert room.index.statistics().groups == 0


# -- random worlds ------------------------------------------------------------------------------------

atoms: st.SearchStrategy[Value] = st.sampled_from(["a", "a", "b", 1, True, 1.0, None])
slots: st.SearchStrategy[Value] = st.one_of(
    atoms,
    st.just(DISCARD),
    st.sampled_from(
        [capture(), capture("x"), capture("x", "str"), discard("int"), lit(Record("q", "a")), exact(())]
    ),
    st.sampled_from([capture(None, "str", discard("int")), capture("x", None, "a")]),
)


def _inner(part: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        part,
        st.builds(Record, st.just("q"), part),
        st.tuples(part, part),
        st.dictionaries(st.sampled_from(["k", "l", 1]), part, max_size=2).map(Map),
    )


def _whole(part: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.lists(_inner(part), max_size=4).map(lambda parts: Record("p", *parts))


patterns = st.one_of(_whole(slots), _whole(slots).map(exact), slots)
values = st.one_of(_whole(atoms), _whole(atoms), atoms)


@pytest.mark.slow
@settings(max_examples=500 if "TORTURE_ROUNDS" in os.environ else 50, deadline=None)
@given(
    st.lists(patterns, min_size=BUCKET, max_size=40, unique_by=key),
    st.lists(values, min_size=1, max_size=8, unique_by=key),
    st.lists(st.integers(0, 39), max_size=20),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([1_000, 1]),
)
def test_any_patterns_and_any_values(
    some: list[Value], facts: list[Value], going: list[int], in_trie: int, in_net: int
) -> None:
    room = _Room(in_trie, in_net)
    for pattern in some[::2]:
        room.observe(pattern)
    for fact in facts[::2]:
        room.index.add(fact)
    for pattern in some[1::2]:
        room.observe(pattern)
    room.index.check()
    for pattern in some:
        expected = {keys(row) for fact in facts[::2] if (row := oracle.match(pattern, fact)) is not None}
        assert {keys(row) for row in room.index.matches(skeleton(pattern))} == expected
    for at in going:
        room.leave(some[at % len(some)])
    room.index.check()
    room.check(facts[1::2])
    room.index.reset(facts)
    room.index.check()


# -- further ways of a value --------------------------------------------------------------------------


def _subsets(count: int = 1_024) -> list[Value]:
    """Topics whose wildcards are at different levels."""
    levels = [tuple([DISCARD if n >> at & 1 else "q" for at in range(WIDTH)]) for n in range(count)]
    return [Record("mqtt", exact(each), capture()) for each in levels]


def test_restricted_values_reach_the_handlers_that_may_see_them() -> None:
    room = _Room()
    for pattern in [Record("p", "a", capture()), Record("p", capture(), "b"), Record("p", DISCARD, "b")]:
        room.observe(pattern)
    index, value = room.index, Restricted(Record("p", "a", "b"), frozenset([(1,)]))
    index.add(value)
    index.check()
    index.send(value)
    index.patch([value], [])
    index.check()
    index.remove(value)
    index.remove(value)
    index.check()
    heard = [[event for event, _ in ear.take()] for _, ear in room.ears]
    assert heard == [["+", "!", "-"], [], ["+", "!", "-"]]


def test_a_drawing_has_the_forms_of_a_net_and_the_way_through_them() -> None:
    room = _Room()
    for pattern in [Record("p", Record("q", "a"), DISCARD), Record("p", DISCARD, "b"), discard("int")]:
        room.observe(pattern)
    assert room.index.draw().splitlines() == [
        "root: 0 values",
        "├─ p: 2 more forms in a net",
        "│  ├─ q at [0], compare [0,0], something at [1]",
        "│  │  └─ 'a': 0 values, captures nothing (0 rows) → 1 callback",
        "│  └─ compare [1], something at [0]",
        "│     └─ 'b': 0 values, captures nothing (0 rows) → 1 callback",
        "└─ 1 more form in a net",
        "   └─ int at []",
        "      └─ (): 0 values, captures nothing (0 rows) → 1 callback",
    ]
    rows = list(room.index.drawn_rows(Record("p", 1, "b")))
    passed = [text for _, _, _, text, is_passed in rows if is_passed]
    assert [text.split(":")[0] for text in passed] == ["root", "p", "compare [1], something at [0]", "'b'"]
    parts = room.index.statistics()
    assert (parts.nodes, parts.groups, parts.leaves, parts.handlers) == (1, 3, 3, 3)


# -- what a value costs -------------------------------------------------------------------------------


def _unlike(count: int) -> Iterator[Value]:
    """Constants at positions of their own: each is one key of many of a map."""
    for n in range(count):
        yield Record("p", Map({f"key {n}": "q"}))


def _deep(count: int) -> Iterator[Value]:
    """Structure at different positions, and a constant in each."""
    for n in range(count):
        yield Record("p", *[DISCARD if n >> at & 1 else Record("l", "q") for at in range(WIDTH)])


def _common(count: int) -> Iterator[Value]:
    """All require one constant that the value has not, and else such that it has."""
    for n in range(count):
        yield Record("p", *[DISCARD if n >> at & 1 else "a" for at in range(WIDTH)], "z")


def _checks(count: int) -> Iterator[Value]:
    for classes in islice(product((DISCARD, discard("int"), discard("bytes")), repeat=WIDTH), count):
        yield Record("p", *reversed(classes))


def _arity(count: int) -> Iterator[Value]:
    for n in range(count):
        yield Record("p", *[DISCARD] * (n + 3))


def _sizes(count: int) -> Iterator[Value]:
    for n in range(count):
        yield Record("p", exact(tuple([DISCARD] * n)))


FORMS: dict[str, tuple[Callable[[int], Iterator[Value]], Value]] = {
    "wildcards at different levels": (lambda n: iter(_subsets(n)), Record("mqtt", TOPIC, 1)),
    "constants at positions of their own": (_unlike, Record("p", Map({"key 3": "a", "other": 1}))),
    "structure at different positions": (_deep, Record("p", *[Record("l", each) for each in TOPIC])),
    "one common constant": (_common, Record("p", *["a"] * WIDTH, "y")),
    "classes at different positions": (_checks, Record("p", *TOPIC)),
    "more fields": (_arity, Record("p", 1, 2)),
    "exact sizes": (_sizes, Record("p", "no sequence")),
}


def _lines_of(act: Callable[[], object]) -> int:
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


@pytest.mark.slow
@pytest.mark.skipif(COMPILED, reason="machine code has no lines that could be counted")
@pytest.mark.parametrize("name", FORMS)
def test_forms_that_a_value_cannot_meet_cost_next_to_nothing(name: str) -> None:
    """In lines of Python, of messages and of facts; the first forms are in the trie, and cost what they did.

    Each doubling of the forms may add a few questions.
    """
    patterns_of, value = FORMS[name]
    index, costs = Index(), list[int]()
    for number, pattern in enumerate(patterns_of(128)):
        index.add_handler(skeleton(pattern), _Ear())
        if number in (31, 63, 127):
            first, again = (_lines_of(lambda: index.send(value)) for _ in range(2))
            assert first <= again + 20, "no work of the handlers is left to the next value"

            def act() -> None:
                index.send(value)
                index.add(value)
                index.remove(value)

            costs.append(_lines_of(act))
    assert costs[2] < 1.5 * costs[0] + 200, costs


def test_a_branch_finds_many_questions_by_the_positions_of_a_value() -> None:
    room = _Room()
    count = 4 * WIDE + BUCKET
    some = [*_unlike(count)]
    for pattern in some:
        room.observe(pattern)
    assert any(branch.positions is not None for branch in room.index._nets["p"].branches())
    room.index.check()
    room.check([Record("p", Map({f"key {n}": "q", f"key {n + 1}": "q"})) for n in range(0, count, 9)])
    room.check([Record("p", Map({f"key {n}": "q" for n in range(count)})), Record("p", (1,)), Record("p")])
    for pattern in some[3:]:
        room.leave(pattern)
    room.index.check()
    assert all(branch.positions is None for branch in room.index._nets["p"].branches())


@pytest.mark.parametrize(
    "whole", [lambda parts: Record("p", *parts), lambda parts: Record("p", tuple(parts))]
)
def test_a_branch_finds_its_questions_whether_a_value_has_few_parts_or_many(
    whole: Callable[[Sequence[Value]], Value],
) -> None:
    room = _Room()
    room.observe(whole([Map({}), "q"]))
    room.observe(whole([Map({}), DISCARD, "q"]))
    for n in range(4 * WIDE):
        room.observe(whole([Map({f"key {n}": "q"})]))
    assert any(branch.positions is not None for branch in room.index._nets["p"].branches())
    room.check([whole([Map({"key 3": "q"}), *"q" * n]) for n in range(4)])


@pytest.mark.slow
def test_a_net_keeps_no_question_of_what_has_gone() -> None:
    room = _Room()
    room.observe(Record("p", "a"))
    for pattern in _unlike(1_000):
        room.observe(pattern)
        room.leave(pattern)
    assert len(room.index._nets["p"]._questions) < 300
    assert len(list(room.index._nets["p"].branches())) == 1
