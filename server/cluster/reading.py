"""The logs of a store, read beside the daemons that write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dataspace.errors import UsageError
from relay.journal.reader import JournalReader
from relay.log.reader import LogReader
from relay.store.address import StoreAddress
from relay.store.postgres.database import Database
from relay.store.postgres.tables import PostgresLog
from relay.store.postgres.topics import PostgresTopics
from server.cluster.store import TOPICS


@contextmanager
def reading(address: StoreAddress, space: str) -> Iterator[tuple[LogReader, Callable[[], JournalReader]]]:
    """Lends the log of a space of a store, and what opens its topics; changes nothing.

    Raises ``UsageError`` for a space that is not there, and ``LogFailed`` if the store cannot be read.
    """
    database = Database(address)
    try:
        database.check()
        spaces = dict(database.rows("SELECT name, space FROM {s}.spaces", {}))
        if space not in spaces:
            names = ", ".join(sorted(filter(None, spaces)))
            raise UsageError(f"there is no log of space {space!r} in {address}, but of {names or 'none'}")
        yield (
            LogReader.over(PostgresLog(database, spaces[space])),
            lambda: JournalReader(PostgresTopics(database, spaces[TOPICS])),
        )
    finally:
        database.close()
