"""An index used alone takes values as every other part does: it freezes what it can and refuses the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given

from index.errors import UsageError
from index.patterns.events import Restricted
from index.patterns.patterns import capture, matcher, skeleton
from index.trie.trie import Index
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, same
from tests.strategies import values

NO_VALUES = {
    "an object": object(),
    "a set": {1},
    "a complex number": 1j,
    "a list with an object": [1, object()],
    "a tuple with a set": (1, {2}),
    "a dict with an object": {"k": object()},
    "a lone surrogate": "\ud800",
    "a time without a zone": datetime(2026, 1, 1),
    "a subclass of int": type("Int", (int,), {})(1),
    "a class": int,
}
OPERATIONS: dict[str, Callable[[Any, Any], object]] = {
    "add": lambda index, thing: index.add(thing),
    "restricted add": lambda index, thing: index.add(Restricted(thing, frozenset())),
    "remove": lambda index, thing: index.remove(thing),
    "send": lambda index, thing: index.send(thing),
    "restricted send": lambda index, thing: index.send(Restricted(thing, frozenset())),
    "replace by": lambda index, thing: index.replace(thing, Record("here")),
    "replace": lambda index, thing: index.replace(Record("new"), thing),
    "patch in": lambda index, thing: index.patch([Record("new"), thing], []),
    "patch out": lambda index, thing: index.patch([Record("new")], [thing]),
    "patch through": lambda index, thing: index.patch([Record("new")], [], [Record("m"), thing]),
    "patch a message": lambda index, thing: index.patch([], [], [thing]),
    "reset": lambda index, thing: index.reset([Record("here"), thing]),
    "match": lambda _index, thing: matcher(capture())(thing),
}


def _filled() -> tuple[Index, list[object]]:
    index, told = Index(), list[object]()
    index.add_handler(skeleton(capture("x")), lambda *said: told.append(said))
    index.add(Record("here"))
    told.clear()
    return index, told


@pytest.mark.parametrize("operation", list(OPERATIONS))
@pytest.mark.parametrize("thing", list(NO_VALUES))
def test_what_is_no_value_is_refused_and_nothing_changes(operation: str, thing: str) -> None:
    index, told = _filled()
    with pytest.raises(UsageError, match="is no value"):
        OPERATIONS[operation](index, NO_VALUES[thing])
    assert told == []
    assert list(index.matches(skeleton(capture("x")))) == [(Record("here"),)]
    index.check()


def _thawed(value: Value) -> object:
    if isinstance(value, tuple):
        return [_thawed(each) for each in value]
    if isinstance(value, Map) and all(isinstance(at, str) for at in value):
        return {at: _thawed(each) for at, each in value.pairs()}
    return value


@given(values)
def test_what_is_no_value_yet_is_frozen_and_found_again(value: Value) -> None:
    thing: Any = _thawed(value)
    index, told = _filled()
    assert index.add(thing)
    assert not index.add(value), "it is the same value"
    assert same(told[0][1][0], value)  # type: ignore[index]  # what a callback was told
    assert not index.remove(thing)
    assert index.remove(thing)
    index.send(thing)
    assert index.patch([thing], []).added == [value] or not same(value, value)
    assert index.replace(Record("other", 1), thing) == (True, True)
    assert index.replace(thing, Record("other", 1)) == (True, True)
    assert index.patch([], [thing], [thing]).removed
    index.reset([thing])
    assert index.remove(value)
    row = matcher(capture())(thing)
    assert row is not None and same(row[0], value)
    assert all(same(said[1][0], freeze(said[1][0])) for said in told)  # type: ignore[index]  # as above
    index.check()


def test_a_list_that_changes_later_changes_nothing() -> None:
    index, _ = _filled()
    thing: Any = [1, [2]]
    index.add(thing)
    thing[1].append(3)
    assert (((1, (2,)),)) in index.matches(skeleton(capture("x")))
    index.check()
