"""Where the tests of the store's users have their tables: in SQLite's files, or in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dataspace.version import compiled_parts
from tests.relay.store.memory import in_memory


@pytest.fixture(params=["sqlite", "memory"])
def home(request: pytest.FixtureRequest) -> Iterator[str]:
    """The home of all tables that a test opens; ``FILES`` leaves that in memory out."""
    if request.param == "sqlite":
        yield request.param
        return
    if "log" in compiled_parts():
        pytest.skip("names in machine code cannot be replaced")
    with in_memory():
        yield request.param
