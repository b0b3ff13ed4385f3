"""Several daemons over one home as a feature of each: its leader, its followers, facts and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import Refused
from index.values.values import Map
from relay.store.address import StoreAddress
from server.cluster.database.figures import CLUSTER, ClusterFigures, ClusterView
from server.cluster.followers import FOLLOWERS, Followers
from server.cluster.homes import contact_of
from server.features import DaemonTask, Feature, Measured
from server.metrics import Metric
from server.sessions.requests import check_own_machine

if TYPE_CHECKING:
    from dataspace.wire.verbs import Arguments
    from index.values.values import Value
    from server.cluster.database.store import StoreHome
    from server.sessions.peer import Peer
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

# A table: a metric is two or three lines.
# fmt: off
METRICS: Final[tuple[Metric[ClusterFigures], ...]] = (
    Metric("dataspace_cluster_members", "gauge", "Members of the cluster that live; 0 outside of one.",
           lambda of: of.members),
    Metric("dataspace_cluster_members_gone", "gauge", "Members killed or cut off within a day, and not back.",
           lambda of: of.gone),
    Metric("dataspace_cluster_members_drained", "gauge", "Daemons that are drained until they are resumed.",
           lambda of: of.drained),
    Metric("dataspace_cluster_members_differing", "gauge", "Members with other settings than this daemon.",
           lambda of: of.differing),
    Metric("dataspace_cluster_term", "gauge",
           "The term of the leader of a space, which rises with each take-over.",
           lambda of: of.terms, ("space",)),
    Metric("dataspace_cluster_led", "gauge", "1 while a living member leads the space.",
           lambda of: of.led, ("space",)),
    Metric("dataspace_cluster_store_silence_seconds", "gauge", "Time since the store answered this daemon.",
           lambda of: of.silence),
    Metric("dataspace_cluster_durable", "gauge",
           "1 while a failover of the database keeps all that was acknowledged, and outside of a cluster.",
           lambda of: float(of.is_durable)),
    Metric("dataspace_cluster_sure", "gauge", "0 while another daemon may lead what this one leads.",
           lambda of: float(of.is_sure)),
    Metric("dataspace_cluster_late_renewals", "counter",
           "Times the last third of this daemon's lease had begun before it was renewed.",
           lambda of: of.late),
)
# fmt: on


def _store_of(daemon: DaemonState) -> StoreHome | None:
    """Returns the home of a daemon if it is a store."""
    if not isinstance(daemon.config.data, StoreAddress):
        return None
    from server.cluster.database.store import StoreHome  # psycopg is loaded where it is used

    assert isinstance(daemon.home, StoreHome)  # by its configuration
    return daemon.home


def _tasks(daemon: DaemonState) -> Sequence[DaemonTask]:
    """A directory has no members."""
    if (home := _store_of(daemon)) is None:
        return ()
    from server.cluster.database.membership import state_members  # as above

    return (DaemonTask("facts about the cluster", partial(state_members, daemon, home)),)


async def _cluster(daemon: DaemonState, peer: Peer, arguments: Arguments) -> Value:
    """Drains a daemon of the cluster, or resumes it, and returns its role; any daemon of it does that."""
    peer.permit.check_administer("drain a daemon")
    check_own_machine(daemon, peer, "drain one of the cluster")
    if (home := _store_of(daemon)) is None:
        await trio.lowlevel.checkpoint()
        raise Refused("no-cluster", "this daemon has its data in a directory, and is of no cluster")
    from server.cluster.database.drained import packed  # as above

    name, do = arguments["name"], arguments["do"]
    role = await trio.to_thread.run_sync(home.role_of, name, do, abandon_on_cancel=True)
    if role.changed:
        daemon.watch.acted(do, f"{name}, as session {peer.session_id} requested")
    return packed(role)


def _make(daemon: DaemonState) -> None:
    daemon.parts.add(CLUSTER, ClusterView())
    daemon.parts.add(FOLLOWERS, Followers(daemon))
    daemon.link = contact_of(daemon)
    if (home := _store_of(daemon)) is not None:
        home.given_up = daemon.parts[FOLLOWERS].tell_moved


def _status(daemon: DaemonState, _: HostedSpace) -> dict[str, Value]:
    found: dict[str, Value] = {"followers": daemon.parts[FOLLOWERS].status()}
    if (home := _store_of(daemon)) is not None:
        held, allowed = home.connections
        found["connections"] = Map({"held": held, "allowed": allowed})
    return found


def _leads(daemon: DaemonState, spaces: Sequence[HostedSpace]) -> Sequence[DaemonTask]:
    """Who leads ``main`` of a directory has followers there."""
    if daemon.main in spaces:
        daemon.parts[FOLLOWERS].listen()
    return ()


FEATURE: Final = Feature(
    name="cluster",
    make=_make,
    verbs=lambda daemon: {"follow": daemon.parts[FOLLOWERS].follow, "cluster": partial(_cluster, daemon)},
    tasks=_tasks,
    leads=_leads,
    status=_status,
    inspected=frozenset(["followers", "connections"]),
    metrics=Measured(lambda daemon: daemon.parts[CLUSTER].figures(), METRICS),
)
