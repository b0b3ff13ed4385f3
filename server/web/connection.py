"""An accepted HTTP connection: one request after the other, until it ends.

While it has no request it counts as a connection that has not said what it wants, as one without a hello
does: it makes room for others where there is none.

Always: the headers of a request come before their deadline, however slowly; what a peer sends ends this
connection at the most.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import h11
import trio

from dataspace.errors import Refused
from dataspace.transport.sockets import Link
from server.config.model import Web
from server.config.principals import Principal
from server.connections.listeners import Listener
from server.owners.accounts import Account
from server.sessions.state import DaemonState
from server.web.exchange import (
    App,
    ClientGone,
    Exchange,
    HttpStream,
    holds,
    in_time,
    path_of,
    problem,
    scope_of,
    turned_away,
)
from server.web.guard import refusal, safe
from server.web.upgrade import Upgrade, accept_upgrade, wants_websocket

if TYPE_CHECKING:
    from dataspace.wire.session import Form


HEALTH: Final = frozenset(["/healthz", "/readyz"])
"""Paths that are answered whatever the quota of connections is: a supervisor may share an address."""

MORE: Final = {426: ((b"upgrade", b"websocket"), (b"sec-websocket-version", b"13"))}
"""Headers of a problem by its status."""


logger = logging.getLogger("dataspace")


class Serve(Protocol):
    """Serves the client of a WebSocket."""

    def __call__(self, link: Link, *, form: Form | None = None) -> object:
        """Serves a client at the other end of a link in a task of its own."""


@dataclass(frozen=True, slots=True)
class WebListener:
    """What the connections of one listener have in common."""

    shared: DaemonState
    web: Web
    """The limits of a connection."""
    app: App
    """What answers requests."""
    serve: Serve
    scheme: str
    """``http`` or ``https``."""
    server: tuple[str, int]
    """The host and the port of the listener."""


class HttpConnection:
    """One connection; ``run`` serves it."""

    def __init__(self, listener: WebListener, link: Link, number: int) -> None:
        self._listener = listener
        self._link = link
        self._web: Final = listener.web
        self.number: Final = number
        self.since = trio.current_time()
        """When it began to be idle."""
        self.account: Final[Account] = listener.shared.accounts.of(Principal.of_peer(link.peer))
        self._is_counted = False
        self._scope: Final = trio.CancelScope()
        self._stream: Final = HttpStream(
            link,
            header_bytes=listener.web.header_bytes,
            stalled_seconds=listener.shared.limits.stalled_seconds,
        )

    def dismiss(self, code: str, text: str, url: str = "") -> None:
        """Ends the connection at once: another one needs its place, and it has no request."""
        self._scope.cancel()

    async def run(self) -> None:
        """Serves requests until the connection ends, or is a WebSocket, which goes on as a session."""
        upgrade: Upgrade | None = None
        try:
            with self._scope:
                upgrade = await self._serve()
                if upgrade is None:
                    await self._stream.linger()
        except Exception:  # a fence around a connection: a defect in it ends nothing else
            logger.exception("an HTTP connection failed: this is a defect, please report it")
        finally:
            self._give_place()
            self._listener.shared.guests.left(self)
            if upgrade is None:
                self._link.close()
        if upgrade is not None:
            self._listener.serve(upgrade.link, form=upgrade.form)

    async def _serve(self) -> Upgrade | None:
        """Answers requests; returns the WebSocket if the connection has become one."""
        try:
            while (request := await self._head()) is not None:
                exchange = Exchange(self._stream, request, self._web)
                self._listener.shared.guests.greeted(self)
                refused = self._refusal(request, exchange)
                if refused is not None:
                    goes_on = await exchange.refuse(*refused)
                elif wants_websocket(request):
                    found = await accept_upgrade(self._stream, request)
                    if isinstance(found, Upgrade):
                        return found
                    goes_on = await exchange.refuse(*found, *MORE.get(found[0], ()))
                else:
                    goes_on = await exchange.run(self._listener.app, self._scope_of(request))
                if not goes_on or not self._is_idle():
                    break
        except ClientGone:
            pass
        return None

    async def _head(self) -> h11.Request | None:
        """Returns the next request; None at the end, or where there is none in time."""
        web = self._web
        idle_until = trio.current_time() + web.idle_seconds
        if self._is_counted and not await in_time(idle_until, self._stream.wait_begun):
            return None
        event: object = None
        try:
            event = await in_time(trio.current_time() + web.header_seconds, self._stream.next_event)
        except h11.RemoteProtocolError as error:
            code = "limit" if error.error_status_hint == 431 else "malformed"
            await self._complain(error.error_status_hint, code, str(error))
        if isinstance(event, h11.Request):
            return in_origin_form(event)
        if event is None and self._stream.ahead:
            await self._complain(
                408, "timeout", f"the headers took longer than web.header_seconds={web.header_seconds:g}"
            )
        return None

    async def _complain(self, status: int, code: str, text: str) -> None:
        """Answers what is no request; the connection closes after it."""
        if self._stream.machine.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers, body = problem(status, code, text)
        head = h11.Response(status_code=status, headers=safe([*headers, (b"connection", b"close")]))
        await self._stream.send(head, h11.Data(data=body), h11.EndOfMessage())

    def _refusal(self, request: h11.Request, exchange: Exchange) -> tuple[int, str, str] | None:
        """Returns why a request is not served, whatever it is about."""
        path = path_of(request.target)
        if not self._is_counted:
            try:
                self.account.reserve("connections")
                self._is_counted = True
            except Refused as refused:
                if path not in HEALTH:
                    return 503, refused.code, refused.text
                exchange.close()
        if holds(request.headers, b"transfer-encoding") and holds(request.headers, b"content-length"):
            exchange.close()  # RFC 9112, 6.3: who is before the daemon may divide the bytes in another way
            return 400, "malformed", "a request has Transfer-Encoding or Content-Length, not both"
        return refusal(
            self._web,
            list(request.headers),
            path=path,
            scheme=self._listener.scheme,
            with_tokens=bool(len(self._listener.shared.keys)),
        )

    def _is_idle(self) -> bool:
        """Counts the connection as idle; False if there is no place for another one of these."""
        shared, account = self._listener.shared, self.account
        self.since = trio.current_time()
        try:
            account.check("strangers")
        except Refused:
            return False
        shared.guests.admit(self)
        return True

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Gives the places of the connection to the session of its request, counted for its bearer."""
        self._give_place()
        self._listener.shared.guests.left(self)
        try:
            yield
        finally:  # the session has given back its own
            self._is_counted = True
            self.account.release("connections", -1)
            self._listener.shared.guests.enter(self)

    def _give_place(self) -> None:
        if self._is_counted:
            self.account.release("connections")
            self._is_counted = False

    def _scope_of(self, request: h11.Request) -> dict[str, object]:
        listener = self._listener
        more: dict[str, object] = {"lent": self.lent}
        if request.http_version == b"1.1":
            more["link"] = self._link
        return scope_of(request, scheme=listener.scheme, server=listener.server, peer=self._link.peer, **more)


