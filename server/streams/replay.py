"""A replay: feeds a stream from the log, as fast as it is read, and then with live changes.

It begins at an epoch that the log has and that is on disk, or is refused with the epochs that are available.
Long work here is background work, and has its turns in the lane of the daemon.

Always: a stream gets every epoch once, whether from the log, from memory before it is on disk, or live; at
most a few hundred changes are offered at once; a replay that waits for its reader is not in the lane.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from dataspace.errors import Refused, UsageError
from dataspace.kernel.actions import PROGRESS, SNAPSHOT
from dataspace.kernel.changes import Changes
from dataspace.wire.observing import ObserveOptions
from index.patterns.skeletons import skeleton
from index.patterns.text import unparse_pattern
from index.values.values import Map, Record, Value
from relay.delivery.backlog import BYTE_LIMIT, MESSAGE_LIMIT
from relay.delivery.blocks import Blocks
from relay.delivery.memory import HeldState, MemoryBudget
from relay.delivery.net_changes import NetChange
from relay.delivery.outbox import READ_AHEAD_BYTES, OutStream
from relay.delivery.queue_members import QueueMember
from relay.log.columns import ColumnReplay
from relay.log.reader import LogReader
from relay.log.recent import RecentReplay
from relay.log.replay import Live, Replay, ReplayedLog
from relay.log.segments import Segment
from server.lane import Work
from server.sessions.peer import Peer
from server.spaces.space import HostedSpace
from server.system import SystemSpace

if TYPE_CHECKING:
    from relay.delivery.blocks import ColumnBlock


Kind = TypeVar("Kind", bound=Replay)

LIVE_FACTS: Final = 100_000
"""Facts that are copied as a base for a replay that begins near the end of the log."""

YIELD_SECONDS: Final = 0.5
"""Seconds after which a replay whose stream is not read releases its slot for a waiting replay."""

PATIENCE: Final = 5.0
"""Seconds for which a reader waits for an epoch that it has seen elsewhere."""

SLICE: Final = 512
SLICE_BYTES: Final = 64 << 10
"""Changes, and about the bytes of them, that a replay packs and offers at once: a large epoch has parts."""


def read_request(spec: Map) -> ObserveOptions:
    """Returns the request in an ``Open``; raises ``Refused`` with its error."""
    try:
        return ObserveOptions.read(spec)
    except UsageError as error:
        raise Refused("bad-request", str(error)) from None


async def catch_up(hosted: HostedSpace, request: ObserveOptions) -> None:
    """Waits, where a log is followed, until it has the epoch of a reader that has seen more elsewhere.

    Raises ``Refused("behind")``, with the address of the leader, if that takes long.
    """
    after = request.after if request.as_of is None else request.as_of
    if hosted.leads or after is None or after <= hosted.commits.durable:
        return
    with trio.move_on_after(PATIENCE):
        await hosted.commits.wait_durable(after)
    if hosted.commits.durable < after:
        said = f"epoch {after} was seen elsewhere, the newest here is {hosted.commits.durable}"
        raise Refused("behind", said, hosted.leader.url)


async def beginning(hosted: HostedSpace, request: ObserveOptions) -> int:
    """Returns the epoch after which a replay begins; raises ``Refused`` if the log does not reach it."""
    log = hosted.log
    newest = max(hosted.commits.durable, hosted.space.epoch)
    after = request.after if request.as_of is None else request.as_of
    if after is None:
        after = hosted.commits.durable
    wanted = f"epochs after {after} are wanted" if request.as_of is None else f"epoch {after} is wanted"
    if after < log.oldest - 1:
        raise Refused("epoch-gone", f"{wanted}, the oldest held is {log.oldest}")
    if after > newest:
        raise Refused("epoch-ahead", f"{wanted}, the newest is {newest}")
    # A reader of durable epochs never saw a lost one: its number is a place between two others.
    if not request.durable and await _lost(log, after):
        raise Refused("epoch-lost", f"epoch {after} was never acknowledged and was lost in a crash")
    return after


async def _lost(log: LogReader, epoch: int) -> bool:
    return await trio.to_thread.run_sync(log.lost, epoch) if log.may_wait else log.lost(epoch)


def begins_now(hosted: HostedSpace, request: ObserveOptions) -> bool:
    """True if a stream begins with the state now, or has missed nothing of it, and needs no log."""
    if request.live:
        return not hosted.visibility.is_stuck
    after = request.after
    if request.columns or after is None or after != hosted.space.epoch:  # a number that is lost is not there
        return False
    return request.as_of is None and request.upto is None and not request.durable


async def from_log(
    hosted: HostedSpace, request: ObserveOptions, kind: Callable[[ReplayedLog, Value, int], Kind]
) -> Kind:
    """Returns a replay that stands where a stream begins, once everything up to there is on disk.

    Raises ``Refused`` as ``beginning`` does.
    """
    await catch_up(hosted, request)
    start = await beginning(hosted, request)
    await hosted.commits.wait_durable(start)  # the state there is computed from the log
    replay = kind(hosted.log, request.pattern, start)
    if (request.wants_state and request.share is None) or not replay.at_hand():
        replay.live = _live_base(hosted)
    return replay


def _live_base(hosted: HostedSpace) -> Live | None:
    """Returns a copy of the current state, for a replay that begins near it; None where it is large.

    The facts and the epochs that are not on disk are of one moment: nothing may wait in between.
    """
    space = hosted.space
    if len(space.index) > LIVE_FACTS:
        return None
    return Live(space.epoch, list(space.index.values()), hosted.commits.tail(0))


def progress_mark(number: int) -> Changes:
    """Returns a mark: the stream contains every change up to this epoch. Its time is now."""
    return Changes(number, time.time_ns() // 1000, flags=PROGRESS)


class ReplaySlots:
    """The slots of one connection, within the slots that all connections share."""

    def __init__(self, count: int, shared: trio.Semaphore) -> None:
        self._own = trio.Semaphore(count)
        self._shared = shared

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Holds a slot, here and in all; waits until there is one."""
        async with self._own, self._shared:
            yield

    @property
    def wanted(self) -> bool:
        """True if a replay waits for a slot."""
        return any(each.statistics().tasks_waiting for each in (self._own, self._shared))


