"""What all tests share: how hypothesis searches, interrupts, parts, long forms, servers of PostgreSQL."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from tests.parts import has_spark, part_of, record
from tests.pauses import install
from tests.postgres.programs import NONE, programs

if TYPE_CHECKING:  # they import psycopg, which few tests need
    from tests.postgres.servers import Server, Servers

LONG: Final = "TORTURE_ROUNDS" in os.environ
EXAMPLES: Final = 400 if LONG else 40
"""Of each law that does not say how many: it takes others in each run, and `make torture` takes more."""

# No deadline: the machines are shared, and a test never judges wall time.
settings.register_profile("here", deadline=None, max_examples=EXAMPLES)
# On CI the same examples every time, so that a red run is about the change that it tests.
settings.register_profile("ci", deadline=None, max_examples=EXAMPLES, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

install()  # pauses, with TEST_PAUSES only

# A shell has what it starts in the background ignore interrupts, and what the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--part`` and ``--record``."""
    parser.addoption(
        "--part",
        metavar="K/N",
        help="the Kth of N parts of the files only; `spark/K/N`: of those with Spark's tests",
    )

    parser.addoption("--record", action="store_true", help="note how long files take, in tests/seconds.txt")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out, before they are read, the files that belong to other parts than the one asked for."""
    part: str | None = config.getoption("--part")
    if part is None or collection_path.suffix != ".py":
        return None
    *spark, number, parts = part.split("/")
    if spark and not has_spark(collection_path):
        return True
    name = collection_path.relative_to(config.rootpath).as_posix()
    return True if part_of(int(parts), spark=bool(spark)).get(name, int(number)) != int(number) else None


_took: Final = defaultdict[str, float](float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts how long files take."""
    _took[report.location[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Notes how long files have taken, for ``--record``."""
    if session.config.getoption("--record"):
        record(_took, spark=str(session.config.getoption("--part")).startswith("spark/"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Has ``make torture``, which runs what is marked so, run all laws."""
    for item in items if LONG else ():
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("torture")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips long forms, marked ``torture(long=True)``, unless ``make torture`` runs them."""
    if not LONG and any(mark.kwargs.get("long") for mark in item.iter_markers("torture")):
        pytest.skip("a long form, for make torture")


@pytest.fixture(scope="session")
def all_servers() -> Iterator[Servers]:
    """The servers of PostgreSQL of this run."""
    if programs() is None:
        pytest.skip(NONE)
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    from tests.postgres.servers import Servers

    made = Servers()
    yield made
    made.close()


@pytest.fixture
def servers(all_servers: Servers) -> Iterator[Servers]:
    """Where a test makes servers of PostgreSQL of its own, which it may break."""
    with all_servers.lent() as lent:
        yield lent


@pytest.fixture(scope="session")
def postgres(all_servers: Servers) -> Iterator[Server]:
    """The server of PostgreSQL that tests share; none of them breaks it.

    With ``POSTGRES_POOLED`` in the environment they reach it through PgBouncer.
    """
    server = all_servers.new().start()
    if "POSTGRES_POOLED" not in os.environ:
        yield server
        return
    from tests.postgres.pooler import pooled

    with pooled(server):
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """The address of a new schema, which is deleted afterwards."""
    with postgres.schema() as name:
        yield postgres.url(name)
