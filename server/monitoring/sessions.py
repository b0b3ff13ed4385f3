"""Requests about sessions: the connected clients, the cost of each, and to end one.

A session is known by the name of its owner without the word before it, such as ``2.5``, which stays when it
is resumed.

Always: a list is made in slices, between which others are served; to end a session needs a token that may do
everything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import Refused
from dataspace.wire.verbs import Arguments
from index.values.values import Map, Value
from relay.delivery.queue_members import QueueMember
from server.monitoring.measures import MEASURES
from server.monitoring.survey import lag_of
from server.owners.accounts import CONNECTION_BYTES, STREAM_BYTES
from server.sessions.peer import PEERS, Peer
from server.spaces.sessions import id_of

if TYPE_CHECKING:
    from server.sessions.state import DaemonState
    from server.spaces.sessions import SessionState
    from server.spaces.space import HostedSpace

NAME: Final = re.compile(r"[0-9]{1,18}\.[0-9]{1,9}")
DIGITS: Final = 19

ENDED: Final = "ended"
"""The code of the goodbye to a session that an administrator ends."""


def session_verbs(daemon: DaemonState) -> Mapping[str, Callable[[Peer, Arguments], Awaitable[Value]]]:
    """Returns the requests by the names that they have on the wire."""

    async def _sessions(asker: Peer, arguments: Arguments) -> Value:
        """Returns a map for each session: connected ones first, in the order in which they came."""
        await trio.lowlevel.checkpoint()
        asker.permit.check_inspect("the sessions")
        most = arguments["most"]
        found: list[Value] = []
        async with asker.work() as work:
            for connection in list(daemon.parts[PEERS].values()):
                if connection.state is not None and len(found) < most:
                    found.append(_connected(daemon, connection, connection.state))
                if work.is_over:
                    await work.pass_on()
        for hosted in daemon.spaces.values():
            found += [_suspended(hosted, each) for each in hosted.sessions.suspended()]
        return tuple(found[:most])

    async def _end(asker: Peer, arguments: Arguments) -> Value:
        """Ends a session, connected or suspended; its facts are retracted."""
        await trio.lowlevel.checkpoint()
        asker.permit.check_administer("end sessions")
        wanted = _wanted(arguments["session"])
        found = [
            (hosted, connection, state)
            for hosted, connection, state in _all(daemon)
            if wanted in (state.id, state.number)
        ]
        if len(found) > 1:  # spaces count their terms by themselves
            found = [each for each in found if each[0] is asker.hosted] or found
        if len(found) > 1:
            names = ", ".join(sorted({hosted.name for hosted, _, _ in found}))
            raise Refused(
                "bad-request", f"spaces {names} have a session {wanted}: ask in the one that is meant"
            )
        for hosted, connection, state in found:
            target = f"session {state.id} of {state.bearer.principal}"
            if connection is not None:
                if connection.number == asker.number:
                    raise Refused("bad-request", f"session {state.id} is the one that asks")
                daemon.watch.acted("session-ended", target, asker.who)
                connection.dismiss(ENDED, "an administrator has ended this session")
                return _named(connection.name, state)
            if hosted.sessions.end_suspended(state.number):
                daemon.watch.acted("session-ended", f"{target}, suspended", asker.who)
                return _named("", state)
        raise Refused("no-session", f"there is no session {wanted}: dataspace sessions lists them")

    return {"sessions": _sessions, "end-session": _end}


def _wanted(session: str | int) -> str | int:
    """Returns the session that a request names: by its name, its owner, the owner of its interests, or
    its number.

    >>> [_wanted(each) for each in ("2.5", "session:2.5 interests @ token:ops", "2000000005", 5)]
    ['2.5', '2.5', 2000000005, 5]
    """
    if isinstance(session, str):
        name = id_of(session.strip()).removesuffix(" interests")
        if name.isascii() and name.isdecimal() and len(name) < DIGITS:
            return int(name)
        if NAME.fullmatch(name):
            return name
    else:
        return session
    raise Refused("bad-request", f"session must be a name such as 2.5, or a number, got {session!r:.60}")


def _all(daemon: DaemonState) -> Iterator[tuple[HostedSpace, Peer | None, SessionState]]:
    """Yields all sessions, with their connections."""
    for connection in list(daemon.parts[PEERS].values()):
        if connection.state is not None:
            yield connection.hosted, connection, connection.state
    for hosted in list(daemon.spaces.values()):
        for state in hosted.sessions.suspended():
            yield hosted, None, state


def _named(name: str, state: SessionState) -> Map:
    about: dict[str, Value] = {"session": state.number, "id": state.id}
    return Map({**about, "name": name, "principal": str(state.bearer.principal)})


def _connected(daemon: DaemonState, connection: Peer, state: SessionState) -> Map:
    """Returns what is known of a session with a connection; O(streams and what waits for them)."""
    hosted = connection.hosted
    rate, now = daemon.parts[MEASURES].rates.of(connection), time.time_ns() // 1000
    streams = list(connection.streams.values())
    lag = lag_of(streams, hosted.space.epoch, now)
    waiting = [each.backlog for each in streams if isinstance(each.backlog, QueueMember)]
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
