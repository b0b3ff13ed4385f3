"""Where the tests of the store's users have their tables: in SQLite's files, in memory, or in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from dataspace.version import compiled_parts
from tests.relay.store.memory import in_memory

if TYPE_CHECKING:  # they import psycopg, which few tests need
    from tests.postgres.servers import Server
    from tests.relay.store.in_postgres import Stores

EXAMPLES: Final = 5
"""Examples of hypothesis in PostgreSQL, which show a class of defect; all run in the other homes."""

SETTINGS: Final = "_hypothesis_internal_use_settings"
"""Where hypothesis has the settings of a test."""


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def home(request: pytest.FixtureRequest) -> Iterator[str]:
    """The home of all tables that a test opens; ``FILES`` leaves all but SQLite out."""
    if request.param == "sqlite":
        yield request.param
        return
    if "log" in compiled_parts():
        pytest.skip("names in machine code cannot be replaced")
    if request.param == "memory":
        with in_memory():
            yield request.param
        return
    stores: Stores = request.getfixturevalue("stores")
    from tests.relay.store.in_postgres import in_postgres

    with in_postgres(stores), pytest.MonkeyPatch.context() as patched:
        examples: settings | None = getattr(request.function, SETTINGS, None)
        if examples is not None:
            patched.setattr(request.function, SETTINGS, settings(examples, max_examples=EXAMPLES))
        yield request.param


@pytest.fixture(scope="session")
def stores(postgres: Server) -> Iterator[Stores]:
    """The tables of tests in PostgreSQL."""
    from tests.relay.store.in_postgres import Stores

    with postgres.schema() as name:
        made = Stores(postgres.url(name))
        yield made
        made.close()
