"""Group commit: many turns, one write to the disk, and a callback for each when it is on disk.

Turns are committed in memory one after another; a flush of the disk takes as long as dozens of them.  So
their epochs are queued, and one write takes all epochs that came during the write before.  The
fewer turns there are, the sooner each is on disk; the more, the less each costs.

A group that follows from a pass of the reactor begins at the end of that pass, and passes no task.  The task
``run`` writes what other tasks submit, and all snapshots; it deals with a full disk, and with the end.

Always: an epoch's callback runs after its transaction was on disk, in the order of the epochs; while the disk
is full what was submitted waits for space, and after any other failure of the disk nothing more is accepted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Final, Self

import trio

from dataspace.faults import reach
from dataspace.kernel.changes import Epoch
from dataspace.kernel.handles import Held
from dataspace.kernel.limits import weight_of
from dataspace.transport.reactor import Reactor
from index.values.values import Value
from relay.delivery.gate import DurableGate
from relay.log.log import SNAPSHOT_CHANGES, Log
from relay.log.notes import Note, Notes, RegisterRows, derived_messages
from relay.log.recent import RecentEpochs
from relay.log.retention import Retention, Trimmed
from relay.log.segments import Encoded, encode, encode_note
from relay.log.snapshots import RecoveredState, SnapshotWriter
from relay.store.errors import LogFailed
from relay.store.group_writer import SMALL_BYTES, GroupWriter

logger = logging.getLogger("dataspace")

BACKLOG_BYTES: Final = 64 << 20
BACKLOG_EPOCHS: Final = 32_768
"""Bytes and epochs that may wait for the disk before ``wait_room`` waits."""

GROUP_BYTES: Final = 8 << 20
"""Bytes that one transaction takes of the queue, so that callbacks come in a steady stream."""

ACCEPTED_AT_ONCE: Final = 8_192
"""Epochs and entries of the gate in one group, where a gate keeps some: to accept them is one step of the
loop, of about 50 ms."""

LARGE_CHANGES: Final = 4_096
"""An epoch of so many changes is not encoded by the task that submits it: others would wait."""

CHANGE_BYTES: Final = 64
"""What a change of such an epoch is taken to be beside its text, until it is encoded."""

OnDurable = Callable[[Epoch], None]
OnEpoch = Callable[[Epoch, int], None]
"""Gets an epoch that is on disk, and about how many bytes it has."""

StateSource = Callable[[], Mapping[str, Held]]


@dataclass(frozen=True, slots=True)
class CommitStatistics:
    """Counts since the start; the backlog in epochs and bytes."""

    durable: int
    backlog_epochs: int
    backlog_bytes: int
    groups: int
    epochs: int
    bytes: int
    snapshots: int
    changes: int


class _Entry:
    """An epoch on its way to the disk; a large one is encoded by the thread that writes it."""

    __slots__ = ("_encoded", "changes", "epoch", "notes", "on_durable", "size")

    size: int
    """Bytes, or about so many."""

    def __init__(self, epoch: Epoch, on_durable: OnDurable | None) -> None:
        self.epoch = epoch
        self.on_durable = on_durable
        _, _, added, messages, removed, *_ = epoch
        self.changes = changes = len(added) + len(messages) + len(removed)
        self._encoded: Encoded | None = None
        self.notes: list[Encoded] = []
        """Notes that are on disk together with the epoch, behind it."""
        if changes < LARGE_CHANGES:
            self._encoded = encoded = encode(epoch)
            self.size = len(encoded.body)
        else:
            facts = weight_of(added) + weight_of(removed)
            self.size = changes * CHANGE_BYTES + facts + weight_of(messages)

    @classmethod
    def of_note(cls, number: int, time: int, note: Note) -> Self:
        """Returns a note."""
        entry = cls(Epoch(number, time, silent=True), None)
        entry._encoded = encoded = encode_note(number, time, note)
        entry.size = len(encoded.body)
        return entry

    def encoded(self) -> Encoded:
        """Returns the epoch as bytes; O(size) the first time for a large one."""
        if self._encoded is None:
            self._encoded = encode(self.epoch)
        return self._encoded


def _none(_: Epoch) -> int:
    return 0


def _nothing() -> None:
    """The default of ``past``: there are no rules over time."""


class GroupCommit(GroupWriter[_Entry]):
    """Feeds one log.

    ``after_group`` is called when the callbacks of a group have run.  The ``gate`` shows before them what it
    has kept of the group.  ``state`` returns the claims of all owners after the last submitted epoch, in
    mappings that are not changed any more; with it, a snapshot is written after every ``snapshot_changes``
    changes and at the end; ``unsaved`` changes came after the newest one that is there.
    """

    NAME = "the log"
    REFUSED = "durable turns are"

    def __init__(
        self,
        log: Log,
        *,
        after_group: Callable[[], None] | None = None,
        state: StateSource | None = None,
        gate: DurableGate | None = None,
        snapshot_changes: int = SNAPSHOT_CHANGES,
        unsaved: int = 0,
        backlog_bytes: int = BACKLOG_BYTES,
        backlog_epochs: int = BACKLOG_EPOCHS,
    ) -> None:
        super().__init__(GROUP_BYTES)
        self._log = log
        self._after_group = after_group
        self._state = state
        self.gate = gate
        self._snapshot_changes = snapshot_changes
        self._limit_bytes = backlog_bytes
        self._limit_epochs = backlog_epochs
        self.durable = max(log.last, log.next_epoch - 1)
        self.recent = RecentEpochs(self.durable)
        if gate is not None:
            gate.durable = self.durable
        self.backlog_bytes = 0
        self.latest = Epoch(0, 0)
        """The epoch that was submitted last."""
        self.derived: Callable[[Epoch], int] = _none
        """Returns how many trailing messages of an epoch rules and flows sent."""
        self.past: Callable[[], Iterable[tuple[Value, ...]] | None] = _nothing
        """Gives since when rows of rules have been there after the newest epoch; read while that goes on."""
        self.on_epoch: OnEpoch | None = None
        """Called with each entry once it is on disk, before its own callback."""
        self._unsaved = unsaved
        self._wanted = False
        self._past_epoch: int | None = None
        """The epoch after which the snapshot that is being written has the past of rules."""
        self._snapshot: SnapshotWriter | None = None
        self._rows: Sequence[RegisterRows] = ()
        """The rows of registers in that snapshot."""
        self.reactor: Reactor | None = None
        """The reactor whose passes commit turns without a task."""
        self._is_due = False
        self._idle = False
        """True while the task waits."""
        self._begun: list[_Entry] | None = None
        """The group that is written without the task."""
        self._failed: BaseException | None = None
        """Why that group was not written."""
        self._epochs = self._bytes = self._snapshots = self._written = self._changes = 0

    # -- turns ----------------------------------------------------------------------------------------

    def submit(self, epoch: Epoch, on_durable: OnDurable | None = None, notes: Notes = ()) -> None:
        """Queues the next epoch for the disk; ``on_durable`` is called with it once it is there.

        ``notes`` are in the same transaction, behind the epoch and under its number; where they depend on
        that number, a function returns them.
        O(size) up to a bound, does not wait.  The epoch must not change any more.  Raises ``LogFailed`` once
        the disk has failed, and what encoding or ``notes`` raises; then the epoch is not queued, and its
        number is free.
        """
        self.check_open()
        entry = _Entry(epoch, on_durable)
        number, at, _, messages, _, _, client, sequence, _ = epoch
        if callable(notes):
            notes = notes(epoch)
        if messages and (count := self.derived(epoch)):
            notes = (*notes, derived_messages(count))
        if notes:
            entry.notes = [encode_note(number, at, note) for note in notes]
            entry.size += sum([len(each.body) for each in entry.notes])
        self._log.issue(number)  # the last that may refuse: nothing has changed yet
        try:
            self.backlog_bytes += entry.size
            self.recent.add(epoch, entry.size)
            if client is not None:
                self._log.clients[client] = (sequence, number)
            reactor = self.reactor
            # The turns of one pass share a flush, and no task has to be woken to begin it.
            if reactor is None or not reactor.in_pass:
                self._arrived.set()
            elif not self._is_due:
                self._is_due = True
                reactor.at_end(self._begin_due)
            for note in notes:
                self._log.registers.apply(note)
            self.latest = epoch
            self._waiting.append(entry)  # the last: with it the epoch is on its way, and without it is not
        except BaseException as error:
            self.fail(f"epoch {number} was queued by half: {error!r}")
            raise

    def queue_note(self, number: int, time: int, note: Note) -> None:
        """Queues a note that stands before the epochs that are submitted from now on.

        ``number`` and ``time`` belong to the newest epoch.  Raises ``LogFailed`` once the disk has failed.
        """
        self.check_open()
        entry = _Entry.of_note(number, time, note)
        self._log.registers.apply(note)
        self.backlog_bytes += entry.size
        self._arrived.set()
        self._waiting.append(entry)

    def fail(self, text: str) -> None:
        """Ends ``run`` with ``LogFailed``: the entries in memory must not be written any more."""
        self.failure = self.failure or LogFailed(text)
        self._arrived.set()

    def tail(self, after: int) -> list[Epoch]:
        """Returns the epochs beyond ``after`` that are not known to be on disk, in order; no silent entries.

        Those have the number of an epoch that may be on disk already.
        """
        waiting = [entry.epoch for entry in self._waiting]
        return [each for each in waiting if each.number > after and not each.silent]

    async def wait_durable(self, epoch: int) -> None:
        """Waits until this epoch, and everything submitted under its number, is on disk.

        Raises ``LogFailed`` if that will not happen.
        """
        await trio.lowlevel.checkpoint()
        while epoch > self.durable or (self._waiting and self._waiting[0].epoch.number <= epoch):
            await self._wait_group()

    async def wait_beyond(self, epoch: int) -> None:
        """Waits until an epoch later than this one is on disk.  Raises as ``wait_durable``."""
        await trio.lowlevel.checkpoint()
        while self.durable <= epoch:
            await self._wait_group()

    async def wait_room(self) -> None:
        """Waits while the backlog is beyond its limits and shrinks.  Raises as ``wait_durable``.

        The stated exception to trio's rule: with room it does not checkpoint, it is called for every read.
        """
        while self.is_behind and self.full is None:
            await self._wait_group()

    @property
    def is_behind(self) -> bool:
        """True if the backlog exceeds its limits, with what the gate keeps of it."""
        size = self.backlog_bytes if self.gate is None else self.backlog_bytes + self.gate.size
        return size > self._limit_bytes or len(self._waiting) > self._limit_epochs

    def statistics(self) -> CommitStatistics:
        """Counts, in O(1)."""
        return CommitStatistics(
            self.durable,
            len(self._waiting),
            self.backlog_bytes,
            self._groups,
            self._epochs,
            self._bytes,
            self._snapshots,
            self._changes,
        )

    # -- writing --------------------------------------------------------------------------------------

    def end_snapshots(self) -> None:
        """Writes no snapshot any more, also none at the end: another daemon goes on, which has the state.

        It has to write one in time: ``unsaved`` is what it begins with.
        """
        self._state = None

    def _finished(self) -> bool:
        if not super()._finished():
            return False
        saved = self._snapshot is None and not (self._unsaved and self._state)
        return saved or self.full is not None

    async def _work(self) -> None:
        """Writes one group or one chunk of a snapshot, or waits for either."""
        if self._failed is not None:
            await self._deal_with_failure()
        elif self._begun is not None:
            await self._wait_idle()
        elif self._waiting:
            await self._write_group()
        elif self._snapshot is None and self._state and (self._closing.is_set() or self._snapshot_due()):
            await self._begin_snapshot(self._current())
        elif self._snapshot is None:
            await self._wait_idle()
        if self._snapshot is not None:
            await self._go_on_with_snapshot()

    async def _wait_idle(self) -> None:
        """Waits until there is something that the task alone does."""
        self._idle = True
        try:
            await self._wait_arrival()
        finally:
            self._idle = False

    async def _write_group(self) -> None:
        due = self._snapshot_due() and self.full is None
        group = self._next_group(self._limit_bytes * 2 if due else self._portion, whole=due)
        unsaved, wanted = self._unsaved, self._wanted
        state = self._current() if due and len(group) == len(self._waiting) else None
        if not await self._on_disk(self._append, group):
            self._unsaved, self._wanted = unsaved, wanted
            return
        self._accept(group)
        if state is not None:
            self._unsaved = 0
            await self._begin_snapshot(state)

    # -- writing without the task ---------------------------------------------------------------------

    def _begin_due(self) -> None:
        """Begins a group at the end of a pass; what the task has begun, it goes on with."""
        self._is_due = False
        # Only while the task waits in ``_wait_idle`` are the queue and the snapshot in nobody else's hands.
        if self._idle and self._begun is None and not self._arrived.is_set():
            self._begin()

    def _begin(self) -> None:
        """Begins a group, or wakes the task if it alone can go on."""
        if not self._waiting or self.failure is not None or self._closing.is_set() or self._snapshot_due():
            self._arrived.set()
            return
        group = self._next_group(self._portion)
        self._begins(len(group))
        self._begun = group
        if not self._may_write_here(group):
            self._writer.begin(partial(self._append, group), self._resume)
            return
        failure: BaseException | None = None
        try:
            self._append(group)
        except BaseException as error:  # noqa: BLE001  # the task raises it, as it does where a thread has
            failure = error
        self._end(failure)

    def _resume(self, failure: BaseException | None) -> None:
        """Called by the thread once it has written, or not."""
        reactor = self.reactor
        assert reactor is not None  # without one, no group is begun without the task
        reactor.soon(partial(self._go_on, failure))

    def _go_on(self, failure: BaseException | None) -> None:
        """Ends a group, and begins the next one if there is one."""
        self._end(failure)
        if self._waiting:
            self._begin_due()

    def _end(self, failure: BaseException | None) -> None:
        """Accepts the group, or has the task deal with its failure."""
        group = self._begun
        assert group is not None  # as it was begun
        self.writing_since = 0.0
        if failure is not None:
            self._failed = failure
            self._arrived.set()
            return
        self._begun = None
        self._is_written()
        self._accept(group)
        if self._closing.is_set() or self._snapshot_due():
            self._arrived.set()

    async def _deal_with_failure(self) -> None:
        failure, group = self._failed, self._begun
        assert failure is not None and group is not None  # as the caller has seen
        self._failed = self._begun = None
        if not isinstance(failure, LogFailed):
            raise failure
        await self._wait_after(failure, group)

    def _next_group(self, limit: int, *, whole: bool = False) -> list[_Entry]:
        """Returns the oldest entries, of about ``limit`` bytes.

        They are fewer where the gate keeps much of them, unless the group must be ``whole``.
        """
        most, kept = len(self._waiting), 0 if self.gate is None else len(self.gate)
        if kept and kept + most > ACCEPTED_AT_ONCE and not whole:
            most = max(1, most * ACCEPTED_AT_ONCE // (kept + most))
        elif self.backlog_bytes < limit:
            return list(self._waiting)
        group: list[_Entry] = []
        size = 0
        for entry in islice(self._waiting, most):
            group.append(entry)
            size += entry.size
            if size >= limit:
                break
        return group

    def _size(self, group: Sequence[_Entry]) -> int:
        return sum([entry.size for entry in group])

    def _append(self, group: Sequence[_Entry]) -> None:
        """Writes a group; blocks, so it runs in a thread."""
        entries: list[Encoded] = []
        for entry in group:
            entries.append(entry.encoded())
            entries += entry.notes
        self._written = sum([len(entry.body) for entry in entries])
        reach("log-before-write")
        began = perf_counter()
        self._log.append(entries)
        if self._written <= SMALL_BYTES:
            self._judge(perf_counter() - began, len(group))
        reach("log-after-write")

    def _may_write_here(self, group: Sequence[_Entry]) -> bool:
        if self._log.may_wait:
            return False
        return self.is_quick and not self._log.is_busy and self._size(group) <= SMALL_BYTES

    def _accept(self, group: Sequence[_Entry]) -> None:
        """Removes a group that is on disk from the queue, and calls the callbacks of its epochs."""
        self.durable = max(self.durable, group[-1].epoch.number)
        if self.gate is not None:
            self.gate.release(self.durable)
        self._bytes += self._written
        done, changes = self._waiting.popleft, 0
        for entry in group:
            done()
            self.backlog_bytes -= entry.size
            changes += entry.changes
            self._epochs += not entry.epoch.silent
            if self.on_epoch is not None:
                self.on_epoch(entry.epoch, entry.size)
            if (on_durable := entry.on_durable) is not None:
                on_durable(entry.epoch)
        self._changes += changes
        self._unsaved += changes + len(group)
        self._group_done()
        if self._after_group is not None:
            self._after_group()

    # -- snapshots ------------------------------------------------------------------------------------

    def snapshot_soon(self) -> None:
        """Requests a snapshot, however little has changed since the one before."""
        self._wanted = True
        self._arrived.set()

    def _snapshot_due(self) -> bool:
        if self._state is None or self._snapshot is not None:
            return False
        return self._unsaved >= (1 if self._wanted else self._snapshot_changes)

    def _current(self) -> RecoveredState:
        """Returns the state after all submitted entries, copied before anything changes it."""
        assert self._state is not None  # else no snapshot is due
        owners = {owner: claims.copy() for owner, claims in self._state().items()}
        self._unsaved = 0
        self._wanted = False
        log = self._log
        state = RecoveredState(owners, dict(log.clients), log.registers, log.registers.rows())
        state.epoch, state.time = self.latest[:2]
        state.past, state.past_epoch = self.past(), self.latest.number
        self._past_epoch = None if state.past is None else state.past_epoch
        return state

    async def _begin_snapshot(self, state: RecoveredState) -> None:
        """Starts a snapshot of the state after the newest segment."""
        state.segment = self._log.last_segment
        self._rows = state.rows or ()
        with self._passing_over():
            self._snapshot = await trio.to_thread.run_sync(self._log.snapshot, state)
            reach("snapshot-begun")

    async def _go_on_with_snapshot(self) -> None:
        assert self._snapshot is not None  # else there is nothing to go on with
        snapshot, self._snapshot = self._snapshot, None
        with self._passing_over():
            if await trio.to_thread.run_sync(snapshot.step):
                self._snapshot = snapshot if self._state is not None else None
                reach("snapshot-chunk")
            else:
                self._snapshots += 1
                self._log.past_epoch = self._past_epoch
                self._log.registers.saved(self._rows)
                reach("snapshot-complete")

    @contextmanager
    def _passing_over(self) -> Iterator[None]:
        """Drops a snapshot for which the disk has no space; a later one will be written."""
        try:
            yield
        except LogFailed as failure:
            if not failure.full:
                raise
            logger.warning("no snapshot could be written: %s", failure)


# -- trimming --------------------------------------------------------------------------------------
#
# A task looks every few seconds, deletes what may go in portions between which turns are written, and
# requests a snapshot where only an old one prevents a deletion and the space is worth it. A full disk does
# not end it; without a reason to trim it does nothing.


SECONDS: Final = 5.0
"""How often it looks."""

WORTH_BYTES: Final = 1 << 20
"""Bytes that a new snapshot must free, at least; in a small file a quarter of it is enough."""


async def retain(
    log: Log,
    commits: GroupCommit,
    wanted: Callable[[], Retention],
    now: Callable[[], int] = lambda: time.time_ns() // 1000,
    *,
    every: float = SECONDS,
) -> None:
    """Trims the log to what is wanted by then, until cancelled; ``now`` is the clock of its epochs.

    Raises ``LogFailed`` if the disk fails; a full disk is tried again.
    """
    while True:
        await trio.sleep(every)
        if not (retention := wanted()).endless:
            await _trim(log, commits, retention, now)


async def _trim(log: Log, commits: GroupCommit, retention: Retention, now: Callable[[], int]) -> None:
    oldest = log.oldest
    while True:
        try:
            trimmed = await trio.to_thread.run_sync(log.trim, retention, now())
        except LogFailed as failure:
            if not failure.full:
                raise
            return
        if not trimmed.more:
            break
    if log.oldest > oldest:
        logger.info("epochs before %d are deleted", log.oldest)
    if await trio.to_thread.run_sync(_is_worth_a_snapshot, log, trimmed):
        commits.snapshot_soon()


def _is_worth_a_snapshot(log: Log, trimmed: Trimmed) -> bool:
    return trimmed.held_back > min(WORTH_BYTES, log.used() // 4)
