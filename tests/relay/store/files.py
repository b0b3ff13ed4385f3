"""The SQLite file behind what keeps its rules apart from its tables, for tests that alter or break it."""

from __future__ import annotations

from typing import cast

import pytest

from relay.store.reader import StoreReader, Tables
from relay.store.sqlite.staged import SqliteStaged
from relay.store.sqlite.storage import Storage
from relay.store.sqlite.tables import SqliteChains
from relay.store.staging import Staging
from tests.relay.store.memory import MemoryChains


def storage_of(user: StoreReader[Tables] | Staging) -> Storage:
    """Returns the file of a log, a journal or a staging area; skips a test whose tables are in memory."""
    if isinstance(user._tables, MemoryChains):
        pytest.skip("it is about a file")
    return cast("SqliteChains | SqliteStaged", user._tables).storage
