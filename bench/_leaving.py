"""How long does it take until an observer has seen that a thousand clients have left?

Each client is a socket of its own with one fact of its own.  All are in one process, which either is killed
or sends a goodbye on each of them and reads each to its end.  The time is from there until the observer, a
process of its own, has seen the last fact go, and, for the goodbyes, until the last socket has been read to
its end.

The *floor* is a bare trio and msgpack server: a client's first frame is its fact, which goes to every
observer, and so does a frame when its connection has ended.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

import msgpack
import trio

import dataspace
from bench._processes import Side, daemon
from dataspace.transport.addresses import parse_url
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session, State
from index.values.values import Map, Record

CLIENTS: Final = 1000
HEAD: Final = 4
TOGETHER: Final = 50
"""Clients that connect at once: far fewer than the daemon admits without a hello."""


def measure_leaving(clients: int = CLIENTS) -> dict[str, float]:
    """Returns one round of all figures, in milliseconds for so many clients."""
    figures: dict[str, float] = {}
    for way in ("kill", "close"):
        with floor() as port:
            figures[f"floor_{way}_1000_ms"] = _leave(way, _floor_crowd, _floor_observe, port, clients)
        with daemon() as url:
            figures[f"{way}_1000_ms"] = _leave(way, _crowd, _observe, url, clients)
    return figures


def _leave(
    way: str, crowd: Callable[..., Any], observe: Callable[..., Any], address: str, clients: int
) -> float:
    observer = Side.start(observe, address, clients)
    assert observer.pipe.recv() == "ready"
    leaving = Side.start(crowd, address, clients)
    assert leaving.pipe.recv() == "ready"
    assert observer.pipe.recv() == "all here"
    began = time.perf_counter()
    if way == "kill":
        leaving.process.kill()
        ended = observer.pipe.recv()
    else:
        leaving.pipe.send("go")
        ended = max(observer.pipe.recv(), leaving.pipe.recv())
    leaving.stop()
    observer.stop()
    return float(ended - began) * 1000


# -- ours ---------------------------------------------------------------------------------------------


async def _crowd(url: str, clients: int, report: Connection) -> None:
    address = parse_url(url)
    crowd: list[tuple[socket.socket, Session]] = []
    for start in range(0, clients, TOGETHER):
        some = [
            (socket.create_connection((address.host, address.port)), Session(Role.CLIENT), n)
            for n in range(start, min(start + TOGETHER, clients))
        ]
        for link, session, n in some:
            link.sendall(session.send(p.Hello(p.VERSION, f"~leaving {n}", f"leaving {n}", Map())))
        for link, session, n in some:
            _await(link, session, p.Welcome)
            link.sendall(session.send(p.Turn(1, "main", "", ((0, 1, Record("present", n)),))))
        for link, session, _ in some:
            _await(link, session, p.Accepted)
            crowd.append((link, session))
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)
    for link, session in crowd:
        link.sendall(session.send(p.Bye("", "")))
    for link, session in crowd:
        while chunk := link.recv(65536):
            for packet in session.feed(chunk):
                assert packet.__class__ is p.Bye
        assert session.state is State.ENDED
        link.close()
    report.send(time.perf_counter())


def _await(link: socket.socket, session: Session, kind: type[p.Packet]) -> None:
    while not any(packet.__class__ is kind for packet in session.feed(link.recv(65536))):
        pass


async def _observe(url: str, clients: int, report: Connection) -> None:
    async with dataspace.connect(url, name="observer") as space:
        async with space.observe("present($n)", quiet=True) as observation:
            await observation.next_epoch()
            report.send("ready")
            seen = 0
            async for change in observation:
                seen += 1
                assert change.kind == ("+" if seen <= clients else "-")
                if seen == clients:
                    report.send("all here")
                if seen == 2 * clients:
                    report.send(time.perf_counter())


# -- the floor ----------------------------------------------------------------------------------------


async def _announce(listener: trio.SocketListener) -> None:
    observers: dict[trio.SocketStream, trio.Lock] = {}

    async def tell(said: list[object]) -> None:
        data = _frame(said)
        for observer, turn in list(observers.items()):
            async with turn:
                await observer.send_all(data)

    async def serve(stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        held = b""
        fact: object = None
        try:
            while chunk := await stream.receive_some(65536):
                held += chunk
                while len(held) >= HEAD and len(held) - HEAD >= (size := int.from_bytes(held[:HEAD], "big")):
                    said = msgpack.unpackb(held[HEAD : HEAD + size])
                    held = held[HEAD + size :]
                    if said == "observe":
                        observers[stream] = trio.Lock()
                    else:
                        fact = said
                        await tell(["+", fact])
                    await stream.send_all(_frame("noted"))
        except trio.BrokenResourceError:
            pass
        finally:
            observers.pop(stream, None)
            await stream.aclose()
        if fact is not None:
            await tell(["-", fact])

    await trio.serve_listeners(serve, [listener])


def _floor_server(report: Connection) -> None:
    async def main() -> None:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        report.send(listener.socket.getsockname()[1])
        await _announce(listener)

    trio.run(main)


@contextlib.contextmanager
def floor() -> Iterator[str]:
    """A running server of the floor; its port as text."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_floor_server, args=(theirs,), daemon=True)
    process.start()
    try:
        yield str(ours.recv())
    finally:
        process.kill()
        process.join()


def _frame(said: object) -> bytes:
    packed: bytes = msgpack.packb(said)
    return len(packed).to_bytes(HEAD, "big") + packed


async def _floor_crowd(port: str, clients: int, report: Connection) -> None:
    crowd = []
    for n in range(clients):
        link = socket.create_connection(("127.0.0.1", int(port)))
        link.sendall(_frame(["present", n]))
        link.recv(65536)
        crowd.append(link)
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)
    for link in crowd:
        link.shutdown(socket.SHUT_WR)
    for link in crowd:
        while link.recv(65536):
            pass
        link.close()
    report.send(time.perf_counter())


async def _floor_observe(port: str, clients: int, report: Connection) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", int(port))
    await stream.send_all(_frame("observe"))
    seen, held = 0, b""
    report.send("ready")
    while seen < 2 * clients:
        held += await stream.receive_some(65536)
        at = 0
        while len(held) - at >= HEAD:
            size = int.from_bytes(held[at : at + HEAD], "big")
            if len(held) - at - HEAD < size:
                break
            if msgpack.unpackb(held[at + HEAD : at + HEAD + size]) != "noted":
                seen += 1
                if seen == clients:
                    report.send("all here")
            at += HEAD + size
        held = held[at:]
    report.send(time.perf_counter())
