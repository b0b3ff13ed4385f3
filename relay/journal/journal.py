"""A journal: the steps of durable topics, a chain for each topic, in one SQLite file.

It is apart from the log of the space because topics begin, shrink and end one by one, each with its own
budget.  The log and the journal have in common how steps or epochs are chained (``relay/log/chain``), how a
transaction is made safe (``relay/store/storage``), and the mark beside the file that shows when it holds less
than was acknowledged.  All calls block.

Always: ``write`` is on disk, whole, when it returns; a slot is not used again while rows of it are there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain as one_after_another
from pathlib import Path
from typing import Final

from dataspace.errors import Refused
from dataspace.faults import reach
from relay.journal.reader import JournalReader, verify_topics
from relay.journal.rows import FORMAT, Ended, Kept, Noted, Write, joined, opened, put_topic, renumber
from relay.log.chain import KEY_BITS, Chain, put_meta
from relay.log.compaction import fuller
from relay.log.segments import Segment, cut
from relay.store.acknowledged import AcknowledgedFile, AcknowledgedMark
from relay.store.errors import LogDamaged
from relay.store.storage import closed_on_failure

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

    def write(self, connection: sqlite3.Connection, slot: int) -> None:
        """Writes the row of the topic and deletes unneeded rows, within a transaction of the caller."""
        if self.kept is not None:
            self.chain.delete(connection, self.chain.first)
            put_topic(connection, self.kept)
        if self.ended:
            self.chain.delete(connection, self.chain.end)
            for table in ("topics", "topic_readers"):
                connection.execute(f"DELETE FROM {table} WHERE slot = ?", (slot,))


class Journal(JournalReader):
    """The journal of a data directory.  One thread at a time writes; any number of threads read meanwhile."""

    def __init__(self, directory: Path, *, accept_damage: bool = False) -> None:
        """Opens the journal, or makes one.  ``LogDamaged`` if it holds less than was acknowledged."""
        directory.mkdir(parents=True, exist_ok=True)
        self._accept_damage = accept_damage
        storage = opened(directory / self.FILE, accept_damage=accept_damage)
        with closed_on_failure(storage):
            self._mark = AcknowledgedFile(directory / self.MARK)
            with closed_on_failure(self._mark):
                super().__init__(storage, self._mark.mark, self._face)
                if shortfall := self.shortfall():
                    self._face(f"{storage.path}: {shortfall}")
                if self._faced:
                    self._settle()

    def _settle(self) -> None:
        """Seals what is left.  Any topic may lack its last steps, so each gets a new identity."""
        with self._storage.transaction() as connection:
            renumber(connection)
            connection.execute(
                f"DELETE FROM segments WHERE segment >> {KEY_BITS} NOT IN (SELECT slot FROM topics)"
            )
            put_meta(connection, format=FORMAT, steps=self.count, ends=self._newest_ends)

    # -- writing --------------------------------------------------------------------------------------

    def write(self, writes: Sequence[Write]) -> None:
        """Writes these in order, in one transaction, on disk when it returns; else ``LogFailed``."""
        changes: dict[int, _Change] = {}
        for write in writes:
            slot = write.slot
            if slot not in changes:  # the row of a topic that ends may be damaged
                ends = isinstance(write, Ended)
                changes[slot] = _Change(Chain(self._storage, b"", slot) if ends else self._chain(slot))
            change = changes[slot]
            match write:
                case Noted():
                    change.steps.append(write)
                case Kept():
                    change.kept = write
                case Ended():
                    change.kept, change.ended = None, True
        count, cuts, sums = self.count, dict[int, list[Segment]](), [self._newest_ends]
        for slot, each in changes.items():
            count += len(each.steps)
            cuts[slot] = list(cut(map(Noted.encoded, each.steps), each.chain.last + 1, each.chain.checksum))
            sums += [self._ends[slot]] if slot in self._ends else []
            sums += [] if each.ended else [cuts[slot][-1].checksum if each.steps else each.chain.checksum]
        with ExitStack() as held:
            for each in changes.values():
                if each.kept is not None:
                    each.kept = self._trimmed(held, each.chain, each.kept)
            connection = held.enter_context(self._storage.transaction())
            reach("topics-before-write")
            Chain.insert(connection, one_after_another.from_iterable(cuts.values()))
            for slot, each in changes.items():
                each.write(connection, slot)
            newest = joined(sums)
            put_meta(connection, format=FORMAT, steps=count, ends=newest)
        self.count, self._newest_ends = count, newest
        for slot, each in changes.items():
            if each.steps:
                each.chain.extended(cuts[slot][-1])
            self._chains[slot], self._ends[slot] = each.chain, each.chain.checksum
            if each.ended:
                del self._ends[slot], self._chains[slot]
        self._mark.write(AcknowledgedMark(count))
        reach("topics-after-write")

    def _trimmed(self, held: ExitStack, chain: Chain, kept: Kept) -> Kept:
        """Hides the steps that are needed no more, until they are deleted; the topic with its new anchor."""
        if chain.first > chain.last:
            return replace(kept, anchor=chain.anchor)
        begun = [each.begun for each, _ in self.epochs(kept.slot, kept.oldest, kept.oldest)]
        ordinal = min(chain.beyond(min([*begun, kept.needed, kept.position + 1]) - 1), chain.last)
        if ordinal > chain.first:
            held.enter_context(chain.dropping(ordinal))
        return replace(kept, anchor=chain.anchor)

    def close(self) -> None:
        """Closes the file."""
        self._mark.write(AcknowledgedMark(self.count), sync=True)
        self._storage.close()
        self._mark.close()

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
        with self._storage.transaction() as connection:
            connection.execute(
                "INSERT INTO topic_readers VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET number = max(number, excluded.number), seen = excluded.seen",
                (slot, reader, number, now),
            )

    def acknowledged(self, slot: int) -> list[tuple[str, int, int]]:
        """Returns the named readers: name, last epoch read, and when it acknowledged last."""
        return self._storage.rows("SELECT name, number, seen FROM topic_readers WHERE slot = ?", slot)


def compact_topics(directory: Path) -> tuple[int, int] | None:
    """Rewrites the journal in a directory, if there is one, without holes and with full segments.

    Returns the bytes before and after; O(journal).  No other process may have the journal open.  A crash
    leaves the old file or the new one.  Raises ``LogDamaged`` if it is not whole, ``LogFailed`` if the disk
    refuses; then nothing has changed.
    """
    path, ends = directory / Journal.FILE, list[bytes]()
    if not path.exists():
        return None
    with closing(Journal(directory)) as journal:
        found = verify_topics(directory)
        for damage in found.damages if found else ():
            raise LogDamaged(damage)
        before = journal.size()
        with journal._storage.transaction() as connection:
            for slot in journal.slots():
                kept, chain = journal.topic(slot), journal._chain(slot)
                ends.append(chain.checksum)
                for _, segment in fuller(chain, chain.first):
                    chain.insert(connection, [segment])
                    ends[-1] = segment.checksum
                chain.delete(connection, chain.last + 1)
                put_topic(connection, replace(kept, anchor=chain.checksum))
            put_meta(connection, format=FORMAT, steps=journal.count, ends=joined(ends))
        journal._storage.vacuum()
    return before, path.stat().st_size
