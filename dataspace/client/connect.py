"""Connecting: ``connect`` gives a remote space for as long as a block runs.

It is apart from the space because it owns the things that the space only uses: the tasks that keep the
connection and the lease, and the order in which they end.

Always: when the block has ended without an error every turn has its answer; however it ended, a goodbye was
sent if there was a connection.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Final

from dataspace.client.lifetime import connecting
from dataspace.client.session.events import ConnectionEvent
from dataspace.client.session.identity import ClientIdentity
from dataspace.client.session.session import ClientSession
from dataspace.client.space import RemoteSpace
from dataspace.loops.here import running_loop
from dataspace.transport.addresses import default_url, parse_url
from dataspace.transport.credentials import Credentials, Tls

HEARTBEAT: Final = 15.0
"""Seconds within which each side of a connection sends something, unless the daemon wants it sooner."""


@connecting
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
    reassert: bool = True,
    wait: float = 0.0,
    timeout: float | None = None,
    token: str | None = None,
    tls: Tls | ssl.SSLContext | None = None,
    on_connection: Callable[[ConnectionEvent], None] | None = None,
    traces: bool = False,
) -> AsyncIterator[RemoteSpace]:
    """Connects to a daemon, for as long as the block runs: ``async with connect(…) as space``.

    Works under trio and under asyncio; asyncio needs anyio (``pip install 'dataspace-server[asyncio]'``).
    Where beginning and end are in different tasks of asyncio, as in a notebook, call ``open()`` and
    ``aclose()`` of the result instead of using a block.

    ``url`` is ``tcp://HOST:PORT``, ``tls://HOST:PORT`` or ``unix:///PATH`` (default: ``$DATASPACE_URL``, else
    the local default); ``space`` is one of the daemon's dataspaces.  Facts belong to the session and end with
    it; with ``owner`` they belong to that durable name and stay until retracted.

    ``client`` is the identity that turns are numbered by: the owner's name if there is one, else random.

    ``heartbeat`` is in seconds: if no data comes from the daemon for two of them, the client reconnects.

    With ``grace`` the session outlives a lost connection for so many seconds: a client that reconnects within
    them finds all its facts still asserted, and no observer has seen them retracted.  Without it, the daemon
    retracts the facts when the connection is lost.

    With ``lease`` the facts belong to a lease of so many seconds, which is renewed as long as the block runs:
    they outlast lost connections and restarts of the daemon, and are retracted when the lease is not renewed.

    With ``reconnect=False`` a lost connection is not made again: changes that have come can still be read,
    and then everything raises ``Broken`` with the reason.

    With ``reassert=False`` facts that ended while the connection was lost, or whose lease ended, are not
    asserted again: the event ``ANEW`` (or ``LEASE_ENDED``) says that they have gone.

    With ``wait`` a daemon that does not answer yet is tried again for so many seconds before ``Unreachable``
    is raised.

    Each call waits for a daemon that goes away later, for ever; with ``timeout`` the call ends with
    ``Unreachable`` once the daemon has been away for so many seconds meanwhile.  The error says whether a
    turn may have taken effect: a turn that was sent before the loss may have, and keeps its number, so it
    happens at most once; a turn that was not sent is dropped.  Observations, subscriptions and publications
    go on waiting.

    ``token`` proves what this client may do (default: ``$DATASPACE_TOKEN``, or the content of the file
    ``$DATASPACE_TOKEN_FILE``), ``tls`` is which certificates are accepted (default: ``Tls.default()``).

    ``on_connection`` is called with each ``ConnectionEvent``: lost, reconnected, and the state of the facts.

    With ``traces`` each turn belongs to the trace of OpenTelemetry's current span, if the program has loaded
    OpenTelemetry and there is one.  A daemon that makes spans adds its own to that trace.

    Raises ``UsageError`` where neither trio nor asyncio runs, ``Unreachable`` if nothing answers in time,
    ``ProtocolError`` if the daemon refuses the session, with the code ``unauthorized`` where the token is not
    one of its own.
    """
    loop = running_loop()
    identity = client or (f"owner:{owner}" if owner and not lease else f"~{uuid.uuid4().hex}")
    if lease:
        owner = f"lease:{max(1, round(lease * 1000))}:{owner or name or 'client'}-{uuid.uuid4().hex[:12]}"
    who = ClientIdentity(name, identity, owner, space, heartbeat, grace, lease)
    credentials = Credentials.settle(token, tls)
    session = ClientSession(
        parse_url(url or default_url()),
        who,
        credentials,
        reconnect=reconnect,
        reassert=reassert,
        wait=wait,
        timeout=timeout,
        on_connection=on_connection,
        traces=traces,
    )
    kept = session.lease
    try:
        async with loop.open_nursery() as nursery:
            session.start_soon = nursery.start_soon
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
        raise error from error.__cause__  # the cause is kept, without the group as the context


def _without_echoes(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """Returns the group with its first error alone, if all are the same.

    The end of a connection raises the same error in every task that waits for an answer; the caller gets it
    once.
    """
    said: set[object] = set()
    kept = group.subgroup(lambda error: not isinstance(error, BaseExceptionGroup) and _new(said, error))
    return group if kept is None else kept


def _new(said: set[object], error: BaseException) -> bool:
    what = (type(error), str(error))
    new = what not in said
    said.add(what)
    return new


def alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the one error in a group of one, however deeply nested; else the group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
