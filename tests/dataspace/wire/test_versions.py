"""Either side may be newer: what it says more is ignored, and of a version that is not spoken it learns."""

from __future__ import annotations

import re

import msgpack
import pytest
from hypothesis import given, strategies as st

from dataspace.codec import pack, unpack
from dataspace.errors import ProtocolError
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.expectations import ABSENT, are_expectations
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from dataspace.wire.session import Role, Session, encode
from index.values.values import Map, Value
from tests.strategies import values

SAMPLES: dict[str, Value] = {
    "a number from 0 to 2^63-1": 1,
    "text of at most 4096 characters": "text",
    "a map": Map({"k": 1}),
    "true or false": True,
    "an array": ((ASSERT, 1, "value"),),
    "an array of numbers": (1, 2),
    "an array of pairs of an owner and its actions": (("results", ((ASSERT, 1, "value"),)),),
    "an array of pairs of a group and its deliveries": (("workers", (5, 0, 1)),),
    "any value": "value",
}


Kind = tuple[type[p.Packet], tuple[p._Check, ...]]


def _sample(number: int) -> tuple[Value, ...]:
    return tuple(
        [
            ((ABSENT, "pattern"),) if check is are_expectations else SAMPLES[p._NAMES[check]]
            for check in p.TABLE[number][1]
        ]
    )


@pytest.mark.parametrize("number", p.TABLE, ids=lambda number: p.TABLE[number][0].__name__)
@given(st.lists(values, max_size=3))
def test_further_fields_of_a_packet_are_ignored(number: int, more: list[Value]) -> None:
    expected = p.TABLE[number][0](*_sample(number))  # type: ignore[arg-type]  # of the stated types
    assert p.read((number, *_sample(number), *more)) == expected


OPTIONAL = [
    (p.NUMBERS[kind], len(kind._fields) - left)
    for kind, defaults in p.DEFAULTS.items()
    for left in range(1, len(defaults) + 1)
]
"""Each packet that has fields which may be left out, and how many fields there are without some of them."""


@pytest.mark.parametrize(("number", "length"), OPTIONAL)
def test_last_fields_that_are_empty_are_left_out_and_read_as_empty(number: int, length: int) -> None:
    kind, sample = p.TABLE[number][0], _sample(number)
    defaults = p.DEFAULTS[kind]
    some = (*sample[:length], *defaults[len(defaults) - (len(sample) - length) :])
    packet = kind(*some)  # type: ignore[arg-type]  # of the stated types
    assert p.read((number, *sample[:length])) == packet == p.read((number, *some))
    assert encode(packet) == frame(pack((number, *sample[:length])))
    with pytest.raises(ProtocolError, match="malformed"):
        p.read((number, *sample[:length], 7))
    with pytest.raises(ProtocolError, match="malformed"):
        p.read((number, *sample[: len(sample) - len(defaults) - 1]))


@pytest.mark.parametrize("kind", p.DEFAULTS)
def test_what_is_left_out_is_what_the_class_says(kind: type[p.Packet]) -> None:
    assert tuple(kind._field_defaults.values()) == p.DEFAULTS[kind]


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        (7,),
        ((),),
        ((0,),),
        ((0, "p", 1),),
        ((1, "p"),),
        ((1, "p", 7),),
        ((1, "p", (7,)),),
        ((2, "p", -1),),
        ((2, "p", True),),
        ((3, "p", 1),),
        (("0", "p"),),
    ],
    ids=repr,
)
def test_what_is_no_expectation_is_malformed(wrong: Value) -> None:
    with pytest.raises(ProtocolError) as caught:
        p.read((2, 1, "main", "", ((ASSERT, 1, "value"),), wrong))
    assert caught.value.code == "malformed"


@pytest.mark.parametrize("number", p.TABLE, ids=lambda number: p.TABLE[number][0].__name__)
def test_fields_that_are_missing_are_malformed(number: int) -> None:
    kind, checks = p.TABLE[number]
    least = len(checks) - len(p.DEFAULTS.get(kind, ()))
    with pytest.raises(ProtocolError, match="malformed") as caught:
        p.read((number, *_sample(number)[: least - 1]))
    assert caught.value.code == "malformed"


UNKNOWN_VERSIONS = [0, 2, 127, 128, 255, 256, 65_536, 1 << 32, (1 << 64) - 1]
FORMS: dict[str, bytes] = {
    "as of now": pack(("c", "name", Map()))[1:],
    "with nothing else": b"",
    "with other fields": pack((Map(), 1, (2,), None))[1:],
    "with an extension that does not exist": msgpack.packb(msgpack.ExtType(77, b"x")),
    "with what is no msgpack": b"\xc1",
}


@pytest.mark.parametrize("version", UNKNOWN_VERSIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "head", [b"\x95", b"\xdc\x00\x05", b"\xdd\x00\x00\x00\x05"], ids=["short", "16", "32"]
)
def test_a_hello_of_another_version_is_answered_with_those_spoken(
    version: int, form: str, head: bytes
) -> None:
    with pytest.raises(ProtocolError) as caught:
        list(Session(Role.SERVER).feed(frame(head + b"\x01" + pack(version) + FORMS[form])))
    assert caught.value.code == "version"
    said = re.match(r"spoken (\d+) to (\d+), got (\d+)$", caught.value.text)
    assert said is not None
    assert [int(each) for each in said.groups()] == [*p.VERSIONS, version]


@given(st.binary(max_size=20))
def test_any_bytes_are_judged(body: bytes) -> None:
    try:
        p.check_version(body)
    except ProtocolError as error:
        assert error.code == "version"
        assert body[0] in range(0x90, 0xA0) or body[0] in (0xDC, 0xDD)
    else:
        try:
            packet = p.read(unpack(body))
        except ProtocolError:
            return
        assert not isinstance(packet, p.Hello) or packet.version == p.VERSION


def test_only_the_first_packet_is_judged() -> None:
    server = Session(Role.SERVER)
    list(server.feed(frame(pack((1, 1, "me", "a test", Map())))))
    with pytest.raises(ProtocolError) as caught:
        list(server.feed(frame(pack((1, 2, "me", "a test", Map())))))
    assert caught.value.code == "unexpected"
