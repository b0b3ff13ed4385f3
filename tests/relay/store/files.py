"""The database behind what keeps its rules apart from its tables, for tests that alter or break it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from relay.store.reader import StoreReader, Tables
from relay.store.sqlite.staged import SqliteStaged
from relay.store.sqlite.storage import Storage
from relay.store.sqlite.tables import SqliteChains
from relay.store.staging import Staging
from tests.relay.store.memory import MemoryChains


def storage_of(user: StoreReader[Tables] | Staging) -> Storage:
    """Returns the file of a log, a journal or a staging area; skips a test whose tables are in none."""
    tables: object = user._tables
    if not isinstance(tables, SqliteChains | SqliteStaged):
        pytest.skip("it is about a file")
    return tables.storage


def asked(user: StoreReader[Tables], statement: str) -> list[tuple[Any, ...]]:
    """Runs a statement beside a log or a journal, and returns its rows; skips a test of tables in memory."""
    tables: Any = user._tables
    if isinstance(tables, SqliteChains):
        with closing(sqlite3.connect(tables.storage.path, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()
    if isinstance(tables, MemoryChains):
        pytest.skip("it is about what SQL can alter")
    from tests.relay.store.in_postgres import asked_in_postgres

    return asked_in_postgres(tables, statement)
