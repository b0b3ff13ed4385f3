"""Derived: what a tick has changed, as rules and flows say it to whoever publishes it.

Always: in the order of an epoch: additions, then messages, then removals.
"""

from __future__ import annotations

from index.values.values import Value


class Derived:
    """What a tick changed: facts that follow now and did not, messages, facts that did and do not.

    Written by hand since there is one for each turn, and a dataclass asks for each list whether it was given.
    """

    __slots__ = ("added", "messages", "removed")

    def __init__(self, added: list[Value], messages: list[Value], removed: list[Value]) -> None:
        self.added = added
        self.messages = messages
        self.removed = removed

    def __bool__(self) -> bool:
        return bool(self.added or self.messages or self.removed)

    def extend(self, more: Derived) -> None:
        """Takes in what another part of the rules has changed in the same tick."""
        self.added += more.added
        self.messages += more.messages
        self.removed += more.removed
