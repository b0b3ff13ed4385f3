"""A feed keeps the order, lets progress leave as one, and is bounded in one of two ways."""

from __future__ import annotations

from dataspace.codec import unpack
from dataspace.topics.encoding import message_of
from dataspace.topics.messages import Batch, Message, Progress
from relay.topics.feed import Feed, Packed


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


def test_beyond_the_limit_it_fails_with_counts_and_holds_nothing() -> None:
    feed = Feed(lambda: None, limit=250)
    offered(feed, *(Batch(0, n, b"x" * 100) for n in range(5)))
    assert feed.failure is not None and feed.failure.code == "slow-subscriber"
    assert "3 messages wait in" in feed.failure.text and len(feed) == 0


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
