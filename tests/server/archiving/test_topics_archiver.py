"""The archivers of all topics: an error of one holds back no other, and open ranges are bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dataspace.errors import DataspaceError
from dataspace.topics.times import Order
from relay.archive.archiver import RangeSizes
from relay.archive.topics.archiving import TopicArchiver
from relay.journal.journal import Journal
from relay.journal.rows import Ended, Kept, Noted, Write
from relay.objects.objects import StoreFailed
from relay.objects.opening import open_objects
from relay.topics.steps import Completed, Step, StepLog
from relay.topics.topic import Topic
from server.archiving import topics as archiving
from server.archiving.logs import read_topics
from server.archiving.topics import TopicsArchiver
from tests.relay.store.files import asked

pytest.importorskip("zstandard", reason="the extra `archive` is not installed")


class Home:
    """A journal with three topics, and the archivers of a process beside it."""

    def __init__(self, place: Path, archiver: TopicsArchiver, journal: Journal) -> None:
        self.place = place
        self.archiver = archiver
        self.journal = journal
        self.ledgers = [self._made(slot) for slot in (1, 2, 3)]
        self.archived: dict[int, int] = {}
        self.errors: list[str] = []

    def _made(self, slot: int) -> StepLog:
        ledger = StepLog(Topic(f"t{slot}", Order(0), 1, lasting=True), slot, slot, 1 << 20, self._note)
        shape = (slot, slot, f"t{slot}", 0, 1, 1 << 20, None)
        self.writes: list[Write] = [Kept(*shape, 0, ledger.dump())]
        ledger.join(7)
        self.journal.write(self.writes)
        return ledger

    def _note(self, ledger: StepLog, step: Step, done: Sequence[Completed]) -> None:
        self.writes.append(Noted(ledger.slot, step, tuple(done), ledger.completed, 1))

    def complete(self, *ledgers: StepLog) -> None:
        self.writes = []
        for ledger in ledgers:
            time = ledger.completed
            ledger.finish(7, time, bytes(1000), [(time, -1), (time + 1, +1)])
        self.journal.write(self.writes)

    def look(self) -> None:
        self.archiver.look(self._say, lambda error: self.errors.append(str(error)))

    def _say(self, archiver: TopicArchiver) -> None:
        self.archived[archiver.archive.place.topic] = archiver.archive.manifest.until


@pytest.fixture
def home(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Home]:
    """Its ranges are closed after the seconds that a test is given."""
    with closing(Journal.open(tmp_path)) as journal, read_topics(tmp_path) as tables:
        assert tables is not None
        sizes = RangeSizes(seconds=getattr(request, "param", 0.0))
        objects = open_objects(tmp_path / "archive")
        yield Home(tmp_path, TopicsArchiver(tables, objects, "main", "id", term=1, sizes=sizes), journal)


def test_what_is_new_is_archived_and_an_ended_topic_is_forgotten(home: Home) -> None:
    home.look()
    assert home.archived == {1: 0, 2: 0, 3: 0}
    home.complete(*home.ledgers)
    home.complete(home.ledgers[1])
    home.look()
    assert home.archived == {1: 1, 2: 2, 3: 1}
    home.journal.write([Ended(1)])
    home.complete(home.ledgers[2])
    home.look()
    assert (home.archived, home.errors) == ({1: 1, 2: 2, 3: 2}, [])


def test_an_error_of_one_topic_holds_back_no_other(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.complete(*home.ledgers)
    assert asked(home.journal, "UPDATE topics SET body = x'90' WHERE slot = 2 RETURNING 1") == [(1,)]
    home.look()
    assert (home.archived, len(home.errors)) == ({1: 1, 3: 1}, 1)
    home.complete(home.ledgers[0], home.ledgers[2])
    home.look()
    assert (home.archived, len(home.errors)) == ({1: 2, 3: 2}, 1), "the damaged one is left in peace for now"
    monkeypatch.setattr(archiving, "PAUSE_SECONDS", 0.0)
    home.archiver._failed[2] = 0.0
    home.look()
    assert len(home.errors) == 2


def test_a_store_that_is_away_is_no_error_of_a_topic(home: Home) -> None:
    home.look()
    home.complete(*home.ledgers)
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
    home.complete(home.ledgers[0])
    home.look()
    assert not any(home.archived.values())
    home.complete(home.ledgers[0], home.ledgers[1])
    home.look()
    assert home.archived == {1: 2, 2: 0, 3: 0}, "the largest is closed"
