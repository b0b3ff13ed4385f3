"""A feed keeps the order, lets progress leave as one, and is bounded in one of two ways."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.codec import unpack
from dataspace.topics.messages import Batch, Message, Progress, message_of
from relay.topics.feed import PACE, PATIENCE, Feed, Packed

MEBIBYTE = Packed(Batch(0, 0, b"x" * (1 << 20)))


def offered(feed: Feed, *messages: Message) -> None:
    for each in messages:
        feed.offer(Packed(each))


def taken(feed: Feed, count: int = 100, size: int = 1 << 20) -> list[Message]:
    return [message_of(unpack(each.packed)) for each in feed.take(count, size)]


def test_progress_that_nothing_came_between_leaves_as_one() -> None:
    feed = Feed(lambda: None)
    offered(
        feed,
        Progress(0, ((0, -1), (1, +1))),
        Progress(0, ((1, -1), (2, +1))),
        Batch(0, 2, b"x"),
        Progress(0, ((2, -1), (3, +1))),
        Progress(1, ((0, -1),)),
    )
    assert taken(feed) == [
        Progress(0, ((0, -1), (2, +1))),
        Batch(0, 2, b"x"),
        Progress(0, ((2, -1), (3, +1))),
        Progress(1, ((0, -1),)),
    ]


def test_it_gives_what_it_is_asked_for_and_one_may_overdraw() -> None:
    feed = Feed(lambda: None)
    offered(feed, *(Batch(0, n, b"x" * 100) for n in range(5)))
    assert len(taken(feed, 2)) == 2
    assert len(taken(feed, 9, size=1)) == 1
    assert len(taken(feed, 9, size=0)) == 0
    assert (feed.statistics().waiting, feed.statistics().taken) == (2, 3)


def test_beyond_what_may_wait_at_most_it_fails_with_counts_and_holds_nothing() -> None:
    made_room: list[bool] = []
    feed = Feed(lambda: None, lambda: made_room.append(True), limit=250)
    offered(feed, *(Batch(0, n, b"x" * 100) for n in range(9)))
    assert len(feed) == 9
    offered(feed, *(Batch(0, n, b"x" * 100) for n in range(2)))
    assert feed.failure is not None and feed.failure.code == "slow-subscriber"
    assert "10 messages wait in" in feed.failure.text and "limit 1000" in feed.failure.text
    assert (len(feed), feed.full, made_room) == (0, False, [True])


def filled(*, wait: bool = False) -> Feed:
    feed = Feed(lambda: None, wait=wait)
    for _ in range(20):
        feed.offer(MEBIBYTE)
    return feed


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(0, 12)), max_size=30), st.booleans())
@pytest.mark.slow
def test_it_fails_exactly_if_it_is_full_and_takes_too_little(
    steps: list[tuple[float, int]], wait: bool
) -> None:
    """``steps`` are seconds that pass, and mebibytes that are taken in them and come again."""
    feed, now, since, taken = filled(wait=wait), 0.0, 0.0, 0
    feed.judge(now)
    for seconds, count in steps:
        now += seconds
        for _ in range(count):
            taken_now = len(feed.take(1, 1 << 21)[0].packed)
            taken += taken_now
            feed.offer(MEBIBYTE)
        feed.judge(now)
        assert feed.full or feed.failure
        late = now - since >= PATIENCE
        if late and taken / (now - since) < PACE and not wait:
            assert feed.failure is not None and f"at least {PACE}" in feed.failure.text and len(feed) == 0
            return
        assert feed.failure is None
        if late:
            since, taken = now, 0


def test_one_that_has_been_read_begins_anew() -> None:
    feed = filled()
    feed.judge(0.0)
    taken(feed, 20, 1 << 30)
    for _ in range(20):
        feed.offer(MEBIBYTE)
    feed.judge(100.0)
    assert feed.failure is None
    feed.judge(100.0 + PATIENCE)
    assert feed.failure is not None


def test_one_message_alone_is_within_the_limit_whatever_its_size() -> None:
    feed = Feed(lambda: None, limit=250)
    offered(feed, Batch(0, 0, b"x" * 1000))
    assert feed.failure is None and len(taken(feed)) == 1


def test_one_that_waits_is_full_until_it_is_read() -> None:
    made_room: list[bool] = []
    feed = Feed(lambda: None, lambda: made_room.append(True), wait=True, limit=250)
    offered(feed, *(Batch(0, n, b"x" * 100) for n in range(4)))
    assert (feed.full, feed.failure, made_room) == (True, None, [])
    taken(feed, 1)
    assert (feed.full, made_room) == (True, [])
    taken(feed, 1)
    assert (feed.full, made_room) == (False, [True])
