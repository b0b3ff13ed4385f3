"""Requests about sessions: the connected clients, the cost of each, and to end one.

A session is known by its number, the number of its first connection, which stays when it is resumed.

Always: a list is made in slices, between which others are served; to end a session needs a token that may do
everything.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import Refused
from dataspace.wire.arguments import number
from index.values.values import Map, Value
from relay.delivery.followers import Follower
from server.monitoring.survey import lag_of
from server.owners.accounts import CONNECTION_BYTES, STREAM_BYTES
from server.sessions.peer import Peer

if TYPE_CHECKING:
    from server.monitoring.state import DaemonState
    from server.spaces.sessions import SessionState
    from server.spaces.space import HostedSpace

MOST: Final = 10_000
"""Sessions in one answer."""

ENDED: Final = "ended"
"""The code of the goodbye to a session that an administrator ends."""


def session_verbs(daemon: DaemonState) -> Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]:
    """Returns the requests by the names that they have on the wire."""

    async def _sessions(asker: Peer, arguments: Map) -> Value:
        """Returns a map for each session: connected ones first, in the order in which they came."""
        await trio.lowlevel.checkpoint()
        asker.permit.check_inspect("the sessions")
        most = number(arguments, "most", MOST)
        found: list[Value] = []
        async with asker.work() as work:
            for connection in list(daemon.connections.values()):
                if connection.state is not None and len(found) < most:
                    found.append(_connected(daemon, connection, connection.state))
                if work.is_over:
                    await work.pass_on()
        for hosted in daemon.spaces.values():
            found += [_suspended(hosted, each) for each in hosted.sessions.suspended()]
        return tuple(found[: min(most, MOST)])

    async def _end(asker: Peer, arguments: Map) -> Value:
        """Ends a session, connected or suspended; its facts are retracted."""
        await trio.lowlevel.checkpoint()
        asker.permit.check_administer("end sessions")
        wanted = number(arguments, "session")
        for connection in list(daemon.connections.values()):
            if connection.state is not None and connection.state.number == wanted:
                if connection.number == asker.number:
                    raise Refused("bad-request", f"session {wanted} is the one that asks")
                daemon.watch.acted("session-ended", f"session {wanted} of {connection.principal}", asker.who)
                connection.dismiss(ENDED, "an administrator has ended this session")
                return _named(connection.name, connection.state)
        for hosted in daemon.spaces.values():
            for state in hosted.sessions.suspended():
                if state.number == wanted and hosted.sessions.end_suspended(wanted):
                    said = f"session {wanted} of {state.bearer.principal}, suspended"
                    daemon.watch.acted("session-ended", said, asker.who)
                    return _named("", state)
        raise Refused("no-session", f"there is no session {wanted}: dataspace sessions lists them")

    return {"sessions": _sessions, "end-session": _end}


def _named(name: str, state: SessionState) -> Map:
    return Map({"session": state.number, "name": name, "principal": str(state.bearer.principal)})


def _connected(daemon: DaemonState, connection: Peer, state: SessionState) -> Map:
    """Returns what is known of a session with a connection; O(streams and what waits for them)."""
    hosted = connection.hosted
    rate, now = daemon.rates.of(connection), time.time_ns() // 1000
    streams = list(connection.streams.values())
    lag = lag_of(streams, hosted.space.epoch, now)
    waiting = [each.backlog for each in streams if isinstance(each.backlog, Follower)]
    waiting_bytes = sum([each.used for each in waiting if len(each)])
    unsent = connection.sending.unheard
    return Map(
        {
            **_named(connection.name, state),
            "connection": connection.number,
            "state": "connected",
            "space": hosted.name,
            "address": connection.address,
            "tls": connection.door.encryption,
            "since": now - int((trio.current_time() - connection.since) * 1e6),
            "seconds": trio.current_time() - connection.since,
            "grace": state.grace,
            "turns": connection.turns,
            "received_bytes": connection.received,
            "sent_bytes": connection.sending.sent,
            "turns_per_second": rate.turns,
            "received_bytes_per_second": rate.received,
            "sent_bytes_per_second": rate.sent,
            "requests": connection.asked,
            "streams": len(streams),
            "backlog": sum(map(len, waiting)),
            "lag_epochs": lag.epochs,
            "lag_seconds": lag.seconds,
            "waiting_bytes": waiting_bytes + unsent,
            "memory_bytes": CONNECTION_BYTES + STREAM_BYTES * len(streams) + waiting_bytes + unsent,
        }
    )


def _suspended(hosted: HostedSpace, state: SessionState) -> Map:
    """Returns what is known of a session that waits for its client."""
    return Map(
        {
            **_named("", state),
            "state": "suspended",
            "space": hosted.name,
            "grace": state.grace,
        }
    )
