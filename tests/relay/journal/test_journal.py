"""A durable topic is what was done to it, whenever the process ends and however it is read or trimmed."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dataspace.errors import UsageError
from dataspace.topics.times import Antichain, Order, Time, less_equal
from dataspace.version import compiled_parts
from relay.journal import history
from relay.journal.journal import Journal, compact_topics
from relay.journal.reader import JournalReader, TopicsVerdict, recovered, topics_verdict, verify_topics
from relay.journal.rows import Ended, Kept, Noted, Write
from relay.store.errors import LogDamaged, LogFailed
from relay.store.ports import KEY_BITS
from relay.topics.steps import Completed, Step, StepLog
from relay.topics.topic import Topic
from tests.relay.journal.oracle import Oracle
from tests.relay.store.files import asked
from tests.relay.store.memory import in_memory

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))
SLOT = 1
HOMES = pytest.mark.usefixtures("home")


def kept(step_log: StepLog) -> Kept:
    topic = step_log.topic
    shape = (step_log.slot, step_log.number, topic.name, topic.order.dimensions, len(topic.partitions))
    now = (step_log.position, step_log.dump(), b"", step_log.oldest, step_log.first_needed())
    return Kept(*shape, step_log.retain, step_log.age, *now)


def verified(place: Path) -> TopicsVerdict:
    """Checks the journal of a directory, in whichever home it is."""
    return topics_verdict(lambda: JournalReader.open(place))


class JournalMachine(RuleBasedStateMachine):
    """One topic, a journal written some steps at a time, and restarts that lose what was not written."""

    home: ClassVar[Callable[[], AbstractContextManager[object]]] = nullcontext

    def __init__(self) -> None:
        super().__init__()
        self.held = ExitStack()
        self.held.enter_context(type(self).home())
        self.place = Path(tempfile.mkdtemp())
        self.journal = Journal.open(self.place)
        self.numbers = iter(range(1, 1 << 30))
        self.queue: list[tuple[Write, Oracle]] = []

    def teardown(self) -> None:
        self.journal.close()
        self.held.close()
        shutil.rmtree(self.place)

    @initialize(dimensions=st.sampled_from([0, 2]), partitions=st.integers(1, 3))
    def begin(self, dimensions: int, partitions: int) -> None:
        self.order = Order(dimensions)
        self.partitions = partitions
        topic = Topic("t", self.order, partitions, lasting=True)
        self.step_log = StepLog(topic, 77, SLOT, 1 << 20, self.note)
        self.oracle = self.written = Oracle(partitions)
        self.queue.append((kept(self.step_log), copy.deepcopy(self.oracle)))
        self.flush(1)

    def note(self, step_log: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        self.noted = Noted(SLOT, step, tuple(completed), step_log.completed, step.position)

    def done(self) -> None:
        """The oracle has done the step as well: both have completed the same."""
        new = self.oracle.completed[len(self.oracle.completed) - len(self.noted.completed) :]
        assert [(each.time, each.crashed) for each in self.noted.completed] == [
            (time, epoch.crashed) for time, epoch in new
        ]
        assert self.step_log.completed == len(self.oracle.completed)
        self.queue.append((self.noted, copy.deepcopy(self.oracle)))

    # -- steps ----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.oracle.held) < 4)
    @rule(partition=st.integers(0, 2), ahead=st.none() | st.integers(0, 3))
    def join(self, partition: int, ahead: int | None) -> None:
        producer, partition = next(self.numbers), partition % self.partitions
        time = None if ahead is None else self.later(self.order.bottom, ahead)
        before = self.step_log.dump()
        try:
            start = self.step_log.join(producer, partition, time)
        except UsageError:
            assert self.step_log.dump() == before, "a step that raises did nothing"
            return
        self.oracle.join(producer, partition, start, [each.time for each in self.noted.completed])
        self.done()

    @precondition(lambda self: self.holders())
    @rule(which=st.integers(0, 9), ahead=st.integers(0, 3), size=st.integers(0, 40))
    def send(self, which: int, ahead: int, size: int) -> None:
        producer, time = self.pick(which)
        time, items = self.later(time, ahead), b"%d-" % next(self.numbers) + b"x" * size
        self.step_log.send(producer, time, items)
        self.oracle.send(producer, time, items)
        self.done()

    @precondition(lambda self: self.holders())
    @rule(which=st.integers(0, 9), ahead=st.lists(st.integers(0, 3), max_size=2))
    def progress(self, which: int, ahead: list[int]) -> None:
        producer, time = self.pick(which)
        changes = [(time, -1), *[(self.later(time, each), +1) for each in ahead]]
        self.step_log.progress(producer, changes)
        self.oracle.progress(producer, changes)
        self.done()

    @precondition(lambda self: self.holders())
    @rule(which=st.integers(0, 9), ahead=st.integers(-1, 3), size=st.integers(0, 40))
    def finish(self, which: int, ahead: int, size: int) -> None:
        producer, time = self.pick(which)
        items, before = b"%d-" % next(self.numbers) + b"x" * size, self.step_log.dump()
        if ahead < 0:
            with pytest.raises(UsageError):
                self.step_log.finish(producer, time, items, [(time, -9)])
            assert self.step_log.dump() == before, "a step that raises did nothing, not even by half"
            return
        changes = [(time, -1), (self.later(time, ahead), +1)]
        self.step_log.finish(producer, time, items, changes)
        self.oracle.send(producer, time, items)
        self.oracle.progress(producer, changes)
        self.done()

    @precondition(lambda self: self.oracle.held)
    @rule(which=st.integers(0, 9), crash=st.booleans())
    def go(self, which: int, crash: bool) -> None:
        producer = list(self.oracle.held)[which % len(self.oracle.held)]
        if crash:
            self.step_log.crash(producer, f"{producer} is gone")
            self.oracle.crash(producer, f"{producer} is gone")
        else:
            self.step_log.leave(producer)
            self.oracle.leave(producer)
        self.done()

    def holders(self) -> list[tuple[int, Time]]:
        return [(who, time) for who, held in self.oracle.held.items() for time, n in held.items() if n > 0]

    def pick(self, which: int) -> tuple[int, Time]:
        holders = self.holders()
        return holders[which % len(holders)]

    def later(self, time: Time, ahead: int) -> Time:
        if isinstance(time, tuple):
            return tuple(each + (ahead >> at & 1) for at, each in enumerate(time))
        return time + ahead

    # -- the disk -------------------------------------------------------------------------------------

    @precondition(lambda self: self.queue)
    @rule(count=st.integers(1, 8))
    def flush(self, count: int) -> None:
        group, self.queue = self.queue[:count], self.queue[count:]
        self.journal.write([write for write, _ in group])
        self.written = group[-1][1]
        for write, _ in group:
            if isinstance(write, Noted):
                self.step_log.written(write.step.position)

    @rule(end=st.booleans())
    def restart(self, end: bool) -> None:
        """The process ends, in good order or by a kill; what was not written is lost."""
        if end and self.queue:
            self.flush(len(self.queue))
        self.journal.close()
        self.journal = Journal.open(self.place)
        assert self.journal.slots() == [SLOT]
        self.step_log = recovered(self.journal, SLOT)
        self.step_log.write = self.note
        self.queue, self.oracle = [], copy.deepcopy(self.written)
        assert set(self.step_log.members) == set(self.oracle.held)
        held = {who: dict(self.step_log.topic.holds(who)) for who in self.oracle.held}
        assert held == {who: {t: n for t, n in each.items() if n} for who, each in self.oracle.held.items()}
        assert self.step_log.completed == len(self.oracle.completed)

    @rule(most=st.integers(1, 3))
    def trim(self, most: int) -> None:
        going = [each for each, _ in islice(self.journal.epochs(SLOT, self.step_log.oldest), most)]
        self.step_log.forget(going)
        if going:
            self.oracle.oldest = going[-1].number + 1
        self.queue.append((kept(self.step_log), copy.deepcopy(self.oracle)))
        self.flush(len(self.queue))

    # -- what must hold -------------------------------------------------------------------------------

    @rule(after=st.integers(0, 9), budget=st.integers(0, 2000))
    def read(self, after: int, budget: int) -> None:
        wanted = self.written.completed
        at = max(self.written.oldest - 1, min(after, len(wanted)))
        while at < len(wanted):
            for piece in self.journal.pieces(SLOT, self.partitions, at, len(wanted), None, budget):
                time, epoch = wanted[at]
                at += 1
                assert (piece.number, piece.time, piece.crashed) == (at, time, epoch.crashed)
                assert piece.items == epoch.items

    @rule(ahead=st.integers(0, 3), times=st.integers(0, 8))
    def find(self, ahead: int, times: int) -> None:
        since = self.order.bottom
        for _ in range(times):
            since = self.later(since, ahead)
        written, oldest = self.written, self.step_log.oldest
        after = [
            n for n, (time, _) in enumerate(written.completed, 1) if n >= oldest and less_equal(since, time)
        ]
        number = self.journal.number_at(SLOT, Antichain([since]), oldest)
        assert number == min(after, default=max(len(written.completed), oldest - 1) + 1) - 1
        at = self.journal.beginning(SLOT, history.sought(self.step_log, Antichain([since])).begun, number + 1)
        sent = [step.batch[2] for step in self.journal.steps(SLOT, at) if step.batch is not None]
        wanted = [items for n in after for items in written.completed[n - 1][1].items]
        wanted += [
            items for time, e in written.opened.items() if less_equal(since, time) for items in e.items
        ]
        assert set(wanted) <= set(sent)

    @invariant()
    def nothing_is_wrong(self) -> None:
        if self.queue or self.oracle.completed:
            return  # now and then is enough
        assert not verified(self.place).damages


class MemoryMachine(JournalMachine):
    """The same in memory."""

    home: ClassVar[Callable[[], AbstractContextManager[object]]] = in_memory


class PostgresMachine(JournalMachine):
    """The same in PostgreSQL."""

    @staticmethod
    def home() -> AbstractContextManager[object]:
        from tests.relay.store.in_postgres import Stores, in_postgres

        assert Stores.all is not None  # by the fixture
        return in_postgres(Stores.all)


SETTINGS = settings(
    max_examples=20 * ROUNDS,
    stateful_step_count=40,
    deadline=None,
    derandomize=ROUNDS == 1,
    phases=[Phase.generate],  # to shrink what waits for a disk takes minutes
)
JournalMachine.TestCase.settings = MemoryMachine.TestCase.settings = SETTINGS
PostgresMachine.TestCase.settings = settings(SETTINGS, max_examples=3 * ROUNDS)
REPLACED = pytest.mark.skipif("log" in compiled_parts(), reason="names in machine code cannot be replaced")
TestJournal = pytest.mark.slow(JournalMachine.TestCase)
TestJournalInMemory = pytest.mark.slow(REPLACED(MemoryMachine.TestCase))
TestJournalInPostgres = pytest.mark.slow(
    REPLACED(pytest.mark.usefixtures("stores")(PostgresMachine.TestCase))
)


# -- damage -------------------------------------------------------------------------------------------


def _fill(place: Path) -> None:
    """Two topics with completed and open epochs, one of them trimmed."""
    random, journal = Random(3), Journal.open(place)
    for slot in (1, 2):
        writes: list[Write] = []

        def note(step_log: StepLog, step: Step, done: Sequence[Completed], to: list[Write] = writes) -> None:
            to.append(Noted(step_log.slot, step, tuple(done), step_log.completed, 9))

        topic = Topic(f"t{slot}", Order(0), 2, lasting=True)
        step_log = StepLog(topic, slot, slot, 1 << 20, note)
        writes.append(kept(step_log))
        for producer in (1, 2):
            step_log.join(producer, producer - 1, name=f"p{producer}", away=1000)
        for time in range(40):
            for producer in (1, 2):
                step_log.send(producer, time, random.randbytes(random.randrange(60)))
                step_log.progress(producer, [(time, -1), (time + 1, +1)])
        journal.write(writes)
        step_log.written(step_log.position)
        if slot == 2:
            step_log.forget([each for each, _ in journal.epochs(slot, 1, 10)])
            journal.write([kept(step_log)])
    journal.close()


def _all(place: Path) -> Any:
    """All that a start and readers would be given."""
    journal = JournalReader.open(place)
    try:
        if journal.shortfall():
            raise LogDamaged(journal.shortfall())
        found = []
        for slot in journal.slots():
            step_log = recovered(journal, slot)
            at, pieces = step_log.oldest - 1, []
            while at < step_log.completed:
                pieces += journal.pieces(slot, 2, at, step_log.completed, None, 1 << 20)
                at = pieces[-1].number
            steps = list(journal.steps(slot, pieces[0].number if slot == 1 else step_log.position))
            places = [journal.number_at(slot, Antichain([time]), step_log.oldest) for time in (0, 15, 99)]
            begun = history.beginning(journal, step_log, history.sought(step_log, Antichain([20])))
            found.append(
                (slot, step_log.number, step_log.topic.name, step_log.dump(), pieces, steps, places, begun)
            )
        return found
    finally:
        journal.close()


@pytest.mark.slow
def test_a_flipped_bit_is_found_or_means_nothing(tmp_path: Path) -> None:
    _fill(tmp_path / "whole")
    wanted, whole = _all(tmp_path / "whole"), (tmp_path / "whole" / "topics.sqlite").read_bytes()
    random, refused, same = Random(17), 0, 0
    for _ in range(200 * ROUNDS):
        at, bit = random.randrange(len(whole)), random.randrange(8)
        altered = bytearray(whole)
        altered[at] ^= 1 << bit
        shutil.copytree(tmp_path / "whole", tmp_path / "copy")
        (tmp_path / "copy" / "topics.sqlite").write_bytes(altered)
        try:
            assert _all(tmp_path / "copy") == wanted, f"bit {bit} of byte {at} was served"
            same += 1
        except (LogDamaged, LogFailed):
            refused += 1
            found = verify_topics(tmp_path / "copy")
            assert found is not None and found.damages
        shutil.rmtree(tmp_path / "copy")
    assert refused > 50 and same > 5  # the file is mostly content, and has some free space


def test_a_file_that_ends_too_early_is_found(tmp_path: Path) -> None:
    _fill(tmp_path)
    path = tmp_path / "topics.sqlite"
    whole = path.read_bytes()
    for pages in range(len(whole) // 4096):
        path.write_bytes(whole[: pages * 4096])
        with pytest.raises((LogDamaged, LogFailed)):
            _all(tmp_path)
        found = None
        try:
            found = verify_topics(tmp_path)
        except LogFailed:
            continue
        assert found is not None and found.damages


def test_steps_that_were_acknowledged_and_are_not_there_are_missed(tmp_path: Path) -> None:
    Journal.open(tmp_path).close()
    empty = (tmp_path / "topics.sqlite").read_bytes()
    _fill(tmp_path)
    (tmp_path / "topics.sqlite").write_bytes(empty)
    with pytest.raises(LogDamaged, match=r"steps of topics were acknowledged, it holds 0; accept the damage"):
        Journal.open(tmp_path)
    assert verify_topics(tmp_path).damages[0].endswith("were acknowledged, it holds 0")  # type: ignore[union-attr]
    Journal.open(tmp_path, accept_damage=True).close()
    Journal.open(tmp_path).close()


# -- going on after a damage --------------------------------------------------------------------------


@HOMES
def test_a_damaged_topic_can_be_ended(tmp_path: Path) -> None:
    _fill(tmp_path)
    _altered(tmp_path, "UPDATE topics SET body = x'90' WHERE slot = 1")
    with closing(Journal.open(tmp_path)) as journal:
        with pytest.raises(LogDamaged, match="topic of slot 1 was altered"):
            recovered(journal, 1)
        journal.write([Ended(1)])
    with closing(Journal.open(tmp_path)) as journal:
        assert journal.slots() == [2]
        assert recovered(journal, 2).topic.name == "t2"
    assert not verified(tmp_path).damages


@HOMES
@pytest.mark.parametrize(
    "damage",
    [
        f"DELETE FROM segments WHERE segment >> {KEY_BITS} = 1",
        "DELETE FROM topics WHERE slot = 1",
        "UPDATE meta SET value = x'00' WHERE name = 'ends'",
    ],
)
def test_topics_that_may_lack_their_last_steps_are_others_once_that_is_accepted(
    damage: str, tmp_path: Path
) -> None:
    """Their numbers go on from an earlier one, so they would mean two things."""
    _fill(tmp_path)
    _altered(tmp_path, damage)
    with pytest.raises(LogDamaged, match=r"; accept the damage to continue without what is missing"):
        Journal.open(tmp_path)
    assert verified(tmp_path).damages
    Journal.open(tmp_path, accept_damage=True).close()
    with closing(Journal.open(tmp_path)) as journal:
        assert all(journal.topic(slot).number > 2 for slot in journal.slots())
        new = StepLog(Topic("new", Order(0), 1, lasting=True), 3, 9, 1 << 20)
        journal.write([kept(new)])
    assert not verified(tmp_path).damages


def _altered(place: Path, question: str) -> None:
    with closing(JournalReader.open(place)) as journal:
        assert asked(journal, f"{question} RETURNING 1") == [(1,)]


def _one_by_one(place: Path) -> None:
    """Adds a hundred epochs to a topic, each in a segment of its own."""
    with closing(Journal.open(place)) as journal:
        step_log = recovered(journal, 1)
        for time in range(40, 140):
            noted: list[Write] = []
            step_log.write = lambda step_log, step, done, to=noted: to.append(
                Noted(1, step, tuple(done), step_log.completed, 9)
            )
            step_log.finish(1, time, b"x", [(time, -1), (time + 1, +1)])
            step_log.finish(2, time, b"y", [(time, -1), (time + 1, +1)])
            journal.write(noted)


@HOMES
@pytest.mark.parametrize("column", ["last", "until"])
@pytest.mark.parametrize("value", [0, 1 << 30])
def test_an_altered_number_misleads_no_search(column: str, value: int, tmp_path: Path) -> None:
    """Searches halve the segments by these numbers, and read only where they end."""
    _fill(tmp_path)
    _one_by_one(tmp_path)
    altered = "SELECT segment FROM segments WHERE since > 90 ORDER BY segment LIMIT 1"
    _altered(tmp_path, f"UPDATE segments SET {column} = {value} WHERE segment = ({altered})")
    journal = JournalReader.open(tmp_path)
    with closing(journal), closing(Journal.open(tmp_path)) as writer:
        step_log, found = StepLog(Topic("t1", Order(0), 2, lasting=True), 1, 1), 0
        step_log.position = step_log.durable = 1 << 20
        for number in range(1, 141):
            with suppress(LogDamaged):
                assert [each.number for each, _ in journal.epochs(1, number, number)] == [number]
                found += 1
            with suppress(LogDamaged):
                begun = history.beginning(
                    journal, step_log, history.sought(step_log, Antichain([number - 1]))
                )
                step = next(journal.steps(1, begun))
                assert step.position == begun + 1 and step.batch is not None and step.batch[1] == number - 1
        assert 0 < found < 140, "some are there, and some are not"
        assert writer.damages_of(1)


@REPLACED
def test_a_first_step_that_is_deleted_while_it_is_read_is_not_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer trims a topic in a thread of its own, beside those that read."""
    _fill(tmp_path)
    _one_by_one(tmp_path)
    with closing(Journal.open(tmp_path)) as journal:
        chain, fetch = journal._chain(1), journal._tables.fetch
        second = next(chain.walk(chain.first + 1, limit=1)).first
        first = chain.first

        def fetched(*args: int) -> object:
            chain.first = first + 1
            return fetch(*args)

        monkeypatch.setattr(journal._tables, "fetch", fetched)
        assert journal.first_step(1) == second and chain.first == first + 1


