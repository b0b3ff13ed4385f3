"""A client written from WIRE.md alone: sockets and msgpack, nothing of this project.

It shows that the page is enough, and stands as an example for other languages.  It does one thing after the
other: ``expect`` reads packets until one satisfies, and keeps what it passes over.

Always: every number here is one that WIRE.md states.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Self

import msgpack

HELLO, TURN, OPEN, ASK, ABORT, REQUEST, PING, PONG, BYE = 1, 2, 3, 4, 5, 6, 7, 8, 9
WELCOME, ACCEPTED, REFUSAL, VALUES, DONE, ERROR, ANSWER, DENIED = 33, 34, 35, 36, 37, 38, 39, 40
ASSERT, RETRACT, SEND, REPLACE = 0, 1, 2, 3
CONTINUED, STATE = 1, 2

Packet = list[Any]


class Lost(Exception):
    """The connection has ended without a goodbye."""


# -- values -------------------------------------------------------------------------------------------


def record(label: str, *fields: Any) -> msgpack.ExtType:
    """The record of a label and fields: extension 1 with an array as its payload."""
    return msgpack.ExtType(1, _pack([label, *fields]))


def capture(name: str) -> msgpack.ExtType:
    """The pattern that captures what is in its place."""
    return record("$", name, None, record("_"))


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, default=_big_integer, datetime=True)
    return packed


def _big_integer(value: Any) -> msgpack.ExtType:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no value")
    size = 1
    while not -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
        size += 1
    return msgpack.ExtType(2, value.to_bytes(size, "big", signed=True))


def _extension(code: int, payload: bytes) -> Any:
    if code == 1:
        label, *fields = _unpack(payload)
        return (label, *fields)
    if code == 2:
        return int.from_bytes(payload, "big", signed=True)
    if code == 3:
        halves = _unpack(payload)
        return list(zip(halves[::2], halves[1::2], strict=True))
    raise ValueError(f"extension {code} is not in WIRE.md")


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, ext_hook=_extension, timestamp=3, strict_map_key=True)


# -- connections --------------------------------------------------------------------------------------


class WireClient:
    """One identity, and one connection at a time; ``with`` ends it with a goodbye."""

    def __init__(self, port: int, name: str, *, grace: int = 0) -> None:
        """``grace`` is in milliseconds."""
        self.port = port
        self.name = name
        self.identity = f"~{os.urandom(8).hex()}"
        self.features: dict[str, Any] = {"grace": grace} if grace else {}
        self.sequence = self.stream = self.number = 0
        self.welcome: Packet = []
        self.unanswered: dict[int, Packet] = {}
        self._epochs: dict[int, int] = {}
        self._passed: list[Packet] = []
        self._socket = socket.socket()
        self.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.send([BYE, "", ""])
        self._socket.close()

    def connect(self, *, version: int = 1) -> None:
        """Says hello, asks for the session before if there is one, and waits for the welcome."""
        self._socket.close()
        self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        self._passed.clear()
        self.send([HELLO, version, self.identity, self.name, self.features])
        self.welcome = self.expect(WELCOME)
        _, _, session, _, _, sequence, _, granted, *_later = self.welcome
        if "secret" in granted:
            self.features["resume"] = [session, granted["secret"]]
        self.sequence = max(self.sequence, sequence)

    @property
    def resumed(self) -> bool:
        """Whether the session goes on that was there before."""
        return self.welcome[7].get("resumed") is True

    def reconnect(self) -> None:
        """Loses the connection as a broken line does, comes back, and sends turns without an answer again."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
        self.connect()
        if self.resumed:
            for turn in self.unanswered.values():
                self.send(turn)

    def send(self, packet: Packet) -> int:
        """Sends a packet; returns the length of its body."""
        body = _pack(packet)
        self._socket.sendall(len(body).to_bytes(4, "big") + body)
        return len(body)

    def hear(self) -> tuple[Packet, int]:
        """Returns the next packet and the length of its body; answers pings."""
        while True:
            size = int.from_bytes(self._exactly(4), "big")
            packet = _unpack(self._exactly(size))
            if packet[0] == PING:
                self.send([PONG, packet[1]])
            else:
                return packet, size

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise Lost(f"{len(parts)} of {size} bytes came")
            parts += part
        return parts

    def expect(self, kind: int, fits: Callable[[Packet], bool] = lambda _: True) -> Packet:
        """Returns the next packet of a kind that fits, kept ones first; keeps the others."""
        for at, packet in enumerate(self._passed):
            if packet[0] == kind and fits(packet):
                return self._passed.pop(at)
        while True:
            packet, size = self.hear()
            if packet[0] == VALUES:
                packet.append(size)
            if packet[0] == kind and fits(packet):
                return packet
            if packet[0] == BYE:
                raise Lost(f"{packet[1]}: {packet[2]}")
            self._passed.append(packet)

    # -- turns ----------------------------------------------------------------------------------------

    def turn(self, *actions: list[Any], owner: str = "") -> int:
        """Sends a turn without waiting for its answer; returns its number."""
        self.sequence += 1
        packet = [TURN, self.sequence, "main", owner, list(actions)]
        self.unanswered[self.sequence] = packet
        self.send(packet)
        return self.sequence

    def epoch(self, sequence: int) -> int:
        """Waits until a turn is on disk; returns its epoch."""
        while sequence not in self._epochs:
            _, first, epochs, *_later = self.expect(ACCEPTED)
            for at, epoch in enumerate(epochs, first):
                self.unanswered.pop(at, None)
                self._epochs[at] = epoch
        return self._epochs.pop(sequence)

    def refusal(self, sequence: int) -> str:
        """Waits until a turn is refused; returns the code."""
        refused = self.expect(REFUSAL, lambda each: each[1] == sequence)
        self.unanswered.pop(sequence, None)
        return str(refused[2])

    def request(self, verb: str, **arguments: Any) -> Any:
        """Asks, and returns the answer."""
        self.number += 1
        number = self.number
        self.send([REQUEST, number, verb, arguments])
        return self.expect(ANSWER, lambda each: each[1] == number)[2]


