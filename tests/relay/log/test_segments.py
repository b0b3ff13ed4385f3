"""An epoch comes back from its bytes as it was, and altered bytes do not pass."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, strategies as st

import relay
from dataspace.kernel.changes import Claims, Epoch, Origin
from index.values.freezing import freeze
from index.values.values import Record, Value, key
from relay.log import segments
from relay.log.notes import origin
from relay.log.segments import (
    CHECKSUM_BYTES,
    SEGMENT_BYTES,
    Segment,
    cut,
    decode,
    encode,
    encode_note,
)
from tests.relay.log.histories import epoch, flight, plain

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.datetimes(timezones=st.just(UTC), min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)).map(
        freeze
    ),
)
values: st.SearchStrategy[Value] = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.builds(lambda label, fields: Record.of(label, tuple(fields)), inner, st.lists(inner, max_size=3)),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(freeze),
    ),
    max_leaves=5,
)
SEGMENT: Final = [each.name for each in fields(Segment)]
handles = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def epochs(draw: st.DrawFn) -> Epoch:
    """Any epoch; claims name the values of the epoch or others, as the kernel's do."""
    added, messages, removed = (draw(st.lists(values, max_size=4)) for _ in range(3))
    named = st.sampled_from([*added, *removed]) if added or removed else values
    claims = st.builds(
        Claims,
        st.text(max_size=5),
        st.lists(st.tuples(handles, st.one_of(values, named)), max_size=4),
        st.lists(handles, max_size=3),
    )
    return Epoch(
        draw(st.integers(0, 1 << 62)),
        draw(st.integers(-(1 << 62), 1 << 62)),
        added,
        messages,
        removed,
        draw(st.lists(claims, max_size=3)),
        draw(st.one_of(st.none(), st.text(max_size=5))),
        draw(st.integers(0, 1 << 62)),
        draw(st.booleans()),
    )


def strictly(epoch: Epoch) -> object:
    """An epoch as text that tells 1 from True and NaN from nothing."""
    return key(
        (
            (epoch.number, epoch.time, epoch.client, epoch.sequence, epoch.silent),
            (tuple(epoch.added), tuple(epoch.messages), tuple(epoch.removed)),
            tuple([(c.owner, tuple(map(tuple, c.asserted)), tuple(c.retracted)) for c in epoch.claims]),
        )
    )


@given(epochs())
def test_an_epoch_comes_back_as_it_was(whole: Epoch) -> None:
    encoded = encode(whole)
    assert strictly(decode(encoded.body)) == strictly(whole)
    assert encoded.changes == len(whole.added) + len(whole.messages) + len(whole.removed)


@given(epochs())
def test_an_epoch_in_pieces_has_the_same_bytes(whole: Epoch) -> None:
    once = encode(whole).body
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "PIECE", 1)
        assert encode(whole).body == once


def test_a_large_epoch_has_the_bytes_of_one_call() -> None:
    facts = [flight(n) for n in range(3 * segments.PIECE + 1)]
    claims = [Claims("me", [*enumerate(facts)], [*range(10, 4 * segments.PIECE)])]
    large = Epoch(7, 8, facts, facts[:5], facts[5:9], claims, "me", 3)
    rows = encode(large).body
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "PIECE", 1 << 20)
        assert encode(large).body == rows


@given(st.lists(epochs(), min_size=1, max_size=4), st.data())
def test_changes_are_those_of_the_epochs_that_are_asked_for(whole: list[Epoch], data: st.DataObject) -> None:
    whole.sort(key=lambda each: each.number)
    (segment,) = cut([encode(each) for each in whole], 1, bytes(CHECKSUM_BYTES))
    after, upto = (data.draw(st.sampled_from([-1, *[e.number for e in whole]])) for _ in range(2))
    assert [
        (n, t, key(tuple(a)), key(tuple(m)), key(tuple(r)))
        for n, t, a, m, r in segment.changes_after(after, upto)
    ] == [
        (e.number, e.time, key(tuple(e.added)), key(tuple(e.messages)), key(tuple(e.removed)))
        for e in whole
        if after < e.number <= upto and not e.silent
    ]


