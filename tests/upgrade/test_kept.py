"""Data directories of earlier versions, kept as they were on disk, under the daemon of today.

``server/UPGRADE.md`` says which is read by what.  Each was filled by ``make.py``, or by the same commands of
its time.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import dataspace
from dataspace import Record
from index.patterns.text import parse
from server.cli.main import main
from tests.server.processes import DaemonProcess
from tests.upgrade.make import COUNTS, KEPT, THINGS

pytestmark = pytest.mark.slow

UNREADABLE: Final = {"2026-11-21-before-seals"}
READABLE: Final = sorted({file.name.removesuffix(".tar.xz") for file in KEPT.glob("*.tar.xz")} - UNREADABLE)

HISTORY: Final = """\
1 + a="a" b="b"
1 + a="b" b="c"
1 + a="c" b="d"
4 - a="c" b="d"
"""
LAST: Final = 17
"""The epoch that each was kept with."""

TOPIC: Final = '6 ["harbour", 14.2]\n7 ["harbour", 15.0]\n'


def unpacked(name: str, folder: Path) -> Path:
    data = folder / "data"
    data.mkdir(mode=0o700)
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        archive.extractall(data, filter="data")
    return data


def printed(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capfd.readouterr().out


def look(daemon: DaemonProcess, capfd: pytest.CaptureFixture[str]) -> None:
    """Asserts that all is there: facts, what rules derive from them, history, and the topic."""
    with dataspace.connect_blocking(daemon.url) as space:
        facts = {row[0] for row in space.matches("$")}
        assert {parse(text) for text in THINGS} <= facts
        assert set(space.matches("road($, $)")) == {("a", "b"), ("b", "c")}
        assert set(space.matches("reach($, $)")) == {("a", "b"), ("b", "c"), ("a", "c")}
        assert {number for (number,) in space.matches("count($)")} >= set(range(1, COUNTS + 1))
    assert printed(capfd, "log", "road($a, $b)", "--from", "1", "--url", daemon.url) == HISTORY
    assert printed(capfd, "topic", "read", "readings", "--url", daemon.url) == TOPIC


@contextmanager
def running(data: Path) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(data)
    daemon.start()
    try:
        yield daemon
    except BaseException:
        daemon.kill()
        raise
    assert daemon.stop() == 0


@pytest.mark.parametrize("name", READABLE)
def test_the_data_of_an_earlier_version_is_whole_and_goes_on(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = unpacked(name, tmp_path)
    with running(data) as daemon:
        look(daemon, capfd)
        with dataspace.connect_blocking(daemon.url, owner="counts") as space:
            epoch = space.assert_(Record("count", 0)).epoch
            assert epoch is not None and epoch > LAST
    printed(capfd, "log", "verify", "--data", str(data))
    with running(data) as daemon:
        look(daemon, capfd)


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_what_is_not_read_is_left_as_it_is_and_named(name: str, tmp_path: Path) -> None:
    data = unpacked(name, tmp_path)
    before = (data / "topics.sqlite").read_bytes()
    command = [sys.executable, "-m", "dataspace", "serve", "--data", str(data), "--listen", "tcp:127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "topics.sqlite has format 1 without a number, this program reads 2; UPGRADE.md" in ended.stderr
    assert (data / "topics.sqlite").read_bytes() == before


def test_without_its_topics_the_oldest_data_is_read(tmp_path: Path) -> None:
    data = unpacked("2026-11-21-before-seals", tmp_path)
    for file in ("topics.sqlite", "topics-acknowledged"):
        (data / file).unlink()
    with running(data) as daemon, dataspace.connect_blocking(daemon.url) as space:
        assert {parse(text) for text in THINGS} <= {row[0] for row in space.matches("$")}
