"""The handshake: what a hello requests, what of it is granted, and the welcome with the result.

Always: a client that is not admitted gets the reason before anything else of its hello is read; nothing is
granted that was not requested.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dataspace.errors import ProtocolError, Refused
from dataspace.kernel.actions import ACTIONS
from dataspace.wire import packets as p
from dataspace.wire.features import EMPTY, WANTED, Granted, Wanted
from dataspace.wire.observing import OPTIONS as OBSERVED, Policy
from dataspace.wire.session import ALL_HEARD
from index.values.values import Map
from server.config.model import Limits
from server.config.principals import Principal
from server.config.rights import OPEN
from server.owners.bearers import Bearer
from server.sessions.shared import Shared
from server.spaces.sessions import SessionState
from server.spaces.space import HostedSpace
from server.topics.following import OPTIONS as FOLLOWED


@dataclass(frozen=True, slots=True)
class Admission:
    """An admitted client: its requests, its bearer, its identity, and the space of its session."""

    wanted: Wanted
    bearer: Bearer
    client: str
    home: HostedSpace


def admit(shared: Shared, hello: p.Hello, peer: Principal, *, trusted: bool) -> Admission:
    """Returns what a hello is admitted to; raises ``ProtocolError`` for a client that is not admitted.

    With ``trusted`` it needs no token; without one it is the ``peer``.
    """
    if not hello.client:
        raise ProtocolError("malformed", "Hello.client must not be empty: turns are numbered by it")
    wanted = Wanted.read(hello.features)
    permit = OPEN if trusted else shared.keys.admit(wanted.token)
    bearer = Bearer(permit, permit.principal or peer)
    try:
        permit.check_space(wanted.space)
        home = shared.find_space(wanted.space)
        client = bearer.client(hello.client)
        home.clients.check(client)
    except Refused as refusal:
        raise ProtocolError(refusal.code, refusal.text) from None
    return Admission(wanted, bearer, client, home)


def spoken(verbs: Iterable[str]) -> Map:
    """Returns what this daemon understands, as its welcome lists it for a hello that asks for it."""
    return Map(
        {
            "versions": p.VERSIONS,
            "actions": ACTIONS,
            "packets": tuple(sorted({p.NUMBERS[kind] for kind in ALL_HEARD})),
            "features": tuple(sorted(WANTED)),
            "kinds": {
                "observe": tuple(sorted(OBSERVED)),
                "columns": tuple(sorted(OBSERVED)),
                "topic": tuple(sorted(FOLLOWED)),
            },
            "offers": {"stage": ("key", "kind")},
            "policies": tuple(each.value for each in Policy),
            "verbs": tuple(sorted(verbs)),
        }
    )


def welcome(
    home: HostedSpace,
    state: SessionState,
    interval: float,
    wanted: Wanted,
    verbs: Iterable[str],
    *,
    resumed: bool,
) -> p.Welcome:
    """Returns the answer to a hello; ``interval`` is the heartbeat's, in seconds."""
    listed = spoken(verbs) if wanted.spoken else EMPTY
    return p.Welcome(
        p.VERSION,
        state.number,
        home.identity,
        home.space.epoch,
        state.client.sequence,
        home.limits_map(),
        Granted(
            interval,
            state.grace,
            state.secret,
            resumed,
            listed,
        ).packed(),
    )


def heartbeat(limits: Limits, wanted: Wanted) -> float:
    """Returns how often both sides must send something: what the client wants, within the limits."""
    if wanted.heartbeat == math.inf:
        return math.inf
    return max(limits.heartbeat_least, min(wanted.heartbeat, limits.heartbeat_seconds))
