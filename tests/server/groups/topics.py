"""The durable topics of a directory, which tests divide without a daemon: a real journal, its writer, and
what groups read of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

import trio

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.topics.times import Order
from index.values.values import Value
from relay.journal import history
from relay.journal.journal import Journal
from relay.journal.past import Piece
from relay.journal.reader import recovered
from relay.journal.writer import TopicWriter
from relay.topics.steps import StepLog
from relay.topics.topic import Topic
from server.groups.space.dividing import DividedTopics
from tests.server.groups.spaces import BareSpace

T = TypeVar("T")

NAME = "t"


class BareTopics(DividedTopics):
    """A journal with one topic, which has one producer, in place of all topics of a daemon."""

    def __init__(self, directory: Path, bare: BareSpace, *, retain: int) -> None:
        self.journal = Journal.open(directory)
        self.groups = bare.groups
        self.groups.topics = self
        self.writer = TopicWriter(
            self.journal, self._moved, needed=lambda each: self.groups.noted.needs_of_topic(each.number)
        )
        if self.journal.slots():
            self.step_log = recovered(self.journal, 1)
            self.step_log.write = self.writer.submit_step
            for each in list(self.step_log.members):
                self.step_log.crash(each, "started again")
        else:
            topic = Topic(NAME, Order(0), lasting=True)
            self.step_log = StepLog(topic, 77, 1, retain, self.writer.submit_step)
            self.writer.submit_state(self.step_log)
        self.producer = next(each for each in count(self.step_log.position + 1))
        self.time = self.step_log.join(self.producer)
        assert isinstance(self.time, int)

    def send(self, *items: Value) -> None:
        """Sends a batch at the present time."""
        self.step_log.send(self.producer, self.time, pack(tuple(items)))

    def advance(self) -> None:
        """Completes the epoch of the present time."""
        assert isinstance(self.time, int)  # the topic has no dimensions
        self.step_log.progress(self.producer, [(self.time, -1), (self.time + 1, +1)])
        self.time += 1

    @property
    def is_idle(self) -> bool:
        """True if all steps are on disk, and none is being written."""
        return self.writer.statistics().waiting == 0

    def _moved(self, _step_logs: Sequence[StepLog]) -> None:
        self.groups.topics_moved.set()

    def find(self, name: str) -> StepLog:
        found = self.standing(name, self.step_log.number)
        if found is None:
            raise Refused("no-topic", f"no topic {name!r}")
        return found

    def standing(self, name: str, identity: int) -> StepLog | None:
        return self.step_log if (name, identity) == (NAME, self.step_log.number) else None

    async def read(
        self,
        topic: StepLog,
        after: int,
        at: tuple[int, int] | None,
        budget: int,
        decode: Callable[[Sequence[Piece]], T],
    ) -> T:
        upto = topic.completed_durable
        if after < topic.oldest - 1:
            raise Refused("epoch-gone", f"epoch {after + 1} is gone")
        return await trio.to_thread.run_sync(
            lambda: decode(history.pieces(self.journal, topic, after, upto, at, budget))
        )

    async def number_at(self, topic: StepLog, micros: int) -> int:
        return await trio.to_thread.run_sync(lambda: history.number_completed_at(self.journal, topic, micros))

    async def oldest(self, topic: StepLog) -> int:
        await trio.lowlevel.checkpoint()
        return topic.oldest
