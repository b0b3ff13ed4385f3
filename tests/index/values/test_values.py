"""Values are told apart strictly, never change, and whatever is no value is refused with its path."""

from __future__ import annotations

import copy
import enum
import math
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy
import pytest
from hypothesis import example, given, strategies as st

from index.errors import UsageError
from index.values.columns import record_frame, records
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, key, keys, order_key, same, text_of
from tests.strategies import distinct, values

HUGE = 1 << 20_000
"""More digits than Python agrees to write in base ten."""

LOOKALIKES: list[Value] = [
    *(None, False, True, 0, 1, 0.0, -0.0, 1.0, math.nan, math.inf, -math.inf),
    *(HUGE, -HUGE, 1 << 60, float(1 << 60)),
    *("", "1", "True", "None", "()", "(1,)", "1970-01-01", b"", b"1"),
    *((), (1,), (True,), (1.0,), ("1",), (b"1",), ((),), (HUGE,), (HUGE, 1), (HUGE, True)),
    *(Map(), Map({1: 1}), Map([(True, 1)]), Map({1: True}), Map({"1": 1}), Map({1: HUGE}), Map({HUGE: 1})),
    *(Record("p"), Record("p", 1), Record("p", 1.0), Record("p", (1,)), Record(("p", 1)), Record(b"p", 1)),
    *(Record(Record("p", 1)), Record("p", Record("p", 1)), Record("Record", "p", 1), ("p", 1)),
    *(Record("p", HUGE), Record("p", HUGE, 1)),
    *(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)),
]


def rebuilt(value: Value) -> Value:
    """The same value without a part in common, so that nothing is equal by identity."""
    return pickle.loads(pickle.dumps(value))  # type: ignore[no-any-return]  # it was a value


# -- equality -----------------------------------------------------------------------------------------


def test_lookalikes_are_different_values() -> None:
    for at, one in enumerate(LOOKALIKES):
        for other_at, other in enumerate(LOOKALIKES):
            assert same(one, rebuilt(other)) is (at == other_at), (one, other)


@given(values)
def test_a_value_is_the_same_as_its_copy(value: Value) -> None:
    again = rebuilt(value)
    assert same(value, again)
    assert key(value) == key(again)
    assert hash(key(value)) == hash(key(again))
    assert order_key(value) == order_key(again)
    assert text_of(value) == text_of(again)


@given(values, values)
def test_keys_texts_and_order_agree_on_what_is_the_same(one: Value, other: Value) -> None:
    alike = same(one, other)
    assert (key(one) == key(other)) is alike
    assert (text_of(one) == text_of(other)) is alike
    assert (order_key(one) == order_key(other)) is alike
    assert (keys((one, other)) == keys((other, one))) is alike


@given(values, values)
def test_records_and_maps_compare_as_their_parts_do(one: Value, other: Value) -> None:
    alike = same(one, other)
    assert (Record("p", one) == Record("p", other)) is alike
    assert (Record(one) == Record(other)) is alike
    assert (Map([(1, one)]) == Map([(1, other)])) is alike
    assert (Map([(one, 1)]) == Map([(other, 1)])) is alike


@given(values)
def test_a_key_is_the_same_whether_parts_were_asked_before(inner: Value) -> None:
    fresh, warm = Record("p", (inner, 5), HUGE), Record("p", (rebuilt(inner), 5), HUGE)
    key(warm.fields[0])
    if isinstance(inner, (Record, Map)):
        key(inner)
    assert fresh == warm
    assert hash(fresh) == hash(warm)


def test_rows_of_captures_are_told_apart() -> None:
    rows: list[tuple[Value, ...]] = [(1, 2), (1, 2.0), (1, True), ("1", "2"), ((1, 2), 3), (1, (2, 3))]
    assert len({keys(row) for row in rows}) == len(rows)
    assert len({keys((one,)) for one in LOOKALIKES}) == len(LOOKALIKES)


def test_nothing_else_equals_a_record_or_a_map() -> None:
    assert Record("p", 1) != ("p", 1)
    assert Map({"a": 1}) != {"a": 1}


# -- order --------------------------------------------------------------------------------------------


@given(values, values, values)
def test_the_order_is_total_and_transitive(a: Value, b: Value, c: Value) -> None:
    one, two, three = order_key(a), order_key(b), order_key(c)
    assert (one < two) + (one > two) + (one == two) == 1
    if one <= two <= three:
        assert one <= three


