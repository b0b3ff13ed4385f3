"""Packets in binary messages: the very bytes of WIRE.md, one packet in each, without the length before it."""

from __future__ import annotations

from dataspace.codec import pack
from dataspace.wire.frames import HEAD
from dataspace.wire.packets import Packet, written
from dataspace.wire.session import Form
from relay.delivery.outbox import values_frame
from server.web.messages import BINARY, MessageCutter, head, message


def packed_form(cutter: MessageCutter) -> Form:
    """Returns the form of the subprotocol ``dataspace.1.msgpack``."""
    return Form(cutter, encode, framed)


def encode(packet: Packet) -> bytes:
    """Returns the message of a packet."""
    return message(BINARY, pack(written(packet)))


def framed(stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
    """Returns the message of a packet of values, and its cost in credit."""
    frame, size = values_frame(stream, first, count, body, left)
    return b"".join((head(BINARY, size), memoryview(frame)[HEAD:])), size
