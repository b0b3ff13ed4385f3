"""Every value has one JSON form, different values have different ones, and all come back."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from index.errors import UsageError
from index.patterns.patterns import capture
from index.values.freezing import freeze
from index.values.jsons import MAX_DEPTH, captures_json, from_json, to_json
from index.values.values import Map, Record, Value, same, text_of
from tests.index.strategies import anything


def through_text(value: Value) -> Value:
    """A value that has been JSON text in between, of the kind without Python's own NaN."""
    return from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))


@given(anything)
def test_every_value_comes_back_from_its_json(value: Value) -> None:
    assert same(through_text(value), value)


@given(anything, anything)
def test_different_values_have_different_json(one: Value, other: Value) -> None:
    assert (json.dumps(to_json(one)) == json.dumps(to_json(other))) is same(one, other)


FORMS: list[tuple[object, object]] = [
    (None, None),
    (True, True),
    ("Alice", "Alice"),
    (2**53 - 1, 2**53 - 1),
    (2**53, {"@int": "9007199254740992"}),
    (-(2**53), {"@int": "-9007199254740992"}),
    (1 << 2048, {"@int": "0x1" + "0" * 512}),
    (21.5, 21.5),
    (math.nan, {"@float": "nan"}),
    (-math.inf, {"@float": "-inf"}),
    (b"\x00\xff", {"@bytes": "AP8="}),
    (datetime(2026, 1, 1, tzinfo=UTC), {"@time": "2026-01-01T00:00:00Z"}),
    ((1, (2,)), [1, [2]]),
    ({"k": [None]}, {"k": [None]}),
    ({}, {}),
    ({1: "one", "k": 2}, {"@map": [[1, "one"], ["k", 2]]}),
    ({"@": 1}, {"@map": [["@", 1]]}),
    ({"@int": "5"}, {"@map": [["@int", "5"]]}),
    (Record("present", "Alice"), {"@": "present", "fields": ["Alice"]}),
    (Record(1), {"@": 1, "fields": []}),
    (capture("x"), {"@": "$", "fields": ["x", None, {"@": "_", "fields": []}]}),
]


@pytest.mark.parametrize(("thing", "said"), FORMS)
def test_a_form_is_the_documented_one(thing: object, said: object) -> None:
    assert json.dumps(to_json(freeze(thing))) == json.dumps(said)
    assert text_of(from_json(said)) == text_of(freeze(thing))


@pytest.mark.parametrize(
    ("said", "thing"),
    [
        ({"@int": "5"}, 5),
        ({"@int": "0xff"}, 255),
        ({"@float": "1"}, 1.0),
        ({"@float": "1e3"}, 1000.0),
        ({"@float": "inf"}, math.inf),
        ({"@map": []}, Map()),
        ({"@map": [["k", 1]]}, Map({"k": 1})),
        ({"@time": "2026-01-01T01:00:00+01:00"}, datetime(2026, 1, 1, tzinfo=UTC)),
        (2**80, 2**80),
        (math.nan, math.nan),
    ],
)
def test_more_is_read_than_is_written(said: object, thing: Value) -> None:
    assert text_of(from_json(said)) == text_of(thing)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({1, 2}, "set is no JSON at the top"),
        ([1, {"k": [b""]}], r"bytes is no JSON at \[1\]\['k'\]\[0\]"),
        ({"k": {"@int": "x"}}, r"'x' is no int at \['k'\]\['@int'\]"),
        ({"@int": 5}, "5 is no int"),
        ({"@int": "1" * 641}, "is no int"),
        ({"@float": "one"}, "'one' is no float"),
        ({"@float": "Infinity"}, "is no float"),
        ({"@bytes": "AP8"}, "'AP8' is no bytes"),
        ({"@bytes": "!AP8="}, "is no bytes"),
        ({"@time": "2026-01-01"}, "is no time"),
        ({"@map": [[1]]}, r"a map is a list of pairs at \['@map'\]"),
        ({"@map": {"k": 1}}, "a map is a list of pairs"),
        ({"@map": [[1, 2], [1, 3]]}, "2 entries has only 1 different keys"),
        ({"@nothing": 1}, r"keys \['@nothing'\] is none of the tagged forms"),
        ({"@int": "5", "k": 1}, "none of the tagged forms"),
        ({"@": "p"}, "none of the tagged forms"),
        ({"@": "p", "fields": 1}, "none of the tagged forms"),
        ({"@": "p", "fields": [], "k": 1}, "none of the tagged forms"),
        ({1: 2}, "key 1 is no text"),
        (["\ud800"], r"lone surrogate at position 0 is no value at \[0\]"),
        ({"\ud800": 1}, "lone surrogate"),
    ],
)
def test_what_is_no_values_json_is_refused_with_its_path(said: object, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        from_json(said)


deep_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["@", "fields", "@int", "@float", "@bytes", "@time", "@map", "k"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=8,
)


@given(deep_json)
def test_any_json_gives_a_value_or_a_usage_error(said: object) -> None:
    try:
        value = from_json(said)
    except UsageError:
        return
    assert same(through_text(value), value)


def nested(levels: int) -> Value:
    value: Value = Record("p")
    for _ in range(levels - 1):
        value = Record.of("p", (value,))
    return value


def test_nesting_is_bounded_in_levels_of_the_value() -> None:
    assert same(through_text(nested(MAX_DEPTH)), nested(MAX_DEPTH))
    with pytest.raises(UsageError, match=r"nested too deeply at (\['fields'\]\[0\]){4}…$"):
        from_json(to_json(nested(MAX_DEPTH + 1)))
    with pytest.raises(UsageError, match="nested too deeply"):
        to_json(nested(100_000))
    knot: list[object] = []
    knot.append(knot)
    with pytest.raises(UsageError, match="nested too deeply"):
        from_json(knot, depth=1_000_000)


def test_captures_are_named_or_numbered() -> None:
    said = captures_json(("who", "1", "when"), ("Alice", 2**60, datetime(2026, 1, 1, tzinfo=UTC)))
    assert said == {"who": "Alice", "1": {"@int": str(2**60)}, "when": {"@time": "2026-01-01T00:00:00Z"}}
    with pytest.raises(ValueError, match="shorter"):
        captures_json(("who", "1"), ("Alice",))
