"""A table by key is what a plain fold of its epochs is: its rows, their order, and what has changed."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, strategies as st

from dataspace.client.epochs.tables import KeyedTable, KeyForm, RowTable
from dataspace.errors import SeveralRows
from index.values.values import Value, keys

Row = tuple[Value, ...]


class Fold:
    """The same, as it is explained: keys in their order, each with a list of rows."""

    def __init__(self, at: Sequence[int]) -> None:
        self.at = at
        self.state: list[tuple[Row, list[Row]]] = []

    def apply(self, added: Iterable[Row], removed: Iterable[Row]) -> None:
        for row in removed:
            rows = self._rows(row)
            rows[:] = [each for each in rows if not same(each, row)]
        for row in added:
            self._rows(row).append(row)
        self.state = [(at, rows) for at, rows in self.state if rows]

    def _rows(self, row: Row) -> list[Row]:
        at = tuple(row[place] for place in self.at)
        for known, rows in self.state:
            if same(known, at):
                return rows
        self.state.append((at, []))
        return self.state[-1][1]

    def seen(self) -> list[tuple[Row, list[Row]]]:
        return [(at, [*rows]) for at, rows in self.state]


def same(one: Any, other: Any) -> bool:
    return keys((*one,)) == keys((*other,))


def text(seen: object) -> str:
    """What tells ``1`` from ``True``."""
    return repr(seen)


def shown(table: KeyedTable[Any]) -> list[tuple[Row, list[Row]]]:
    listed = table.keys()
    keyed = [(at,) for at in listed] if table.form.single else listed
    return [(at, table.seen(key)) for at, key in zip(keyed, listed, strict=True)]


def difference(before: list[tuple[Row, list[Row]]], after: list[tuple[Row, list[Row]]]) -> set[str]:
    """Each key with what it had and has, where that differs."""
    olds, news = ({text(at): rows for at, rows in state} for state in (before, after))
    return {
        text((at, olds.get(at), news.get(at)))
        for at in {**olds, **news}
        if text(olds.get(at)) != text(news.get(at))
    }


def taken(changes: Iterable[Any], *, single: bool = True) -> set[str]:
    return {text((text((key,) if single else key), old, new)) for key, old, new in changes}


FACTS: Final[tuple[Row, ...]] = ((1, 1), (1, 1.0), (True, 1), (True, True))
"""Two keys and two values of each, which Python takes for one fact."""

STATES: Final = [
    tuple(fact for fact, there in zip(FACTS, mask, strict=True) if there)
    for mask in itertools.product([False, True], repeat=len(FACTS))
]


def changes_to(before: Iterable[Row], after: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    old, new = ({keys(row): row for row in state} for state in (before, after))
    return [new[at] for at in new if at not in old], [old[at] for at in old if at not in new]


def test_every_program_of_three_epochs_is_its_fold() -> None:
    """Whatever is read between: all changes after any of the epochs, or one by one."""
    form: KeyForm[list[Row]] = KeyForm([0], many=True)
    for path in itertools.product(STATES, repeat=3):
        for reads in itertools.product("-a1", repeat=2):
            table, fold = KeyedTable(form), Fold([0])
            read: list[tuple[Row, list[Row]]] = []
            now: tuple[Row, ...] = ()
            for number, (state, reading) in enumerate(zip(path, ("a", *reads), strict=True)):
                added, removed = changes_to(now, state)
                table.apply(added, removed)
                fold.apply(added, removed)
                now = state
                assert text(shown(table)) == text(fold.seen())
                if number == 0:
                    table.begin()
                    read = fold.seen()
                if reading == "a":
                    assert taken(table.take()) == difference(read, fold.seen())
                    read = fold.seen()
                elif reading == "1" and (one := table.take_one()) is not None:
                    assert taken([one]) <= difference(read, fold.seen())
                    at = (one.key,)
                    read = [each for each in read if not same(each[0], at)]
                    read += [each for each in fold.seen() if same(each[0], at)]
            assert taken(table.take()) == difference(read, fold.seen())
            assert table.take() == [] and table.take_one() is None


class Step(NamedTuple):
    """One epoch of a program: the facts that there are after it, and how it is read."""

    state: tuple[Row, ...]
    orders: tuple[bool, bool]
    reading: str
    restated: bool


VALUES: Final = st.sampled_from([1, 1.0, True, "1", b"1", None, (1,), float("nan"), -0.0, 0.0])
ROWS: Final[st.SearchStrategy[Any]] = st.tuples(VALUES, st.sampled_from([0, False, "a"]), st.integers(0, 2))
STEPS: Final = st.builds(
    Step,
    st.lists(ROWS, max_size=8, unique_by=keys).map(tuple),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from(["", "", "all", "some"]),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=12), st.sampled_from([[0], [0, 1], [1, 0], [2], [0, 1, 2]]))
def test_programs_are_their_fold(steps: list[Step], at: list[int]) -> None:
    """Also where a state came in place of its epochs, of which the table knows the difference."""
    single = len(at) == 1
    table, fold, plain = KeyedTable[Any](KeyForm(at, single=single, many=True)), Fold(at), RowTable()
    table.begin()
    now: tuple[Row, ...] = ()
    read: list[tuple[Row, list[Row]]] = []
    for step in steps:
        added, removed = changes_to(now, step.state)
        if step.restated:
            came, went = table.difference(step.state)
            assert [*map(keys, came)] == [*map(keys, added)] and {*map(keys, went)} == {*map(keys, removed)}
            assert plain.difference(step.state)[0] == came
            added, removed = came, went
        else:
            added, removed = (
                [*rows][:: -1 if back else 1]
                for rows, back in zip((added, removed), step.orders, strict=True)
            )
        table.apply(added, removed)
        fold.apply(added, removed)
        plain.apply(added, removed)
        now = step.state
        assert text(shown(table)) == text(fold.seen()) and len(table) == len(fold.state)
        if step.reading == "all":
            assert taken(table.take(), single=single) == difference(read, fold.seen())
            read = fold.seen()
        elif step.reading == "some" and (one := table.take_one()) is not None:
            assert taken([one], single=single) <= difference(read, fold.seen())
            found = (one.key,) if single else one.key
            read = [each for each in read if not same(each[0], found)]
            read += [each for each in fold.seen() if same(each[0], found)]
    assert taken(iter(table.take_one, None), single=single) == difference(read, fold.seen())


def test_changes_that_nobody_takes_are_bounded_by_the_state() -> None:
    """Also where keys come and go for ever."""
    table = KeyedTable[Row](KeyForm([0]))
    table.apply([("held", 0)], [])
    table.begin()
    for number in range(1000):
        table.apply([(number, 0)], [(number - 1, 0)] if number else [])
        table.apply([("held", number + 1)], [("held", number)])
    assert len(table._before) == 2 == len(table)
    assert [(change.key, change.new) for change in table.take()] == [
        ("held", ("held", 1000)),
        (999, (999, 0)),
    ]


def test_a_key_keeps_its_place_within_an_epoch_and_is_last_after_it_was_away() -> None:
    table = KeyedTable[Row](KeyForm([0]))
    table.apply([("a", 1), ("b", 1), ("c", 1)], [])
    table.apply([("b", 2), ("a", 2)], [("a", 1), ("b", 1)])
    assert table.keys() == ["a", "b", "c"]
    table.apply([], [("a", 2)])
    table.apply([("a", 3)], [])
    assert table.keys() == ["b", "c", "a"]


def test_several_rows_are_refused_where_they_are_read() -> None:
    table = KeyedTable[Row](KeyForm([0]))
    table.begin()
    table.apply([("a", 1), ("b", 1)], [])
    table.take()
    table.apply([("a", 2), ("b", 2)], [("b", 1)])
    assert table.seen("b") == ("b", 2) and table.has("a") and len(table) == 2
    with pytest.raises(SeveralRows, match=r"'a' has 2 rows, \('a', 1\), \('a', 2\): .*many=True"):
        table.seen("a")
    two, one = table.take()  # what goes is looked at first
    assert (one.key, one.old, two.key, two.new) == ("a", ("a", 1), "b", ("b", 2))
    with pytest.raises(SeveralRows):
        _ = one.new
    table.apply([], [("a", 1)])
    (change,) = table.take()
    assert change.new == ("a", 2) == table.seen("a"), "the older one has gone"
    with pytest.raises(SeveralRows):
        _ = change.old


def test_a_change_and_a_copy_stay_as_they_were() -> None:
    table = KeyedTable[list[Row]](KeyForm([0], many=True))
    table.begin()
    table.apply([("a", 1), ("a", 2)], [])
    copy, (change,) = table.copy(), table.take()
    table.apply([("a", 3)], [("a", 1)])
    assert copy.seen("a") == [("a", 1), ("a", 2)] == change.new
    assert table.seen("a") == [("a", 2), ("a", 3)]


def test_a_row_that_cannot_be_made_changes_nothing() -> None:
    def make(row: Row) -> int:
        if row[1] == 3:
            raise ValueError("no threes")
        return len(row)

    table = KeyedTable[int](KeyForm([0], make=make))
    table.begin()
    table.apply([("a", 1)], [])
    with pytest.raises(ValueError, match="no threes"):
        table.apply([("b", 1), ("a", 3)], [("a", 1)])
    assert table.keys() == ["a"] and table.seen("a") == 2


@pytest.mark.parametrize(
    ("single", "wrong"), [(True, ["b", ("a",), [], {}]), (False, ["ab", "a", ("a",), ["a", 1]])]
)
def test_what_is_no_key_is_not_there(single: bool, wrong: list[Hashable]) -> None:
    table = KeyedTable[Row](KeyForm([0] if single else [0, 1], single=single))
    table.apply([("a", 1)], [])
    for at in wrong:
        assert not table.has(at)
        with pytest.raises(KeyError):
            table.seen(at)


def test_sorted_keys_are_in_the_order_of_their_rows() -> None:
    table = KeyedTable[Row](KeyForm([0], sort=lambda row: row[1]))
    table.apply([("a", 3), ("b", 1), ("c", 3), ("d", 2)], [])
    assert table.keys() == ["b", "d", "a", "c"] == table.copy().keys()
