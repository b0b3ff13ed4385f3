"""Following: a log that another process writes, read on as it grows, in place of writing it.

A follower has the log of a leader open to read.  It begins with the state that the log holds, then applies
each epoch that is new on the disk.  ``Following`` takes the place of the ``GroupCommit`` of a leader, with
the same methods for waiting tasks and for recent epochs.

Always: an epoch is applied whole, once and in order, and only when it is on disk; a gap is never passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import ClassVar, Final

import trio

from dataspace.errors import Closed, Refused
from dataspace.kernel.changes import Epoch
from relay.following.polling import SLICE_SECONDS, Polled
from relay.log.notes import Note, Notes
from relay.log.reader import LogReader
from relay.log.recent import RecentEpochs
from relay.log.segments import Segment
from relay.log.snapshots import RecoveredState
from relay.log.writer import CommitStatistics, GroupCommit, OnDurable
from relay.store.durations import Durations
from relay.store.errors import LogAway, LogDamaged, LogFailed
from relay.store.header import refuse

logger = logging.getLogger("dataspace")

FEW: Final = 4
"""Segments that the loop's own thread reads; where more follow, a thread reads them."""


class FollowedLog(LogReader):
    """A log that another process writes.  Any number of threads may read it."""

    def recover(self) -> RecoveredState:
        """Returns the state after the newest segment; O(state + later changes).

        Raises ``LogDamaged``, and ``Refused`` if the log was trimmed faster than it was read.
        """
        self.refresh()
        before, _ = self._chain.read
        state, _ = self._rolled_forward(refuse)
        if state.segment < before:
            refuse(f"{self._tables.place}: segment {before}, which was read before, is gone")
        if state.segment != self._chain.read[0]:  # nothing is there after the snapshot
            self._chain.read = state.segment, self._chain.checksum_of(state.segment)
        self.refresh()  # the state may be beyond the segments that were there before
        return state