class StreamReplay:
    """One replay of the log into one stream."""

    def __init__(
        self,
        peer: Peer,
        prepare: Callable[[Value, Work], Awaitable[None]],
        slots: ReplaySlots,
        stream: OutStream,
        request: ObserveOptions,
        *,
        memory: MemoryBudget,
    ) -> None:
        """``prepare`` prepares the index for a pattern; the stream has its backlog."""
        self.peer = peer
        self.hosted = peer.hosted
        self.prepare = prepare
        self.slots = slots
        self.stream = stream
        self.request = request
        assert isinstance(stream.backlog, QueueMember)
        self.observation = stream.backlog
        self.work = peer.work()
        self._state = HeldState(memory)

    async def run(self) -> None:
        """Feeds the stream until it is complete, or is fed live."""
        try:
            await self._run()
        finally:
            self._state.close()

    async def _run(self) -> None:
        request, commits = self.request, self.hosted.commits
        if self._is_full:  # it has fallen behind: the log is read when what waits was taken
            await self._wait_room()
        await catch_up(self.hosted, request)
        start = await beginning(self.hosted, request)
        if await self._goes_on(start):
            return
        replay = await from_log(self.hosted, request, Replay)
        start = replay.at
        async with self.slots.reading(), self.work:
            log = self.hosted.log
            if not log.may_wait:
                replay.pace = self.work.pass_on_from_thread
            await self.work.read(replay.prepare, far=log.may_wait)
            self._state.holds(replay.held)
            if request.wants_state:
                since = await self.work.read(partial(log.time_of, start), far=log.may_wait)
                self.observation.extend(Changes(start, since, replay.bag(), flags=SNAPSHOT))
                self._wake()
        at = await self._feed_net(replay) if request.net else start
        is_prepared = False
        while request.upto is None or at < request.upto:
            goal = commits.durable if request.upto is None else min(commits.durable, request.upto)
            if goal > at:
                await self._feed(replay, goal)
                at = self.stream.replayed = goal
                if request.progress:
                    self.observation.extend(progress_mark(at))
                    self._wake()
            elif request.durable or request.upto is not None:
                await commits.wait_beyond(at)
            elif not is_prepared:
                is_prepared = True
                async with self.work:  # what happens meanwhile is fed first
                    await self.prepare(request.pattern, self.work)
            else:
                self._go_live(replay)
                return
        self.stream.complete = True
        self._wake()

    async def _goes_on(self, after: int) -> bool:
        """Feeds the stream from memory and goes live, if everything since ``after`` is there.

        Returns True if it did; False if it is not there, or too much, or if memory has what was erased.
        """
        request, recent = self.request, self.hosted.commits.recent
        past = request.durable or request.upto is not None or request.as_of is not None
        if past or request.after is None or request.after < self.hosted.log.erased:
            return False
        if not await self.hosted.recalling.recall(recent, self.hosted.log, after, self.work):
            return False
        form = skeleton(request.pattern)
        async with self.work:
            await self.prepare(request.pattern, self.work)
        retelling = RecentReplay(recent, form, after)
        async with self.work:
            while retelling.step():
                if self.work.is_over:
                    await self.work.pass_on()
        if retelling.is_too_much:
            return False
        # nothing has waited since the last epoch was found
        self.observation.follow(self.hosted.space, request.pattern, self.hosted.gate)
        changes = retelling.values(partial(self.hosted.space.index.row_count, form))
        if sum([len(each.packed) for each in changes]) > READ_AHEAD_BYTES:
            self.observation.unfollow()
            return False  # the log is read as fast as the stream is
        if request.net and changes:
            difference = NetChange(after + 1)
            for each in changes:
                difference.fold(each)
            if len(difference):
                self.observation.extend_all(difference.values())
        elif changes:
            self.observation.extend_all(changes)
        self.observation.catch_up()
        self._wake()
        return True

    async def _feed_net(self, replay: Replay) -> int:
        """Offers what changed until now as net changes; returns the epoch where they end.

        More messages than may wait for an observer are sent in several values, since none may be lost.
        """
        now = self.hosted.space.epoch if self.request.upto is None else self.request.upto
        now = max(replay.at, min(now, self.hosted.space.epoch))
        await self.hosted.commits.wait_durable(now)
        difference, size = NetChange(replay.at + 1), 0
        async with self.slots.reading(), self.work:
            while replay.at < now:
                upto, segments = now, None
                if not self.hosted.log.is_at_hand(replay.at):
                    upto, segments = await self._portion(replay, now)
                for rows in replay.steps(upto, segments):
                    if rows is None:
                        if self.work.is_over:
                            await self.work.pass_on()
                        continue
                    number = rows[0]
                    for part in Changes(*rows).parts(SLICE):
                        difference.fold(part)
                        size += len(part.packed) if part.messages else 0
                        if self.work.is_over:
                            self._state.holds(replay.held + len(difference))
                            await self.work.pass_on()
                    if len(difference.messages) >= MESSAGE_LIMIT or size >= BYTE_LIMIT:
                        self.observation.extend_all(await self.work.go_on(difference.packing()))
                        difference, size = NetChange(number + 1), 0
                        self._wake()
                        self.work.leave()
                        await self._wait_room()
                        await self.work.enter()
            values = await self.work.go_on(difference.packing())
        if len(difference):
            self.observation.extend_all(values)
            self._wake()
        return now

    async def _portion(self, replay: Replay, goal: int) -> tuple[int, Sequence[Segment] | None]:
        """Returns up to where a replay may go on, and the segments for that, which a thread has read.

        None where they are at hand.
        """
        log = self.hosted.log
        if log.is_at_hand(replay.at):
            return goal, None
        segments = await self.work.read(partial(log.portion, replay.at, goal), far=True)
        return min(goal, segments[-1].last) if segments else goal, segments

    async def _feed(self, replay: Replay, goal: int) -> None:
        """Feeds the stream up to an epoch that is on disk."""
        while replay.at < goal:
            async with self.slots.reading():
                upto, segments = await self._portion(replay, goal)
                async with self.work:
                    await self._feed_some(replay, upto, segments)
            await self._wait_room()

    async def _feed_some(self, replay: Replay, goal: int, segments: Sequence[Segment] | None) -> None:
        """Feeds the stream until the goal, or until it is not read while other replays wait."""
        slice: list[Changes] = []
        size = room = 0
        for rows in replay.steps(goal, segments):
            if rows is None:
                if self.work.is_over:
                    await self.work.pass_on()
                continue
            for part in Changes(*rows).parts(SLICE):
                slice.append(part)
                size += part.size + 1
                room += len(part.packed)
                is_over = self.work.is_over
                if is_over or size >= SLICE or room >= SLICE_BYTES:
                    self._offer(slice)
                    slice, size, room = [], 0, 0
                    if is_over:
                        self._state.holds(replay.held)
                        await self.work.pass_on()
            if not slice and self._is_full:  # between two epochs
                self.work.leave()
                if not await self._is_read_soon():
                    return  # the next call continues here
                await self.work.enter()
        self._offer(slice)

    async def _is_read_soon(self) -> bool:
        """Waits while the stream is full, but not for long: a part of the log is in memory for it."""
        while self._is_full:
            if self.slots.wanted:
                return False
            with trio.move_on_after(YIELD_SECONDS) as patience:
                await self.stream.wait_taken()
            if patience.cancelled_caught:
                return False
        return True

    def _offer(self, epochs: list[Changes]) -> None:
        if epochs:
            self.observation.extend_all(epochs)
        self._wake()

    @property
    def _is_full(self) -> bool:
        """True if more waits in the stream than its reader has credit or capacity for."""
        return self.stream.sated or self.observation.full

    async def _wait_room(self) -> None:
        """Yields to other tasks, and waits while the stream is full."""
        await trio.lowlevel.checkpoint()
        while self._is_full:
            await self.stream.wait_taken()

    def _go_live(self, replay: Replay) -> None:
        """Offers what is committed but not on disk yet, then feeds the stream live."""
        self.observation.follow(self.hosted.space, self.request.pattern, self.hosted.gate)
        for number, micros, added, messages, removed in replay.tail(self.hosted.commits.tail(replay.at)):
            self.observation.extend(Changes(number, micros, added, messages, removed))
        self.observation.catch_up()
        self._wake()

    def _wake(self) -> None:
        self.peer.wake(self.stream)
        self.hosted.flush()


