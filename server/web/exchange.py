"""One request and its response: the bridge between h11 and an ASGI application.

Always: a response that has not begun when something fails becomes a problem; a body that the application did
not read is read and dropped, within the same bounds, before the next request.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote

import h11
import trio

from dataspace.transport.sockets import Link
from server.config.model import Web
from server.web.guard import safe

logger = logging.getLogger("dataspace")

GONE: Final = {"type": "http.disconnect"}
REASONS: Final = {int(each): each.phrase.encode() for each in HTTPStatus}

T = TypeVar("T")

LATE_SECONDS: Final = 0.05
"""Seconds for another look at a socket once a deadline has passed."""


async def in_time(deadline: float, wait: Callable[[], Awaitable[T]]) -> T | None:
    """Returns the result of ``wait``; None at the deadline.

    Calls ``wait`` once more then: a daemon that did not run for a while may have input in the socket.
    """
    with trio.move_on_at(deadline):
        return await wait()
    with trio.move_on_after(LATE_SECONDS):
        return await wait()
    return None


class Exchange:
    """One request that has come, and its response."""

    def __init__(self, stream: HttpStream, request: h11.Request, web: Web) -> None:
        self._stream = stream
        self._request = request
        self._web = web
        self._deadline = trio.current_time() + web.body_seconds
        self._size = 0
        self._is_read = False
        """True once all of the body has come, or will not."""
        self._failure: tuple[int, str, str] | None = None
        """Status, code and text of the error in the body."""
        self._start: Message | None = None
        self._has_begun = False
        """True once a byte of the response may have left."""
        self._is_closing = False
        self._over = trio.Event()
        """Set once the response is complete, or the client has gone."""
        self._watching: trio.CancelScope | None = None

    async def run(self, app: App, scope: Scope) -> bool:
        """Calls the application for one request; returns True if another one may come."""
        try:
            await app(scope, self._receive, self._send)
        except BaseException as error:  # noqa: BLE001  # a fence around a request: what it raises ends nothing else
            self._note(error)
        try:
            if not self._over.is_set():
                await self._answer_anyway()
            return not self._is_closing and await self._drop_body() and self._stream.next_cycle()
        except ClientGone:
            return False

    def close(self) -> None:
        """Closes the connection after this response."""
        self._is_closing = True

    async def refuse(self, status: int, code: str, text: str, *more: tuple[bytes, bytes]) -> bool:
        """Answers with a problem instead; returns True if another request may come."""
        try:
            await self._problem(status, code, text, more)
            return not self._is_closing and await self._drop_body() and self._stream.next_cycle()
        except ClientGone:
            return False

    def _note(self, error: BaseException) -> None:
        """Logs what an application raised, unless its client is the cause; raises what is not its own."""
        ours, others = _split(error)
        if others is not None:
            raise others
        if ours is not None and not self._stream.at_end and self._failure is None:
            logger.error(
                "a request to %s failed: this is a defect, please report it", self._target, exc_info=ours
            )

    @property
    def _target(self) -> str:
        """The path of the request, without its query, which may hold what is not for logs."""
        return repr(self._request.target.decode("ascii", "replace").partition("?")[0][:200])

    # -- the request ----------------------------------------------------------------------------------

    async def _receive(self) -> Message:
        if not self._is_read:
            part = await self._read_body()
            if self._failure is not None:
                return dict(GONE)
            return {"type": "http.request", "body": part, "more_body": not self._is_read}
        if not self._over.is_set():
            await self._wait_over()
        return dict(GONE)

    async def _wait_over(self) -> None:
        if self._watching is not None:  # another task of the application waits already
            await self._over.wait()
            return
        with trio.CancelScope() as self._watching:
            try:
                await self._stream.wait_gone()
                self._over_if_gone()
            finally:
                self._watching = None

    def _over_if_gone(self) -> None:
        self._is_closing = True
        self._over.set()

    async def _read_body(self) -> bytes:
        """Returns the next part of the body, and none at its end, or where it is beyond a bound."""
        machine = self._stream.machine
        if machine.they_are_waiting_for_100_continue:
            await self._stream.send(h11.InformationalResponse(status_code=100, headers=[]))
        event: object = None
        try:
            event = await in_time(self._deadline, self._stream.next_event)
        except h11.RemoteProtocolError as error:
            return self._fail(error.error_status_hint, "malformed", str(error))
        if event is None:
            return self._fail(
                408, "timeout", f"the body took longer than web.body_seconds={self._web.body_seconds:g}"
            )
        if not isinstance(event, h11.Data):
            self._is_read = True
            return b""
        self._size += len(event.data)
        if self._size > self._web.body_bytes:
            return self._fail(413, "limit", f"a body beyond web.body_bytes={self._web.body_bytes}")
        return bytes(event.data)

    def _fail(self, status: int, code: str, text: str) -> bytes:
        self._failure = status, code, text
        self._is_read = self._is_closing = True
        return b""

    async def _drop_body(self) -> bool:
        """Reads what the application did not; returns False if that cannot be."""
        while not self._is_read:
            await self._read_body()
        return self._failure is None

    # -- the response ---------------------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start" if self._start is None:
                self._start = message
                await trio.lowlevel.checkpoint()
            case "http.response.body" if self._start is not None:
                await self._send_body(message)
            case other:
                raise RuntimeError(f"a response cannot go on with {other!r} now")

    async def _send_body(self, message: Message) -> None:
        if self._over.is_set():  # whatever comes is too late
            await trio.lowlevel.checkpoint()
            return
        body, more = bytes(message.get("body", b"")), message.get("more_body", False)
        events: list[Any] = []
        if not self._has_begun:
            assert self._start is not None  # as the caller has seen
            events.append(
                self._head(self._start["status"], self._start.get("headers", ()), None if more else len(body))
            )
        if body and self._request.method != b"HEAD":
            events.append(h11.Data(data=body))
        if not more:
            events.append(h11.EndOfMessage())
        data = b"".join([self._stream.machine.send(event) or b"" for event in events])
        self._has_begun = True
        try:
            await self._stream.write(data)
        except ClientGone:
            self._over_if_gone()
            raise
        if not more:
            self._complete()

    def _head(self, status: int, headers: Any, size: int | None) -> h11.Response:
        known = [(bytes(name).lower(), bytes(value)) for name, value in headers]
        names = {name for name, _ in known}
        if (
            size is not None
            and not names & {b"content-length", b"transfer-encoding"}
            and status not in (204, 304)
        ):
            known.append((b"content-length", b"%d" % size))
        if b"date" not in names:
            known.append((b"date", formatdate(usegmt=True).encode()))
        if self._stream.machine.they_are_waiting_for_100_continue:
            self._is_closing = True  # the client may send the body now or not
        if self._is_closing:
            known.append((b"connection", b"close"))
        return h11.Response(status_code=status, headers=safe(known), reason=REASONS.get(status, b""))

    def _complete(self) -> None:
        self._over.set()
        if self._watching is not None:
            self._watching.cancel()

    async def _answer_anyway(self) -> None:
        """Answers where the application has not: with the error in the body, or status 500."""
        if self._has_begun or self._stream.machine.our_state is not h11.SEND_RESPONSE:
            self._is_closing = True  # what is missing of the response cannot be said
            return
        await self._problem(*(self._failure or (500, "internal", "a defect in the daemon")))

    async def _problem(
        self, status: int, code: str, text: str, more: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        headers: Headers
        headers, body = problem(status, code, text)
        self._start = {"status": status, "headers": [*headers, *more]}
        await self._send_body({"body": body})


def _split(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Returns the error of an application, unless its client has gone, and a cancellation or an interrupt."""
    whole = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])
    others, ours = whole.split((trio.Cancelled, KeyboardInterrupt))
    ours = ours and ours.split(ClientGone)[1]
    if whole is error:
        return ours, others
    return ours and error, others and error


