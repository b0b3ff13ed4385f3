"""Reading topics: groups that divide a durable topic get the items of its completed epochs from here.

An item is named by the number of its epoch and its index there, in the order of partitions, then of sending:
the same each time it is read.  Each group has a task of its own while there is something to read, so an
archive that is slow holds up one group.

Always: an item is taken once its epoch is complete and on disk; a topic keeps an epoch until the log says
that the group has read it, and which of its items are undone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from dataspace.codec import unpack
from dataspace.errors import Closed, Refused
from relay.groups.state import READ, Item, of_group, whole_before
from relay.journal.past import Piece
from relay.store.errors import LogDamaged, LogFailed
from relay.topics.steps import StepLog
from server.groups.space.failures import StepFence, stop
from server.groups.space.group import WorkGroup
from server.groups.space.groups import SpaceGroups
from server.groups.space.reading import (
    PAUSES,
    PORTION_BYTES,
    can_read,
    cannot_read,
    feed_on,
    read_behind,
    skip,
    take_pending,
)
from server.pauses import Pauses

logger = logging.getLogger("dataspace")

NOTED_AFTER: Final = 1 << 20
"""Bytes of a topic that a group reads between two notes of its position in the log."""

LEAST_BYTES: Final = 1_024
ITEM_FACTOR: Final = 64
"""The least bytes that are read of a topic, and what small items take in memory of their packed size."""

Portion = tuple[list[Item], int, int, tuple[int, int] | None, int]
"""Items; the newest epoch that was read whole; of the next one the items read, and where to go on; bytes."""


async def read_all(groups: SpaceGroups) -> None:
    """Reads for the groups of a space, and feeds them, until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_behind, groups)
        nursery.start_soon(read_topics, groups)
        nursery.start_soon(feed_on, groups)


async def read_topics(groups: SpaceGroups) -> None:
    """Reads for the groups of a space that divide topics, until cancelled."""
    reading = set[WorkGroup]()
    async with trio.open_nursery() as nursery:
        while True:
            groups.topics_moved = trio.Event()
            for group in list(groups.of_topics):
                try:
                    if group not in reading and _has_more(groups, group):
                        reading.add(group)
                        nursery.start_soon(_read, groups, group, reading)
                except Exception as error:  # noqa: BLE001  # a fence around the work for one group
                    reading.discard(group)
                    stop(groups, group, "read", error)
            await groups.topics_moved.wait()


def _has_more(groups: SpaceGroups, group: WorkGroup) -> bool:
    """True if a group may take or read items, or has still to notice that its topic has ended."""
    if group.failure:
        return False
    step_log = _standing(groups, group)
    was_there = group.step_log is not None
    group.step_log = step_log or group.step_log
    if group.pending:
        return not group.is_full
    return was_there if step_log is None else step_log.completed_durable > group.pending_to


def _standing(groups: SpaceGroups, group: WorkGroup) -> StepLog | None:
    return groups.topics.standing(group.options.topic, group.state.topic)


async def _read(groups: SpaceGroups, group: WorkGroup, reading: set[WorkGroup]) -> None:
    pauses = Pauses(*PAUSES)
    try:
        with StepFence(groups, group, "read"):
            while groups.by_name.get(group.name) is group and _has_more(groups, group):
                try:
                    await _read_on(groups, group)
                    pauses.forget()
                except (LogFailed, Closed):
                    return  # the daemon ends
                except (Refused, LogDamaged) as error:
                    cannot_read(groups, group, error)
                    await trio.sleep(pauses.next())
    finally:
        reading.discard(group)


async def _read_on(groups: SpaceGroups, group: WorkGroup) -> None:
    """Takes items, and reads a portion more."""
    await groups.hosted.lane.work(groups).do(take_pending(group))
    groups.moved.unpark_all()
    groups.touched(group)
    groups.deliver()
    groups.hosted.flush()
    if group.unnoted >= NOTED_AFTER:
        await _note(groups, group)
    if group.pending:
        return  # it is full
    step_log = _standing(groups, group)
    if step_log is None:
        await _ended(groups, group)
        return
    if group.pending_to >= step_log.completed_durable:
        return
    core, after, at = group.core, group.pending_to, group.pending_at
    decode = partial(_portion, group, after, group.pending_index)
    try:
        portion = await groups.topics.read(step_log, after, at, _budget(group.room), decode)
    except Refused as refusal:
        if refusal.code != "epoch-gone":
            raise
        oldest = await groups.topics.oldest(step_log)
        if group.core is core and group.pending_to == after:
            skip(groups, group, oldest)
            group.pending_at, group.pending_index = None, 0
        return
    can_read(groups, group)
    if group.core is core and (group.pending_to, group.pending_at) == (after, at):
        items, group.pending_to, group.pending_index, group.pending_at, size = portion
        group.read(items)
        group.unnoted += size


def _budget(room: int) -> int:
    """Returns the bytes of a topic to read for a group that may take so much memory for items."""
    return max(LEAST_BYTES, min(PORTION_BYTES, room // ITEM_FACTOR))


def _portion(group: WorkGroup, after: int, index: int, pieces: Sequence[Piece]) -> Portion:
    """Returns the items of pieces of epochs; the first ``index`` items were read before."""
    items, size, read, at = list[Item](), 0, group.state.read, None
    for piece in pieces:
        for batch in piece.items:
            values = unpack(batch)
            assert isinstance(values, tuple)  # as the daemon has checked
            share = len(batch) // max(1, len(values))
            for value in values:
                name = (piece.number, index)
                index += 1
                if name > read and group.matches(value) is not None:
                    origin = (piece.time, piece.crashed)
                    items.append(Item(name, piece.at, value, share, is_message=True, origin=origin))
            size += len(batch)
        at = piece.next
        if at is None:
            after, index = piece.number, 0
    return items, after, index, at, size


async def _note(groups: SpaceGroups, group: WorkGroup, *, whole: bool = False) -> None:
    """Writes the group's read position to the log: one note, or with ``whole`` as many as needed.

    Once it is on disk, the topic may forget the steps before it.
    """
    core, group.unnoted = group.core, 0
    while group.core is core and (fields := group.state.read_note()) is not None:
        groups.hosted.queue_note(of_group(READ, fields))
        noted = group.state.noted
        await groups.hosted.commits.wait_durable(groups.hosted.space.epoch)
        if group.core is core:  # else it was moved meanwhile
            group.state.saved = max(group.state.saved, whole_before(noted))
        if not whole:
            return


async def _ended(groups: SpaceGroups, group: WorkGroup) -> None:
    """Notes all undone items of a group, whose topic has ended and cannot be read again."""
    step_log, group.step_log = group.step_log, None
    if step_log is not None and step_log.completed > group.pending_to:
        skip(groups, group, step_log.completed + 1)
        group.pending_at, group.pending_index = None, 0
    topic = group.options.topic
    logger.warning("topic %r has ended: group %r hands out what it has read", topic, group.name)
    await _note(groups, group, whole=True)