class Following(Polled):
    """What a leader's ``GroupCommit`` is, over a log that another process writes.

    ``apply`` is called with each new epoch, ``flush`` after some epochs.  ``jump`` is called with a later
    state where the epochs on the way to it are gone.  ``refusal`` returns the answer to a turn.
    """

    NAME: ClassVar[str] = "the followed log"

    full: LogFailed | None = None
    """The disk is the leader's."""

    is_behind: Final = False

    def __init__(
        self,
        log: FollowedLog,
        state: RecoveredState,
        *,
        apply: Callable[[Epoch], None],
        flush: Callable[[], None],
        refusal: Callable[[], Refused],
        jump: Callable[[RecoveredState], None],
    ) -> None:
        super().__init__()
        self.log: Final = log
        self.state = state
        """What the log holds beside facts; its owners are in the space."""
        self._apply = apply
        self._flush = flush
        self._refusal = refusal
        self._jump = jump
        self._durable = state.epoch
        self.recent = RecentEpochs(state.epoch)
        self.latest = Epoch(state.epoch, state.time)
        self.failure: LogFailed | None = None
        self.durations: Final = Durations()
        self._is_moving = False
        self.successor: GroupCommit | None = None
        """The writer of the log in this process, from a promotion on."""
        self._epochs = self._changes = self._bytes = self._groups = 0
        self._moved: Final = trio.lowlevel.ParkingLot()
        self._expected = 0
        """The newest epoch that the leader has on disk, as it says."""
        self._pass(self._start_before())

    @property
    def durable(self) -> int:
        """The newest epoch that is applied, or on disk from a promotion on."""
        return self._durable if self.successor is None else self.successor.durable

    # -- as of a leader's log -------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises ``Refused``: turns are the leader's."""
        raise self._refusal()

    def submit(self, epoch: Epoch, on_durable: OnDurable | None = None, notes: Notes = ()) -> None:
        """Raises ``Refused``: epochs are the leader's."""
        raise self._refusal()

    def tail(self, after: int) -> list[Epoch]:
        """Returns nothing: every epoch here is on disk."""
        return [] if self.successor is None else self.successor.tail(after)

    async def wait_durable(self, epoch: int) -> None:
        """Waits until this epoch is applied.  Raises ``LogFailed`` if that will not happen."""
        await trio.lowlevel.checkpoint()
        while self.successor is None and self.durable < epoch:
            await self._wait_moved()
        if self.successor is not None:
            await self.successor.wait_durable(epoch)

    async def wait_beyond(self, epoch: int) -> None:
        """Waits until an epoch later than this one is applied.  Raises as ``wait_durable``."""
        await trio.lowlevel.checkpoint()
        while self.successor is None and self.durable <= epoch:
            await self._wait_moved()
        if self.successor is not None:
            await self.successor.wait_beyond(epoch)

    async def wait_room(self) -> None:
        """Returns at once: nothing is written here."""

    async def _wait_moved(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._over.is_set() and not self._is_moving:
            raise Closed(f"{self.NAME} is closed")
        await self._moved.park()

    def statistics(self) -> CommitStatistics:
        """Counts of applied epochs and changes since the start, in O(1)."""
        if self.successor is not None:
            return self.successor.statistics()
        return CommitStatistics(self.durable, 0, 0, self._groups, self._epochs, self._bytes, 0, self._changes)

    # -- following ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Applies what is new, until ``close``.  Raises ``LogFailed`` or ``LogDamaged``, as the log does."""
        try:
            with self._running:
                while True:
                    try:
                        more = await self._read_on()
                    except LogAway as away:
                        await self.wait_for(away)
                    else:
                        if not more:
                            await self._wait_hint()
        except (LogFailed, LogDamaged) as failure:
            self.failure = failure if isinstance(failure, LogFailed) else LogFailed(str(failure))
            raise self.failure from None
        finally:
            self._over.set()
            self._moved.unpark_all()

    def expect(self, epoch: int) -> None:
        """Notes that the leader says that everything up to this epoch is on disk."""
        self._expected = max(self._expected, epoch)
        if epoch > self.durable:
            self.hint()

    async def catch_up(self) -> None:
        """Ends ``run``, and applies everything that is on disk; ``succeed`` must follow."""
        self._is_moving = True
        await self.close()
        while await self._read_on():
            pass

    def succeed(self, commits: GroupCommit) -> None:
        """Passes all waiting tasks on to the log's writer in this process."""
        self.successor = commits
        self._moved.unpark_all()

    async def _read_on(self) -> bool:
        """Applies some new epochs, whatever is cancelled; False if there are none."""
        # A segment that was applied by half would be applied again, since only whole ones are noted.
        with trio.CancelScope(shield=True):
            try:
                segments = await self.log.asked(self._tail)
                # A start of the leader takes a number that no segment has: its word is all that says so.
                if not segments and self._expected > self._durable:
                    self._pass(await self.log.asked(self._start_before))
                    self._tell()
            except Refused:
                await self._begin_anew()
                return True
            # To wake a thread costs more than to decode a few segments, which is what a live leader brings.
            if len(segments) > FEW:
                decoded = await trio.to_thread.run_sync(lambda: [list(each.items()) for each in segments])
            else:
                decoded = [list(each.items()) for each in segments]
            for segment, items in zip(segments, decoded, strict=True):
                await self._take_all(segment, items)
        await trio.lowlevel.checkpoint()
        return bool(segments)

    def _tail(self) -> list[Segment]:
        return self.log.tail(self.state.segment)

    async def _begin_anew(self) -> None:
        """Takes over the state that the log has now, since the next epochs are past its retention."""
        logger.warning(
            "%s was trimmed beyond epoch %d, which is as far as it was read", self.NAME, self.durable
        )
        state = await trio.to_thread.run_sync(self.log.recover)
        self._jump(state)
        state.owners = {}
        self.state = state
        self._durable = state.epoch
        self.latest = Epoch(state.epoch, state.time)
        self.recent = RecentEpochs(state.epoch)
        self._tell()

    def _start_before(self) -> int:
        """Returns the number before the latest start of the log, if nothing was written since; else 0."""
        before = self.log.newest_start() - 1
        return 0 if self._tail() else before

    def _pass(self, before: int) -> None:
        """Goes on to the number before a start, as of ``_start_before``.

        It is no epoch, but clients of the leader have the state under this number until its first turn.
        """
        if before > self._durable:
            self._take(Epoch(before, self.latest.time, silent=True), 0)

    async def _take_all(self, segment: Segment, items: Sequence[Epoch | Note]) -> None:
        began = perf_counter()
        size = len(segment.body) // max(len(items), 1)
        for item in items:
            if isinstance(item, Note):
                self.state.apply(item)
            else:
                self._take(item, size)
            if perf_counter() - began > SLICE_SECONDS:
                self._tell()
                await trio.lowlevel.checkpoint()
                began = perf_counter()
        self.state.segment = segment.ordinal
        self._groups += 1
        self._bytes += len(segment.body)
        self._changes += segment.changes
        self._tell()

    def _take(self, epoch: Epoch, size: int) -> None:
        self._apply(epoch)
        self.state.apply_notes(epoch)
        self.recent.add(epoch, size)
        self.latest = epoch
        self._durable = epoch.number
        self._epochs += not epoch.silent

    def _tell(self) -> None:
        """Wakes what waits for epochs, and writes what observers are to be shown."""
        self._moved.unpark_all()
        self._flush()