def test_the_order_is_the_documented_one() -> None:
    early, late = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    documented: list[Value] = [
        *(None, False, True, math.nan, -math.inf, -1, -0.5, 0, -0.0, 0.0, 1, 1.0),
        *(2**60, float(2**60), HUGE, math.inf, "", "a", "b", b"", b"a", early, late),
        *(
            (),
            (1,),
            (1, 2),
            (2,),
            Record("a", 2),
            Record("b"),
            Record("b", 1),
            Map(),
            Map({1: 2}),
            Map({2: 1}),
        ),
    ]
    set_out = documented[1::2] + documented[::2]
    assert list(map(text_of, sorted(set_out, key=order_key))) == list(map(text_of, documented))


# -- maps ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(values, values), max_size=5).map(distinct), st.randoms(use_true_random=False))
def test_a_map_does_not_depend_on_the_order_of_its_entries(
    pairs: list[tuple[Value, Value]], chance: Random
) -> None:
    shuffled = list(pairs)
    chance.shuffle(shuffled)
    one, other = Map(pairs), Map(shuffled)
    assert one == other
    assert list(map(text_of, one)) == [text_of(at) for at in sorted((at for at, _ in pairs), key=order_key)]
    assert len(one) == len(pairs)
    for at, value in pairs:
        assert at in one
        assert same(one[at], value)
        entry = one.find(key(at))
        assert entry is not None
        assert same(entry[1], value)


def test_a_map_tells_its_keys_apart_strictly() -> None:
    told = Map([(1, "int"), (True, "bool"), (1.0, "float"), ("1", "str"), (math.nan, "nan")])
    assert [told[at] for at in (1, True, 1.0, "1", float("nan"))] == ["int", "bool", "float", "str", "nan"]
    assert 0 not in told
    assert told.get(0, "none") == "none"
    with pytest.raises(KeyError):
        told[False]


def test_a_map_refuses_a_key_given_twice() -> None:
    with pytest.raises(UsageError, match="2 entries has only 1"):
        Map([(math.nan, 1), (math.nan, 2)])


# -- freezing -----------------------------------------------------------------------------------------


@given(values)
def test_a_value_freezes_to_itself(value: Value) -> None:
    assert same(freeze(value), value)


def test_plain_python_freezes_to_values() -> None:
    zone = timezone(timedelta(hours=1))
    assert same(freeze([1, [2], {"k": [3]}]), (1, (2,), Map({"k": (3,)})))
    assert same(freeze(datetime(2026, 1, 1, 1, tzinfo=zone)), datetime(2026, 1, 1, tzinfo=UTC))
    assert Record("p", [1]).fields == ((1,),)


