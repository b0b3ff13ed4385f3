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
from relay.groups.state import READ, Item, whole_before
from relay.journal.past import Piece
from relay.log.notes import of_group
from relay.store.errors import LogDamaged, LogFailed
from relay.topics.steps import StepLog
from server.spaces.groups.failures import StepFence, stop
from server.spaces.groups.group import WorkGroup
from server.spaces.groups.groups import SpaceGroups
from server.spaces.groups.reading import (
    PORTION_BYTES,
    can_read,
    cannot_read,
    feed_on,
    read_behind,
    skip,
    take_pending,
)

logger = logging.getLogger("dataspace")

NOTED_AFTER: Final = 1 << 20
"""Bytes of a topic that a group reads between two notes of its position in the log."""

LEAST_BYTES: Final = 1_024
ITEM_FACTOR: Final = 64
"""The least bytes that are read of a topic, and what small items take in memory of their packed size."""

RETRY_SECONDS: Final = 5.0
"""Seconds until a topic that cannot be read is tried again."""

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
    ledger = _standing(groups, group)
    was_there = group.ledger is not None
    group.ledger = ledger or group.ledger
    if group.pending:
        return not group.is_full
    return was_there if ledger is None else ledger.completed_durable > group.pending_to


def _standing(groups: SpaceGroups, group: WorkGroup) -> StepLog | None:
    return groups.topics.standing(group.options.topic, group.state.topic)


async def _read(groups: SpaceGroups, group: WorkGroup, reading: set[WorkGroup]) -> None:
    try:
        with StepFence(groups, group, "read"):
            while groups.by_name.get(group.name) is group and _has_more(groups, group):
                try:
                    await _read_on(groups, group)
                except (LogFailed, Closed):
                    return  # the daemon ends
                except (Refused, LogDamaged) as error:
                    cannot_read(groups, group, error)
                    await trio.sleep(RETRY_SECONDS)
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
    ledger = _standing(groups, group)
    if ledger is None:
        await _ended(groups, group)
        return
    if group.pending_to >= ledger.completed_durable:
        return
    core, after, at = group.core, group.pending_to, group.pending_at
    decode = partial(_portion, group, after, group.pending_index)
    try:
        portion = await groups.topics.read(ledger, after, at, _budget(group.room), decode)
    except Refused as refusal:
        if refusal.code != "epoch-gone":
            raise
        oldest = await groups.topics.oldest(ledger)
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
    """Has the log say how far a group has read, as far as one note can, or ``whole``.

    Once that is on disk, the topic may forget what is before.
    """
    core, group.unnoted = group.core, 0
    while group.core is core and (fields := group.state.read_note()) is not None:
        groups.hosted.note(of_group(READ, fields))
        noted = group.state.noted
        await groups.hosted.commits.wait_durable(groups.hosted.space.epoch)
        if group.core is core:  # else it was moved meanwhile
            group.state.saved = max(group.state.saved, whole_before(noted))
        if not whole:
            return


async def _ended(groups: SpaceGroups, group: WorkGroup) -> None:
    """Notes all undone items of a group, whose topic has ended and cannot be read again."""
    ledger, group.ledger = group.ledger, None
    if ledger is not None and ledger.completed > group.pending_to:
        skip(groups, group, ledger.completed + 1)
        group.pending_at, group.pending_index = None, 0
    topic = group.options.topic
    logger.warning("topic %r has ended: group %r hands out what it has read", topic, group.name)
    await _note(groups, group, whole=True)
