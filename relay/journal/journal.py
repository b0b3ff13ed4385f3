"""A journal: the steps of durable topics, a chain for each topic.

It is apart from the log of the space because topics begin, shrink and end one by one, each with its own
budget.  The log and the journal have in common how steps or epochs are chained (``relay/log/chain``), how a
transaction is made safe (``relay/store``), and the mark that shows when it holds less than was acknowledged.
All calls block.

Always: ``write`` is on disk, whole, when it returns; a slot is not used again while rows of it are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from dataspace.errors import Refused
from dataspace.faults import reach
from relay.journal.reader import JournalReader, verify_topics
from relay.journal.rows import FORMAT, SCHEMA, Ended, Kept, Noted, Write, joined, renumbered, row_of
from relay.journal.upgrading import upgrade
from relay.log.chain import Chain, rows_of_segments
from relay.log.compaction import SegmentJoiner
from relay.log.segments import Segment, cut
from relay.store.errors import LogDamaged, closed_on_failure
from relay.store.ports import AcknowledgedMark, Row, TopicTables
from relay.store.sqlite.tables import delete_segments, insert_segments, put_header
from relay.store.sqlite.topics import SqliteTopics, put_topics

MAX_READERS: Final = 1024
"""Named readers of one topic."""

READER_BYTES: Final = 1024
"""Bytes of the name of a reader."""


class _Change:
    """What a group of writes changes in one topic."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.steps: list[Noted] = []
        self.kept: Kept | None = None
        self.ended = False