def in_origin_form(request: h11.Request) -> h11.Request:
    """Returns a request whose target is a path, as clients send it to a server that is no proxy.

    A target with scheme and authority is valid as well, and its authority stands for ``Host`` (RFC 9112,
    3.2.2): so a name that is not this daemon's is refused as it would be there.
    """
    found = _ABSOLUTE.fullmatch(request.target)
    if found is None:
        return request
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=(b"" if found["path"].startswith(b"/") else b"/") + found["path"],
        headers=[(b"host", found["authority"]), *headers],
        http_version=request.http_version,
    )


_ABSOLUTE: Final = re.compile(rb"https?://(?P<authority>[^/?#@]+)(?P<path>(?:[/?][^#]*)?)", re.IGNORECASE)


class WebDoor:
    """What ``accept`` needs for an HTTP listener; its connections run in ``peers``, and ask ``app``."""

    def __init__(
        self, shared: DaemonState, serve: Serve, listener: Listener, web: Web, app: App, peers: trio.Nursery
    ) -> None:
        """WebSockets go on as connections of ``serve``."""
        scheme = "https" if listener.address.tls else "http"
        server = listener.address.host, listener.address.port
        self._listener: Final = WebListener(shared, web, app, serve, scheme, server)
        self._peers = peers

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for another connection of a peer; empty if there is."""
        return self._listener.shared.guests.refusal(peer)

    def turned_away(self, refusal: str) -> bytes:
        """Returns the bytes for a connection that finds no room."""
        return turned_away(refusal)

    def serve(self, link: Link) -> HttpConnection:
        """Serves the peer at the other end in a task of its own."""
        shared = self._listener.shared
        connection = HttpConnection(self._listener, link, shared.guests.new_number())
        shared.guests.enter(connection)
        shared.guests.admit(connection)
        self._peers.start_soon(connection.run)
        return connection
