"""A daemon that cannot keep its data says why on stderr, in a sentence, and ends with 1."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from relay.store.errors import LogDamaged, LogFailed
from server.cli.main import main
from server.config.model import Config
from server.daemon.serve import serve
from tests.server.hosting.rooms import SmallDisk
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


def start(data: Path, *before: str, files: int | None = None) -> str:
    """What a daemon says that does not start; ``files`` is a limit on their sizes, ``before`` a wrapper."""

    def limit() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (files, files))

    done = subprocess.run(
        [
            *before,
            sys.executable,
            "-m",
            "dataspace",
            "serve",
            "--data",
            str(data),
            "--listen",
            "tcp:127.0.0.1:0",
        ],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("dataspace: cannot ") and len(done.stderr.splitlines()) == 1
    return done.stderr.removeprefix("dataspace: cannot ").removesuffix("\n").replace(str(data), "DATA")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a daemon has left."""
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    daemon.stop()
    return daemon.data


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "small")
    yield disk
    disk.end()


def _daemon_was_here(disk: SmallDisk) -> None:
    daemon = DaemonProcess(disk.data)
    daemon.start()
    daemon.stop()


def test_a_disk_that_is_full(small: SmallDisk) -> None:
    small.take()
    assert start(small.data) == "keep data in DATA: No space left on device"
    small.give_back()
    _daemon_was_here(small)
    small.take()
    assert start(small.data) == "open DATA/log.sqlite: the disk is full"
    small.give_back()
    _daemon_was_here(small)


def test_a_disk_that_is_read_only(small: SmallDisk, capsys: pytest.CaptureFixture[str]) -> None:
    _daemon_was_here(small)
    small.make_read_only()
    assert start(small.data) == "keep data in DATA: Read-only file system"
    assert main(["log", "verify", "--data", str(small.data)]) == 0, "but it can be read"
    assert "every checksum holds" in capsys.readouterr().out


def test_a_limit_on_the_size_of_files(data: Path, tmp_path: Path) -> None:
    assert start(data, files=0) == "keep data in DATA: File too large"
    said = start(tmp_path / "new", files=16_384)
    assert said == "open DATA/log.sqlite: the file may not grow any more, by the limit on the size of files"


def _is_read_only(data: Path) -> None:
    data.chmod(0o555)


def _has_files_of_others(data: Path) -> None:
    (data / "acknowledged").chmod(0o444)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_is_read_only, "open DATA/log.sqlite: Permission denied"),
        (_has_files_of_others, "open DATA/acknowledged: Permission denied"),
    ],
)
def test_a_place_where_it_may_not_write(data: Path, change: Callable[[Path], None], said: str) -> None:
    before = []
    if os.geteuid() == 0:  # to whom everything is permitted, unless it gives that away
        if shutil.which("setpriv") is None:
            pytest.skip("root cannot be refused here")
        before = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    change(data)
    assert start(data, *before) == said


def _write_rubbish(file: Path) -> None:
    file.write_bytes(b"no database" * 1000)


def _make_directory(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("log.sqlite", _write_rubbish, "file is not a database"),
        ("topics.sqlite", _write_rubbish, "file is not a database"),
        ("staged.sqlite", _write_rubbish, "file is not a database"),
        (
            "log.sqlite",
            _make_directory,
            "unable to open database file (SQLITE_CANTOPEN)",
        ),
        ("acknowledged", _make_directory, "{} is a directory; delete it"),
    ],
)
def test_something_else_where_its_files_should_be(
    tmp_path: Path, name: str, change: Callable[[Path], None], said: str
) -> None:
    change(tmp_path / name)
    with pytest.raises((LogFailed, LogDamaged)) as refused:
        trio.run(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path))
    assert str(refused.value) == f"cannot open {tmp_path}/{name}: {said.format(tmp_path / name)}"


def test_a_log_that_another_program_has_locked(data: Path) -> None:
    other = sqlite3.connect(data / "log.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert start(data) == "write DATA/log.sqlite: another program has locked it"
    other.close()
