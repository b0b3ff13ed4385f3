"""A journal: the steps and completed epochs of durable topics, in one SQLite file.

It is apart from the log of the space because topics begin, shrink and end one by one, each with its own
budget.  It shares with the log how a transaction is made safe (``relay/store/storage``), and the mark beside
the file that shows when it holds less than was acknowledged.  All calls block.

Always: ``write`` is on disk, whole, when it returns; a slot is not used again while rows of it are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dataspace.errors import Refused
from dataspace.faults import reach
from relay.journal.reader import JournalReader
from relay.journal.rows import (
    FORMAT,
    SCHEMA,
    Begun,
    Ended,
    Kept,
    Noted,
    Write,
    delete_topic,
    insert_noted,
    insert_topic,
    keep,
)
from relay.store.acknowledged import AcknowledgedFile, AcknowledgedMark
from relay.store.storage import Storage, closed_on_failure

MAX_READERS: Final = 1024
"""Named readers of one topic."""

READER_BYTES: Final = 1024
"""Bytes of the name of a reader."""


class Journal(JournalReader):
    """The journal of a data directory.  One thread at a time writes; any number of threads read meanwhile."""

    def __init__(self, directory: Path, *, accept_damage: bool = False) -> None:
        """Opens the journal, or makes one.  ``LogDamaged`` if it holds less than was acknowledged."""
        directory.mkdir(parents=True, exist_ok=True)
        storage = Storage(directory / self.FILE, SCHEMA)
        with closed_on_failure(storage):
            self._mark = AcknowledgedFile(directory / self.MARK)
            with closed_on_failure(self._mark):
                super().__init__(storage, self._mark.mark)
                self._check_mark(accept_damage)

    def _check_mark(self, accept_damage: bool) -> None:
        """Compares the journal with its acknowledged mark."""
        shortfall = self.shortfall()
        if shortfall and not accept_damage:
            raise self._damage(f"{shortfall}; accept the damage to go on without what is missing")

    # -- writing --------------------------------------------------------------------------------------

    def write(self, writes: Sequence[Write]) -> None:
        """Writes these in order, in one transaction, on disk when it returns; else ``LogFailed``."""
        count = self.count + sum(1 for each in writes if isinstance(each, Noted))
        with self._storage.transaction() as connection:
            reach("topics-before-write")
            insert_noted(connection, [each for each in writes if isinstance(each, Noted)])
            for each in writes:
                match each:
                    case Begun():
                        insert_topic(connection, each)
                    case Kept():
                        keep(connection, each)
                    case Ended(slot):
                        delete_topic(connection, slot)
                    case Noted():
                        pass
            known = (("format", FORMAT), ("steps", count))
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", known)
        self.count = count
        self._mark.write(AcknowledgedMark(count))
        reach("topics-after-write")

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
