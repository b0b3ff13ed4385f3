"""The floor: a bare trio and msgpack server, beside which the daemon is measured.

A frame is a length, four bytes big-endian, and msgpack.  There are two servers: ``forward`` writes each frame
to all other connections, and ``announce`` reports which have come and gone.  Neither has an index, turns, a
log or limits, and their clients decode with msgpack and nothing more.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, TypeAlias

import msgpack
import trio

from bench._processes import Served

HEAD: Final = 4

Serve: TypeAlias = Callable[[trio.SocketListener], Awaitable[None]]


def frame(said: object) -> bytes:
    """Returns one frame."""
    packed: bytes = msgpack.packb(said)
    return len(packed).to_bytes(HEAD, "big") + packed


class Frames:
    """Cuts what is received into what was said."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, chunk: bytes) -> list[Any]:
        """Returns what is whole now."""
        held = self._held + chunk
        at, said = 0, []
        while len(held) - at >= HEAD:
            size = int.from_bytes(held[at : at + HEAD], "big")
            if len(held) - at - HEAD < size:
                break
            said.append(msgpack.unpackb(held[at + HEAD : at + HEAD + size]))
            at += HEAD + size
        self._held = held[at:]
        return said


async def connect(port: str) -> trio.SocketStream:
    """Returns a connection to a floor."""
    stream = await trio.open_tcp_stream("127.0.0.1", int(port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


@contextmanager
def floor(serve: Serve) -> Iterator[Served]:
    """Runs a server for as long as the block runs; its URL is its port as text."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_run, args=(serve, theirs), daemon=True)
    process.start()
    try:
        assert process.pid is not None  # it has been started
        yield Served(str(ours.recv()), process.pid)
    finally:
        process.kill()
        process.join()


def _run(serve: Serve, report: Connection) -> None:
    async def main() -> None:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1024))[0]
        report.send(listener.socket.getsockname()[1])
        await serve(listener)

    trio.run(main)


async def forward(listener: trio.SocketListener) -> None:
    """Writes each frame to all other connections."""
    peers: set[trio.SocketStream] = set()

    async def serve(stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peers.add(stream)
        frames = Frames()
        try:
            while chunk := await stream.receive_some(65536):
                data = b"".join([frame(said) for said in frames.feed(chunk)])
                for peer in list(peers):
                    if peer is not stream and data:
                        await peer.send_all(data)
        except trio.BrokenResourceError:
            pass
        finally:
            peers.discard(stream)
            await stream.aclose()

    await trio.serve_listeners(serve, [listener])


async def announce(listener: trio.SocketListener) -> None:
    """Takes a client's first frame as its fact, which goes to every observer, as does the end of it."""
    observers: dict[trio.SocketStream, trio.Lock] = {}

    async def tell(said: list[object]) -> None:
        data = frame(said)
        for observer, turn in list(observers.items()):
            async with turn:
                await observer.send_all(data)

    async def serve(stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = Frames()
        fact: object = None
        try:
            while chunk := await stream.receive_some(65536):
                for said in frames.feed(chunk):
                    if said == "observe":
                        observers[stream] = trio.Lock()
                    else:
                        fact = said
                        await tell(["+", fact])
                    await stream.send_all(frame("noted"))
        except trio.BrokenResourceError:
            pass
        finally:
            observers.pop(stream, None)
            await stream.aclose()
        if fact is not None:
            await tell(["-", fact])

    await trio.serve_listeners(serve, [listener])
