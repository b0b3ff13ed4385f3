"""A packet is read as its table states, whichever way it takes."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import ProtocolError, Refused
from dataspace.wire import packets as p
from dataspace.wire.packets import MAX_TEXT, TABLE, read, written
from index.values.values import Value
from tests.strategies import values

actions = st.lists(
    st.one_of(
        st.tuples(st.just(0), st.integers(-1, 1 << 63), values),
        st.tuples(st.integers(-1, 4), st.integers(0, 9)),
        st.tuples(st.just(3), st.integers(0, 9), st.integers(-1, 9), values),
        st.just(()),
    ),
    max_size=3,
).map(tuple)
texts = st.one_of(st.text(max_size=5), st.sampled_from(["x" * MAX_TEXT, "x" * (MAX_TEXT + 1)]))
fields = st.tuples(
    st.one_of(st.integers(-1, 1 << 64), st.booleans(), values),
    st.one_of(texts, values),
    st.one_of(texts, values),
    st.one_of(actions, values),
)


def _as_stated(found: tuple[Value, ...]) -> bool:
    """Whether the fields of a turn pass the checks of the table, one by one."""
    kind, checks = TABLE[2]
    assert kind is p.Turn
    try:
        return all(
            check(field) for check, field in zip(checks, found, strict=False)
        )  # the last fields may be left out
    except ProtocolError:
        return False


@given(fields)
def test_a_turn_is_read_if_its_fields_pass_the_checks_of_the_table(found: tuple[Value, ...]) -> None:
    if not _as_stated(found):
        with pytest.raises(ProtocolError):
            read((2, *found))
        return
    turn = read((2, *found))
    assert turn.__class__ is p.Turn
    assert tuple(turn) == (*found, (), (), "", ())
    assert read((2, *found, (), ())) == turn
    traced = read((2, *found, (), (), "00-…", (), "a later field"))
    assert traced == p.Turn(*found, (), (), "00-…")  # type: ignore[call-arg,arg-type]


@given(texts, actions)
def test_turns_in_form_are_read(name: str, some: tuple[Value, ...]) -> None:
    found = (1, name, name, some)
    if _as_stated(found):
        assert read((2, *found)) == p.Turn(*found)  # type: ignore[arg-type]  # in form, as just checked


REFUSED = [
    (p.Bye("elsewhere", "it follows"), 2),
    (p.Error(3, "elsewhere", "it follows"), 3),
    (p.Refusal(3, "elsewhere", "it follows"), 3),
    (p.Denied(3, "elsewhere", "it follows"), 3),
]


@pytest.mark.parametrize(("packet", "least"), REFUSED)
def test_an_address_to_ask_instead_is_on_the_wire_only_if_there_is_one(packet: p.Packet, least: int) -> None:
    assert len(written(packet)) == 1 + least and read(written(packet)) == packet
    url = "tcp://other:7377"
    led = packet._replace(url=url)  # type: ignore[call-arg]  # each of these has an address
    assert written(led)[-1] == url and read(written(led)) == led
    assert read((*written(led), "a later field")) == led


def test_an_address_to_ask_instead_is_text() -> None:
    with pytest.raises(ProtocolError, match="url must be text"):
        read((9, "moved", "", 7))


@pytest.mark.parametrize("kind", [Refused, ProtocolError])
def test_an_error_keeps_its_address_and_has_none_by_default(
    kind: type[Refused] | type[ProtocolError],
) -> None:
    assert kind("limit", "too much").url == "" and kind("limit", "too much").args == ("limit", "too much")
    led = kind("moved", "to another", "tcp://other:7377")
    assert pickle.loads(pickle.dumps(led)).url == type(led)(*led.args).url == "tcp://other:7377"
