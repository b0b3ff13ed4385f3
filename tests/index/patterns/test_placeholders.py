"""What a relay says of a fact is told to those who could know no more than the relay, and is true."""

from __future__ import annotations

import pytest
from hypothesis import assume, event, given, strategies as st

from index.errors import UsageError
from index.patterns.events import Restricted, Visible
from index.patterns.patterns import capture, discard, exact, lit, matcher, skeleton
from index.patterns.placeholders import _PLACEHOLDERS, stand_in
from index.patterns.text import parse, parse_pattern, unparse
from index.trie.trie import Index
from index.values.values import Map, Record, Value, same
from tests.index.strategies import anything, patterns, values_near


def told(value: Value, visible: Visible, *some: str) -> list[list[str]]:
    """What handlers of some patterns are told of a restricted value."""
    index, heard = Index(), [list[str]() for _ in some]

    def listen(pattern: str, lines: list[str]) -> None:
        index.add_handler(skeleton(parse_pattern(pattern)), lambda _event, row: lines.append(unparse(row)))

    for pattern, lines in zip(some, heard, strict=True):
        listen(pattern, lines)
    index.add(Restricted(value, visible))
    index.check()
    return heard


def test_a_relay_reaches_those_who_capture_what_it_captured_and_no_others() -> None:
    value, visible = stand_in(parse("speak($who, _)"), ("Alice",))
    assert told(value, visible, "speak($, _)", 'speak("Alice", _)', "speak(_, _)", "speak($, $)") == [
        ['["Alice"]'],
        ["[]"],
        ["[]"],
        [],
    ]


def test_no_constant_matches_what_the_relay_does_not_know() -> None:
    value, visible = stand_in(parse("p($x, _, _:str)"), (1,))
    for unknown in ("hi", None, discard(), Record("_"), b"", 0):
        assert matcher(Record("p", capture(), lit(unknown)))(value) is None
        assert matcher(Record("p", capture(), discard(), lit(unknown)))(value) is None
    assert told(value, visible, "p($, lit(_), _)", "p($, _, _:str)", "p($, _, _)") == [[], ["[1]"], ["[1]"]]


@given(st.data(), patterns)
def test_the_same_pattern_is_told_inside_what_the_relay_was_told_outside(
    data: st.DataObject, pattern: Value
) -> None:
    row = matcher(pattern)(data.draw(values_near(pattern)))
    assume(row is not None)
    assert row is not None
    try:
        value, visible = stand_in(pattern, row)
    except UsageError as error:
        assert "_:bool" in str(error)
        return
    event("a stand-in")
    assert visible == frozenset(skeleton(pattern).captures)
    inside = matcher(pattern)(value)
    assert inside is not None and same(inside, row)


@given(anything)
def test_a_placeholder_is_no_value_that_anybody_wrote(value: Value) -> None:
    assert all(not same(value, each) for of_class, each in _PLACEHOLDERS.items() if of_class != "null")
    for of_class in _PLACEHOLDERS:
        assert matcher(discard(of_class))(_PLACEHOLDERS[of_class]) == ()


def test_a_name_that_comes_again_stands_for_one_value() -> None:
    pattern = exact((capture("x"), Map({"k": capture("x", None, Record("q", capture("y")))})))
    value, _ = stand_in(pattern, (Record("q", 5), 5))
    assert same(value, (Record("q", 5), Map({"k": Record("q", 5)})))


def test_captures_of_parts_of_a_capture_are_known_with_it() -> None:
    pattern = exact((capture("x", None, Record("q", capture("y"))), capture("z"), capture("y")))
    value, _ = stand_in(pattern, (Record("q", 5), 5, 7))
    assert same(value, (Record("q", 5), 7, 5))


def test_rows_and_classes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="a row of 0 captures for a pattern with 1"):
        stand_in(capture(), ())
    with pytest.raises(UsageError, match="nothing can stand for _:bool"):
        stand_in(discard("bool"), ())
    assert stand_in(capture("x", None, discard("bool")), (True,))[0] is True