def scope_of(
    request: h11.Request, *, scheme: str, server: tuple[str, int], peer: str, **more: object
) -> dict[str, Any]:
    """Returns the ASGI scope of a request, with ``more`` in its state."""
    target, _, query = request.target.partition(b"?")
    host, _, port = peer.rpartition(":")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": request.http_version.decode("ascii"),
        "method": request.method.decode("ascii"),
        "scheme": scheme,
        "path": path_of(request.target),
        "raw_path": target,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "client": (host, int(port)) if port.isdecimal() else None,
        "server": server,
        "state": {"peer": peer, **more},
    }


def path_of(target: bytes) -> str:
    """Returns the path of a target, in whose segments ``/`` stays ``%2F``, and ``%`` is ``%25``.

    >>> path_of(b"/v1/topics/a%2fb%20c?x=1")
    '/v1/topics/a%2Fb c'
    """
    path = target.partition(b"?")[0].decode("ascii", "replace")
    segments = [unquote(each).replace("%", "%25").replace("/", "%2F") for each in path.split("/")]
    return "/".join(segments)


Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""The seam to what answers requests: an ASGI application, called once for each request.

``app(scope, receive, send)`` is an application of ASGI 3 (asgi.readthedocs.io, HTTP connection scope), on
trio:

- ``scope`` is of type ``http``, with ``asgi.spec_version`` 2.4, ``client`` and ``server`` as
  ``(host, port)``.  ``scope["state"]["peer"]`` is the peer as the daemon names it (``HOST:PORT``), from
  which ``Principal.of_peer`` makes the principal without a token.  ``scope["state"]["lent"]`` is entered
  while a session has the places of the connection in ``limits.connections`` and ``quota.connections``.  In
  ``scope["path"]`` an escaped ``/`` stays within its segment (``path_of``).  There is no ``lifespan`` and no
  ``websocket``: the listener itself serves ``/ws``.
