"""The source document, section by section: Strymon's "Pub-Sub Protocol Internals"."""

from __future__ import annotations

from dataspace.topics.messages import Batch, Crashed, EpochState, Frontier, Message, Progress, Snapshot
from dataspace.topics.subscriber import Subscriber
from dataspace.topics.times import Order
from relay.topics.topic import Publisher


def publisher_of_the_example() -> Publisher:
    """Completed 0, 1, 2; active 3 and 5; latent 4, 6, 7, 8…, as in *Design*."""
    publisher = Publisher(Order(0))
    publisher.join(1, 0)
    for time in (0, 1, 2, 3, 5):
        publisher.send(1, time, str(time))
    publisher.progress(1, [(0, -1), (3, +1)])
    return publisher


def linked(*publishers: Publisher) -> tuple[Subscriber, list[object]]:
    """A subscriber of these, and what it tells."""
    subscriber = Subscriber(each.partition for each in publishers)
    events: list[object] = []
    for each in publishers:
        each.subscribe(1, lambda message: events.extend(subscriber.events_of(message)))
    return subscriber, events


def times(events: list[object]) -> list[object]:
    return [each.time for each in events if isinstance(each, Batch)]


# -- Design Goals -------------------------------------------------------------------------------------


def test_messages_are_dropped_without_subscribers() -> None:
    publisher = publisher_of_the_example()
    heard: list[Message] = []
    publisher.subscribe(1, heard.append)
    assert heard == [Snapshot(0, (3,), (5,))]


# -- Terminology --------------------------------------------------------------------------------------


def test_an_epoch_is_latent_then_active_then_completed() -> None:
    publisher = publisher_of_the_example()
    states = [publisher.state(each) for each in range(7)]
    assert states == [EpochState.COMPLETED] * 3 + [
        EpochState.ACTIVE,
        EpochState.LATENT,
        EpochState.ACTIVE,
        EpochState.LATENT,
    ]


def test_an_epoch_can_be_skipped() -> None:
    publisher = publisher_of_the_example()
    publisher.progress(1, [(3, -1), (5, +1)])
    assert publisher.state(4) is EpochState.COMPLETED


# -- Design -------------------------------------------------------------------------------------------


def test_no_hole_is_seen_where_a_lower_epoch_is_latent() -> None:
    publisher = publisher_of_the_example()
    _, events = linked(publisher)
    for time in (4, 6, 3, 5, 7):
        publisher.send(1, time, str(time))
    assert times(events) == [6, 7]


def test_the_uppers_form_an_antichain_in_a_partial_order() -> None:
    publisher = Publisher(Order(2))
    publisher.join(1, (0, 0))
    for time in ((1, 2), (2, 1), (1, 1)):
        publisher.send(1, time, "")
    assert publisher.snapshot() == Snapshot(0, ((0, 0),), ((1, 2), (2, 1)))


def test_the_filter_goes_once_the_lower_frontier_dominates_it() -> None:
    publisher = publisher_of_the_example()
    subscriber, _ = linked(publisher)
    publisher.progress(1, [(3, -1), (5, +1)])
    assert list(subscriber.filter) == [5]  # 5 itself is still active
    publisher.progress(1, [(5, -1), (6, +1)])
    assert list(subscriber.filter) == []


def test_an_element_of_the_filter_that_can_match_nothing_goes_in_a_partial_order_too() -> None:
    """The source keeps what is not strictly below a frontier element: for ever, if incomparable to all."""
    subscriber = Subscriber([0])
    subscriber.events_of(Snapshot(0, ((0, 0),), ((5, 1), (1, 5))))
    subscriber.events_of(Progress(0, (((0, 0), -1), ((0, 2), +1))))
    assert list(subscriber.filter) == [(1, 5)]


# -- Implementation -----------------------------------------------------------------------------------


def test_a_subscriber_may_apply_no_filter() -> None:
    subscriber = Subscriber([0], atomic=False)
    subscriber.events_of(Snapshot(0, (3,), (5,)))
    assert subscriber.events_of(Batch(0, 4, "x")) == [Batch(0, 4, "x")]


