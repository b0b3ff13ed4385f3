"""A ledger: what a log would know of claims, from what epochs say of them alone."""

from __future__ import annotations

from dataspace.kernel.changes import Epoch
from index.values.values import Value


class Ledger:
    """Claims by owner and handle."""

    def __init__(self) -> None:
        self.owners: dict[str, dict[int, Value]] = {}

    def take(self, epoch: Epoch) -> None:
        """Takes in the next epoch: what it begins, and then what it ends, which must be there."""
        for owner, asserted, retracted in epoch.claims:
            held = self.owners.setdefault(owner, {})
            held.update(asserted)
            for handle in retracted:
                del held[handle]
            if not held:
                del self.owners[owner]
