"""Connecting: ``connect`` gives a remote space for as long as a block runs.

It is apart from the space because it owns the things that the space only uses: the tasks that keep the
connection and the lease, and the order in which they end.

``async with connect(…) as space`` is the usual form.  In a notebook each cell is another task, and some web
frameworks start and stop in two of them; a block that is entered in one task cannot be left in another.
There ``open`` runs the block in a task of its own, and ``aclose`` ends it.

Always: a block is entered once and left in the task that entered it; when the block has ended without an
error every turn has its answer; however it ended, a goodbye was sent if there was a connection.
"""

from __future__ import annotations

import functools
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from dataspace.client.session.events import ConnectionEvent
from dataspace.client.session.identity import ClientIdentity
from dataspace.client.session.named import NamedDaemon
from dataspace.client.session.reading import CatchingUpSession, ReadingSession
from dataspace.client.session.session import ClientSession
from dataspace.client.space import RemoteSpace
from dataspace.client.topics import TopicSessions
from dataspace.errors import UsageError
from dataspace.loops.blocks import AsyncOnly, Unentered
from dataspace.loops.here import is_asyncio, running_loop
from dataspace.loops.lone import alone
from dataspace.transport.candidates import READ, parse_urls
from dataspace.transport.credentials import Credentials, Tls

if TYPE_CHECKING:
    import asyncio

    from index.values.values import Map, Value


P = ParamSpec("P")

_HELD: Final[set[asyncio.Task[None]]] = set()
"""Tasks that hold a block open: asyncio itself keeps only weak references."""


def connecting(enter: Callable[P, AsyncIterator[RemoteSpace]]) -> Callable[P, Connection]:
    """Makes a function that returns a ``Connection`` of a function that yields a space."""
    block = asynccontextmanager(enter)

    @functools.wraps(enter)
    def made(*args: P.args, **kwargs: P.kwargs) -> Connection:
        return Connection(block(*args, **kwargs))

    return made


class Connection(AsyncOnly, Unentered, AbstractAsyncContextManager[RemoteSpace]):
    """A connection to a daemon, made by ``connect``: use it in ``async with``, or ``open`` and ``aclose``."""

    _usage = "async with dataspace.connect(…) as space"

    def __init__(self, block: AbstractAsyncContextManager[RemoteSpace]) -> None:
        self._block = block
        self._holder: _Holder | None = None

    async def __aenter__(self) -> RemoteSpace:
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)

    async def open(self) -> RemoteSpace:
        """Connects and returns the space, which any task may use until ``aclose``; for asyncio.

        Raises what ``async with`` raises.  Cancelled, it leaves no connection.
        """
        if not is_asyncio():
            raise UsageError(
                "open() is for asyncio, where tasks need no parent; here use `async with connect(…)`"
            )
        if self._holder is not None:
            raise UsageError("this connection was opened before; make another with connect(…)")
        self._holder = _Holder(self)
        return await self._holder.begin()

    async def aclose(self) -> None:
        """Ends the connection as the end of the block does: returns when every turn has its answer.

        Raises the error that has ended the connection meanwhile, once.  Does nothing if it is not open.
        """
        if self._holder is not None:
            await self._holder.end()


class _Holder:
    """The task that holds a block open."""

    def __init__(self, block: AbstractAsyncContextManager[RemoteSpace]) -> None:
        import asyncio  # runs here

        self._block = block
        self._opened: asyncio.Future[RemoteSpace] = asyncio.get_running_loop().create_future()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._hold(), name="dataspace connection")
        _HELD.add(self._task)
        self._task.add_done_callback(_HELD.discard)

    async def _hold(self) -> None:
        async with self._block as space:
            if not self._opened.done():
                self._opened.set_result(space)
            await self._wanted.wait()

    async def begin(self) -> RemoteSpace:
        """Returns the space once there is one; raises the error where there is none."""
        import asyncio

        assert self._task is not None  # nothing has ended it yet
        either: list[asyncio.Future[Any]] = [self._task, self._opened]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._opened.cancel()
            self._task.cancel()
            await self._settled()
            raise
        if not self._opened.done():
            self._opened.cancel()
            await self.end()
            raise UsageError("the connection ended before it was open")
        return self._opened.result()

    async def end(self) -> None:
        """Ends the block and waits until it has; raises its error."""
        self._wanted.set()
        await self._settled()
        task, self._task = self._task, None
        if task is not None:
            task.result()

    async def _settled(self) -> None:
        """Returns when the task is over; a caller that is cancelled leaves it to end by itself."""
        import asyncio

        if self._task is not None:
            await asyncio.wait([self._task])


HEARTBEAT: Final = 15.0
"""Seconds within which each side of a connection sends something, unless the daemon wants it sooner."""