def test_compaction_joins_segments_and_changes_no_answer(tmp_path: Path) -> None:
    _fill(tmp_path)
    _one_by_one(tmp_path)
    wanted = _all(tmp_path)
    before, after = compact_topics(tmp_path)  # type: ignore[misc]
    assert after < before and _all(tmp_path) == wanted
    with closing(JournalReader.open(tmp_path)) as reader:
        assert asked(reader, "SELECT count(*) FROM segments") == [(2,)]
    assert compact_topics(tmp_path / "nothing") is None


@HOMES
def test_a_topic_that_is_not_on_disk_yet_has_no_steps(tmp_path: Path) -> None:
    """A subscriber may come while the first write of a topic is under way."""
    with closing(Journal.open(tmp_path)) as journal:
        step_log = StepLog(Topic("new", Order(0), 1, lasting=True), 3, 9, 1 << 20)
        step_log.join(1)
        assert history.beginning(journal, step_log, history.sought(step_log, Antichain([0]))) == 0
        assert not list(journal.steps(9, 0)) and not list(journal.epochs(9))
        journal.write([kept(step_log)])
        assert (
            journal.slots() == [9]
            and history.beginning(journal, step_log, history.sought(step_log, Antichain([0]))) == 0
        )
        journal.write([Ended(9)])
        assert journal.slots() == [] and list(journal.steps(9, 0)) == []
