"""A daemon archives beside its work, deletes what is archived, and readers see no border; real processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dataspace
from dataspace import Map, Record, Refused
from relay.archive.archive import only_archive
from relay.archive.archiver import Archiver, archive_all
from relay.archive.verifying import verify_archive
from relay.log.reader import LogReader
from relay.objects.opening import open_objects
from tests import warm
from tests.server.processes import STARTING, DaemonProcess, follower, running

pytestmark = pytest.mark.slow
pytest.importorskip("zstandard", reason="the extra `archive` is not installed")

PATIENCE = 60.0
PAYLOAD = "x" * 50_000
"""So that a few facts are worth a snapshot, without which nothing is deleted."""


@pytest.fixture
def archiving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """A daemon that archives every epoch soon, and keeps nothing longer than it must."""
    monkeypatch.setenv("DATASPACE_SERVE_LOG_ARCHIVE_EVERY", "0.1")
    monkeypatch.setenv("DATASPACE_SERVE_LOG_ARCHIVE_DELTA", "true")
    monkeypatch.setenv("DATASPACE_SERVE_LOG_ARCHIVE_CLUSTER", "part=0")
    monkeypatch.setenv("TRIMS_EVERY", "0.2")
    words = ("--archive", str(tmp_path / "archive"), "--keep-for", "0s")
    process = DaemonProcess(tmp_path / "data", *words, program=STARTING)
    process.start()
    yield process
    process.stop()


def status(daemon: DaemonProcess) -> dict[str, Any]:
    with dataspace.connect_blocking(daemon.url) as space:
        found: dict[str, Any] = json.loads(json.dumps(_plain(space.status())))
        return found


def _plain(value: Any) -> Any:
    return {str(k): _plain(v) for k, v in value.items()} if hasattr(value, "items") else value


def wait(until: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def write(daemon: DaemonProcess, first: int, count: int) -> int:
    """Makes some facts, one a turn, under the durable owner ``plant``; returns the last epoch."""
    with dataspace.connect_blocking(daemon.url) as space:
        for number in range(first, first + count):
            epoch = space.assert_(Record("part", number, PAYLOAD), owner="plant").epoch or 0
    return epoch


def archived(daemon: DaemonProcess, upto: int) -> Callable[[], bool]:
    return lambda: status(daemon)["archive"]["upto"] >= upto


def gone(daemon: DaemonProcess, upto: int) -> Callable[[], bool]:
    return lambda: status(daemon)["archive"]["held_from"] >= upto


def parts(daemon: DaemonProcess, after: int, upto: int) -> list[tuple[int, object]]:
    """The facts that came in (after, upto], each with its epoch, as an observer gets them."""
    with dataspace.connect_blocking(daemon.url) as space:
        return [
            (change.epoch, change["n"]) for change in space.observe("part($n, _)", after=after, upto=upto)
        ]


def test_readers_see_no_border(archiving: DaemonProcess, tmp_path: Path) -> None:
    first = write(archiving, 0, 1)
    last = write(archiving, 1, 29)
    wait(archived(archiving, last), "it is archived")
    later = write(archiving, 30, 30)
    wait(archived(archiving, later), "that as well")
    wait(gone(archiving, last), "what is archived is deleted")
    assert status(archiving)["oldest_epoch"] == 1
    expected = [(first + number, number) for number in range(60)]
    assert parts(archiving, 0, later) == expected
    archiving.kill()
    archiving.start()
    wait(lambda: status(archiving)["oldest_epoch"] == 1, "the archive is read again")
    assert parts(archiving, 0, later) == expected
    newest = write(archiving, 60, 10)
    assert parts(archiving, 3, newest) == [(at, number) for at, number in expected if at > 3] + [
        (newest - 9 + at, 60 + at) for at in range(10)
    ]
    with dataspace.connect_blocking(archiving.url) as space:
        for epoch in (first, first + 7, last, later, newest):
            rows = space.query("part($n, _)", as_of=epoch)
            assert sorted(row[0] for row in rows if isinstance(row[0], int)) == [
                n for at, n in expected if at <= epoch
            ] + [60 + at for at in range(10) if newest - 9 + at <= epoch]
    shown = command("log", "part($n, _)", "--from", "1", "--who", "--json", daemon=archiving)
    assert len(shown.splitlines()) == 70 and '"durable:plant"' in shown
    command("log", "verify", "--archive", str(tmp_path / "archive"), "--deep")
    dataset = pytest.importorskip("pyarrow.dataset", reason="the extra `archive` is not installed")
    archive = str(tmp_path / "archive")
    wait(archived(archiving, newest), "all of it is archived")
    table = dataset.dataset(command("log", "files", archive, "part($n, _)").split()).to_table()
    found = {(row["_epoch"], row["f0"]) for row in table.to_pylist()}
    assert found == {*expected, *[(newest - 9 + at, 60 + at) for at in range(10)]}
    assert {*table.column("_change_type").to_pylist()} == {"insert"}
    # The process keeps the table, so that the command finds nothing to add.
    wait(lambda: rows_of_table(tmp_path / "archive") == 70, "the table has all")
    told = json.loads(command("log", "delta", archive, "part($n, _)", "--json"))
    assert (told["rows"], told["files"], told["changed"]) == (70, len(table_files(archive)), False)

    merged = only_archive(open_objects(tmp_path / "archive"), "main")
    write(archiving, 70, 40)
    wait(lambda: any(each.merged > 1 for each in merged.refresh().ranges), "the process merges ranges")
    data = str(archiving.data)
    command("log", "archive", archive, "--data", data, "--merge", "--cluster", "part=0", "--quiet")
    [whole] = merged.refresh().ranges
    assert {file.label: file.order for file in whole.files if file.label == "part"} == {"part": (0,)}
    for epoch in (first, last, newest):
        files = command("log", "files", archive, "part($n, _)", "--as-of", str(epoch)).split()
        held = dataset.dataset(files).to_table().to_pylist()
        assert {row["f0"] for row in held if row["_epoch"] <= epoch} == {n for at, n in found if at <= epoch}
    command("log", "verify", "--archive", archive, "--deep")
    told = json.loads(command("log", "delta", archive, "part($n, _)", "--json"))
    assert (told["rows"], told["files"]) == (110, 1)


def test_a_field_that_began_as_null_gets_a_column_of_its_values(
    archiving: DaemonProcess, tmp_path: Path
) -> None:
    """By the process that archives, over a kill; each reader has the same rows as before."""
    dataset = pytest.importorskip("pyarrow.dataset", reason="the extra `archive` is not installed")
    expected: list[tuple[int, int, int | None]] = []

    def add(value: int | None) -> int:
        number = len(expected)
        with dataspace.connect_blocking(archiving.url) as space:
            epoch = space.assert_(Record("part", number, value), owner="plant").epoch or 0
        expected.append((epoch, number, value))
        return epoch

    for _ in range(3):
        wait(archived(archiving, add(None)), "each is a range")
    archive = only_archive(open_objects(tmp_path / "archive"), "main")
    assert archive.manifest.types["part/2"] == "is"
    archiving.kill()
    archiving.start()

    def is_settled() -> bool:
        wait(archived(archiving, add(len(expected) << 40)), "each is a range")
        return archive.refresh().types["part/2"] == "ii"

    wait(is_settled, "a merge settles it anew")
    last = expected[-1][0]
    files = command("log", "files", str(tmp_path / "archive"), "part($n, _)").split()
    for each in files:
        table = dataset.dataset([each]).to_table()
        assert str(table.schema.field("f1").type) == "int64" and "f1_other" not in table.column_names
    rows = dataset.dataset(files).to_table().to_pylist()
    assert sorted((row["_epoch"], row["f0"], row["f1"]) for row in rows) == expected
    wait(lambda: rows_of_table(tmp_path / "archive") >= len(expected), "the table has all")
    command("log", "verify", "--archive", str(tmp_path / "archive"), "--deep")
    with dataspace.connect_blocking(archiving.url) as space:
        found = [
            (each.epoch, each["n"], each["v"]) for each in space.observe("part($n, $v)", after=0, upto=last)
        ]
        assert found == expected
        for epoch, *_ in expected:
            held = {(row[0], row[1]) for row in space.query("part($n, $v)", as_of=epoch)}
            assert held == {(number, value) for at, number, value in expected if at <= epoch}


def rows_of_table(archive: Path) -> int:
    """The rows of the table of parts, as its commits say."""
    commits = archive.glob("main/*/columns/label=part/arity=2/_delta_log/*.json")
    actions = [json.loads(line) for each in commits for line in each.read_text().splitlines()]
    return sum(json.loads(each["add"]["stats"])["numRecords"] for each in actions if "add" in each)


def table_files(archive: str) -> list[str]:
    return command("log", "files", archive, "part($n, _)").split()


def command(*words: str, daemon: DaemonProcess | None = None) -> str:
    url = {} if daemon is None else {"DATASPACE_URL": daemon.url}
    done = warm.run(*words, env=os.environ | url)
    assert done.returncode == 0, done.stderr
    return done.stdout


def children(daemon: DaemonProcess) -> list[int]:
    """The processes that a daemon has started."""
    threads = Path(f"/proc/{daemon.process.pid}/task").iterdir()
    return [int(each) for thread in threads for each in (thread / "children").read_text().split()]


def test_the_process_is_started_again_wherever_it_is_killed(archiving: DaemonProcess, tmp_path: Path) -> None:
    first = last = write(archiving, 0, 1)
    killed: set[int] = set()
    for round in range(3):
        last = write(archiving, 1 + 10 * round, 10)
        wait(lambda: bool({*children(archiving)} - killed), "the process runs")
        for each in {*children(archiving)} - killed:
            os.kill(each, signal.SIGKILL)
            killed.add(each)
    wait(archived(archiving, last), "all of it is archived")
    archive = only_archive(open_objects(tmp_path / "archive"), "main")
    assert verify_archive(archive, deep=True).damages == ()
    numbers = [e.number for each in archive.segments(0, last) for e in each.epochs() if not e.silent]
    assert sorted(set(numbers)) == numbers == [*range(first, last + 1)]
    archiving.stop()
    wait(lambda: not _alive(archiving), "the process ends with its daemon")


def _alive(daemon: DaemonProcess) -> bool:
    return Path(f"/proc/{daemon.process.pid}").exists()


def test_a_store_that_is_away_stops_nothing(archiving: DaemonProcess, tmp_path: Path) -> None:
    last = write(archiving, 0, 5)
    wait(archived(archiving, last), "it is archived")
    later = write(archiving, 5, 5)
    wait(gone(archiving, last), "what is archived is deleted")
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    (tmp_path / "archive").write_text("no directory")
    newest = write(archiving, 10, 5)
    wait(lambda: "archive" in status(archiving)["archive"]["error"], "it says so")
    with pytest.raises(Refused, match="archive-away"):
        parts(archiving, 0, later)
    assert [n for _, n in parts(archiving, newest - 5, newest)] == [*range(10, 15)]
    archiving.stop()
    archiving.start()
    assert status(archiving)["archive"]["held_from"] > 1
    (tmp_path / "archive").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "archive")
    wait(archived(archiving, newest), "it goes on")
    wait(lambda: status(archiving)["oldest_epoch"] == 1, "and can be read")
    assert [n for _, n in parts(archiving, 0, newest)] == [*range(15)]
    assert status(archiving)["archive"]["error"] == ""


def test_another_archive_is_begun_and_an_emptied_one_is_not(archiving: DaemonProcess, tmp_path: Path) -> None:
    last = write(archiving, 0, 5)
    wait(archived(archiving, last), "it is archived")
    later = write(archiving, 5, 5)
    wait(archived(archiving, later), "that as well")
    wait(gone(archiving, last), "what is archived is deleted")
    archiving.stop()
    archiving.more = ("--archive", str(tmp_path / "new"), "--keep-for", "0s")
    archiving.start()
    newest = write(archiving, 10, 5)
    wait(archived(archiving, newest), "all that is held is archived there")
    now = status(archiving)["archive"]
    assert 1 < now["oldest"] <= min(later + 1, now["held_from"])
    assert [n for _, n in parts(archiving, now["oldest"] - 1, newest)] == [
        *range(now["oldest"] - last + 4, 15)
    ]
    with pytest.raises(Refused, match=f"the oldest held is {now['oldest']}"):
        parts(archiving, 0, newest)
    archiving.stop()
    assert f"another archive, {tmp_path / 'new'}, which begins with epoch" in archiving.errors
    found = verify_archive(only_archive(open_objects(tmp_path / "new"), "main"), deep=True)
    assert (found.missing, found.damages) == (((1, now["oldest"] - 1),), ())
    (tmp_path / "new").rename(tmp_path / "elsewhere")
    archiving.start()
    wait(lambda: "is empty, and had epochs up to" in status(archiving)["archive"]["error"], "it is noticed")
    assert status(archiving)["archive"]["oldest"] == 0
    again = write(archiving, 15, 5)
    assert not list((tmp_path / "new").rglob("*.json"))
    with closing(LogReader.open(archiving.data)) as log:
        by_hand = Archiver(log, open_objects(tmp_path / "new"), "main", term=log.term)
        by_hand.begin()
        archive_all(by_hand, lambda _: None)
    wait(archived(archiving, again), "an operator may begin it again")


def test_a_follower_reads_what_its_leader_has_archived(archiving: DaemonProcess, tmp_path: Path) -> None:
    last = write(archiving, 0, 20)
    wait(archived(archiving, last), "it is archived")
    later = write(archiving, 20, 5)
    wait(gone(archiving, last), "what is archived is deleted")
    with running(other := follower(archiving.data, "--archive", str(tmp_path / "archive"))):
        wait(lambda: status(other)["oldest_epoch"] == 1, "the follower reads the archive")
        assert [n for _, n in parts(other, 0, later)] == [*range(25)]
        assert not children(other)


def test_the_past_is_erased_by_a_daemon_and_beside_it(archiving: DaemonProcess, tmp_path: Path) -> None:
    with dataspace.connect_blocking(archiving.url) as space:
        for name in ("p17", "p18"):
            handle = space.assert_(Record("person", name, 1), owner="plant")
            space.send(Record("seen", name))
            last = space.retract(handle)
        held = space.assert_(Record("person", "p17", 2), owner="plant").epoch
    said = json.loads(command("log", "erase", 'person("p17")', "--before", "0s", "--json", daemon=archiving))
    assert (said["rows"], said["holding"], said["upto"], said["ranges"] > 0) == (2, 1, held, True)
    with dataspace.connect_blocking(archiving.url) as space:  # which reads it at once
        found = [(c.kind, c["who"]) for c in space.observe("person($who, 1)", after=0, upto=held)]
        assert found == [("+", "p18"), ("-", "p18")]
        since = space.observe("person($who, $n)", after=0)  # which memory had
        live = [(c.kind, c["who"], c["n"]) for _, c in zip(range(3), since, strict=False)]
        assert live == [("+", "p18", 1), ("-", "p18", 1), ("+", "p17", 2)]
        with pytest.raises(Refused, match="before must be a number"):
            space.request("erase", Map({"pattern": Record("seen", "p17")}))
    now = status(archiving)["archive"]
    assert (now["erasures_waiting"], now["merge_error"]) == (0, "")
    assert now["ranges"] > now["ranges_to_merge"] >= 0 and now["bytes"] > 0 < now["erased_at"]
    assert ", erased last at 20" in command("status", daemon=archiving)
    archive = str(tmp_path / "archive")
    assert "1 changes" in command("log", "erase", 'seen("p17")', "--before", "0s", "--archive", archive)
    wait(archived(archiving, write(archiving, 0, 1)), "the daemon knows the newest version")
    shown = command("log", "$x", "--from", "1", "--json", daemon=archiving)
    assert shown.count("p17") == 1 and shown.count("p18") == 3 and shown.count('"erased"') == 3
    assert last and verify_archive(only_archive(open_objects(archive), "main"), deep=True).damages == ()