@connecting
async def connect(
    url: str | Sequence[str] | None = None,
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
    read: str = "leader",
) -> AsyncIterator[RemoteSpace]:
    """Connects to a daemon, for as long as the block runs: ``async with connect(…) as space``.

    Works under trio and under asyncio; asyncio needs anyio (``pip install 'dataspace-server[asyncio]'``).
    Where beginning and end are in different tasks of asyncio, as in a notebook, call ``open()`` and
    ``aclose()`` of the result instead of using a block.

    ``url`` is ``tcp://HOST:PORT``, ``tls://HOST:PORT`` or ``unix:///PATH`` (default: ``$DATASPACE_URL``, else
    the local default); of several daemons of one store it has all addresses, with commas or as a sequence,
    and the client goes on at another one, or where a daemon sends it.  ``space`` is one of the daemon's
    dataspaces.  Facts belong to the session and end with it; with ``owner`` they belong to that durable name
    and stay until retracted.

    ``client`` is the identity that turns are numbered by, random unless it is given.  Of one identity only
    the latest connection stays; any number of connections may share an ``owner``.

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

    With ``read="any"`` quiet observations, ``matches``, ``query``, ``completed`` and subscriptions of durable
    topics go over a connection of their own, to any daemon of the store; they wait until it has the epochs
    that this client has seen.

    Requests about the daemon (with ``request``: ``sessions``, ``end-session``, ``drain``, ``index``,
    ``actors``) are answered by the daemon at ``url``, also after it has sent the client on to its leader.
    With several addresses they are of the daemon that the client is connected to, and ``drain`` and
    ``end-session`` raise ``UsageError``.  ``status`` is of the daemon that serves the connection.

    In a cluster a client of another space than ``main`` opens a further connection when it first uses a
    topic, to the daemon that leads the topics.

    Raises ``UsageError`` where neither trio nor asyncio runs, ``Unreachable`` if nothing answers in time,
    ``ProtocolError`` if the daemon refuses the session, with the code ``unauthorized`` where the token is not
    one of its own.
    """
    loop = running_loop()
    identity = client or f"~{uuid.uuid4().hex}"
    if lease:
        owner = f"lease:{max(1, round(lease * 1000))}:{owner or name or 'client'}-{uuid.uuid4().hex[:12]}"
    who = ClientIdentity(name, identity, owner, space, heartbeat, grace, lease)
    if read not in READ:
        raise UsageError(f"read is one of {', '.join(READ)}, not {read!r:.40}")
    credentials, addresses = Credentials.complete(token, tls), parse_urls(url)
    session = CatchingUpSession(
        addresses,
        who,
        credentials,
        reconnect=reconnect,
        reassert=reassert,
        wait=wait,
        timeout=timeout,
        on_connection=on_connection,
        traces=traces,
    )
    reads: ReadingSession | None = None
    if read == "any":
        reads = ReadingSession(
            addresses,
            ClientIdentity(name, f"~{uuid.uuid4().hex}", "", space, heartbeat, 0.0, 0.0, reads=True),
            credentials,
            seen_by_turns=lambda: session.seen,
            reconnect=reconnect,
            wait=wait,
            timeout=timeout,
        )
    kept = session.lease
    try:
        async with loop.open_nursery() as nursery:

            def other(*, here: bool, reconnect: bool) -> ClientSession:
                known = ClientIdentity(
                    name, f"~{uuid.uuid4().hex}", "", space, heartbeat, 0.0, 0.0, reads=True, here=here
                )
                return ClientSession(
                    addresses, known, credentials, reconnect=reconnect, wait=wait, timeout=timeout
                )

            async def named(verb: str, arguments: Map) -> Value:
                return await _asked(other(here=True, reconnect=False), verb, arguments)

            async def beside() -> ClientSession:
                apart = other(here=False, reconnect=True)
                apart.start_soon = nursery.start_soon
                try:
                    await nursery.start(apart.uplink.run)
                except BaseExceptionGroup as group:
                    raise alone(group) from None
                return apart

            session.start_soon = nursery.start_soon
            await nursery.start(session.uplink.run)
            if reads is not None:
                reads.start_soon = nursery.start_soon
                await nursery.start(reads.uplink.run)
            topics = TopicSessions(session, reads, beside)
            try:
                if kept is not None:
                    await kept.wait()
                    nursery.start_soon(kept.keep)
                yield RemoteSpace(session, reads, topics, NamedDaemon(session, named))
                await session.drain()
            finally:
                if kept is not None:
                    kept.end()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = alone(group)
        raise error from error.__cause__  # the cause is kept, without the group as the context


async def _asked(session: ClientSession, verb: str, arguments: Map) -> Value:
    """Returns the answer to a request over a session that ends with it."""
    answers: list[Value] = []
    try:
        async with running_loop().open_nursery() as nursery:
            session.start_soon = nursery.start_soon
            await nursery.start(session.uplink.run)
            answers.append(await session.request(verb, arguments))
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise alone(group) from None
    return answers[0]
