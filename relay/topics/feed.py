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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.topics.frontiers import ChangeBatch
from dataspace.topics.messages import Message, Progress, value_of
from relay.topics.steps import StepLog

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
            self._wake()
        else:
            self._full_since = (now, self._taken_bytes)

    def _fail(self, limit: str) -> None:
        what = f"{len(self._waiting)} messages wait in {self._bytes} bytes, {limit}"
        self.failure = Refused("slow-subscriber", f'{what}; read faster, or subscribe with slow="wait"')
        self._waiting.clear()
        self._bytes = 0
        self._room()

    @property
    def has_room(self) -> bool:
        """True if a reader of the past should read on: no more than half of the limit waits."""
        return self._bytes <= self._limit // 2

    def look(self) -> None:
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
