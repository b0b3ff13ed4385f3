"""Patterns mean what the design says: strict types, at-least arity, captures outer before inner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import event, given, strategies as st

from index.errors import UsageError
from index.patterns.patterns import (
    ATOM_CLASSES,
    DISCARD,
    capture,
    capture_names,
    discard,
    exact,
    lit,
    matcher,
    observe,
    skeleton,
)
from index.patterns.skeletons import (
    CACHED_SIZE,
    MAX_DEPTH,
    MAX_POSITIONS,
    _cache,
    _forms,
)
from index.values.values import Map, Record, Value, key, same
from tests.index.strategies import anything, patterns, values_near
from tests.model import patterns as oracle


def p(*fields: object) -> Record:
    return Record("p", *fields)


def q(*fields: object) -> Record:
    return Record("q", *fields)


@given(st.data(), patterns)
def test_the_matcher_is_the_oracle(data: st.DataObject, pattern: Value) -> None:
    value = data.draw(values_near(pattern))
    found = matcher(pattern)(value)
    event("matched" if found is not None else "not matched")
    assert repr(found) == repr(oracle.match(pattern, value))


@given(patterns)
def test_names_and_captures_correspond(pattern: Value) -> None:
    form = skeleton(pattern)
    assert len(form.names) == len(form.captures) == len(capture_names(pattern))


@given(anything)
def test_a_quoted_value_matches_itself_whatever_it_looks_like(value: Value) -> None:
    assert matcher(lit(value))(value) == ()
    assert repr(matcher(capture("all", None, lit(value)))(value)) == repr((value,))


MATCHES: list[tuple[Value, Value, tuple[Value, ...] | None]] = [
    # At-least arity: what is written must be there, the rest is nobody's business.
    (p(capture()), p(1, 2), (1,)),
    (p(), p(1, 2), ()),
    (p(DISCARD, DISCARD), p(1), None),
    (p(DISCARD, DISCARD), p(1, 2, 3), ()),
    ((), (1, 2), ()),
    (Map(), Map({"a": 1}), ()),
    (Map({"a": capture()}), Map({"a": 1, "b": 2}), (1,)),
    (Map({"a": DISCARD}), Map({"b": 2}), None),
    # Exactly as much as is written.
    (exact(p(capture())), p(1, 2), None),
    (exact(p(capture())), p(1), (1,)),
    (exact(p()), p(), ()),
    (exact((capture(),)), (1, 2), None),
    (exact(Map({"a": DISCARD})), Map({"a": 1, "b": 2}), None),
    (exact(p(q(capture()))), p(q(1, 2)), (1,)),  # only where it is written
    # Classes and labels.
    (p(), q(), None),
    (p(), (), None),
    ((), p(), None),
    (Record(1, capture()), Record(1, 2), (2,)),
    (Record(1, capture()), Record(True, 2), None),
    (Record(p(1), capture()), Record(p(1), 2), (2,)),
    # The whole value.
    (5, 5, ()),
    (5, 5.0, None),
    (DISCARD, 5, ()),
    (capture(), p(1), (p(1),)),
    (math.nan, math.nan, ()),
    (0.0, -0.0, None),
    # Captures: outer before inner, left to right.
    (capture("o", None, p(capture("i"), q(capture()))), p(1, q(2)), (p(1, q(2)), 1, 2)),
    (p(capture(None, None, q(capture())), capture()), p(q(1), 2), (q(1), 1, 2)),
    # A name that comes again is captured once and must be the same, strictly.
    (p(capture("x"), capture("x")), p(1, 1), (1,)),
    (p(capture("x"), capture("x")), p(1, 1.0), None),
    (p(capture("x"), capture(), capture("x")), p(1, 2, 1), (1, 2)),
    (p(capture("x"), q(capture("x"))), p(1, q(1)), (1,)),
    (p(capture("x", None, capture("x"))), p(1), (1,)),
    (p(capture("x"), capture("x")), p(math.nan, math.nan), (math.nan,)),
    # Atom classes.
    (p(capture("n", "int")), p(True), None),
    (p(discard("bool")), p(True), ()),
    (p(discard("null")), p(None), ()),
    (p(discard("record")), p(q()), ()),
    (p(discard("int")), p(), None),
    (p(capture("n", "record", q(capture()))), p(q(1)), (q(1), 1)),
    # Quotation, and interest in interest.
    (p(lit(q(1))), p(q(1)), ()),
    (p(lit(q(1))), p(q(1, 2)), None),
    (lit(DISCARD), DISCARD, ()),
    (lit(DISCARD), 5, None),
    (observe(p(capture())), observe(p(1)), (1,)),
    (observe(capture()), observe(p(capture())), (p(capture()),)),
    (lit(observe(p(DISCARD))), observe(p(DISCARD)), ()),
    (lit(observe(p(DISCARD))), observe(p(1)), None),
    # Within exact, a reserved label is a label.
    (exact(Record("_")), Record("_"), ()),
    (exact(Record("$", capture(), DISCARD, DISCARD)), capture("x"), ("x",)),
]


def spelt_out(value: Value) -> Value:
    """The pattern that asks for a value part by part, and for no more parts."""
    match value:
        case Record(label=label, fields=fields):
            return exact(Record.of(label, tuple([spelt_out(each) for each in fields])))
        case tuple():
            return exact(tuple([spelt_out(each) for each in value]))
        case Map():
            return exact(Map.of([(at, spelt_out(each)) for at, each in value.pairs()]))
        case _:
            return value


@given(anything, st.data())
def test_a_constant_gives_the_same_answer_checked_whole_or_part_by_part(
    constant: Value, data: st.DataObject
) -> None:
    value = data.draw(st.one_of(st.just(constant), values_near(spelt_out(constant))))
    assert matcher(lit(constant))(value) == matcher(spelt_out(constant))(value)


@pytest.mark.parametrize(("pattern", "value", "captures"), MATCHES, ids=repr)
def test_match(pattern: Value, value: Value, captures: tuple[Value, ...] | None) -> None:
    found = matcher(pattern)(value)
    assert (found is None) == (captures is None)
    assert found is None or (captures is not None and same(found, captures))
    assert repr(oracle.match(pattern, value)) == repr(found)


FIVE: Sequence[Value] = (1, 1.0, True, "1", b"1")


@pytest.mark.parametrize("one", FIVE, ids=repr)
@pytest.mark.parametrize("other", FIVE, ids=repr)
def test_five_values_are_five_constants(one: Value, other: Value) -> None:
    assert (matcher(p(one))(p(other)) is not None) == (one is other)
    assert (matcher(Map({one: DISCARD}))(Map({other: 0})) is not None) == (one is other)


def test_every_atom_class_takes_its_own_and_no_other() -> None:
    of_class: dict[str, Value] = {
        "bool": True,
        "int": 1,
        "float": 1.0,
        "str": "1",
        "bytes": b"1",
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "record": p(),
        "seq": (),
        "map": Map(),
        "null": None,
    }
    assert of_class.keys() == ATOM_CLASSES.keys()
    for name in of_class:
        taken = [other for other, value in of_class.items() if matcher(discard(name))(value) is not None]
        assert taken == [name]


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        (Record("_", "str", "int"), "a discard has at most a class"),
        (Record("_", 1), "a discard has at most a class"),
        (Record("_", "text"), "no class 'text', known are bool, int"),
        (Record("$"), "a capture has a name, a class and a pattern"),
        (Record("$", 1, None, DISCARD), "a capture has a name, a class and a pattern"),
        (Record("$", None, "text", DISCARD), "no class 'text'"),
        (Record("$", "1", None, DISCARD), "the name of a capture is a word like who or user-2, not '1'"),
        (p(1, (2, Record("lit"))), r"lit takes one value: Record\('lit', \) at \[1\]\[1\]"),
        (Map({"k": Record("exact")}), r"exact takes one pattern: Record\('exact', \) at \['k'\]"),
        (Map({5: Map({(1,): Record("lit")})}), r"lit takes one value: .* at \[5\]\[\(1,\)\]"),
        (exact(1), "exact takes a record, a sequence or a map, not 1"),
        (p(*range(MAX_POSITIONS)), f"pattern of more than {MAX_POSITIONS} positions"),
    ],
    ids=repr,
)
def test_what_is_no_pattern_is_refused_with_its_place(pattern: Value, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        skeleton(pattern)


@pytest.mark.parametrize("build", [discard, lambda name: capture("x", name)])
def test_classes_that_are_none_are_refused_when_a_pattern_is_built(build: Callable[[str], Value]) -> None:
    with pytest.raises(UsageError, match="no class 'text'"):
        build("text")


@pytest.mark.parametrize("name", ["1", "", "two words", "a-", "-a", "a.b", "é", "who\n", "$who"])
def test_a_name_that_is_no_word_is_refused_when_a_pattern_is_built_and_when_one_is_read(name: str) -> None:
    for build in (lambda: capture(name), lambda: skeleton(Record("$", name, None, DISCARD))):
        with pytest.raises(UsageError, match="the name of a capture is a word"):
            build()


def test_captures_without_a_name_are_called_by_their_position_which_no_name_can_be() -> None:
    assert capture_names(p(capture(), capture("who"), capture(None, None, q(capture())))) == (
        "0",
        "who",
        "2",
        "3",
    )


def nested(depth: int, label: str | None) -> Value:
    value: Value = p(1)
    for _ in range(depth):
        value = (value,) if label is None else Record.of(label, (value,))
    return value


@pytest.mark.parametrize("label", ["p", None, "exact", "Observe"])
@pytest.mark.parametrize("depth", [MAX_DEPTH, 1_000, 10_000, 100_000])
def test_depth_beyond_the_limit_is_a_usage_error_and_never_the_end_of_the_stack(
    depth: int, label: str | None
) -> None:
    with pytest.raises(UsageError, match=r"nested|exact takes"):
        matcher(nested(depth, label))


@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_values_of_any_depth_are_matched_as_far_as_the_pattern_goes(depth: int) -> None:
    assert matcher(p(p(capture())))(nested(depth, "p")) is not None
    assert matcher(p(q()))(nested(depth, "p")) is None
    with pytest.raises(UsageError, match="nested too deeply"):
        matcher(p(capture("x"), capture("x")))(p(nested(depth, "p"), nested(depth, "p")))


def test_a_discard_in_quotation_is_not_remembered_as_a_discard() -> None:
    assert skeleton(lit(DISCARD)) is not skeleton(DISCARD)
    assert skeleton(p(1)) is skeleton(p(1)) and skeleton(p(1)) is not skeleton(p(True))


def test_patterns_that_differ_in_constants_alone_keep_one_form() -> None:
    one, other = skeleton(p(1, capture("n"))), skeleton(p("x", capture("n")))
    for part in ("shape", "checks", "captures", "names", "way"):
        assert getattr(one, part) is getattr(other, part)
    assert one.constants[0][0] is other.constants[0][0]
    assert one.names != skeleton(p(1, capture("m"))).names


@pytest.mark.parametrize("wrap", [lambda at: Record(at, capture()), lambda at: Map({at: capture()})])
def test_what_python_calls_equal_keeps_forms_of_its_own(wrap: Callable[[Value], Value]) -> None:
    """Labels and keys of maps are part of a form, and 1, 1.0 and True are three of each."""
    for at in (1, True, 1.0, -0.0, 0.0, 0, False):
        assert matcher(wrap(at))(wrap(at)) is not None
        for other in (1, True, 1.0, -0.0, 0.0, 0, False):
            if key(at) != key(other):
                assert matcher(wrap(at))(wrap(other)) is None


def test_only_small_skeletons_are_remembered() -> None:
    large = p(*[capture()] * CACHED_SIZE)
    skeleton(large)
    assert key(large) not in _cache
    assert all(len(form[0]) + len(form[3]) <= CACHED_SIZE for form in _forms.values())
