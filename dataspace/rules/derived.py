"""Derived: what a tick has changed, as rules and flows say it to whoever publishes it.

Always: in the order of an epoch: additions, then messages, then removals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from index.values import Value


@dataclass(slots=True)
class Derived:
    """What a tick changed: facts that follow now and did not, messages, facts that did and do not."""

    added: list[Value] = field(default_factory=list)
    messages: list[Value] = field(default_factory=list)
    removed: list[Value] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.messages or self.removed)

    def extend(self, more: Derived) -> None:
        """Takes in what another part of the rules has changed in the same tick."""
        self.added += more.added
        self.messages += more.messages
        self.removed += more.removed
