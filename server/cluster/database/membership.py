"""The members of a cluster and the leaders of its spaces, as facts of the space ``system`` of each member.

All members look at the store, so all state the same, a moment apart; ``cluster-differs`` alone compares
the others with this daemon.

Always: a fact changes when a member comes, goes or changes, or a space gets another leader; nothing that
moves by itself, as leases do, is in a fact.  While the store is away the facts stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from dataspace.version import __version__
from index.values.values import Record
from relay.store.errors import LogFailed
from server.cluster.database.cluster_state import FIRST, MemberSeen, SpaceSeen
from server.cluster.database.figures import CLUSTER, ClusterFigures
from server.cluster.reports import said_of

if TYPE_CHECKING:
    from server.cluster.database.store import StoreHome
    from server.sessions.state import DaemonState

LOOK_SECONDS: Final = 0.5
"""How often a daemon looks at the members of its store, as they were seen by then."""


async def state_members(daemon: DaemonState, home: StoreHome) -> None:
    """States the facts about the cluster, and counts for metrics, until cancelled."""
    stated: dict[Record, int] = {}
    view = daemon.parts[CLUSTER]
    view.begin(home)
    while True:
        with suppress(LogFailed):  # the lease warns of a store that is away
            seen = await home.overview(said_of(daemon))
            daemon.system.replace(stated, facts_of(seen.daemons, seen.spaces, home.settings))
            view.note(figures_of(seen.daemons, seen.spaces, home.settings))
        await trio.sleep(LOOK_SECONDS)


def facts_of(members: Sequence[MemberSeen], spaces: Sequence[SpaceSeen], settings: str) -> set[Record]:
    """Returns the facts about members and spaces; ``settings`` is the digest of this daemon."""
    found = {
        Record("member", each.name, each.url, each.web, each.version, each.left > 0)
        for each in members
        if each.left > 0 or _is_missed(each)
    }
    found |= {
        Record("drained", each.name, round(each.drained * 1_000_000))
        for each in members
        if each.drained is not None
    }
    found |= {Record("cluster-differs", each.name, each.url) for each in _differing(members, settings)}
    for space in spaces:
        since = round(space.since * 1_000_000)
        if space.left > 0:
            found.add(Record("leader", space.space, space.leader or "", space.url or "", space.term, since))
        if space.why and space.why != FIRST:
            before, after = space.before or "", space.last or ""
            found.add(Record("takeover", space.space, space.term, before, after, since, space.why))
    return found


def figures_of(members: Sequence[MemberSeen], spaces: Sequence[SpaceSeen], settings: str) -> ClusterFigures:
    """Returns the counts for metrics."""
    return ClusterFigures(
        len([each for each in members if each.left > 0]),
        len([each for each in members if _is_missed(each)]),
        len([each for each in members if each.drained is not None]),
        len(list(_differing(members, settings))),
        {each.space: each.term for each in spaces},
        {each.space: int(each.left > 0) for each in spaces},
    )


def _is_missed(member: MemberSeen) -> bool:
    """True if a member was killed or cut off within a day; one that is drained is known for longer."""
    return member.left <= 0 and member.until > 0 and not member.is_left


def _differing(members: Sequence[MemberSeen], settings: str) -> Iterator[MemberSeen]:
    """Yields the living members of this version whose settings are other ones."""
    for each in members:
        if each.left > 0 and each.version == __version__ and each.settings != settings:
            yield each
