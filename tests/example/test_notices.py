"""How to add a feature, as ARCHITECTURE.md says: a folder, and a line in each table that others read.

The folder ``notices`` and the lines below go into a copy of the sources, and a daemon of that copy is used as
anybody would: by the command, over HTTP and by a client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import dataspace
from dataspace import Map, Refused
from tests.server.web.routes.callers import HttpDaemon

TOP: Final = Path(dataspace.__file__).parents[1]
NOTICES: Final = Path(__file__).parent / "notices"

LINES: Final = (
    (
        "dataspace/wire/verbs.py",
        '        RequestVerb("status", _DAEMON, (), READS, {}),\n',
        '        RequestVerb("notice", _DAEMON, ("administer",), SAME, {"text": text()}),\n',
    ),
    (
        "server/config/model.py",
        "    strangers: int = setting(256, SOME)\n",
        "    notice_length: int = setting(200, SOME)\n",
    ),
    (
        "server/cli/table.py",
        "USING: Final = (\n",
        '    Command("notice", "put one up", "notices.command:notice", (word("TEXT", "the notice"),)),\n',
    ),
    (
        "server/daemon/features.py",
        "    monitoring.FEATURE,\n",
        "    notices.FEATURE,\n",
    ),
    (
        "server/daemon/features.py",
        "from server.monitoring import feature as monitoring\n",
        "from server.notices import feature as notices\n",
    ),
)
"""Files, a line of each, and the line that comes after it."""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of programs that run the changed copy."""
    copy = tmp_path_factory.mktemp("changed")
    for each in ("index", "dataspace", "relay", "server"):
        shutil.copytree(TOP / each, copy / each, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copytree(NOTICES, copy / "server" / "notices")
    for name, line, added in LINES:
        source = (copy / name).read_text()
        assert source.count(line) == 1, (name, line)
        (copy / name).write_text(source.replace(line, line + added))
    return {"PYTHONPATH": str(copy)}


@pytest.fixture
def daemon(changed: dict[str, str], tmp_path: Path) -> Iterator[HttpDaemon]:
    config = tmp_path / "daemon.toml"
    config.write_text("[limits]\nnotice_length = 20\n")
    process = HttpDaemon(tmp_path / "data", "--config", str(config))
    process.program, process.environment = ("-P", "-m", "dataspace"), changed
    process.start()
    yield process
    assert process.stop() == 0


def command(changed: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-P", "-m", "dataspace", *words]
    return subprocess.run(called, capture_output=True, text=True, check=False, env=os.environ | changed)


async def test_a_folder_and_five_lines_are_a_feature(daemon: HttpDaemon, changed: dict[str, str]) -> None:
    assert command(changed, "notice", "closed at noon", "--url", daemon.url).returncode == 0
    async with (
        dataspace.connect(daemon.url, space="system") as space,
        space.observe("notice($text)") as notices,
    ):
        first = await notices.next_epoch()
        assert first is not None
        assert [*first.added] == [("closed at noon",)]
        assert daemon.call("PUT", "/v1/notice", {"text": "open again"}).status == 204
        second = await notices.next_epoch()
        assert second is not None
        assert ([*second.added], [*second.removed]) == ([("open again",)], [("closed at noon",)])
        with pytest.raises(Refused, match=r"21 characters, the limit is limits.notice_length=20"):
            await space.request("notice", Map({"text": "x" * 21}))
    assert b"\ndataspace_notices_total 2.0\n" in daemon.call("GET", "/metrics").body
    assert daemon.call("PUT", "/v1/notice", {"text": 1}).problem()[:2] == (400, "bad-request")
    assert "the notice" in command(changed, "notice", "--help").stdout
