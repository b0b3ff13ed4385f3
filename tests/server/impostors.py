"""A daemon that is played by hand: what a client does with one that waits, or breaks the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session
from index.values.values import Map

P = TypeVar("P")


class Impostor:
    """One listening socket, and the connection that was accepted last."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self._heard: list[p.Packet] = []
        self._accepted = False
        self._session: Session
        self._stream: trio.SocketStream
        self.url = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"

    async def welcome(self) -> None:
        """Accepts a client and greets it."""
        self._stream = await self._listener.accept()
        self._accepted = True
        self._session = Session(Role.SERVER)
        self._heard.clear()
        await self.hear(p.Hello)
        await self.say(p.Welcome(p.VERSION, 1, "space", 0, 0, Map(), Map()))

    async def hear(self, kind: type[P]) -> P:
        """The next packet, which must be of this kind."""
        while not self._heard:
            chunk = await self._stream.receive_some()
            assert chunk, f"the client has hung up, {kind} was expected"
            self._heard.extend(self._session.feed(bytes(chunk)))
        packet = self._heard.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    async def say(self, *packets: p.Packet) -> None:
        await self.shout(b"".join(map(self._session.send, packets)))

    async def shout(self, data: bytes) -> None:
        """Sends what no packet is, or none that can be packed."""
        await self._stream.send_all(data)

    async def close(self) -> None:
        await self._stream.aclose()

    def abandon(self) -> None:
        """Closes what a test that has failed has left open."""
        if self._accepted:
            self._stream.socket.close()


@asynccontextmanager
async def impostor() -> AsyncIterator[Impostor]:
    """A socket that listens for as long as the block runs; what was accepted last is closed with it."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        played = Impostor(listener)
        try:
            yield played
        finally:
            played.abandon()