class Journal(JournalReader):
    """The journal of a data directory.  One thread at a time writes; any number of threads read meanwhile."""

    def __init__(self, tables: TopicTables, *, accept_damage: bool = False) -> None:
        """Raises as ``open``, and leaves the tables open then."""
        self._accept_damage = accept_damage
        super().__init__(tables, self._face)
        self.check(accept_damage=accept_damage)
        if self._faced:
            self._settle()

    @classmethod
    def open(cls, directory: Path, *, accept_damage: bool = False) -> Self:
        """Opens the journal in a directory, or makes one.

        Raises ``LogDamaged`` if it holds less than was acknowledged; with ``accept_damage`` it goes on with
        the rest.
        """
        path = directory / cls.FILE
        upgrade(path, accept_damage=accept_damage)
        tables = SqliteTopics.open(path, directory / cls.MARK, SCHEMA)
        with closed_on_failure(tables):
            return cls(tables, accept_damage=accept_damage)

    def _settle(self) -> None:
        """Seals what is left.  Any topic may lack its last steps, so each gets a new identity."""
        with self._header.changing(self._counted(self.count, self._newest_ends)) as names:
            self._tables.write_topics(renumbered(self._tables.topics()), names)

    def _counted(self, steps: int, ends: bytes) -> dict[str, object]:
        """Returns the header after so many steps, with these newest checksums."""
        return {"format": FORMAT, "steps": steps, "ends": ends}

    # -- writing --------------------------------------------------------------------------------------

    def write(self, writes: Sequence[Write]) -> None:
        """Writes these in order, in one transaction, on disk when it returns; else ``LogFailed``."""
        changes: dict[int, _Change] = {}
        for write in writes:
            slot = write.slot
            if slot not in changes:  # the row of a topic that ends may be damaged
                ends = isinstance(write, Ended)
                changes[slot] = _Change(Chain(self._tables, b"", slot) if ends else self._chain(slot))
            change = changes[slot]
            match write:
                case Noted():
                    change.steps.append(write)
                case Kept():
                    change.kept = write
                case Ended():
                    change.kept, change.ended = None, True
        count, cuts, sums = self.count, dict[int, list[Segment]](), [self._newest_ends]
        for slot, part in changes.items():
            count += len(part.steps)
            cuts[slot] = list(cut(map(Noted.encoded, part.steps), part.chain.last + 1, part.chain.checksum))
            sums += [self._ends[slot]] if slot in self._ends else []
            sums += [] if part.ended else [cuts[slot][-1].checksum if part.steps else part.chain.checksum]
        rows = [row for each in cuts.values() for row in rows_of_segments(each)]
        with ExitStack() as held:
            drops, topics = list[int](), list[Row]()
            for part in changes.values():
                if part.kept is not None:
                    topics.append(row_of(self._trimmed(held, part.chain, part.kept)))
                    drops.append(part.chain.first)
            newest = joined(sums)
            names = held.enter_context(self._header.changing(self._counted(count, newest)))
            reach("topics-before-write")
            ended = [slot for slot, each in changes.items() if each.ended]
            self._tables.write(rows, drops, topics, ended, names)
        self.count, self._newest_ends = count, newest
        for slot, part in changes.items():
            if part.steps:
                part.chain.extended(cuts[slot][-1])
            self._chains[slot], self._ends[slot] = part.chain, part.chain.checksum
            if part.ended:
                del self._ends[slot], self._chains[slot]
        self._tables.write_mark(AcknowledgedMark(count))
        reach("topics-after-write")

    def _trimmed(self, held: ExitStack, chain: Chain, kept: Kept) -> Kept:
        """Hides the steps that are needed no more, until they are deleted; the topic with its new anchor."""
        if chain.first > chain.last:
            return replace(kept, anchor=chain.anchor)
        begun = [each.begun for each, _ in self.epochs(kept.slot, kept.oldest, kept.oldest)]
        needed = min([*begun, kept.needed, kept.position + 1])
        if kept.upto is not None:
            needed = min(needed, kept.upto + 1)
        ordinal = min(chain.beyond(needed - 1), chain.last)
        if ordinal > chain.first:
            held.enter_context(chain.dropping(ordinal))
        return replace(kept, anchor=chain.anchor)

    def close(self) -> None:
        """Closes the tables."""
        self._tables.write_mark(AcknowledgedMark(self.count), sync=True)
        self._tables.close()

    # -- readers --------------------------------------------------------------------------------------

    def acknowledge(self, slot: int, reader: str, number: int, now: int) -> None:
        """Stores that a named reader has read all epochs to this one; the number never goes back.

        ``Refused("limit")`` for one more named reader than a topic may have.
        """
        known = [name for name, _, _ in self.acknowledged(slot)]
        if reader not in known and len(known) >= MAX_READERS:
            raise Refused("limit", f"{len(known)} named readers of one topic, limit {MAX_READERS}")
        if reader not in known and (size := len(reader.encode(errors="surrogatepass"))) > READER_BYTES:
            raise Refused(
                "limit", f"a reader's name of {size} bytes, limit {READER_BYTES}: choose a shorter one"
            )
        self._tables.put_reader(slot, reader, number, now)

    def acknowledged(self, slot: int) -> list[tuple[str, int, int]]:
        """Returns the named readers: name, last epoch read, and when it acknowledged last."""
        return self._tables.readers(slot)


def compact_topics(directory: Path) -> tuple[int, int] | None:
    """Rewrites the journal in a directory, if there is one, without holes and with full segments.

    Returns the bytes before and after; O(journal).  No other process may have the journal open.  A crash
    leaves the old file or the new one.  Raises ``LogDamaged`` if it is not whole, ``LogFailed`` if the disk
    refuses; then nothing has changed.
    """
    path, ends = directory / Journal.FILE, list[bytes]()
    if not path.exists():
        return None
    upgrade(path)
    tables = SqliteTopics.open(path, directory / Journal.MARK, SCHEMA)
    with closed_on_failure(tables):
        journal = Journal(tables)
    with closing(journal):
        found = verify_topics(directory)
        for damage in found.damages if found else ():
            raise LogDamaged(damage)
        before = journal.size()
        with tables.storage.transaction() as connection:
            for slot in journal.slots():
                kept, chain = journal.topic(slot), journal._chain(slot)
                ends.append(chain.checksum)
                for segment in SegmentJoiner(chain, 0, 0).segments(chain.first):
                    insert_segments(connection, rows_of_segments([segment]))
                    ends[-1] = segment.checksum
                delete_segments(connection, chain.last + 1)
                put_topics(connection, [row_of(replace(kept, anchor=chain.checksum))])
            put_header(connection, format=FORMAT, steps=journal.count, ends=joined(ends))
        tables.storage.vacuum()
    return before, path.stat().st_size