# -- A replay in columns ---------------------------------------------------------------------------
# It never continues with live changes, and never conflates.
#
# Always: blocks are made by a thread, and only as many as the stream has capacity for.


logger: Final = logging.getLogger("dataspace")


async def replay_columns(
    peer: Peer,
    stream: OutStream,
    request: ObserveOptions,
    *,
    slots: ReplaySlots,
    reads: ReadCounts,
    memory: MemoryBudget,
) -> None:
    """Feeds a stream with blocks from the log as fast as it is taken; counted in ``reads``."""
    hosted, read = peer.hosted, reads.begun()
    if request.upto is None or not request.durable:
        raise Refused("bad-request", "a stream of columns needs upto, and durable=true")
    if request.owners:
        peer.permit.check_inspect("who changed facts")
    start = await beginning(hosted, request)
    waiting = stream.backlog = Blocks(memory)  # counted as an observer until it is closed with its stream
    await hosted.commits.wait_durable(request.upto)
    try:
        replay = await from_log(hosted, replace(request, after=start), column_replay(request))
    except UsageError as error:
        raise Refused("bad-request", str(error)) from None
    time = 0 if request.as_of is None else await trio.to_thread.run_sync(hosted.log.time_of, start)
    blocks = replay.blocks(request.upto)
    if request.as_of is not None:
        blocks = chain(replay.state(time), blocks)
    work, state = peer.work(), HeldState(memory)
    try:
        while True:
            # a state that is not sorted yet takes seconds: other work has its turns meanwhile
            sorts = request.share is not None and not replay.at_hand()
            async with slots.reading(), work:
                block = await work.read(partial(next, blocks, None), far=hosted.log.may_wait, sorts=sorts)
            if block is None:
                break
            state.holds(replay.held)
            read.sent(block)
            waiting.extend(block)
            peer.wake(stream)
            hosted.flush()
            while stream.sated or waiting.full:
                await stream.wait_taken()
    finally:
        state.close()
    stream.complete = True
    peer.wake(stream)
    reads.ended(read, request)
    hosted.flush()