class Nowhere(tzinfo):
    """A zone that does not know its offset, which Python takes for a naive time."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


class Colour(enum.IntEnum):
    """Numbers with names."""

    RED = 1


class Mark(enum.StrEnum):
    """Words with names."""

    A = "a"


@dataclass
class Place:
    """Data by name."""

    x: int
    y: int


class Subclass(str):
    """Of a class of values, but none itself: what it adds would be lost."""


@pytest.mark.parametrize(
    ("thing", "complaint"),
    [
        ({1, 2}, "builtins.set is no value: allowed are None.*; sets have no order: give sorted"),
        ([Colour.RED], r"Colour is no value at \[0\].*; give its .value"),
        (Mark.A, "Mark is no value.*; give its .value"),
        (Place(1, 2), r"Place is no value.*; give a record of its fields, Record\('Place', "),
        (date(2026, 1, 1), "date is no value.*; give its .isoformat"),
        (Path("a"), r"no value.*; give str\(…\)"),
        (numpy.int64(1), r"numpy.int64 is no value.*; give its .item\(\)"),
        (numpy.float64(1), r"numpy.float64 is no value.*; give its .item\(\)"),
        (numpy.zeros(2), r"numpy.ndarray is no value.*; give its .tolist\(\)"),
        (bytearray(b"a"), r"bytearray is no value.*; give bytes"),
        (OrderedDict(), r"OrderedDict is no value.*; give a plain dict"),
        ([0, {"k": [Decimal(1)]}], r"decimal.Decimal is no value at \[1\]\['k'\]\[0\]"),
        (Subclass("a"), "Subclass is no value"),
        (["\ud800"], r"lone surrogate at position 0 is no value at \[0\]"),
        ([datetime(2026, 1, 1)], r"a time without a zone is no value at \[0\]"),
        (datetime(2026, 1, 1, tzinfo=Nowhere()), "a time without a zone is no value"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside the years 1 to 9999"),
        ({"a": {"b": print}}, r"builtin_function_or_method is no value at \['a'\]\['b'\]"),
    ],
)
def test_what_is_no_value_is_refused_with_its_path(thing: object, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        freeze(thing)


def test_a_record_names_the_field_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"set is no value at \[1\]\['k'\]"):
        Record("p", 0, {"k": set()})


def test_nesting_is_bounded_even_for_what_holds_itself() -> None:
    knot: list[object] = []
    knot.append(knot)
    with pytest.raises(UsageError, match="nested too deeply"):
        freeze(knot)
    assert freeze([[1]], depth=2) == ((1,),)
    with pytest.raises(UsageError, match=r"nested too deeply at \[0\]"):
        freeze([[1]], depth=1)


# -- immutability -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [Record("p", 1), Map({1: 2})])
def test_a_value_never_changes(value: Record | Map) -> None:
    for name in ("label", "fields", "_key", "_entries", "new"):
        with pytest.raises(UsageError, match="never changes"):
            setattr(value, name, 1)
        with pytest.raises(UsageError, match="never changes"):
            delattr(value, name)
    with pytest.raises(TypeError):
        value[1] = 2  # type: ignore[index]  # the point


@given(values)
def test_copies_of_all_sorts_are_the_same(value: Value) -> None:
    assert same(copy.copy(value), value)
    assert same(copy.deepcopy(value), value)


# -- hostile values -----------------------------------------------------------------------------------


@example(64)
@given(st.integers(0, 64))
def test_huge_integers_at_every_level_are_keyed_in_linear_time(depth: int) -> None:
    # Once each level was written twice, which doubled the time at each: 64 levels would not end.
    value: Value = Record("p", HUGE)
    for _ in range(depth):
        value = Record("p", Map({1: value}), HUGE)
    assert len(text_of(value)) < (depth + 1) * 6_000


def test_freeing_nested_records_leaves_their_neighbours_in_memory_as_they_were() -> None:
    # Python frees what is nested deeper than 50 later, in a list for which an acyclic object has no room.
    def nested() -> Record:
        record = Record("p", "inmost")
        for _ in range(100):
            record = Record.of("p", (record,))
        return record

    kept = []
    for _ in range(20):
        kept += [nested(), nested()]
        for _ in range(2):
            nested()  # freed at once
    for record in kept:
        for _ in range(100):
            (record,) = record.fields  # type: ignore[assignment]  # as they were made
        assert record == Record("p", "inmost")


def test_what_nests_deeper_than_python_can_follow_is_a_usage_error() -> None:
    deep: Value = Record("p")
    for _ in range(100_000):
        deep = Record.of("p", (deep,))
    for ask in (key, text_of, order_key, lambda value: keys((value, value))):
        with pytest.raises(UsageError, match="nested too deeply"):
            ask(deep)
    with pytest.raises(UsageError, match="nested too deeply"):
        assert deep == Record("p", 1)
    with pytest.raises(UsageError, match="nested too deeply"):
        Map([(deep, 1), (1, 1)])


def test_the_hashes_of_keys_cannot_be_made_to_collide() -> None:
    # Python's own hash of an integer is its remainder by 2**61 - 1: all of these have the same.
    assert len({hash(key(at * (2**61 - 1))) for at in range(1, 1000)}) > 990
    # Below 60 bits no two hashes are the same.
    assert len({hash(key(at << 32)) for at in range(1000)}) == 1000


@example(HUGE, [HUGE, Record("p", HUGE), (HUGE, Map({HUGE: 1}))])
@example("p", [HUGE])
@given(values, st.lists(values, max_size=4))
def test_the_frame_of_a_record_and_the_texts_of_its_fields_are_its_text(
    label: Value, fields: list[Value]
) -> None:
    begin, between, end = record_frame(label, len(fields))
    text = begin + between.join([text_of(each) for each in fields]) + end
    assert text == Record.of(label, tuple(fields)).text
    assert Record.of(label, tuple(fields), text) == Record.of(label, tuple(fields))


@example("p", [[HUGE, 1], ["a", "b"]])
@example(Record("p", 1), [[1], [Map({HUGE: 1})]])
@given(
    values,
    st.integers(0, 3).flatmap(
        lambda rows: st.lists(st.lists(values, min_size=rows, max_size=rows), min_size=1, max_size=4)
    ),
)
def test_records_by_the_column_are_those_by_the_row(label: Value, columns: list[list[Value]]) -> None:
    made = records(label, columns)
    plain = [Record.of(label, row) for row in zip(*columns, strict=True)]
    assert [(each.label, each.fields) for each in made] == [(each.label, each.fields) for each in plain]
    assert [each.text for each in made] == [each.text for each in plain]


def test_of_records_by_the_column_each_says_whether_it_is_too_deep() -> None:
    deep: Value = 1
    for _ in range(50_000):
        deep = (deep,)
    shallow, sunk = records("p", [[1, deep]])
    assert key(shallow) == key(Record("p", 1))
    with pytest.raises(UsageError, match="nested too deeply"):
        key(sunk)
