"""A journal that another process writes, read on as it grows.

A topic is taken over as its row has it; the segments after that are read in order, and each must be sealed to
the one before.  Where a row was written anew, retention may have moved: a row states the topic as of a
position, and is read together with the steps up to there and perhaps beyond.

Always: steps are handed out once and in order; a segment is read no later than the row that was written
before it; steps that retention has deleted before they were read are noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Final

from relay.journal.reader import JournalReader, do_again, restored
from relay.journal.rows import Kept, entries_of, first_anchor, topic_of
from relay.log.chain import READ_BYTES, Chain
from relay.log.segments import Segment
from relay.store.errors import LogDamaged
from relay.store.header import refuse, unsealed
from relay.store.ports import KEY_BITS, ChainEnds, Row, TopicTables
from relay.topics.steps import StepLog


@dataclass(frozen=True, slots=True)
class TopicHead:
    """How the row and the chain of a topic end at some moment."""

    slot: int
    seal: bytes
    newest: int
    """The ordinal of its newest segment, or the one before the first."""
    position: int
    """The position of the newest step on disk."""


@dataclass(eq=False, slots=True)
class FollowedTopic:
    """A topic as far as it was read."""

    step_log: StepLog
    seal: bytes
    """The seal of the newest row."""
    chain: Chain
    """Begins after what was read."""
    kept: Kept | None = None
    """A row whose position is not reached yet."""

    @property
    def slot(self) -> int:
        """Returns its place in the journal."""
        return self.step_log.slot

    @property
    def read(self) -> int:
        """Returns the ordinal of the newest segment that was read."""
        return self.chain.first - 1

    def apply(self, segment: Segment) -> Generator[None]:
        """Applies the next segment, with a pause after each step; ``LogDamaged`` if a step does not fit."""
        step_log = self.step_log
        for step, _, _ in entries_of(segment):
            if step.position > step_log.position + 1:
                raise LogDamaged(f"step {step_log.position + 1} of slot {self.slot} is missing")
            if step.position == step_log.position + 1:
                do_again(step_log, step)
                self.forget_trimmed()
                yield
        self.chain.first, self.chain.anchor = segment.ordinal + 1, segment.checksum
        step_log.written(step_log.position)

    def renew(self, seal: bytes, kept: Kept) -> None:
        """Takes a newer row over."""
        self.seal, self.kept = seal, kept
        self.forget_trimmed()

    def forget_trimmed(self) -> None:
        """Forgets what the row has forgotten, once the position of that is reached."""
        if self.kept is not None and self.kept.position <= self.step_log.position:
            self.step_log.forget_as(self.kept.state)
            self.step_log.archived = self.kept.archived
            self.kept = None


class FollowedJournal(JournalReader):
    """The journal of a data directory in which another process writes."""

    def __init__(self, tables: TopicTables) -> None:
        super().__init__(tables)
        self._renewing: Final = threading.Lock()
        self._steps = 0
        """The most steps that were there at once."""

    def version(self) -> int:
        """Returns a number that differs once more was written; O(1)."""
        return self._tables.version()

    def heads(self) -> tuple[int, list[TopicHead]]:
        """Returns how many steps were ever written, and how each topic ends, as of one moment; O(topics)."""
        names, rows = self._tables.heads()
        meta = unsealed(names, (), self._tables.place, refuse)
        heads = [
            TopicHead(slot, seal, newest or slot << KEY_BITS, position or 0)
            for slot, seal, newest, position in rows
        ]
        steps = meta.get("steps", 0)
        if steps < self._steps:
            refuse(f"{self._tables.place}: of {self._steps} steps that were there {steps} are left")
        self._steps = steps
        return steps, heads

    def begin(self, slot: int) -> FollowedTopic | None:
        """Returns a topic as its row has it; None if there is none in that slot."""
        while True:
            row, ends = self._tables.topic_moment(slot)
            if row is None:
                return None
            kept = self._kept(row)
            ordinal, checksum = slot << KEY_BITS, kept.anchor
            if ends is not None:
                ordinal = self._tables.first_by_last(ends.oldest, ends.newest + 1, kept.position + 1) - 1
            if ends is not None and ordinal >= ends.oldest:
                found = self._tables.checksum_of(ordinal)
                if found is None:  # it was deleted since
                    continue
                checksum = found
            chain = Chain(self._tables, checksum, slot)
            chain.first, chain.anchor = ordinal + 1, checksum
            self._take_ends(self._chain(slot), kept, ends)
            return FollowedTopic(restored(kept), row[1], chain)

    def renewed(self, topic: FollowedTopic) -> tuple[bytes, Kept] | None:
        """Returns the seal and the content of the newest row of a topic, for ``renew``.

        None if there is another topic in the slot, or none.
        """
        row, ends = self._tables.topic_moment(topic.slot)
        if row is None:
            return None
        kept = self._kept(row)
        if kept.number != topic.step_log.number:
            return None
        self._take_ends(self._chain(topic.slot), kept, ends)
        return row[1], kept

    def after(self, topic: FollowedTopic, newest: int) -> list[Segment] | None:
        """Returns about 256 KiB of the next segments of a topic, up to an ordinal that there is.

        None if they are gone.  Raises ``LogDamaged``.
        """
        found, size = list[Segment](), READ_BYTES
        try:
            for segment in topic.chain.walk(topic.read + 1, seal=topic.chain.anchor):
                if segment.ordinal > newest:
                    break
                found.append(segment)
                size -= len(segment.body)
                if size <= 0:
                    break
        except LogDamaged:
            _, ends = self._tables.topic_moment(topic.slot)
            if not found and ends is not None and ends.oldest <= topic.read + 1:
                raise
        if found and found[-1].ordinal > (chain := self._chain(topic.slot)).last:
            chain.extended(found[-1])
        return found or None

    def forget(self, slot: int) -> None:
        """Forgets a topic that has ended."""
        self._chains.pop(slot, None)

    def _kept(self, row: Row) -> Kept:
        try:
            return topic_of(*row)
        except LogDamaged as damage:
            raise self._damage(str(damage)) from None

    # -- for readers of the past ----------------------------------------------------------------------

    def _chain(self, slot: int) -> Chain:
        chain = self._chains.get(slot)
        if chain is None:
            chain = Chain(self._tables, first_anchor(slot), slot)
            chain.trimmed_elsewhere = partial(self._trimmed, slot, chain)
            self._trimmed(slot, chain)
            chain = self._chains.setdefault(slot, chain)
        return chain

    def _trimmed(self, slot: int, chain: Chain) -> bool:
        """Reads where a chain begins and ends now.  True, since another thread may have found that before."""
        row, ends = self._tables.topic_moment(slot)
        if row is None:  # its readers find nothing
            chain.first, chain.last = chain.end - 1, chain.end - 2
        else:
            self._take_ends(chain, self._kept(row), ends)
        return True

    def _take_ends(self, chain: Chain, kept: Kept, ends: ChainEnds | None) -> None:
        with self._renewing:
            chain.renew(ends, kept.anchor)
