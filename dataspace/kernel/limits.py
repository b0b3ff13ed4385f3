"""What a space may hold, what it holds, and what is said to a turn that goes beyond the limits."""

from __future__ import annotations

from dataclasses import dataclass

from dataspace.errors import Refused


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """What one owner and the whole space may hold; a turn beyond a limit is refused whole."""

    actions_per_turn: int = 65_536
    actions_per_publication: int = 1_000_000
    facts_per_owner: int = 1_000_000
    facts: int = 4_000_000
    rules: int = 1_000
    derived_per_turn: int = 1_000_000
    derived_bytes_per_turn: int = 128 << 20
    derived_bytes: int = 128 << 20
    """Bytes, estimated by texts, of what rules derive and calculate in one turn, and of what they hold."""
    derive_work: int = 50_000
    derive_work_per_action: int = 20
    """Units of work that rules may do in a turn, and for each fact that comes, goes or is read in it."""
    derive_seconds: int = 10
    """How long rules may take in one turn until the one that took most is named."""

    def check_length(self, actions: int, *, publication: bool) -> None:
        """Raises ``Refused`` for a turn, or a publication, of too many actions."""
        what = "publication" if publication else "turn"
        limit = self.actions_per_publication if publication else self.actions_per_turn
        if actions > limit:
            raise Refused("limit", f"{what} of {actions} actions, limit actions_per_{what}={limit}")

    def no_room(self, owner: str, claims: int, total: int) -> Refused:
        """What a turn is refused with after which an owner, or all owners together, would claim too much."""
        if claims > self.facts_per_owner:
            return Refused(
                "limit", f"{claims} facts of {owner}, limit facts_per_owner={self.facts_per_owner}"
            )
        return Refused("limit", f"{total} facts in the space, limit facts={self.facts}")


@dataclass(frozen=True, slots=True)
class SpaceStatistics:
    """Counts of what a space holds: distinct facts, claims on them, owners, observed patterns."""

    epoch: int
    facts: int
    claims: int
    owners: int
    patterns: int
    observers: int
