"""The machine of a durable topic: who comes back reads its steps, and all of it is made again at times.

Those who resume are told the past by the steps, from anywhere before what they want, and join the others
where that meets the present, as ``server/topics/catch_up`` does it with a disk.  A restart makes the topic
again from a state that it once was and the steps since; no line outlives it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dataspace.errors import Refused
from dataspace.topics.times import Antichain
from index.values.values import Value
from relay.topics.feed import CatchUp
from relay.topics.steps import Completed, Moved, Step, StepLog
from relay.topics.topic import Topic
from tests.relay.topics.machine import Machine, Watcher


class DurableMachine(Machine):
    """A machine whose topic lasts."""

    def __init__(self, seed: int, *, dimensions: int, partitions: int) -> None:
        super().__init__(seed, dimensions=dimensions, partitions=partitions)
        self.steps: list[Step] = []
        self.lowers: dict[int, Moved] = {0: ()}
        self.completed: list[Completed] = []
        self.ledger = self.made(partitions)
        self.state: tuple[int, Value] = (0, self.ledger.dump())

    def made(self, partitions: int) -> StepLog:
        self.topic = Topic("t", self.order, partitions, lasting=True)
        return StepLog(self.topic, 1, 1, 1 << 40, self.write)

    def write(self, ledger: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        self.steps.append(step)
        self.lowers[step.position] = ledger.lowers()
        self.completed += completed
        if self.random.random() < 0.1:
            self.state = (step.position, ledger.dump())

    def resume(self) -> bool:
        """A subscriber reconnects where it was."""
        old = self.unsubscribe()
        return old is not None and self.resumed(old)

    def resumed(self, old: Watcher) -> bool:
        if not old.subscriber.ready or not len(old.subscriber.frontier):
            return False
        try:
            since = self.ledger.check_as_of(tuple(old.subscriber.frontier), old.queues)
        except Refused:
            return False  # yet to come, since it follows others
        watcher = self.watch(sorted(old.queues))
        watcher.begun, watcher.since = frozenset(), tuple(since)
        catching = CatchUp(
            self.ledger,
            watcher.number,
            list(old.queues),
            watcher.since,
            watcher.tell,
            lambda: self.end(watcher),
        )
        at = self.random.choice([each for each in self.lowers if each < self.first(since)])
        catching.begin(at)
        catching.take(self.steps[at : self.random.randint(at, len(self.steps))])
        catching.take(self.steps[catching.at : self.ledger.tail_begin()])
        assert catching.finish(), "what is not on the disk is in memory"
        return True

    def first(self, since: Antichain) -> int:
        """Where the oldest batch is at or after some times, or beyond all steps."""
        sent = [each.position for each in self.steps if each.batch is not None]
        wanted = [each for each in sent if since.less_equal(self.steps[each - 1].form[3])]
        return min(wanted, default=len(self.steps) + 1)

    def restart(self) -> bool:
        """The topic is made again; producers are away meanwhile, subscribers resume where they can."""
        if self.random.random() < 0.8:
            return False
        before, steps, completed = self.ledger.dump(), self.steps, self.completed
        there = [each for each in self.watchers if not each.gone and not each.over]
        position, state = self.state
        self.ledger = self.made(len(self.topic.partitions))
        self.ledger.load(state)
        self.steps, self.completed = [], []
        for step in steps[position:]:
            self.ledger.again(step)
        assert self.ledger.dump() == before and self.steps == steps[position:]
        assert self.completed == [
            each for each in completed if each.number > len(completed) - len(self.completed)
        ]
        self.steps, self.completed = steps, completed
        for watcher in there:
            watcher.gone = True
            self.resumed(watcher)
        return True

    def step(self) -> None:
        if self.random.random() < 0.05:
            self.did["restart"] += self.restart()
        super().step()
