"""A machine of one topic and whoever comes and goes: what the laws about epochs are tried on.

Messages travel to each subscriber through one queue, as from the daemon; or, ``overtaking``, through one for
each partition, as from publishers that know nothing of each other, and then an ended partition cannot
begin again.  Beside it, an oracle keeps every batch that was ever sent, by
epoch, and holds each subscriber against it after every step.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from dataspace.errors import Refused, UsageError
from dataspace.topics.messages import Batch, Crash, EpochState, Frontier, Message
from dataspace.topics.subscriber import Subscriber
from dataspace.topics.times import Order, Time, less_equal
from relay.topics.feed import CatchUp
from relay.topics.steps import StepLog
from relay.topics.topic import Topic


@dataclass(eq=False)
class Watcher:
    """A subscriber, what is on its way to it, and what it was told."""

    number: int
    subscriber: Subscriber
    queues: dict[int, deque[Message]]
    over: bool = False
    gone: bool = False
    seen: dict[tuple[int, Time], list[object]] = field(default_factory=dict)
    crashed: set[Time] = field(default_factory=set)
    told: tuple[Time, ...] | None = None
    since: tuple[Time, ...] = ()
    begun: frozenset[Time] = frozenset()
    due: frozenset[tuple[int, Time]] | None = None

    def tell(self, message: Message) -> None:
        assert not self.over and not self.gone, "told after the end"
        self.queues[message.partition].append(message)


class Machine:
    """One topic under random treatment; ``step`` does one thing, ``settle`` lets all arrive."""

    def __init__(
        self, seed: int, *, dimensions: int, partitions: int, retain: int = 0, overtaking: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.order = Order(dimensions)
        self.overtaking = overtaking
        self.topic = Topic("t", self.order, partitions)
        self.step_log = StepLog(self.topic, 1, retain=retain)
        self.numbers = iter(range(1, 1 << 30))
        self.producers: dict[int, int] = {}
        self.watchers: list[Watcher] = []
        self.sent: dict[tuple[int, Time], list[object]] = {}
        self.crashes: list[tuple[int, tuple[Time, ...]]] = []
        self.did: Counter[str] = Counter()

    # -- things that happen ---------------------------------------------------------------------------

    def step(self) -> None:
        name = self.random.choice(
            ["join", "send", "send", "send", "progress", "progress", "finish", "subscribe"]
            + ["unsubscribe", "crash", "leave", "again", "resume"]
            + ["arrive"] * 8
        )
        if getattr(self, name)():
            self.did[name] += 1

    def join(self) -> bool:
        if len(self.producers) >= 5:
            return False
        producer = next(self.numbers)
        partition = self.random.randrange(len(self.topic.partitions))
        vacant = self.topic.partitions[partition].ended
        if vacant and self.overtaking:
            return False
        time = self.some_time() if self.random.random() < 0.5 else None
        try:
            self.step_log.join(producer, partition, time, name=self.name())
        except UsageError:
            assert time is not None, "the first free time must be free"
            return False
        self.producers[producer] = partition
        self.did["rejoin"] += vacant
        return True

    def name(self) -> str:
        """A name for a producer, or none."""
        return ""

    def send(self) -> bool:
        if not self.producers:
            return False
        producer = self.random.choice(list(self.producers))
        held = [time for time, _ in self.topic.holds(producer)]
        if not held:
            return False
        time = self.later(self.random.choice(held))
        partition = self.producers[producer]
        for watcher in self.watchers:
            if partition in watcher.queues and watcher.subscriber.ready and not watcher.gone:
                assert watcher.over or watcher.subscriber.frontier.less_equal(time), (
                    "a frontier passed a time to come"
                )
        item = self.item()
        self.sent.setdefault((partition, time), []).append(item)
        self.step_log.send(producer, time, item)
        return True

    def finish(self) -> bool:
        """Items and a change as one step."""
        if not self.producers:
            return False
        producer = self.random.choice(list(self.producers))
        held = [time for time, _ in self.topic.holds(producer)]
        if not held:
            return False
        time, item = self.random.choice(held), self.item()
        self.sent.setdefault((self.producers[producer], time), []).append(item)
        self.step_log.finish(producer, time, item, [(time, -1), (self.later(time), +1)])
        return True

    def progress(self) -> bool:
        if not self.producers:
            return False
        producer = self.random.choice(list(self.producers))
        held = self.topic.holds(producer)
        if not held:
            return False
        time, _ = self.random.choice(held)
        changes = [(time, -1)]
        changes += [(self.later(time), +1) for _ in range(self.random.choice([0, 1, 1, 1, 1, 2]))]
        if self.random.random() < 0.2:
            changes = [(self.later(time), +1)]
        self.step_log.progress(producer, changes)
        return True

    def crash(self) -> bool:
        if not self.producers or self.random.random() < 0.5:
            return False
        producer = self.random.choice(list(self.producers))
        since = tuple(time for time, _ in self.topic.holds(producer))
        partition = self.producers.pop(producer)
        if since:
            self.crashes.append((partition, since))
        self.step_log.crash(producer, "gone")
        return True

    def leave(self) -> bool:
        if not self.producers or self.random.random() < 0.7:
            return False
        producer = self.random.choice(list(self.producers))
        del self.producers[producer]
        self.step_log.leave(producer)
        return True

    def subscribe(self, partitions: list[int] | None = None) -> bool:
        if len([each for each in self.watchers if not each.gone]) >= 6 and partitions is None:
            return False
        count = len(self.topic.partitions)
        chosen = partitions or self.random.sample(range(count), self.random.randint(1, count))
        watcher = self.watch(chosen)
        self.topic.subscribe(watcher.number, chosen, watcher.tell, lambda: self.end(watcher))
        return True

    def watch(self, chosen: list[int]) -> Watcher:
        one: deque[Message] = deque()
        queues = {each: deque() if self.overtaking else one for each in chosen}
        watcher = Watcher(next(self.numbers), Subscriber(chosen), queues)
        watcher.begun = frozenset(time for at, time in self.sent if at in chosen)
        self.watchers.append(watcher)
        return watcher

    def end(self, watcher: Watcher) -> None:
        watcher.over = True
        watcher.due = frozenset(self.sent)

    def unsubscribe(self) -> Watcher | None:
        """A subscriber goes; its link is cut, and what was on its way is lost."""
        there = [each for each in self.watchers if not each.gone and not each.over]
        if not there or self.random.random() < 0.5:
            return None
        watcher = self.random.choice(there)
        self.topic.unsubscribe(watcher.number)
        watcher.gone = True
        return watcher

    def again(self) -> bool:
        """A subscriber reconnects from nothing: it may miss epochs but sees none by half."""
        watcher = self.unsubscribe()
        return watcher is not None and self.subscribe(sorted(watcher.queues))

    def resume(self) -> bool:
        """A subscriber reconnects where it was, if that is retained: then it has missed nothing."""
        old = self.unsubscribe()
        if old is None or not old.subscriber.ready or not len(old.subscriber.frontier):
            return False
        watcher = self.watch(sorted(old.queues))
        as_of = tuple(old.subscriber.frontier)
        watcher.begun, watcher.since = frozenset(), as_of
        try:
            catching = CatchUp(
                self.step_log,
                watcher.number,
                list(old.queues),
                as_of,
                watcher.tell,
                lambda: self.end(watcher),
            )
        except Refused:
            self.watchers.remove(watcher)
            return False
        catching.begin(self.step_log.tail_begin())
        assert catching.finish(), "all that is retained is in memory"
        return True

    def arrive(self) -> bool:
        waiting = [(each, q) for each in self.watchers if not each.gone for q in each.queues.values() if q]
        if not waiting:
            return False
        watcher, queue = self.random.choice(waiting)
        self.deliver(watcher, queue.popleft())
        return True

    def settle(self) -> None:
        while self.arrive():
            pass

    def item(self) -> bytes:
        """Something that was never sent."""
        return b"%8d" % next(self.numbers)

    # -- times ----------------------------------------------------------------------------------------

    def later(self, time: Time) -> Time:
        if isinstance(time, tuple):
            return tuple(each + self.random.choice([0, 0, 1, 2]) for each in time)
        return time + self.random.choice([0, 0, 1, 2, 3])

    def some_time(self) -> Time:
        lower = [each for publisher in self.topic.partitions for each in publisher.lower]
        return self.later(self.random.choice(lower)) if lower else self.order.bottom

    # -- what must hold -------------------------------------------------------------------------------

    def deliver(self, watcher: Watcher, message: Message) -> None:
        for event in watcher.subscriber.events_of(message):
            match event:
                case Batch(partition, time, item):
                    assert any(less_equal(each, time) for each in watcher.told or ()), "a completed one"
                    assert time not in watcher.begun, "an epoch that had begun was delivered"
                    watcher.seen.setdefault((partition, time), []).append(item)
                case Crash(_, since, epochs, _):
                    for time in epochs:
                        assert any(less_equal(each, time) for each in since)
                        assert watcher.subscriber.state(time) is EpochState.CRASHED
                    watcher.crashed.update(epochs)
                case Frontier(times):
                    before, watcher.told = watcher.told, times
                    assert times != before
                    if before is not None:
                        assert all(any(less_equal(b, a) for b in before) for a in times), "went back"

    def check(self) -> None:
        """Each subscriber has all of an epoch or nothing; call it after ``settle``."""
        for watcher in self.watchers:
            for partition, time in watcher.seen:
                complete = not watcher.gone or (watcher.subscriber.state(time) is EpochState.COMPLETED)
                if complete:
                    self.check_whole(watcher, partition, time)

    def check_whole(self, watcher: Watcher, partition: int, time: Time) -> None:
        for each in watcher.queues:
            wanted = self.sent.get((each, time), [])
            assert watcher.seen.get((each, time), []) == wanted, f"epoch {time} by half"

    def check_resumed(self) -> None:
        """A resumed subscriber has seen every epoch from there on."""
        for watcher in self.watchers:
            if watcher.since and not watcher.gone:
                for partition, time in self.sent if watcher.due is None else watcher.due:
                    if partition in watcher.queues and any(less_equal(each, time) for each in watcher.since):
                        self.check_whole(watcher, partition, time)
