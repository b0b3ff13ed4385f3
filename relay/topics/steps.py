"""A step log: the steps of a topic in their order, and the epochs that they have completed.

It stands between producers and their topic, numbers each step, keeps the latest ones at hand, and hands each
on to be written if the topic is durable.  Only the steps are written: applied in the same order they make
the same topic again, with the same epochs under the same numbers.  A topic in memory is a durable one
without a disk: its past is the tail of steps that fits into its budget.

Always: an epoch gets its number when the frontier of all partitions has passed it, and keeps it; numbers
have no gaps and go with the order of times; a step that raises has no number; all batches at a time are
retained, or ``forgotten`` covers the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from dataspace.errors import Refused, UsageError
from dataspace.topics import messages as forms
from dataspace.topics.epochs import OpenTimes
from dataspace.topics.messages import Batch, Crashed, Message, Progress, Snapshot
from dataspace.topics.times import Antichain, Change, Maxima, MutableAntichain, Time
from index.values.values import Value
from relay.topics.topic import Topic

JOIN: Final = 4
"""The kind of step by which a producer joins; ``forms`` has the other kinds."""

OVERHEAD: Final = 128
"""Bytes that a step costs beside the items of its batch."""

TAIL_BYTES: Final = 1 << 20
"""Bytes of the latest steps of a durable topic that stay at hand, for readers of the disk that catch up."""

MOST_SOUGHT: Final = 1024
"""Epochs in memory among which a subscriber's first one is sought."""

FRONTIER_STEPS: Final = 256
"""Steps after which one states the frontiers of all partitions, for readers of the disk that began later."""

_SENDING: Final = (forms.SEND, forms.FINISH)