class Observation:
    """One stream: what matches a pattern, one item at a time, within the credit that it gives."""

    def __init__(self, client: WireClient, pattern: Any, *, items: int = 2, **options: Any) -> None:
        client.stream += 1
        self.client, self.pattern, self.options = client, pattern, options
        self.number, self.window = client.stream, items
        self.last = 0
        """The last epoch that came whole."""
        self._open({})

    def _open(self, more: dict[str, Any]) -> None:
        self.items, self.bytes = self.window, 65_536
        self.taken = self.used = 0
        self._waiting: list[list[Any]] = []
        spec = {"kind": "observe", "pattern": self.pattern, **self.options, **more}
        self.client.send([OPEN, self.number, spec, self.items, self.bytes])

    def resume(self) -> None:
        """Opens the stream again over a new connection, under its old number."""
        self._open({"after": self.last})

    def next(self) -> list[Any]:
        """Returns the next value, ``[epoch, time, flags, additions, messages, removals, first]``."""
        if not self._waiting:
            packet = self.client.expect(VALUES, lambda each: each[1] == self.number)
            _, _, first, values, _available, *_later, size = packet
            assert first == self.taken, "values are numbered from the opening on"
            self.taken += len(values)
            self.used += size
            assert self.taken <= self.items, "no more came than was asked for"
            self._waiting += values
        value = self._waiting.pop(0)
        if not value[2] & CONTINUED:
            self.last = value[0]
        self._replenish()
        return value

    def _replenish(self) -> None:
        """Asks for as many again as have been read; totals, so that nothing depends on what is on its way."""
        read = self.taken - len(self._waiting)
        self.items, self.bytes = read + self.window, self.used + 65_536
        self.client.send([ASK, self.number, self.items, self.bytes])
