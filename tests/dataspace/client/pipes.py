"""A pipe in memory between a client and a daemon of the tests: it cuts, delays and takes little at a time.

Always: bytes arrive in the order in which they were sent, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from dataspace.transport.addresses import Address, parse_url
from dataspace.transport.credentials import Credentials
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.features import Granted
from dataspace.wire.session import Role, Session
from index.values.values import Map

ADDRESS: Final = parse_url("tcp://127.0.0.1:7377")
CREDENTIALS: Final = Credentials.complete("", None)
K = TypeVar("K")


class End:
    """One end of a pipe, as a ``Link``; ``capacity`` is how many bytes may lie unread at the other end."""

    peer = "pipe"
    pending = False

    def __init__(self, capacity: int) -> None:
        self.other: End
        self.capacity = capacity
        self.held = False
        """While true, what comes is kept from the reader."""
        self.closed = False
        self._buffer = bytearray()
        self._lot = trio.lowlevel.ParkingLot()

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while (data := self.receive_nowait()) is None:
            await self._lot.park()
        return data

    def receive_nowait(self) -> bytes | None:
        if self._buffer and not self.held:
            data = bytes(self._buffer)
            self._buffer.clear()
            self.other._lot.unpark_all()
            return data
        return b"" if self.closed or self.other.closed else None

    def send_nowait(self, data: bytes | bytearray) -> int:
        if self.closed or self.other.closed:
            raise BrokenPipeError("the pipe is cut")
        room = max(0, self.capacity - len(self.other._buffer))
        self.other._buffer += data[:room]
        self.other._lot.unpark_all()
        return min(room, len(data))

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while len(self.other._buffer) >= self.capacity and not (self.closed or self.other.closed):
            await self._lot.park()

    def release(self) -> None:
        """Has the reader get what was kept from it."""
        self.held = False
        self._lot.unpark_all()

    def cut(self) -> None:
        """Cuts the pipe; what was not read is lost."""
        for end in (self, self.other):
            end.closed = True
            end._buffer.clear()
            end._lot.unpark_all()

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self._lot.unpark_all()
        self.other._lot.unpark_all()


def pipe(capacity: int = 1 << 20) -> tuple[End, End]:
    """Returns the two ends of a pipe."""
    one, other = End(capacity), End(capacity)
    one.other, other.other = other, one
    return one, other


class Daemon:
    """The other side: takes each connection as a test wants it, and says what the test says."""

    def __init__(self, *, capacity: int = 1 << 20) -> None:
        self.capacity = capacity
        self.dialled: list[float] = []
        """When clients have dialled."""
        self.refuses: Callable[[], Exception] | None = None
        """What the next attempts to dial raise, if they are to."""
        self.end: End
        self.session: Session
        self._heard: list[p.Packet] = []
        self._waiting: list[End] = []
        self._lot = trio.lowlevel.ParkingLot()

    async def dial(self, _address: Address, _credentials: Credentials) -> Link:
        """Returns the client's end of a new pipe."""
        await trio.lowlevel.checkpoint()
        self.dialled.append(trio.current_time())
        if self.refuses is not None:
            raise self.refuses()
        client, daemon = pipe(self.capacity)
        self._waiting.append(daemon)
        self._lot.unpark_all()
        return client

    async def accept(self) -> p.Hello:
        """Takes the next connection, and returns its hello."""
        while not self._waiting:
            await self._lot.park()
        self.end = self._waiting.pop(0)
        self.session = Session(Role.SERVER)
        self._heard.clear()
        return await self.hear(p.Hello)

    async def greet(
        self, *, space: str = "s", epoch: int = 0, sequence: int = 0, granted: Granted | None = None
    ) -> p.Hello:
        """Takes the next connection and welcomes it; returns its hello."""
        hello = await self.accept()
        features = (granted or Granted()).packed()
        if granted is not None and granted.resumed:
            self.session.resume()
        self.say(p.Welcome(p.VERSION, 1, space, epoch, sequence, Map(), features))
        return hello

    async def hear(self, kind: type[K]) -> K:
        """Returns the next packet, which must be of this kind."""
        with trio.fail_after(1000):
            while not self._heard:
                chunk = await self.end.receive()
                assert chunk, f"the client hung up before {kind.__name__}"
                self._heard += self.session.feed(chunk)
        packet = self._heard.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    def heard_nothing(self) -> bool:
        """True if nothing waits to be heard."""
        chunk = self.end.receive_nowait()
        self._heard += self.session.feed(chunk) if chunk else ()
        return not self._heard

    def say(self, *packets: p.Packet) -> None:
        for packet in packets:
            data = self.session.send(packet)
            assert self.end.send_nowait(data) == len(data)

    def cut(self) -> None:
        self.end.cut()
