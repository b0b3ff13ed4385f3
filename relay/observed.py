"""Sources of what happens in a dataspace: an observation, near or far, and the log.

All three give whole epochs (``EpochChanges``), in ascending order, the state first where it is wanted;
``flatten()`` makes single changes of them.  Reading is the only demand there is: unread changes wait where
they are, by the rules for slow observers.

Always: an epoch is given whole; an epoch that a reader has not received is not lost with the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Protocol

import trio

from dataspace.client.observations import Observation as RemoteObservation
from dataspace.errors import UsageError
from dataspace.kernel.actions import MORE, SNAPSHOT
from dataspace.kernel.changes import Changes, EpochChanges
from dataspace.kernel.interests import Interest
from dataspace.kernel.space import Space
from dataspace.streams.sources.pulled import Source
from dataspace.streams.stages.functions import Threads, close_iterator
from dataspace.streams.stages.protocol import EndOfStream, Reason
from index.patterns.patterns import capture_names
from index.patterns.text import parse_pattern
from index.values.values import Value
from relay.delivery.backlog import DeliveryQueue
from relay.log.log import Log
from relay.log.replay import Replay, Rows

PORTION: Final = 64
"""Epochs that are taken from the log at once."""

TAKEN: Final = 1 << 20
"""Bytes that are taken from a waiting observation at once, as they would be sent."""


class Observable(Protocol):
    """A space at the other end of a connection."""

    def observe(self, pattern: Value | str, **options: Any) -> RemoteObservation: ...


class Local(Source[EpochChanges]):
    """An observation of a space in this process.  Reads nothing before it is asked; waits as others do."""

    def __init__(self, space: Space, pattern: Value, snapshot: bool) -> None:
        super().__init__("observation")
        self._space = space
        self._pattern = pattern
        self._names: Final = capture_names(pattern)
        self._change: Final = trio.lowlevel.ParkingLot()
        self._waiting_room: Final = DeliveryQueue(self._wake)
        self._assembling: EpochChanges | None = None
        self._interest: Interest | None = space.observe(pattern, self._waiting_room)
        if snapshot:
            rows = space.matches(pattern)
            self._waiting_room.extend(Changes(space.epoch, space.time, rows, flags=SNAPSHOT))

    def _wake(self) -> None:
        self._change.unpark_all()

    async def _fetch(self) -> None:
        before = self._given
        while self._given == before:
            taken = self._waiting_room.take(PORTION, TAKEN)
            if not taken and self._waiting_room.failure is not None:
                raise self._waiting_room.failure
            if not taken:
                await self._change.park()
                self.pace.begin()
            for changes in taken:
                self._assemble(changes)

    def _assemble(self, changes: Changes) -> None:
        """Puts the parts of an epoch together again."""
        epoch = self._assembling
        if epoch is None:
            number, time, first = changes.number, changes.time, changes.first
            epoch = EpochChanges(number, time, first, self._names, (), (), (), changes.flags)
        epoch.extend(changes)
        if changes.flags & MORE:
            self._assembling = epoch
        else:
            self._assembling = None
            self._give(epoch)

    def _close(self, reason: Reason | None) -> None:
        interest, self._interest = self._interest, None
        if interest is not None:
            self._space.ignore(interest, self._waiting_room)


def observation(
    space: Observable | Space, pattern: Value | str, *, snapshot: bool = True, **options: Any
) -> Source[EpochChanges]:
    """What a pattern sees, whole epochs, the state first unless told otherwise.

    Of a connected space, with all options of its ``observe`` (``after``, ``upto``, ``policy`` …); or of a
    ``Space`` in this process, from now on, without options.
    """
    if not isinstance(space, Space):
        return space.observe(pattern, snapshot=snapshot, **options).epochs()
    if options:
        raise UsageError(f"an observation in this process has no option {min(options)!r}")
    return Local(space, parse_pattern(pattern) if isinstance(pattern, str) else pattern, snapshot)


class Logged(Source[EpochChanges]):
    """What a pattern saw, from the log, in a thread."""

    def __init__(self, log: Log, pattern: Value, after: int, upto: int) -> None:
        super().__init__("log")
        self._names: Final = capture_names(pattern)
        self._epochs: Iterator[Rows] = Replay(log, pattern, after).epochs(upto)
        self._threads: Final = Threads(self._close_epochs)

    async def _fetch(self) -> None:
        rows = await self._threads.call(lambda: list(islice(self._epochs, PORTION)))
        for number, time, added, messages, removed in rows:
            self._held.append(EpochChanges(number, time, number, self._names, added, messages, removed))
        if not rows:
            raise EndOfStream

    def _close_epochs(self) -> None:
        close_iterator(self._epochs)

    def _close(self, reason: Reason | None) -> None:
        self._threads.close()

    async def _teardown(self, reason: Reason) -> None:
        await self._threads.wait_idle()


def logged(
    log: Log, pattern: Value | str, *, after: int | None = None, upto: int | None = None
) -> Source[EpochChanges]:
    """What a pattern saw in the epochs (after, upto] of a log, as its observers were told; by default in all.

    Raises ``Refused("epoch-gone")`` where they are not all retained.
    """
    form = parse_pattern(pattern) if isinstance(pattern, str) else pattern
    start = log.oldest - 1 if after is None else after
    return Logged(log, form, start, log.last if upto is None else upto)
