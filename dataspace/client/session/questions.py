"""Questions: requests on their way, each waiting for one answer.

Always: a question is settled once, by its answer, by a denial, or by the loss of the connection.
"""

from __future__ import annotations

import trio

from dataspace.errors import DataspaceError
from index.values.values import Value


class Question:
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
