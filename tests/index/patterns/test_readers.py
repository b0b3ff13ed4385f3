"""A reader that was written out answers as one that walks, and nothing that a stranger says gets into it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from index import emitter
from index.patterns.patterns import capture, exact, matcher, skeleton
from index.patterns.readers import (
    Places,
    ReaderRows,
    alike_reader,
    group_code,
    handler_code,
    match_reader,
    walking_matches,
)
from index.patterns.text import parse, parse_pattern
from index.values.positions import MISSING, class_of, project
from index.values.values import Map, Record, Value
from tests.index.strategies import patterns, values_near


@given(st.data(), patterns)
def test_of_any_pattern_and_any_value(data: st.DataObject, pattern: Value) -> None:
    form = skeleton(pattern)
    value = data.draw(values_near(pattern))
    assert _text(match_reader(form)(value)) == _text(walking_matches(form)(value))
    assert _text(alike_reader(form)(value)) == _text(walking_matches(form)(value))
    if all(class_of(project(value, path)) == of_class for path, of_class in form.shape):
        paths = tuple([path for path, _ in form.constants])
        handler = handler_code(form.shape, form.captures)
        group = group_code(form.shape, paths, form.checks, handler)
        assert group.place(value) == Places(paths, form.checks).place(value)
        assert _text(handler.read(value)) == _text(ReaderRows(form.captures).read(value))


def _text(row: object) -> str:
    """NaN is not equal to itself in Python, but its text is."""
    return repr(row)


@pytest.mark.parametrize("size", [1, 62, 64, 1000])
def test_of_any_size(size: int) -> None:
    match = matcher(exact(Record("p", *[capture()] * size)))
    wide = Record("p", *range(size))
    assert match(wide) == wide.fields
    assert match(Record("p", *range(size + 1))) is None
    assert match(Record("p", *range(size - 1))) is None


def test_of_large_skeletons_by_walking_and_of_small_ones_by_texts_that_are_shared() -> None:
    before = set(emitter._codes)
    for n in range(100):
        matcher(Record(f"label {n}", n, capture()))
        matcher(Record(f"label {n}", *[capture()] * 100))
    assert len(set(emitter._codes) - before) <= 1


@pytest.mark.parametrize("name", ['"', "\\", "\n    raise", "{0}", "'''", "c0", "value", "import os"])
def test_of_labels_keys_and_constants_that_look_like_a_program(name: str) -> None:
    pattern = Record(name, name, Map({name: capture()}))
    assert matcher(pattern)(Record(name, name, Map({name: 1}))) == (1,)
    assert matcher(pattern)(Record(name, "other", Map({name: 1}))) is None


@pytest.mark.parametrize(
    ("pattern", "short", "long"),
    [
        ("p(q($x), $x)", "p(q(), 1)", "p(q(1), 1)"),
        ("p([$x], $x)", "p([], 1)", "p([1], 1)"),
        ('p({"k": $x}, $x)', "p({}, 1)", 'p({"k": 1}, 1)'),
        ('p({"k": [$x]}, $x)', 'p({"k": []}, 1)', 'p({"k": [1]}, 1)'),
        ("p(q(_, $x), [$x])", "p(q(1), [1])", "p(q(2, 1), [1])"),
        ("[[[$x]], $x]", "[[[]], 1]", "[[[1]], 1]"),
    ],
)
def test_of_a_repeated_name_whose_first_place_is_not_there(pattern: str, short: str, long: str) -> None:
    form = skeleton(parse_pattern(pattern))
    handler = handler_code(form.shape, form.captures)
    place = group_code(form.shape, *form.group, handler).place
    assert place(parse(short)) is MISSING and place(parse(long)) == form.place
    for reader in (match_reader, alike_reader, walking_matches):
        assert (reader(form)(parse(short)), reader(form)(parse(long))) == (None, (1,))


def test_of_places_whose_constants_are_not_there() -> None:
    form = skeleton(Record("p", 1, 2))
    place = group_code(form.shape, ((0,), (1,)), (), handler_code(form.shape, ())).place
    assert place(Record("p", 1)) is MISSING
    assert [place(Record("p", *some)) for some in [(1, 2), (1, 2, 3)]] == [place(Record("p", 1, 2))] * 2
    different: list[Value] = [1, 1.0, True, "1", b"1", None]
    keys = [place(Record("p", one, 2)) for one in different]
    assert all(one != other for one, other in pairwise(keys)) and len(set(keys)) == len(different)
