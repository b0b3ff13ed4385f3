"""From HTTP to WebSocket: the handshake of RFC 6455, and which subprotocol is spoken after it.

Always: exactly one of the subprotocols that the client offers is spoken, the first that is known; a request
that asks for a WebSocket and gets none is answered with the reason.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import h11
import trio

from dataspace.codec import pack
from dataspace.transport.sockets import Link
from dataspace.wire.frames import HEAD
from dataspace.wire.packets import Bye, Packet, written
from dataspace.wire.session import Form
from relay.delivery.outbox import values_frame
from server.web.exchange import HttpStream, header, listed
from server.web.jsons import json_form
from server.web.messages import BINARY, PONG, TEXT, MessageCutter, closing, head, message

PATH: Final = b"/ws"
VERSION: Final = b"13"
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def packed_form(cutter: MessageCutter) -> Form:
    """Returns the form of the subprotocol ``dataspace.1.msgpack``.

    These are the very bytes of WIRE.md, one packet in each message, without the length before it.
    """
    return Form(cutter, packed_message, packed_values)


def packed_message(packet: Packet) -> bytes:
    """Returns the message of a packet."""
    return message(BINARY, pack(written(packet)))


def packed_values(stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
    """Returns the message of a packet of values, and its cost in credit."""
    frame, size = values_frame(stream, first, count, body, left)
    return b"".join((head(BINARY, size), memoryview(frame)[HEAD:])), size


SUBPROTOCOLS: Final[dict[str, tuple[int, Callable[[MessageCutter], Form]]]] = {
    "dataspace.1.msgpack": (BINARY, packed_form),
    "dataspace.1.json": (TEXT, json_form),
}
"""The kind of messages, and the form of packets, by the name of the subprotocol."""

Refusal = tuple[int, str, str]
"""Status, code and text."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A connection that has become a WebSocket."""

    link: WebSocketLink
    form: Form


def wants_websocket(request: h11.Request) -> bool:
    """True for a request to upgrade, whether or not all of it is right, and for any to the path of it."""
    asked = [each.lower() for each in listed(request.headers, b"upgrade")]
    return "websocket" in asked or request.target.partition(b"?")[0] == PATH


async def accept_upgrade(stream: HttpStream, request: h11.Request) -> Upgrade | Refusal:
    """Makes a WebSocket of a connection; returns status, code and text where that cannot be."""
    key = header(request.headers, b"sec-websocket-key") or b""
    offered = listed(request.headers, b"sec-websocket-protocol")
    refused = _refusal(request, key)
    if refused is not None:
        return refused
    chosen = next((each for each in offered if each in SUBPROTOCOLS), None)
    if chosen is None:
        known = " or ".join(SUBPROTOCOLS)
        reason = f"the subprotocols offered are {', '.join(offered)[:200] or 'none'}"
        return 400, "bad-request", f"{reason}; offer {known}"
    if not isinstance(await stream.next_event(), h11.EndOfMessage):
        return 400, "malformed", "a request for a WebSocket has no body"
    answer = [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", base64.b64encode(hashlib.sha1(key + _GUID).digest())),
        (b"sec-websocket-protocol", chosen.encode()),
    ]
    await stream.send(
        h11.InformationalResponse(status_code=101, headers=answer, reason=b"Switching Protocols")
    )
    kind, form = SUBPROTOCOLS[chosen]
    link = WebSocketLink(stream.link, kind, stream.ahead)
    return Upgrade(link, _closing(form(link.cutter), link.cutter))


def _closing(form: Form, cutter: MessageCutter) -> Form:
    """Returns a form whose goodbyes decide the code of the closing frame after them."""

    def encode(packet: Packet) -> bytes:
        if isinstance(packet, Bye):
            cutter.parting(packet.code)
        return form.encode(packet)

    return replace(form, encode=encode)


