"""The table of staged batches in SQLite, in a file of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from relay.store.sqlite.storage import Schema, Storage

STAGED: Final = "staged.sqlite"
"""Name of the file in a data directory."""

SCHEMA: Final = Schema(
    """
CREATE TABLE IF NOT EXISTS staged (
    key BLOB NOT NULL, part INTEGER NOT NULL, since REAL NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (key, part)
);
"""
)

_APPEND: Final = """
INSERT INTO staged VALUES (
    :key, (SELECT ifnull(max(part), 0) + 1 FROM staged WHERE key = :key), :since, :body
)
"""
_PARTS: Final = "SELECT key, body FROM staged WHERE key = ? OR (key >= ? AND key < ?) ORDER BY key, part"
_PART: Final = "SELECT key, since, body FROM staged WHERE key = ? AND part = ?"
_TOTAL: Final = "SELECT count(*), ifnull(sum(length(key) + length(body)), 0) FROM staged"


class SqliteStaged:
    """The staged batches of a data directory."""

    def __init__(self, storage: Storage) -> None:
        self.storage: Final = storage

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Opens or makes the table; ``LogFailed`` if the disk refuses."""
        directory.mkdir(parents=True, exist_ok=True)
        return cls(Storage(directory / STAGED, SCHEMA))

    def append(self, key: bytes, since: float, body: bytes) -> None:
        with self.storage.transaction() as connection:
            connection.execute(_APPEND, {"key": key, "since": since, "body": body})

    def parts(self, key: bytes, low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        return self.storage.rows(_PARTS, key, low, high)

    def keys(self, low: bytes, high: bytes) -> list[bytes]:
        question = "SELECT DISTINCT key FROM staged WHERE key >= ? AND key < ?"
        return [key for (key,) in self.storage.rows(question, low, high)]

    def rows(self) -> Iterator[tuple[bytes, float, bytes]]:
        for key, part in self.storage.rows("SELECT key, part FROM staged ORDER BY key, part"):
            yield from self.storage.rows(_PART, key, part)

    def delete(self, keys: Sequence[bytes]) -> tuple[int, int]:
        count = size = 0
        with self.storage.transaction() as connection:
            for key in keys:
                parts, each = connection.execute(f"{_TOTAL} WHERE key = ?", (key,)).fetchone()
                count, size = count + parts, size + each
                connection.execute("DELETE FROM staged WHERE key = ?", (key,))
        return count, size

    def purge(self, before: float) -> tuple[int, int]:
        with self.storage.transaction() as connection:
            connection.execute("DELETE FROM staged WHERE since < ?", (before,))
            count, size = connection.execute(_TOTAL).fetchone()
        return count, size

    def counts(self) -> tuple[int, int]:
        keys, parts = self.storage.rows("SELECT count(DISTINCT key), count(*) FROM staged")[0]
        return keys, parts

    def close(self) -> None:
        self.storage.close()
