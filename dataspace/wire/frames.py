"""Frames: where does one packet end in a stream of bytes?

A frame is a length, four bytes big-endian, and that many bytes of msgpack.  Cutting is apart from meaning
so that a length can be refused before a byte of its body is kept.

Always: frames survive any way of cutting the stream; at most one frame's worth of bytes is held back.
"""

from __future__ import annotations

import struct
from typing import Final

from dataspace.errors import ProtocolError

HEAD: Final = 4
MAX_FRAME: Final = 4 << 20
"""Bytes in the body of a frame."""

_size_at: Final = struct.Struct(">I").unpack_from

_LOOKS_LIKE: Final = {
    b"GET ": "an HTTP request",
    b"POST": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"SSH-": "an SSH banner",
    b"PRI ": "an HTTP/2 preface",
}


def frame(body: bytes) -> bytes:
    """A body with its length before it."""
    return len(body).to_bytes(HEAD, "big") + body


class Cutter:
    """Cuts received bytes into the bodies of frames; ``limit`` may be raised while it works.

    A length beyond the limit sets ``refusal``, after which nothing more is cut; the bodies before it are
    still handed out.
    """

    __slots__ = ("_held", "_wanted", "limit", "refusal")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self.refusal: ProtocolError | None = None
        self._held = bytearray()
        self._wanted = HEAD
        """How many bytes must be held before there is anything to cut."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The bodies that are whole now; O(bytes), however small the chunks of a large frame are."""
        if self.refusal is not None:
            return []
        data = chunk
        if self._held:
            self._held += chunk
            if len(self._held) < self._wanted:
                return []
            data = bytes(self._held)
            self._held.clear()
        bodies: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= HEAD:
            (size,) = _size_at(data, at)
            if size > self.limit:
                self.refusal = self._refuse(data[at : at + HEAD], size)
                return bodies
            begin = at + HEAD
            if end - begin < size:
                self._wanted = HEAD + size
                break
            at = begin + size
            bodies.append(data[begin:at])
        else:
            self._wanted = HEAD
        self._held += data[at:]
        return bodies

    @property
    def held(self) -> int:
        """Bytes of an unfinished frame that are kept."""
        return len(self._held)

    def _refuse(self, head: bytes, size: int) -> ProtocolError:
        if head[:2] == b"\x15\x03":  # an alert of TLS
            return ProtocolError("malformed", "the daemon speaks TLS: connect to tls:// in place of tcp://")
        likeness = _LOOKS_LIKE.get(head)
        if head[:2] == b"\x16\x03":
            likeness = "a TLS hello"
        hint = f" (this looks like {likeness})" if likeness else ""
        return ProtocolError("limit", f"frame of {size} bytes, limit {self.limit}{hint}")
