"""Topics that are followed while they are written, trimmed and ended are what the journal holds of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from random import Random

import pytest

from dataspace.topics.epochs import Gathering
from dataspace.topics.messages import Message
from dataspace.topics.subscriber import Subscriber
from dataspace.topics.times import Order, Time
from relay.journal import followed, history
from relay.journal.followed import FollowedJournal
from relay.journal.following import TopicsFollowing
from relay.journal.journal import Journal
from relay.journal.reader import recovered
from relay.journal.rows import Ended, Kept, Noted, Write
from relay.log.chain import READ_BYTES
from relay.topics.feed import CatchUp
from relay.topics.steps import Completed, Step, StepLog
from relay.topics.topic import Topic

Epochs = list[tuple[Time, tuple[bytes, ...], bool]]

PARTITIONS = 2
ITEMS = b"\x91\x01"


class Leader:
    """What writes topics, one at a time, some steps in each transaction."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = Journal.open(directory)
        self.slot = self.number = 0
        self.queue: list[Write] = []
        self.written: list[Step] = []
        """The steps of the topic on disk since it began."""
        self.make()

    def make(self) -> None:
        self.slot += 1
        self.number += 1
        topic = Topic("t", Order(0), PARTITIONS, lasting=True)
        self.step_log = StepLog(topic, self.number, self.slot, 1 << 20, self.note)
        self.written = []
        self.keep()
        self.producers: list[int] = []
        for _ in range(PARTITIONS):
            self.join()

    def note(self, step_log: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        self.queue.append(Noted(step_log.slot, step, tuple(completed), step_log.completed, step.position))

    def keep(self) -> None:
        step_log = self.step_log
        shape = (step_log.slot, step_log.number, "t", 0, PARTITIONS, step_log.retain, None)
        now = (step_log.position, step_log.dump(), b"", step_log.oldest, step_log.first_needed())
        self.queue.append(Kept(*shape, *now))

    def write(self, count: int = 1) -> None:
        """The first writes that wait, in one transaction."""
        some, self.queue = self.queue[:count], self.queue[count:]
        if some:
            self.journal.write(some)
        for each in some:
            if isinstance(each, Noted) and each.slot == self.slot:
                self.written.append(each.step)
                self.step_log.written(each.step.position)

    # -- what may happen ------------------------------------------------------------------------------

    def flush(self) -> None:
        self.write(len(self.queue))

    def join(self) -> None:
        self.number += 1
        self.step_log.join(self.number, self.number % PARTITIONS)
        self.producers.append(self.number)

    def send(self) -> None:
        """A call of an epoch that is open."""
        for producer in self.producers[:1]:
            self.step_log.send(producer, self.step_log.topic.holds(producer)[0][0], ITEMS)

    def advance(self) -> None:
        for producer in self.producers:
            time = self.step_log.topic.holds(producer)[0][0]
            assert isinstance(time, int)
            self.step_log.finish(producer, time, ITEMS, [(time, -1), (time + 1, +1)])

    def leave(self) -> None:
        if self.producers:
            self.step_log.leave(self.producers.pop(0))

    def trim(self) -> None:
        """Forgets the older half of the epochs on disk."""
        self.flush()
        step_log = self.step_log
        epochs = [epoch for epoch, _ in self.journal.epochs(self.slot, step_log.oldest)]
        if going := epochs[: (len(epochs) + 1) // 2]:
            step_log.forget(going)
            self.keep()
            self.flush()

    def restart(self) -> None:
        """What was not written is lost, and producers crash."""
        self.queue.clear()
        self.journal.close()
        self.journal = Journal.open(self.directory)
        if self.slot not in self.journal.slots():
            self.slot = max(self.journal.slots(), default=0)
            self.make()
            return
        self.step_log = recovered(self.journal, self.slot)
        self.step_log.write = self.note
        for producer in list(self.step_log.members):
            self.step_log.crash(producer, "the daemon was started again")
        self.producers = []
        self.join()

    def end(self) -> None:
        """The topic ends, and another one gets its name."""
        self.queue.append(Ended(self.slot))
        self.make()


class Follower:
    """What follows the topics, with one subscriber of each from when it appears."""

    def __init__(self, directory: Path) -> None:
        self.journal = FollowedJournal.open(directory)
        self.told: dict[int, list[Message]] = {}
        self.since: dict[int, int] = {}
        self.ended: list[tuple[StepLog, bool]] = []
        self.skips = 0
        self.step_log: StepLog | None = None
        self.following = TopicsFollowing(
            self.journal,
            appeared=self._appeared,
            moved=lambda step_log: None,
            ended=lambda step_log, whole: self.ended.append((step_log, whole)),
            skipped=self._skipped,
            flush=lambda: None,
        )

    def _appeared(self, step_log: StepLog) -> None:
        self.step_log = step_log
        told = self.told[step_log.number] = []
        self.since[step_log.number] = step_log.position
        step_log.topic.subscribe(1, range(PARTITIONS), told.append, lambda: None)

    def _skipped(self, before: StepLog, step_log: StepLog) -> None:
        assert before is self.step_log
        self.skips += 1
        self.step_log = step_log

    def look(self) -> None:
        self.following.begin()

    def read(self, as_of: Time) -> Epochs:
        """The epochs that are told to a subscriber of the past."""
        step_log, told = self.step_log, list[Message]()
        assert step_log is not None
        catching = CatchUp(step_log, 2, range(PARTITIONS), [as_of], told.append, lambda: None)
        catching.begin(history.beginning(self.journal, step_log, history.sought(step_log, catching.since)))
        while not catching.finish():
            catching.replay(self.journal.past(step_log, catching.at))
        step_log.topic.unsubscribe(2)
        return gathered(told)


def gathered(told: Sequence[Message]) -> Epochs:
    """The whole epochs in some messages."""
    subscriber, gathering = Subscriber(tuple(range(PARTITIONS)), atomic=True, up_to=None), Gathering(1 << 20)
    events = [event for message in told for event in subscriber.events_of(message)]
    found = [epoch for event in events for epoch in gathering.collect(event)]
    return [
        (each.time, tuple(batch.items for batch in each.batches), bool(each.crashed))  # type: ignore[misc]
        for each in found
    ]


def expected(steps: Sequence[Step], since: int) -> list[Message]:
    """What is told to a subscriber who came when the steps up to a position were done."""
    told = list[Message]()
    step_log = StepLog(Topic("t", Order(0), PARTITIONS, lasting=True), 1, 1, 1 << 20)
    for step in steps:
        if step.position == since + 1:
            step_log.topic.subscribe(1, range(PARTITIONS), told.append, lambda: None)
        step_log.again(step)
    if since == len(steps):
        step_log.topic.subscribe(1, range(PARTITIONS), told.append, lambda: None)
    return told


def check(leader: Leader, follower: Follower) -> None:
    """Both are the same, now that all is written and read."""
    step_log = follower.step_log
    assert step_log is not None and step_log.number == leader.step_log.number
    assert step_log.dump() == leader.step_log.dump()
    assert step_log.durable == step_log.position == len(leader.written)
    assert (step_log.completed_durable, step_log.oldest) == (
        leader.step_log.completed,
        leader.step_log.oldest,
    )
    if not follower.skips:
        since = follower.since[step_log.number]
        assert gathered(follower.told[step_log.number]) == gathered(expected(leader.written, since))
        assert follower.told[step_log.number] == expected(leader.written, since)
    last = leader.step_log.completed
    pieces = (leader.slot, PARTITIONS, step_log.oldest - 1, last, None, 1 << 20)
    assert follower.journal.pieces(*pieces) == leader.journal.pieces(*pieces)
    held = [epoch.time for epoch, _ in leader.journal.epochs(leader.slot, step_log.oldest)]
    whole = [each for each in gathered(expected(leader.written, 0)) if each[0] in held]
    for time in held:
        assert [each for each in follower.read(time) if each[0] in held] == whole[held.index(time) :]


ALPHABET: tuple[Callable[[Leader, Follower], object], ...] = (
    lambda leader, _: leader.send(),
    lambda leader, _: leader.advance(),
    lambda leader, _: leader.join(),
    lambda leader, _: leader.leave(),
    lambda leader, _: leader.write(),
    lambda leader, _: leader.trim(),
    lambda leader, _: leader.restart(),
    lambda leader, _: leader.end(),
    lambda _, follower: follower.look(),
)

Life = Sequence[Callable[[Leader, Follower], object]]


def live(directory: Path, life: Life) -> Follower:
    """Follows a leader through a life, and compares the two at its end."""
    leader = Leader(directory)
    leader.flush()
    follower = Follower(directory)
    follower.look()
    for do in life:
        do(leader, follower)
    leader.advance()
    leader.flush()
    follower.look()
    check(leader, follower)
    follower.journal.close()
    leader.journal.close()
    return follower


def epoch(leader: Leader, _: Follower) -> None:
    """An epoch in a transaction of its own."""
    leader.advance()
    leader.flush()


BEGINNINGS: dict[str, Life] = {
    "new": (),
    "read": (epoch, epoch, ALPHABET[-1]),
    "unread": (epoch, epoch, epoch),
}
DEPTHS = {"sqlite": 2, "memory": 3, "postgres": 2}
THOROUGH = "TORTURE_ROUNDS" in os.environ
SHARES = {
    "sqlite": slice(None),
    "memory": slice(None, None, None if THOROUGH else 7),
    "postgres": slice(2, None, 7),
}
"""Which of the lives a home has."""
LIVES = {"sqlite": 20, "memory": 20, "postgres": 2}


@pytest.mark.torture
@pytest.mark.parametrize("size", [1, READ_BYTES])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_every_short_life_is_followed(
    tmp_path: Path, home: str, beginning: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "READ_BYTES", size)
    skips, ends = 0, set[bool]()
    for at, life in enumerate([*product(ALPHABET, repeat=DEPTHS[home])][SHARES[home]]):
        follower = live(tmp_path / str(at), (*BEGINNINGS[beginning], *life))
        skips += follower.skips
        ends |= {whole for _, whole in follower.ended}
    assert ends == {False, True}, "some topics ended after all of them was read, and some before"
    assert skips > 0 or beginning != "unread"


def test_a_long_life_is_followed(tmp_path: Path, home: str) -> None:
    chance = Random(7)
    for at in range(LIVES[home]):
        live(tmp_path / str(at), chance.choices(ALPHABET, k=60))


QUESTIONS = ("version", "heads", "topic_moment", "fetch", "checksum_of", "first_by_last")


def interrupt(tables: object, act: Callable[[], None]) -> None:
    """Has something happen after each question to tables."""

    def interrupted(question: Callable[..., object]) -> Callable[..., object]:
        def asked(*args: object) -> object:
            found = question(*args)
            act()
            return found

        return asked

    for name in QUESTIONS:
        setattr(tables, name, interrupted(getattr(tables, name)))


def test_a_leader_may_write_between_any_two_questions(tmp_path: Path, home: str) -> None:
    chance = Random(8)

    def some(leader: Leader, follower: Follower) -> None:
        """The follower looks, while the leader does something again and again."""
        left = iter(range(40))

        def act() -> None:
            while chance.random() < 0.6 and next(left, None) is not None:
                chance.choice(ALPHABET[:-1])(leader, follower)

        interrupt(follower.journal._tables, act)
        follower.look()
        for _ in left:
            pass

    for at in range(3 * LIVES[home]):
        live(tmp_path / str(at), [*[epoch] * 4, ALPHABET[-1], epoch, some])


@pytest.mark.parametrize("acts", [(5, 1), (5, 7, 1), (7, 1), (1, 5, 1)])
def test_a_leader_may_trim_after_any_question(tmp_path: Path, home: str, acts: Sequence[int]) -> None:
    def look(at: int) -> Callable[[Leader, Follower], object]:
        def looking(leader: Leader, follower: Follower) -> None:
            asked = iter(range(at))

            def act() -> None:
                if next(asked, None) == at - 1:
                    for each in acts:
                        ALPHABET[each](leader, follower)
                    leader.flush()

            interrupt(follower.journal._tables, act)
            follower.look()

        return looking

    for at in range(1, 12):
        live(tmp_path / str(at), [*[epoch] * 4, ALPHABET[-1], epoch, look(at)])
