"""Data directories of earlier versions, kept as they were on disk, under the daemon of today.

``server/UPGRADE.md`` says which is read by what.  Each was filled by ``make.py``, or by the same commands of
its time.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record, Refused
from dataspace.bulk import BulkClient, topic_epochs, topic_frontier, topic_number
from dataspace.topics.times import Time
from index.patterns.text import parse
from index.values.values import Value
from relay.journal.journal import Journal
from relay.journal.reader import JournalReader
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.space_registers import KnownSessions, space_registers
from relay.store.errors import LogDamaged
from relay.store.header import check_format
from server.cli.main import main
from tests import warm
from tests.server.processes import DaemonProcess
from tests.upgrade.make import COUNTS, HELD, KEPT, THINGS

pytestmark = pytest.mark.slow

UNREADABLE: Final = {"2026-11-21-before-seals"}
TOPICS: Final = "2026-11-24-journal-2-topics"
LOG_1: Final = "2026-11-26-log-1"
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


# -- topics of format 2 -------------------------------------------------------------------------------


def look_at_topics(url: str) -> None:
    """Asserts that the topics of ``fill_topics`` and ``leave_open`` are there as they were left."""
    with BulkClient(url) as link:

        def epochs(name: str) -> list[tuple[int, Time, tuple[Value, ...]]]:
            known = topic_frontier(link, name)
            read = topic_epochs(link, name, id=known.id, after=known.oldest - 1, upto=known.completed)
            return [(each.number, each.time, each.items) for each in read]

        assert epochs("trimmed") == [(n + 1, n, (n, "x" * 1000)) for n in range(45, 60)] + [
            (61, 60, ("half",))
        ]
        times = [(0, 0), (0, 1), (1, 0), (2, 2)]
        assert epochs("grid") == [(n, time, (time,)) for n, time in enumerate(times, 1)]
        assert epochs("open")[:300] == [(n + 1, n, ((0, n), (1, n))) for n in range(300)]
        known = topic_frontier(link, "open")
        assert [topic_number(link, "open", id=known.id, time=time) for time in (0, 5, 299)] == [0, 5, 299]
        with pytest.raises(Refused, match="no topic named 'ended'"):
            topic_frontier(link, "ended")


async def go_on(url: str) -> None:
    """Completes the epoch that a killed producer had begun; subscribers get it, and all since a time."""
    async with dataspace.connect(url) as space, contextlib.AsyncExitStack() as held:
        topics = [
            await held.enter_async_context(
                space.publish("open", partition=each, partitions=2, durable=True, name=f"p{each}", away=300)
            )
            for each in (0, 1)
        ]
        assert [topic.time for topic in topics] == [300, 300]
        assert [topic.sent for topic in topics] == [{300: 1}, {}]
        for topic in topics:
            await topic.finish("ended", then=301)
        seen = []
        async with space.subscribe("open", as_of=10) as epochs:
            async for epoch in epochs:
                seen.append((epoch.time, epoch.items))
                if epoch.time == 300:
                    break
    assert seen[:-1] == [(n, ((0, n), (1, n))) for n in range(10, 300)]
    assert seen[-1] == (300, ("begun", "ended", "ended"))


def test_topics_of_format_2_are_upgraded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = unpacked(TOPICS, tmp_path)
    with running(data) as daemon:
        look_at_topics(daemon.url)
        trio.run(go_on, daemon.url)
    with running(data) as daemon:
        look_at_topics(daemon.url)
    assert "every checksum holds" in printed(capfd, "log", "verify", "--data", str(data))


def test_an_upgrade_that_is_killed_is_begun_anew(tmp_path: Path) -> None:
    data = unpacked(TOPICS, tmp_path)
    killed = DaemonProcess(data)
    with pytest.raises(AssertionError, match="did not start"):
        killed.start(fault="upgrade-before-commit:1")
    assert "fault reached" in killed.errors
    with running(data) as daemon:
        look_at_topics(daemon.url)
        trio.run(go_on, daemon.url)


def test_a_backup_and_a_compacted_directory_are_of_the_format_of_today(tmp_path: Path) -> None:
    data, backup, restored = unpacked(TOPICS, tmp_path), tmp_path / "backup", tmp_path / "restored"
    assert main(["backup", str(backup), "--data", str(data)]) == 0
    assert main(["restore", str(backup), str(restored)]) == 0
    assert main(["log", "compact", "--data", str(data)]) == 0
    for place in (data, restored):
        with running(place) as daemon:
            look_at_topics(daemon.url)


ALTERED: Final = {
    "a step": "UPDATE steps SET body = x'90' WHERE id = (SELECT max(id) - 9 FROM steps)",
    "the last step": "DELETE FROM steps WHERE id = (SELECT max(id) FROM steps)",
    "a step between": "DELETE FROM steps WHERE id = (SELECT max(id) - 9 FROM steps)",
    "an epoch": "UPDATE epochs SET size = 1 WHERE id = (SELECT max(id) FROM epochs)",
    "an epoch between": "DELETE FROM epochs WHERE id = (SELECT max(id) - 9 FROM epochs)",
    "a state": "UPDATE states SET position = 1 WHERE slot = 5",
    "a position": "UPDATE states SET position = 'first' WHERE slot = 5",
    "the topic": "DELETE FROM topics WHERE slot = 5",
    "its end": "DELETE FROM meta WHERE name = 'last:5'",
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_topic_is_not_upgraded_and_is_dropped_if_that_is_accepted(
    what: str, tmp_path: Path
) -> None:
    data = unpacked(TOPICS, tmp_path)
    with contextlib.closing(sqlite3.connect(data / JournalReader.FILE, isolation_level=None)) as connection:
        assert connection.execute(ALTERED[what]).rowcount == 1
        before = [line for line in connection.iterdump() if line.startswith("INSERT")]
    with pytest.raises(LogDamaged):
        Journal.open(data)
    with contextlib.closing(sqlite3.connect(data / JournalReader.FILE)) as connection:
        assert [line for line in connection.iterdump() if line.startswith("INSERT")] == before
    Journal.open(data, accept_damage=True).close()
    with contextlib.closing(Journal.open(data)) as journal:
        assert journal.slots() == [1, 2, 3]
        assert not [each for slot in journal.slots() for each in journal.damages_of(slot)]


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_what_is_not_read_is_left_as_it_is_and_named(name: str, tmp_path: Path) -> None:
    data = unpacked(name, tmp_path)
    before = (data / "topics.sqlite").read_bytes()
    ended = warm.run("serve", "--data", str(data), "--listen", "tcp:127.0.0.1:0")
    assert ended.returncode == 1
    assert "topics.sqlite has format 1 without a number, this program reads 3; UPGRADE.md" in ended.stderr
    assert (data / "topics.sqlite").read_bytes() == before


def test_without_its_topics_the_oldest_data_is_read(tmp_path: Path) -> None:
    data = unpacked("2026-11-21-before-seals", tmp_path)
    for file in ("topics.sqlite", "topics-acknowledged"):
        (data / file).unlink()
    with running(data) as daemon, dataspace.connect_blocking(daemon.url) as space:
        assert {parse(text) for text in THINGS} <= {row[0] for row in space.matches("$")}


# -- logs of format 1 ---------------------------------------------------------------------------------


def format_of(data: Path) -> object:
    with contextlib.closing(sqlite3.connect(data / LogReader.FILE)) as connection:
        return dict(connection.execute("SELECT name, value FROM meta"))["format"]


def test_facts_of_a_session_end_in_the_upgraded_log(tmp_path: Path) -> None:
    data = unpacked(LOG_1, tmp_path)
    for _ in range(2):
        with running(data) as daemon, dataspace.connect_blocking(daemon.url) as space:
            assert not list(space.matches(HELD))


def test_a_log_of_format_1_is_read_as_it_is_and_becomes_one_of_2_when_it_is_opened(tmp_path: Path) -> None:
    data, backup, restored = unpacked(LOG_1, tmp_path), tmp_path / "backup", tmp_path / "restored"
    assert main(["log", "verify", "--data", str(data)]) == 0
    assert (
        main(["log", "export", "road($, $)", "--data", str(data), "--output", str(tmp_path / "roads")]) == 0
    )
    assert format_of(data) == 1
    with pytest.MonkeyPatch.context() as patch:  # which is as good as a crash within the transaction
        patch.setattr("relay.store.sqlite.tables.put_names", _fails)
        with pytest.raises(RuntimeError, match="within"):
            Log.open(data)
    assert format_of(data) == 1
    assert main(["backup", str(backup), "--data", str(data)]) == 0
    assert main(["restore", str(backup), str(restored)]) == 0
    assert (format_of(backup), format_of(restored), format_of(data)) == (2, 2, 1)
    with contextlib.closing(Log.open(data, registers=space_registers)) as log:
        assert log.term == 0
        assert not log.recover().registers.of(KnownSessions)
    assert format_of(data) == 2
    meta = {"format": format_of(data)}
    with pytest.raises(LogDamaged, match=r"has format 2, this program reads 1; UPGRADE\.md"):
        check_format(str(data), meta, 1)  # as an earlier program does
    assert main(["log", "verify", "--data", str(data)]) == 0


def _fails(*_args: object, **_named: object) -> None:
    raise RuntimeError("within the transaction")


def test_a_log_of_format_1_is_compacted_to_one_of_2(tmp_path: Path) -> None:
    data = unpacked(LOG_1, tmp_path)
    assert main(["log", "compact", "--data", str(data)]) == 0
    assert format_of(data) == 2
    with running(data) as daemon, dataspace.connect_blocking(daemon.url) as space:
        assert {parse(text) for text in THINGS} <= {row[0] for row in space.matches("$")}
