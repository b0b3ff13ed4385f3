"""Rows of a class: which types there are, what fits them, and what an error says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any, Final, Literal, NamedTuple

import pytest
from hypothesis import given

from dataspace import Map, Record, UsageError, Value
from dataspace.client.observations import Observing
from dataspace.client.query.rows import Rows
from dataspace.client.space import RemoteSpace
from dataspace.client.typed import RowType, check_of
from dataspace.wire.observing import ObserveOptions
from index.values.values import key
from tests.index.strategies import anything

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


class Reading(NamedTuple):
    device: str
    value: float


@dataclass(frozen=True)
class Place:
    name: str
    at: tuple[int, ...] = ()
    seen: list[str] = field(default_factory=list)


class Maybe(NamedTuple):
    name: str | None


class Light(StrEnum):
    RED = "red"


class Level(Enum):
    LOW = 1
    HIGH = 0.5


SAMPLES: list[Value] = [
    None,
    True,
    False,
    0,
    1,
    2**53 + 1,
    10**400,
    0.5,
    1.0,
    math.inf,
    "",
    "red",
    b"red",
    NOON,
    (),
    (1,),
    (1, "a"),
    ("a", "b"),
    Map({"a": 1}),
    Record("a", 1),
]

ORACLE: list[tuple[Any, Callable[[Any], bool]]] = [
    (object, lambda value: True),
    (Any, lambda value: True),
    (Value, lambda value: True),
    (None, lambda value: value is None),
    (bool, lambda value: value is True or value is False),
    (int, lambda value: isinstance(value, int) and not isinstance(value, bool)),
    (float, lambda value: isinstance(value, float) or (type(value) is int and value in (0, 1))),
    (str, lambda value: isinstance(value, str)),
    (bytes, lambda value: isinstance(value, bytes)),
    (datetime, lambda value: isinstance(value, datetime)),
    (tuple, lambda value: isinstance(value, tuple)),
    (tuple[int, ...], lambda value: value in ((), (1,))),
    (tuple[int, str], lambda value: value == (1, "a")),
    (Map, lambda value: isinstance(value, Map)),
    (Record, lambda value: isinstance(value, Record)),
    (str | None, lambda value: value is None or isinstance(value, str)),
    (int | str, lambda value: type(value) in (int, str)),
    (Literal["red", 1], lambda value: value == "red" or (type(value) is int and value == 1)),
    (Light, lambda value: value == "red"),
    (Level, lambda value: value == 0.5 or (type(value) is int and value == 1)),
]
"""Types with what fits them, written out without the code."""


@pytest.mark.parametrize(("kind", "fits"), ORACLE, ids=[str(kind) for kind, _ in ORACLE])
def test_all_small_values_beside_all_types(kind: Any, fits: Callable[[Any], bool]) -> None:
    check = check_of(kind, "Row.x")
    for value in SAMPLES:
        try:
            found = check(value)
        except TypeError:
            assert not fits(value), f"{value!r} fits {kind}"
        else:
            assert fits(value), f"{value!r} does not fit {kind}"
            assert (found.value if isinstance(found, Enum) else found) == value


@given(anything)
def test_a_value_is_of_its_own_type_and_stays_what_it_is(value: Value) -> None:
    for kind in (type(value), type(value) | None, Value, object):
        assert key(check_of(kind, "Row.x")(value)) == key(value)


def test_a_union_keeps_an_int_that_is_allowed() -> None:
    for union in (int | float, float | int):
        assert type(check_of(union, "Row.x")(1)) is int
        assert type(check_of(union, "Row.x")(1.0)) is float


def test_named_captures_go_to_fields_of_their_names_in_any_order() -> None:
    assert RowType(Reading, ("value", "device"))((1, "d")) == Reading("d", 1.0)
    assert type(RowType(Reading, ("value", "device"))((1, "d")).value) is float
    assert RowType(Place, ("name",))(("here",)) == Place("here")
    assert RowType(Place, ("at", "name"))(((1, 2), "here")) == Place("here", (1, 2))


def test_captures_without_names_go_to_the_fields_in_order() -> None:
    assert RowType(Reading, ("0", "1"))(("d", 1.5)) == Reading("d", 1.5)


@pytest.mark.parametrize(
    "names",
    [(), ("device",), ("device", "value", "more"), ("device", "1"), ("0",), ("0", "1", "2"), ("a", "b")],
)
def test_captures_and_fields_that_do_not_agree_are_said_at_once(names: tuple[str, ...]) -> None:
    with pytest.raises(
        UsageError,
        match=r"Reading takes device, value, and the captures are .*: name a capture for each field",
    ):
        RowType(Reading, names)


def test_an_error_names_the_capture_the_value_and_the_type() -> None:
    with pytest.raises(UsageError) as raised:
        RowType(Reading, ("device", "value"))(("d", "warm"))
    said = str(raised.value)
    assert said.startswith(
        "the capture 'value' is \"warm\", and Reading.value takes float, for the fact with"
    )
    assert 'with device="d", value="warm": write $value:float in the pattern to leave such facts out,' in said
    with pytest.raises(UsageError, match=r"with device=1, value=2: write \$device:str in the pattern"):
        RowType(Reading, ("device", "value"))((1, 2))
    with pytest.raises(UsageError, match=r"takes str \| None, .*: let the class take it, as by object"):
        RowType(Maybe, ("name",))((1,))
    with pytest.raises(UsageError, match=f'is "{"x" * 50}.*…, and Reading.value takes float') as raised:
        RowType(Reading, ("device", "value"))(("d", "x" * 100_000))
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("row", [int, tuple, dict, "Reading", Reading("d", 1.0), None])
def test_a_row_that_is_no_class_of_rows_is_refused(row: Any) -> None:
    if row is None:
        return
    with pytest.raises(UsageError, match="row is a dataclass or a NamedTuple"):
        RowType(row, ("device", "value"))


def test_a_type_that_no_value_is_of_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Place.seen is list\[str\], which no value is"):
        RowType(Place, ("name", "seen"))


OF_COLUMNS: Final = {"captures", "places", "asserted", "owners", "share", "columns"}
"""Options of streams that come by the column, which ``observe`` does not open."""


def test_options_of_observe_are_those_of_its_record() -> None:
    """A policy is given by its name and a pace in seconds; the window and the key are the client's own."""
    own = {"window", "by"}
    record: dict[str, object] = {each.name: each.type for each in fields(ObserveOptions)}
    observing = {name: each.__forward_arg__ for name, each in Observing.__annotations__.items()}
    assert set(observing) - own == set(record) - {"pattern"} - OF_COLUMNS
    assert {name for name in observing if observing[name] != record.get(name)} == {"policy", "pace", *own}


@pytest.mark.parametrize("name", [*sorted(OF_COLUMNS), "nonsense"])
def test_observe_takes_no_other_option(name: str) -> None:
    nowhere: Any = None  # it is refused before anything is sent
    with pytest.raises(TypeError, match=rf"observe\(\) got an unexpected keyword argument '{name}'"):
        RemoteSpace.observe(nowhere, "n($n)", **{name: True})  # type: ignore[call-overload]  # as it is meant


def test_rows_of_a_class_have_their_columns_and_are_known_as_tuples_too() -> None:
    tuples = Rows(("device", "value"), [("a", 1), ("b", 2)], 7)
    rows = tuples.made_by(RowType(Reading, tuples.names))
    assert list(rows) == [Reading("a", 1.0), Reading("b", 2.0)] == rows[:] and rows[1].value == 2.0
    assert (rows.epoch, rows.names, len(rows)) == (7, ("device", "value"), 2)
    assert list(rows.untyped) == list(tuples) and list(rows.dicts()) == list(tuples.dicts())
    assert repr(rows) == "<2 rows at epoch 7>" and repr(tuples) == "<2 rows of device, value at epoch 7>"
    assert repr(rows.untyped) == repr(tuples)
