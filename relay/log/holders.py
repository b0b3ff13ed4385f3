"""Named readers: who still needs which epochs?

A reader that comes back, such as a Spark query, gives itself a name and says from time to time up to which
epoch it is done.  Retention keeps what is later than that for it.  It is apart from retention because names
are kept whether or not anything is ever trimmed.

Always: what was acknowledged is on disk, and never goes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dataspace.errors import Refused
from relay.store.storage import Storage

READERS: Final = 1024
"""Names that are kept."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS readers (
    name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, seen INTEGER NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """A name, the epoch up to which it is done, and when it said so last, in microseconds."""

    name: str
    epoch: int
    seen: int


class Readers:
    """The named readers of one log.  One thread at a time changes them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        rows = storage.rows("SELECT name, epoch, seen FROM readers")
        self._known = {name: Reader(name, epoch, seen) for name, epoch, seen in rows}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Reader]:
        return iter(list(self._known.values()))

    def get(self, name: str) -> Reader | None:
        """The reader of this name, or None."""
        return self._known.get(name)

    def acknowledge(self, name: str, epoch: int, now: int) -> None:
        """Notes that a reader is done with everything up to an epoch; one small write.

        An epoch lower than before is taken for a sign of life only.  Raises ``Refused("limit")`` for one
        name too many.
        """
        before = self._known.get(name)
        if before is None and len(self._known) >= READERS:
            raise Refused("limit", f"{len(self._known)} named readers, limit {READERS}: forget one")
        reader = Reader(name, max(epoch, before.epoch if before else 0), now)
        with self._storage.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO readers VALUES (?, ?, ?)", (name, reader.epoch, reader.seen)
            )
        self._known[name] = reader

    def forget(self, name: str) -> bool:
        """Forgets a reader; whether there was one."""
        with self._storage.transaction() as connection:
            connection.execute("DELETE FROM readers WHERE name = ?", (name,))
        return self._known.pop(name, None) is not None
