"""The sides of each scenario for servers that are spoken to over plain blocking sockets.

A client's library costs its own process, and says little of the server.  So each peer has a ``Link``, which
does as much of its protocol as the scenarios need: it puts values, and counts what comes.
"""

from __future__ import annotations

import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

from bench._latency import PAUSE

VALUE: Final = b"x" * 64
WINDOW: Final = 1024
"""Changes on their way at most, and how many of them one write has at most."""
TOGETHER: Final = 16


class Link(ABC):
    """One connection of a client; what it has received is counted as it comes."""

    def __init__(self, port: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""
        self.acknowledged = self.events = self.opened = self.came = self.gone = 0
        self.greet()

    @abstractmethod
    def greet(self) -> None:
        """Makes the connection ready."""

    @abstractmethod
    def put(self, n: int) -> bytes:
        """Returns what to send for one change of a key of its own."""

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """Counts what is whole; returns the rest."""

    @abstractmethod
    def watch(self) -> None:
        """Watches all keys; returns once the server does so."""

    @abstractmethod
    def watch_key(self, n: int) -> bytes:
        """Returns what to send to watch one key; what confirms it counts as ``opened``."""

    def flush(self) -> None:
        """Returns when the server has taken all, where it does not acknowledge each."""
        return

    def pump(self) -> bool:
        """Takes what comes next; False at the end."""
        chunk = self.socket.recv(1 << 16)
        self.held = self.feed(self.held + chunk)
        return bool(chunk)

    def wait(self, done: Callable[[], bool]) -> None:
        """Takes what comes until something is so."""
        while not done():
            if not self.pump():
                raise EOFError("the server has closed the connection")


class Present(Link):
    """A link of a server that shows who is there."""

    @abstractmethod
    def appear(self, n: int) -> None:
        """States a fact that ends with the connection."""

    def stay(self) -> None:
        """Says again that it is there, where that is needed."""

    @abstractmethod
    def part(self) -> None:
        """Leaves in order."""

    def wait_parted(self) -> None:
        """Returns once the server has taken that: by default it closes the connection then."""
        while self.pump():
            pass

    @abstractmethod
    def watch_presence(self) -> None:
        """Counts who has come and gone from now on."""


async def write(kind: type[Link], port: str, turns: int, report: Connection) -> None:
    """Puts so many changes, as fast as they are acknowledged."""
    link = kind(port)
    report.send("ready")
    report.recv()
    sent = 0
    link.socket.setblocking(True)
    with selectors.DefaultSelector() as selector:
        selector.register(link.socket, selectors.EVENT_READ)
        while sent < turns:
            some = min(TOGETHER, turns - sent, WINDOW - (sent - link.acknowledged))
            if some > 0:
                link.socket.sendall(b"".join([link.put(n) for n in range(sent, sent + some)]))
                sent += some
            if some <= 0 or selector.select(0):
                link.pump()
    link.wait(lambda: link.acknowledged == turns)
    link.flush()
    report.send("written")
    report.recv()


async def watch(kind: type[Link], port: str, watchers: int, turns: int, report: Connection) -> None:
    """Watches on so many connections, each to the last change."""
    links = [kind(port) for _ in range(watchers)]
    for link in links:
        link.watch()
    report.send("ready")
    with selectors.DefaultSelector() as selector:
        for link in links:
            selector.register(link.socket, selectors.EVENT_READ, link)
        left = watchers
        while left:
            for ready, _ in selector.select():
                link = ready.data
                before = link.events
                link.pump()
                left -= before < turns <= link.events
    report.send("seen")
    report.recv()


async def tick(kind: type[Link], port: str, count: int, report: Connection) -> None:
    """Puts one change at a time, and reports when."""
    link = kind(port)
    sent = []
    for n in range(count):
        sent.append(time.perf_counter())
        link.socket.sendall(link.put(n))
        link.wait(partial(_has_acknowledged, link, n + 1))
        await trio.sleep(PAUSE)
    report.send(sent)
    report.recv()


def _has_acknowledged(link: Link, count: int) -> bool:
    return link.acknowledged >= count


async def hear(kind: type[Link], port: str, count: int, report: Connection) -> None:
    """Watches one change at a time, and reports when it has seen each."""
    link = kind(port)
    link.watch()
    report.send("ready")
    seen: list[float] = []
    while link.events < count:
        link.pump()
        seen += [time.perf_counter()] * (link.events - len(seen))
    report.send(seen)
    report.recv()


async def open_all(
    kind: type[Link], port: str, count: int, shared: bool, connections: int, report: Connection
) -> None:
    """Opens so many watches of one key each on some connections."""
    links = [kind(port) for _ in range(connections)]
    report.send("ready")
    report.recv()
    for at, link in enumerate(links):
        for n in range(at, count, connections):
            link.socket.sendall(link.watch_key(0 if shared else n))
            link.wait(partial(_has_opened, link, n // connections + 1))
        link.flush()
    report.send("open")
    report.recv()


def _has_opened(link: Link, count: int) -> bool:
    return link.opened >= count


async def crowd(kind: type[Present], port: str, clients: int, report: Connection) -> None:
    """So many clients, each with a fact that ends with it."""
    links: list[Present] = []
    stayed = time.monotonic()
    for n in range(clients):
        links.append(kind(port))
        links[-1].appear(n)
        if time.monotonic() > stayed + 0.5:
            stayed = _stay(links)
    report.send("ready")
    while not report.poll(0.5):
        _stay(links)
    report.recv()
    for link in links:
        link.part()
    for link in links:
        link.wait_parted()
        link.socket.close()
    report.send(time.perf_counter())


def _stay(links: list[Present]) -> float:
    for link in links:
        link.stay()
    return time.monotonic()


async def observe(kind: type[Present], port: str, clients: int, report: Connection) -> None:
    """Observes them."""
    link = kind(port)
    link.watch_presence()
    report.send("ready")
    link.wait(lambda: link.came >= clients)
    report.send("all here")
    link.wait(lambda: link.gone >= clients)
    report.send(time.perf_counter())


def sides(kind: type[Link]) -> dict[str, Any]:
    """Returns the sides of a ``System`` whose clients are links of this kind."""
    present = kind if issubclass(kind, Present) else None
    return {
        "write": partial(write, kind),
        "watch": partial(watch, kind),
        "tick": partial(tick, kind),
        "hear": partial(hear, kind),
        "crowd": partial(crowd, present) if present else None,
        "observe": partial(observe, present) if present else None,
        "open_all": partial(open_all, kind),
    }
