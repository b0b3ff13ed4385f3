"""What owners need of the space in which they own facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Owners(Protocol):
    """The space as leases use it."""

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts all claims of these owners: in one turn, or in several if they are very many."""

    def end_soon(self, owners: Sequence[str]) -> None:
        """Like ``end_owners``, but with ``end_due`` or before the next turn, all of those in one turn."""

    def end_due(self) -> None:
        """Retracts what owners claim for which ``end_soon`` was called, or begins to where that is much."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""
