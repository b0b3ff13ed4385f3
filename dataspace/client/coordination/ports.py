"""What coordination needs of the space that it is about.

It is apart from ``RemoteSpace``, which offers the verbs of this room, so that the room is below it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from dataspace.client.session.session import ClientSession
from dataspace.client.session.turns import Draft
from dataspace.kernel.epoch_changes import EpochChanges
from index.values.values import Value


class Changing(Protocol):
    """An observation, as far as it is needed here."""

    def open(self) -> None:
        """Opens the stream now."""

    def epochs(self) -> AsyncIterator[EpochChanges]:
        """Yields whole epochs."""

    def close(self) -> None:
        """Ends the observation without waiting."""


class Coordinated(Protocol):
    """A space: its observations, and the session in which turns are made."""

    @property
    def owner(self) -> str:
        """The durable owner, or the lease, of the client's facts; empty for facts of its session."""

    @property
    def session(self) -> ClientSession:
        """The session of the client."""

    def watch(self, pattern: Value | str) -> Changing:
        """Observes a pattern quietly."""

    def draft(self) -> Draft:
        """Returns an empty turn of the session's owner."""

    async def commit(self, draft: Draft) -> int:
        """Submits a turn and returns its epoch."""
