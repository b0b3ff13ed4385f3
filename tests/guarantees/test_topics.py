"""The validator of topics finds each fault that is planted in a history, and none in the history itself."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import pytest

from dataspace.client.completed import CompletedEpoch
from dataspace.topics.epochs import TopicEpoch
from tests.model.topics import Seen, Sent, TopicHistory, topic_violations

ITEMS: Final = ((("a", 1), ("b", 1)), (("a", 2), ("a", 3)), (("b", 2),))
HISTORY: Final = TopicHistory(
    sent=[
        Sent("a", 0, 0, (("a", 1),), True),
        Sent("b", 1, 0, (("b", 1),), True),
        Sent("a", 0, 1, (("a", 2), ("a", 3)), True),
        Sent("b", 1, 2, (("b", 2),), False),
    ],
    left_open=[("b", 2)],
    seen={
        "whole": Seen(True, [TopicEpoch(at, items, "lost" * (at == 2)) for at, items in enumerate(ITEMS)]),
        "late": Seen(False, [TopicEpoch(at, ITEMS[at], "lost" * (at == 2)) for at in (1, 2)]),
        "idle": Seen(False),
    },
    epochs=[CompletedEpoch(at + 1, at, items, "lost" * (at == 2)) for at, items in enumerate(ITEMS)],
)


def changed(epoch: Any, **changes: object) -> Any:
    """Returns an epoch with other fields."""
    return replace(epoch, **changes)


def lost_batch(history: TopicHistory) -> None:
    """A batch that was taken is not kept, nor shown."""
    history.epochs[1] = changed(history.epochs[1], items=())
    for seen in history.seen.values():
        seen.epochs = [changed(each, items=() if each.time == 1 else each.items) for each in seen.epochs]


def half_call(history: TopicHistory) -> None:
    """Of the items of one call that was not answered some are kept."""
    history.sent[3].items = (("b", 2), ("b", 3))


def doubled(history: TopicHistory) -> None:
    """Items that were sent again are kept twice."""
    history.epochs[2] = changed(history.epochs[2], items=(("b", 1), ("b", 2)))


def invented(history: TopicHistory) -> None:
    """Something is kept that was not sent."""
    del history.sent[3]


def other_partition_first(history: TopicHistory) -> None:
    """Partitions are not in their order."""
    history.epochs[0] = changed(history.epochs[0], items=ITEMS[0][::-1])


def other_order(history: TopicHistory) -> None:
    """Items of one producer are not in theirs."""
    history.sent.insert(0, Sent("a", 0, 0, (("a", 0),), True))
    history.epochs[0] = changed(history.epochs[0], items=(("a", 1), ("a", 0), ("b", 1)))


def unnamed_crash(history: TopicHistory) -> None:
    """An epoch does not say that its producer has vanished."""
    history.epochs[2] = changed(history.epochs[2], crashed="")


def number_left_out(history: TopicHistory) -> None:
    """A number is left out."""
    history.epochs[2] = changed(history.epochs[2], number=4)


def gap(history: TopicHistory) -> None:
    """A subscriber is not shown an epoch."""
    del history.seen["whole"].epochs[1]


def late_beginning(history: TopicHistory) -> None:
    """A subscriber that asked for all begins with the second epoch."""
    del history.seen["whole"].epochs[0]


def half_shown(history: TopicHistory) -> None:
    """A subscriber is shown a part of an epoch."""
    epochs = history.seen["late"].epochs
    epochs[0] = changed(epochs[0], items=epochs[0].items[:1])


PLANTED: Final[dict[Callable[[TopicHistory], None], str]] = {
    lost_batch: "taken",
    half_call: "taken",
    doubled: "sent",
    invented: "sent",
    other_partition_first: "sent",
    other_order: "sent",
    unnamed_crash: "crashed",
    number_left_out: "numbers",
    gap: "seen",
    late_beginning: "seen",
    half_shown: "seen",
}


def test_nothing_is_wrong_with_the_history() -> None:
    assert topic_violations(HISTORY) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[TopicHistory], None]) -> None:
    faulty = deepcopy(HISTORY)
    plant(faulty)
    assert any(each.startswith(f"{PLANTED[plant]}: ") for each in topic_violations(faulty))