Moved: TypeAlias = tuple[tuple[int, tuple[Time, ...]], ...]
"""Partitions with a new lower frontier, each with that frontier."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.  ``form`` is its kind, its producer, and by kind

    ======  =======================================================
    SEND    partition, time, items
    CHANGE  changes, moved
    FINISH  partition, time, items, changes, moved
    LEAVE   moved
    CRASH   partition, since, reason, moved
    JOIN    partition, time, name, milliseconds it may be away, moved
    ======  =======================================================
    """

    position: int
    form: tuple[Any, ...]

    @property
    def moved(self) -> Moved:
        """Returns the frontiers that it moved."""
        return () if self.form[0] == forms.SEND else self.form[-1]

    @property
    def size(self) -> int:
        """Returns its cost in bytes."""
        batch = self.batch
        return OVERHEAD + (len(batch[2]) if batch is not None else 0)

    @property
    def batch(self) -> tuple[int, Time, bytes] | None:
        """Returns the partition, time and items that it sent, or None."""
        return self.form[2:5] if self.form[0] in _SENDING else None


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed epoch: where its batches are, and why it may not be whole."""

    number: int
    time: Time
    first: int
    last: int
    size: int
    crashed: str
    begun: int
    """The position of the oldest batch of this and of all later epochs."""


@dataclass(slots=True)
class _Open:
    """An epoch that is not complete."""

    first: int
    last: int
    size: int = 0
    crashed: str = ""


LAST: Final = (1 << 40) - 1
"""Beyond every position and number."""

FORGOTTEN: Final = 1024
"""Latest times without retained items, none before another; beyond that, times between them count as well."""

DEPARTED: Final = 1024
"""Remembered producers that left in order, so that a producer that missed the answer gets it later."""


@dataclass(slots=True)
class Member:
    """A producer: its name, for how many milliseconds it may be disconnected, and its steps."""

    name: str
    away: int
    steps: int = 0
    sent: dict[Time, int] = field(default_factory=dict)
    """How many batches it has sent of each epoch that is open."""


class TopicPast(Protocol):
    """Steps and completed epochs of one topic.  Any number of threads may read; calls block.

    Raises ``LogDamaged`` where one was altered or is missing.
    """

    @property
    def shown(self) -> str:
        """Returns the place of the topic, for messages."""

    def epochs(self, first: int = 1, last: int = LAST) -> Iterator[tuple[Completed, int]]:
        """Yields the completed epochs of a range of numbers, and when each was completed."""

    def steps(self, after: int, upto: int = LAST) -> Iterator[Step]:
        """Yields the steps after a position."""


class ArchivedTopic(TopicPast, Protocol):
    """The archive of one topic, as far as it was known at the last ``renew``; properties do not block.

    Raises ``Refused("archive-away")`` if the archive cannot be reached.
    """

    @property
    def oldest(self) -> int:
        """Returns the number of the oldest epoch from which on all are there."""

    @property
    def completed(self) -> int:
        """Returns the number of the newest archived epoch, 0 if there is none."""

    @property
    def position(self) -> int:
        """Returns the position of the newest archived step, 0 if there is none."""

    @property
    def forgotten(self) -> Maxima:
        """Returns the latest times whose items are not all there."""

    def renew(self) -> None:
        """Finds out what is archived now."""


Write: TypeAlias = "Callable[[StepLog, Step, Sequence[Completed]], None]"


class StepLog:
    """The steps of one topic.

    ``number`` is the topic's identity.  ``slot`` is the place of a durable, lasting topic on the disk, and
    ``write`` gets each step with the epochs that it completed; ``retain`` bytes of batches are kept, for
    ``age`` seconds if that is given.  ``durable`` is the position up to which all is on disk; the writer
    moves it.  Without a slot the topic is in memory: ``retain`` bytes of steps are kept, and its epochs have
    no numbers.

    >>> from dataspace.topics.times import Order
    >>> wrote: list[tuple[Completed, ...]] = []
    >>> topic = Topic("readings", Order(0), lasting=True)
    >>> step_log = StepLog(topic, 1, 1, 1 << 20, lambda _, step, done: wrote.append(tuple(done)))
    >>> step_log.join(7); step_log.send(7, 0, b"x"); step_log.progress(7, [(0, -1), (1, +1)]); wrote[-1]
    0
    (Completed(number=1, time=0, first=2, last=2, size=129, crashed='', begun=2),)
    """

    def __init__(
        self,
        topic: Topic,
        number: int,
        slot: int = 0,
        retain: int = 0,
        write: Write | None = None,
        *,
        age: float | None = None,
    ) -> None:
        self.topic = topic
        self.number = number
        self.slot = slot
        self.retain = retain
        self.age = age
        self.position = 0
        self.durable = 0
        self.completed = 0
        self.completed_durable = 0
        """The numbers of the newest completed epoch, and of the newest completed epoch on disk."""
        self.oldest = 1
        """The number of the oldest completed epoch that the journal holds."""
        self.archive: ArchivedTopic | None = None
        """Its archive, which is read for what the journal does not hold any more."""
        self.archived = (0, 0)
        """The newest step and the newest completed epoch that an archive is known to have."""
        self.archive_seen = False
        """True once that was said of the archive that there is now."""
        self.size = 0
        """Retained bytes: of batches, open epochs included; in memory, of steps."""
        self.forgotten = Maxima()
        self.members: dict[int, Member] = {}
        self.departed: dict[str, int] = {}
        """How many steps the latest producers did that have a name and left in order."""
        self.write = write
        self._lower = MutableAntichain()
        self._open: dict[Time, _Open] = {}
        self._open_times = OpenTimes()
        self._open_size = 0
        self._moved: set[int] = set()
        self._all_told = 0
        self._begun = False
        self._settling: deque[tuple[int, Completed]] = deque()
        self._tail: deque[Step] = deque()
        self._tail_size = 0
        if slot:
            for each in topic.partitions:
                each.subscribe(0, self._hear)

    @property
    def in_memory(self) -> bool:
        """True if nothing of the topic is on disk."""
        return not self.slot

    @property
    def is_covered(self) -> bool:
        """True if no epoch is missing before the oldest one here, or the archive has all since its oldest."""
        return self.oldest == 1 or self._past() is not None

    @property
    def oldest_read(self) -> int:
        """Returns the oldest completed epoch that can be read, here or in the archive."""
        past = self._past()
        return self.oldest if past is None else past.oldest

    @property
    def gone(self) -> Maxima:
        """Returns the latest times whose items cannot all be read."""
        past = self._past()
        return self.forgotten if past is None else past.forgotten

    def archive_before(self, number: int) -> ArchivedTopic | None:
        """Returns the archive if that has an epoch which is not held here any more; None for any other."""
        past = self._past()
        return past if past is not None and past.oldest <= number < self.oldest else None

    def _past(self) -> ArchivedTopic | None:
        """Returns the archive if it has the epochs before the oldest that is held here."""
        past = self.archive
        covers = past is not None and past.oldest < self.oldest <= past.completed + 1
        return past if covers else None

    # -- steps ----------------------------------------------------------------------------------------

    def join(
        self, producer: int, partition: int = 0, time: Time | None = None, *, name: str = "", away: int = 0
    ) -> Time:
        """Adds a producer, as ``Topic.join``; it may be disconnected for ``away`` milliseconds."""
        start = self.topic.join(producer, partition, time)
        self.members[producer] = Member(name, away)
        self.departed.pop(name, None)
        self._note((JOIN, producer, partition, start, name, away))
        return start

    def send(self, producer: int, time: Time, items: bytes) -> None:
        """Sends a batch; ``Refused("limit")`` if open epochs on disk would hold more than ``retain``."""
        self._check_open(items)
        partition = self.topic.partition_of(producer)
        self.topic.send(producer, time, items)
        self._count(producer, time)
        self._note((forms.SEND, producer, partition, time, items))

    def finish(self, producer: int, time: Time, items: bytes, changes: Sequence[Change]) -> None:
        """Sends a batch and changes the capabilities of its producer, as one step: all of it or nothing."""
        self._check_open(items)
        partition = self.topic.partition_of(producer)
        self.topic.finish(producer, time, items, changes)
        self._count(producer, time)
        self._note((forms.FINISH, producer, partition, time, items, tuple(changes)))

    def _check_open(self, items: bytes) -> None:
        if self.slot and self._open_size + len(items) > self.retain:
            said = f"open epochs hold {self._open_size} bytes, the limit is retain={self.retain}"
            raise Refused("limit", f"{said}; complete some, or make the topic with more")

    def _count(self, producer: int, time: Time) -> None:
        if not self.slot:
            return
        member = self.members[producer]
        member.steps += 1
        member.sent[time] = member.sent.get(time, 0) + 1

    def progress(self, producer: int, changes: Sequence[Change]) -> None:
        """Changes the capabilities of a producer."""
        self.topic.progress(producer, changes)
        self.members[producer].steps += 1
        self._note((forms.CHANGE, producer, tuple(changes)))

    def leave(self, producer: int) -> None:
        """Removes a producer in order."""
        self.topic.leave(producer)
        member = self.members.pop(producer)
        if member.name:
            self.departed[member.name] = member.steps
        if len(self.departed) > DEPARTED:
            del self.departed[next(iter(self.departed))]
        self._note((forms.LEAVE, producer))

    def crash(self, producer: int, reason: str) -> None:
        """Removes a producer that has disappeared."""
        partition = self.topic.partition_of(producer)
        since = tuple(Antichain(time for time, _ in self.topic.holds(producer)))
        self.topic.crash(producer, reason)
        del self.members[producer]
        self._note((forms.CRASH, producer, partition, since, reason))

    def again(self, step: Step) -> None:
        """Applies a stored step again; raises for a step that does not belong here."""
        match step.form:
            case (forms.SEND, producer, _, time, items):
                self.send(producer, time, items)
            case (forms.FINISH, producer, _, time, items, changes, _):
                self.finish(producer, time, items, changes)
            case (forms.CHANGE, producer, changes, _):
                self.progress(producer, changes)
            case (forms.LEAVE, producer, _):
                self.leave(producer)
            case (forms.CRASH, producer, _, _, reason, _):
                self.crash(producer, reason)
            case (_, producer, partition, time, name, away, _):
                self.join(producer, partition, time, name=name, away=away)

    def named(self, name: str) -> int | None:
        """Returns the producer of that name, or None; O(producers)."""
        return next((each for each, member in self.members.items() if name and member.name == name), None)

    def _begin(self) -> None:
        """Counts further messages to the next position; this subscriber is served first."""
        if not self._begun:
            self._begun = True
            self.position += 1

    def _note(self, form: tuple[Any, ...]) -> None:
        if not self.slot:
            self._retain(form)
            return
        self._begin()
        self._begun = False
        done: list[Completed] = []
        if form[0] != forms.SEND:
            done = self._complete() if self._moved else []
            form = (*form, self._lowers_told())
            self._moved.clear()
        step = Step(self.position, form)
        self._settling += [(self.position, each) for each in done]
        self._tail.append(step)
        self._tail_size += step.size
        if self.write is not None:
            self.write(self, step, done)

    def _retain(self, form: tuple[Any, ...]) -> None:
        """Keeps a step in memory, without the frontiers that it moved; O(1) on average."""
        self.position += 1
        if not self.retain:
            if form[0] in _SENDING:
                self._forget(form[3])
            return
        step = Step(self.position, form if form[0] == forms.SEND else (*form, ()))
        self._tail.append(step)
        self.size += step.size
        if self.size > self.retain:
            self._forget_steps()

    def _forget_steps(self) -> None:
        """Forgets the oldest eighth of the steps in memory, each batch with its time."""
        while self._tail and self.size > self.retain - self.retain // 8:
            step = self._tail.popleft()
            self.size -= step.size
            if (batch := step.batch) is not None:
                self._forget(batch[1])

    def _forget(self, time: Time) -> None:
        self.forgotten.insert(time)
        self.forgotten.coarsen(FORGOTTEN)

    def _lowers_told(self) -> Moved:
        """Returns the frontiers that a step moved, now and then all: a reader begins without those before."""
        moved: Iterable[int] = sorted(self._moved)
        if self.position - self._all_told >= FRONTIER_STEPS:
            self._all_told = self.position
            moved = range(len(self.topic.partitions))
        return tuple((each, tuple(self.topic.partitions[each].lower)) for each in moved)

    def _hear(self, message: Message) -> None:
        """What the topic tells of a step while it is carried out."""
        if not isinstance(message, Snapshot):
            self._begin()
        match message:
            case Batch(_, time, items):
                self._add(time, len(items))  # type: ignore[arg-type]  # bytes, see send
            case Progress(partition, changes):
                self._lower.change(changes)
                self._moved.add(partition)
            case Crashed(partition, since, _, reason, changes):
                lost = Antichain(since)
                for time, each in self._open.items():
                    each.crashed = each.crashed or (reason if lost.less_equal(time) else "")
                self._lower.change(changes)
                self._moved.add(partition)
            case Snapshot(_, lower, _):
                self._lower.change([(each, +1) for each in lower])

    def _add(self, time: Time, size: int) -> None:
        epoch = self._open.get(time)
        if epoch is None:
            epoch = self._open[time] = _Open(self.position, self.position)
            self._open_times.add(time)
        epoch.last = self.position
        epoch.size += size + OVERHEAD
        self._open_size += size + OVERHEAD
        self.size += size + OVERHEAD

    def _complete(self) -> list[Completed]:
        """Returns the epochs that the frontier has passed, as ``OpenTimes.passed``."""
        done = []
        for time in self._open_times.passed(self._lower.frontier):
            begun = self.first_open()
            epoch = self._open.pop(time)
            self._open_size -= epoch.size
            self.completed += 1
            where = (epoch.first, epoch.last, epoch.size)
            done.append(Completed(self.completed, time, *where, epoch.crashed, begun))
            for member in self.members.values():
                member.sent.pop(time, None)
        return done

    # -- what is on disk --------------------------------------------------------------------------------

    def written(self, position: int) -> None:
        """Notes that all steps to this position are on disk; older ones may leave memory."""
        self.durable = position
        while self._settling and self._settling[0][0] <= position:
            self.completed_durable = self._settling.popleft()[1].number
        while self._tail and self._tail_size > TAIL_BYTES and self._tail[0].position <= position:
            self._tail_size -= self._tail.popleft().size

    def tail_begin(self) -> int:
        """Returns the position before the oldest step in memory."""
        return self._tail[0].position - 1 if self._tail else self.position

    def tail(self, after: int) -> list[Step] | None:
        """Returns the steps after a position, or None if some are only on disk; O(steps in memory)."""
        if after < self.position and (not self._tail or self._tail[0].position > after + 1):
            return None
        return [each for each in self._tail if each.position > after]

    def forget(self, epochs: Iterable[Completed]) -> None:
        """Forgets the oldest epochs."""
        for epoch in epochs:
            self.oldest = epoch.number + 1
            self._forget(epoch.time)
            self.size -= epoch.size

    def forget_as(self, dumped: Any) -> None:
        """Forgets the epochs that a state as of the same position has forgotten."""
        _, (_, _, self.oldest, self.size), forgotten, *_ = dumped
        self.forgotten = Maxima(forgotten)

    def first_open(self) -> int:
        """Returns the position of the oldest batch of an open epoch, or the next position."""
        oldest = next(iter(self._open.values()), None)  # they are in the order of their first batches
        return self.position + 1 if oldest is None else oldest.first

    def first_needed(self) -> int:
        """The same for epochs that are open, or not on disk as completed yet."""
        return self._settling[0][1].begun if self._settling else self.first_open()

    def begun_at_or_after(self, since: Antichain) -> int:
        """The same for epochs at or after some times that are open, or not on disk as completed yet.

        O(1): among more than ``MOST_SOUGHT`` such epochs the first is not sought, but taken.
        """
        if len(self._open) + len(self._settling) > MOST_SOUGHT:
            return self.first_needed()
        begun = [each.first for time, each in self._open.items() if since.less_equal(time)]
        begun += [each.first for _, each in self._settling if since.less_equal(each.time)]
        return min(begun, default=self.position + 1)

    def lowers(self) -> Moved:
        """Returns the lower frontiers of all partitions."""
        return tuple((each.partition, tuple(each.lower)) for each in self.topic.partitions)

    def check_as_of(self, times: Sequence[Time], partitions: Iterable[int]) -> Antichain:
        """Returns these times, checked; ``Refused`` unless all since is retained or still to come."""
        since = Antichain(self.topic.order.check(each) for each in times)
        if not times:
            raise UsageError("as of no time at all")
        for time in since:
            if (gone := self.gone).covers(time):
                raise Refused("epoch-gone", f"time {time} is gone: times to {list(gone)} are not retained")
        for partition in map(self.topic.partition, partitions):
            if not since.dominates(partition.lower):
                raise Refused(
                    "epoch-ahead", f"{list(since)} is yet to come: the frontier is {list(partition.lower)}"
                )
        return since

    def dump(self) -> Value:
        """Returns the whole state but for the tail, for ``load``."""
        opened = [(time, each.first, each.last, each.size, each.crashed) for time, each in self._open.items()]
        members = [
            (number, each.name, each.away, each.steps, tuple(each.sent.items()))
            for number, each in self.members.items()
        ]
        counts = (self.position, self.completed, self.oldest, self.size)
        departed = tuple(self.departed.items())
        return (self.topic.dump(), counts, tuple(self.forgotten), tuple(opened), tuple(members), departed)

    def load(self, dumped: Any) -> None:
        """Restores what ``dump`` returned; only for a new one, over a new topic."""
        topic, counts, forgotten, opened, members, departed = dumped
        self.position, self.completed, self.oldest, self.size = counts
        self.departed = dict(departed)
        self.topic.load(topic)
        self.durable, self.completed_durable = self.position, self.completed
        self.forgotten = Maxima(forgotten)
        self._open = {time: _Open(*each) for time, *each in opened}
        self._open_times = OpenTimes(self._open)
        self._open_size = sum(each.size for each in self._open.values())
        for number, name, away, steps, *sent in members:  # states of earlier versions have no ``sent``
            self.members[number] = Member(name, away, steps, dict(sent[0]) if sent else {})
        self._lower = MutableAntichain(time for each in self.topic.partitions for time in each.lower)
