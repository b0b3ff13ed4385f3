"""No value is too deep or too large to be refused, and nothing that is handed in ends the stack."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st

from dataspace.codec import pack, unpack
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.kernel.space import Space
from index.errors import DataspaceError, UsageError
from index.patterns.patterns import capture, capture_names, exact, lit, matcher, observe, skeleton
from index.patterns.text import ParseError, parse, parse_pattern, unparse
from index.trie.trie import Index
from index.values.freezing import bounded, freeze
from index.values.jsons import from_json, to_json
from index.values.values import Map, Record, Value, key, keys, order_key, row_text, same, text_of
from tests.index.strategies import anything

SHAPES: Mapping[str, Callable[[Value], object]] = {
    "sequence": lambda inner: (inner,),
    "list": lambda inner: [inner],
    "dict": lambda inner: {"k": inner},
    "record": lambda inner: Record.of("p", (inner,)),
    "label": lambda inner: Record.of(inner, ()),
    "capture": lambda inner: Record.of("$", (None, None, inner)),
    "interest": lambda inner: Record.of("Observe", (inner,)),
    "quotation": lambda inner: Record.of("lit", (inner,)),
    "exact": lambda inner: Record.of("exact", (inner,)),
}


def nested(shape: str, levels: int, inner: object = 1) -> Value:
    thing: object = inner
    for _ in range(levels):
        thing = SHAPES[shape](thing)  # type: ignore[arg-type]  # lists and dicts are there to be refused
    return thing  # type: ignore[return-value]  # as above


def knot(thing: list[object] | dict[str, object]) -> object:
    """What holds itself."""
    if isinstance(thing, list):
        thing.append(thing)
    else:
        thing["k"] = thing
    return thing


ENTRIES: Mapping[str, Callable[[Value], object]] = {
    "freeze": freeze,
    "freeze as a key": lambda thing: freeze({thing: {1}} if isinstance(thing, tuple | Record) else thing),
    "bounded": lambda thing: bounded(thing, depth=10_000, elements=10_000),
    "a record": lambda thing: key(Record("p", thing)),
    "a map": lambda thing: Map({"k": thing}),
    "a map's key": lambda thing: Map([(thing, 1), (1, 1)]),
    "a map's look-up": lambda thing: Map({1: 1}).get(thing),
    "key": key,
    "keys": lambda thing: keys((thing, thing)),
    "row_text": lambda thing: row_text((thing,)),
    "text_of": text_of,
    "same": lambda thing: same(thing, 1),
    "equality": lambda thing: thing == Record("p", 1) if isinstance(thing, Record) else None,
    "hash": lambda thing: hash(thing) if isinstance(thing, Record) else None,
    "repr": lambda thing: repr(thing) if isinstance(thing, Record) else None,
    "copy": lambda thing: copy.deepcopy(thing) if isinstance(thing, Record) else None,
    "order_key": order_key,
    "unparse": unparse,
    "to_json": to_json,
    "from_json": from_json,
    "from_json without limits": lambda thing: from_json(thing, depth=10**9),
    "from_json of a tag": lambda thing: from_json({"@int": thing}),
    "skeleton": skeleton,
    "skeleton without limits": lambda thing: skeleton(thing, depth=10**9, positions=10**9),
    "matcher": lambda thing: matcher(Record("p", capture("x"), capture("x")))(Record.of("p", (thing, 1))),
    "capture": lambda thing: skeleton(capture("x", None, thing)),
    "lit": lambda thing: skeleton(lit(thing)),
    "exact": lambda thing: skeleton(exact(thing)),
    "observe": lambda thing: skeleton(observe(thing)),
    "capture_names": capture_names,
    "pack": pack,
    "pack and unpack": lambda thing: unpack(pack(thing)),
    "an index": lambda thing: Index().patch([thing, thing], [thing], [thing]),
    "a turn": lambda thing: Space("s").commit("me", [(ASSERT, 1, thing), (SEND, thing)], 0),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_that_is_handed_in_ends_the_stack(entry: str) -> None:
    things: list[object] = [nested(shape, n) for shape in SHAPES for n in (70, 300, 1_100, 20_000)]
    for thing in [*things, knot([]), knot({})]:
        try:
            ENTRIES[entry](thing)  # type: ignore[arg-type]  # the point
        except DataspaceError:
            pass
        except TypeError as error:
            assert "unhashable" in str(error)  # lists and dicts are no values, and no keys in Python


def test_what_nests_in_labels_is_refused_at_once() -> None:
    # Each level once tried twice, which is 2**400 times at this depth; machine code can follow that far.
    with suppress(UsageError):
        key(nested("label", 400))
    with pytest.raises(UsageError, match="nested too deeply"):
        key(nested("label", 10_000))


# -- limits that the caller sets ----------------------------------------------------------------------


def levels(value: Value) -> int:
    """By recursion, for the comparison."""
    match value:
        case Record():
            return 1 + max(map(levels, (value.label, *value.fields)))
        case tuple():
            return 1 + max(map(levels, value), default=0)
        case Map():
            return 1 + max([levels(half) for pair in value.pairs() for half in pair], default=0)
    return 0


def elements(value: Value) -> int:
    """As above."""
    match value:
        case Record():
            return 1 + sum(map(elements, (value.label, *value.fields)))
        case tuple():
            return 1 + sum(map(elements, value))
        case Map():
            return 1 + sum(elements(half) for pair in value.pairs() for half in pair)
    return 1


def accepts(call: Callable[[], object]) -> bool:
    try:
        call()
    except DataspaceError:
        return False
    return True


@given(anything, st.integers(0, 6))
@example(Map({1: (2,)}), 1)
def test_a_depth_is_the_same_everywhere(value: Value, depth: int) -> None:
    fits = levels(value) <= depth
    assert accepts(lambda: bounded(value, depth=depth)) is fits
    assert accepts(lambda: freeze(value, depth=depth)) is fits
    assert accepts(lambda: parse(unparse(value), depth=depth)) is fits
    assert accepts(lambda: from_json(to_json(value), depth=depth)) is fits
    assert accepts(lambda: unpack(pack(value), depth=depth)) is fits


@given(anything, st.integers(1, 12))
@example(Map({1: 2}), 2)
def test_a_number_of_elements_is_the_same_for_values_and_json(value: Value, limit: int) -> None:
    fits = elements(value) <= limit
    assert accepts(lambda: bounded(value, elements=limit)) is fits
    assert accepts(lambda: freeze(value, elements=limit)) is fits
    assert accepts(lambda: from_json(to_json(value), elements=limit)) is fits


def test_a_text_says_no_more_values_than_its_reader_wants() -> None:
    assert parse("[1, p(2)]", elements=4) == (1, Record("p", 2))
    with pytest.raises(ParseError, match="more than 3 values") as caught:
        parse("[1, p(2)]", elements=3)
    assert caught.value.position == 6
    with pytest.raises(ParseError, match="more than 2 values"):
        parse_pattern("p($x, _)", elements=2)


def test_a_pattern_has_the_limits_that_its_caller_sets() -> None:
    pattern = parse("p(q(r($)), _)")
    assert skeleton(pattern, depth=3, positions=5) == skeleton(pattern)
    with pytest.raises(UsageError, match="pattern nested deeper than 2 levels"):
        skeleton(pattern, depth=2)
    with pytest.raises(UsageError, match="pattern of more than 4 positions"):
        matcher(pattern, positions=4)
    deep = parse("p(" * 99 + "$" + ")" * 99, depth=200)
    with pytest.raises(UsageError, match="deeper than 64"):
        skeleton(deep)
    assert len(skeleton(deep, depth=200).captures) == 1


def test_what_is_shared_is_counted_as_often_as_it_is_met() -> None:
    value: Value = 1
    for _ in range(80):
        value = (value, value)
    with pytest.raises(UsageError, match="more than 1000 elements"):
        bounded(value, elements=1_000)


# -- a turn with a value that is too deep -------------------------------------------------------------


def test_a_turn_with_a_value_too_deep_to_be_a_key_leaves_the_space_as_it_was() -> None:
    space, deep = Space("s"), nested("record", 20_000)
    space.commit("me", [(ASSERT, 1, Record("p", 1))], 0)
    space.index.add_handler(skeleton(Record("p", capture())), lambda _event, _row: None)
    for action in ((ASSERT, 2, deep), (SEND, deep)):
        with pytest.raises(UsageError, match="nested too deeply"):
            space.commit("me", [(ASSERT, 3, Record("p", 3)), action], 0)
        assert list(space.claims("me")) == [1]
        assert (space.statistics().claims, len(space.index), space.epoch) == (1, 1, 1)
        space.index.check()
    space.end(["me"], 0)
    assert len(space.index) == 0
