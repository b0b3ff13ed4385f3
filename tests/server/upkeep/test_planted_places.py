"""No command writes through what another user planted under a name that the command chose.

The grid: each command with each name that it chooses, times a link to a directory, to a file and to nothing,
a pipe, a socket, a file, and a directory of another user.  Always: what the link leads to stays as it was,
nothing is written into the other user's directory, the command ends, and it names the place or is done.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

pytest.importorskip("fsspec", reason="the extra `remote` is not installed")

import dataspace
from dataspace import Record
from dataspace.transport.addresses import Address
from relay.journal.reader import JournalReader
from relay.log.reader import LogReader
from server.cli.main import main
from server.connections.listeners import CannotListen, open_listener
from tests.server.processes import DaemonProcess

OTHER = 65_534
"""The number of another user."""

MARKS = (LogReader.MARK, JournalReader.MARK)
COMMANDS = {
    "backup": ("backup {here}/b --data {here}/data", ["b.partial"]),
    "backup again": (
        "backup {here}/kept --data {here}/data",
        ["kept/lock", "kept/backup.json.new", "kept/topics.sqlite.new", "kept/topics.sqlite.new-wal"]
        + [f"kept/{mark}" for mark in MARKS],
    ),
    "backup to a URL": (
        "backup local://{here}/far --data {here}/data",
        ["data.backup", "data.backup.partial"],
    ),
    "backup that goes on": (
        "backup local://{here}/url --data {here}/data",
        ["data.backup.fetched"],
    ),
    "restore": ("restore {here}/kept {here}/r", ["r.partial"]),
    "restore from a URL": ("restore local://{here}/url {here}/r", ["r.fetched", "r.partial"]),
    "log copy": ("log copy --from {here}/data --to {here}/c", ["c.partial"]),
    "log compact": (
        "log compact --data {here}/data",
        ["data/lock", "data/readers", "data/log.sqlite.new", "data/log.sqlite.new-wal"]
        + [f"data/{mark}" for mark in MARKS],
    ),
}
PLACES = [(command, place) for command, (_, places) in COMMANDS.items() for place in places]


def _link_to_directory(place: Path, victim: Path) -> None:
    place.symlink_to(victim)


def _link_to_an_empty_directory(place: Path, victim: Path) -> None:
    place.symlink_to(victim / "empty")


def _link_to_file(place: Path, victim: Path) -> None:
    place.symlink_to(victim / "precious")


def _link_to_nothing(place: Path, victim: Path) -> None:
    place.symlink_to(victim / "not-there")


def _pipe(place: Path, _: Path) -> None:
    os.mkfifo(place)


def _socket(place: Path, _: Path) -> None:
    directory = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)  # since paths of sockets are short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{directory}/{place.name}")
    os.close(directory)


def _file(place: Path, _: Path) -> None:
    place.write_text("of somebody else")


def _directory_of_another_user(place: Path, _: Path) -> None:
    place.mkdir(0o777)
    os.chown(place, OTHER, OTHER)


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    each.__name__.strip("_").replace("_", " "): each
    for each in (
        _link_to_directory,
        _link_to_an_empty_directory,
        _link_to_file,
        _link_to_nothing,
        _pipe,
        _socket,
        _file,
        _directory_of_another_user,
    )
}


FIRST = ("link to directory", "pipe", "directory of another user")
"""What is planted in each run; the others only in a long one."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a durable topic, a backup of it in a directory, and one at a URL."""
    here = tmp_path_factory.mktemp("original")
    daemon = DaemonProcess(here / "data")
    daemon.start()
    with dataspace.connect_blocking(daemon.url, owner="w") as space:
        space.assert_(Record("reading", 1))
    with dataspace.connect_blocking(daemon.url) as space, space.publish("t", durable=True) as topic:
        topic.send("item")
    daemon.stop()
    assert main(["backup", str(here / "kept"), "--data", str(daemon.data)]) == 0
    (here / "url").mkdir()
    (here / "far").mkdir()
    assert (
        main(["backup", f"local://{here}/url", "--data", str(daemon.data), "--via", str(here / "via")]) == 0
    )
    return here


@pytest.fixture
def here(original: Path, tmp_path: Path) -> Path:
    """A copy of the original, and a directory that a planted link leads to."""
    for name in ("data", "kept", "url", "far"):
        shutil.copytree(original / name, tmp_path / name)
    victim = tmp_path / "victim"
    victim.mkdir(0o700)
    (victim / "empty").mkdir(0o750)
    (victim / "precious").write_text("a private file")
    (victim / "precious").chmod(0o644)
    return tmp_path


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Ends a command that waits for a planted pipe."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("the command waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def tree(top: Path) -> dict[str, tuple[int, bytes]]:
    """What is below a directory: the mode of each, and the content of files."""
    return {
        str(each.relative_to(top)): (each.lstat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in [top, *top.rglob("*")]
    }


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user")
@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=() if each in FIRST else pytest.mark.torture) for each in PLANTED]
)
@pytest.mark.parametrize(("command", "place"), PLACES)
def test_nothing_is_written_through_it(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, place: str, kind: str
) -> None:
    planted = here / place
    planted.unlink(missing_ok=True)
    PLANTED[kind](planted, here / "victim")
    before = tree(here / "victim")
    status = main(COMMANDS[command][0].format(here=here).split())
    assert tree(here / "victim") == before
    if planted.exists() and planted.stat().st_uid == OTHER:
        assert list(planted.iterdir()) == []
    errors = capsys.readouterr().err
    if status:
        assert place in errors and "Traceback" not in errors, errors
    else:
        assert not planted.is_symlink()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user")
def test_a_backup_of_another_user_is_not_continued_under_a_name_that_nobody_gave(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = here / "data.backup"
    shutil.copytree(here / "kept", planted)
    os.chown(planted, OTHER, OTHER)
    before = tree(planted)
    assert main(["backup", f"local://{here}/far", "--data", str(here / "data")]) == 1
    assert tree(planted) == before
    assert f"{planted} is a directory of user {OTHER}" in capsys.readouterr().err


@pytest.mark.slow
def test_what_an_interrupted_run_left_is_continued(here: Path) -> None:
    """A directory of this user is no plant, whatever rights others have: they are taken away."""
    (here / "b.partial").mkdir(0o755)
    assert main(["backup", str(here / "b"), "--data", str(here / "data")]) == 0
    assert stat.S_IMODE((here / "b").stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", PLANTED)
def test_a_socket_is_made_only_in_place_of_a_socket(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    (victim / "empty").mkdir(parents=True)
    (victim / "precious").write_text("a private file")
    place = tmp_path / "s"
    if kind == "directory of another user" and os.geteuid() != 0:
        place.mkdir()
    else:
        PLANTED[kind](place, victim)
    before = tree(victim)
    if kind == "socket":  # which a killed daemon left
        with open_listener(Address(path=str(place)), None).socket:
            assert stat.S_ISSOCK(place.lstat().st_mode)
    else:
        with pytest.raises(CannotListen, match=str(place)):
            open_listener(Address(path=str(place)), None)
        assert place.exists() or place.is_symlink()
    assert tree(victim) == before
