"""Messages of WebSocket (RFC 6455): which bytes are one message, without any input or output.

``MessageCutter`` cuts what a client sends into messages, as ``Cutter`` cuts frames, and ``message`` and
``control`` write what a daemon sends.  No extension is offered, so there is no compression: a message of some
kilobytes cannot become one of gigabytes.

Always: any cutting of the bytes and any division into fragments gives the same messages; a length beyond the
limit is refused before its payload is kept; at most one message is held back; the frames that a client sends
are bounded by its messages and their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from dataspace.errors import ProtocolError

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

NORMAL: Final = 1000
LEAVING: Final = 1001
BAD_PROTOCOL: Final = 1002
BAD_KIND: Final = 1003
BAD_TEXT: Final = 1007
BAD_PACKET: Final = 1008
TOO_BIG: Final = 1009
DEFECT: Final = 1011

_OF_GOODBYES: Final = {"": NORMAL, "closing": LEAVING, "internal": DEFECT}
"""Codes of closing frames by the codes of goodbyes; ``BAD_PACKET`` for all others."""

MOST_CONTROL: Final = 125
"""Bytes in the payload of a control frame."""

IDLE_FRAMES: Final = 4096
"""Control frames and fragments that a client may have sent beyond what its messages pay for."""

PAID_BY_MESSAGE: Final = 8
PAID_BY_BYTES: Final = 64
"""A whole message pays for so many frames, and each so many bytes of payload for one: what a client sends in
small frames costs the daemon some 10 µs for each of them, and not for each byte."""

_SHORT: Final = 126
_LONG: Final = 127
_two: Final = struct.Struct(">H").unpack_from
_eight: Final = struct.Struct(">Q").unpack_from
_CLOSING: Final = frozenset([1000, 1001, 1002, 1003, *range(1007, 1015)])
"""Codes below 3000 with which a client may close (RFC 6455, 7.4, and the registry of IANA)."""

_KINDS: Final = {TEXT: "text", BINARY: "binary"}


def message(kind: int, body: bytes) -> bytes:
    """Returns a message in one frame, not masked, as a daemon sends it.

    >>> message(BINARY, b"hi")
    b'\\x82\\x02hi'
    """
    return head(kind, len(body)) + body


def head(kind: int, size: int) -> bytes:
    """Returns what stands before the payload of a message in one frame."""
    if size < _SHORT:
        return bytes((0x80 | kind, size))
    if size < 1 << 16:
        return bytes((0x80 | kind, _SHORT)) + size.to_bytes(2, "big")
    return bytes((0x80 | kind, _LONG)) + size.to_bytes(8, "big")


def closing(code: int) -> bytes:
    """Returns the frame that ends a connection, or answers a closing frame."""
    return message(CLOSE, code.to_bytes(2, "big"))


class MessageCutter:
    """Cuts received bytes into messages of one ``kind``; ``limit`` may be raised while it works.

    Calls ``on_ping`` with the payload of each ping, in its place.  An error sets ``refusal`` and ``code``,
    the code of the closing frame, after which nothing more is cut.
    """

    def __init__(self, kind: int, on_ping: Callable[[bytes], None], limit: int = 0) -> None:
        self.limit = limit
        self.refusal: ProtocolError | None = None
        self.code = NORMAL
        self.is_closed = False
        """True once the client has sent its closing frame."""
        self._kind = kind
        self._on_ping = on_ping
        self._buffer = bytearray()
        self._wanted = 2
        """How many bytes must be held before there is anything to cut."""
        self._message = bytearray()
        self._is_within = False
        """True between the first fragment of a message and its last."""
        self._idle = 0

    @property
    def held(self) -> int:
        """Bytes of an unfinished message that are kept, its heads included; one at least within a message."""
        return len(self._buffer) + len(self._message) + self._is_within

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the messages that are whole now; O(bytes), however they are cut."""
        buffer = self._buffer
        if self.refusal is not None or self.is_closed:
            return
        buffer += chunk
        at = 0
        try:
            while len(buffer) - at >= self._wanted and not self.is_closed:
                found = self._head(buffer, at)
                if found is None:
                    break
                first, begin, size = found
                end = begin + size
                payload = _unmasked(buffer[begin - 4 : begin], buffer[begin:end])
                at, self._wanted = end, 2
                body = self._take(first, payload)
                paid = 0 if first & 0x8 else size // PAID_BY_BYTES
                self._idle = max(0, self._idle + 1 - paid)
                if body is not None:
                    self._idle = max(0, self._idle - PAID_BY_MESSAGE)
                    yield body
                elif self._idle > IDLE_FRAMES:
                    text = f"{IDLE_FRAMES} frames beyond what whole messages and their bytes pay for"
                    raise self._wrong(BAD_PROTOCOL, "limit", text)
        except ProtocolError as error:
            self.refusal = error
        del buffer[:at]

    def _head(self, buffer: bytearray, at: int) -> tuple[int, int, int] | None:
        """Returns the first byte, where the payload begins, and its size; None if more must come first."""
        first, second = buffer[at], buffer[at + 1]
        size, width = second & 0x7F, 0
        if not second & 0x80:
            raise self._wrong(BAD_PROTOCOL, "malformed", "a frame of a client must be masked")
        if first & 0x70:
            raise self._wrong(BAD_PROTOCOL, "malformed", "no extension was agreed on")
        if size >= _SHORT:
            width = 2 if size == _SHORT else 8
        begin = at + 2 + width + 4
        if len(buffer) < begin:
            self._wanted = begin - at
            return None
        if width:
            (size,) = _two(buffer, at + 2) if width == 2 else _eight(buffer, at + 2)
            if size < (_SHORT if width == 2 else 1 << 16):
                raise self._wrong(BAD_PROTOCOL, "malformed", f"a length of {size} in {width} bytes")
        self._check(first, size, len(self._message))
        if len(buffer) - begin < size:
            self._wanted = begin - at + size
            return None
        return first, begin, size

    def _check(self, first: int, size: int, before: int) -> None:
        """Refuses a frame by its head."""
        kind, is_last = first & 0x0F, first & 0x80
        if kind & 0x8:
            if kind not in (CLOSE, PING, PONG):
                raise self._wrong(BAD_PROTOCOL, "malformed", f"no frames of kind {kind} are known")
            if not is_last or size > MOST_CONTROL:
                raise self._wrong(BAD_PROTOCOL, "malformed", "a control frame is one of at most 125 bytes")
            return
        if kind not in (CONTINUED, TEXT, BINARY):
            raise self._wrong(BAD_PROTOCOL, "malformed", f"no frames of kind {kind} are known")
        if self._is_within != (kind == CONTINUED):
            text = "a message begins within another" if self._is_within else "nothing is there to continue"
            raise self._wrong(BAD_PROTOCOL, "malformed", text)
        if kind not in (CONTINUED, self._kind):
            text = f"a message of {_KINDS[kind]}, this subprotocol has {_KINDS[self._kind]}"
            raise self._wrong(BAD_KIND, "malformed", text)
        if before + size > self.limit:
            raise self._wrong(TOO_BIG, "limit", f"message of {before + size} bytes, limit {self.limit}")

    def _take(self, first: int, payload: bytes) -> bytes | None:
        """Returns the message that a frame completes."""
        kind, is_last = first & 0x0F, first & 0x80
        if kind == PING:
            self._on_ping(payload)
        elif kind == CLOSE:
            self._check_closing(payload)
            self.is_closed = True
        elif kind != PONG:
            if is_last and not self._is_within:
                return payload
            self._message += payload
            self._is_within = not is_last
            if is_last:
                whole = bytes(self._message)
                self._message.clear()
                return whole
        return None

    def _check_closing(self, payload: bytes) -> None:
        """Refuses a closing frame whose code may not be sent, or whose reason is no text."""
        code = int.from_bytes(payload[:2], "big")
        if payload and (len(payload) < 2 or not (code in _CLOSING or 3000 <= code < 5000)):
            raise self._wrong(BAD_PROTOCOL, "malformed", f"no connection is closed with {payload[:2].hex()}")
        try:
            payload[2:].decode()
        except UnicodeDecodeError as error:
            text = f"the reason in a closing frame must be UTF-8: {error.reason}"
            raise self._wrong(BAD_TEXT, "malformed", text) from None

    def parting(self, code: str) -> None:
        """Notes the code of the goodbye that is sent before the closing frame."""
        if self.code == NORMAL:
            self.code = _OF_GOODBYES.get(code, BAD_PACKET)

    def _wrong(self, code: int, name: str, text: str) -> ProtocolError:
        self.code = code
        return ProtocolError(name, text)


def _unmasked(mask: bytes | bytearray, payload: bytes | bytearray) -> bytes:
    """Returns a payload without its mask; masking it again gives it back.  O(bytes)."""
    size = len(payload)
    whole = (bytes(mask) * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")
