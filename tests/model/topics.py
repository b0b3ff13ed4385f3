"""A durable topic: what producers send is put together to epochs, which subscribers are shown.

A producer sends items at a time, in a partition.  Once no producer can send more of a time, that epoch is
complete: it has the items of all partitions, and a number.  These are constraints on what was sent, what is
kept in the end, and what was shown.  Items are values that no one sends twice.

Always: a function yields one sentence for each place where its promise is broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import le
from typing import Protocol, TypeAlias

from index.values.values import Value

Time: TypeAlias = int | tuple[int, ...]


def is_before(a: Time, b: Time) -> bool:
    """Times with several coordinates are compared in each: neither (1, 2) nor (2, 1) is before the other."""
    pair = [each if isinstance(each, tuple) else (each,) for each in (a, b)]
    return a != b and all(map(le, *pair))


class ShownEpoch(Protocol):
    """An epoch as a subscriber is shown it; ``crashed`` says why its first producer vanished, else empty."""

    @property
    def time(self) -> Time: ...
    @property
    def items(self) -> tuple[Value, ...]: ...
    @property
    def crashed(self) -> str: ...


class KeptEpoch(ShownEpoch, Protocol):
    """The same as it is kept, under a number."""

    @property
    def number(self) -> int: ...


@dataclass(slots=True)
class Sent:
    """Items that a producer sent in one call; ``is_taken`` once the daemon has said that they are on disk."""

    producer: str
    partition: int
    time: Time
    items: tuple[Value, ...]
    is_taken: bool = False


@dataclass(slots=True)
class Seen:
    """The epochs that a subscriber was shown; ``is_all`` if from the first one on."""

    is_all: bool
    epochs: list[ShownEpoch] = field(default_factory=list)


@dataclass(slots=True)
class TopicHistory:
    """One durable topic: ``left_open`` are times of vanished producers, ``epochs`` what is kept.

    The first ``before`` epochs were judged and are not here.
    """

    sent: list[Sent] = field(default_factory=list)
    left_open: list[tuple[str, int]] = field(default_factory=list)
    seen: dict[str, Seen] = field(default_factory=dict)
    epochs: list[KeptEpoch] = field(default_factory=list)
    before: int = 0

    def continued(self) -> TopicHistory:
        """Returns the history of what follows the epochs kept so far, for new subscribers."""
        last = self.epochs[-1].time if self.epochs else None
        sent = [each for each in self.sent if last is None or is_before(last, each.time)]
        return TopicHistory(sent, before=self.before + len(self.epochs))


def topic_violations(history: TopicHistory) -> list[str]:
    """Returns what is wrong with a topic, each sentence with the name of what is broken."""
    return [
        f"{name}: {said}"
        for name, found in (
            ("numbers", numbered_without_gaps(history)),
            ("taken", kept_once_taken(history)),
            ("sent", kept_as_it_was_sent(history)),
            ("crashed", named_who_vanished(history)),
            ("seen", shown_whole(history)),
        )
        for said in found
    ]


def numbered_without_gaps(history: TopicHistory) -> Iterator[str]:
    """The numbers of completed epochs have no gaps, and times ascend with them."""
    epochs, before = history.epochs, history.before
    if [each.number for each in epochs] != list(range(before + 1, before + len(epochs) + 1)):
        yield f"the epochs kept have the numbers {[each.number for each in epochs]}"
    times = [each.time for each in epochs]
    if any(not is_before(a, b) for a, b in pairwise(times)):
        yield f"the epochs kept have the times {times}"


def kept_once_taken(history: TopicHistory) -> Iterator[str]:
    """What the daemon has said it took is kept, at its time; of one call all is kept, or nothing."""
    kept = {item: each.time for each in history.epochs for item in each.items}
    for sent in history.sent:
        missing = [item for item in sent.items if kept.get(item) != sent.time]
        if sent.is_taken and missing:
            yield f"{missing} of {sent.producer} at {sent.time} were taken, and are not kept"
        elif missing and len(missing) < len(sent.items):
            yield f"{missing} of {sent.producer} at {sent.time} are missing beside others of one call"


def kept_as_it_was_sent(history: TopicHistory) -> Iterator[str]:
    """What is kept was sent, is there once, and in the order of partitions and of sending."""
    order = {item: (sent, at) for at, sent in enumerate(history.sent) for item in sent.items}
    counts = Counter(item for each in history.epochs for item in each.items)
    for item, count in counts.items():
        if item not in order:
            yield f"{item!r} is kept, and was never sent"
        elif count > 1:
            yield f"{item!r} is kept {count} times"
    for epoch in history.epochs:
        known = [order[item] for item in epoch.items if item in order]
        partitions = [sent.partition for sent, _ in known]
        if partitions != sorted(partitions):
            yield f"epoch {epoch.time} has items of partitions {partitions} in this order"
        for producer in {sent.producer for sent, _ in known}:
            places = [at for sent, at in known if sent.producer == producer]
            if places != sorted(places):
                yield f"epoch {epoch.time} has items of {producer} in another order than they were sent"


def named_who_vanished(history: TopicHistory) -> Iterator[str]:
    """An epoch in which a producer vanished says so."""
    reasons = {each.time: each.crashed for each in history.epochs}
    for producer, time in history.left_open:
        if not reasons.get(time):
            yield f"{producer} vanished within epoch {time}, which does not say so"


def shown_whole(history: TopicHistory) -> Iterator[str]:
    """A subscriber is shown the epochs that are kept, whole, from one of them on, without a gap."""
    kept = [(each.time, each.items, each.crashed) for each in history.epochs]
    for name, seen in history.seen.items():
        shown = [(each.time, each.items, each.crashed) for each in seen.epochs]
        if not shown and not seen.is_all:
            continue
        begin = 0 if seen.is_all else next((at for at, each in enumerate(kept) if each[0] == shown[0][0]), 0)
        expected = kept[begin : begin + len(shown)]
        if shown != expected:
            at = next(
                (at for at, (a, b) in enumerate(zip(shown, expected, strict=False)) if a != b), len(expected)
            )
            yield f"{name} was shown {shown[at : at + 1]}, kept is {expected[at : at + 1]}"