def test_a_value_is_written_once_however_often_it_is_named() -> None:
    fact = Record("p", "x" * 1000)
    whole = Epoch(1, 1, [fact], [fact], (), [Claims("a", [(1, fact), (2, fact)]), Claims("b", [(1, fact)])])
    assert len(encode(whole).body) < 2 * 1000 + 200, "once as a fact, once as a message, never for a claim"


def test_segments_are_cut_at_their_size_and_never_inside_an_epoch() -> None:
    entries = [encode(epoch(n, *[flight(n * 1000 + at) for at in range(400)])) for n in range(1, 60)]
    segments = list(cut(entries, 7, bytes(CHECKSUM_BYTES)))
    assert [segment.ordinal for segment in segments] == list(range(7, 7 + len(segments)))
    assert len(segments) > 2
    assert all(len(segment.body) <= SEGMENT_BYTES for segment in segments)
    assert [e.number for segment in segments for e in segment.epochs()] == list(range(1, 60))


def test_an_epoch_larger_than_a_segment_has_one_of_its_own() -> None:
    large = epoch(2, *[Record("blob", at, b"x" * 100_000) for at in range(5)])
    segments = list(cut([encode(epoch(1, 1)), encode(large), encode(epoch(3, 3))], 1, bytes(CHECKSUM_BYTES)))
    assert [(s.first, s.last) for s in segments] == [(1, 1), (2, 2), (3, 3)]
    assert plain(segments[1].epochs()) == plain([large])


@given(st.data())
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    (segment,) = cut([encode(epoch(n, flight(n))) for n in range(1, 4)], 1, bytes(CHECKSUM_BYTES))
    assert segment.sealed_by(bytes(CHECKSUM_BYTES))
    body = bytearray(segment.body)
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    head = (segment.first, segment.last, segment.entries, segment.changes, segment.since, segment.until)
    altered = type(segment)(1, *head, segment.checksum, bytes(body))
    assert not altered.sealed_by(bytes(CHECKSUM_BYTES))


@pytest.mark.parametrize("field", ["ordinal", "first", "last", "entries", "changes", "since", "until"])
def test_nor_does_an_altered_head_or_another_predecessor(field: str) -> None:
    (segment,) = cut([encode(epoch(1, flight(1)))], 1, bytes(CHECKSUM_BYTES))
    fields = {name: getattr(segment, name) for name in SEGMENT}
    assert not type(segment)(**{**fields, field: fields[field] + 1}).sealed_by(bytes(CHECKSUM_BYTES))
    assert not segment.sealed_by(b"\1" * CHECKSUM_BYTES)


def test_the_example_in_the_document_is_what_is_written() -> None:
    text = (Path(relay.__file__).parent / "LOG.md").read_text()
    fact = Record("p", "x")
    claims = [Claims("durable:EWR", [(7, fact)])]
    encoded = encode(Epoch(1, 1_767_225_600_000_000, [fact], (), (), claims, "c", 1))
    (segment,) = cut([encoded], 1, bytes(CHECKSUM_BYTES))
    assert encoded.body.hex() in re.sub(r"\s", "", text)
    assert segment.checksum.hex() in text


def test_where_turns_come_from_stands_between_epochs_and_is_no_change() -> None:
    said = Origin("c", "kitchen", "token:gateway", "10.0.0.7:40962")
    one, two = Epoch(1, 10, [Record("on", 1)]), Epoch(2, 20, [Record("on", 2)])
    entries = [encode(one), encode_note(1, 10, origin(said)), encode(two)]
    (segment,) = cut(entries, 1, bytes(CHECKSUM_BYTES))
    assert list(segment.origins()) == [(1, said)]
    assert [(each.number, each.silent) for each in segment.epochs()] == [(1, False), (1, True), (2, False)]
    assert [change[0] for change in segment.changes_after(0, 2)] == [1, 2]
    assert [each.body for each in segment.encoded_until(2)] == [each.body for each in entries]
    assert [each.body for each in segment.encoded_until(1)] == [each.body for each in entries[:2]]
    fact = Record("origin", *said)  # a fact that looks like it is none
    (other,) = cut([encode(Epoch(1, 10, [fact]))], 1, bytes(CHECKSUM_BYTES))
    assert not list(other.origins())
