"""What a session passes things on to: streams in both directions, requests, aborts, and publications, which
outlive a connection.

An aborted stream leaves a ``PendingAbort`` in its place until the daemon has confirmed the end, so that
values that are still on their way have a receiver that drops them.

Always: each is settled once, by its answer, by an error, or by the loss of the connection.  An abort whose
connection was lost is sent again to a session that is resumed.  Of an offer no more values are sent than were
requested; the requested bytes are exceeded by one value at most.  An offer whose connection is lost fails,
and its caller decides whether to repeat it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

from dataspace.errors import Broken, DataspaceError
from dataspace.loops.here import loop
from dataspace.wire import packets as p
from dataspace.wire.outgoing import FrameLimits
from dataspace.wire.session import encode
from index.values.values import Value


class PendingRequest:
    """A request that waits for its answer."""

    __slots__ = ("_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = loop().event()
        self._error: DataspaceError | None = None
        self._value: Value = None

    @property
    def is_settled(self) -> bool:
        """True if the request has been answered, or has failed."""
        return self._done.is_set()

    async def wait(self) -> Value:
        """Returns the answer; raises the error that the request failed with."""
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def answer(self, value: Value) -> None:
        """Settles the request with its answer."""
        self._value = value
        self._done.set()

    def fail(self, error: DataspaceError) -> None:
        """Settles the request with an error."""
        self._error = error
        self._done.set()


class PendingAbort:
    """Waits for the end of one stream; ``dropped`` collects those to be aborted again."""

    __slots__ = ("_dropped", "_over")

    def __init__(self, dropped: list[int]) -> None:
        self._dropped = dropped
        self._over = loop().event()

    async def wait(self) -> None:
        """Returns when the stream has ended, or when the connection is lost."""
        await self._over.wait()

    def lose(self, number: int) -> None:
        """Ends the wait because the connection is lost."""
        self._dropped.append(number)
        self._over.set()

    def finish(self) -> None:
        """Ends the wait: the daemon has confirmed the end."""
        self._over.set()

    def fail(self, _error: DataspaceError) -> None:
        """Ends the wait: the stream had failed meanwhile, or the space was closed."""
        self._over.set()

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """Drops values that were on their way."""

    @property
    def seen(self) -> int:
        """No epoch."""
        return 0

    def know(self, total: int) -> None:
        """Ignores how many values are ready."""

    def reach(self, epoch: int) -> None:
        """Ignores how far the stream has come."""

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """Notes a new connection, which has no such stream unless the session was resumed."""


# -- streams ---------------------------------------------------------------------------------------


class Stream(Protocol):
    """Receives what comes over a stream: an observation, or a subscription to a topic."""

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """Receives a frame of values; the first has this number, and ``available`` more are ready at the
        daemon.

        It cost ``size`` bytes of credit.
        """

    @property
    def seen(self) -> int:
        """The newest epoch of the space that has come, 0 if there is none."""

    def know(self, total: int) -> None:
        """Notes that so many values, since the stream was opened, have come or are ready."""

    def reach(self, epoch: int) -> None:
        """Notes that everything up to this epoch has come, and that it is on the daemon's disk."""

    def finish(self) -> None:
        """Notes that the stream is complete."""

    def fail(self, error: DataspaceError) -> None:
        """Notes that the stream has failed, or that the space was closed."""

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """Called when the client has reconnected."""


class Lasting:
    """Outlives a connection without being a stream: a publication."""

    @abstractmethod
    def reconnected(self, *, moved: bool) -> None:
        """Called when the client has reconnected; ``moved`` if it is to another space."""

    @abstractmethod
    def fail(self, error: DataspaceError) -> None:
        """Called when the client will not reconnect."""


# -- offers ----------------------------------------------------------------------------------------


class OutgoingOffer:
    """One stream to the daemon; ``write`` sends frames, within the daemon's ``limits``."""

    def __init__(
        self, number: int, write: Callable[[bytes], None], limits: FrameLimits | None = None
    ) -> None:
        self.number = number
        self._limits = limits or FrameLimits()
        self._write = write
        self._asked = self._asked_size = 0
        self._sent = self._sent_size = 0
        self._over = self._is_wanted = False
        self._waiting, self._peeked = 0, -1
        self._error: DataspaceError | None = None
        self._changed = loop().event()

    @property
    def sent(self) -> int:
        """Number of values sent."""
        return self._sent

    async def is_wanted(self, unwanted: type[Broken]) -> bool:
        """Waits until the daemon asks or peeks; False if it fails the stream with an error of a kind.

        Raises any other error that the stream has failed with.
        """
        while self._error is None and not self._is_wanted:
            await self._wait()
        if self._error is not None and not isinstance(self._error, unwanted):
            raise self._error
        return self._error is None

    def receive(self, packet: p.Peek | p.Ask | p.Done) -> None:
        """Takes a packet of the stream."""
        self._is_wanted = True
        self._changed.set()
        match packet:
            case p.Peek(_, items):
                self.peek(items)
            case p.Ask(_, items, size):
                self.ask(items, size)
            case p.Done():
                self.done()

    async def send(self, value: Value) -> None:
        """Sends a value when the daemon has capacity for it; raises the error that the stream has failed
        with.

        Raises ``Refused("limit")`` for a value beyond what the daemon takes: the stream goes on without it.
        """
        first, data = self._sent, encode(p.Values(self.number, self._sent, (value,), 0))
        self._limits.check_frame(data)  # before it is promised as available
        self._waiting += 1
        self._answer_peek()
        try:
            while self._error is None and (self._sent >= self._asked or self._sent_size >= self._asked_size):
                await self._wait()
        finally:
            self._waiting -= 1
        if self._error is not None:
            raise self._error
        if self._sent != first:  # others came first
            data = encode(p.Values(self.number, self._sent, (value,), 0))
        self._sent += 1
        self._sent_size += len(data) - 4
        self._write(data)

    async def finish(self) -> int:
        """Ends the stream, waits until the daemon has handled all of it, and returns the number of values."""
        self._write(encode(p.Done(self.number)))
        while not self._over and self._error is None:
            await self._wait()
        if self._error is not None:
            raise self._error
        return self._sent

    def abort(self) -> None:
        """Ends the stream early; what the daemon has already handled stays as it is."""
        if not self._over and self._error is None:
            self._write(encode(p.Error(self.number, "", "aborted")))

    def ask(self, items: int, size: int) -> None:
        """Notes that the daemon has capacity for so many values in all."""
        self._asked, self._asked_size = max(self._asked, items), max(self._asked_size, size)
        self._changed.set()

    def peek(self, items: int) -> None:
        """Notes that the daemon is to be notified of so many values in all, sent or waiting to be sent."""
        self._peeked = items
        self._answer_peek()

    def _answer_peek(self) -> None:
        known = self._sent + self._waiting
        if 0 <= self._peeked <= known:
            self._peeked = -1
            self._write(encode(p.Available(self.number, known)))

    def done(self) -> None:
        """Notes that the daemon has handled the whole stream."""
        self._over = True
        self._changed.set()

    def fail(self, error: DataspaceError) -> None:
        """Fails the stream: the daemon has ended it, or the connection was lost."""
        self._error = error
        self._changed.set()

    async def _wait(self) -> None:
        if self._changed.is_set():
            self._changed = loop().event()
        await self._changed.wait()
