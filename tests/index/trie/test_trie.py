"""The index agrees with matching every pattern against every value, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from index.errors import UsageError
from index.patterns.events import Entry, Restricted, Visible
from index.patterns.patterns import DISCARD, capture, discard, exact, lit, skeleton
from index.patterns.readers import _group_code, _handler_code
from index.patterns.skeletons import CheckKind, Skeleton
from index.trie.trie import ADDED, Event, Index
from index.values.positions import Path
from index.values.values import Map, Record, Value, key, keys
from tests.index.strategies import values_near
from tests.model import patterns as oracle

Captures = tuple[Value, ...]
Heard = list[tuple[str, Captures]]

# Small worlds, in which values and patterns meet often: two labels, few atoms, some of them alike.

atoms: st.SearchStrategy[Value] = st.sampled_from([0, 0, 1, True, 1.0, "a", None, b"a"])


def _records(part: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.builds(
        lambda label, parts: Record(label, *parts), st.sampled_from("pq"), st.lists(part, max_size=3)
    )


def _compounds(part: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        _records(part),
        st.builds(lambda parts: Record(1, *parts), st.lists(part, max_size=2)),
        st.lists(part, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["k", 1]), part, max_size=2).map(Map),
    )


_inner_facts = st.one_of(atoms, _records(atoms), _compounds(atoms), _records(_records(atoms)))
facts = st.one_of(_records(_inner_facts), _records(_inner_facts), _compounds(_inner_facts), _inner_facts)

_inner_patterns = st.one_of(
    atoms,
    st.sampled_from(
        [DISCARD, capture(), capture("x"), capture("x", "int"), discard("str"), discard("record")]
    ),
    _inner_facts.map(lit),
)
_structures = st.one_of(
    _records(_inner_patterns),
    _compounds(_inner_patterns),
    _compounds(_inner_patterns).map(exact),
    _records(_inner_patterns).map(lambda sub: capture(None, None, sub)),
    _records(_records(_inner_patterns)),
)
patterns = st.one_of(
    _records(_inner_patterns),
    _records(st.one_of(_structures, _inner_patterns)),
    _records(st.one_of(_structures, _inner_patterns)),
    _compounds(st.one_of(_structures, _inner_patterns)).map(exact),
    _compounds(_structures),
    _inner_patterns,
)


def _entry(value: Value, visible: Visible | None) -> Entry:
    return value if visible is None else Restricted(value, visible)


class _Ear:
    """A callback that remembers what it heard."""

    def __init__(self) -> None:
        self.heard: Heard = []

    def __call__(self, event: Event, captures: Captures) -> None:
        self.heard.append((event.value, captures))

    def take(self) -> list[tuple[str, object]]:
        heard, self.heard = self.heard, []
        return [(event, keys(captures)) for event, captures in heard]

    def take_plain(self) -> list[tuple[str, Value]]:
        """For tests whose rows have one capture each."""
        heard, self.heard = self.heard, []
        return [(event, captures[0]) for event, captures in heard]


restrictions: st.SearchStrategy[Visible | None] = st.one_of(
    st.none(), st.frozensets(st.sampled_from([(), (0,), (1,), (0, 0)]), max_size=3)
)


class IndexMachine(RuleBasedStateMachine):
    """The index beside a bag of values and a list of patterns, each value matched against each pattern."""

    @initialize(in_trie=st.sampled_from([16, 0, 1]), in_net=st.sampled_from([16, 0, 1]))
    def begin(self, in_trie: int, in_net: int) -> None:
        self.index = Index(in_trie=in_trie, in_net=in_net)
        self.bag: dict[object, list[tuple[Value, Visible | None]]] = {}
        self.handlers: list[tuple[Value, _Ear]] = []
        self.prepared: dict[Hashable, tuple[Value, bool]] = {}
        """Patterns whose handlers are prepared in steps, and whether that is done."""

    def _row(self, pattern: Value, value: Value, visible: Visible | None) -> Captures | None:
        hidden = visible is not None and not visible.issuperset(skeleton(pattern).captures)
        return None if hidden else oracle.match(pattern, value)

    def _told(self, pattern: Value) -> set[object]:
        rows = (self._row(pattern, *copies[0]) for copies in self.bag.values())
        return {keys(row) for row in rows if row is not None}

    def _facts(self) -> st.SearchStrategy[Value]:
        """Facts that somebody listens for, mostly."""
        some = [pattern for pattern, _ in [*self.handlers, *self.prepared.values()]]
        return st.one_of([values_near(pattern, atoms) for pattern in some] + [facts])

    @rule(data=st.data(), picks=st.lists(st.integers(0, 9), max_size=3), visible=restrictions)
    def patch(self, data: st.DataObject, picks: list[int], visible: Visible | None) -> None:
        added = data.draw(st.lists(self._facts(), max_size=4))
        said = data.draw(self._facts())
        present = [value for copies in self.bag.values() for value, seen in copies if seen == visible]
        removed = [present[at] for at in sorted({pick for pick in picks if pick < len(present)})]
        before = [(pattern, ear, self._told(pattern)) for pattern, ear in self.handlers]
        were = set(self.bag)
        net = self.index.patch(
            [_entry(each, visible) for each in added],
            [_entry(each, visible) for each in removed],
            [_entry(said, visible)],
        )
        for value in added:
            self.bag.setdefault((key(value), visible), []).append((value, visible))
        for value in removed:
            self.bag[key(value), visible].pop()
            if not self.bag[key(value), visible]:
                del self.bag[key(value), visible]
        assert {(key(value), visible) for value in net.added} == set(self.bag) - were
        assert {(key(value), visible) for value in net.removed} == were - set(self.bag)
        for pattern, ear, was in before:
            now, row, heard = self._told(pattern), self._row(pattern, said, visible), ear.take()
            messages = [] if row is None else [("!", keys(row))]
            assert sorted(map(repr, heard)) == sorted(
                map(repr, [("+", at) for at in now - was] + messages + [("-", at) for at in was - now])
            )
            order = [event for event, _ in heard]
            assert order == sorted(order, key="+!-".index)

    @rule(data=st.data(), visible=restrictions)
    def add_and_remove_alone(self, data: st.DataObject, visible: Visible | None) -> None:
        value = data.draw(self._facts())
        known = (key(value), visible) in self.bag
        assert self.index.add(_entry(value, visible)) is not known
        assert self.index.count(_entry(value, visible)) == 1 + len(self.bag.get((key(value), visible), []))
        assert self.index.remove(_entry(value, visible)) is not known
        for pattern, ear in self.handlers:
            row = None if known else self._row(pattern, value, visible)
            new = [] if row is None or keys(row) in self._told(pattern) else [keys(row)]
            assert ear.take() == [(event, at) for event in "+-" for at in new]

    @rule(pattern=patterns)
    def listen(self, pattern: Value) -> None:
        ear = _Ear()
        self.index.add_handler(skeleton(pattern), ear)
        self.handlers.append((pattern, ear))
        assert sorted(map(repr, ear.take())) == sorted(repr(("+", at)) for at in self._told(pattern))
        assert {keys(row) for row in self.index.matches(skeleton(pattern))} == self._told(pattern)

    @rule(pattern=patterns, count=st.integers(1, 2))
    def prepare(self, pattern: Value, count: int) -> None:
        self.prepared[key(pattern)] = pattern, self.index.fill(skeleton(pattern), count)

    @rule(pick=st.integers(0, 5), count=st.integers(1, 2))
    def prepare_more(self, pick: int, count: int) -> None:
        for pattern, _ in list(self.prepared.values())[pick : pick + 1]:
            self.prepare(pattern, count)

    @rule(pick=st.integers(0, 5), count=st.integers(0, 2), tells=st.booleans())
    def listen_to_what_is_prepared(self, pick: int, count: int, tells: bool) -> None:
        for at, (pattern, _) in list(self.prepared.items())[pick : pick + 1]:
            del self.prepared[at]
            form, ear = skeleton(pattern), _Ear()
            while count and not self.index.fill(form, count):
                pass
            self.index.add_handler(form, ear, tells=tells)
            self.handlers.append((pattern, ear))
            heard = [repr(("+", row)) for row in self._told(pattern) if tells]
            assert sorted(map(repr, ear.take())) == sorted(heard)
            assert {keys(row) for row in self.index.matches(form)} == self._told(pattern)

    @rule(pick=st.integers(0, 5))
    def drop_what_is_prepared(self, pick: int) -> None:
        for at, (pattern, _) in list(self.prepared.items())[pick : pick + 1]:
            del self.prepared[at]
            self.index.drop_idle(skeleton(pattern))

    @rule()
    def fill_in_as_after_a_failure(self) -> None:
        if not any(visible is not None for copies in self.bag.values() for _, visible in copies):
            self.index.reset([value for copies in self.bag.values() for value, _ in copies])

    @rule(pattern=patterns)
    def look(self, pattern: Value) -> None:
        before = self.index.statistics()
        assert {keys(row) for row in self.index.matches(skeleton(pattern))} == self._told(pattern)
        assert self.index.statistics() == before

    @rule(pick=st.integers(0, 5), with_cleanup=st.booleans())
    def stop_listening(self, pick: int, with_cleanup: bool) -> None:
        if pick < len(self.handlers):
            pattern, ear = self.handlers.pop(pick)
            held: list[Captures] = []
            self.index.remove_handler(skeleton(pattern), ear)
            if with_cleanup:
                self.index.add_handler(skeleton(pattern), ear, cleanup=held.extend)
                ear.take()
                self.index.remove_handler(skeleton(pattern), ear)
                assert {keys(row) for row in held} == self._told(pattern)
            assert ear.take() == []

    @invariant()
    def everything_holds(self) -> None:
        if all(is_done for _, is_done in self.prepared.values()):  # else that would be done by the check
            self.index.check()
        assert len(self.index) == len(self.bag)
        assert self.index.statistics().copies == sum(map(len, self.bag.values()))

    def teardown(self) -> None:
        for pattern, _ in self.prepared.values():
            self.index.drop_idle(skeleton(pattern))
        for pattern, ear in self.handlers:
            self.index.remove_handler(skeleton(pattern), ear)
        for copies in self.bag.values():
            for value, visible in copies:
                self.index.remove(_entry(value, visible))
        self.index.check()
        left = self.index.statistics()
        assert (left.values, left.nodes, left.groups, left.leaves, left.handlers) == (0, 1, 0, 0, 0)


IndexMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestIndexMachine = IndexMachine.TestCase


@given(st.data(), st.lists(patterns, min_size=1, max_size=4))
def test_a_value_meets_patterns_in_the_index_as_in_the_oracle(data: st.DataObject, some: list[Value]) -> None:
    value = data.draw(values_near(data.draw(st.sampled_from(some)), atoms))
    index, ears = Index(), [_Ear() for _ in some]
    for pattern, ear in zip(some, ears, strict=True):
        index.add_handler(skeleton(pattern), ear)
    index.add(value)
    index.send(value)
    index.remove(value)
    for pattern, ear in zip(some, ears, strict=True):
        row = oracle.match(pattern, value)
        assert ear.take() == ([] if row is None else [(event, keys(row)) for event in "+!-"])
    index.check()


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_removing_what_is_not_there_is_refused_and_changes_nothing(copies: int) -> None:
    index, ear = Index(), _Ear()
    index.add_handler(skeleton(Record("p", capture())), ear)
    for _ in range(copies):
        index.add(Record("p", 1))
    ear.take()
    with pytest.raises(UsageError, match="not there"):
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


# -- who is told, when, and of what -------------------------------------------------------------------


def p(*fields: object) -> Record:
    return Record("p", *fields)


def _index_of(*values: Value) -> Index:
    index = Index()
    for value in values:
        index.add(value)
    return index


def test_a_cleanup_is_given_the_captures_still_held_and_the_callback_hears_nothing() -> None:
    index, ear = _index_of(p(1, 1), p(1, 2), p(2, 1)), _Ear()
    held: list[Captures] = []
    form = skeleton(p(capture(), DISCARD))
    index.add_handler(form, ear, cleanup=held.extend)
    index.remove(p(2, 1))
    ear.take()
    index.remove_handler(form, ear)
    assert (held, ear.take()) == ([(1,)], [])


def test_each_of_several_callbacks_of_one_pattern_is_told_once_and_removed_alone() -> None:
    index, ears, form = Index(), [_Ear(), _Ear()], skeleton(p(capture()))
    for ear in ears:
        index.add_handler(form, ear)
    index.add(p(1))
    index.remove_handler(form, ears[0])
    index.send(p(2))
    assert [ear.take_plain() for ear in ears] == [[("+", 1)], [("+", 1), ("!", 2)]]


def test_a_message_is_told_and_not_kept() -> None:
    index, ear = Index(), _Ear()
    index.add_handler(skeleton(p(capture())), ear)
    index.send(p(1))
    index.send(p(1))
    assert (ear.take_plain(), len(index), index.matches(skeleton(p(capture())))) == ([("!", 1)] * 2, 0, [])


def test_a_message_finds_what_its_patch_adds_and_what_it_removes() -> None:
    index, ear = _index_of(p(1)), _Ear()
    index.add_handler(skeleton(p(capture())), ear)
    ear.take_plain()
    index.patch([p(2)], [p(1)], [p("said")])
    assert ear.take_plain() == [("+", 2), ("!", "said"), ("-", 1)]


def test_a_patch_of_messages_alone_tells_them_and_keeps_nothing() -> None:
    index, ear = Index(), _Ear()
    index.add_handler(skeleton(p(capture())), ear)
    for messages in ([p(1)], [p(2), p(3)]):
        assert index.patch([], [], messages) == ([], [])
    assert (ear.take_plain(), len(index)) == ([("!", 1), ("!", 2), ("!", 3)], 0)


def test_what_is_added_and_removed_in_one_patch_was_never_there() -> None:
    index, ear = _index_of(p(1)), _Ear()
    index.add_handler(skeleton(p(capture())), ear)
    ear.take()
    net = index.patch([p(1), p(2)], [p(2), p(1)])
    assert (ear.take(), net, index.count(p(1)), index.count(p(2))) == ([], ([], []), 1, 0)


def test_a_restricted_value_is_told_to_those_who_capture_no_more_than_its_bringer() -> None:
    index = Index()
    ears = {
        pattern: _Ear() for pattern in [p(DISCARD, DISCARD), p(capture(), DISCARD), p(capture(), capture())]
    }
    for pattern, ear in ears.items():
        index.add_handler(skeleton(pattern), ear)
    visible = frozenset(skeleton(p(capture(), DISCARD)).captures)
    index.add(Restricted(p("a", "hidden"), visible))
    assert [len(ear.take()) for ear in ears.values()] == [1, 1, 0]
    assert index.matches(skeleton(p(capture(), capture("b")))) == []
    assert index.matches(skeleton(p(capture("a")))) == [("a",)]
    late = _Ear()
    index.add_handler(skeleton(p(DISCARD, capture())), late)
    index.send(Restricted(p("a", "hidden"), visible))
    index.remove(Restricted(p("a", "hidden"), visible))
    assert [[event for event, _ in ear.take()] for ear in [*ears.values(), late]] == [["!", "-"]] * 2 + [
        []
    ] * 2
    index.check()


def test_a_value_under_a_restriction_is_not_the_one_under_none() -> None:
    index, visible = _index_of(p(1)), frozenset([(0,)])
    with pytest.raises(UsageError, match="not there"):
        index.remove(Restricted(p(1), visible))
    index.add(Restricted(p(1), visible))
    assert (len(index), index.count(p(1)), index.count(Restricted(p(1), visible))) == (2, 1, 1)


# -- callbacks that misbehave -------------------------------------------------------------------------


def _changes(index: Index) -> Iterator[Callable[[], object]]:
    yield lambda: index.add(p(9))
    yield lambda: index.remove(p(0))
    yield lambda: index.send(p(9))
    yield lambda: index.patch([p(9)], [])
    yield lambda: index.add_handler(skeleton(p()), _Ear())
    yield lambda: index.remove_handler(skeleton(p()), _Ear())


@pytest.mark.parametrize("which", range(6))
def test_a_callback_that_changes_the_index_is_refused(which: int) -> None:
    index = _index_of(p(0))

    def meddle(_event: Event, _row: Captures) -> None:
        list(_changes(index))[which]()

    with pytest.raises(UsageError, match="must not change the index"):
        index.add_handler(skeleton(p(capture())), meddle)
    index.check()
    index.remove_handler(skeleton(p(capture())), meddle)
    assert index.count(p(9)) == 0


def test_a_callback_may_look() -> None:
    index, seen = _index_of(p(0)), []

    def look(_event: Event, _row: Captures) -> None:
        seen.append((len(index), index.count(p(1)), len(index.matches(skeleton(p(capture("x")))))))

    index.add_handler(skeleton(p(capture())), look)
    index.patch([p(1)], [p(0)])
    assert seen == [(1, 0, 1), (1, 1, 1), (1, 1, 1)]


def test_a_callback_that_raises_leaves_an_index_that_is_right() -> None:
    index = Index()

    def fail(event: Event, row: Captures) -> None:
        if event is not ADDED or row == (2,):
            raise ZeroDivisionError

    index.add_handler(skeleton(p(capture())), fail)
    index.add(p(1))
    for change in (
        lambda: index.patch([p(2), p(3)], [p(1)]),
        lambda: index.remove(p(2)),
        lambda: index.send(p(7)),
    ):
        with pytest.raises(ZeroDivisionError):
            change()
        index.check()
    assert sorted(index.matches(skeleton(p(capture())))) == [(3,)]


# -- handlers that fail -------------------------------------------------------------------------------


class _Mine:
    """A step into a map that raises when it is looked up the so-manieth time, in either build."""

    def __init__(self, real: Hashable, left: int) -> None:
        self.real, self.left = real, left

    def __hash__(self) -> int:
        self.left -= 1
        if self.left == 0:
            raise ZeroDivisionError
        return hash(self.real)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.real


@pytest.mark.parametrize("filled", [None, 0, 1, 3])
def test_a_handler_whose_installation_fails_is_not_there(filled: int | None) -> None:
    """Wherever that is: at its group, at a value, at a capture; at once, or after some steps."""
    index = _index_of(*[p(Map({"k": n}), n) for n in range(4)], p(Map({}), 1), p(1))
    index.add_handler(skeleton(p(Map({"k": 1}), capture())), kept := _Ear())
    before = index.statistics()
    for text in (p(capture(), capture("x")), p(Map({"k": capture("x")}), capture("x")), p(Map({"k": 1}), 1)):
        failures = 0
        for left in range(1, 100):
            _group_code.cache_clear()  # what was generated for an equal step is bound to that one
            _handler_code.cache_clear()
            mine = _Mine(key("k"), left)
            form = _with_step(skeleton(text), mine)
            try:
                for _ in range(filled or 0):
                    index.fill(form, 2)
                index.add_handler(form, ear := _Ear())
            except ZeroDivisionError:
                failures += 1
            else:
                mine.left = -1
                index.remove_handler(form, ear)
            mine.left = -1
            index.drop_idle(form)
            index.check()
            assert index.statistics() == before
            index.patch([p(Map({"k": 9}), 9)], [p(Map({"k": 1}), 1)], [p(Map({"k": 1}), 2)])
            index.patch([p(Map({"k": 1}), 1)], [p(Map({"k": 9}), 9)])
            index.check()
            assert kept.take_plain()[-3:] == [("!", 2), ("-", 1), ("+", 1)]
        assert failures < 99, "it comes to its end"


def _with_step(form: Skeleton, step: Hashable) -> Skeleton:
    """The same with this step in place of every step into a map."""

    def in_place(path: Path) -> Path:
        return tuple([by if isinstance(by, int) else (step,) for by in path])

    checks = tuple(
        [
            replace(check, path=in_place(check.path), argument=in_place(check.argument))
            if check.kind is CheckKind.SAME and isinstance(check.argument, tuple)
            else replace(check, path=in_place(check.path))
            for check in form.checks
        ]
    )
    constants = tuple([(in_place(path), value) for path, value in form.constants])
    return replace(
        form,
        shape=tuple([(in_place(path), of_class) for path, of_class in form.shape]),
        constants=constants,
        checks=checks,
        captures=tuple(map(in_place, form.captures)),
        group=(tuple([path for path, _ in constants]), checks),
    )


# -- what it costs, in counts -------------------------------------------------------------------------


def test_observers_of_many_constants_are_one_group_and_one_probe() -> None:
    index, ears = Index(), [_Ear() for _ in range(1_000)]
    for n, ear in enumerate(ears):
        index.add_handler(skeleton(p(n, capture())), ear)
    made = index.statistics()
    assert (made.nodes, made.groups, made.leaves, made.handlers) == (2, 1, 1_000, 1_000)
    index.send(p(7, "x"))
    assert [n for n, ear in enumerate(ears) if ear.heard] == [7]


def test_constants_that_nobody_wants_make_no_leaf_and_are_found_when_somebody_does() -> None:
    index = Index()
    index.add_handler(skeleton(p("wanted", capture())), _Ear())
    for n in range(100):
        index.add(p(n % 50, n))
    assert index.statistics().leaves == 1
    for n in range(50):  # more than one value at each place
        ear, form = _Ear(), skeleton(p(n, capture()))
        index.add_handler(form, ear)
        assert ear.take_plain() == [("+", n), ("+", n + 50)]
        index.remove_handler(form, ear)
    for n in range(100):  # one of two, then the other
        index.remove(p(n % 50, n))
        index.check()


def test_an_index_is_as_new_when_everybody_has_gone() -> None:
    index, ears = _index_of(*[p(n, Record("q", n)) for n in range(10)]), []
    for n in range(10):
        for pattern in (
            p(n),
            p(n, Record("q", n)),
            p(capture(), Record("q", capture())),
            Record("r", ((), n)),
        ):
            ear = _Ear()
            ears.append((skeleton(pattern), ear))
            index.add_handler(skeleton(pattern), ear)
    for form, ear in ears:
        index.remove_handler(form, ear)
        index.check()
    left = index.statistics()
    assert (left.values, left.nodes, left.groups, left.leaves, left.handlers) == (10, 1, 0, 0, 0)


@pytest.mark.parametrize("depth", [1_000, 50_000])
def test_values_too_deep_to_have_a_key_are_refused_and_nothing_is_changed(depth: int) -> None:
    index, deep = _index_of(p(1)), p(1)
    for _ in range(depth):
        deep = Record.of("p", (deep,))
    index.add_handler(skeleton(p(capture())), _Ear())
    for change in (index.add, index.remove, index.count, index.send, lambda v: index.patch([p(2), v], [])):
        try:
            change(deep)
        except UsageError as error:
            assert "nested too deeply" in str(error)
        index.check()
    assert index.count(p(2)) == 0
