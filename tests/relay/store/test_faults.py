"""Whatever a home does to a write, what was accepted is there afterwards, whole, and no number comes twice.

The log and the journal are driven over tables in memory that have no room, refuse, lose their last commits in
a crash, or do a write and say that they do not know.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dataspace.topics.times import Order
from relay.journal.journal import Journal
from relay.journal.reader import recovered
from relay.journal.rows import Noted
from relay.log.log import Log
from relay.log.retention import Retention
from relay.log.writer import GroupCommit
from relay.store.errors import LogDamaged, LogFailed
from relay.store.staging import Staging
from relay.topics.steps import Completed, Step, StepLog
from relay.topics.topic import Topic
from tests.relay.journal.test_journal import kept
from tests.relay.log.histories import append, epoch, flight
from tests.relay.store.memory import Fault, Memory, MemoryLog, MemoryStaged, MemoryTopics

FAULTS = st.sampled_from(list(Fault))


class LogMachine(RuleBasedStateMachine):
    """A log in memory, and what of it was accepted, refused, and is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.accepted: list[int] = []
        self.unknown: list[int] = []
        self.highest = 0
        self.is_over = False
        self.begin()

    def begin(self) -> None:
        self.log = Log(MemoryLog(self.memory))
        assert self.log.next_epoch > self.highest, "no number comes twice"
        self.state = self.log.recover()
        held = [each.number for each in self.log.read(self.log.oldest - 1)]
        wanted = [each for each in self.accepted if each >= self.log.oldest]
        assert set(wanted) <= set(held) <= {*wanted, *self.unknown}
        assert set(self.accepted) <= self.claims() <= {*self.accepted, *self.unknown}
        self.accepted, self.unknown = sorted({*self.accepted, *held}), []
        self.is_over = False

    def claims(self) -> set[int]:
        return {handle // 1000 for held in self.state.owners.values() for handle in held}

    @precondition(lambda self: not self.is_over)
    @rule(count=st.integers(1, 3), fault=st.none() | FAULTS)
    def write(self, count: int, fault: Fault | None) -> None:
        numbers = range(self.log.issued + 1, self.log.issued + 1 + count)
        made = [epoch(number, flight(number)) for number in numbers]
        self.memory.faults += [fault] if fault else []
        self.highest = max(self.highest, numbers[-1])
        self.log.issue(numbers[-1])
        if fault is not None:
            with pytest.raises(LogFailed) as failure:
                append(self.log, *made)
            assert failure.value.full == (fault is Fault.FULL)
            assert self.log.last == max(self.accepted, default=0), "nothing of it is read"
        if fault in (None, Fault.FULL):  # with room again the same is written
            append(self.log, *made)
            self.accepted += numbers
            for each in made:
                self.state.apply(each)
            self.state.segment = self.log.last_segment
        else:
            self.is_over = True
            self.unknown = list(numbers) if fault is Fault.UNKNOWN else []
            with pytest.raises(LogFailed):
                append(self.log, *made)

    @precondition(lambda self: not self.is_over)
    @rule(fault=st.none() | FAULTS, after=st.integers(0, 2))
    def snapshot(self, fault: Fault | None, after: int) -> None:
        """A snapshot is made, unless one of its writes fails; then the one before stays."""
        before = self.log.snapshot_epoch()
        try:
            writer = self.log.snapshot(self.state)
            for step in range(3):
                self.memory.faults += [fault] if fault and step == after else []
                writer.step()
        except LogFailed as failure:
            self.is_over = not failure.full
            done = fault is Fault.UNKNOWN and self.log.snapshot_epoch() == self.state.epoch
            assert done or self.log.snapshot_epoch() == before
        self.memory.faults.clear()

    @precondition(lambda self: not self.is_over)
    @rule(fault=st.none() | FAULTS)
    def trim(self, fault: Fault | None) -> None:
        self.memory.faults += [fault] if fault else []
        before = self.log.oldest
        try:
            self.log.trim(Retention(age=0.0), 1 << 60)
        except LogFailed as failure:
            assert self.log.oldest == before
            self.is_over = not failure.full
        self.memory.faults.clear()

    @rule()
    def restart(self) -> None:
        """The process was killed."""
        self.memory.crash()
        self.begin()

    @precondition(lambda self: not self.is_over)
    @rule()
    def end(self) -> None:
        self.log.close()
        self.begin()

    @precondition(lambda self: not self.is_over and self.accepted)
    @rule(lost=st.integers(1, 4))
    def lose(self, lost: int) -> None:
        """The home loses its last commits; lost epochs are missed, and an operator goes on without them."""
        last = self.log.last_segment
        self.memory.crash(lost)
        try:
            self.begin()
        except LogDamaged:
            assert MemoryLog(self.memory).moment().ends is None or self.last_kept() < last
        else:
            return
        self.log = Log(MemoryLog(self.memory), accept_damage=True)
        assert self.log.next_epoch > self.highest
        self.log.recover()
        self.log.close()
        self.accepted = [each for each in self.accepted if each in self.held()]
        self.begin()

    def last_kept(self) -> int:
        ends = MemoryLog(self.memory).ends(0)
        return ends.newest if ends else 0

    def held(self) -> set[int]:
        log = Log(MemoryLog(self.memory))
        state = log.recover()
        return {handle // 1000 for held in state.owners.values() for handle in held}

    @invariant()
    def it_is_whole(self) -> None:
        if not self.is_over:
            assert not list(self.log.damages())


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestLog = LogMachine.TestCase


# -- the tasks that write ---------------------------------------------------------------------------


async def test_a_group_for_which_there_is_room_again_is_accepted_once() -> None:
    memory, accepted = Memory(), list[int]()
    log = Log(MemoryLog(memory))
    commits = GroupCommit(log)
    memory.faults += [Fault.FULL]
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.run)
            for number in (1, 2):
                commits.submit(epoch(number, flight(number)), lambda done: accepted.append(done.number))
            await commits.wait_durable(2)
            await commits.close()
    assert accepted == [1, 2] and [each.number for each in log.read(0)] == [1, 2]


@pytest.mark.parametrize(("fault", "held"), [(Fault.FAILED, []), (Fault.UNKNOWN, [1])])
async def test_a_group_whose_write_raised_is_never_accepted(fault: Fault, held: list[int]) -> None:
    memory, accepted = Memory(), list[int]()
    commits = GroupCommit(Log(MemoryLog(memory)))
    memory.faults += [fault]
    commits.submit(epoch(1, flight(1)), lambda done: accepted.append(done.number))
    with pytest.raises(LogFailed):
        await commits.run()
    with pytest.raises(LogFailed):
        await commits.wait_durable(1)
    assert not accepted
    memory.crash()
    log = Log(MemoryLog(memory))
    assert [each.number for each in log.read(0)] == held
    assert log.next_epoch > 1


# -- durable topics ---------------------------------------------------------------------------------


class _Written:
    """A topic with a producer, whose steps are written one by one."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.journal = Journal(MemoryTopics(memory))
        topic = Topic("t", Order(0), 1, lasting=True)
        self.step_log = StepLog(topic, 7, 1, 1 << 20, self._note)
        self.journal.write([kept(self.step_log)])
        self.step_log.join(1, 0, name="p", away=1000)
        self.write()

    def _note(self, step_log: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        self._noted = Noted(step_log.slot, step, tuple(completed), step_log.completed, step.position)

    def send(self) -> None:
        """Makes a step that is not written yet."""
        self.step_log.send(1, self.step_log.position, b"item")

    def write(self) -> None:
        self.journal.write([self._noted])

    def position(self) -> int:
        """Returns where the topic goes on after the process was killed."""
        self.memory.crash()
        journal = Journal(MemoryTopics(self.memory))
        found = recovered(journal, 1).position
        assert not [damage for slot in journal.slots() for damage in journal.damages_of(slot)]
        return found


@pytest.mark.parametrize("fault", Fault)
def test_a_step_is_there_whole_or_not_at_all(fault: Fault) -> None:
    written = _Written(Memory())
    written.send()
    written.memory.faults += [fault]
    with pytest.raises(LogFailed):
        written.write()
    if fault is Fault.FULL:
        written.write()
    else:
        with pytest.raises(LogFailed):
            written.write()
    assert written.position() == (1 if fault is Fault.FAILED else 2)


def test_steps_that_a_home_has_lost_are_missed() -> None:
    written = _Written(Memory())
    written.send()
    written.write()
    written.memory.crash(1)
    with pytest.raises(LogDamaged, match="2 steps of topics were acknowledged, it holds 1"):
        Journal(MemoryTopics(written.memory))
    journal = Journal(MemoryTopics(written.memory), accept_damage=True)
    assert recovered(journal, 1).number != 7, "a client that has seen more finds another topic"
    journal.close()
    assert written.position() == 1


# -- staged batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", Fault)
async def test_a_batch_is_staged_or_is_not(fault: Fault) -> None:
    memory = Memory()
    staging = Staging(MemoryStaged(memory))
    await staging.stage(("a",), b"first")
    memory.faults += [fault]
    with pytest.raises(LogFailed):
        await staging.stage(("a",), b"second")
    if fault is Fault.FULL:
        await staging.stage(("a",), b"second")
    size = staging.statistics().bytes
    memory.crash()
    again = Staging(MemoryStaged(memory))
    whole = [b"first"] if fault is Fault.FAILED else [b"first", b"second"]
    assert await again.staged([("a",)]) == whole
    assert fault is Fault.UNKNOWN or again.statistics().bytes == size


async def test_what_there_was_no_room_to_discard_goes_before_the_next_batch() -> None:
    memory = Memory()
    staging = Staging(MemoryStaged(memory))
    await staging.stage(("a",), b"x" * 100)
    memory.faults += [Fault.FULL]
    await staging.discard(("a",))
    assert staging.statistics().keys == 1
    await staging.stage(("b",), b"y")
    assert staging.statistics().keys == 1 and await staging.staged([("b",)]) == [b"y"]
