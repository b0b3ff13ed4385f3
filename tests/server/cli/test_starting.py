"""A short command loads what it needs and no more: no event loop, no database, no TLS, no other command.

Python lists each module that it loads; the list is the same on a busy machine, where times are not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from server.cli.parser import parser
from server.cli.table import ROWS
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

HEAVY = {"asyncio", "attr", "logging", "pathlib", "rich", "sqlite3", "ssl", "trio"}
LOADED = re.compile(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    yield process
    assert process.stop() == 0


def loaded(url: str, *words: str) -> set[str]:
    """The modules that a command loads, of which it must make use: it succeeds."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dataspace", *words],
        env=os.environ | {"DATASPACE_URL": url, "PYTHONPROFILEIMPORTTIME": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return set(LOADED.findall(done.stderr))


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["observe", "--help"],
        ["get", "f($n)"],
        ["status"],
        ["index"],
        ["actors"],
        ["owners", "f($n)"],
        ["groups"],
        ["rule", "list"],
        ["rule", "why", "f(1)"],
        ["send", "f(1)"],
        ["assert", "--durable", "me", "f(1)"],
        ["retract", "--durable", "me", "f(1)"],
        ["put", "--durable", "me", "f(1, 2)"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_short_command_loads_no_event_loop_and_no_database(daemon: DaemonProcess, words: list[str]) -> None:
    modules = loaded(daemon.url, *words)
    assert "argparse" in modules, "the list is one of what is loaded"
    assert not modules & HEAVY
    assert not {name for name in modules if name.endswith(("cli.lasting", "daemon.command", "cli.shell"))}


def test_one_that_lasts_is_seen_to_load_an_event_loop(daemon: DaemonProcess) -> None:
    assert {"trio", "logging"} <= loaded(daemon.url, "assert", "f(1)", "--for", "1ms")


@pytest.mark.parametrize("name", [row.name for row in ROWS if not row.verb])
def test_the_parser_of_one_command_has_the_help_that_it_has_among_all(name: str) -> None:
    alone, among = (
        next(each.choices[name] for each in top._actions if each.choices)  # type: ignore[index]
        for top in (parser(name), parser())
    )
    assert alone.format_help() == among.format_help()
