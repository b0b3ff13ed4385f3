"""Writing: the task that brings the steps of all durable topics to the disk, many at a time.

As with the turns of a space, a flush of the disk costs as much as dozens of steps, so whatever has gathered
while the write before was under way is written together.  It also keeps each topic within its budget.

Always: submitted steps are written in that order; callbacks run in the order of their registration, after all
steps submitted before them are on disk; while the disk is full the write is tried again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import trio

from dataspace.errors import Closed, Refused
from relay.journal.journal import Journal
from relay.journal.past import MOST_EPOCHS
from relay.journal.rows import Ended, Kept, Noted, Write
from relay.log.retention import Retention
from relay.store.errors import LogFailed
from relay.store.group_writer import GroupWriter
from relay.topics.steps import LAST, Completed, Step, StepLog

logger = logging.getLogger("dataspace")

GROUP: Final = 8_192
"""Writes in one transaction, at most."""

TRIM_SECONDS: Final = 5.0
"""Interval at which steps past retention are looked for."""

TRIM_BYTES: Final = 16 << 20
"""Bytes deleted in one transaction, so that steps do not wait for it."""

KEPT_STEPS: Final = 4_096
"""Steps after which a topic's state is written, so that no more of them are done again at a start."""

NOTED: Final = 256
"""Steps on disk that are noted before other tasks have the thread."""

ATTEMPTS: Final = 10
"""How often epochs that may go are looked for while older ones are being deleted."""

READER_SECONDS: Final = 7 * 86_400.0
"""A named reader that was not heard of for so long holds nothing back."""


