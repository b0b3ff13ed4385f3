"""How long does it take until an observer has seen that a thousand clients have left?

Each client is a socket of its own with one fact of its own.  All are in one process, which either is killed
or sends a goodbye on each of them and reads each to its end.  The time is from there until the observer, a
process of its own, has seen the last fact go, and, for the goodbyes, until the last socket has been read to
its end.

The *floor* is ``bench._floor``'s server that announces who comes and who goes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

import dataspace
from bench._floor import Frames, announce, connect, floor, frame
from bench._processes import Side, daemon
from dataspace.transport.addresses import parse_url
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session, State
from index.values.values import Map, Record

CLIENTS: Final = 1000
TOGETHER: Final = 50
"""Clients that connect at once: far fewer than the daemon admits without a hello."""


def measure_leaving(clients: int = CLIENTS) -> dict[str, float]:
    """Returns one round of all figures, in milliseconds for so many clients."""
    figures: dict[str, float] = {}
    for way in ("kill", "close"):
        with floor(announce) as served:
            figures[f"floor_{way}_1000_ms"] = leave(way, floor_crowd, floor_observe, served.url, clients)
        with daemon() as url:
            figures[f"{way}_1000_ms"] = leave(way, crowd, observe, url, clients)
    return figures


def leave(
    way: str, crowd: Callable[..., Any], observe: Callable[..., Any], address: str, clients: int
) -> float:
    """Returns the milliseconds from the end of a crowd, by ``kill`` or ``close``, until it was seen.

    The crowd reports ``ready`` once all of it is there, and when the last has left after ``go``; the observer
    reports ``ready``, ``all here``, and when it has seen the last one go.
    """
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


async def crowd(url: str, clients: int, report: Connection) -> None:
    """So many clients of the daemon, without a client's library: what is measured is how they leave."""
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


async def observe(url: str, clients: int, report: Connection) -> None:
    """An observer of them."""
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


async def floor_crowd(port: str, clients: int, report: Connection) -> None:
    """So many clients of the floor."""
    crowd = []
    for n in range(clients):
        link = socket.create_connection(("127.0.0.1", int(port)))
        link.sendall(frame(["present", n]))
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


async def floor_observe(port: str, clients: int, report: Connection) -> None:
    """An observer of them."""
    stream = await connect(port)
    await stream.send_all(frame("observe"))
    frames = Frames()
    seen = 0
    report.send("ready")
    while seen < 2 * clients:
        for said in frames.feed(await stream.receive_some(65536)):
            if said != "noted":
                seen += 1
                if seen == clients:
                    report.send("all here")
    report.send(time.perf_counter())
