"""The durable topics of a daemon: written to its disk, or read on while another daemon writes them.

A daemon that follows has each topic as its leader has it, a moment later, for subscribers alone.  When it
leads, it goes on with the topics that it has.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

import trio

from dataspace.errors import Refused
from dataspace.topics.times import Antichain, Order
from relay.journal import history
from relay.journal.followed import FollowedJournal
from relay.journal.following import TopicsFollowing
from relay.journal.journal import Journal
from relay.journal.reader import JournalReader, recovered
from relay.journal.rows import Ended
from relay.journal.writer import TopicWriter
from relay.log.retention import Retention
from relay.store.errors import LogDamaged
from relay.topics.feed import CatchUp, Feed
from relay.topics.steps import StepLog
from relay.topics.topic import Topic
from server.owners.leases import Deadlines
from server.topics.catalogue import TopicEntry, Topics, has_ended

T = TypeVar("T")

Recovered: TypeAlias = Mapping[int, StepLog | None]
"""The topics of a journal by their slots; None for a topic that was followed up to the end."""

PAST_READERS: Final = 16
"""Threads that read the past of topics, so that a slow archive does not hold up the disk."""

PATIENCE: Final = 5.0
"""Seconds in which a followed topic must have reached what a reader has seen elsewhere."""

logger = logging.getLogger("dataspace")

RETAIN: Final = 64 << 20
"""Bytes that a durable topic retains by default."""

MAX_DURABLE_RETAIN: Final = 1 << 40
MAX_AWAY: Final = 300_000
"""Milliseconds that a producer may be disconnected at most."""


class DurableTopics:
    """The durable topics of a daemon, and the connections of their producers.

    From ``open`` on it has each step written, and lets a producer that asked for it resume within its time,
    with the capabilities that it held.

    Always: durable topics are restored before the first client is served; a disconnected producer keeps its
    capabilities for the time that it asked for; then it has crashed, and its subscribers are notified.
    """

    def __init__(
        self, topics: Topics, flush: Callable[[], None], retention: Callable[[], Retention] = Retention
    ) -> None:
        """``retention`` says how much of a topic is kept for an archive, and for groups."""
        self.writer: TopicWriter
        """What writes the steps, once they are opened."""
        self.is_open = False
        self.following: TopicsFollowing | None = None
        """What reads them on, while another daemon writes them."""
        self.hint: Callable[[], None] | None = None
        """Tells followers that there is more on disk, while there are some."""
        self.lend: Callable[[StepLog], None] | None = None
        """Gives a step log its archive, as that is now; blocks.  None where there is no archive."""
        self.needed: Callable[[int], int | None] = lambda _topic: None
        """Returns the completed epoch after which groups need a topic, by its identity, if any do."""
        self.moved: Callable[[], None] = lambda: None
        """Called when topics have more on disk, or one has ended."""
        self._topics = topics
        self._flush = flush
        self._retention = retention
        self._covered: Final = weakref.WeakKeyDictionary[StepLog, int]()
        """Step logs whose archive was looked at, and the oldest epoch on disk at that moment."""
        self._past_readers: Final = trio.CapacityLimiter(PAST_READERS)
        self._entries: dict[int, TopicEntry] = {}
        self._next_slot = 1
        self._attached: dict[int, Callable[[int], None]] = {}
        self._away: Final = Deadlines(self._lapsed)
        self._places: dict[str, tuple[TopicEntry, int]] = {}

    # -- topics ---------------------------------------------------------------------------------------

    def recovered(self, journal: Journal, *, accept_damage: bool) -> Recovered:
        """Returns the topics of a journal by their slots; None for a topic that was followed up to the end.

        Blocks, for each topic.  Raises ``LogDamaged`` for a damaged one; with ``accept_damage``, ends it.
        """
        found: dict[int, StepLog | None] = {}
        for slot in journal.slots():
            followed = self._entries.get(slot)
            try:
                is_whole = followed is not None and journal.has_all(followed.step_log)
                found[slot] = None if is_whole else recovered(journal, slot)
            except LogDamaged as damage:
                if not accept_damage:
                    raise
                logger.warning("%s; the topic in slot %d is dropped, as accept_damage allows", damage, slot)
                journal.write([Ended(slot)])
        return found

    def open(self, journal: Journal, found: Recovered) -> None:
        """Opens the topics of a journal for writing; producers that may not be away have crashed.

        A topic that was followed goes on as it is, with its subscribers.
        """
        self.writer = TopicWriter(
            journal, self._written, self._retention, lambda step_log: self.needed(step_log.number)
        )
        self.is_open, self.following = True, None
        self._topics.number_from_now()
        for slot in [each for each in self._entries if each not in found]:
            self._end_followed(slot, whole=False)
        for slot, step_log in found.items():
            if step_log is None:
                self._entries[slot].step_log.write = self.writer.submit_step
                continue
            if slot in self._entries:
                self._end_followed(slot, whole=False)
            step_log.write = self.writer.submit_step
            self._topics.enlist(self._kept(TopicEntry(step_log, 0)))
        for entry in list(self._entries.values()):
            for producer in list(entry.step_log.members):
                self.detach(entry, producer, "the daemon was started again")
        if self._entries:
            logger.info("recovered %d durable topics", len(self._entries))

    def _kept(self, entry: TopicEntry) -> TopicEntry:
        self._entries[entry.step_log.slot] = entry
        self._next_slot = max(self._next_slot, entry.step_log.slot + 1)
        return entry

    def make(
        self, name: str, order: Order, partitions: int, retain: int, age: float | None, owner: int
    ) -> TopicEntry:
        """Returns a new durable topic, without a producer."""
        self._topics.check_another()
        retain = retain or RETAIN
        if not 0 < retain <= MAX_DURABLE_RETAIN:
            raise Refused("limit", f"retain={retain} bytes, limit {MAX_DURABLE_RETAIN}")
        topic = Topic(name, order, partitions, lasting=True)
        step_log = StepLog(
            topic, self._topics.number(), self._next_slot, retain, self.writer.submit_step, age=age
        )
        return self._kept(TopicEntry(step_log, owner))

    def begin(self, entry: TopicEntry) -> None:
        """Writes the beginning of a topic, before any step of it."""
        self.check_room()
        self.writer.submit_state(entry.step_log)

    def end(self, entry: TopicEntry) -> None:
        """Ends a durable topic; does nothing for one in memory."""
        if entry.durable:
            for producer in entry.step_log.members:
                self._come_back(producer)
            del self._entries[entry.step_log.slot]
            self.writer.end(entry.step_log)
            self.moved()

    def check_room(self) -> None:
        """Raises ``Refused`` while the disk is full."""
        if self.writer.full is not None:
            raise Refused("disk-full", f"durable topics take nothing: {self.writer.full}")

    def _written(self, step_logs: Sequence[StepLog]) -> None:
        for step_log in step_logs:
            entry = self._entries.get(step_log.slot)
            if entry is not None:
                self._look(entry)
        self.moved()
        if self.hint is not None:
            self.hint()
        self._flush()

    def _look(self, entry: TopicEntry) -> None:
        """Wakes the readers of a topic, for steps that are on disk now; raises nothing.

        After an error once more: readers that were not woken would wait for the topic's next step.
        """
        for _ in range(2):
            try:
                entry.wake_readers()
                return
            except Exception:  # a fence around the readers of one topic: its caller writes for all topics
                logger.exception("topic %s: its readers could not be woken: a defect", entry.topic.name)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Calls back once all steps so far are on disk; at once if they are."""
        if self.is_open:
            self.writer.when_durable(callback)
        else:
            callback()

    # -- topics that another daemon writes ------------------------------------------------------------

    def follow(self, journal: FollowedJournal) -> None:
        """Takes over all topics of a journal that another daemon writes."""
        self.following = TopicsFollowing(
            journal,
            appeared=self._follow,
            moved=self._moved,
            ended=lambda step_log, whole: self._end_followed(step_log.slot, whole=whole),
            skipped=self._skip,
            flush=self._flush,
        )
        self.following.begin()

    def _follow(self, step_log: StepLog) -> None:
        self._topics.enlist(self._kept(TopicEntry(step_log, 0)))

    def _moved(self, step_log: StepLog) -> None:
        entry = self._entries[step_log.slot]
        entry.send_back()
        entry.wake_readers()
        self.moved()

    def _end_followed(self, slot: int, *, whole: bool) -> None:
        """Ends a topic; its subscribers get an error if they may not have been told all of it."""
        entry = self._entries.pop(slot)
        if not whole:
            entry.fail(has_ended(entry))
        self._topics.end(entry)
        self.moved()

    def _skip(self, before: StepLog, step_log: StepLog) -> None:
        self._topics.skip(self._entries[before.slot], step_log)

    @property
    def journal(self) -> JournalReader:
        """The journal to read from."""
        return self.writer.journal if self.following is None else self.following.journal

    async def reach(self, entry: TopicEntry, reading: Callable[[], CatchUp]) -> CatchUp:
        """Returns what ``reading`` returns once a followed topic has reached its times.

        Raises ``Refused("behind")``, with the address of the leader, if that takes long.
        """
        await self.cover(entry.step_log)
        with trio.move_on_after(PATIENCE):
            while self._topics.is_listed(entry):
                try:
                    return reading()
                except Refused as refusal:
                    if refusal.code != "epoch-ahead" or self.following is None:
                        raise
                await entry.completed.wait()
        raise self._topics.behind(entry)

    async def complete(self, entry: TopicEntry, number: int) -> None:
        """Waits, for a topic that is followed, until it has completed the epoch of this number.

        Raises as ``reach``.
        """
        if self.following is None:
            return
        with trio.move_on_after(PATIENCE):
            while entry.step_log.completed_durable < number and self._topics.is_listed(entry):
                await entry.completed.wait()
        if entry.step_log.completed_durable < number:
            raise self._topics.behind(entry)

    async def read(self, question: Callable[[JournalReader], T], *, past: bool = False) -> T:
        """Returns an answer of the journal, from a thread; ``past`` if it may come from the archive.

        Where another process trims the journal a question may come too late: it is asked once more then.
        """
        followed, limiter = self.following, self._past_readers if past else None
        try:
            return await trio.to_thread.run_sync(question, self.journal, limiter=limiter)
        except (LogDamaged, Refused):
            if followed is None:
                raise
        await followed.look_now()
        return await trio.to_thread.run_sync(question, self.journal, limiter=limiter)

    async def read_from(self, step_log: StepLog, number: int, question: Callable[[JournalReader], T]) -> T:
        """Returns an answer about completed epochs from a number on, wherever they are, as ``read``.

        Raises ``Refused("archive-away")`` where the archive is needed and cannot be reached.
        """
        if number < step_log.oldest:
            await self.cover(step_log)
        try:
            return await self.read(question, past=number < step_log.oldest)
        except (LogDamaged, Refused):
            if number >= step_log.oldest or not await self.cover(step_log):
                raise
        return await self.read(question, past=True)

    async def read_since(self, step_log: StepLog, since: Antichain, question: Callable[..., T]) -> T:
        """Returns an answer about the epochs at or after some times, wherever they are, as ``read_from``.

        ``question`` is a function of ``history`` of the journal, ``step_log`` and ``of``, what is sought.
        A topic that is followed lets epochs go at any moment, also such as its archive was not known to have:
        then it is asked again.
        """
        while True:
            of = history.sought(step_log, since)
            if of.is_before:
                await self.cover(step_log)
                of = history.sought(step_log, since)
            if of.is_before and of.archive is None and self.may_cover(step_log):
                continue
            try:
                return await self.read(partial(question, step_log=step_log, of=of), past=of.is_before)
            except (LogDamaged, Refused):
                if of.oldest == step_log.oldest:
                    raise

    def may_cover(self, step_log: StepLog) -> bool:
        """True if ``cover`` would look at the archive."""
        return (
            self.lend is not None
            and not step_log.is_covered
            and self._covered.get(step_log) != step_log.oldest
        )

    async def cover(self, step_log: StepLog) -> bool:
        """Opens the archive of a step log whose oldest steps are no longer on disk; True if it looked.

        Raises ``Refused("archive-away")`` if the archive cannot be reached.
        """
        oldest = step_log.oldest
        if self.lend is None or not self.may_cover(step_log):
            await trio.lowlevel.checkpoint()
            return False
        await trio.to_thread.run_sync(self.lend, step_log, limiter=self._past_readers)
        if not self.is_away(step_log):
            self._covered[step_log] = oldest
        return True

    def is_away(self, step_log: StepLog) -> bool:
        """True if the archive lacks epochs that it is known to have had and that are not held here."""
        archive, had = step_log.archive, min(step_log.archived[1], step_log.oldest - 1)
        return self.lend is not None and (0 if archive is None else archive.completed) < had

    def step_logs(self) -> list[StepLog]:
        """Returns the step logs of all durable topics."""
        return [each.step_log for each in self._entries.values()]

    async def read_past(
        self, entry: TopicEntry, feed: Feed, catching: CatchUp, wait_taken: Callable[[], Awaitable[None]]
    ) -> None:
        """Brings a subscriber from the disk to the present, as fast as it reads.

        Raises ``Refused`` if retention, or the end of the topic, overtakes it.
        """
        step_log, since = catching.step_log, catching.since
        if not catching.has_begun:
            catching.begin(await self.read_since(step_log, since, history.beginning))
        while self._topics.is_listed(entry):
            if entry.step_log is not step_log:
                raise entry.skipped
            # A thread is waited for to its end: the stream may be closed since.
            await trio.lowlevel.checkpoint_if_cancelled()
            if not feed.has_room:
                await wait_taken()
                continue
            if catching.finish():
                return
            try:
                steps = await self.read(
                    lambda journal: history.steps_after(journal, step_log, catching.at), past=True
                )
            except (LogDamaged, Refused):
                if await self.cover(step_log):
                    continue
                catching.check_retained()
                if self._topics.is_listed(entry):
                    raise
                break
            catching.replay(steps)
        raise has_ended(entry)

    # -- producers ------------------------------------------------------------------------------------

    def attach(self, producer: int, detach: Callable[[int], None]) -> None:
        """Gives a producer to a connection, and calls ``detach`` of its earlier connection."""
        before = self._attached.get(producer)
        if before is not None and before != detach:
            before(producer)
        self._come_back(producer)
        self._attached[producer] = detach

    def detach(self, entry: TopicEntry, producer: int, reason: str) -> None:
        """Notes that a producer has lost its connection: it may resume within its time, or has crashed."""
        step_log = entry.step_log
        self._attached.pop(producer, None)
        away = step_log.members[producer].away
        if away:
            self._places[str(producer)] = (entry, producer)
            self._away.renew(str(producer), trio.current_time() + away / 1000)
        else:
            step_log.crash(producer, reason)

    def crash(self, entry: TopicEntry, producer: int, reason: str) -> None:
        """Crashes a producer, if it is still there."""
        self._come_back(producer)
        if producer in entry.step_log.members:
            entry.step_log.crash(producer, reason)

    def gone(self, producer: int) -> None:
        """Notes that a producer has left or crashed."""
        self._attached.pop(producer, None)

    def _come_back(self, producer: int) -> None:
        self._away.forget(str(producer))
        self._places.pop(str(producer), None)

    def _lapsed(self, names: Sequence[str]) -> None:
        for name in names:
            entry, producer = self._places.get(name, (None, 0))
            if entry is not None and (member := entry.step_log.members.get(producer)) is not None:
                entry.step_log.crash(producer, f"it did not come back within {member.away / 1000:g} s")
            self._places.pop(name, None)
        self._flush()

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends producers that do not resume in time, and deletes what is past retention; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._away.run)
            nursery.start_soon(self.writer.trim_aged, self.step_logs)
