"""What owners need of the space in which they own facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Owners(Protocol):
    """The space as leases use it."""

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts all that these owners claim: in one turn, or in several where that is very much."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""
