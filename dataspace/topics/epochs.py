"""Epochs: which have begun, and which of those will never be known to be whole?

An epoch is *latent* until something of it is seen, then *active*, and *completed* once the frontier has
left it behind; these three are the source's.  If a producer vanishes that could have sent more, the epochs
that were active are *crashed*, which they stay.  Publisher and subscriber keep one of these each: the same
epoch may be completed on one partition and active for a group.

Always: every active epoch is at or after an element of the frontier that was last given to ``retire``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

from dataspace.codec import unpack
from dataspace.errors import ProtocolError, Refused
from dataspace.topics.messages import Batch, Crash, EpochState, Frontier
from dataspace.topics.times import Antichain, Time, less_equal
from index.values.values import Value

REMEMBERED: Final = 1024
"""Crashed epochs that are remembered as such, the latest."""


class Epochs:
    """Tracks which epochs are active and which have crashed.

    >>> epochs = Epochs()
    >>> epochs.see(3); epochs.see(5)
    >>> epochs.crash(Antichain([4])), epochs.state(3, Antichain([1])), epochs.state(5, Antichain([1]))
    ((5,), <EpochState.ACTIVE: 'active'>, <EpochState.CRASHED: 'crashed'>)
    """

    __slots__ = ("_active", "_crashed")

    def __init__(self) -> None:
        self._active = OpenTimes()
        self._crashed: dict[Time, None] = {}

    def __contains__(self, time: Time) -> bool:
        """True if this epoch is active."""
        return time in self._active

    def __len__(self) -> int:
        """Returns how many epochs are active."""
        return len(self._active)

    def see(self, time: Time) -> None:
        """Notes that an item of this epoch was sent; O(log active)."""
        self._active.add(time)

    def retire(self, frontier: Antichain) -> None:
        """Removes the active epochs that the frontier has passed, as ``OpenTimes.passed``."""
        self._active.passed(frontier)

    def crash(self, since: Antichain) -> tuple[Time, ...]:
        """Marks and returns the active epochs that may be incomplete, now that ``since`` is lost."""
        epochs = tuple(sorted(each for each in self._active if since.less_equal(each)))
        self._crashed.update(dict.fromkeys(epochs))
        while len(self._crashed) > REMEMBERED:
            del self._crashed[next(iter(self._crashed))]
        return epochs

    def dump(self) -> Value:
        """Returns the active and the crashed epochs, for ``load``."""
        return (tuple(sorted(self._active)), tuple(self._crashed))

    def load(self, dumped: Any) -> None:
        """Restores what ``dump`` returned."""
        active, crashed = dumped
        self._active, self._crashed = OpenTimes(active), dict.fromkeys(crashed)

    def state(self, time: Time, frontier: Antichain) -> EpochState:
        """Returns the state of an epoch, given the frontier."""
        if time in self._crashed:
            return EpochState.CRASHED
        if not frontier.less_equal(time):
            return EpochState.COMPLETED
        return EpochState.ACTIVE if time in self._active else EpochState.LATENT


# -- open times ------------------------------------------------------------------------------------
#
# Many times may be open while the frontier moves in small steps, so a step must not look at all of them. A
# time at or after an element of the frontier is no less than the least element in the plain order of integers
# and tuples either; so times that are kept in that order are passed from the front. After ``passed`` each
# time is at or after an element of the frontier that was given.


class OpenTimes:
    """A set of times that a frontier passes.

    >>> times = OpenTimes([5, 3, 4])
    >>> times.passed([5]), list(times), times.passed([])
    ([3, 4], [5], [5])
    """

    __slots__ = ("_times", "_waiting")

    def __init__(self, times: Iterable[Time] = ()) -> None:
        self._times = set(times)
        self._waiting = list(self._times)
        heapify(self._waiting)

    def __contains__(self, time: Time) -> bool:
        return time in self._times

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Time]:
        return iter(self._times)

    def add(self, time: Time) -> None:
        """Adds a time, if it is not there; O(log times)."""
        if time not in self._times:
            self._times.add(time)
            heappush(self._waiting, time)

    def passed(self, frontier: Iterable[Time]) -> list[Time]:
        """Removes and returns, in order, the times that are at or after no element of a frontier.

        O(those × log times) for integers; for tuples O(times × frontier), since each may be one of them.
        """
        gone: list[Time] = []
        waiting, elements = self._waiting, tuple(frontier)
        least = min(elements, default=None)
        while waiting and (least is None or waiting[0] < least):  # type: ignore[operator]  # one order
            gone.append(heappop(waiting))
        if waiting and isinstance(least, tuple):
            kept = [time for time in waiting if any(less_equal(each, time) for each in elements)]
            if len(kept) < len(waiting):
                gone = sorted({*gone, *waiting} - set(kept))
                heapify(kept)
                self._waiting = kept
        self._times.difference_update(gone)
        return gone


OVERHEAD: Final = 128
"""Bytes that a batch, or an epoch that is open, costs beside its items."""

TopicEvent: TypeAlias = Batch | Frontier | Crash


@dataclass(frozen=True, slots=True)
class TopicEpoch:
    """All items of one time, in the order of partitions and of sending.

    ``crashed`` is the reason why the first producer ended that could have sent more of it.
    """

    time: Time
    items: tuple[Value, ...]
    crashed: str = ""


@dataclass(frozen=True, slots=True)
class Gathered:
    """All batches of one time, in the order of partitions and of sending, with their items as they came."""

    time: Time
    batches: tuple[Batch, ...]
    crashed: str = ""

    def whole(self) -> TopicEpoch:
        """Returns the epoch, of batches that have items."""
        items = tuple(item for batch in self.batches for item in batch.items)  # type: ignore[attr-defined]  # a tuple, see with_items
        return TopicEpoch(self.time, items, self.crashed)


class Gathering:
    """Collects the batches of epochs that are open, at most so many bytes as they were sent.

    Always: an epoch is given once the frontier has passed its time, with all its items, once; memory for open
    epochs is bounded.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._open: dict[Time, list[Batch]] = {}
        self._times = OpenTimes()
        self._crashed: dict[Time, str] = {}

    def collect(self, event: TopicEvent) -> list[Gathered]:
        """Returns the epochs that an event completes, by their times.

        Raises ``Refused("limit")`` if the open epochs hold more than the limit.
        """
        match event:
            case Batch():
                self._times.add(event.time)
                self._open.setdefault(event.time, []).append(event)
                self._bytes += event.size + OVERHEAD
                if self._bytes > self._most:
                    what = f"{len(self._open)} epochs with {self._bytes} bytes"
                    raise Refused("limit", too_many_open(what, self._most))
            case Crash():
                for time in event.epochs:  # the first reason stays, as in the journal
                    self._crashed.setdefault(time, event.reason)
            case Frontier(times):
                return self.rest(times)
        return []

    def rest(self, frontier: tuple[Time, ...] = ()) -> list[Gathered]:
        """Returns the epochs that a frontier has passed, or all of them at the end."""
        epochs = []
        for time in self._times.passed(frontier):
            batches = sorted(self._open.pop(time), key=lambda batch: batch.partition)
            self._bytes -= sum(batch.size + OVERHEAD for batch in batches)
            epochs.append(Gathered(time, tuple(batches), self._crashed.pop(time, "")))
        return epochs

    def clear(self) -> None:
        """Drops what is open."""
        self._open.clear()
        self._times = OpenTimes()
        self._crashed.clear()
        self._bytes = 0


def too_many_open(what: str, most: int) -> str:
    """Returns the refusal of open epochs beyond a limit."""
    return f"{what} are open, the limit is open_bytes={most}"


def with_items(event: TopicEvent) -> TopicEvent:
    """Returns an event with the items that its bytes hold; raises ``ProtocolError`` for bytes without."""
    if not isinstance(event, Batch):
        return event
    items = unpack(event.items)  # type: ignore[arg-type]  # bytes on the wire
    if items.__class__ is not tuple:
        raise ProtocolError("malformed", f"no items of a batch: {items!r:.80}")
    return Batch(event.partition, event.time, items, len(event.items))  # type: ignore[arg-type]  # as above
