"""Logs, journals and staging areas of a test in PostgreSQL, each under its path, in place of SQLite's files.

All tests have their tables in one schema, so that each shares them with the spaces of all others.  A test
that opens tables to write them takes their space over under a new term, as a daemon does after a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final
from unittest.mock import patch

from psycopg import Connection

from relay.journal import journal as journals, reader as journal_readers
from relay.log import log as logs, reader as log_readers
from relay.store.address import StoreAddress
from relay.store.errors import LogFailed
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import FencedWriter
from relay.store.postgres.members import Membership, Profile, SpaceTerms
from relay.store.postgres.staged import PostgresStaged
from relay.store.postgres.tables import PostgresChains, PostgresLog
from relay.store.postgres.topics import PostgresTopics
from tests.postgres.servers import patient
from tests.relay.store.memory import COPIES

LEASE: Final = 600.0

TABLES: Final = (
    "segments",
    "meta",
    "starts",
    "snapshots",
    "chunks",
    "readers",
    "topics",
    "topic_readers",
    "staged",
)
"""The tables that have rows of a space, whose number is in the first column."""


class Stores:
    """The spaces of all tests, and the space of each path of the present one."""

    all: ClassVar[Stores | None] = None
    """The one of the present test run."""

    def __init__(self, url: str) -> None:
        self._database = Database(StoreAddress.parse(patient(url)))
        self._database.prepare()
        self._tests = 0
        self._spaces: dict[Path, int] = {}
        self._writers: list[FencedWriter] = []
        Stores.all = self

    def _led(self, path: Path) -> tuple[int, FencedWriter]:
        """Returns the space of a path, which is made if there is none, under a new term."""
        member = Membership(self._database, Profile("test"), LEASE)
        member.join()
        terms = SpaceTerms(self._database)
        space = self._spaces[path] = terms.space(f"{path} of test {self._tests}")
        fence = terms.take_space(space, terms.standing(space), member.nonce)
        assert fence is not None
        member.close()
        terms.close()
        writer = FencedWriter(self._database, fence)
        self._writers.append(writer)
        return space, writer

    def opened(self, kind: type[PostgresChains], path: Path) -> PostgresChains:
        """Opens tables to write them."""
        return kind(self._database, *self._led(path))

    def read(self, kind: type[PostgresChains], path: Path) -> PostgresChains:
        """Opens tables to read them; ``LogFailed`` if there are none."""
        if path not in self._spaces:
            raise LogFailed(f"cannot open {path}: there is nothing")
        return kind(self._database, self._spaces[path])

    def staged(self, directory: Path) -> PostgresStaged:
        """Opens the table of staged batches of a directory."""
        return PostgresStaged(self._database, *self._led(directory / "staged"))

    def copy(self, directory: Path, to: Path) -> None:
        """Has the tables of a directory, and of those in it, in another one too, as they are now."""
        for path, space in list(self._spaces.items()):
            if path.is_relative_to(directory):
                copied, writer = self._led(to / path.relative_to(directory))
                writer.close()
                with self._database.connect() as connection, connection.transaction():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    for table in TABLES:
                        name = self._database.statement(f"{{s}}.{table}")
                        columns = _columns(connection, name)
                        rows = f"SELECT {copied}, {columns} FROM {name} WHERE space = {space}"
                        connection.execute(f"INSERT INTO {name} {rows}".encode())

    def take_back(self) -> None:
        """Ends the writers of a test."""
        for each in self._writers:
            each.abandon()
        self._writers.clear()
        self._spaces.clear()
        self._tests += 1

    def close(self) -> None:
        """Closes the connections."""
        self._database.close()


def _columns(connection: Connection[Any], table: str) -> str:
    """Returns the columns of a table after the first."""
    description = connection.execute(f"SELECT * FROM {table} LIMIT 0".encode()).description
    assert description is not None
    return ", ".join([each.name for each in description[1:]])


def asked_in_postgres(tables: Any, statement: str) -> list[tuple[Any, ...]]:
    """Runs a statement on the rows of one space, and returns rows."""
    database = tables._database
    with database.connect() as connection:
        for table in TABLES:
            view = f"CREATE TEMP VIEW {table} AS SELECT * FROM {{s}}.{table} WHERE space = {tables._space}"
            connection.execute(database.statement(view))
        cursor = connection.execute(re.sub(r"x('\w*')", r"decode(\1, 'hex')", statement))
        return cursor.fetchall() if cursor.description else []


@contextmanager
def in_postgres(stores: Stores) -> Iterator[None]:
    """Has logs and journals opened in a database."""

    def opener(kind: type[PostgresChains]) -> type:
        class Opened:
            @staticmethod
            def open(path: Path, _mark: Path, _schema: object) -> PostgresChains:
                return stores.opened(kind, path)

            @staticmethod
            def read(path: Path, _mark: Path) -> PostgresChains:
                return stores.read(kind, path)

        return Opened

    with (
        patch.object(logs, "SqliteLog", opener(PostgresLog)),
        patch.object(log_readers, "SqliteLog", opener(PostgresLog)),
        patch.object(journals, "SqliteTopics", opener(PostgresTopics)),
        patch.object(journals, "upgrade", lambda *_, **__: None),
        patch.object(journal_readers, "SqliteTopics", opener(PostgresTopics)),
    ):
        COPIES.append(stores.copy)
        try:
            yield
        finally:
            COPIES.remove(stores.copy)
            stores.take_back()
