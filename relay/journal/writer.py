"""Writing: the task that brings the steps of all durable topics to the disk, many at a time.

As with the turns of a space, a flush of the disk costs as much as dozens of steps, so whatever has gathered
while the write before was under way is written together.  It also keeps each topic within its budget.

Always: submitted steps are written in that order; callbacks run in the order of their registration, after all
steps submitted before them are on disk; while the disk is full the write is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import trio

from relay.journal.journal import Journal
from relay.journal.rows import Begun, Ended, Kept, Noted, Write
from relay.store.group_writer import GroupWriter
from relay.topics.steps import Completed, Step, StepLog

GROUP: Final = 8_192
"""Writes in one transaction, at most."""

TRIM_SECONDS: Final = 5.0
"""Interval at which steps past retention are looked for."""

TRIM_BYTES: Final = 16 << 20
"""Bytes deleted in one transaction, so that steps do not wait for it."""

KEPT_STEPS: Final = 4_096
"""Steps after which a topic's state is written, so that no more of them are done again at a start."""

FRONTIER_STEPS: Final = 256
"""Steps between two places where a reader can begin."""

READER_SECONDS: Final = 7 * 86_400.0
"""A named reader that was not heard of for so long holds nothing back."""


Entry: TypeAlias = tuple[StepLog, Write] | Callable[[], None]
"""A write for the ledger of a topic, or what is called once all writes before it are on disk."""


@dataclass(frozen=True, slots=True)
class WritingStatistics:
    """Writes that wait now, and transactions and steps written in total."""

    waiting: int
    groups: int
    steps: int


class TopicWriter(GroupWriter[Entry]):
    """Writes one journal; calls ``written`` after each group, with the topics that have new steps."""

    NAME = "the journal of topics"
    REFUSED = "steps of durable topics are"

    def __init__(self, journal: Journal, written: Callable[[Sequence[StepLog]], None]) -> None:
        super().__init__(GROUP)
        self.journal = journal
        self._written = written
        self._steps = 0

    # -- submitting -----------------------------------------------------------------------------------

    def begin(self, ledger: StepLog) -> None:
        """Submits a new topic."""
        topic = ledger.topic
        shape = (topic.name, topic.order.dimensions, len(topic.partitions), ledger.retain, ledger.age)
        self._submit(ledger, Begun(ledger.slot, ledger.number, *shape, ledger.dump()))

    def note(self, ledger: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        """Submits a step; it is the ``write`` of a step log."""
        lowers = ledger.lowers() if step.position % FRONTIER_STEPS == 0 else None
        self._submit(ledger, Noted(ledger.slot, step, completed, time.time_ns() // 1000, lowers))
        if step.position % KEPT_STEPS == 0:
            self.keep(ledger, 0)

    def keep(self, ledger: StepLog, forgotten: int) -> None:
        """Submits the state of a topic; its epochs to this number are deleted."""
        kept = Kept(ledger.slot, ledger.position, ledger.dump(), forgotten, ledger.first_open())
        self._submit(ledger, kept)

    def end(self, ledger: StepLog) -> None:
        """Submits the end of a topic."""
        self._submit(ledger, Ended(ledger.slot))

    def _submit(self, ledger: StepLog, write: Write) -> None:
        self.check_open()
        self._waiting.append((ledger, write))
        self._arrived.set()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Calls back once all submitted steps are on disk; at once if they are."""
        if self._waiting:
            self._waiting.append(callback)
        else:
            callback()

    async def wait_durable(self) -> None:
        """Returns when all steps submitted before are on disk.  Raises ``LogFailed`` if it will not be."""
        await trio.lowlevel.checkpoint()
        done = trio.Event()
        self.when_durable(done.set)
        while not done.is_set():
            await self._wait_group()

    def statistics(self) -> WritingStatistics:
        """Counts, in O(1)."""
        return WritingStatistics(len(self._waiting), self._groups, self._steps)

    # -- writing --------------------------------------------------------------------------------------

    async def _write_group(self) -> None:
        group = list(islice(self._waiting, self._portion))
        writes = [each[1] for each in group if isinstance(each, tuple)]
        if writes and not await self._on_disk(self.journal.write, writes):
            return
        for _ in group:
            self._waiting.popleft()
        moved: dict[int, StepLog] = {}
        for each in group:
            if not isinstance(each, tuple):
                each()
                continue
            ledger, write = each
            if isinstance(write, Noted):
                ledger.written(write.step.position)
                self._steps += 1
                moved[ledger.slot] = ledger
        self._group_done()
        self._written(list(moved.values()))
        for ledger in moved.values():
            if ledger.size > ledger.retain:
                await self.trim(ledger)

    # -- what goes ------------------------------------------------------------------------------------

    async def trim_aged(self, ledgers: Callable[[], Sequence[StepLog]]) -> None:
        """Deletes what has become too old, until cancelled."""
        while True:
            await trio.sleep(TRIM_SECONDS)
            for ledger in ledgers():
                if ledger.age is not None and self.full is None:
                    await self.trim(ledger)

    async def trim(self, ledger: StepLog) -> None:
        """Deletes the oldest epochs that are beyond the budget, or too old and not needed by a reader.

        Beyond the budget an eighth is deleted at once, so that this is rare.
        """
        rows, readers = await trio.to_thread.run_sync(self._oldest, ledger)
        now = time.time_ns() // 1000
        alive = [number for _, number, seen in readers if seen >= now - READER_SECONDS * 1e6]
        done = min(alive, default=ledger.completed)
        excess = ledger.size - ledger.retain * 7 // 8 if ledger.size > ledger.retain else 0
        horizon = None if ledger.age is None else now - ledger.age * 1e6
        going, freed = [], 0
        for epoch, at in rows:
            aged = horizon is not None and at < horizon and epoch.number <= done
            if (freed >= excess and not aged) or freed > TRIM_BYTES:
                break
            going.append((epoch.number, epoch.time, epoch.size))
            freed += epoch.size
        if going and going[0][0] == ledger.oldest:  # else somebody else was here meanwhile
            ledger.forget(going)
            self.keep(ledger, going[-1][0])

    def _oldest(self, ledger: StepLog) -> tuple[list[tuple[Completed, int]], list[tuple[str, int, int]]]:
        rows = self.journal.oldest_epochs(ledger.slot, ledger.oldest, 4_096)
        return rows, self.journal.acknowledged(ledger.slot)
