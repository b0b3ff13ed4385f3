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

    def note(self, ledger: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        """Submits a step; it is the ``write`` of a step log."""
        at = time.time_ns() // 1000
        self._submit(ledger, Noted(ledger.slot, step, completed, ledger.completed, at))
        if step.position % KEPT_STEPS == 0:
            self.keep(ledger)

    def keep(self, ledger: StepLog, *, held: bool = True) -> None:
        """Submits the state of a topic, perhaps a new one; the epochs that it has forgotten are deleted.

        If ``held``, steps stay that an archive has to take in yet.
        """
        upto = _archived(ledger)[0] if held and self._retention().archived else None
        topic = ledger.topic
        shape = (topic.name, topic.order.dimensions, len(topic.partitions), ledger.retain, ledger.age)
        now = (ledger.position, ledger.dump(), b"", ledger.oldest, ledger.first_needed())
        self._submit(ledger, Kept(ledger.slot, ledger.number, *shape, *now, ledger.archived, upto))

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
        moved: dict[int, StepLog] = {}
        for at, each in enumerate(group, 1):
            if at % NOTED == 0:
                await trio.lowlevel.cancel_shielded_checkpoint()
            self._waiting.popleft()
            if not isinstance(each, tuple):
                self._call(each)
                continue
            ledger, write = each
            if isinstance(write, Noted):
                ledger.written(write.step.position)
                self._steps += 1
                moved[ledger.slot] = ledger
        self._group_done()
        self._tell(list(moved.values()))
        for ledger in moved.values():
            if self._has_excess(ledger):
                await self._trim_fenced(ledger)

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

    async def trim_aged(self, ledgers: Callable[[], Sequence[StepLog]]) -> None:
        """Deletes what has become too old, until cancelled."""
        while True:
            await trio.sleep(TRIM_SECONDS)
            for ledger in ledgers():
                if ledger.age is not None and self.full is None:
                    await self._trim_fenced(ledger)

    async def _trim_fenced(self, ledger: StepLog) -> None:
        """Does ``trim``, and logs what keeps it from that: one topic must not hold back the others."""
        try:
            await self.trim(ledger)
        except (LogFailed, Closed):
            raise
        except Exception:  # a fence around the past of one topic
            logger.exception("topic %s: what is past its retention stays for now", ledger.topic.name)

    async def note_archived(self, ledger: StepLog, position: int, completed: int) -> None:
        """Submits what an archive has of a topic, and deletes what need not be kept any more."""
        ledger.archived, ledger.archive_seen = (position, completed), True
        self.keep(ledger)
        while self._has_excess(ledger) and await self.trim(ledger):
            pass

    def _has_excess(self, ledger: StepLog) -> bool:
        """True if a topic is beyond its budget, and some of that may go."""
        if ledger.size <= ledger.retain or self._is_needed(ledger):
            return False
        waits = self._retention().archived and _archived(ledger)[1] < ledger.oldest
        return not waits or self._forced(ledger) > 0

    def _is_needed(self, ledger: StepLog) -> bool:
        """True if a group has still to read the oldest epoch, and nothing else has it."""
        needed = self._of_groups(ledger)
        if needed is None or ledger.oldest <= needed or self._too_late(ledger) > 0:
            return False
        return not self._retention().archived or _archived(ledger)[1] < ledger.oldest

    def _too_late(self, ledger: StepLog) -> int:
        """Returns the bytes of a topic that go even if a group has not read them."""
        return max(0, ledger.size - ledger.retain - self._retention().reader_size)

    def _forced(self, ledger: StepLog) -> int:
        """Returns the bytes of a topic that go even if the archive lacks them."""
        size = self._retention().archive_size
        return 0 if size is None else max(0, ledger.size - ledger.retain - size)

    async def trim(self, ledger: StepLog) -> bool:
        """Deletes the oldest epochs that are beyond the budget, or too old and not needed by a reader.

        Beyond the budget an eighth is deleted at once, so that this is rare.  What an archive has to take in
        yet is kept, within ``Retention.archive_size``, and what groups have to read yet, within
        ``Retention.reader_size``.  True if something was deleted, perhaps by another task.
        """
        excess = ledger.size - ledger.retain * 7 // 8 if ledger.size > ledger.retain else 0
        archived = _archived(ledger)[1] if self._retention().archived else LAST
        held, late = LAST if (needed := self._of_groups(ledger)) is None else needed, self._too_late(ledger)
        if self._retention().archived:
            held = max(held, archived)
        limits = excess, archived, self._forced(ledger), held, late
        oldest, going = ledger.oldest, None
        for _ in range(ATTEMPTS):
            going = await trio.to_thread.run_sync(self._going, ledger, *limits)
            if going is not None or ledger.oldest != oldest:
                break
        if going and going[0].number == ledger.oldest:
            ledger.forget(going)
            self.keep(ledger, held=going[-1].number <= archived)
        return ledger.oldest != oldest

    def _going(
        self, ledger: StepLog, excess: int, archived: int, forced: int, held: int, late: int
    ) -> list[Completed] | None:
        """Returns the oldest completed epochs that need not be kept; None if older ones went meanwhile.

        Of those after ``archived`` as many as have ``forced`` bytes together with the ones before; of those
        after ``held``, which groups need, as many as have ``late`` bytes.
        """
        now = time.time_ns() // 1000
        readers = self.journal.acknowledged(ledger.slot)
        alive = [number for _, number, seen in readers if seen >= now - READER_SECONDS * 1e6]
        done = min(alive, default=ledger.completed)
        horizon = None if ledger.age is None else now - ledger.age * 1e6
        going, freed = list[Completed](), 0
        try:
            for epoch, at in islice(self.journal.epochs(ledger.slot, ledger.oldest), MOST_EPOCHS):
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


def _archived(ledger: StepLog) -> tuple[int, int]:
    """Returns the newest step and completed epoch that the archive has, none before it was seen."""
    return ledger.archived if ledger.archive_seen else (0, 0)
