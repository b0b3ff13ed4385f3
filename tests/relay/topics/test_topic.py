"""A topic refuses what would break an epoch, and says why; nothing has happened then."""

from __future__ import annotations

import pytest

from dataspace.errors import Refused, UsageError
from dataspace.topics.messages import Batch, Crashed, Message, Progress, Snapshot
from dataspace.topics.times import Change, Order, Time
from relay.topics.feed import CatchUp
from relay.topics.steps import StepLog
from relay.topics.topic import Topic


def nothing() -> None:
    """A subscription that ends and has nobody to tell."""


def test_no_batch_without_a_capability() -> None:
    topic = Topic("t", Order(0))
    topic.join(1)
    topic.progress(1, [(0, -1), (3, +1)])
    with pytest.raises(UsageError, match="no capability for time 2, held are \\[3\\]"):
        topic.send(1, 2, "late")


def test_no_capability_out_of_nothing() -> None:
    topic = Topic("t", Order(0))
    topic.join(1, time=3)
    with pytest.raises(UsageError, match="no capability for time 2"):
        topic.progress(1, [(2, +1)])
    with pytest.raises(UsageError, match="released but not held"):
        topic.progress(1, [(3, -2)])
    assert topic.holds(1) == [(3, 1)]


@pytest.mark.parametrize(
    ("time", "changes"),
    [
        (0, [(0, -2)]),
        (0, [(0, -1), (1, +1), (5, -1)]),
        (0, [("x", +1)]),
        ("x", [(0, -1)]),
        (0, [(0, -1), ((1, 2), +1)]),
    ],
)
def test_items_and_changes_are_one_step_or_none(time: Time, changes: list[Change]) -> None:
    topic = Topic("t", Order(0))
    step_log = StepLog(topic, 1, retain=1 << 20)
    step_log.join(1)
    heard: list[Message] = []
    topic.subscribe(2, [0], heard.append, nothing)
    del heard[:]
    before = step_log.size
    with pytest.raises(UsageError):
        step_log.finish(1, time, b"half", changes)
    assert (heard, topic.holds(1), step_log.size) == ([], [(0, 1)], before)
    step_log.finish(1, 0, b"whole", [(0, -1), (1, +1)])
    assert heard == [Batch(0, 0, b"whole"), Progress(0, ((0, -1), (1, 1)))]


def test_times_of_another_order_are_refused() -> None:
    topic = Topic("t", Order(2))
    topic.join(1)
    for time in (3, (1,), (1, True), (-1, 0), (0, 1 << 63)):
        with pytest.raises(UsageError, match="a tuple of 2 integers"):
            topic.send(1, time, "")


def test_a_producer_may_not_join_behind_the_frontier() -> None:
    topic = Topic("t", Order(0))
    topic.join(1, time=5)
    with pytest.raises(UsageError, match="time 4 is over: the frontier is \\[5\\]"):
        topic.join(2, time=4)
    assert topic.join(3) == 5


def test_an_ended_partition_begins_again_beyond_what_was_seen() -> None:
    topic = Topic("t", Order(0), partitions=2)
    topic.join(1, 0)
    topic.join(2, 1)
    topic.send(1, 7, "x")
    topic.crash(1, "gone")
    with pytest.raises(UsageError, match="times to \\[7\\] have been sent"):
        topic.join(3, 0, time=7)
    assert topic.join(4, 0) == 8


def test_a_group_is_over_when_all_its_partitions_are() -> None:
    topic = Topic("t", Order(0), partitions=3)
    for partition in range(3):
        topic.join(partition, partition)
    over: list[str] = []
    topic.subscribe(1, [0, 1], lambda _: None, lambda: over.append("01"))
    topic.subscribe(2, [1, 2], lambda _: None, lambda: over.append("12"))
    topic.leave(0)
    topic.crash(1, "gone")
    assert over == ["01"]
    topic.progress(2, [(0, -1)])
    assert over == ["01", "12"] and topic.ended


def kept(retain: int, times: int) -> StepLog:
    """A topic in memory with a batch of 100 bytes at each of some times."""
    step_log = StepLog(Topic("t", Order(0)), 1, retain=retain)
    step_log.join(1)
    for time in range(times):
        step_log.finish(1, time, b"%100d" % time, [(time, -1), (time + 1, +1)])
    return step_log


def as_of(step_log: StepLog, time: int) -> list[Message]:
    heard: list[Message] = []
    catching = CatchUp(step_log, 7, [0], [time], heard.append, nothing)
    catching.begin(step_log.tail_begin())
    assert catching.finish()
    return heard


def test_what_is_retained_is_told_again_and_what_is_gone_is_named() -> None:
    step_log = kept(1100, 10)
    heard = as_of(step_log, 8)
    assert heard == [
        Snapshot(0, (8,), ()),
        Batch(0, 8, b"%100d" % 8),
        Batch(0, 9, b"%100d" % 9),
        Progress(0, ((8, -1), (10, 1))),
    ]
    step_log.send(1, 10, b"now")
    assert heard[-1] == Batch(0, 10, b"now")
    with pytest.raises(Refused, match=r"time 2 is gone: times to \[\d\] are not retained"):
        as_of(step_log, 2)
    with pytest.raises(Refused, match="yet to come"):
        as_of(step_log, 11)
    assert step_log.size <= 1100


def test_steps_without_items_are_bounded_as_well() -> None:
    step_log = kept(1100, 1)
    for time in range(1, 100):
        step_log.progress(1, [(time, -1), (time + 1, +1)])
    assert step_log.size <= 1100 and as_of(step_log, 100) == [Snapshot(0, (100,), ())]


def test_a_crash_is_told_to_a_subscriber_that_was_not_there() -> None:
    step_log = kept(1100, 2)
    step_log.join(2)
    step_log.send(1, 2, b"x")
    step_log.crash(1, "gone")
    assert Crashed(0, (2,), (), "gone", ()) in as_of(step_log, 2)


def test_without_a_budget_the_past_is_gone() -> None:
    step_log = kept(0, 1)
    with pytest.raises(Refused, match="gone"):
        as_of(step_log, 0)
    assert step_log.size == 0 and as_of(step_log, 1) == [Snapshot(0, (1,), ())]
