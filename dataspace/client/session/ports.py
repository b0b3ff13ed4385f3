"""What a session passes things on to: streams, and what outlives a connection without being one."""

from __future__ import annotations

from typing import Protocol

from dataspace.errors import DataspaceError
from index.values.values import Value


class Stream(Protocol):
    """Receives what comes over a stream: an observation, or a subscription to a topic."""

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """Receives a frame of values; the first has this number, and ``available`` more are ready at the
        daemon.

        It cost ``size`` bytes of credit.
        """

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


class Lasting(Protocol):
    """Outlives a connection without being a stream: a publication."""

    def reconnected(self, *, moved: bool) -> None:
        """Called when the client has reconnected; ``moved`` if it is to another space."""

    def fail(self, error: DataspaceError) -> None:
        """Called when the client will not reconnect."""
