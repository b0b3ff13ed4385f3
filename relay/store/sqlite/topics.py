"""The tables of a journal in SQLite: the chains of topics, a row for each topic, and its named readers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from relay.store.ports import KEY_BITS, ChainEnds, Names, Row, TopicHeads, TopicsMoment
from relay.store.sqlite.tables import (
    CHAIN_SCHEMA,
    HEADER_SCHEMA,
    SqliteChains,
    delete_segments,
    insert_segments,
    moment_of,
    names_of,
    put_names,
)

TOPIC_TABLES: Final = f"""
{HEADER_SCHEMA}
{CHAIN_SCHEMA}
CREATE TABLE IF NOT EXISTS topics (slot INTEGER PRIMARY KEY, seal BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS topic_readers (
    slot INTEGER NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (slot, name)
) WITHOUT ROWID;
"""

_ENDS: Final = f"""
SELECT slot, (
    SELECT checksum FROM segments WHERE segment > slot << {KEY_BITS} AND segment < (slot + 1) << {KEY_BITS}
    ORDER BY segment DESC LIMIT 1
) FROM topics ORDER BY slot
"""
_HEADS: Final = f"""
SELECT slot, seal, segment, last FROM topics LEFT JOIN segments ON segment = (
    SELECT segment FROM segments WHERE segment > slot << {KEY_BITS} AND segment < (slot + 1) << {KEY_BITS}
    ORDER BY segment DESC LIMIT 1
) ORDER BY slot
"""
_TOPICS: Final = "SELECT slot, seal, body FROM topics"


def put_topics(connection: sqlite3.Connection, topics: Sequence[Row]) -> None:
    """Writes rows of topics, within a transaction of the caller."""
    connection.executemany("INSERT OR REPLACE INTO topics VALUES (?, ?, ?)", topics)


def delete_topic(connection: sqlite3.Connection, slot: int) -> None:
    """Deletes the row of a topic and its readers, within a transaction of the caller."""
    for table in ("topics", "topic_readers"):
        connection.execute(f"DELETE FROM {table} WHERE slot = ?", (slot,))


class SqliteTopics(SqliteChains):
    """The tables of a journal."""

    def moment(self) -> TopicsMoment:
        with moment_of(self.storage) as connection:
            return TopicsMoment(names_of(connection), connection.execute(_ENDS).fetchall())

    def version(self) -> int:
        return self.storage.version()

    def heads(self) -> TopicHeads:
        with moment_of(self.storage) as connection:
            return TopicHeads(names_of(connection), connection.execute(_HEADS).fetchall())

    def topic_moment(self, slot: int) -> tuple[Row | None, ChainEnds | None]:
        with moment_of(self.storage) as connection:
            row = connection.execute(f"{_TOPICS} WHERE slot = ?", (slot,)).fetchone()
            return row, self._ends(connection, slot)

    def totals(self) -> tuple[int, int]:
        question = "SELECT ifnull(sum(entries), 0), ifnull(sum(changes), 0) FROM segments"
        entries, changes = self.storage.rows(question)[0]
        return entries, changes

    def topic(self, slot: int) -> Row | None:
        rows: list[Row] = self.storage.rows(f"{_TOPICS} WHERE slot = ?", slot)
        return rows[0] if rows else None

    def topics(self) -> list[Row]:
        return self.storage.rows(_TOPICS)

    def write(
        self,
        segments: Sequence[Row],
        drops: Sequence[int],
        topics: Sequence[Row],
        ended: Sequence[int],
        names: Names,
    ) -> None:
        with self.storage.transaction() as connection:
            insert_segments(connection, segments)
            for ordinal in drops:
                delete_segments(connection, ordinal)
            put_topics(connection, topics)
            for slot in ended:
                delete_segments(connection, (slot + 1) << KEY_BITS)
                delete_topic(connection, slot)
            put_names(connection, names)

    def write_topics(self, topics: Sequence[Row], names: Names) -> None:
        with self.storage.transaction() as connection:
            put_topics(connection, topics)
            of_none = f"segment >> {KEY_BITS} NOT IN (SELECT slot FROM topics)"
            connection.execute(f"DELETE FROM segments WHERE {of_none}")
            put_names(connection, names)

    def readers(self, slot: int) -> list[Row]:
        return self.storage.rows("SELECT name, number, seen FROM topic_readers WHERE slot = ?", slot)

    def put_reader(self, slot: int, name: str, number: int, seen: int) -> None:
        with self.storage.transaction() as connection:
            connection.execute(
                "INSERT INTO topic_readers VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET number = max(number, excluded.number), seen = excluded.seen",
                (slot, name, number, seen),
            )
