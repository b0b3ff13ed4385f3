"""What publications of one space share: read operations and indexes of claims."""

from __future__ import annotations

import trio

from dataspace.kernel.space import Space
from server.spaces.turns.claim_index import ClaimIndexes
from server.spaces.turns.packed import Prepared


class Publishing:
    """The state of publications, which come one at a time: whoever publishes holds ``lock``."""

    def __init__(self, space: Space) -> None:
        self.lock = trio.Lock()
        self.prepared = Prepared()
        self.claims = ClaimIndexes(space)
        """What each owner claims, by key; a turn that is no publication forgets that of its owner."""
