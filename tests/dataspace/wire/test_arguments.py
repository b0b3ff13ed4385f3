"""Arguments of requests: what is read, and what is refused with what was found and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from dataspace.errors import Refused
from dataspace.wire.arguments import at_most, is_key, number, seconds, text
from dataspace.wire.verbs import UNSAFE, VERBS, repetition
from index.values.values import Map, Value
from tests.strategies import values

TOP = Path(__file__).parents[3]


def test_arguments_are_read_by_name_and_a_default_stands_for_what_is_missing() -> None:
    read = VERBS["frontier"].read(Map({"after": 7, "wait": 1 << 40, "erased": (1, 2)}))
    assert read == {"after": 7, "wait": 60_000, "at": None, "erased": (1, 2)}


@pytest.mark.parametrize(
    ("verb", "stated", "said"),
    [
        ("settle", {}, "group must be text of at most 4096 characters, got nothing"),
        ("settle", {"group": None}, "group must be text of at most 4096 characters, got None"),
        ("settle", {"group": "g", "done": ((1, 2),)}, "done must be an array of at most 10000 deliveries"),
        ("settle", {"group": "g", "done": ((1, 2, True),)}, "each epoch, position and token, got"),
        ("owners", {"pattern": 1, "most": 0}, "most must be a number from 1 to 10000, got 0"),
        ("sync", {"x": 1}, "sync has no argument 'x', known are reached"),
        ("renew", {(1,): 1}, "renew has no argument (1,), known are owner"),
    ],
)
def test_what_is_refused_is_said_with_what_is_allowed(
    verb: str, stated: dict[Value, Value], said: str
) -> None:
    with pytest.raises(Refused) as refused:
        VERBS[verb].read(Map(stated))
    assert refused.value.code == "bad-request" and said in refused.value.text


def test_text_is_bounded() -> None:
    assert len(str(text().read("reader", "x" * 4096))) == 4096
    with pytest.raises(Refused):
        text().read("reader", "x" * 4097)


@pytest.mark.parametrize("found", [True, -2, 1 << 63, 1.0, "1"])
def test_what_is_no_number_is_refused(found: Value) -> None:
    with pytest.raises(Refused, match=r"epoch must be a number from -1 to 2\^63-1, got"):
        number().read("epoch", found)


def test_a_count_beyond_its_bound_is_read_as_the_bound() -> None:
    assert [at_most(5, 100).read("most", each) for each in (-1, 7, 1 << 62)] == [0, 7, 100]


@pytest.mark.parametrize("found", [0, -1, 11, True, float("nan"), "1"])
def test_what_is_no_number_of_seconds_is_refused(found: Value) -> None:
    assert seconds(None, 10, above=True).read("age", 0.5) == 0.5
    with pytest.raises(Refused, match="age must be above 0 and up to 10 seconds"):
        seconds(None, 10, above=True).read("age", found)


@given(values)
def test_a_key_is_an_array_of_text(value: Value) -> None:
    allowed = isinstance(value, tuple) and len(value) > 0 and all(isinstance(each, str) for each in value)
    assert is_key(value) == allowed


def test_a_request_that_is_not_known_is_not_repeated() -> None:
    assert repetition("anything", Map()) is UNSAFE


@pytest.mark.skipif(not (TOP / "relocate.py").exists(), reason="about the sources of a checkout")
def test_each_argument_is_looked_at_where_its_verb_is_carried_out() -> None:
    """An argument that no code reads would be accepted, and do nothing."""
    code = "\n".join(path.read_text() for path in (TOP / "server").rglob("*.py"))
    unread = {name for row in VERBS.values() for name in row.arguments if f'"{name}"' not in code}
    assert unread == set()