Entry: TypeAlias = tuple[StepLog, Write] | Callable[[], None]
"""A write for the step log of a topic, or what is called once all writes before it are on disk."""


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

    def __init__(
        self,
        journal: Journal,
        written: Callable[[Sequence[StepLog]], None],
        retention: Callable[[], Retention] = Retention,
        needed: Callable[[StepLog], int | None] = lambda _ledger: None,
    ) -> None:
        """``retention`` says whether there is an archive, and how much of a topic is kept for it, and for
        groups; ``needed`` is the completed epoch after which groups need a topic, if any do."""
        super().__init__(GROUP)
        self._of_groups = needed
        self.journal = journal
        self._retention = retention
        self._written = written
        self._steps = 0

    # -- submitting -----------------------------------------------------------------------------------

    def submit_step(self, step_log: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        """Submits a step; it is the ``write`` of a step log."""
        at = time.time_ns() // 1000
        self._submit(step_log, Noted(step_log.slot, step, completed, step_log.completed, at))
        if step.position % KEPT_STEPS == 0:
            self.submit_state(step_log)

    def submit_state(self, step_log: StepLog, *, held: bool = True) -> None:
        """Submits the state of a topic, perhaps a new one; the epochs that it has forgotten are deleted.

        If ``held``, steps stay that an archive has to take in yet.
        """
        upto = _archived(step_log)[0] if held and self._retention().archived else None
        topic = step_log.topic
        shape = (topic.name, topic.order.dimensions, len(topic.partitions), step_log.retain, step_log.age)
        now = (step_log.position, step_log.dump(), b"", step_log.oldest, step_log.first_needed())
        self._submit(step_log, Kept(step_log.slot, step_log.number, *shape, *now, step_log.archived, upto))

    def end(self, step_log: StepLog) -> None:
        """Submits the end of a topic."""
        self._submit(step_log, Ended(step_log.slot))

    def _submit(self, step_log: StepLog, write: Write) -> None:
        self.check_open()
        self._waiting.append((step_log, write))
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
        moved: dict[int, StepLog] = {}
        for at, entry in enumerate(group, 1):
            if at % NOTED == 0:
                await trio.lowlevel.cancel_shielded_checkpoint()
            self._waiting.popleft()
            if not isinstance(entry, tuple):
                self._call(entry)
                continue
            step_log, write = entry
            if isinstance(write, Noted):
                step_log.written(write.step.position)
                self._steps += 1
                moved[step_log.slot] = step_log
        self._group_done()
        self._tell(list(moved.values()))
        for step_log in moved.values():
            if self._has_excess(step_log):
                await self._trim_fenced(step_log)

    def _tell(self, moved: Sequence[StepLog]) -> None:
        """Calls ``written``, which only wakes readers, and once more after an error; raises nothing."""
        for _ in range(2):
            try:
                self._written(moved)
                return
            except Exception:  # a fence around readers of topics, which the writer must survive
                logger.exception("the readers of topics could not be woken: a defect")

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # a fence around a subscriber or a publisher, which the writer must survive
            logger.exception("what waits for steps of topics on disk could not be told: a defect")

    # -- what goes ------------------------------------------------------------------------------------

    async def trim_aged(self, step_logs: Callable[[], Sequence[StepLog]]) -> None:
        """Deletes what has become too old, until cancelled."""
        while True:
            await trio.sleep(TRIM_SECONDS)
            for step_log in step_logs():
                if step_log.age is not None and self.full is None:
                    await self._trim_fenced(step_log)

    async def _trim_fenced(self, step_log: StepLog) -> None:
        """Does ``trim``, and logs what keeps it from that: one topic must not hold back the others."""
        try:
            await self.trim(step_log)
        except (LogFailed, Closed):
            raise
        except Exception:  # a fence around the past of one topic
            logger.exception("topic %s: what is past its retention stays for now", step_log.topic.name)

    async def note_archived(self, step_log: StepLog, position: int, completed: int) -> None:
        """Submits what an archive has of a topic, and deletes what need not be kept any more."""
        step_log.archived, step_log.archive_seen = (position, completed), True
        self.submit_state(step_log)
        while self._has_excess(step_log) and await self.trim(step_log):
            pass

    def _has_excess(self, step_log: StepLog) -> bool:
        """True if a topic is beyond its budget, and some of that may go."""
        if step_log.size <= step_log.retain or self._is_needed(step_log):
            return False
        waits = self._retention().archived and _archived(step_log)[1] < step_log.oldest
        return not waits or self._forced(step_log) > 0

    def _is_needed(self, step_log: StepLog) -> bool:
        """True if a group has still to read the oldest epoch, and nothing else has it."""
        needed = self._of_groups(step_log)
        if needed is None or step_log.oldest <= needed or self._too_late(step_log) > 0:
            return False
        return not self._retention().archived or _archived(step_log)[1] < step_log.oldest

    def _too_late(self, step_log: StepLog) -> int:
        """Returns the bytes of a topic that go even if a group has not read them."""
        return max(0, step_log.size - step_log.retain - self._retention().reader_size)

    def _forced(self, step_log: StepLog) -> int:
        """Returns the bytes of a topic that go even if the archive lacks them."""
        size = self._retention().archive_size
        return 0 if size is None else max(0, step_log.size - step_log.retain - size)

    async def trim(self, step_log: StepLog) -> bool:
        """Deletes the oldest epochs that are beyond the budget, or too old and not needed by a reader.

        Beyond the budget an eighth is deleted at once, so that this is rare.  What an archive has to take in
        yet is kept, within ``Retention.archive_size``, and what groups have to read yet, within
        ``Retention.reader_size``.  True if something was deleted, perhaps by another task.
        """
        excess = step_log.size - step_log.retain * 7 // 8 if step_log.size > step_log.retain else 0
        archived = _archived(step_log)[1] if self._retention().archived else LAST
        held, late = (
            LAST if (needed := self._of_groups(step_log)) is None else needed,
            self._too_late(step_log),
        )
        if self._retention().archived:
            held = max(held, archived)
        limits = excess, archived, self._forced(step_log), held, late
        oldest, going = step_log.oldest, None
        for _ in range(ATTEMPTS):
            going = await trio.to_thread.run_sync(self._going, step_log, *limits)
            if going is not None or step_log.oldest != oldest:
                break
        if going and going[0].number == step_log.oldest:
            step_log.forget(going)
            self.submit_state(step_log, held=going[-1].number <= archived)
        return step_log.oldest != oldest

    def _going(
        self, step_log: StepLog, excess: int, archived: int, forced: int, held: int, late: int
    ) -> list[Completed] | None:
        """Returns the oldest completed epochs that need not be kept; None if older ones went meanwhile.

        Of those after ``archived`` as many as have ``forced`` bytes together with the ones before; of those
        after ``held``, which groups need, as many as have ``late`` bytes.
        """
        now = time.time_ns() // 1000
        readers = self.journal.acknowledged(step_log.slot)
        alive = [number for _, number, seen in readers if seen >= now - READER_SECONDS * 1e6]
        done = min(alive, default=step_log.completed)
        horizon = None if step_log.age is None else now - step_log.age * 1e6
        going, freed = list[Completed](), 0
        try:
            for epoch, at in islice(self.journal.epochs(step_log.slot, step_log.oldest), MOST_EPOCHS):
                aged = horizon is not None and at < horizon and (epoch.number <= done or archived < LAST)
                if (freed >= excess and not aged) or freed > TRIM_BYTES:
                    break
                if epoch.number > archived and freed >= forced:
                    break
                if epoch.number > held and freed >= late:
                    break
                going.append(epoch)
                freed += epoch.size
        except Refused:  # what went before is deleted only now, and led the search astray
            return going or None
        return going


def _archived(step_log: StepLog) -> tuple[int, int]:
    """Returns the newest step and completed epoch that the archive has, none before it was seen."""
    return step_log.archived if step_log.archive_seen else (0, 0)