def test_a_filtered_batch_is_dropped_without_a_look_at_its_items() -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was looked at")

    subscriber = Subscriber([0])
    subscriber.events_of(Snapshot(0, (3,), (5,)))
    assert subscriber.events_of(Batch(0, 4, Untouchable())) == []


# -- Publisher Logic ----------------------------------------------------------------------------------


def test_it_starts_with_an_empty_upper_and_the_bottom_as_lower() -> None:
    assert Publisher(Order(0)).snapshot() == Snapshot(0, (0,), ())
    assert Publisher(Order(2)).snapshot() == Snapshot(0, ((0, 0),), ())


def test_only_visible_progress_is_broadcast() -> None:
    publisher = publisher_of_the_example()
    heard: list[Message] = []
    publisher.subscribe(1, heard.append)
    publisher.progress(1, [(7, +1)])
    publisher.progress(1, [(3, -1), (4, +2)])
    assert heard[1:] == [Progress(0, ((3, -1), (4, +1)))]


def test_a_subscriber_that_disconnects_is_told_no_more_and_the_others_are() -> None:
    """The source's list stopped short once the first of three had gone: the third heard nothing."""
    publisher = publisher_of_the_example()
    heard: dict[int, list[Message]] = {1: [], 2: [], 3: []}
    for number, each in heard.items():
        publisher.subscribe(number, each.append)
    publisher.unsubscribe(1)
    publisher.send(1, 6, "six")
    publisher.progress(1, [(3, -1), (6, +1)])
    assert [len(each) for each in heard.values()] == [1, 3, 3]
    assert heard[2] == heard[3]


# -- Subscriber Logic ---------------------------------------------------------------------------------


def test_a_group_waits_for_all_snapshots_and_keeps_what_comes_early() -> None:
    subscriber = Subscriber([0, 1])
    assert subscriber.events_of(Snapshot(0, (3,), (3,))) == []
    assert subscriber.events_of(Batch(0, 6, "early")) == []
    assert not subscriber.ready
    assert subscriber.events_of(Snapshot(1, (2,), (5,))) == [Frontier((2,)), Batch(0, 6, "early")]


def test_a_group_merges_uppers_to_maxima_and_lowers_to_minima() -> None:
    subscriber = Subscriber([0, 1])
    subscriber.events_of(Snapshot(0, ((1, 1),), ((4, 1), (1, 2))))
    subscriber.events_of(Snapshot(1, ((0, 2),), ((3, 1), (2, 2))))
    assert list(subscriber.filter) == [(2, 2), (4, 1)]
    assert list(subscriber.frontier) == [(0, 2), (1, 1)]


def test_an_epoch_that_one_partition_has_completed_is_filtered_on_the_other() -> None:
    """Why the upper frontier keeps completed times, against the source's wording."""
    done, late = Publisher(Order(0), 0), Publisher(Order(0), 1)
    for each in (done, late):
        each.join(1, 0)
    done.send(1, 0, "first half")
    done.progress(1, [(0, -1), (1, +1)])
    _, events = linked(done, late)
    late.send(1, 0, "second half")
    assert times(events) == []


# -- What the source leaves open: a crash -------------------------------------------------------------


def test_a_crash_is_told_with_the_epochs_that_were_open_and_does_not_freeze_the_group() -> None:
    gone, stays = Publisher(Order(0), 0), Publisher(Order(0), 1)
    gone.join(1, 0)
    stays.join(2, 0)
    subscriber, events = linked(gone, stays)
    gone.send(1, 0, "half")
    stays.send(2, 1, "of another")
    stays.progress(2, [(0, -1), (2, +1)])
    gone.crash(1, "its connection was lost")
    crash = events[-2]
    assert (getattr(crash, "epochs", None), getattr(crash, "since", None)) == ((0, 1), (0,))
    assert events[-1] == Frontier((2,))
    assert subscriber.state(0) is subscriber.state(1) is EpochState.CRASHED
    assert gone.state(0) is EpochState.CRASHED


def test_who_held_nothing_any_more_has_not_crashed() -> None:
    publisher = publisher_of_the_example()
    publisher.progress(1, [(3, -1)])
    heard: list[Message] = []
    publisher.subscribe(1, heard.append)
    publisher.crash(1, "gone")
    assert not any(isinstance(each, Crashed) for each in heard)
