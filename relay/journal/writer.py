"""Writing: the task that brings the steps of all durable topics to the disk, many at a time.

As with the turns of a space, a flush of the disk costs as much as dozens of steps, so whatever has gathered
while the write before was under way is written together.  It also keeps each topic within its budget.

Always: what is submitted is written in that order; callbacks run in the order in which they were asked for,
after all that was submitted before them is on disk; while the disk is full it is tried again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from dataspace.errors import Closed
from relay.journal.journal import Journal
from relay.journal.rows import Begun, Ended, Kept, Noted, Write
from relay.store.errors import LogFailed
from relay.topics.steps import Completed, Step, StepLog

logger = logging.getLogger("dataspace")

GROUP: Final = 8_192
"""Writes in one transaction, at most."""

RETRY_SECONDS: Final = 0.5
"""How often a full disk is tried again."""

TRIM_SECONDS: Final = 5.0
"""How often is looked for what is too old."""

TRIM_BYTES: Final = 16 << 20
"""What goes in one transaction, so that steps do not wait for it."""

KEPT_STEPS: Final = 4_096
"""Steps after which a topic's state is written, so that no more of them are done again at a start."""

FRONTIER_STEPS: Final = 256
"""Steps between two places where a reader can begin."""

READER_SECONDS: Final = 7 * 86_400.0
"""A named reader that was not heard of for so long holds nothing back."""


@dataclass(frozen=True, slots=True)
class WritingStatistics:
    """Writes that wait now, and transactions and steps written over its life."""

    waiting: int
    groups: int
    steps: int


class TopicWriter:
    """Writes one journal.  ``written`` is called after a group with the topics that have moved on."""

    def __init__(self, journal: Journal, written: Callable[[Sequence[StepLog]], None]) -> None:
        self.journal = journal
        self.full: LogFailed | None = None
        """Why what was submitted has to wait for room, while it has to."""
        self.failure: LogFailed | None = None
        self._written = written
        self._waiting: deque[tuple[StepLog, Write] | Callable[[], None]] = deque()
        self._writing = False
        self._arrived = trio.Event()
        self._over = trio.Event()
        self._running = self._closing = False
        self._groups = self._steps = 0

    # -- submitting -----------------------------------------------------------------------------------

    def begin(self, ledger: StepLog) -> None:
        """A topic is made."""
        topic = ledger.topic
        shape = (topic.name, topic.order.dimensions, len(topic.partitions), ledger.retain, ledger.age)
        self._submit(ledger, Begun(ledger.slot, ledger.number, *shape, ledger.dump()))

    def note(self, ledger: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        """A step was done; what a ledger's ``write`` is."""
        lowers = ledger.lowers() if step.position % FRONTIER_STEPS == 0 else None
        self._submit(ledger, Noted(ledger.slot, step, completed, time.time_ns() // 1000, lowers))
        if step.position % KEPT_STEPS == 0:
            self.keep(ledger, 0)

    def keep(self, ledger: StepLog, forgotten: int) -> None:
        """The state of a topic as it is now; its epochs to this number go."""
        kept = Kept(ledger.slot, ledger.position, ledger.dump(), forgotten, ledger.first_open())
        self._submit(ledger, kept)

    def end(self, ledger: StepLog) -> None:
        """A topic is no more."""
        self._submit(ledger, Ended(ledger.slot))

    def _submit(self, ledger: StepLog, write: Write) -> None:
        if self.failure is not None:
            raise self.failure
        if self._over.is_set():
            raise Closed("the journal of topics is closed")
        self._waiting.append((ledger, write))
        self._arrived.set()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Calls back once all that was submitted is on disk; at once if it is."""
        if self._waiting or self._writing:
            self._waiting.append(callback)
        else:
            callback()

    async def wait_durable(self) -> None:
        """Returns when all that was submitted before is on disk."""
        await trio.lowlevel.checkpoint()
        done = trio.Event()
        self.when_durable(done.set)
        await done.wait()

    def statistics(self) -> WritingStatistics:
        """Counts, in O(1)."""
        return WritingStatistics(len(self._waiting), self._groups, self._steps)

    # -- writing --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Writes what is submitted, until ``close``.  Raises ``LogFailed`` when the disk does."""
        self._running = True
        try:
            while not (self._closing and (self.full is not None or not self._waiting)):
                if self._waiting:
                    await self._write_group()
                else:
                    self._arrived = trio.Event()
                    await self._arrived.wait()
        except LogFailed as failure:
            self.failure = failure
            raise
        finally:
            self._over.set()

    async def close(self) -> None:
        """Has ``run`` write what is waiting and end; the journal is left open."""
        self._closing = True
        self._arrived.set()
        if self._running:
            await self._over.wait()
        else:
            await self.run()

    async def _write_group(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))]
        writes = [each for each in group if isinstance(each, tuple)]
        if writes and not await self._on_disk([write for _, write in writes]):
            self._waiting.extendleft(reversed(group))
            return
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
        self._groups += 1
        self._written(list(moved.values()))
        for ledger in moved.values():
            if ledger.size > ledger.retain:
                await self.trim(ledger)

    async def _on_disk(self, writes: Sequence[Write]) -> bool:
        self._writing = True
        try:
            await trio.to_thread.run_sync(self.journal.write, writes)
        except LogFailed as failure:
            if not failure.full:
                raise
            await self._wait_for_room(failure)
            return False
        finally:
            self._writing = False
        if self.full is not None:
            logger.warning("there is room for topics on the disk again, going on")
        self.full = None
        return True

    async def _wait_for_room(self, failure: LogFailed) -> None:
        if self.full is None:
            logger.error("%s; durable topics take nothing until there is room", failure)
        self.full = failure
        if not self._closing:
            await trio.sleep(RETRY_SECONDS)

    # -- what goes ------------------------------------------------------------------------------------

    async def trim_aged(self, ledgers: Callable[[], Sequence[StepLog]]) -> None:
        """Lets go what has become too old, until cancelled."""
        while True:
            await trio.sleep(TRIM_SECONDS)
            for ledger in ledgers():
                if ledger.age is not None and self.full is None:
                    await self.trim(ledger)

    async def trim(self, ledger: StepLog) -> None:
        """Lets the oldest epochs go that are beyond the budget, or too old and not waited for by a reader.

        Beyond the budget an eighth goes at once, so that this is rare.
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