def _refusal(request: h11.Request, key: bytes) -> Refusal | None:
    path, _, query = request.target.partition(b"?")
    words = [{each.lower() for each in listed(request.headers, name)} for name in (b"connection", b"upgrade")]
    if path != PATH:
        return 404, "no-route", f"a WebSocket is at {PATH.decode()}"
    if "upgrade" not in words[0] or "websocket" not in words[1] or request.http_version != b"1.1":
        return 426, "bad-request", "here is a WebSocket: ask for an upgrade of HTTP/1.1"
    if request.method != b"GET":
        return 405, "bad-request", "a WebSocket is asked for with GET"
    if query:
        return 400, "bad-request", "there are no parameters here; a token belongs into the hello"
    if header(request.headers, b"sec-websocket-version") != VERSION:
        return 426, "version", "the version of WebSocket is 13"
    if not _is_key(key):
        return 400, "malformed", "Sec-WebSocket-Key must be 16 bytes in base 64"
    return None


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


class WebSocketLink:
    """The bytes of a WebSocket; ``ahead`` are the bytes that came after its request.

    The session machine above cuts messages and writes them, so the bytes pass through as they are. The link
    has what the protocol itself says: it answers pings, and closes with a closing frame.

    Always: what the kernel has not taken of a frame is kept here, and goes before whatever else is to be
    sent.
    """

    def __init__(self, link: Link, kind: int, ahead: bytes) -> None:
        self._link = link
        self._ahead = ahead
        self.peer = link.peer
        self.cutter: Final = MessageCutter(kind, self._answer)
        """Cuts what is received; it belongs to the session machine."""
        self._out = bytearray()
        self._pong = b""
        self._is_finished = False

    async def receive(self) -> bytes:
        """Returns some bytes, or none once the client has closed; always a checkpoint."""
        if self._ahead or self.cutter.is_closed:
            await trio.lowlevel.checkpoint_if_cancelled()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return self.receive_nowait() or b""
        data = await self._link.receive()
        return self._noted(data) if self._is_finished else data

    def receive_nowait(self) -> bytes | None:
        """Returns what has come already, no bytes once the client has closed, or None where nothing has."""
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        if self.cutter.is_closed:
            return b""
        found = self._link.receive_nowait()
        return self._noted(found) if found and self._is_finished else found

    def _noted(self, data: bytes) -> bytes:
        """Looks for the closing frame, where nothing else reads what comes."""
        for _ in self.cutter.feed(data):
            pass
        return b"" if self.cutter.is_closed else data

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Returns how many bytes were taken: all, or 0; raises ``OSError`` if the peer has closed."""
        if self._out or self._pong:
            self._flush()
            if self._out:
                return 0
        if not data:
            self._link.send_nowait(data)  # what waits below, where that is TLS
        elif not self._is_finished:
            self._pass_on(data)
        return len(data)

    def _pass_on(self, data: bytes | bytearray) -> None:
        sent = self._link.send_nowait(data)
        if sent < len(data):
            self._out += memoryview(data)[sent:]

    def _flush(self) -> None:
        if self._out:
            del self._out[: self._link.send_nowait(self._out)]
        if self._pong and not self._out:
            pong, self._pong = self._pong, b""
            self._pass_on(pong)

    def _answer(self, payload: bytes) -> None:
        """Answers a ping; of several that wait for the kernel the latest counts."""
        if not self._is_finished:
            self._pong = message(PONG, payload)
            try:
                self._flush()
            except OSError:
                pass  # the next read or write detects it

    @property
    def pending(self) -> bool:
        """True if bytes that were taken wait for the kernel."""
        return bool(self._out or self._pong) or self._link.pending

    async def wait_writable(self) -> None:
        """Returns when the kernel has buffer space again."""
        await self._link.wait_writable()

    def finish(self) -> None:
        """Sends the closing frame; input can still be read, up to the client's closing frame."""
        if self._is_finished:
            return
        self._pong = b""
        try:
            self._flush()
            if not self._out:
                self._pass_on(closing(self.cutter.code))
        except OSError:
            pass  # the connection is lost already
        self._is_finished = True

    def close(self) -> None:
        """Closes the socket and wakes every task that waits for it; may be called again."""
        self.finish()
        self._link.close()