def column_replay(request: ObserveOptions) -> Callable[[ReplayedLog, Value, int], ColumnReplay]:
    """Returns what makes the replay of a request."""
    return partial(
        ColumnReplay,
        captures=request.captures,
        places=request.places,
        asserted=request.asserted,
        owners=request.owners,
        share=request.share,
    )


@dataclass(slots=True)
class Read:
    """One read: its rows and their bytes so far, and when it began."""

    began: float
    rows: int = 0
    bytes: int = 0

    def sent(self, block: ColumnBlock) -> None:
        """Notes one more block made for the reader."""
        self.rows += len(block)
        self.bytes += len(block.packed)


class ReadCounts:
    """The reads of one connection: rows and bytes that it was sent, which show what a query costs.

    Each connection that reads by the column has one fact in the space ``system``, with totals that grow as
    its reads end, and each read is a line in the log of the daemon.

    Always: the fact is there from the end of the first read until the connection ends.
    """

    def __init__(self, peer: Peer, system: SystemSpace) -> None:
        self._peer = peer
        self._system = system
        self._totals = [0, 0, 0, 0.0]
        self._fact: Record | None = None

    def begun(self) -> Read:
        """Returns a read that begins now."""
        return Read(trio.current_time())

    def ended(self, read: Read, request: ObserveOptions) -> None:
        """Counts a read that has ended; its last block or two may still wait in the stream."""
        seconds = trio.current_time() - read.began
        peer, session = self._peer, self._peer.session_id
        self._totals = [a + b for a, b in zip(self._totals, (1, read.rows, read.bytes, seconds), strict=True)]
        reads, rows, size, spent = self._totals
        fact = Record("read", session, peer.name, peer.hosted.name, reads, rows, size, round(spent * 1000))
        self._say(fact)
        logger.info(
            "session %s read %d rows, %d bytes, up to epoch %s of %s in %.3f s",
            session,
            read.rows,
            read.bytes,
            request.upto,
            unparse_pattern(request.pattern),
            seconds,
        )

    def end(self) -> None:
        """Retracts the fact, since the connection has ended."""
        self._say(None)

    def _say(self, fact: Record | None) -> None:
        before, self._fact = self._fact, fact
        facts = [[each] if each is not None else [] for each in (fact, before)]
        self._system.state(*facts)
