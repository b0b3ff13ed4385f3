"""Hosted code as a feature of the daemon: actors, in it and in processes of their own, and rules by zones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from server.features import DaemonTask, Feature
from server.hosting.actors import HOSTING, HostedActors, hosting_verbs
from server.hosting.guardian import SERVE
from server.hosting.zones import ZONES, ZonesPart

if TYPE_CHECKING:
    from server.sessions.requests import Verb
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace


def _make(daemon: DaemonState) -> None:
    serve, flush = daemon.parts[SERVE], daemon.flushing.flush
    daemon.parts.add(HOSTING, HostedActors(daemon.config, daemon.spaces, serve, flush, daemon.lane))


def _verbs(daemon: DaemonState) -> Mapping[str, Verb]:
    return hosting_verbs(daemon.parts[HOSTING])


def _leads(daemon: DaemonState, spaces: Sequence[HostedSpace]) -> Sequence[DaemonTask]:
    daemon.parts[HOSTING].lead([hosted.name for hosted in spaces], daemon.peers)
    return ()


def _status(_daemon: DaemonState, hosted: HostedSpace) -> Mapping[str, object]:
    zones = hosted.parts[ZONES]
    return {"zones": zones.release, "zones_before": zones.before}


FEATURE: Final = Feature(
    name="hosting",
    make=_make,
    spaces=((ZONES, ZonesPart),),
    verbs=_verbs,
    leads=_leads,
    status=_status,
)
