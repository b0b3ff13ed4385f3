"""The admin address: HTTP on h11 for the pages of an operator, one request on each connection.

Peers have a few places.  When all are taken, the oldest peer without a whole request is closed for a new one,
and the oldest peer of all if each has one: so a probe of health is answered, however many peers are idle.

Always: a peer has a few seconds in all; a failure with one peer ends nothing else; nothing that a peer sends
comes back in a header.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import h11
import trio

from server.monitoring.pages import METRICS
from server.web.guard import is_own, safe

logger = logging.getLogger("dataspace")

SECONDS: Final = 10.0
"""Seconds that a peer has, from its connection to the last byte of the answer."""

PLACES: Final = 32
"""Peers at once."""

MOST_BYTES: Final = 8192
"""Bytes of the first line and the headers."""

MOST_HEADERS: Final = 64

CHUNK: Final = 4096
LINGER_SECONDS: Final = 1.0
"""Seconds in which input after the request is read and dropped, since a socket with unread input is reset."""

Answerer = Callable[[str, Iterable[tuple[str, str]]], Awaitable[tuple[int, list[tuple[str, str]], bytes]]]


class BadRequest(Exception):
    """A request that is refused with a status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class AdminStatistics:
    """Counts of peers, of peers that are being answered, and of peers that were closed for others."""

    peers: int
    answering: int
    closed_early: int


class _Peer:
    """A connection, which ends with its scope."""

    __slots__ = ("is_answering", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope(deadline=trio.current_time() + SECONDS)
        self.is_answering = False


class Admin:
    """What serves the connections of the admin address; ``names`` are those by which it may be called."""

    def __init__(self, answer: Answerer, names: Collection[str]) -> None:
        self._answer = answer
        self._names = names
        self._peers: dict[_Peer, None] = {}
        self._closed_early = 0

    def statistics(self) -> AdminStatistics:
        """Returns the present figures."""
        answering = sum(each.is_answering for each in self._peers)
        return AdminStatistics(len(self._peers), answering, self._closed_early)

    async def run(self, listening: socket.socket) -> None:
        """Serves each peer of a listening socket, until cancelled."""
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        await trio.serve_listeners(self.serve, [listener])

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serves one peer, and closes its connection."""
        self._make_room()
        peer = _Peer()
        self._peers[peer] = None
        try:
            with peer.scope:
                await self._converse(stream, peer)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has gone
        except Exception:  # a fence around one request: a defect in it ends nothing else
            logger.exception("a request to the admin address failed: this is a defect, please report it")
        finally:
            self._peers.pop(peer, None)
            await trio.aclose_forcefully(stream)

    def _make_room(self) -> None:
        """Closes the oldest peer if all places are taken, before others one without a whole request."""
        if len(self._peers) >= PLACES:
            oldest = min(self._peers, key=lambda peer: peer.is_answering)  # the first of equals is the oldest
            del self._peers[oldest]
            oldest.scope.cancel()
            self._closed_early += 1

    async def _converse(self, stream: trio.SocketStream, peer: _Peer) -> None:
        machine = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_BYTES)
        request = None
        try:
            request = await _next_request(stream, machine)
            if request is None:
                return
            peer.is_answering = True
            status, headers, body = await self._answer_to(request)
        except h11.RemoteProtocolError as error:
            status, headers, body = _text(error.error_status_hint, f"this is no request: {error}")
        except BadRequest as refusal:
            status, headers, body = _text(refusal.status, str(refusal))
        with_body = request is None or request.method != b"HEAD"
        await stream.send_all(_response(machine, status, headers, body, with_body=with_body))
        peer.is_answering = False
        await stream.send_eof()
        with trio.move_on_after(LINGER_SECONDS):
            while await stream.receive_some(CHUNK):
                pass

    async def _answer_to(self, request: h11.Request) -> tuple[int, list[tuple[str, str]], bytes]:
        if request.method not in (b"GET", b"HEAD"):
            raise BadRequest(405, "only GET is answered here, and HEAD")
        if request.http_version not in (b"1.0", b"1.1"):
            raise BadRequest(400, "only HTTP/1.0 and HTTP/1.1 are spoken here")
        if len(request.headers) > MOST_HEADERS:
            raise BadRequest(431, f"a request has {MOST_HEADERS} headers at most")
        target = request.target.decode("latin-1")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        for host in [value for name, value in headers if name == "host"]:
            if target.partition("?")[0] == METRICS and not is_own(host, self._names):
                raise BadRequest(
                    421, f"{host!r:.100} is no name of this machine: add it to admin_names, or use an address"
                )
        return await self._answer(target, headers)


async def _next_request(stream: trio.SocketStream, machine: h11.Connection) -> h11.Request | None:
    """Returns the head of a request; None if the peer has closed its side before.

    Raises ``h11.RemoteProtocolError`` for bytes that are none.
    """
    while True:
        event = machine.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        machine.receive_data(await stream.receive_some(CHUNK))


def _response(
    machine: h11.Connection, status: int, headers: list[tuple[str, str]], body: bytes, *, with_body: bool
) -> bytes:
    """Returns an answer after which the connection is closed; to HEAD, one without its body."""
    headers = [
        *headers,
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    if status == 405:
        headers.append(("Allow", "GET, HEAD"))
    raw = safe([(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers])
    reason = HTTPStatus(status).phrase.encode()
    said = machine.send(h11.Response(status_code=status, headers=raw, reason=reason)) or b""
    if with_body:
        said += machine.send(h11.Data(data=body)) or b""
    return said + (machine.send(h11.EndOfMessage()) or b"")


def _text(status: int, said: str) -> tuple[int, list[tuple[str, str]], bytes]:
    return status, [("Content-Type", "text/plain; charset=utf-8")], f"{said}\n".encode()
