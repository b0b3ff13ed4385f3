"""One request and its response: the bridge between h11 and an ASGI application.

Always: a response that has not begun when something fails becomes a problem; a body that the application did
not read is read and dropped, within the same bounds, before the next request.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import h11
import trio

from server.config.model import Web
from server.web.asgi import App, ClientGone, Message, Scope
from server.web.guard import safe
from server.web.problems import Headers, problem
from server.web.stream import HttpStream

logger = logging.getLogger("dataspace")

GONE: Final = {"type": "http.disconnect"}
REASONS: Final = {int(each): each.phrase.encode() for each in HTTPStatus}


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
        """Has the application answer; returns True if another request may come."""
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
            with trio.move_on_at(self._deadline):
                event = await self._stream.next_event()
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
