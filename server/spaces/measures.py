"""What a hosted space takes and holds, for limits and for ``dataspace status``."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from dataspace.kernel.limits import size_of
from index.values.values import Map
from server.config.model import DURABLE
from server.spaces.rules import rules_status

if TYPE_CHECKING:
    from server.config.model import Limits
    from server.spaces.roles import FollowerLag
    from server.spaces.space import HostedSpace

PREPARED_FACTOR: Final = 15
CLAIM_BYTES: Final = 150
IDENTITY_BYTES: Final = 2048
"""About the bytes of a prepared operation, of a fact in a claim index, and of a remembered identity."""


def memory_parts(hosted: HostedSpace) -> dict[str, int]:
    """About how many bytes of memory each part of a space has in use; O(rules).

    Whatever clients can make grow is in one of the parts.
    """
    space, rules = hosted.space, hosted.space.rules
    derived, tables = (
        (0, 0) if (program := rules.program) is None else (program.budget.held, program.statistics().bytes)
    )
    prepared = PREPARED_FACTOR * hosted.publishing.prepared.statistics().bytes
    return {
        "facts": space.facts_bytes,
        "patterns": space.interests.size,
        "rules": size_of(rules.claimed, derived) + tables + rules.times.bytes,
        "publications": prepared + CLAIM_BYTES * hosted.publishing.claims.statistics().known,
        "identities": IDENTITY_BYTES * (len(hosted.clients) + len(hosted.leases) + hosted.sessions.waiting),
        "conditions": hosted.conditions.bytes,
        **hosted.parts.sizes(),
        "past": hosted.commits.recent.bytes + hosted.log.cursors.bytes,
    }


def lag_of(hosted: HostedSpace) -> FollowerLag:
    """Returns how far a space is behind its leader; nothing where it is led."""
    return hosted.leader.lag(hosted.commits.durable)


HOSTED: Final = 16
"""How many times as large the frames of a hosted actor's process may be as the frames of a client."""


def hosted_limits(limits: Limits) -> Limits:
    """Returns the limits for the process of an actor that the daemon hosts.

    Its actor gets at once, after a restart, what came in many turns, and answers with one turn.
    """
    return replace(
        limits,
        frame_bytes=HOSTED * limits.frame_bytes,
        frame_elements=HOSTED * limits.frame_elements,
    )


def limits_of(hosted: HostedSpace, process: Limits | None = None) -> Map:
    """Returns the limits that a welcome contains; for a hosted actor, the limits of its ``process``."""
    mine, space_limits = asdict(process or hosted.limits), asdict(hosted.space.limits)
    if process is not None:
        space_limits["actions_per_turn"] = space_limits["actions_per_publication"]
    shown = ("frame_bytes", "frame_elements", "streams", "replays")
    return Map({**{name: mine[name] for name in shown}, **space_limits})


def status_of(hosted: HostedSpace) -> dict[str, object]:
    """Returns what ``dataspace status`` shows of a space: counts, bytes and epochs."""
    log, written = hosted.log, hosted.commits.statistics()
    readers = hosted.role.log.readers if hosted.role.leads else ()
    lag = lag_of(hosted)
    return {
        **asdict(hosted.space.statistics()),
        "space": hosted.name,
        "identity": hosted.identity,
        "sessions_waiting": hosted.sessions.waiting,
        "sessions_resumed": hosted.sessions.resumed,
        "leases": len(hosted.leases),
        "identities": len(hosted.clients),
        "durable_epoch": hosted.commits.durable,
        "leads": hosted.leads,
        "leader": hosted.leader.url,
        "lag_epochs": lag.epochs,
        "lag_seconds": lag.seconds,
        "show": hosted.visibility.in_force if hosted.leads else DURABLE,
        "oldest_epoch": log.oldest,
        **rules_status(hosted.space.rules, len(hosted.suspensions)),
        "disk_full": hosted.commits.full is not None,
        "waiting_epochs": written.backlog_epochs,
        "changes": written.changes,
        "readers": Map({each.name: each.epoch for each in readers}),
        "data": str(hosted.settings.data),
    }
