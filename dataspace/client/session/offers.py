"""Offers: streams of values that a client sends to the daemon, as the daemon requests them.

Always: no more values are sent than were requested; the requested bytes are exceeded by one value at most. An
offer whose connection is lost fails, and its caller decides whether to repeat it.
"""

from __future__ import annotations

from collections.abc import Callable

from dataspace.errors import DataspaceError
from dataspace.loops.here import loop
from dataspace.wire import packets as p
from dataspace.wire.outgoing import FrameLimits
from dataspace.wire.session import encode
from index.values.values import Value


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
        self._over = False
        self._waiting, self._peeked = 0, -1
        self._error: DataspaceError | None = None
        self._changed = loop().event()

    @property
    def sent(self) -> int:
        """Number of values sent."""
        return self._sent

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
