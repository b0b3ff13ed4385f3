"""Arguments of requests: what is read, and what is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given

from dataspace.errors import Refused
from dataspace.wire.arguments import key, number, text, texts
from index.values.values import Map, Value
from tests.strategies import values


def test_arguments_are_read_by_name() -> None:
    arguments = Map({"reader": "r", "epoch": 7, "key": ("a", "b")})
    assert text(arguments, "reader") == "r"
    assert number(arguments, "epoch") == 7
    assert texts(arguments, "key") == ("a", "b")


def test_a_default_stands_for_what_is_missing() -> None:
    assert text(Map(), "space", "main") == "main"
    assert number(Map(), "after", -1) == -1


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "reader must be text of at most 4096 characters, got None"),
        (1, "reader must be text of at most 4096 characters, got 1"),
    ],
)
def test_what_is_no_text_is_refused(found: Value, said: str) -> None:
    with pytest.raises(Refused, match=said):
        text(Map({"reader": found}), "reader")


def test_text_is_bounded() -> None:
    assert len(text(Map({"reader": "x" * 4096}), "reader")) == 4096
    with pytest.raises(Refused):
        text(Map({"reader": "x" * 4097}), "reader")


@pytest.mark.parametrize("found", [True, -2, 1 << 63, 1.0, "1"])
def test_what_is_no_number_is_refused(found: Value) -> None:
    with pytest.raises(Refused, match="epoch must be a number"):
        number(Map({"epoch": found}), "epoch")


@given(values)
def test_a_key_is_an_array_of_text_or_refused(value: Value) -> None:
    allowed = isinstance(value, tuple) and len(value) > 0 and all(isinstance(each, str) for each in value)
    try:
        assert key(value) == value
        assert allowed
    except Refused as refusal:
        assert refusal.code == "bad-request"
        assert not allowed
