"""The archivers of all topics: an error of one holds back no other, and open ranges are bounded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dataspace.codec import pack
from dataspace.errors import DataspaceError
from dataspace.topics.times import Order
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.archiver import RangeSizes
from relay.archive.topics import verifying
from relay.archive.topics.archiving import TopicArchiver
from relay.archive.topics.past import TopicArchive
from relay.archive.topics.verifying import verify_topic
from relay.journal.journal import Journal
from relay.journal.past import every_piece
from relay.journal.rows import Ended, Kept, Noted, Write, entries_of
from relay.log.segments import Segment
from relay.objects.objects import StoreFailed
from relay.objects.opening import open_objects
from relay.topics.steps import Completed, Step, StepLog
from relay.topics.topic import Topic
from server.archiving import topics as archiving
from server.archiving.logs import read_topics
from server.archiving.topics import TopicsArchiver
from server.cli.main import main
from tests.relay.archive.histories import Killed, striking
from tests.relay.store.files import asked

pytest.importorskip("zstandard", reason="the extra `archive` is not installed")

IDENTITY = "f" * 32


class Home:
    """A journal with three topics, and the archivers of a process beside it."""

    def __init__(self, place: Path, archiver: TopicsArchiver, journal: Journal) -> None:
        self.place = place
        self.archiver = archiver
        self.journal = journal
        self.step_logs = [self._made(slot) for slot in (1, 2, 3)]
        self.archived: dict[int, int] = {}
        self.errors: list[str] = []

    def _made(self, slot: int) -> StepLog:
        step_log = StepLog(Topic(f"t{slot}", Order(0), 1, lasting=True), slot, slot, 1 << 20, self._note)
        shape = (slot, slot, f"t{slot}", 0, 1, 1 << 20, None)
        self.writes: list[Write] = [Kept(*shape, 0, step_log.dump())]
        step_log.join(7)
        self.journal.write(self.writes)
        return step_log

    def _note(self, step_log: StepLog, step: Step, done: Sequence[Completed]) -> None:
        self.writes.append(Noted(step_log.slot, step, tuple(done), step_log.completed, 1))

    def complete(self, *step_logs: StepLog, content: bytes = bytes(1000)) -> None:
        self.writes = []
        for step_log in step_logs:
            time = step_log.completed
            step_log.finish(7, time, content, [(time, -1), (time + 1, +1)])
        self.journal.write(self.writes)

    def restart(self) -> None:
        """Begins with new archivers, as another process does."""

    def archive(self, step_log: StepLog) -> Archive:
        """The archive of a topic, read anew."""
        found = Archive(open_objects(self.place / "archive"), ArchivePlace("main", IDENTITY, step_log.number))
        found.refresh()
        return found

    def look(self) -> None:
        self.archiver.archive_due(self._say, lambda error: self.errors.append(str(error)))

    def _say(self, archiver: TopicArchiver) -> None:
        self.archived[archiver.archive.place.topic] = archiver.archive.manifest.until


@pytest.fixture
def home(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Home]:
    """Its ranges are closed after the seconds that a test is given."""
    with closing(Journal.open(tmp_path)) as journal, read_topics(tmp_path) as tables:
        assert tables is not None
        sizes = RangeSizes(seconds=getattr(request, "param", 0.0))
        objects = open_objects(tmp_path / "archive")

        def archiver() -> TopicsArchiver:
            assert tables is not None
            return TopicsArchiver(tables, objects, "main", IDENTITY, term=1, sizes=sizes)

        home = Home(tmp_path, archiver(), journal)
        home.restart = lambda: setattr(home, "archiver", archiver())  # type: ignore[method-assign]
        yield home


def test_what_is_new_is_archived_and_an_ended_topic_is_forgotten(home: Home) -> None:
    home.look()
    assert home.archived == {1: 0, 2: 0, 3: 0}
    home.complete(*home.step_logs)
    home.complete(home.step_logs[1])
    home.look()
    assert home.archived == {1: 1, 2: 2, 3: 1}
    home.journal.write([Ended(1)])
    home.complete(home.step_logs[2])
    home.look()
    assert (home.archived, home.errors) == ({1: 1, 2: 2, 3: 2}, [])


def test_an_error_of_one_topic_holds_back_no_other(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.complete(*home.step_logs)
    assert asked(home.journal, "UPDATE topics SET body = x'90' WHERE slot = 2 RETURNING 1") == [(1,)]
    home.look()
    assert (home.archived, len(home.errors)) == ({1: 1, 3: 1}, 1)
    home.complete(home.step_logs[0], home.step_logs[2])
    home.look()
    assert (home.archived, len(home.errors)) == ({1: 2, 3: 2}, 1), "the damaged one is left in peace for now"
    monkeypatch.setattr(archiving, "PAUSE_SECONDS", 0.0)
    home.archiver._failed[2] = 0.0
    home.look()
    assert len(home.errors) == 2


def test_a_store_that_is_away_is_no_error_of_a_topic(home: Home) -> None:
    home.look()
    home.complete(*home.step_logs)
    (home.place / "archive").rename(home.place / "elsewhere")
    (home.place / "archive").write_text("no directory")
    with pytest.raises((StoreFailed, DataspaceError)):
        home.look()
    (home.place / "archive").unlink()
    (home.place / "elsewhere").rename(home.place / "archive")
    home.look()
    assert (home.archived, home.errors) == ({1: 1, 2: 1, 3: 1}, [])


@pytest.mark.parametrize("home", [3600.0], indirect=True)
def test_open_ranges_of_all_topics_are_bounded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "OPEN_BYTES", 2500)
    monkeypatch.setattr("relay.archive.topics.archiving.TopicArchiver._began", lambda *_: 1 << 62)
    home.complete(home.step_logs[0])
    home.look()
    assert not any(home.archived.values())
    home.complete(home.step_logs[0], home.step_logs[1])
    home.look()
    assert home.archived == {1: 2, 2: 0, 3: 0}, "the largest is closed"


@pytest.mark.parametrize("home", [0.0], indirect=True)
def test_small_ranges_are_merged_and_read_as_before(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range for each epoch here; four of about one size become one."""
    count = 21
    for at in range(count):
        home.complete(home.step_logs[0])
        if at % 3 == 0:
            home.complete(home.step_logs[1])
        home.look()
    assert home.errors == []
    for step_log in home.step_logs[:2]:
        archive = home.archive(step_log)
        ranges = list(archive.ranges())
        assert len(ranges) < step_log.completed and max(each.merged for each in ranges) >= 4, ranges
        assert verify_topic(archive, deep=True).damages == ()
        past = TopicArchive(archive)
        assert [(each.number, each.time) for each in every_piece(past, 1, 0, past.completed)] == [
            (number, number - 1) for number in range(1, step_log.completed + 1)
        ]
        steps = [step.position for step in past.steps(0, past.position)]
        assert steps == [*range(1, step_log.position + 1)]
        monkeypatch.setattr("relay.journal.past.MOST_EPOCHS", 2)
        assert [each.number for each in every_piece(past, 1, 1, past.completed - 1)] == [
            *range(2, step_log.completed)
        ]


