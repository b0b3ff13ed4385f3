"""Stores in PostgreSQL as commands use them, beside their daemons or without.

Each function takes the address of a store, and loads psycopg, which other commands do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.store.address import StoreAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from relay.backup.backup import BackupSource
    from relay.backup.copy_home import CopyEnd
    from relay.journal.reader import JournalReader
    from relay.log.compaction import Compacted
    from relay.log.reader import LogReader
    from relay.log.retention import Retention
    from relay.store.ports import TopicTables


def spaces_in(store: str) -> list[str]:
    """Returns the spaces of a store; raises ``LogFailed`` if it cannot be read."""
    from server.cluster.database.reading import seen

    return [each.space for each in seen(StoreAddress.parse(store)).spaces]


def log_in(store: str, space: str) -> AbstractContextManager[tuple[LogReader, Callable[[], JournalReader]]]:
    """Lends the log of a space, and what opens the topics; changes nothing, and raises as ``reading``."""
    from server.cluster.database.reading import reading

    return reading(StoreAddress.parse(store), space)


def topics_in(store: str) -> AbstractContextManager[TopicTables | None]:
    """Lends the tables of the durable topics, None if there are none; changes nothing."""
    from server.cluster.database.reading import reading_topics

    return reading_topics(StoreAddress.parse(store))


def compact_in(store: str, space: str, retention: Retention) -> Compacted:
    """Rewrites the log of a space that no daemon leads, without the holes; raises as ``compact_store``."""
    from server.cluster.database.compacting import compact_store

    return compact_store(StoreAddress.parse(store), space, retention)


def backup_of(store: str) -> AbstractContextManager[BackupSource]:
    """Lends a store to be backed up while its daemons write it; ``UsageError`` where there is no log."""
    from server.cluster.database.copying import store_backup

    return store_backup(StoreAddress.parse(store))


def copy_from(store: str) -> AbstractContextManager[CopyEnd]:
    """Lends a store to be copied, as it is now."""
    from server.cluster.database.copying import store_source

    return store_source(StoreAddress.parse(store))


def copy_to(store: str, spaces: Sequence[str]) -> AbstractContextManager[CopyEnd]:
    """Lends a store to write these spaces, which no daemon leads meanwhile; ``UsageError`` if one does."""
    from server.cluster.database.copying import store_target

    return store_target(StoreAddress.parse(store), spaces)
