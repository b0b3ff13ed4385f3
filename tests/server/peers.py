"""A peer without manners: says whatever a test wants on a real socket, and hears the answers.

The client library refuses to break the protocol, so those who do need a mouth of their own.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Final, Self

import trio

from dataspace.codec import pack
from dataspace.kernel.actions import Action
from dataspace.transport.addresses import parse_url
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from dataspace.wire.session import Role, Session
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value

EVERYTHING: Final = capture("x")
PLENTY: Final = 1 << 40


def packed(packet: p.Packet) -> bytes:
    """The frame of any packet, allowed or not."""
    return frame(pack(p.written(packet)))


def hello(client: str = "~peer", *, version: int = p.VERSION, name: str = "peer") -> p.Hello:
    return p.Hello(version, client, name, Map())


def turn(sequence: int, *actions: Action, owner: str = "", space: str = "main") -> p.Turn:
    return p.Turn(sequence, space, owner, actions)


def fact(n: int) -> Record:
    return Record("fact", n)


def opening(
    stream: int = 1,
    pattern: Value = EVERYTHING,
    *,
    items: int = PLENTY,
    size: int = PLENTY,
    quiet: bool = True,
    **more: Value,
) -> p.Open:
    spec: dict[str, Value] = {"kind": "observe", "pattern": pattern, "quiet": quiet, **more}
    return p.Open(stream, Map(spec), items, size)


class Peer:
    """One raw connection; ``async with`` connects and closes."""

    def __init__(self, url: str, *, window: int | None = None, source: str = "") -> None:
        """``window`` is how many bytes the kernel keeps for a peer that does not read; ``source`` a host."""
        self._window = window
        self._source = source
        self._address = parse_url(url)
        self._session = Session(Role.CLIENT, max_frame=64 << 20, max_elements=64 << 20)
        self._heard: list[p.Packet] = []
        self.socket: trio.SocketStream

    async def __aenter__(self) -> Self:
        plain = trio.socket.socket()
        if self._window is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._window)
        if self._source:
            await plain.bind((self._source, 0))
        await plain.connect((self._address.host, self._address.port))
        self.socket = trio.SocketStream(plain)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.socket.aclose()

    async def shout(self, data: bytes) -> None:
        """Sends bytes; that the daemon has hung up already is no surprise."""
        try:
            await self.socket.send_all(data)
        except trio.BrokenResourceError:
            pass  # what it said before that can still be heard

    async def say(self, *packets: p.Packet) -> None:
        """Sends packets, in whatever order."""
        await self.shout(b"".join(map(packed, packets)))

    async def greet(self, client: str = "~peer") -> p.Welcome:
        """Says hello and hears the welcome."""
        await self.say(hello(client))
        welcome = await self.hear()
        assert isinstance(welcome, p.Welcome)
        return welcome

    async def hear(self) -> p.Packet | None:
        """The next packet, or None when the daemon has hung up."""
        while not self._heard:
            try:
                chunk = await self.socket.receive_some()
            except trio.BrokenResourceError:
                raise AssertionError("a reset instead of an end") from None
            if not chunk:
                return None
            self._heard.extend(self._session.feed(bytes(chunk)))
        return self._heard.pop(0)

    async def rest(self) -> list[p.Packet]:
        """All that comes until the daemon hangs up."""
        heard = []
        while (packet := await self.hear()) is not None:
            heard.append(packet)
        return heard

    async def farewell(self) -> p.Bye:
        """The goodbye, which must be the last that is heard."""
        last = (await self.rest())[-1]
        assert isinstance(last, p.Bye), last
        return last

    def reset(self) -> None:
        """Ends the connection without a goodbye, as a crash of the machine would."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.socket.close()
