"""The report of the attacks at the end of a run, and the daemon on which tenants meet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.abuse.sizes import HEAD, ROWS
from tests.abuse.stage import Stage
from tests.abuse.tenants import ADMIN, ATTACKERS, INNOCENTS, configuration
from tests.abuse.visits import Visits


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what the innocent had to bear in each attack."""
    if ROWS:
        terminalreporter.section("what one client's attack costs another")
        for row in (HEAD, *ROWS):
            terminalreporter.write_line(row)


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visits]:
    """A daemon for all tests of a file, each of which has owners and keys of its own."""
    settings = configuration((*INNOCENTS.values(), *ATTACKERS.values()))
    with Stage(tmp_path_factory.mktemp("visits"), settings=settings, token=INNOCENTS[ADMIN].token) as stage:
        yield Visits(stage)
