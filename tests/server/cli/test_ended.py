"""A command whose session an administrator ends says why, once, and fails."""

from __future__ import annotations

import json
import signal

import pytest

from tests.server.cli.test_command import Running, daemon, run, space
from tests.server.processes import DaemonProcess

__all__ = ["daemon", "space"]

pytestmark = pytest.mark.slow

ENDED = "dataspace: ended: an administrator has ended this session\n"


def number_of(url: str, name: str) -> str:
    """The number of the one session with this name, as the command shows it."""
    listed = map(json.loads, run(url, "sessions", "--json").stdout.splitlines())
    (number,) = [each["session"] for each in listed if each["name"] == name]
    return str(number)


def test_one_that_holds_facts_and_one_that_observes(daemon: DaemonProcess) -> None:
    url = daemon.url
    with (
        Running(url, "assert", "ended(1)") as holding,
        Running(url, "observe", "ended($n)") as seeing,
        Running(url, "log", "ended($n)", "--follow") as reading,
    ):
        assert holding.error_line().startswith("asserted 1 fact in epoch ")
        assert "n=1" in seeing.line()
        assert "n=1" in reading.line()
        for command, name in ((reading, "log"), (seeing, "observe"), (holding, "assert")):
            number = number_of(url, f"dataspace {name}")
            assert run(url, "sessions", "end", number).stderr.startswith(f"ended session {number}: ")
            _, said = command.process.communicate(timeout=30)
            assert (command.process.returncode, said) == (1, ENDED), name


def test_what_becomes_of_a_connection_otherwise_is_said(daemon: DaemonProcess) -> None:
    with Running(daemon.url, "assert", "kept(1)") as holding:
        assert holding.error_line().startswith("asserted 1 fact in epoch ")
        daemon.kill()
        assert holding.error_line().startswith("dataspace: connection lost: ")
        daemon.start()
        assert " as a new session, 1 fact was asserted anew" in holding.error_line()
        assert holding.end(signal.SIGINT) == (0, "", "")