- ``receive()`` returns the body in parts of up to 64 KiB as it comes, so a token can be checked before; it
  asks for the body of a client that waits for ``100 Continue``.  A body beyond ``web.body_bytes`` or
  ``web.body_seconds`` is ``http.disconnect``, and answered with a problem unless a response has begun.  After
  the body it waits, and returns ``http.disconnect`` as soon as the client has closed, or the response is
  complete.  So a stream without end runs beside a task that awaits ``receive()``, or it would notice the end
  of its client with its next write only.
- ``send(message)`` returns once the kernel has taken the bytes, so a client that does not read holds the
  application back; after ``limits.stalled_seconds`` of that, or where the client is gone, it raises
  ``ClientGone``, an ``OSError``.

Always: what the application raises, groups of exceptions included, ends in a problem with status 500, or in
a closed connection where a response has begun, and never in the nursery of the listener; it is cancelled
when the daemon stops.
"""


class ClientGone(OSError):
    """The client has closed the connection, or has not read for too long."""


AHEAD: Final = 64 << 10
"""Bytes of later requests that are taken in before their turn."""

MOST_HEADERS: Final = 128
"""Headers of a request: each costs some microseconds, however short it is."""

PORTION: Final = 4096
"""Bytes of chunks that h11 gets at a time; the head of a chunk, or the trailers, may have as many."""

EVENTS: Final = 32
"""Events, such as small chunks, after which others run."""

LINGER: Final = 1.0
"""Seconds for the last bytes to be sent and received before the socket is closed."""

_END: Final = re.compile(rb"\n\r?\n")

Event: TypeAlias = (
    h11.Request
    | h11.InformationalResponse
    | h11.Response
    | h11.Data
    | h11.EndOfMessage
    | h11.ConnectionClosed
)


class HttpStream:
    """The events of one connection; h11 knows which may come when.

    Always: nothing is read ahead of the request that is being answered, but up to ``AHEAD`` bytes while its
    client's end is waited for; h11 gets a head only once it is whole and within its bounds, and the rest in
    portions, so one step costs a few milliseconds at most; a write waits while the client does not read, and
    no longer than ``stalled``.
    """

    def __init__(self, link: Link, *, header_bytes: int, stalled_seconds: float) -> None:
        self.link = link
        self.machine = _machine()
        """h11's state of one request and its response."""
        self._header_bytes = header_bytes
        self._stalled = stalled_seconds
        self._held = bytearray()
        """Received bytes that h11 has not."""
        self._portion = 0
        self._events = 0
        self.at_end = False
        """True once the client has closed its side."""

    @property
    def ahead(self) -> bytes:
        """Bytes received after the latest event."""
        return self.machine.trailing_data[0] + bytes(self._held)

    async def next_event(self) -> Event | type[h11.PAUSED]:
        """Returns the next event.

        Raises ``h11.RemoteProtocolError`` for bytes that are no HTTP, or beyond a bound.
        """
        while True:
            self._events += 1
            if self._events % EVENTS:  # before the event is taken, which a cancellation would lose
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.checkpoint()
            event = self.machine.next_event()
            if event is not h11.NEED_DATA:
                if isinstance(event, h11.Request):
                    self._portion = PORTION if holds(event.headers, b"transfer-encoding") else AHEAD
                return event  # type: ignore[return-value]  # NEED_DATA is the only other one
            while not (size := self._next_portion()) and not self.at_end:
                await self._take_in()
            self.machine.receive_data(bytes(self._held[:size]))
            del self._held[:size]

    def _next_portion(self) -> int:
        """Returns how many bytes h11 may have now."""
        if self.machine.their_state is not h11.IDLE:
            return min(len(self._held), self._portion)
        found = _END.search(self._held, 0, self._header_bytes)
        if found is None:
            if len(self._held) >= self._header_bytes:
                text = f"the first line and headers exceed web.header_bytes={self._header_bytes}"
                raise h11.RemoteProtocolError(text, error_status_hint=431)
            is_none = self.at_end or self._held[:1] < b"!"  # h11 says what is wrong
            return min(len(self._held), PORTION) if is_none else 0
        if (count := self._held.count(b"\n", 0, found.start())) > MOST_HEADERS:
            text = f"{count} headers, {MOST_HEADERS} are allowed"
            raise h11.RemoteProtocolError(text, error_status_hint=431)
        return found.end()

    async def wait_begun(self) -> bool:
        """Returns once a byte of the next request is there; False at the end."""
        if not self.ahead and not self.at_end:
            await self._take_in()
        return bool(self.ahead)

    async def wait_gone(self) -> None:
        """Returns when the client has closed its side; bytes that it sends before are kept for their turn."""
        while not self.at_end:
            if len(self._held) > AHEAD:
                await trio.sleep_forever()  # a client that still sends has not gone
            await self._take_in()

    async def _take_in(self) -> None:
        chunk = await self.link.receive()
        self.at_end = self.at_end or not chunk
        self._held += chunk

    def next_cycle(self) -> bool:
        """Makes ready for another request; False if there can be none on this connection."""
        if self.machine.our_state is not h11.DONE or self.machine.their_state is not h11.DONE:
            return False
        self._held[:0] = self.machine.trailing_data[0]  # h11 is to have whole heads only
        self.machine = _machine()
        return True

    async def send(self, *events: Event) -> None:
        """Sends events in one write; raises ``h11.LocalProtocolError`` for events that may not be sent now,
        and ``ClientGone``."""
        await self.write(b"".join([self.machine.send(event) or b"" for event in events]))

    async def write(self, data: bytes) -> None:
        """Returns once the kernel has taken the bytes; raises ``ClientGone``."""
        link = self.link
        try:
            sent = link.send_nowait(data) if data else 0
            while sent < len(data) or link.pending:
                with trio.move_on_after(self._stalled) as waiting:
                    await link.wait_writable()
                if waiting.cancelled_caught:
                    raise ClientGone(f"the client has read nothing for {self._stalled:g} s")
                sent += link.send_nowait(data[sent:])
        except ClientGone:
            raise
        except OSError as error:
            raise ClientGone(f"the client has closed the connection: {error}") from None
        await trio.lowlevel.checkpoint()

    async def linger(self) -> None:
        """Ends the output, and reads on for a moment: to close a socket with unread input resets it."""
        with trio.move_on_after(LINGER):
            self.link.finish()
            while not self.at_end and await self.link.receive():
                pass


