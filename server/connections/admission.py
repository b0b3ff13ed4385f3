"""Admission: whether a client may come in, and what the daemon speaks.

Always: a client that is not admitted gets the reason, and nothing is granted that was not requested.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataspace.errors import ProtocolError, Refused
from dataspace.kernel.actions import ACTIONS
from dataspace.wire import packets as p
from dataspace.wire.features import MAX_TEXT, WANTED, Wanted, too_long
from dataspace.wire.observing import Policy
from dataspace.wire.session import ALL_HEARD
from index.values.values import Map
from server.config.principals import Principal
from server.config.rights import Permit
from server.owners.bearers import Bearer

if TYPE_CHECKING:
    from server.config.model import Limits
    from server.sessions.feeding import Feeder
    from server.sessions.peer import FeederKey
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace


@dataclass(frozen=True, slots=True)
class Admission:
    """An admitted client: its bearer, its identity, and the space of its session."""

    bearer: Bearer
    client: str
    hosted: HostedSpace


def admit(
    shared: DaemonState, client: str, wanted: Wanted, peer: Principal, permit: Permit | None
) -> Admission:
    """Returns what a client is admitted to; raises ``ProtocolError`` for a client that is not admitted.

    With a ``permit`` it needs no token; without a token it is the ``peer``.
    """
    for name, text in ("space", wanted.space), ("token", wanted.token):
        if len(text) > MAX_TEXT:  # of a request over HTTP, whose headers may be longer than a hello
            raise too_long(name)
    if permit is None:
        permit = shared.keys.admit(wanted.token)
    bearer = Bearer(permit, permit.principal or peer)
    try:
        permit.check_space(wanted.space)
        hosted = shared.find_space(wanted.space)
        if (wanted.resume is not None or wanted.leader) and not wanted.here:
            hosted.check_leads()
        client = bearer.client(client)
        hosted.clients.check(client)
    except Refused as refusal:
        raise ProtocolError(refusal.code, refusal.text, refusal.url) from None
    return Admission(bearer, client, hosted)


def heartbeat(limits: Limits, wanted: Wanted) -> float:
    """Returns how often both sides must send something: what the client wants, within the limits."""
    if wanted.heartbeat == math.inf:
        return math.inf
    return max(limits.heartbeat_least, min(wanted.heartbeat, limits.heartbeat_seconds))


def spoken(verbs: Iterable[str], streams: Mapping[str, FeederKey[Feeder]]) -> Map:
    """Returns what this daemon understands, as its welcome lists it for a hello that asks for it."""
    return Map(
        {
            "versions": p.VERSIONS,
            "actions": ACTIONS,
            "packets": tuple(sorted({p.NUMBERS[kind] for kind in ALL_HEARD})),
            "features": tuple(sorted(WANTED)),
            "kinds": {kind: key.options for kind, key in streams.items()},
            "offers": {"stage": ("key", "kind")},
            "policies": tuple(each.value for each in Policy),
            "verbs": tuple(sorted(verbs)),
        }
    )
