"""A feed: the queue of messages that one subscriber of a topic has not been sent yet.

It stands behind a stream as an observation does, and is as bounded.  A batch cannot be left out or merged
with another, or a subscriber would see half an epoch.  So publishers wait while too much is here: with the
policy *wait* for as long as it takes, with *fail* only while the subscriber keeps up a least pace.  Progress
can be merged.

Always: messages leave in the order in which they came; consecutive progress leaves as one message; a feed
that has failed is empty; a message of a durable topic leaves when it is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dataspace.codec import pack
from dataspace.errors import Refused, UsageError
from dataspace.topics import messages as forms
from dataspace.topics.messages import Batch, Crashed, Message, Progress, Snapshot, value_of
from dataspace.topics.times import Antichain, ChangeBatch, Time, join
from relay.topics.steps import Moved, Step, StepLog

BYTE_LIMIT: Final = 16 << 20
"""Bytes that wait for one subscriber; beyond that, publishers wait."""

MOST: Final = 4
"""Without ``wait`` a subscriber fails at once beyond so many limits, as when many publishers send at once."""

PATIENCE: Final = 2.0
PACE: Final = 1 << 20
"""Seconds that publishers wait for a slow subscriber, and the bytes that it must take in each of them."""


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """Messages and bytes that wait now, and messages taken in total."""

    waiting: int
    bytes: int
    taken: int


class Packed:
    """A message packed once, however many subscribers it has."""

    __slots__ = ("message", "packed")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.packed = pack(value_of(message))


class Feed:
    """The queue of one subscriber; calls ``wake`` when a message is added, ``room`` when publishers may send.

    Publishers wait while more than ``limit`` bytes are here.  Without ``wait`` the subscription fails if it
    takes too little meanwhile, which ``judge`` finds.
    """

    __slots__ = (
        "_bytes",
        "_full_since",
        "_gate",
        "_limit",
        "_room",
        "_taken",
        "_taken_bytes",
        "_waiting",
        "_wake",
        "failure",
        "wait",
    )

    def __init__(
        self,
        wake: Callable[[], None],
        room: Callable[[], None] = lambda: None,
        *,
        wait: bool = False,
        limit: int = BYTE_LIMIT,
        gate: StepLog | None = None,
    ) -> None:
        self.failure: Refused | None = None
        self.wait = wait
        self._wake = wake
        self._room = room
        self._limit = limit
        self._gate = gate
        self._waiting: deque[tuple[int, Packed]] = deque()
        self._bytes = 0
        self._taken = self._taken_bytes = 0
        self._full_since: tuple[float, int] | None = None

    def __len__(self) -> int:
        """Returns how many messages wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """True while publishers should wait for this subscriber."""
        return self._bytes > self._limit

    @property
    def used(self) -> int:
        """Bytes that wait, as they would be sent."""
        return self._bytes

    def offer(self, packed: Packed) -> None:
        """Adds a message; O(1), or O(changes) for progress."""
        if self.failure is not None:
            return
        last = self._waiting[-1][1] if self._waiting else None
        if last is not None and _both_progress(last.message, packed.message):
            self._waiting.pop()
            self._bytes -= len(last.packed)
            packed = _merged(last.message, packed.message)
        self._waiting.append((self._gate.position if self._gate else 0, packed))
        self._bytes += len(packed.packed)
        if self._bytes > MOST * self._limit and not self.wait and len(self._waiting) > 1:
            self._fail(f"limit {MOST * self._limit}")
        else:
            self._wake()

    def fail(self, refusal: Refused) -> None:
        """Ends the subscription with an error; what waits is dropped."""
        self.failure = refusal
        self._waiting.clear()
        self._bytes = 0
        self._room()
        self._wake()

    def judge(self, now: float) -> None:
        """Fails a subscriber that has publishers wait, did not ask for that, and takes too little; O(1).

        Publishers call it while they wait, with the time in seconds.
        """
        if self.wait or not self.full:
            return
        if self._full_since is None:
            self._full_since = (now, self._taken_bytes)
        since, taken = self._full_since
        if now - since < PATIENCE:
            return
        pace = (self._taken_bytes - taken) / (now - since)
        if pace < PACE:
            self._fail(f"limit {self._limit}, and {pace:.0f} bytes are taken in a second, at least {PACE}")
        else:
            self._full_since = (now, self._taken_bytes)

    def _fail(self, limit: str) -> None:
        what = f"{len(self._waiting)} messages wait in {self._bytes} bytes, {limit}"
        self.fail(Refused("slow-subscriber", f'{what}; read faster, or subscribe with slow="wait"'))

    @property
    def has_room(self) -> bool:
        """True if a reader of the past should read on: no more than half of the limit waits."""
        return self._bytes <= self._limit // 2

    def send_held(self) -> None:
        """Sends what the gate held back until now."""
        if self._waiting:
            self._wake()

    def take(self, count: int, size: int) -> list[Packed]:
        """Returns up to ``count`` messages of about ``size`` bytes, one at least if there is credit."""
        taken: list[Packed] = []
        was_full = self.full
        durable = self._gate.durable if self._gate else 0
        while self._waiting and len(taken) < count and size > 0 and self._waiting[0][0] <= durable:
            _, packed = self._waiting.popleft()
            size -= len(packed.packed)
            self._bytes -= len(packed.packed)
            self._taken_bytes += len(packed.packed)
            taken.append(packed)
        self._taken += len(taken)
        if was_full and not self.full:
            self._full_since = None
            self._room()
        return taken

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Takes as ``take`` does; returns how many messages, and their wire form."""
        taken = self.take(count, size)
        return len(taken), b"".join([each.packed for each in taken])

    def statistics(self) -> FeedStatistics:
        """Returns counts, in O(1)."""
        return FeedStatistics(len(self._waiting), self._bytes, self._taken)


class Teller:
    """Sends messages to the feed of one subscriber; a message is packed once for all subscribers."""

    __slots__ = ("_feed",)

    latest: Packed | None = None

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __call__(self, message: Message) -> None:
        packed = Teller.latest
        if packed is None or packed.message is not message:
            packed = Teller.latest = Packed(message)
        self._feed.offer(packed)


def _both_progress(a: Message, b: Message) -> bool:
    return isinstance(a, Progress) and isinstance(b, Progress) and a.partition == b.partition


def _merged(a: Message, b: Message) -> Packed:
    assert isinstance(a, Progress) and isinstance(b, Progress)  # the caller has looked
    return Packed(Progress(a.partition, tuple(ChangeBatch([*a.changes, *b.changes]))))


class CatchUp:
    """One subscriber on its way from some times to the present of a topic.

    ``tell`` gets its messages, and ``over`` is called when nothing more comes.  ``at`` is the position of the
    last step that it was told.

    Steps come from the disk, from memory, or first from the one and then from the other; a subscriber is told
    one history all the same. So the frontiers that a subscriber receives are the earlier ones, moved up to
    the times it asked for: no time before them is of interest, and no time is reported complete before it
    was.

    Always: the messages are a snapshot of each partition, then what happened at or after those times in
    order; between the past and the present there is neither gap nor overlap.
    """

    def __init__(
        self,
        step_log: StepLog,
        number: int,
        partitions: Sequence[int],
        as_of: Sequence[Time] | None,
        tell: Callable[[Message], None],
        over: Callable[[], None],
    ) -> None:
        """Raises ``Refused`` unless all since these times is retained or still to come.

        Without times the subscriber was told everything up to the present, and has begun already.
        """
        if not partitions:
            raise UsageError("a subscription needs a partition at least")
        self.step_log: Final = step_log
        self._number = number
        self._partitions: Final = frozenset(partitions)
        self.has_begun = as_of is None
        if as_of is None:
            self.since = Antichain([step_log.topic.order.bottom])
            self.at = step_log.position
            self._told = {each: Antichain(lower) for each, lower in step_log.lowers() if each in partitions}
        else:
            self.since = step_log.check_as_of(as_of, partitions)
            self.at = 0
            self._told = dict.fromkeys(sorted(self._partitions), self.since)
        self._tell = tell
        self._over = over

    def begin(self, at: int) -> None:
        """Tells the state after the step at a position, with the frontiers at the times asked for."""
        self.at, self.has_begun = at, True
        for each, told in self._told.items():
            self._tell(Snapshot(each, tuple(told), ()))

    def replay(self, steps: Iterable[Step]) -> None:
        """Tells the steps that follow."""
        for step in steps:
            self._take(step)
            self.at = step.position

    def finish(self) -> bool:
        """Tells the rest and adds the subscriber to the topic, if all the rest is in memory; True if so."""
        tail = self.step_log.tail(self.at)
        if tail is None:
            return False
        self.replay(tail)
        self._catch_up(self.step_log.lowers())
        self.step_log.topic.subscribe(self._number, self._partitions, self._tell, self._over, snapshot=False)
        return True

    def check_retained(self) -> None:
        """Raises ``Refused`` if retention has deleted steps that were still to be told."""
        gone = self.step_log.gone
        if any(gone.covers(each) for each in self.since):
            raise Refused("epoch-gone", f"times to {list(gone)} went while they were being read")

    def _take(self, step: Step) -> None:
        match step.form:
            case (forms.SEND | forms.FINISH, _, partition, time, items, *_):
                if partition in self._partitions and self.since.less_equal(time):
                    self._tell(Batch(partition, time, items))
            case (forms.CRASH, _, partition, lost, reason, _) if partition in self._partitions and lost:
                self._tell(Crashed(partition, lost, (), reason, ()))
        if (
            not self.step_log.in_memory
        ):  # where a partition may have ended, and begun again before its frontier
            self._catch_up(step.moved)

    def _catch_up(self, moved: Moved) -> None:
        """Tells progress to these frontiers."""
        for partition, lower in moved:
            if partition in self._partitions:
                self._progress(partition, lower)

    def _progress(self, partition: int, lower: Iterable[Time]) -> None:
        before = self._told[partition]
        after = Antichain(join(mine, each) for mine in self.since for each in lower)
        changes = [(each, -1) for each in before if each not in after]
        changes += [(each, +1) for each in after if each not in before]
        self._told[partition] = after
        if changes:
            self._tell(Progress(partition, tuple(changes)))