def _machine() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=PORTION)


def holds(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bool:
    """True if there is a header of this name."""
    return name in dict(headers)


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Returns the value of a header that may come once; None where there is none, or several."""
    found = [value for at, value in headers if at == name]
    return found[0] if len(found) == 1 else None


def listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Returns the words of a header that is a list, in all its places."""
    words = [
        word.strip() for at, value in headers if at == name for word in value.decode("latin-1").split(",")
    ]
    return [word for word in words if word]


# -- Problems --------------------------------------------------------------------------------------


Headers: TypeAlias = list[tuple[bytes, bytes]]

MEDIA_TYPE: Final = b"application/problem+json"


def problem(status: int, code: str, text: str) -> tuple[Headers, bytes]:
    """Returns the headers and the body of an error.

    >>> problem(404, "no-space", "there is no space 'x'")[1]
    b'{"status": 404, "title": "Not Found", "code": "no-space", "detail": "there is no space \\'x\\'"}'
    """
    members = {"status": status, "title": HTTPStatus(status).phrase, "code": code, "detail": text}
    body = json.dumps(members).encode()
    return [
        (b"content-type", MEDIA_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ], body


def turned_away(text: str) -> bytes:
    """Returns a whole response for a connection for which there is no room, before it has sent a request."""
    headers, body = problem(503, "limit", text)
    more = [(b"connection", b"close"), (b"retry-after", b"1")]
    lines = [b"%s: %s\r\n" % each for each in safe([*headers, *more])]
    return b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(lines) + b"\r\n" + body
