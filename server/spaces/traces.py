"""Traces of turns: an optional record of times for each turn, and which turns have one.

A turn with a parent is traced if its parent is recorded; of the others a share is, by chance.  Its task has
the trace in ``TRACED`` while it carries the turn out.  The turn is over when its answer was written to the
socket, and every observer that keeps up was sent its epoch; spans are made of its trace then.

Always: times are in nanoseconds since 1970, 0 where that has not happened; no more than ``MOST`` turns are
begun in a second, whatever clients state as parents, and none while as many spans wait for the collector as
may; a turn is written once, at the latest ``LONGEST`` after its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from random import random
from time import time_ns
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.wire.traceparents import read_traceparent
from relay.delivery.shared import SharedQueue

if TYPE_CHECKING:
    from dataspace.kernel.changes import Epoch
    from dataspace.kernel.interests import Interest, Interests
    from dataspace.wire.traceparents import Parent
    from relay.delivery.gate import DurableGate
    from relay.log.notes import Notes
    from relay.log.writer import GroupCommit
    from server.config.principals import Principal

MOST_PATTERNS: Final = 64
"""Patterns of one turn whose observers are followed; the others are counted."""

MOST: Final = 500
"""Turns that are traced in a second."""

LONGEST: Final = 10.0
"""Seconds for which observers are followed, and an answer that a peer does not read."""

LOOKED_AT: Final = 64
"""Turns at which one flush looks whether their observers were sent their epochs; and as many whose peers do
not read, whether they do again."""

SPANS: Final = 4
"""Spans that a turn has at most."""


class Written(Protocol):
    """The send queue of a connection."""

    @property
    def is_touched(self) -> bool:
        """True while it has something that the next flush writes."""

    def is_blocked(self) -> bool:
        """True if bytes wait for the socket."""


class Turner(Protocol):
    """The connection of a turn."""

    @property
    def number(self) -> int: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def hosted(self) -> Named:
        """The space of its session."""

    @property
    def sending(self) -> Written:
        """Its send queue."""


class Named(Protocol):
    """A space."""

    @property
    def name(self) -> str: ...


class Trace:
    """A turn, from its arrival on."""

    __slots__ = (
        "_kept",
        "_queues",
        "accepted",
        "actions",
        "arrived",
        "began",
        "code",
        "committed",
        "delivered",
        "durable",
        "ended",
        "epoch",
        "first",
        "following",
        "group",
        "group_began",
        "kind",
        "last",
        "late",
        "left",
        "observers",
        "parent",
        "peer",
    )

    def __init__(self, kind: str, peer: Turner, actions: int, parent: Parent | None, arrived: int) -> None:
        self.kind = kind
        """``turn``, or ``publish`` for a publication."""
        self.peer = peer
        self.actions = actions
        self.parent = parent
        self.arrived = arrived
        self.began = time_ns()
        """When it was its turn, after what had come before it."""
        self.committed = self.durable = self.ended = 0
        self.epoch = 0
        """0 unless it was committed."""
        self.code = ""
        """The code of its refusal."""
        self.accepted = False
        """True once it is on disk and its answer is ready."""
        self.group = self.group_began = 0
        """How many epochs went to the disk with it, and when that write began."""
        self.observers = 0
        """The observers of all patterns that it concerns."""
        self.following = self.left = self.late = 0
        """Observers that are followed until they were sent the epoch, how many have yet to be, and how many
        were not after the longest time."""
        self.delivered = True
        """False while some are followed."""
        self.first = self.last = 0
        """When the first and the last of them was sent it."""
        self._queues: list[tuple[SharedQueue, int]] = []
        self._kept = False
        """True while a gate keeps the epoch from its observers."""

    def queued(self, epoch: int, touched: Sequence[Interest], gate: DurableGate | None = None) -> None:
        """Notes that the log has taken the epoch, which observers of these interests will be sent, behind the
        gate if there is one."""
        self.epoch = epoch
        self.committed = time_ns()
        self.observers = sum([len(each) for each in touched])
        self.delivered, self._kept = not self.observers, True
        if gate is None:
            self._shown(touched)
        elif self.observers:
            gate.after(epoch, self._shown, touched)  # ahead of what its observers are offered

    def _shown(self, touched: Sequence[Interest]) -> None:
        """Follows the observers from now on: their queues are about to take the epoch in."""
        if not self._kept:
            return
        self._kept = False
        queues = [each.queue for each in touched[:MOST_PATTERNS]]
        self._queues = [(queue, queue.end) for queue in queues if isinstance(queue, SharedQueue)]
        self.following = self.left = sum([queue.following for queue, _ in self._queues])
        self.delivered = not self.left

    def update(self, now: int) -> bool:
        """Notes which observers have been sent the epoch; True once all have.  O(patterns)."""
        if self._kept:
            return self.delivered
        left = sum([queue.waiting_for(position) for queue, position in self._queues])
        if left < self.left:
            self.left, self.last = left, now
            self.first = self.first or now
        self.delivered = not left
        return self.delivered

    def give_up(self) -> None:
        """Follows the observers no longer."""
        self.late, self.left, self._queues, self.delivered = self.left, 0, [], True
        self._kept = False

    @property
    def outcome(self) -> str:
        """Its outcome, in a word."""
        if self.code:
            return "refused"
        if not self.epoch:
            return "repeated"
        return "accepted" if self.ended else "unanswered"


TRACED: Final[ContextVar[Trace | None]] = ContextVar("dataspace_traced", default=None)
"""The turn that this task carries out, if it is traced."""


class Outlet(Protocol):
    """What makes spans, and sends them."""

    @property
    def is_full(self) -> bool:
        """True while as many spans wait as may."""

    def write(self, trace: Trace) -> None:
        """Makes the spans of a turn that is over."""


class Recorder:
    """The turns that are traced now."""

    def __init__(self, outlet: Outlet, ratio: float, *, chance: Callable[[], float] = random) -> None:
        self.ratio: Final = ratio
        self.chance: Final = chance
        self.left_out = 0
        """Turns that were to be traced, and were too many."""
        self._outlet: Final = outlet
        self._begun = 0
        self._leaving: list[Trace] = []
        """Turns whose answers are ready, and not known to be written."""
        self._blocked: deque[Trace] = deque()
        """Turns whose answers wait for a peer that does not read."""
        self._delivering: deque[Trace] = deque()
        """Turns that have observers which have yet to be sent the epoch."""

    # -- turns ----------------------------------------------------------------------------------------

    def wants(self, parent: Parent | None) -> bool:
        """True if a turn with this parent is to be traced."""
        return parent.sampled if parent is not None else self.chance() < self.ratio

    def begin(
        self, kind: str, peer: Turner, actions: int, parent: Parent | None, arrived: int
    ) -> Trace | None:
        """Returns a turn that is traced from now on; None where that would be too many."""
        if self._begun >= MOST or self._outlet.is_full:
            self.left_out += 1
            return None
        self._begun += 1
        return Trace(kind, peer, actions, parent, arrived)

    @contextmanager
    def acting(
        self, kind: str, peer: Turner, actions: int, parent: str, arrived: int
    ) -> Iterator[Trace | None]:
        """Traces the turn that the block carries out, if it is to be traced; ``parent`` is a traceparent.

        The block ends the trace if the turn was not committed, by ``refused``.
        """
        cause = read_traceparent(parent) if parent else None
        trace = self.begin(kind, peer, actions, cause, arrived) if self.wants(cause) else None
        if trace is None:
            yield None
            return
        token = TRACED.set(trace)
        try:
            yield trace
        finally:
            TRACED.reset(token)

    def refused(self, trace: Trace, code: str) -> None:
        """Notes that a turn has changed nothing, and why; an empty code is that it was carried out before."""
        trace.code = code
        trace.ended = time_ns()
        self._outlet.write(trace)

    def submitting(
        self,
        trace: Trace,
        commits: GroupCommit,
        interests: Interests,
        on_durable: Callable[[Epoch], None] | None,
        notes: Notes = (),
    ) -> Callable[[Epoch], None]:
        """Returns what submits the epoch of a turn, and notes when it was queued, written and on disk."""

        def durable(epoch: Epoch) -> None:
            trace.durable = time_ns()
            trace.group, trace.group_began = commits.group_size, commits.group_began
            if on_durable is not None:
                on_durable(epoch)
                self.answered(trace)

        def submit(epoch: Epoch) -> None:
            commits.submit(epoch, durable, notes)
            trace.queued(epoch.number, interests.touched, commits.gate)
            self.follow(trace)

        return submit

    def follow(self, trace: Trace) -> None:
        """Looks from now on for the observers of a turn that was committed."""
        if not trace.delivered:
            self._delivering.append(trace)

    def answered(self, trace: Trace) -> None:
        """Notes that the answer of a turn is ready: it ends when that was written."""
        trace.accepted = True
        self._leaving.append(trace)

    def flushed(self) -> None:
        """Looks at what was just written; O(turns whose answers were ready and could be sent)."""
        if not self._leaving and not self._delivering and not self._blocked:
            return
        now = time_ns()
        for _ in range(min(LOOKED_AT, len(self._delivering))):
            trace = self._delivering.popleft()
            if not trace.update(now):
                self._delivering.append(trace)
            elif trace.ended:
                self._outlet.write(trace)
        leaving, self._leaving = self._leaving, []
        leaving += [self._blocked.popleft() for _ in range(min(LOOKED_AT, len(self._blocked)))]
        for trace in leaving:
            self._look(trace, now)

    def _look(self, trace: Trace, now: int) -> None:
        """Ends a turn whose answer was written."""
        if trace.peer.sending.is_blocked():
            self._blocked.append(trace)
        elif trace.peer.sending.is_touched:
            self._leaving.append(trace)
        else:
            trace.ended = now
            if trace.delivered:
                self._outlet.write(trace)

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends in time what does not end by itself, until cancelled."""
        while True:
            await trio.sleep(1.0)
            self._begun = 0
            self.flushed()
            self.give_up(time_ns() - round(LONGEST * 1e9))

    def end(self) -> None:
        """Writes all turns as they are: the daemon ends."""
        self.flushed()
        self.give_up(1 << 63)

    def give_up(self, before: int) -> None:
        """Writes as they are the turns that arrived before a time."""
        left = [each for each in self._delivering if each.arrived < before]
        self._delivering = deque([each for each in self._delivering if each.arrived >= before])
        for trace in left:
            trace.give_up()
        stale = [each for each in [*self._leaving, *self._blocked] if each.arrived < before]
        self._leaving = [each for each in self._leaving if each.arrived >= before]
        self._blocked = deque([each for each in self._blocked if each.arrived >= before])
        for trace in [*stale, *[each for each in left if each.ended]]:
            self._outlet.write(trace)
