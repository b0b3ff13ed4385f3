"""The trace of one turn: plain times and counts; spans are made of them when it is over.

The turn is begun by the connection, or by the request that publishes.  The log finds it in ``TRACED``, which
the task has while it carries the turn out, and notes when the epoch was queued and when it was on disk.

Always: times are in nanoseconds since 1970, 0 where that has not happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from time import time_ns
from typing import TYPE_CHECKING, Final, Protocol

from relay.delivery.shared import SharedQueue

if TYPE_CHECKING:
    from dataspace.kernel.interests import Interest
    from dataspace.wire.traceparents import Parent
    from server.config.principals import Principal

MOST_PATTERNS: Final = 64
"""Patterns of one turn whose observers are followed; the others are counted."""


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
    def home(self) -> Named:
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

    def queued(self, epoch: int, touched: Sequence[Interest]) -> None:
        """Notes that the log has taken the epoch, which observers of these interests will be sent."""
        self.epoch = epoch
        self.observers = sum([len(each) for each in touched])
        queues = [each.queue for each in touched[:MOST_PATTERNS]]
        self._queues = [(queue, queue.end) for queue in queues if isinstance(queue, SharedQueue)]
        self.following = self.left = sum([queue.following for queue, _ in self._queues])
        self.delivered = not self.left
        self.committed = time_ns()

    def look(self, now: int) -> bool:
        """Notes which observers have been sent the epoch; True once all have.  O(patterns)."""
        left = sum([queue.waiting_for(position) for queue, position in self._queues])
        if left < self.left:
            self.left, self.last = left, now
            self.first = self.first or now
        self.delivered = not left
        return self.delivered

    def give_up(self) -> None:
        """Follows the observers no longer."""
        self.late, self.left, self._queues, self.delivered = self.left, 0, [], True

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
