"""The past of a topic by numbers and times, wherever its steps are.

Always: a range of numbers gives the same epochs, items and order each time, from the journal or an archive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dataspace.topics.times import Antichain, Time
from relay.store.errors import LogDamaged
from relay.topics.steps import Completed, TopicPast

PART_BYTES: Final = 1 << 20
"""About what one reading of steps gives."""

MOST_EPOCHS: Final = 4_096
"""Epochs that one reading gives at most."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One epoch, or a part of it: packed batches, and whether there are more in the next piece.

    ``at`` is when it was completed, in microseconds since 1970.
    """

    number: int
    time: Time
    crashed: str
    items: tuple[bytes, ...]
    next: tuple[int, int] | None
    """Where to go on within the epoch: a partition and a position."""
    at: int


def pieces_of(
    past: TopicPast, partitions: int, after: int, upto: int, at: tuple[int, int] | None, budget: int
) -> list[Piece]:
    """Returns completed epochs (after, upto] in pieces of about ``budget`` bytes; the same each time.

    ``at`` goes on within the first of them.  Batches are in the order of partitions, then of sending.
    """
    epochs: list[tuple[Completed, int]] = []
    for epoch, time in past.epochs(after + 1, min(upto, after + MOST_EPOCHS)):
        budget -= epoch.size
        if epochs and budget < 0:
            break
        epochs.append((epoch, time))
    if [each.number for each, _ in epochs] != list(range(after + 1, after + 1 + len(epochs))):
        raise LogDamaged(f"{past.shown}: epochs after {after} are missing")
    if epochs and (at is not None or epochs[0][0].size > 2 * PART_BYTES):
        return [_part(past, partitions, *epochs[0], at or (0, epochs[0][0].first))]
    return _whole(past, epochs) if epochs else []


def every_piece(past: TopicPast, partitions: int, after: int, upto: int) -> Iterator[Piece]:
    """Yields completed epochs (after, upto] in pieces, about a mebibyte of them in memory."""
    at: tuple[int, int] | None = None
    while after < upto and (found := pieces_of(past, partitions, after, upto, at, PART_BYTES)):
        yield from found
        last = found[-1]
        after, at = (last.number if last.next is None else last.number - 1), last.next


def _whole(past: TopicPast, epochs: list[tuple[Completed, int]]) -> list[Piece]:
    """Epochs that are small, read together."""
    batches: dict[Time, list[tuple[int, bytes]]] = {each.time: [] for each, _ in epochs}
    first = min(each.first for each, _ in epochs)
    for step in past.steps(first - 1, max(each.last for each, _ in epochs)):
        match step.batch:
            case (partition, time, items) if time in batches:
                batches[time].append((partition, items))
    for each in batches.values():
        each.sort(key=lambda batch: batch[0])
    whole = [(each, tuple(items for _, items in batches[each.time]), at) for each, at in epochs]
    return [Piece(each.number, each.time, each.crashed, items, None, at) for each, items, at in whole]


def _part(past: TopicPast, partitions: int, epoch: Completed, time: int, at: tuple[int, int]) -> Piece:
    """Some of a large epoch, one partition after the other, so that no more than this is held."""
    (partition, position), items, size = at, list[bytes](), 0
    while size < PART_BYTES and partition < partitions:
        for step in past.steps(position - 1, epoch.last):
            position += 1
            match step.batch:
                case (here, its, batch) if here == partition and its == epoch.time:
                    items.append(batch)
                    size += len(batch)
            if size >= PART_BYTES:
                break
        if position > epoch.last:
            partition, position = partition + 1, epoch.first
    rest = (partition, position) if partition < partitions else None
    return Piece(epoch.number, epoch.time, epoch.crashed, tuple(items), rest, time)


def number_before(past: TopicPast, since: Antichain, oldest: int, newest: int) -> int:
    """Returns the number before the first epoch at or after some times, or the newest.

    O(epochs) for tuples, O(log) for integers.
    """
    low, high = oldest - 1, max(oldest - 1, newest)
    if all(isinstance(each, int) for each in since):  # numbers go with times
        wanted = range(low + 1, high + 1)
        return low + bisect_left(wanted, True, key=lambda number: since.less_equal(_time(past, number)))
    for epoch, _ in past.epochs(low + 1, high):
        if since.less_equal(epoch.time):
            return epoch.number - 1
    return high


def number_completed_before(past: TopicPast, micros: int, oldest: int, newest: int) -> int:
    """Returns the number before the first epoch that was completed at or after a time, or the newest;
    ``micros`` in microseconds since 1970.  O(log epochs)."""
    low, high = oldest - 1, max(oldest - 1, newest)
    return low + bisect_left(range(low + 1, high + 1), micros, key=lambda number: _completed_at(past, number))


def _completed_at(past: TopicPast, number: int) -> int:
    for _, at in past.epochs(number, number):
        return at
    raise LogDamaged(f"{past.shown}: epoch {number} is missing")


def _time(past: TopicPast, number: int) -> Time:
    for epoch, _ in past.epochs(number, number):
        return epoch.time
    raise LogDamaged(f"{past.shown}: epoch {number} is missing")
