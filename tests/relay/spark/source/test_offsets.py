"""Offsets say exactly which epochs a query has read, whatever Spark forgets of where it began."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given, strategies as st

from dataspace.client.bulk.frontiers import LogFrontier
from dataspace.errors import UsageError
from dataspace.wire.observing import NUMBERS
from relay.spark.common.parsing import Numbered
from relay.spark.source.offsets import (
    DataLoss,
    Offset,
    OffsetOrigin,
    Span,
    anew,
    beginning,
    following,
    further,
    lost,
    missing,
    offset,
    remaining,
    span,
    state_at,
    within_state,
)


def at(epoch: int, oldest: int = 1, space: str = "s") -> LogFrontier:
    return LogFrontier(epoch, oldest, space)


def kept(place: Offset) -> Offset:
    """An offset as it comes back from a checkpoint."""
    return offset(json.loads(json.dumps(place.json())))


@pytest.mark.parametrize(
    ("start", "epoch", "origin"),
    [
        ("snapshot", 0, OffsetOrigin("snapshot", 9)),
        ("latest", 9, OffsetOrigin("after", 9)),
        ("earliest", 3, OffsetOrigin("after", 3)),
        (6, 5, OffsetOrigin("after", 5)),
        (10, 9, OffsetOrigin("after", 9)),
    ],
)
def test_a_stream_begins_where_it_was_told_to(start: Numbered, epoch: int, origin: OffsetOrigin) -> None:
    assert beginning(start, at(9, oldest=4)) == Offset(epoch, "s", origin)


def test_the_snapshot_of_an_empty_space_is_nothing_and_what_follows_is_read_from_the_first() -> None:
    begun = beginning("snapshot", at(0))
    assert following(begun, at(0), None) == begun
    assert span(begun, following(begun, at(2), None)) == Span(0, 2)


def test_a_starting_epoch_that_is_gone_or_has_not_come_is_refused() -> None:
    with pytest.raises(DataLoss, match="startingEpoch 3 is gone, the oldest epoch retained is 4"):
        beginning(3, at(9, oldest=4))
    with pytest.raises(UsageError, match="startingEpoch 11 has not come yet, the newest epoch is 9"):
        beginning(11, at(9))


def test_the_same_offset_is_the_same_text() -> None:
    place = Offset(7, "s", OffsetOrigin("snapshot", 5))
    assert json.dumps(place.json()) == '{"epoch": 7, "space": "s", "from": {"snapshot": 5}}'
    assert json.dumps(kept(place).json()) == json.dumps(place.json())
    assert json.dumps(Offset(7, "s").json()) == '{"epoch": 7, "space": "s"}'


def test_a_text_that_is_no_offset_is_refused() -> None:
    for said in ({}, {"epoch": "7", "space": "s"}, {"epoch": 7, "space": "s", "from": {"then": 1}}):
        with pytest.raises(DataLoss, match="no offset"):
            offset(said)  # type: ignore[arg-type]  # what a damaged checkpoint may hold


def test_a_snapshot_is_a_batch_even_when_nothing_follows_it() -> None:
    begun = beginning("snapshot", at(9))
    end = following(begun, at(9), None)
    assert end != begun
    assert span(begun, end) == Span(9, 9, as_of=9)
    assert following(end, at(9), None) == end


def test_the_first_batch_begins_where_its_end_says_and_not_where_spark_says() -> None:
    """A query killed in batch 0 is asked for its beginning again, when the latest epoch is another."""
    for start, wanted in (
        ("latest", Span(9, 12)),
        ("snapshot", Span(9, 12, as_of=9)),
        ("earliest", Span(0, 12)),
    ):
        end = kept(following(beginning(start, at(9)), at(12), None))  # type: ignore[arg-type]
        assert span(beginning(start, at(50)), end) == wanted  # type: ignore[arg-type]


def test_a_batch_without_news_is_no_batch() -> None:
    place = Offset(9, "s")
    assert following(place, at(9), None) is place
    assert following(beginning("latest", at(9)), at(9), 5) == beginning("latest", at(9))


def test_a_limit_counts_epochs_after_a_snapshot() -> None:
    assert following(beginning("snapshot", at(9)), at(30), 5).epoch == 14
    assert following(Offset(9, "s"), at(30), 5) == Offset(14, "s")


@given(st.integers(0, 40), st.integers(1, 12), st.sets(st.integers(1, 9)))
def test_a_limit_does_not_count_numbers_that_no_epoch_has(begin: int, limit: int, fours: set[int]) -> None:
    """Gaps of three numbers, after each multiple of four in a set."""
    gaps = [(4 * each, 4 * each + 4) for each in sorted(fours) if each + 1 not in fours]
    absent = {number for before, first in gaps for number in range(before + 1, first)}
    numbers = [number for number in range(begin + 1, 200) if number not in absent]
    assert further(begin, limit, gaps) == numbers[limit - 1]


def test_another_space_lost_epochs_and_epochs_gone_are_losses() -> None:
    place = Offset(9, "s")
    assert lost(place, at(9)) is None
    assert lost(place, at(20, oldest=10)) is None
    assert "epochs 10 to 10 are gone" in str(lost(place, at(20, oldest=11)))
    assert "the newest is 8" in str(lost(place, at(8)))
    assert "it is t, it was s" in str(lost(place, at(9, space="t")))


def test_who_accepts_a_loss_goes_on_with_the_oldest_change_that_is_left() -> None:
    place = Offset(9, "s")
    for now in (at(20, oldest=13), at(20, space="t", oldest=13)):
        end = following(anew(place, now), now, None)
        assert span(place, kept(end)) == Span(12, 20)
    back = following(anew(place, at(5)), at(5), None)
    assert span(place, kept(back)) == Span(5, 5)
    assert span(back, following(back, at(8), None)) == Span(5, 8)


def test_a_batch_read_again_after_a_loss_is_refused_or_cut_to_what_is_left() -> None:
    wanted = Span(3, 9)
    assert missing(wanted, "s", at(9, oldest=4)) is None
    assert missing(wanted, "s", at(9, oldest=5)) is not None
    assert remaining(wanted, "s", at(9, oldest=6)) == Span(5, 9)
    assert remaining(wanted, "s", at(7)) == Span(3, 7)
    assert remaining(wanted, "s", at(30, oldest=12)) is None
    assert remaining(wanted, "t", at(9)) is None
    assert remaining(Span(3, 3, as_of=3), "s", at(9, oldest=4)) == Span(3, 3, as_of=3)


@given(
    st.sampled_from(["snapshot", "latest", "earliest", 4]),
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12),
    st.one_of(st.none(), st.integers(1, 4)),
)
def test_every_epoch_is_read_once_whatever_the_pace_the_limit_and_the_crashes(
    start: Numbered, steps: list[tuple[int, bool]], limit: int | None
) -> None:
    epoch, oldest = 6, 3
    begun = beginning(start, at(epoch, oldest))
    read: list[int] = []
    here = begun
    for grown, crashed in steps:
        epoch += grown
        end = following(here, at(epoch, oldest), limit)  # perhaps the same, if another daemon moves on
        if crashed and here is begun:
            here = beginning(start, at(epoch, oldest))  # Spark asks anew, and keeps the end
        batch = span(kept(here), kept(end))
        if batch.as_of is not None:
            read.extend(range(1, batch.as_of + 1))
        read.extend(range(batch.after + 1, batch.upto + 1))
        here = end
    first = {"snapshot": 1, "latest": 7, "earliest": 3, 4: 4}[start]
    assert read == list(range(first, here.epoch + 1)) or (not read and here == begun)


@given(
    st.sets(st.integers(0, NUMBERS - 1), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.none() | st.integers(1, 5)), max_size=15),
)
def test_a_state_in_parts_is_read_once_whatever_the_limits_and_the_crashes(
    numbers: set[int], steps: list[tuple[int, bool, int | None]]
) -> None:
    """Then follows every epoch once; limits change when a query is started again."""
    epoch = 6
    here = beginning("snapshot", at(epoch))
    rows: list[int] = []
    epochs: list[int] = []
    for number, (grown, crashed, limit) in enumerate(steps):
        epoch += grown
        if limit is not None and here.pending is not None:
            later = [each for each in sorted(numbers) if each >= here.pending.low]
            end = within_state(here, NUMBERS if len(later) <= limit else later[limit])
        else:
            end = following(here, at(epoch), limit)
        if crashed and number == 0:
            here = beginning("snapshot", at(epoch + 3))
        batch = span(kept(here), kept(end))
        if batch.as_of is not None:
            assert batch.as_of == 6
            low, high = batch.share or (0, NUMBERS)
            found = [each for each in sorted(numbers) if low <= each < high]
            assert limit is None or len(found) <= limit
            rows += found
        epochs += range(batch.after + 1, batch.upto + 1)
        here = end
    read = NUMBERS if here.pending is None else here.pending.low
    assert rows == [each for each in sorted(numbers) if each < read] or not steps
    assert epochs == [*range(7, here.reached + 1)]


def test_a_share_of_a_state_that_is_gone_stays_that_share() -> None:
    wanted = Span(3, 3, as_of=3, share=(5, 9))
    assert remaining(wanted, "s", at(9, oldest=4)) == wanted
    assert remaining(wanted, "s", at(9, oldest=7)) is None


def test_what_stays_while_another_daemon_moves_on_is_not_read_again() -> None:
    begun = beginning("earliest", at(5))
    first = following(begun, at(5), None)
    stays = following(first, at(5), None)
    assert kept(first).origin == OffsetOrigin("after", 0)
    assert span(kept(first), kept(stays)).empty
    assert span(stays, following(stays, at(6), None)) == Span(5, 6)


NUMBERED = st.one_of(st.sampled_from(["snapshot", "latest", "earliest"]), st.integers(0, 12))


@given(NUMBERED, st.integers(0, 9), st.integers(1, 10))
def test_a_stream_that_accepts_a_loss_begins_on_any_log_with_all_that_is_left(
    start: Numbered, epoch: int, oldest: int
) -> None:
    now = at(epoch, min(oldest, epoch + 1))
    if isinstance(start, int) and start > epoch + 1:
        with pytest.raises(UsageError, match="has not come yet"):
            beginning(start, now, fail=False)
        return
    begun = beginning(start, now, fail=False)
    assert lost(begun, now) is None
    if isinstance(start, int):
        assert begun.reached == max(start, now.oldest, 1) - 1


def test_a_state_that_is_gone_is_named_as_what_was_asked_for() -> None:
    said = missing(Span(3, 3, as_of=3), "s", at(9, oldest=7))
    assert said == "the state at epoch 3 is gone, the oldest that can be read is that at epoch 6"
    assert missing(Span(6, 6, as_of=6), "s", at(9, oldest=7)) is None


@given(st.one_of(st.just("latest"), st.integers(0, 12)), st.integers(0, 9), st.integers(1, 10))
def test_a_batch_reads_the_state_that_was_asked_for_or_is_refused(
    as_of: Literal["latest"] | int, epoch: int, oldest: int
) -> None:
    now = at(epoch, min(oldest, epoch + 1))
    wanted = now.epoch if as_of == "latest" else as_of
    if wanted > now.epoch:
        with pytest.raises(UsageError, match="has not come yet"):
            state_at(as_of, now)
    elif 0 < wanted < now.oldest - 1:
        with pytest.raises(DataLoss, match=f"asOfEpoch {wanted} is gone.* at epoch {now.oldest - 1}"):
            state_at(as_of, now)
    else:
        assert state_at(as_of, now) == Span(wanted, wanted, as_of=wanted or None)
