"""Connecting: a remote space for as long as a block runs.

It is apart from the space because it owns what the space only uses: the tasks that keep the connection and
the lease, and in what order all that ends.

Always: when the block has ended in good order every turn has its answer; however it ended, a goodbye was
said if there was a connection.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from dataspace.client.session.events import ConnectionEvent
from dataspace.client.session.session import ClientIdentity, ClientSession
from dataspace.client.space import RemoteSpace
from dataspace.transport.addresses import default_url, parse_url
from dataspace.transport.credentials import Credentials, Tls

HEARTBEAT: Final = 15.0
"""Seconds within which each side of a connection says something, unless the daemon wants it sooner."""


@asynccontextmanager
async def connect(
    url: str | None = None,
    *,
    name: str = "",
    owner: str = "",
    client: str = "",
    space: str = "main",
    heartbeat: float = HEARTBEAT,
    grace: float = 0.0,
    lease: float = 0.0,
    reconnect: bool = True,
    token: str | None = None,
    tls: Tls | ssl.SSLContext | None = None,
    on_connection: Callable[[ConnectionEvent], None] | None = None,
) -> AsyncIterator[RemoteSpace]:
    """A connection to a daemon, for as long as the block runs.

    ``url`` is ``tcp://HOST:PORT``, ``tls://HOST:PORT`` or ``unix:///PATH`` (default: ``$DATASPACE_URL``, else
    the local default); ``space`` is one of the daemon's dataspaces.  Facts belong to the session and go with
    it; with ``owner`` they belong to that durable name and stay until retracted.
    ``client`` is the identity that turns are numbered by: the owner's name if there is one, else random.
    ``heartbeat`` is in seconds: a daemon that is silent for two of them is given up, and tried again.
    With ``grace`` the session outlives a lost connection for so many seconds: who comes back within them has
    all that it asserted still there, and nobody has seen it go.  Without, facts go with the connection.
    With ``lease`` the facts belong to a lease of so many seconds, which is renewed as long as the block runs:
    they outlast lost connections and restarts of the daemon, and go in time when nobody renews them.
    With ``reconnect=False`` a lost connection is not made again: what has come can still be read, and then
    everything raises ``Broken`` with the reason.
    ``token`` shows what this client may do (default: ``$DATASPACE_TOKEN``, or what the file
    ``$DATASPACE_TOKEN_FILE`` holds), ``tls`` which certificates count (default: ``Tls.default()``).
    ``on_connection`` is called with each ``ConnectionEvent``: lost, back, and what had become of the facts.
    Raises ``Unreachable`` if nobody answers, ``ProtocolError`` if the daemon will not talk, with the code
    ``unauthorized`` where the token is not one of its own.
    """
    identity = client or (f"owner:{owner}" if owner and not lease else f"~{uuid.uuid4().hex}")
    if lease:
        owner = f"lease:{max(1, round(lease * 1000))}:{owner or name or 'client'}-{uuid.uuid4().hex[:12]}"
    who = ClientIdentity(name, identity, owner, space, heartbeat, grace, lease)
    credentials = Credentials.settle(token, tls)
    session = ClientSession(
        parse_url(url or default_url()), who, credentials, reconnect=reconnect, on_connection=on_connection
    )
    kept = session.lease
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(session.uplink.run)
            try:
                if kept is not None:
                    await kept.wait()
                    nursery.start_soon(kept.keep)
                yield RemoteSpace(session)
                await session.drain()
            finally:
                if kept is not None:
                    kept.end()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = alone(_without_echoes(group))
        raise error from error.__cause__  # which it keeps, without the group as its context


def _without_echoes(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """The group with its first error alone, if all are the same: an end of the connection is told to
    everybody who waits for an answer, and should be raised once."""
    said: set[object] = set()
    kept = group.subgroup(lambda error: not isinstance(error, BaseExceptionGroup) and _new(said, error))
    return group if kept is None else kept


def _new(said: set[object], error: BaseException) -> bool:
    what = (type(error), str(error))
    new = what not in said
    said.add(what)
    return new


def alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of one, however deeply boxed; else the group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
