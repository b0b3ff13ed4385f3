"""Endings: a stream that was aborted and whose end the daemon has not confirmed.

It takes the place of the stream, so that what is still on its way finds somebody who throws it away.

Always: whoever waits is woken by the confirmation, by an error, or by the loss of the connection, after
which the abort is said again to a session that comes back.
"""

from __future__ import annotations

import trio

from dataspace.errors import DataspaceError
from index.values.values import Value


class Ending:
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