@pytest.mark.parametrize("home", [0.0], indirect=True)
def test_a_merge_that_is_killed_is_done_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = striking(monkeypatch)
    for point in ("merge-before-manifest", "merge-after-manifest"):

        def strike(name: str, wanted: str = point) -> None:
            if name == wanted:
                raise Killed(name)

        patch(strike)
        with pytest.raises(Killed):
            for _ in range(20):
                home.complete(home.step_logs[0])
                home.look()
        patch(lambda _: None)
        home.restart()
    home.complete(home.step_logs[0])
    home.look()
    archive = home.archive(home.step_logs[0])
    assert verify_topic(archive, deep=True).damages == ()
    steps = [step[0] for each in archive.segments(0, archive.upto) for step in each.every_entry()]
    assert steps == [*range(1, home.step_logs[0].position + 1)]
    assert max(each.merged for each in archive.ranges()) > 1


@pytest.mark.parametrize("home", [0.0], indirect=True)
@pytest.mark.parametrize("lost", [2, 4, 7])
def test_a_lost_step_is_damage(home: Home, lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(6):
        home.complete(home.step_logs[0])
        home.look()
    archive = home.archive(home.step_logs[0])
    assert verify_topic(archive, deep=True).damages == ()

    def entries(segment: Segment) -> Iterator[Any]:
        return (each for each in entries_of(segment) if each[0].position != lost)

    monkeypatch.setattr(verifying, "entries_of", entries)
    assert verify_topic(archive).damages == ()
    damages = verify_topic(archive, deep=True).damages
    assert any(f"step {lost + 1} comes after {lost - 1}" in each for each in damages) or lost == 7
    assert any("are not what their range says" in each for each in damages)


@pytest.mark.parametrize("home", [0.0], indirect=True)
def test_an_archived_topic_is_read_without_a_daemon(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for at in range(5):
        home.complete(home.step_logs[1], content=pack((at, "x")))
    home.look()
    words = ("topic", "read", "t2", "--archive", str(home.place / "archive"), "--json")
    for more, numbers in (((), [1, 2, 3, 4, 5]), (("--after", "1", "--until", "3"), [2, 3])):
        assert main([*words, *more]) == 0
        said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert said == [{"number": n, "time": n - 1, "items": [n - 1, "x"]} for n in numbers]
    assert main([*words, "--until", "9"]) == 2
    assert "has completed epochs 1 to 5, not 1 to 9" in capsys.readouterr().err
    assert main([*words[:2], "t9", *words[3:]]) == 2
    assert "has no archive of a topic 't9'" in capsys.readouterr().err
