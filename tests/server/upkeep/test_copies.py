"""A running daemon is backed up and restored from the command line: whole, to any epoch, through kills."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

import dataspace
from dataspace import Record
from dataspace.values import Value
from index.values.values import text_of
from relay.backup.manifest import BackedUp, Manifest
from relay.journal.reader import JournalReader
from relay.journal.rows import Kept
from relay.log.reader import LogReader
from relay.log.replay import state_at
from relay.store.lock import DataUnusable, locked
from server.cli.main import main
from server.config.model import Config
from server.daemon.serve import serve
from tests import warm
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

ROUNDS = 3 + 17 * bool(os.environ.get("TORTURE_ROUNDS"))
POINTS = ("backup-pages:1", "backup-portion:1", "backup-chunks:1", "backup-before-mark:1")


@contextmanager
def loaded(url: str, clients: int = 2) -> Iterator[threading.Event]:
    """Durable owners that assert, replace and retract without end; the event comes with their first facts."""
    stopping, begun = threading.Event(), threading.Event()

    def work(number: int) -> None:
        random = Random(number)
        with dataspace.connect_blocking(url, owner=f"writer{number}") as space:
            held: list[dataspace.Claim] = []
            while not stopping.is_set():
                fact = Record("reading", number, random.randrange(50), random.random())
                if len(held) < 20:
                    held.append(space.assert_(fact))
                elif random.random() < 0.5:
                    space.retract(held.pop(random.randrange(20)))
                else:
                    held.append(space.replace(held.pop(random.randrange(20)), fact))
                begun.set()
                stopping.wait(0.001)  # the test is about what comes in between, not about how fast

    threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in range(clients)]
    for thread in threads:
        thread.start()
    try:
        begun.wait(30)
        yield begun
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def run(*words: object, fault: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which must not share the daemon's files with this one."""
    return warm.run(*map(str, words), env=os.environ | {"DATASPACE_FAULT": fault})


def kill_at_random(seconds: float, *words: object) -> None:
    """Runs the command, and kills it if it has not ended by then."""
    with warm.Popen([sys.executable, "-m", "dataspace", *map(str, words)], stdout=subprocess.PIPE) as it:
        try:
            it.wait(seconds)
        except subprocess.TimeoutExpired:
            it.kill()


def facts_at(directory: Path, epoch: int) -> list[str]:
    with closing(LogReader.open(directory)) as log:
        return sorted(map(text_of, state_at(log, epoch)))


def facts_of(url: str, pattern: str = "reading($, $, $)") -> list[str]:
    with dataspace.connect_blocking(url) as space:
        rows: list[tuple[Value, ...]] = space.matches(pattern)
        return sorted(text_of(Record("reading", *row)) for row in rows)


def ended(backup: Path) -> BackedUp:
    return Manifest.read(backup).spaces[0]


