"""Durable topics as groups read them: completed epochs by number, wherever they are.

Always: a number stands for the same items for as long as the topic has its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from dataspace.errors import Refused
from relay.journal import history
from relay.journal.past import Piece
from relay.journal.reader import JournalReader
from relay.store.errors import LogDamaged
from relay.topics.steps import StepLog
from server.topics.catalogue import Topics
from server.topics.durable import DurableTopics

T = TypeVar("T")


class DividedTopics:
    """The durable topics of a daemon, for the groups of its spaces."""

    def __init__(self, topics: Topics, durable: DurableTopics) -> None:
        self._topics = topics
        self._durable = durable

    def find(self, name: str) -> StepLog:
        """Returns the durable topic of a name; raises ``Refused`` if there is none."""
        entry = self._topics.get(name)
        if entry is None or (entry.durable and not entry.step_log.durable):  # it is not on disk yet
            raise Refused("no-topic", f"no topic named {name!r:.300}, there are {len(self._topics)}")
        if not entry.durable:
            said = f"topic {name!r:.300} is in memory: only a durable topic can be divided among members"
            raise Refused("not-durable", said)
        return entry.step_log

    def standing(self, name: str, identity: int) -> StepLog | None:
        """Returns the topic of a name, unless it has ended or is another one now."""
        entry = self._topics.get(name)
        return entry.step_log if entry is not None and entry.number == identity else None

    async def read(
        self,
        topic: StepLog,
        after: int,
        at: tuple[int, int] | None,
        budget: int,
        decode: Callable[[Sequence[Piece]], T],
    ) -> T:
        """Returns what ``decode`` makes, in a thread, of the completed epochs after one; ``at`` goes on
        within the first of them.

        Raises ``Refused``: ``epoch-gone`` for epochs that were deleted, ``archive-away``.
        """
        upto = topic.completed_durable

        def question(journal: JournalReader) -> T:
            return decode(history.pieces(journal, topic, after, upto, at, budget))

        if after < topic.oldest - 1:
            await self._durable.cover(topic)
        self._check_there(topic, after)
        try:
            return await self._durable.read_from(topic, after + 1, question)
        except LogDamaged:
            self._check_there(topic, after)  # they were deleted meanwhile
            raise

    def _check_there(self, topic: StepLog, after: int) -> None:
        if after < topic.oldest_read - 1:
            if self._durable.is_away(topic):
                raise Refused("archive-away", f"the archive of topic {topic.topic.name!r:.300} lacks epochs")
            said = f"epoch {after + 1} is not retained, the oldest is {topic.oldest_read}"
            raise Refused("epoch-gone", said)

    async def number_at(self, topic: StepLog, micros: int) -> int:
        """Returns the number before the first epoch that was completed at or after a time."""
        if topic.completed_durable < topic.oldest:
            return topic.completed_durable

        def question(journal: JournalReader) -> int:
            return history.number_completed_at(journal, topic, micros)

        await self.oldest(topic)
        return await self._durable.read_from(topic, topic.oldest, question)

    async def oldest(self, topic: StepLog) -> int:
        """Returns the number of the oldest completed epoch that can be read."""
        with suppress(Refused):  # while the archive is away, the oldest on disk is the oldest
            await self._durable.cover(topic)
        return topic.oldest_read
