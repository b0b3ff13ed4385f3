"""What do the daemon's other clients lose while 100 browsers watch what changes?

The browsers are WebSockets, half of them with msgpack and half with JSON, and do what the inspector's page
does: they observe a pattern with the whole fact and its captures, quietly and with a pace of 100 ms, and ask
once in a second for ``frontier`` (the view of facts) or for ``status`` (the overview).  They read all that
comes and decode nothing, since here they share the CPUs with the daemon.  A writer replaces facts that they
watch at a steady rate.  Meanwhile two other clients over TCP take the time of one change after another, from
the call of the one to the hands of the other: without browsers, with them, and with browsers that want each
change without a pace.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

import dataspace
from bench._latency import hear, latency, tick
from bench._processes import Measuring, Served, Side
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Record

BROWSERS: Final = 100
WRITES: Final = 100
"""Epochs in a second that change what browsers watch."""

FACTS: Final = 50
"""Facts that they watch."""

PACE: Final = 100
"""Milliseconds between two changes of what a page shows, as the inspector asks for."""

CASES: Final = (("alone", 0, 0), ("watched", BROWSERS, PACE), ("unpaced", BROWSERS, 0))
"""What is measured in turn: a name, how many browsers, and their pace."""

PLENTY: Final = 1 << 40
ASKS: Final = 1.0
"""Seconds between the requests of a page."""

REQUESTS: Final = (("status", Map()), ("frontier", Map({"after": 0})))

Connect = Callable[[str, int, int], socket.socket]
Said = Callable[[str, p.Packet], bytes]


def measure_beside(served: Served, connect: Connect, said: Said, *, quick: bool) -> dict[str, float]:
    """Returns one round: milliseconds without and with browsers, and what the daemon needs of a CPU.

    All are measured in turn; ``connect(subprotocol, port, number)`` opens a WebSocket and greets.
    """
    count = 50 if quick else 500
    port = int(served.others[0].rpartition(":")[2])
    found: dict[str, list[float]] = {}
    with _sides() as start:
        start(_write, served.url)
        for _ in range(1 if quick else 3):
            for name, browsers, pace in CASES:
                with _sides() as begin:
                    begin(_browse, port, browsers, pace, connect, said)
                    began = time.perf_counter()
                    with Measuring(served.pid) as measuring:
                        p50, p99 = latency(tick, hear, served.url, count)
                    share = measuring.run(1).cpu / (time.perf_counter() - began)
                for key, value in (("p50_ms", p50), ("p99_ms", p99), ("cpu_share", share)):
                    found.setdefault(f"{name}_{key}", []).append(value)
    return {name: statistics.median(values) for name, values in found.items()}


@contextmanager
def _sides() -> Iterator[Callable[..., Side]]:
    """Starts processes that are ready, and ends them."""
    with ExitStack() as held:

        def start(function: Callable[..., Any], *args: object) -> Side:
            side = Side.start(function, *args)
            held.callback(side.stop)
            assert side.pipe.recv() == "ready"
            return side

        yield start


async def _write(url: str, pipe: Connection) -> None:
    """Replaces one of the facts after another, at a steady rate."""
    async with dataspace.connect(url, name="bench source") as space:
        claims = [await space.assert_(Record("watched", n, 0)) for n in range(FACTS)]
        pipe.send("ready")
        due = trio.current_time()
        for turn in range(1, 1 << 40):
            at = turn % FACTS
            claims[at] = await space.replace(claims[at], Record("watched", at, turn))
            due += 1 / WRITES
            await trio.sleep_until(due)


# -- browsers -----------------------------------------------------------------------------------------


async def _browse(
    port: int, browsers: int, pace: int, connect: Connect, said: Said, pipe: Connection
) -> None:
    """Does what so many pages do, until it is ended."""
    await trio.lowlevel.checkpoint()
    waiting = selectors.DefaultSelector()
    doors = [("msgpack", "json")[n % 2] for n in range(browsers)]
    opened = [_opened(door, port, n, pace, connect, said) for n, door in enumerate(doors)]
    for each in opened:
        waiting.register(each, selectors.EVENT_READ)
    pipe.send("ready")
    began = time.perf_counter()
    for turn in range(1, 1 << 40):  # the pages ask one after another, each once in a second
        while (left := began + turn * ASKS / BROWSERS - time.perf_counter()) > 0:
            for key, _ in waiting.select(left):
                key.fileobj.recv(1 << 20)  # type: ignore[union-attr]  # a socket, as registered
        if opened:
            asking = turn % browsers
            verb, arguments = REQUESTS[asking // 2 % 2]
            opened[asking].sendall(said(doors[asking], p.Request(turn, verb, arguments)))


def _opened(door: str, port: int, number: int, pace: int, connect: Connect, said: Said) -> socket.socket:
    """Returns a connection that observes as the view of facts does."""
    connected = connect(door, port, 1000 + number)
    pattern = Record("$", None, None, Record("watched", capture("at"), capture("n")))
    connected.sendall(
        said(door, p.Open(1, Map({"pattern": pattern, "quiet": True, "pace": pace}), PLENTY, PLENTY))
    )
    return connected
