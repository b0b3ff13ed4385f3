"""Journal and archive together have every epoch of a topic once, however they are cut, killed and read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule

from dataspace.topics.times import Antichain, Order, less_equal
from relay.archive.archive import Archive, topics_in
from relay.archive.archiver import RangeSizes, archive_all
from relay.archive.manifest import ArchivedShape
from relay.archive.topics.archiving import TopicArchiver, TopicSource
from relay.archive.topics.past import TopicArchive
from relay.archive.verifying import verify_archive
from relay.journal import history
from relay.journal.journal import Journal, compact_topics
from relay.journal.past import Piece
from relay.journal.reader import JournalReader
from relay.journal.rows import Ended, Noted
from relay.objects.objects import Objects
from relay.objects.opening import open_objects
from relay.store.sqlite.topics import SqliteTopics
from relay.topics.steps import Completed, Step, StepLog
from relay.topics.topic import Topic
from tests.relay.archive.histories import Killed, striking
from tests.relay.journal.test_journal import REPLACED, ROUNDS, SLOT, JournalMachine, PostgresMachine, kept

pytest.importorskip("zstandard", reason="the extra `archive` is not installed")

POINTS = ("archive-after-object", "archive-before-manifest", "archive-after-manifest")


class ArchivedTopicMachine(JournalMachine):
    """A topic of a journal whose steps go to an archive, and from the journal once they are there."""

    sizes: ClassVar = RangeSizes(changes=2)
    can_compact: ClassVar = True

    def __init__(self) -> None:
        super().__init__()
        self.objects = open_objects(self.place / "archive")
        self.past: TopicArchive | None = None
        self.patched = pytest.MonkeyPatch()

    @initialize(small=st.booleans())
    def size(self, small: bool) -> None:
        """Objects have many groups, and manifests chapters, or neither."""
        if small:
            self.patched.setattr("relay.archive.packing.GROUP_BYTES", 300)
            self.patched.setattr("relay.archive.archive.INDEX_BYTES", 64)
            self.patched.setattr("relay.archive.writing.CHAPTER", 2)

    def archiver(self) -> tuple[TopicArchiver, JournalReader]:
        reader = JournalReader.open(self.place)
        source = TopicSource(reader._tables, SLOT, "identity")
        made = TopicArchiver(source, self.objects, "main", sizes=self.sizes)
        made.begin()
        return made, reader

    @rule(most=st.integers(1, 4), noted=st.booleans())
    def archive(self, most: int, noted: bool) -> None:
        """Archives some ranges, and notes it in the journal if the process does not end before."""
        archiver, reader = self.archiver()
        for _ in range(most):
            while archiver.read():
                pass
            if archiver.close() is None:
                break
        self.past = TopicArchive(Archive(self.objects, archiver.archive.place))
        self.past.renew()
        reader.close()
        self.step_log.archive = self.past
        if noted:
            self.step_log.archived = (self.past.position, self.past.completed)
            self.keep()

    @rule(point=st.sampled_from(POINTS))
    def kill(self, point: str) -> None:
        def strike(name: str) -> None:
            if name == point:
                raise Killed(point)

        archiver, reader = self.archiver()
        while archiver.read():
            pass
        with pytest.MonkeyPatch.context() as patched:
            striking(patched)(strike)
            try:
                archiver.close()
            except Killed:
                pass
        reader.close()

    @precondition(lambda self: self.can_compact)
    @rule()
    def compact(self) -> None:
        """Ends the process in good order and joins the segments."""
        if self.queue:
            self.flush(len(self.queue))
        self.journal.close()
        compact_topics(self.place)
        self.journal = Journal.open(self.place)

    @rule(end=st.booleans())
    def restart(self, end: bool) -> None:
        super().restart(end)
        self.step_log.archive = self.past

    @rule(most=st.integers(1, 9))
    def trim(self, most: int) -> None:
        """Lets go of some epochs that are archived."""
        found = islice(self.journal.epochs(SLOT, self.step_log.oldest), most)
        self.step_log.forget([each for each, _ in found if each.number <= self.step_log.archived[1]])
        self.keep()

    def keep(self) -> None:
        archived = self.step_log.archived
        made = replace(kept(self.step_log), archived=archived, upto=archived[0])
        self.queue.append((made, copy.deepcopy(self.oracle)))
        self.flush(len(self.queue))

    @precondition(lambda self: self.partitions == 1 and len(self.oracle.held) < 4)
    @rule(count=st.integers(1, 9), size=st.integers(0, 40))
    def work(self, count: int, size: int) -> None:
        """Some epochs, each complete once the producer goes on, unless others hold it back."""
        if not self.holders():
            self.join(0, None)
        for _ in range(count if self.holders() else 0):
            self.finish(0, 1, size)

    @rule(most=st.integers(1, 9))
    def settle(self, most: int) -> None:
        """Everything is written and archived, and much of it goes."""
        self.archive(9, noted=True)
        self.trim(most)

    @rule(after=st.integers(0, 9), budget=st.integers(0, 2000))
    def read(self, after: int, budget: int) -> None:
        wanted = self.written.completed
        assert self.step_log.oldest_read == 1
        at = min(after, len(wanted))
        while at < len(wanted):
            for piece in history.pieces(self.journal, self.step_log, at, len(wanted), None, budget):
                time, epoch = wanted[at]
                at += 1
                assert (piece.number, piece.time, piece.crashed) == (at, time, epoch.crashed)
                assert piece.items == epoch.items

    @rule(ahead=st.integers(0, 3), times=st.integers(0, 8))
    def find(self, ahead: int, times: int) -> None:
        since = self.order.bottom
        for _ in range(times):
            since = self.later(since, ahead)
        written = self.written
        after = [n for n, (time, _) in enumerate(written.completed, 1) if less_equal(since, time)]
        found = history.sought(self.step_log, Antichain([since]))
        number = history.number_at(self.journal, self.step_log, found)
        assert number == min(after, default=len(written.completed) + 1) - 1
        assert not self.step_log.gone.covers(since)
        at = history.beginning(self.journal, self.step_log, found)
        sent: list[bytes] = []
        durable = self.journal._chain(SLOT).epoch
        while at < durable:
            for step in history.steps_after(self.journal, self.step_log, at):
                at += 1
                assert step.position == at
                sent += [step.batch[2]] if step.batch is not None else []
        wanted = [items for n in after for items in written.completed[n - 1][1].items]
        wanted += [
            items for time, e in written.opened.items() if less_equal(since, time) for items in e.items
        ]
        assert set(wanted) <= set(sent)
        assert len(sent) == len(set(sent))

    def teardown(self) -> None:
        if self.past is not None:
            self.past.renew()
            assert verify_archive(self.past.archive, deep=True).damages == ()
        self.patched.undo()
        super().teardown()


class PostgresArchivedTopicMachine(ArchivedTopicMachine):
    """The same in PostgreSQL."""

    home: ClassVar[Callable[[], AbstractContextManager[object]]] = PostgresMachine.home
    can_compact: ClassVar = False


SETTINGS = settings(
    max_examples=10 * ROUNDS,
    stateful_step_count=40,
    deadline=None,
    derandomize=ROUNDS == 1,
    phases=[Phase.generate],
)
ArchivedTopicMachine.TestCase.settings = SETTINGS
PostgresArchivedTopicMachine.TestCase.settings = settings(SETTINGS, max_examples=2 * ROUNDS)
TestArchivedTopic = pytest.mark.slow(ArchivedTopicMachine.TestCase)
TestArchivedTopicInPostgres = pytest.mark.slow(
    REPLACED(pytest.mark.usefixtures("stores")(PostgresArchivedTopicMachine.TestCase))
)


# -- beginnings, gaps, and steps that complete nothing ------------------------------------------------


class Topics:
    """A journal with one topic of one producer, and its archive."""

    def __init__(self, place: Path, objects: Objects | None = None) -> None:
        self.place = place
        self.objects = objects or open_objects(place / "archive")
        self.journal = Journal.open(place)
        self.noted: list[Noted] = []
        topic = Topic("t", Order(0), 1, lasting=True)
        self.step_log = StepLog(topic, 77, SLOT, 1 << 20, self._note)
        self.journal.write([kept(self.step_log)])
        self.step_log.join(7)
        self.write()

    def _note(self, step_log: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        self.noted.append(Noted(SLOT, step, tuple(completed), step_log.completed, step.position))

    def write(self) -> None:
        for each in self.noted:  # a segment for each step
            self.journal.write([each])
        self.noted.clear()
        self.step_log.written(self.step_log.position)

    def complete(self, count: int) -> None:
        for _ in range(count):
            ((time, _),) = self.step_log.topic.holds(7)
            assert isinstance(time, int)
            self.step_log.finish(7, time, b"%d" % time, [(time, -1), (time + 1, +1)])
        self.write()

    def archive(self, identity: str = "identity") -> Archive:
        tables = SqliteTopics.read(self.place / Journal.FILE, self.place / Journal.MARK)
        with closing(tables):
            archiver = TopicArchiver(TopicSource(tables, SLOT, identity), self.objects, "main")
            archiver.begin()
            archive_all(archiver, lambda _: None)
        self.step_log.archive = found = TopicArchive(archiver.archive)
        self.step_log.archived = (found.position, found.completed)
        return archiver.archive

    def let_go(self, most: int, *, held: bool = True) -> None:
        self.step_log.forget([each for each, _ in self.journal.epochs(SLOT, self.step_log.oldest, most)])
        upto = self.step_log.archived[0] if held else None
        self.journal.write([replace(kept(self.step_log), archived=self.step_log.archived, upto=upto)])

    def check(self, oldest: int) -> None:
        """All epochs from ``oldest`` on can be read by number and by time, and none before."""
        step_log, journal = self.step_log, self.journal
        assert step_log.oldest_read == oldest
        found = list[Piece]()
        while (at := found[-1].number if found else oldest - 1) < step_log.completed:
            found += history.pieces(journal, step_log, at, step_log.completed, None, 1 << 20)
        assert [(each.number, each.items) for each in found] == [
            (number, (b"%d" % (number - 1),)) for number in range(oldest, step_log.completed + 1)
        ]
        for time in range(step_log.completed):
            assert step_log.gone.covers(time) == (time < oldest - 1)
            found_at = history.sought(step_log, Antichain([time]))
            assert history.number_at(journal, step_log, found_at) == max(time, oldest - 1)
            if time >= oldest - 1:
                (step, *_) = history.steps_after(
                    journal, step_log, history.beginning(journal, step_log, found_at)
                )
                assert step.batch == (0, time, b"%d" % time)


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    made = Topics(tmp_path)
    yield made
    made.journal.close()


def test_an_archive_that_begins_late_has_what_the_journal_had_then(topics: Topics) -> None:
    topics.complete(9)
    topics.let_go(4)
    topics.check(5)
    topics.archive()
    topics.let_go(8)
    topics.check(5)
    shape = topics.step_log.archive.archive.manifest.topic  # type: ignore[union-attr]
    assert shape == ArchivedShape(77, "t", 0, 1, 5, (3,))


def test_a_gap_is_noted_and_read_on_after_it(topics: Topics) -> None:
    topics.complete(4)
    topics.archive()
    topics.complete(8)
    topics.let_go(9, held=False)
    topics.check(10)
    archive = topics.archive()
    assert archive.manifest.missing == ((6, 10),), "steps 1 to 5 are archived, and 11 completed epoch 10"
    topics.complete(3)
    topics.archive()
    topics.let_go(14)
    topics.check(10)
    assert verify_archive(archive, deep=True).damages == ()


def test_steps_that_complete_nothing_wait_for_the_archive_as_well(topics: Topics) -> None:
    topics.complete(4)
    topics.archive()
    for by in (+1, -1, +1, -1):
        topics.step_log.progress(7, [(9, by)])
    topics.write()
    topics.let_go(4)
    topics.complete(3)
    archive = topics.archive()
    assert (archive.manifest.missing, archive.manifest.first) == ((), 1)
    topics.let_go(4)
    topics.check(1)


def test_epochs_are_read_across_chapters(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.archive.writing.CHAPTER", 2)
    for _ in range(9):
        topics.complete(2)
        archive = topics.archive()
    assert len(archive.manifest.chapters) == 3
    past = TopicArchive(archive)
    for first, last in product(range(1, 19), repeat=2):
        assert [each.number for each, _ in past.epochs(first, last)] == [*range(first, last + 1)]
    topics.let_go(17)
    topics.check(1)


def test_the_archive_of_a_topic_is_of_no_other(topics: Topics) -> None:
    topics.complete(2)
    topics.archive()
    topics.journal.write([Ended(SLOT)])
    topics.step_log = StepLog(Topic("t", Order(0), 1, lasting=True), 78, SLOT, 1 << 20, topics._note)
    topics.journal.write([kept(topics.step_log)])
    topics.step_log.join(7)
    topics.complete(3)
    archive = topics.archive()
    assert (archive.place.topic, archive.manifest.until) == (78, 3)
    log = Archive(topics.objects, archive.place._replace(topic=0))
    assert [each.refresh().until for each in topics_in(log)] == [2, 3]


@pytest.mark.parametrize(("wanted", "going"), [(9, 8), (21, 20), (21, 10), (31, 30), (40, 39)])
def test_an_epoch_is_found_while_those_before_it_are_deleted(
    topics: Topics, wanted: int, going: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.complete(40)
    topics.archive()
    tables = topics.journal._tables
    search = tables.first_by_until

    def searching(*of: int) -> int:
        monkeypatch.undo()
        topics.let_go(going)
        return search(*of)

    monkeypatch.setattr(tables, "first_by_until", searching)
    found = [epoch.number for epoch, _ in topics.journal.epochs(SLOT, wanted)]
    assert found == [*range(wanted, 41)]
