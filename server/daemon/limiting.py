"""New limits for a space that is in use; apart from ``relimiting``, which knows the whole daemon."""

from __future__ import annotations

from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space


def relimit_space(space: Space, limits: SpaceLimits) -> None:
    """Changes what a space may hold, but for its rules; what it holds stays, and cannot grow."""
    space.limits = limits
    space.interests.relimit(limits)
    space.rule_quotas.relimit(limits)
    if space.damage is None:  # else no turn may have any action
        space.most_actions = limits.actions_per_turn
