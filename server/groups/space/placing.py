"""Placing: which groups are offered which items, and where they read from otherwise.

A group takes items as they come (``feeding.py``).  A group that has too many undone items takes no more, and
reads on from the log later (``reading.py``).

Always: a live group has read each epoch before the next epoch that is fed.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import trio

from relay.groups.state import END, At
from server.groups.space.failures import FencedGroups, stop
from server.groups.space.feeding import Feeding
from server.groups.space.group import WorkGroup
from server.spaces.space import HostedSpace


class FedGroups(FencedGroups):
    """Groups that take items as they come."""

    def __init__(self, hosted: HostedSpace) -> None:
        super().__init__(hosted)
        self._placed: dict[Hashable, list[WorkGroup]] = {}
        """Groups by the class of their values."""
        self._dirty: dict[WorkGroup, None] = {}
        """Groups in which something has changed since jobs were handed out."""
        self.of_topics: list[WorkGroup] = []
        """The groups that divide a topic."""
        self.behind = trio.Event()
        """Set when a group may read on from the log."""
        self.topics_moved = trio.Event()
        """Set when a group may read on from its topic."""
        self.feeding = Feeding(
            self.by_name, self._placed, self.touched, self.fall_behind, partial(stop, self), self.defect
        )

    def fall_behind(self, group: WorkGroup, at: At) -> None:
        """Moves a group off the live feed: it reads from the log, from this item on."""
        state = group.state
        state.is_live = False
        state.read = max(state.read, (at[0], at[1] - 1) if at[1] else (at[0] - 1, END))
        group.forget_pending()
        group.pending_to = at[0] - 1
        if group.is_stuck or not group.is_full:
            self.behind.set()

    def go_live(self, group: WorkGroup) -> None:
        """Puts a group that has read everything on disk on the live feed."""
        if self.feeding.is_over:  # else the others have not read all of that, and epochs come twice to this
            self.states.fed = max(self.states.fed, self.hosted.commits.durable)
        group.state.is_live = True

    def touched(self, group: WorkGroup) -> None:
        """Notes that a group may have something to hand out."""
        self._dirty[group] = None

    def is_touched(self, group: WorkGroup) -> bool:
        """True if a group may have something to hand out that was too much for one step."""
        return group in self._dirty

    def rest(self, group: WorkGroup) -> None:
        """Takes a group off the live feed."""
        group.state.is_live = False
        self._dirty.pop(group, None)

    def displace(self, group: WorkGroup) -> None:
        """Offers a group no items any more; O(classes of values)."""
        self.rest(group)
        for placed in (self.of_topics, *self._placed.values()):
            if group in placed:
                placed.remove(group)
