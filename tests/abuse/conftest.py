"""The report of the attacks, at the end of a run."""

from __future__ import annotations

import pytest

from tests.abuse.sizes import HEAD, ROWS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what the innocent had to bear in each attack."""
    if ROWS:
        terminalreporter.section("what one client's attack costs another")
        for row in (HEAD, *ROWS):
            terminalreporter.write_line(row)
