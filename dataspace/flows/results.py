"""The changes of a tick, as rules and flows report them.

Always: in the order of an epoch: additions, then messages, then removals.
"""

from __future__ import annotations

from index.values.values import Value


class Derived:
    """What a tick changed: derived facts that are new, messages, and derived facts that are gone.

    Written by hand since there is one for each turn, and a dataclass would test for each list whether it was
    given.
    """

    __slots__ = ("added", "messages", "removed")

    def __init__(self, added: list[Value], messages: list[Value], removed: list[Value]) -> None:
        self.added = added
        self.messages = messages
        self.removed = removed

    def __bool__(self) -> bool:
        return bool(self.added or self.messages or self.removed)

    def extend(self, more: Derived) -> None:
        """Adds the changes of another part of the rules in the same tick."""
        self.added += more.added
        self.messages += more.messages
        self.removed += more.removed
