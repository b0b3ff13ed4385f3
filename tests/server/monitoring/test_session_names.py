"""A session has one name, wherever it is shown; ``tests/server/cli/test_chained.py`` has the forms of it.

Spaces count their terms by themselves: one that was made later has a lower term than its daemon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from dataspace import ProtocolError, Record, connect_blocking
from server.cli.main import main
from tests.server.processes import DaemonProcess

STARTS: Final = (1, 3)
NAME: Final = r"\d+\.\d+"


@pytest.fixture(params=STARTS)
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon in its first or third start; the space ``late`` is new in the last one."""
    daemon = DaemonProcess(tmp_path / "data", "--log-level", "info")
    for _ in range(request.param - 1):
        daemon.start()
        daemon.stop()
    (tmp_path / "late.toml").write_text("[spaces.late]\n")
    daemon.more = (*daemon.more, "--config", str(tmp_path / "late.toml"))
    daemon.start()
    yield daemon
    daemon.stop()


def printed(capsys: pytest.CaptureFixture[str], daemon: DaemonProcess, *words: str) -> str:
    capsys.readouterr()
    assert main([*words, "--url", daemon.url]) == 0
    return capsys.readouterr().out


def names(capsys: pytest.CaptureFixture[str], daemon: DaemonProcess, space: str) -> dict[str, str]:
    """What each command that shows the session of ``worker`` calls it."""
    there = ("--space", space)
    listed = [line.split() for line in printed(capsys, daemon, "sessions").splitlines()]
    lines = [json.loads(line) for line in printed(capsys, daemon, "sessions", "--json").splitlines()]
    facts = printed(capsys, daemon, "get", 'session($id, _, "worker", _)', "--space", "system", "--csv")
    owned = [
        json.loads(line)
        for line in printed(capsys, daemon, "owners", "here($)", *there, "--json").splitlines()
    ]
    out = printed(capsys, daemon, "groups", "out", "work", *there)
    return {
        "sessions": next(line[0] for line in listed if line[1] == "worker"),
        "sessions --json": next(each["session"] for each in lines if each["name"] == "worker"),
        "system": facts.splitlines()[1].strip('"'),
        "owners": owned[0]["owner"].removeprefix("session:"),
        "groups out": next(iter(re.findall(rf"session:({NAME})", out))),
    }


@pytest.mark.slow
@pytest.mark.parametrize("space", ["main", "late"])
def test_what_one_command_prints_another_takes(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str], space: str
) -> None:
    name = ""
    with suppress(ProtocolError), connect_blocking(daemon.url, name="worker", space=space) as worker:
        worker.assert_(Record("here", 1))
        worker.assert_(Record("job", 1))
        with worker.consume("job($n)", group="work", start="held") as jobs:
            job = next(iter(jobs))
            assert job.attempt == 1
            found = names(capsys, daemon, space)
            (name,) = set(found.values())
            assert re.fullmatch(NAME, name), found
            capsys.readouterr()
            assert main(["sessions", "end", name, "--url", daemon.url, "--space", space]) == 0
            assert capsys.readouterr().err.startswith(f"ended session {name}: worker, ")
    assert main(["sessions", "end", name, "--url", daemon.url]) == 1
    daemon.stop()
    assert f"session {name}: 'worker'" in daemon.errors, "the log says the same"
    daemon.start()
