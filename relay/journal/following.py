"""Following topics: the durable topics of a journal that another process writes, each as a growing step log.

Applied in the same order, the steps of a topic make the same topic again, with the same epochs; so a
subscriber here is told what a subscriber of the writing process is told.  A topic that has ended leaves
nothing behind; whether all its steps were read before that, the count of all steps shows.

Always: a step is applied once, in order, and only when it is on disk; a gap is never passed over: where
retention was faster, the topic goes on with another step log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeAlias, TypeVar

import trio

from relay.following.polling import SLICE_SECONDS, Polled
from relay.journal.followed import FollowedJournal, FollowedTopic, TopicHead
from relay.log.segments import Segment
from relay.store.errors import LogAway
from relay.topics.steps import StepLog

logger = logging.getLogger("dataspace")

T = TypeVar("T")

Question: TypeAlias = Callable[[], Any]
"""A question about the journal, or a part of it."""

Looking: TypeAlias = Generator[Question | None, Any, T]
"""Yields questions, whose answers it is sent, and None where others may have their turn."""


class TopicsFollowing(Polled):
    """Applies what is new in a journal.

    ``appeared`` is called with a new topic, ``moved`` with a topic that has new steps or has forgotten
    epochs.  ``ended`` is called with a topic that has ended, and whether all its steps were applied;
    ``skipped`` with a topic that has lost steps, and the topic as it goes on.  ``flush`` is called
    after some steps.
    """

    def __init__(
        self,
        journal: FollowedJournal,
        *,
        appeared: Callable[[StepLog], None],
        moved: Callable[[StepLog], None],
        ended: Callable[[StepLog, bool], None],
        skipped: Callable[[StepLog, StepLog], None],
        flush: Callable[[], None],
    ) -> None:
        super().__init__()
        self.journal: Final = journal
        self._appeared = appeared
        self._moved = moved
        self._ended = ended
        self._skipped = skipped
        self._flush = flush
        self._topics: dict[int, FollowedTopic] = {}
        self._version: int | None = None
        self._dead: int | None = None
        """How many steps all topics had together that have ended."""
        self._passes = self._passed = 0
        self._looked: Final = trio.lowlevel.ParkingLot()

    def step_logs(self) -> list[StepLog]:
        """Returns the step logs of all topics."""
        return [each.step_log for each in self._topics.values()]

    # -- following ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Applies everything that is on disk, at once; O(journal)."""
        look, answer = self._look(), None
        with suppress(StopIteration):
            while True:
                question = look.send(answer)
                answer = None if question is None else question()

    async def run(self) -> None:
        """Applies what is new, until ``close``.  Raises ``LogFailed`` or ``LogDamaged``."""
        try:
            with self._running:
                while True:
                    self._passes += 1
                    try:
                        await self._pass()
                    except LogAway as away:
                        await self.wait_for(away)
                        continue
                    self._passed = self._passes
                    self._looked.unpark_all()
                    await self._wait_hint()
        finally:
            self._over.set()
            self._looked.unpark_all()

    async def look_now(self) -> None:
        """Returns when everything is applied that is on disk by now, or ``run`` has ended."""
        await trio.lowlevel.checkpoint()
        wanted = self._passes + 1
        self.hint()
        while self._passed < wanted and not self._over.is_set():
            await self._looked.park()

    async def catch_up(self) -> None:
        """Ends ``run``, and applies everything that is on disk."""
        await self.close()
        await self._pass()

    async def _pass(self) -> None:
        with trio.CancelScope(shield=True):
            began = perf_counter()
            look, answer = self._look(), None
            with suppress(StopIteration):
                while True:
                    question = look.send(answer)
                    answer = None if question is None else await self.journal.asked(question)
                    if perf_counter() - began > SLICE_SECONDS:
                        self._flush()
                        await trio.lowlevel.checkpoint()
                        began = perf_counter()
            self._flush()
        await trio.lowlevel.checkpoint()

    def _look(self) -> Looking[None]:
        """Applies everything that is new, with a pause after each step; the caller asks the questions."""
        more = True
        while (version := (yield self.journal.version)) != self._version or more:
            self._version = version
            count, heads = yield self.journal.heads
            self._end_missing(count, heads)
            more = False
            for head in heads:
                topic = self._topics.get(head.slot) or (yield from self._begin(head.slot))
                if topic is not None:
                    segments = yield from self._news(topic, head)
                    more = more or segments is None or bool(segments)
                    for segment in segments or ():
                        yield from topic.apply(segment)
                        self._moved(topic.step_log)
                yield None

    def _end_missing(self, count: int, heads: Iterable[TopicHead]) -> None:
        """Ends the topics that are there no more.

        All their steps were applied if those are all steps by which the topics that have ended grew.
        """
        there = {head.slot for head in heads}
        dead = count - sum([head.position for head in heads])
        ended = [each for slot, each in self._topics.items() if slot not in there]
        applied = sum([each.step_log.position for each in ended])
        whole = self._dead is not None and dead - self._dead == applied
        self._dead = dead
        for each in ended:
            self._end(each, whole=whole)

    def _end(self, topic: FollowedTopic, *, whole: bool) -> None:
        del self._topics[topic.slot]
        self.journal.forget(topic.slot)
        self._ended(topic.step_log, whole)

    def _begin(self, slot: int) -> Looking[FollowedTopic | None]:
        topic: FollowedTopic | None = yield partial(self.journal.begin, slot)
        if topic is not None:
            self._topics[slot] = topic
            self._appeared(topic.step_log)
        return topic

    def _news(self, topic: FollowedTopic, head: TopicHead) -> Looking[list[Segment] | None]:
        """Returns the next segments of a topic; None if it is to begin anew."""
        if head.seal != topic.seal:
            row = yield partial(self.journal.renewed, topic)
            if row is None:  # another topic is there
                self._end(topic, whole=False)
                return None
            topic.renew(*row)
            self._moved(topic.step_log)
        if head.newest <= topic.read:
            return []
        segments: list[Segment] | None = yield partial(self.journal.after, topic, head.newest)
        if segments is None:
            yield from self._skip(topic)
        return segments

    def _skip(self, topic: FollowedTopic) -> Looking[None]:
        """Goes on with the topic as its row has it."""
        later: FollowedTopic | None = yield partial(self.journal.begin, topic.slot)
        if later is None or later.step_log.number != topic.step_log.number:
            self._end(topic, whole=False)
            return
        logger.warning(
            "topic %s was trimmed beyond step %d, which is as far as it was read",
            *(topic.step_log.topic.name, topic.step_log.position),
        )
        self._topics[topic.slot] = later
        self._skipped(topic.step_log, later.step_log)
