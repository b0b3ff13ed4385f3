"""A field changes when what is written differs as a value, and a block that writes the same settles."""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from dataspace.actors import Turn, record
from dataspace.actors.engine.fields import equal
from dataspace.testing import Room
from index.errors import UsageError
from index.values.freezing import freeze
from index.values.values import same

Held = record("held", "value")

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
"""Another one than ``math.nan``."""


class Point(NamedTuple):
    x: object
    y: object


DIFFER = [
    (0.0, -0.0),
    (1, 1.0),
    (1, True),
    ([1], [True]),
    ([0.0], [-0.0]),
    ({"a": 1}, {"a": True}),
    ({1: "a"}, {True: "a"}),
    ({"a": [0.0]}, {"a": [-0.0]}),
    ((1, (2.0,)), (1, (2,))),
    ({1}, {True}),
    (frozenset([0.0]), frozenset([-0.0])),
    (Point(1, 2), Point(True, 2)),
    ([1, 2], [1]),
]
ALIKE = [
    (math.nan, NAN),
    ([math.nan], [NAN]),
    ({"a": math.nan}, {"a": NAN}),
    ({math.nan: 1}, {NAN: 1}),
    ({(math.nan, 1): 1}, {(NAN, 1): 1}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ([1, [2, {"x": (3,)}]], [1, [2, {"x": (3,)}]]),
    (Point(math.nan, "a"), Point(NAN, "a")),
    ({1, 2}, {2, 1}),
]


@pytest.mark.parametrize(("one", "other"), DIFFER)
def test_what_differs_as_a_value_is_written(one: object, other: object) -> None:
    assert not equal(one, other) and not equal(other, one)
    room, seen = Room(), list[object]()

    def boot(turn: Turn) -> None:
        cell = turn.field("cell", one)
        double = turn.derived("double", lambda: cell.value)
        turn.dataflow(lambda: seen.append(double.value))
        turn.after(1)(lambda turn: setattr(cell, "value", other))

    room.spawn(boot)
    room.advance(1)
    assert [id(each) for each in seen] == [id(one), id(other)] and not room.crashes


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_is_the_same_value_settles(one: object, other: object) -> None:
    assert equal(one, other) and equal(other, one)
    room, runs = Room(), list[None]()

    def boot(turn: Turn) -> None:
        cell = turn.field("cell", one)
        given = [other, one]

        def block() -> None:
            runs.append(None)
            given.append(cell.value)
            cell.value = given.pop(0)

        turn.dataflow(block)

    room.spawn(boot)
    room.run()
    assert len(runs) == 1 and not room.crashes


@pytest.mark.parametrize("value", [0.0, -0.0, math.nan, [1], [True], {"a": 0.0}])
def test_what_is_asserted_from_a_field_is_never_stale(value: object) -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        cell = turn.field("cell", freeze([0.0, 1]))
        turn.assert_(lambda: Held(freeze(cell.value)))
        for each in 0.0, -0.0, [1], [True], [1.0], {"a": -0.0}, value:
            turn.after(1)(lambda turn, each=each: setattr(cell, "value", each))

    room.spawn(boot)
    room.advance(1)
    ((held,),) = room.matches("held($value)")
    assert same(held, freeze(value)) and not room.crashes


def is_value(thing: object) -> bool:
    """Whether it can be frozen: a dict may have two keys that are the same value."""
    try:
        freeze(thing)
    except UsageError:
        return False
    return True


atoms = st.one_of(
    st.sampled_from([0, 1, 0.0, -0.0, 1.0, math.nan, NAN, True, False, None, "", "a", b"", b"a"]),
    st.integers(),
)
things = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(atoms, inner, max_size=3),
    ),
    max_leaves=6,
).filter(lambda thing: is_value(thing))


@given(things, things)
def test_things_of_one_class_are_equal_exactly_if_they_freeze_to_the_same(one: object, other: object) -> None:
    for a, b in (one, other), (one, one), (one, freeze_and_back(one)):
        if _shape(a) == _shape(b):
            assert equal(a, b) == same(freeze(a), freeze(b))
        elif equal(a, b):
            assert same(freeze(a), freeze(b))


def _shape(thing: object) -> object:
    """Its classes: lists and tuples freeze alike, but differ as fields."""
    if isinstance(thing, list | tuple):
        return type(thing), [_shape(each) for each in thing]
    if isinstance(thing, dict):
        return dict, sorted([(repr(k), repr(_shape(v))) for k, v in thing.items()])
    return type(thing)


def freeze_and_back(thing: object) -> object:
    """The same, made anew."""
    if isinstance(thing, list):
        return [freeze_and_back(each) for each in thing]
    if isinstance(thing, tuple):
        return tuple([freeze_and_back(each) for each in thing])
    if isinstance(thing, dict):
        return {k: freeze_and_back(v) for k, v in reversed(thing.items())}
    return thing
