"""Greeting: what happens between a hello and its welcome.

Who is it, what may it do, about which dataspace is it, does it come back to a session, and what does it get
of what it would like?  It is apart from the connection because all of it happens once.

Always: whoever is not let in is told why before anything of theirs was looked at; nothing is granted that was
not asked for.
"""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import trio

from dataspace.errors import ProtocolError, Refused
from dataspace.wire import packets as p
from dataspace.wire.features import Granted, Wanted
from server.owners.turn_numbers import PASSING

if TYPE_CHECKING:
    from server.sessions.connection import Connection

logger = logging.getLogger("dataspace")


def greet(connection: Connection, hello: p.Hello) -> None:
    """Answers a hello with a welcome; ``ProtocolError`` for a peer that may not come in."""
    if hello.version != p.VERSION:
        raise ProtocolError("version", f"version {hello.version}, this daemon speaks {p.VERSION}")
    if not hello.client:
        raise ProtocolError("malformed", "Hello.client must not be empty: turns are numbered by it")
    wanted = Wanted.read(hello.features)
    _admit(connection, hello.client, wanted)
    connection.name = hello.name
    home = connection.home
    standing, resumed = home.sessions.greet(connection, hello.client, wanted)
    connection.standing = standing
    connection.daemon.strangers.discard(connection)
    if resumed:
        connection.session.resume()
    logger.info(
        "session %d: %r (%r) from %s%s",  # quoted, so that no name writes lines of its own
        standing.number,
        connection.name,
        hello.client,
        connection.link.peer,
        f" came back as connection {connection.number}" if resumed else "",
    )
    interval = _interval(connection, wanted)
    connection.sending.beat_at(interval)
    connection.session.allow_frames(connection.daemon.config.limits.frame_bytes)
    connection.say(
        p.Welcome(
            p.VERSION,
            standing.number,
            home.identity,
            home.space.epoch,
            standing.client.sequence,
            home.limits_map(),
            Granted(interval, standing.grace, standing.secret, resumed).packed(),
        )
    )


def _admit(connection: Connection, client: str, wanted: Wanted) -> None:
    """Finds out what the peer may do, and which dataspace it is about."""
    if not connection.trusted:
        connection.permit = connection.daemon.keys.admit(wanted.token)
    permit = connection.permit
    try:
        permit.check_space(wanted.space)
        connection.home = connection.daemon.find_space(wanted.space)
        if not client.startswith(PASSING):
            permit.check_durable(client.removeprefix("owner:"))
    except Refused as refusal:
        raise ProtocolError(refusal.code, refusal.text) from None
    if permit.until is not None:
        connection.start(_expel, connection, permit.until)


async def _expel(connection: Connection, until: datetime) -> None:
    """Ends the connection when its token is not good any more."""
    await trio.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()))
    connection.dismiss("unauthorized", "the token is not good any more")


def _interval(connection: Connection, wanted: Wanted) -> float:
    """How often both sides say something: what the peer would like, within what the daemon allows."""
    limits = connection.daemon.config.limits
    if wanted.heartbeat == math.inf:
        return math.inf
    return max(limits.heartbeat_least, min(wanted.heartbeat, limits.heartbeat_seconds))