@pytest.mark.torture
def test_backups_of_a_busy_daemon_are_whole_and_can_be_restored(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    epochs: list[tuple[Path, int]] = []
    random = Random(7)
    with loaded(daemon.url):
        for number in range(ROUNDS):
            target = tmp_path / f"backup{number // 2}"  # one anew, and one added to
            kill_at_random(random.uniform(0.2, 0.8), "backup", target, "--data", daemon.data)
            assert main(["backup", str(target), "--data", str(daemon.data)]) == 0
            place = tmp_path / f"restored{number}"
            assert main(["restore", str(target), str(place)]) == 0
            epochs.append((place, ended(target).epoch))
    for place, epoch in epochs:
        assert facts_at(place, epoch) == facts_at(daemon.data, epoch)
        assert main(["log", "verify", "--data", str(place)]) == 0
    identity = _identity(daemon.url)
    daemon.stop()
    place, epoch = epochs[-1]
    again = DaemonProcess(place)
    again.start()
    assert facts_of(again.url) == facts_at(daemon.data, epoch)
    assert _identity(again.url) != identity
    with dataspace.connect_blocking(again.url, owner="writer0") as space:
        space.assert_(Record("reading", 0, 0, 0.0))
        now = space.status()["epoch"]
        assert isinstance(now, int) and now > epoch + 65_536, "no number comes twice"
    again.stop()


def _identity(url: str) -> object:
    with dataspace.connect_blocking(url) as space:
        return space.status()["identity"]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a daemon left after some load, with two spaces, a durable topic, and a snapshot at its end."""
    daemon = DaemonProcess(tmp_path_factory.mktemp("busy") / "data", "--host-space", "other")
    daemon.start()
    with dataspace.connect_blocking(daemon.url, owner="o", space="other") as space:
        space.assert_(Record("reading", 1, 2, 3.0))
    with dataspace.connect_blocking(daemon.url, owner="w") as space:
        for number in range(30):
            space.assert_(Record("reading", number, 0, 0.5))
    with dataspace.connect_blocking(daemon.url) as space, space.publish("t", durable=True) as topic:
        topic.send("item")
    daemon.stop()
    return daemon.data


def test_a_backup_that_is_killed_is_continued(busy: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    for point in POINTS:
        killed = run("backup", target, "--data", busy, fault=point)
        assert f"fault reached: {point.split(':')[0]}" in killed.stderr
        assert not target.exists()
    assert main(["backup", str(target), "--data", str(busy)]) == 0
    assert main(["restore", str(target), str(tmp_path / "restored"), "--at", "20"]) == 0
    assert facts_at(tmp_path / "restored", 20) == facts_at(busy, 20)


def test_every_epoch_can_be_restored_and_the_other_spaces_go_with_its_time(
    busy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = tmp_path / "backup"
    assert main(["backup", str(backup), "--data", str(busy)]) == 0
    with closing(LogReader.open(busy)) as log:
        others = [each.number for each in log.read(0) if not each.silent]
    for epoch in (others[1], others[len(others) // 2], others[-1]):
        place = tmp_path / f"at{epoch}"
        assert main(["restore", str(backup), str(place), "--at", str(epoch)]) == 0
        assert facts_at(place, epoch) == facts_at(busy, epoch)
        with closing(LogReader.open(place / "spaces" / "other")) as other:
            assert facts_at(place / "spaces" / "other", other.last) == facts_at(
                busy / "spaces" / "other", other.last
            )
    assert "every checksum verified" in capsys.readouterr().out


def test_a_restore_that_is_killed_is_begun_anew_by_the_same_command(busy: Path, tmp_path: Path) -> None:
    backup, target, made = tmp_path / "backup", tmp_path / "restored", tmp_path / "restored.partial"
    assert run("backup", backup, "--data", busy).returncode == 0
    for _ in range(2):
        killed = run("restore", backup, target, fault="restore-before-verify:1")
        assert killed.returncode == -9 and made.exists() and not target.exists(), killed.stderr
    with locked(made):
        refused = run("restore", backup, target)
        assert refused.returncode == 1 and f"{made} is in use by process {os.getpid()}" in refused.stderr
    done = run("restore", backup, target)
    assert done.returncode == 0, done.stderr
    assert not made.exists() and not (target / "restoring").exists()
    assert run("log", "verify", "--data", target).returncode == 0


def test_what_a_restore_did_not_make_it_does_not_delete(busy: Path, tmp_path: Path) -> None:
    assert run("backup", tmp_path / "backup", "--data", busy).returncode == 0
    made = tmp_path / "a b.partial"
    made.mkdir()
    (made / "mine").write_text("precious")
    refused = run("restore", tmp_path / "backup", tmp_path / "a b")
    assert refused.returncode == 2 and (made / "mine").read_text() == "precious"
    assert f"rm -r '{made}'" in refused.stderr


def test_a_restored_topic_is_another_one(busy: Path, tmp_path: Path) -> None:
    """Its numbers go on from an earlier one, so they would mean two things."""
    backup, place = tmp_path / "backup", tmp_path / "restored"
    assert main(["backup", str(backup), "--data", str(busy)]) == 0
    assert main(["restore", str(backup), str(place)]) == 0
    (before,), (after,) = map(topics, (busy, place))
    assert after.number > before.number
    assert after.name == before.name == "t"
    assert main(["log", "verify", "--data", str(place)]) == 0


def topics(directory: Path) -> list[Kept]:
    with closing(JournalReader.open(directory)) as journal:
        return [journal.topic(slot) for slot in journal.slots()]


async def test_a_daemon_does_not_start_on_a_backup(busy: Path, tmp_path: Path) -> None:
    assert main(["backup", str(tmp_path / "backup"), "--data", str(busy)]) == 0
    with pytest.raises(DataUnusable, match=r"is a backup, .* restore it to another directory"):
        await serve(Config(listen=("tcp:127.0.0.1:0",), data=tmp_path / "backup"))


def test_a_directory_that_the_system_refuses_is_named(
    busy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One whose name is too long stands for one of another user, which root may see."""
    long = str(tmp_path / ("x" * 300))
    for words in (
        ["serve", "--data", long],
        ["backup", long, "--data", str(busy)],
        ["backup", "new", "--data", long],
        ["restore", str(busy), long],
        ["log", "verify", "--data", long],
    ):
        assert main(words) == 1, words
        said = capsys.readouterr().err
        assert f"dataspace: {long}" in said and said.endswith(": File name too long\n"), words


def test_what_the_command_refuses(busy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    for words, code, text in (
        (["backup", "full", "--data", str(busy)], 2, "is not empty and no backup"),
        (["backup", "new", "--data", "full"], 2, "there is no log in"),
        (["backup", "new", "--data", str(busy), "--rate", "fast"], 2, "is no size"),
        (["restore", "full", "new"], 2, "is no backup"),
        (["restore", "new", "new", "--at", "yesterday"], 2, "is neither an epoch nor a time"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            try:
                found = main(words)
            except SystemExit as end:
                found = int(str(end.code))
        assert (found, text in capsys.readouterr().err) == (code, True), words
    assert sorted(each.name for each in tmp_path.iterdir()) == ["full"]
