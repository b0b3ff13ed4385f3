"""Awaiting: after a start groups hand out nothing until members that may come back are back.

The log does not say which jobs were out, but it knows sessions with grace, and the patterns of their streams.

Always: a group waits no longer than its members may take to come back, and within a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio

from index.values.values import key
from server.groups.space.group import WorkGroup
from server.parts import Awaited

AWAITED_SECONDS: Final = 6.0
"""Seconds that a group waits at most: a client whose daemon was away for long waits up to 4 s between two
attempts."""


class AwaitedMembers:
    """The sessions for which groups wait, and the groups that hand out nothing meanwhile.

    ``wake`` is called when it is to be looked again which groups have settled.
    """

    def __init__(self, groups: Mapping[str, WorkGroup], wake: Callable[[], None]) -> None:
        self._groups = groups
        self._wake = wake
        self._held: dict[WorkGroup, None] = {}
        self._owners: set[str] = set()
        self.claimed: Final[dict[WorkGroup, int]] = {}
        """Groups that have not read yet what members have come back with, and how many members those are."""

    def clear(self) -> None:
        """Waits for no session any more."""
        self._held.clear()
        self._owners.clear()

    def expect(self, awaited: Sequence[Awaited]) -> None:
        """Makes groups wait for sessions that had a stream of their pattern, while these may come back."""
        dividing: dict[object, list[WorkGroup]] = {}
        for group in self._groups.values() if awaited else ():
            dividing.setdefault(key(group.pattern), []).append(group)
        for owner, grace, pattern in awaited:
            until = trio.current_time() + min(grace, AWAITED_SECONDS)
            for group in dividing.get(key(pattern), ()):
                group.awaited.add(owner)
                group.opens_late = max(group.opens_late, until)
                self._owners.add(owner)

    def expect_no_more(self, owner: str) -> None:
        """Notes that the session of an owner is back, or has ended: no group waits for it; O(groups)."""
        if owner in self._owners:
            self._owners.discard(owner)
            for group in self._groups.values():
                group.awaited.discard(owner)
            self._wake()

    def holds(self, group: WorkGroup, now: float) -> bool:
        """True if a group is to hand out nothing now; ``settled`` will have it, or whoever ends the claim."""
        if group in self.claimed:
            return True
        if group.settled_at(now) <= now:
            return False
        if group not in self._held:
            self._held[group] = None
            self._wake()
        return True

    def settled(self, now: float) -> list[WorkGroup]:
        """Returns the groups that may hand out from now on, each once."""
        found = [each for each in self._held if each.settled_at(now) <= now]
        for group in found:
            del self._held[group]
        return [each for each in found if self._groups.get(each.name) is each]

    def times(self, now: float) -> list[float]:
        """Returns when the held groups settle."""
        return [each.settled_at(now) for each in self._held]
