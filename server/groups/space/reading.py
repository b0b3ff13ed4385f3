"""Reading behind: groups that do not take items as they come read the log until they do.

A group is behind after a start, or while it has as many undone items as it takes.  One task reads for all
groups of a space, a portion at a time in a thread.  A group whose archive is away waits in a task of its own.

Always: a group goes live in one step with the look at the newest epoch on disk, so no item is missed, and
none is taken twice; epochs count as lost only where the archive answers, and lacks them.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import Final

import trio

from dataspace.errors import Closed, Refused
from dataspace.kernel.changes import ADDED, MESSAGE, REMOVED
from relay.groups.memory import item_bytes
from relay.groups.state import END, At, Item
from relay.log.reader import LogReader
from relay.store.errors import LogDamaged, LogFailed
from server.groups.space.failures import StepFence
from server.groups.space.group import WorkGroup
from server.groups.space.groups import SpaceGroups
from server.pauses import Pauses

logger = logging.getLogger("dataspace")

PORTION_BYTES: Final = 256 << 10
PORTION_ITEMS: Final = 4_096
"""Bytes of the log after which a portion ends, at the next segment, and the items that it has at most."""


PORTION_LEAST: Final = 16 << 10
"""Bytes of memory that the items of a portion may take however little room there is, so that a segment is not
read for each item."""

VALUES: Final = 256
"""Rows of parked items that are read again at once."""

TAKEN: Final = 32
"""Items that are taken in one step."""

PAUSES: Final = (0.5, 5.0)
"""Seconds until a log that cannot be read is tried again: twice as many each time, between these."""


async def read_behind(groups: SpaceGroups) -> None:
    """Reads for the groups of a space that are behind, until cancelled."""
    waiting = set[WorkGroup]()
    async with trio.open_nursery() as nursery:
        while True:
            groups.behind = trio.Event()
            try:
                for group in _in_turn(groups):
                    if group.options.topic or group.failure or group in waiting:
                        continue
                    if group.state.is_live and not group.wants_values:
                        continue
                    if await _tried(groups, group) is not None:
                        waiting.add(group)
                        nursery.start_soon(_try_again, groups, group, waiting)
                groups.hosted.flush()
            except (LogFailed, Closed):
                raise
            except Exception as error:  # noqa: BLE001  # a fence: what belongs to no group is tried again
                groups.defect(error)
                groups.wake()
            await groups.behind.wait()


def _in_turn(groups: SpaceGroups) -> Iterator[WorkGroup]:
    """Yields each group once: those first for which members wait when it is the turn of the next."""
    left = dict(groups.by_name)
    while left:
        claimed = next((each.name for each in groups.awaited.claimed if each.name in left), None)
        yield left.pop(claimed or next(iter(left)))


async def _try_again(groups: SpaceGroups, group: WorkGroup, waiting: set[WorkGroup]) -> None:
    """Reads for one group as soon as its epochs can be read.

    Says why epochs cannot be read from the second failure on: a daemon that was just started lends the log
    its archive soon.
    """
    pauses = Pauses(*PAUSES)
    try:
        with StepFence(groups, group, "read"):
            await trio.sleep(pauses.next())
            while (error := await _tried(groups, group)) is not None:
                cannot_read(groups, group, error)
                await trio.sleep(pauses.next())
    finally:
        waiting.discard(group)
        groups.behind.set()


async def _tried(groups: SpaceGroups, group: WorkGroup) -> Exception | None:
    """Reads until a group is full or live; returns why its epochs cannot be read now, if so."""
    with StepFence(groups, group, "read"):
        try:
            await _read_on(groups, group)
            can_read(groups, group)
        except (Refused, LogDamaged) as error:
            return error
    return None


async def _read_on(groups: SpaceGroups, group: WorkGroup) -> None:
    """Reads until a group is full or live, and has the values that it wants."""
    hosted = groups.hosted
    while groups.by_name.get(group.name) is group and not group.failure:
        if group.wants_values:
            await _read_values(groups, group)
            continue
        if group.state.is_live:
            return
        await hosted.lane.work(groups).do(take_pending(group))
        groups.moved.unpark_all()
        groups.touched(group)
        groups.deliver()
        if group.pending:
            if group.is_stuck:
                await hosted.lane.work(groups).do(_park_waiting(group))
                continue
            return  # it is full
        durable = hosted.commits.durable
        if group.pending_to >= durable:
            group.state.forget_above()
            groups.go_live(group)
            return
        after, core = group.pending_to, group.core
        try:
            async with hosted.lane.work(groups):
                items, upto = await trio.to_thread.run_sync(
                    _portion, hosted.leading.log, group, after, durable
                )
        except Refused as refusal:
            oldest = await _oldest_after(groups, refusal)
            if group.core is core and group.pending_to == after < oldest - 1:
                skip(groups, group, oldest)
            continue
        can_read(groups, group)
        if group.core is core and group.pending_to == after:
            group.read(items)
            group.pending_to = upto
        hosted.flush()


async def _oldest_after(groups: SpaceGroups, refusal: Refused) -> int:
    """Returns the oldest epoch that there is, once epochs are refused as gone; raises any other refusal."""
    if refusal.code != "epoch-gone":
        raise refusal
    hosted = groups.hosted
    if hosted.settings.retention.archived:
        await trio.to_thread.run_sync(_look_into_archive, hosted.leading.log)
    return hosted.leading.log.oldest


async def _read_values(groups: SpaceGroups, group: WorkGroup) -> None:
    """Reads the rows of some parked items again, which are due, and makes these items ready."""
    hosted, core = groups.hosted, group.core
    some = list(islice(core.to_read, VALUES))
    places = sorted([item.at for item in some if item.is_parked])
    rows: dict[At, Item] = {}
    try:
        async with hosted.lane.work(groups):
            rows = await trio.to_thread.run_sync(_rows, hosted.leading.log, group, places)
    except Refused as refusal:
        oldest = await _oldest_after(groups, refusal)
        places = [at for at in places if at[0] < oldest]
        if not places:
            return
        logger.error("group %r: the epochs of %d postponed items were deleted", group.name, len(places))
        groups.lost(group, places[0][0], places[-1][0])
    if group.core is not core:
        return
    asked = set(places)
    for item in some:
        core.to_read.popleft()
        if item.at in asked:
            core.unpark(item, rows.get(item.at))
        elif item.is_parked:
            core.to_read.append(item)
    groups.touched(group)
    groups.deliver()
    hosted.flush()


def _rows(log: LogReader, group: WorkGroup, places: Sequence[At]) -> dict[At, Item]:
    """Returns the items at these places, which ascend, as far as their rows are there; blocks.

    Each segment is read once.
    """
    found: dict[At, Item] = {}
    wanted, read = set(places), 0
    for epoch, _ in places:
        for segment in log.segments(epoch - 1, epoch) if epoch > read else ():
            share = len(segment.body) // max(1, segment.changes)
            for number, time, added, messages, _ in segment.changes_after(epoch - 1, segment.last):
                for position, value in enumerate([*added, *messages]):
                    at = number, position
                    if at in wanted and group.matches(value) is not None:
                        found[at] = Item(at, time, value, share, is_message=position >= len(added))
            read = max(read, segment.last)
    return found


def take_pending(group: WorkGroup) -> Generator[None, None, None]:
    """Takes items that were read, as many as the group has room for, in steps."""
    count = 0
    while group.pending and not group.is_full:
        group.core.take(group.pending[0])
        group.next_pending()  # once it is taken, else an error would lose it
        count += 1
        if not count % TAKEN:
            yield
    if not group.pending:
        group.state.read = max(group.state.read, (group.pending_to, END))


def _park_waiting(group: WorkGroup) -> Generator[None, None, None]:
    """Leaves the places of postponed items alone in memory, in steps."""
    core, undone, found = group.core, group.core.state.undone, 0
    for count, item in enumerate(list(undone.values()), 1):
        if group.core is not core:
            return  # it was moved, or made anew
        if undone.get(item.at) is item:
            found += group.park_at_once(item)
        if not count % TAKEN:
            yield
    group.unparked = -1 if found else core.postponed


def _portion(log: LogReader, group: WorkGroup, after: int, upto: int) -> tuple[list[Item], int]:
    """Returns the next items of the log beyond an epoch, and the epoch to which that is all; blocks.

    The last of the items may be in the middle of the epoch behind that.
    """
    found: list[Item] = []
    size, last, read = 0, after, group.state.read
    room = max(PORTION_LEAST, group.room)
    for segment in log.segments(after, upto):
        share = len(segment.body) // max(1, segment.changes)
        for number, time, added, messages, removed in segment.changes_after(last, upto):
            endings = len(added) + len(messages)
            rows = [*added, *messages, *(removed if REMOVED in group.kinds else ())]
            for position, value in enumerate(rows):
                if (number, position) > read and group.matches(value) is not None:
                    is_message, is_ending = position >= len(added), position >= endings
                    if (REMOVED if is_ending else MESSAGE if is_message else ADDED) not in group.kinds:
                        continue
                    item = Item((number, position), time, value, share, is_message=is_message)
                    item.is_ending = is_ending
                    found.append(item)
                    room -= item_bytes(found[-1])
                    if len(found) >= PORTION_ITEMS or room <= 0:
                        return found, max(after, number - 1)
        last = max(last, min(segment.last, upto))
        size += len(segment.body)
        if size >= PORTION_BYTES:
            return found, last
    return found, upto


def _look_into_archive(log: LogReader) -> None:
    """Finds out what the archive has, before epochs that the log lacks count as lost; blocks.

    Raises ``Refused("archive-away")`` if the archive does not answer, or lacks epochs that it had.
    """
    archive = log.archive
    if archive is None:
        raise Refused("archive-away", "the archive was not read since the start")
    archive.renew()
    if archive.upto < max(1, min(log.archived, log.held_from - 1)):
        said = f"it has epochs up to {archive.upto}, the log begins with epoch {log.held_from}"
        raise Refused("archive-away", f"the archive lacks epochs: {said}")


def cannot_read(groups: SpaceGroups, group: WorkGroup, error: Exception) -> None:
    """Notes why a group cannot read on, and logs the first time."""
    if not group.cannot_read:
        logger.warning(
            "group %r of space %s cannot read on, and tries again: %s", group.name, groups.hosted.name, error
        )
    group.cannot_read = str(error)


def can_read(groups: SpaceGroups, group: WorkGroup) -> None:
    """Notes that a group reads on."""
    if group.cannot_read:
        logger.warning("group %r of space %s reads on", group.name, groups.hosted.name)
    group.cannot_read = ""


def skip(groups: SpaceGroups, group: WorkGroup, oldest: int) -> None:
    """Goes on at the oldest epoch, as the epochs before it are no longer there."""
    first, source = group.pending_to + 1, f" of topic {group.options.topic!r}" if group.options.topic else ""
    logger.error(
        "group %r of space %s: epochs %d to %d%s were deleted unread",
        group.name,
        groups.hosted.name,
        first,
        oldest - 1,
        source,
    )
    groups.lost(group, first, oldest - 1)
    group.pending_to = oldest - 1
    group.state.read = max(group.state.read, (oldest - 1, END))


async def feed_on(groups: SpaceGroups) -> None:
    """Feeds groups and hands out what is too much for one step, in turns of the lane, until cancelled."""
    feeding = groups.feeding
    while True:
        await feeding.more.wait()
        feeding.more = trio.Event()
        await groups.hosted.lane.work(groups).do(_steps(groups))
        groups.hosted.flush()


def _steps(groups: SpaceGroups) -> Generator[None, None, None]:
    """Feeds, then hands out, in turns until neither is left."""
    feeding = groups.feeding
    while True:
        yield from feeding.steps()
        groups.deliver()
        yield
        if feeding.is_over and not feeding.more.is_set():
            return
        feeding.more = trio.Event()
