"""Groups as operators see them: facts of the space ``system`` for each, figures for metrics.

    group(SPACE, NAME, MEMBERS, OUT, UNDONE, DEAD, OLDEST, BEHIND)
    group-member(SPACE, GROUP, SESSION, OUT)
    group-paused(SPACE, GROUP, WHY)

``OLDEST`` is the time of the oldest undone item, or null; ``BEHIND`` counts epochs that are not read.

Always: a fact changes once in ``PAUSE`` seconds at most, and only if a figure of it has; no name of a group
is in a metric.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, cast

import trio

from dataspace.kernel.changes import time_of
from index.values.values import Record
from relay.groups.members import GroupCounts
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.part import GROUPS
from server.spaces.space import HostedSpace
from server.system import SystemSpace

logger = logging.getLogger("dataspace")

PAUSE: Final = 1.0
"""Seconds between two looks."""


@dataclass(slots=True)
class GroupFigures:
    """The figures of all groups of a space together; the worst of them where that says ``max``."""

    groups: int = 0
    paused: int = 0
    members: int = 0
    out: int = 0
    undone: int = 0
    dead: int = 0
    dead_part: float = 0.0
    oldest_seconds: float = 0.0
    behind: int = 0
    counts: GroupCounts = field(default_factory=GroupCounts)


def figures_of(hosted: HostedSpace) -> GroupFigures:
    """Returns the figures of the groups of a space; O(groups)."""
    figures = GroupFigures()
    figures.counts.add(hosted.parts[GROUPS].past)
    if not hosted.leads:
        return figures
    for group in hosted.parts[GROUPS].by_name.values():
        figures.groups += 1
        figures.paused += bool(group.options.paused)
        figures.members += len(group.core.members)
        figures.out += len(group.core.out)
        figures.undone += len(group.state.undone)
        figures.dead += group.dead
        figures.dead_part = max(figures.dead_part, group.dead / max(1, hosted.limits.group_dead))
        figures.oldest_seconds = max(figures.oldest_seconds, group.oldest_seconds)
        figures.behind = max(figures.behind, group.behind)
        figures.counts.add(group.core.counts)
    return figures


class GroupFacts:
    """States the facts about the groups of a daemon."""

    def __init__(self, system: SystemSpace) -> None:
        self._system = system
        self._stated: dict[Record, int] = {}
        self._known: dict[tuple[str, str], tuple[object, list[Record]]] = {}
        """The figures of each group, and the facts that state these."""

    async def run(self, spaces: Callable[[], Iterable[HostedSpace]]) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await trio.sleep(PAUSE)
            try:
                self.look(spaces())
            except Exception:  # a fence: a figure that cannot be made must not end the daemon
                logger.exception("facts about groups cannot be stated")

    def look(self, spaces: Iterable[HostedSpace]) -> None:
        """States how all groups are now; O(groups and members)."""
        known, before = dict[tuple[str, str], tuple[object, list[Record]]](), self._known
        for hosted in spaces:
            for name, group in hosted.parts[GROUPS].by_name.items() if hosted.leads else ():
                at, figures = (hosted.name, name), _figures(group)
                was = before.get(at)
                same = was is not None and was[0] == figures
                known[at] = was if same and was else (figures, [*_facts(hosted, group)])
            for name, why in hosted.parts[GROUPS].failed.items():
                known[hosted.name, name] = (why, [Record("group-paused", hosted.name, name, why)])
        self._known = known
        if len(known) != len(before) or any(before.get(at) is not each for at, each in known.items()):
            self._system.replace(self._stated, {fact for _, facts in known.values() for fact in facts})


def _figures(group: WorkGroup) -> object:
    core, oldest = group.core, group.oldest
    members = [(cast("StreamMember", each).session, len(each.out)) for each in core.members.values()]
    counts = len(core.out), len(group.state.undone), group.dead, group.behind
    return members, counts, None if oldest is None else oldest.time, group.options.paused


def _facts(hosted: HostedSpace, group: WorkGroup) -> Iterable[Record]:
    core, oldest = group.core, group.oldest
    counts = (len(core.members), len(core.out), len(group.state.undone), group.dead)
    at = None if oldest is None else time_of(oldest.time)
    yield Record("group", hosted.name, group.name, *counts, at, group.behind)
    for member in core.members.values():
        session = cast("StreamMember", member).session
        yield Record("group-member", hosted.name, group.name, session, len(member.out))
    if group.options.paused:
        yield Record("group-paused", hosted.name, group.name, group.options.paused)
