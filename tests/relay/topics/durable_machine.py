"""The machine of a durable topic: who comes back reads its steps, and all of it is made again at times.

Those who resume are told the past by the steps, from anywhere before what they want, and join the others
where that meets the present, as ``server/topics/catch_up`` does it with a disk.  A restart makes the topic
again from a state that it once was and the steps since; no line outlives it.  Steps are on the disk some time
after they are made.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataspace.errors import Refused
from dataspace.topics.messages import CRASH, LEAVE
from dataspace.topics.times import Antichain, Time
from index.values.values import Value
from relay.topics.feed import CatchUp
from relay.topics.steps import JOIN, Completed, Moved, Step, StepLog
from relay.topics.topic import Topic
from tests.relay.topics.machine import Machine, Watcher


class DurableMachine(Machine):
    """A machine whose topic lasts."""

    def __init__(self, seed: int, *, dimensions: int, partitions: int) -> None:
        super().__init__(seed, dimensions=dimensions, partitions=partitions)
        self.steps: list[Step] = []
        self.lowers: dict[int, Moved] = {0: ()}
        self.completed: list[tuple[int, Completed]] = []
        """Each completed epoch, and the step that has completed it."""
        self.on_disk = 0
        self.is_again = False
        self.hit: set[Time] = set()
        """Open epochs of which there was something when a producer vanished that could have sent more."""
        self.step_log = self.made(partitions)
        self.state: tuple[int, Value] = (0, self.step_log.dump())

    def made(self, partitions: int) -> StepLog:
        self.topic = Topic("t", self.order, partitions, lasting=True)
        return StepLog(self.topic, 1, 1, 1 << 40, self.write)

    def write(self, step_log: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        self.steps.append(step)
        self.lowers[step.position] = step_log.lowers()
        if self.is_again:
            self.completed += [(step.position, each) for each in completed]
            return
        if step.form[0] == CRASH:
            since = Antichain(step.form[3])
            over = {each.time for _, each in self.completed}
            self.hit |= {time for _, time in self.sent if since.less_equal(time)} - over
        numbers = [each.number for each in completed]
        assert numbers == [len(self.completed) + 1 + at for at in range(len(numbers))], "numbers have gaps"
        for each in completed:
            assert bool(each.crashed) == (each.time in self.hit), f"{each} does not say who vanished"
        self.completed += [(step.position, each) for each in completed]
        if self.random.random() < 0.1:
            self.state = (step.position, step_log.dump())

    def name(self) -> str:
        name = self.random.choice(("", "a", "b", "c"))
        return "" if self.step_log.named(name) is not None else name

    def check_counts(self) -> None:
        """The steps of each producer are known as long as it is there, and afterwards if it has a name."""
        there: dict[int, tuple[str, int]] = {}
        left: dict[str, int] = {}
        for kind, producer, *rest in [each.form for each in self.steps]:
            if kind == JOIN:
                there[producer] = (rest[2], 0)
                left.pop(rest[2], None)
            elif kind in (LEAVE, CRASH):
                name, count = there.pop(producer)
                left |= {name: count} if name and kind == LEAVE else {}
            else:
                name, count = there[producer]
                there[producer] = (name, count + 1)
        assert {number: (each.name, each.steps) for number, each in self.step_log.members.items()} == there
        assert self.step_log.departed == left

    def resume(self) -> bool:
        """A subscriber reconnects where it was."""
        old = self.unsubscribe()
        return old is not None and self.resumed(old)

    def resumed(self, old: Watcher) -> bool:
        if not old.subscriber.ready or not len(old.subscriber.frontier):
            return False
        try:
            since = self.step_log.check_as_of(tuple(old.subscriber.frontier), old.queues)
        except Refused:
            return False  # yet to come, since it follows others
        watcher = self.watch(sorted(old.queues))
        watcher.begun, watcher.since = frozenset(), tuple(since)
        catching = CatchUp(
            self.step_log,
            watcher.number,
            list(old.queues),
            watcher.since,
            watcher.tell,
            lambda: self.end(watcher),
        )
        at = self.random.choice([each for each in self.lowers if each < self.first(since)])
        catching.begin(at)
        catching.replay(self.steps[at : self.random.randint(at, len(self.steps))])
        catching.replay(self.steps[catching.at : self.step_log.tail_begin()])
        assert catching.finish(), "what is not on the disk is in memory"
        return True

    def first(self, since: Antichain) -> int:
        """Where the oldest batch is at or after some times, or beyond all steps."""
        sent = [each.position for each in self.steps if each.batch is not None]
        wanted = [each for each in sent if since.less_equal(self.steps[each - 1].form[3])]
        return min(wanted, default=len(self.steps) + 1)

    def write_some(self) -> None:
        """Some steps come to the disk; whoever reads that must find there what it asks for."""
        self.on_disk = self.random.randint(self.on_disk, len(self.steps))
        self.step_log.written(self.on_disk)
        assert self.step_log.durable == self.on_disk, "a step counts as on disk that is not"
        times = [step.form[3] for step in self.steps if step.batch is not None]
        if times:
            since = Antichain([self.random.choice(times)])
            begun = [self.step_log.begun_at_or_after(since), self.on_disk + 1]
            there = [
                each for at, each in self.completed if at <= self.on_disk and since.less_equal(each.time)
            ]
            begun += [each.begun for each in there[:1]]
            assert min(begun) <= self.first(since), "a reader of the disk begins after what it asks for"

    def restart(self) -> bool:
        """The topic is made again; producers are away meanwhile, subscribers resume where they can."""
        if self.random.random() < 0.8:
            return False
        before, steps, completed = self.step_log.dump(), self.steps, self.completed
        there = [each for each in self.watchers if not each.gone and not each.over]
        position, state = self.state
        self.on_disk = len(self.steps)
        self.step_log = self.made(len(self.topic.partitions))
        self.step_log.load(state)
        self.steps, self.completed, self.is_again = [], [], True
        for step in steps[position:]:
            self.step_log.again(step)
        self.is_again = False
        assert self.step_log.dump() == before and self.steps == steps[position:]
        assert self.completed == completed[len(completed) - len(self.completed) :]
        self.steps, self.completed = steps, completed
        for watcher in there:
            watcher.gone = True
            self.resumed(watcher)
        return True

    def step(self) -> None:
        if self.random.random() < 0.05:
            self.did["restart"] += self.restart()
        super().step()
        self.write_some()


def failure(seed: int) -> str | None:
    """Returns what is wrong in the life of a topic that a seed draws; None if nothing is."""
    machine = DurableMachine(seed // 6, dimensions=seed % 2 * 2, partitions=1 + seed // 2 % 3)
    for number in range(120):
        try:
            machine.step()
        except Exception as error:  # noqa: BLE001  # whatever the topic raises is wrong
            return f"{number}: {error!r}"
    try:
        machine.settle()
        machine.check_counts()
        machine.check()
        machine.check_resumed()
    except AssertionError as error:
        return f"in the end: {error}"
    return None
