"""What waits for one answer of the daemon: requests, and aborts of streams.

An aborted stream leaves a ``PendingAbort`` in its place until the daemon has confirmed the end, so that
values that are still on their way have a receiver that drops them.

Always: each is settled once, by its answer, by an error, or by the loss of the connection.  An abort whose
connection was lost is sent again to a session that is resumed.
"""

from __future__ import annotations

import trio

from dataspace.errors import DataspaceError
from index.values.values import Value


class PendingRequest:
    """A request on its way."""

    __slots__ = ("_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = trio.Event()
        self._error: DataspaceError | None = None
        self._value: Value = None

    @property
    def is_settled(self) -> bool:
        """Whether it has been answered, or has failed."""
        return self._done.is_set()

    async def wait(self) -> Value:
        """The answer; raises what the question failed with."""
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def answer(self, value: Value) -> None:
        """Somebody knew."""
        self._value = value
        self._done.set()

    def fail(self, error: DataspaceError) -> None:
        """Nobody will answer."""
        self._error = error
        self._done.set()


class PendingAbort:
    """Waits for the end of one stream; ``dropped`` collects those to be aborted again."""

    __slots__ = ("_dropped", "_over")

    def __init__(self, dropped: list[int]) -> None:
        self._dropped = dropped
        self._over = trio.Event()

    async def wait(self) -> None:
        """Returns when there is nothing to wait for any more."""
        await self._over.wait()

    def lose(self, number: int) -> None:
        """The connection is gone."""
        self._dropped.append(number)
        self._over.set()

    def finish(self) -> None:
        """The daemon has confirmed it."""
        self._over.set()

    def fail(self, _error: DataspaceError) -> None:
        """The stream had failed meanwhile, or the space was closed."""
        self._over.set()

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """Nobody wants it any more."""

    def know(self, total: int) -> None:
        """As above."""

    def reach(self, epoch: int) -> None:
        """As above."""

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """As above."""
