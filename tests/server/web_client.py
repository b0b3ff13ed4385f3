"""HTTP and WebSocket by hand, on real sockets: says what a test wants, and hears the answers.

It shares no code with the daemon's side but the packets and their values.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import trio

from dataspace.codec import pack, unpack
from dataspace.wire import packets as p
from index.values.jsons import from_json, to_json
from index.values.values import Value
from tests.server.peers import hello

MSGPACK: Final = "dataspace.1.msgpack"
PATIENCE: Final = 20
"""Seconds after which what does not come never will."""

JSON: Final = "dataspace.1.json"


@dataclass
class Doors:
    """Where a daemon listens."""

    url: str
    port: int


def masked(first: int, payload: bytes, *, mask: bytes | None = None) -> bytes:
    """A frame of a client; ``first`` is its first byte."""
    mask = os.urandom(4) if mask is None else mask
    size = len(payload)
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((first, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + mask + bytes([byte ^ mask[at % 4] for at, byte in enumerate(payload)])


def tagged(said: object) -> object:
    """JSON as a browser's client writes it: an integral float would become an integer."""
    if isinstance(said, float) and said.is_integer():
        return {"@float": repr(said)}
    if isinstance(said, list):
        return [tagged(each) for each in said]
    return {at: tagged(each) for at, each in said.items()} if isinstance(said, dict) else said


def body_of(packet: p.Packet, subprotocol: str) -> bytes:
    """The payload of a packet."""
    fields: tuple[Value, ...] = p.written(packet)
    if subprotocol == MSGPACK:
        return pack(fields)
    return json.dumps(tagged(to_json(unpack(pack(fields))))).encode()


class Plain:
    """A connection on which bytes are said and heard; ``async with`` connects and closes."""

    def __init__(
        self, port: int, *, context: ssl.SSLContext | None = None, window: int | None = None
    ) -> None:
        self.port = port
        self._context = context
        self._window = window
        self.stream: trio.abc.Stream
        self.held = b""

    async def __aenter__(self) -> Self:
        plain = trio.socket.socket()
        if self._window is not None:
            plain.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, self._window)
        await plain.connect(("127.0.0.1", self.port))
        self.stream = trio.SocketStream(plain)
        if self._context is not None:
            self.stream = trio.SSLStream(self.stream, self._context, server_hostname="localhost")
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()  # no waiting for a goodbye of TLS
            await self.stream.aclose()

    async def shout(self, data: bytes) -> None:
        """Sends bytes; that the daemon has hung up already is no surprise."""
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            pass

    async def more(self) -> bool:
        """Waits for some bytes, which are kept in ``held``; False at the end."""
        try:
            with trio.fail_after(PATIENCE):
                chunk = await self.stream.receive_some()
        except trio.BrokenResourceError:
            return False
        self.held += chunk
        return bool(chunk)

    async def exactly(self, size: int) -> bytes | None:
        """The next bytes, or None if the end comes before."""
        while len(self.held) < size:
            if not await self.more():
                return None
        some, self.held = self.held[:size], self.held[size:]
        return some

    async def until(self, end: bytes) -> bytes:
        """What comes up to some bytes, these included."""
        while end not in self.held:
            assert await self.more(), f"the end after {self.held!r}"
        at = self.held.index(end) + len(end)
        some, self.held = self.held[:at], self.held[at:]
        return some

    async def rest(self) -> bytes:
        """All that comes until the daemon hangs up."""
        while await self.more():
            pass
        return self.held

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """The next response: status, headers and body, which must have a stated length."""
        lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:-2])}
        body = await self.exactly(int(headers.get("content-length", 0)))
        assert body is not None
        return int(lines[0].split()[1]), headers, body


def upgrade(subprotocol: str, *more: str, path: str = "/ws", host: str = "localhost") -> bytes:
    """A request for a WebSocket."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        f"Sec-WebSocket-Protocol: {subprotocol}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


class WebPeer(Plain):
    """A WebSocket without manners, as ``Peer`` is for TCP."""

    def __init__(
        self,
        port: int,
        subprotocol: str = MSGPACK,
        *more: str,
        context: ssl.SSLContext | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(port, context=context, window=window)
        self.subprotocol = subprotocol
        self.more_headers = more
        self.closed: int | None = None
        """The code of the closing frame, once it has come."""
        self.pongs: list[bytes] = []
        self.costs: list[int] = []
        """What packets of values said that they cost, or did."""
        self.kind = 2 if subprotocol == MSGPACK else 1

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.stream.send_all(upgrade(self.subprotocol, *self.more_headers))
        said = (await self.until(b"\r\n\r\n")).decode()
        assert said.startswith("HTTP/1.1 101 "), said
        assert f"sec-websocket-protocol: {self.subprotocol}\r\n" in said.lower()
        return self

    async def say(self, *packets: p.Packet) -> None:
        """Sends packets, one in each message."""
        await self.shout(b"".join([self.message(each) for each in packets]))

    def message(self, packet: p.Packet) -> bytes:
        return masked(0x80 | self.kind, body_of(packet, self.subprotocol))

    async def greet(self, client: str = "~peer") -> p.Welcome:
        """Says hello and hears the welcome."""
        await self.say(hello(client))
        welcome = await self.hear()
        assert isinstance(welcome, p.Welcome)
        return welcome

    async def hear(self) -> p.Packet | None:
        """The next packet, or None when the daemon has closed."""
        while True:
            found = await self.frame()
            if found is None:
                return None
            first, payload = found
            if first & 0x0F == 0xA:
                self.pongs.append(payload)
            elif first & 0x0F == 0x8:
                self.closed = int.from_bytes(payload[:2], "big")
                await self.close(self.closed)
                if isinstance(self.stream, trio.SocketStream):
                    await self._send_eof(self.stream)
            else:
                assert first == 0x80 | self.kind
                return self._packet(payload)

    async def frame(self) -> tuple[int, bytes] | None:
        """The next frame: its first byte and its payload."""
        head = await self.exactly(2)
        if head is None:
            return None
        size = head[1]  # a daemon masks nothing
        if size > 125:
            long = await self.exactly(2 if size == 126 else 8)
            assert long is not None
            size = int.from_bytes(long, "big")
        payload = await self.exactly(size)
        return None if payload is None else (head[0], payload)

    def _packet(self, payload: bytes) -> p.Packet:
        if self.subprotocol == MSGPACK:
            packet = p.read(unpack(payload))
            self.costs += [len(payload)] if isinstance(packet, p.Values) else []
            return packet
        said = json.loads(payload)
        self.costs += [said[5]] if said[0] == p.NUMBERS[p.Values] else []
        return p.read(from_json(said))

    async def all_packets(self) -> list[p.Packet]:
        """All that comes until the daemon closes."""
        heard = []
        while (packet := await self.hear()) is not None:
            heard.append(packet)
        return heard

    async def farewell(self) -> p.Bye:
        """The goodbye, which must be the last that is heard."""
        last = (await self.all_packets())[-1]
        assert isinstance(last, p.Bye), last
        return last

    async def _send_eof(self, stream: trio.SocketStream) -> None:
        try:
            await stream.send_eof()
        except trio.BrokenResourceError:
            pass

    async def close(self, code: int = 1000) -> None:
        """Sends the closing frame."""
        await self.shout(masked(0x88, code.to_bytes(2, "big")))
