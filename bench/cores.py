"""What does a second core bring: to one daemon, whose log is written by a thread, and to two daemons?

A daemon runs turns on one thread.  Another one writes their epochs to the disk, and needs the interpreter
only before and after.  So one daemon takes little more than one core, and what brings more is another daemon.

Each daemon has a writer of its own, which sends frames that were packed before and counts acceptances, so
clients cost next to nothing here.  Turns have one value, or fifty, durable and acknowledged; each asserts
them and retracts those of the turn before.

    turns_per_s_1, _2            accepted turns a second of one daemon, and of two together
    turns_ratio                  two ÷ one
    cpu_us                       CPU time of a daemon for a turn, all threads, while it runs alone
    log_share                    the part of that which is the thread that writes the log
    cores                        cores that the one daemon keeps busy

and each again with ``turn50_`` before its name.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final

from bench._figures import report
from bench._processes import Served, Side, serving
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.transport.addresses import parse_url
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session
from index.values.values import Map, Record

VALUE: Final = "x" * 64
WINDOW: Final = 512
"""Turns on their way at most."""

TOGETHER: Final = 16
"""Turns in one write."""


def measure(_number: int, quick: bool) -> dict[str, float]:
    """Returns one round of all figures."""
    figures: dict[str, float] = {}
    for prefix, size, turns in (("", 1, 40_000), ("turn50_", 50, 3_000)):
        figures |= _measure(prefix, size, turns // 20 if quick else turns)
    return figures


def _measure(prefix: str, size: int, turns: int) -> dict[str, float]:
    with serving() as served:
        before = _thread_seconds(served.pid)
        rate = _write_all([served], size, turns)
        spent = [after - before.get(at, 0) for at, after in _thread_seconds(served.pid).items()]
        loop = _thread_seconds(served.pid)[served.pid] - before[served.pid]
    with ExitStack() as stack:
        both = _write_all([stack.enter_context(serving()) for _ in range(2)], size, turns)
    return {
        f"{prefix}turns_per_s_1": rate,
        f"{prefix}turns_per_s_2": both,
        f"{prefix}turns_ratio": both / rate,
        f"{prefix}cpu_us": sum(spent) / turns * 1e6,
        f"{prefix}log_share": 1 - loop / sum(spent),
        f"{prefix}cores": sum(spent) * rate / turns,
    }


def _write_all(daemons: list[Served], size: int, turns: int) -> float:
    """Returns the turns a second of all daemons together, each with so many."""
    writers = [Side.start(_write, served.url, size, turns) for served in daemons]
    for writer in writers:
        assert writer.pipe.recv() == "ready"
    for writer in writers:
        writer.pipe.send("go")
    spans = [writer.pipe.recv() for writer in writers]
    for writer in writers:
        writer.stop()
    began, ended = min(start for start, _ in spans), max(end for _, end in spans)
    return len(daemons) * turns / float(ended - began)


async def _write(url: str, size: int, turns: int, report: Connection) -> None:
    """Sends turns that were packed before; reports when the first was sent and the last accepted."""
    address = parse_url(url)
    link = socket.create_connection((address.host, address.port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    session = Session(Role.CLIENT)
    link.sendall(session.send(p.Hello(p.VERSION, "~cores", "cores", Map())))
    while not list(session.feed(link.recv(65536))):
        pass
    frames = [session.send(p.Turn(n, "main", "", _actions(n, size))) for n in range(1, turns + 1)]
    report.send("ready")
    report.recv()
    began = time.perf_counter()
    sent = accepted = 0
    while accepted < turns:
        while sent < turns and sent - accepted < WINDOW:
            link.sendall(b"".join(frames[sent : sent + TOGETHER]))
            sent += TOGETHER
        for packet in session.feed(link.recv(65536)):
            assert isinstance(packet, p.Accepted)
            accepted += len(packet.epochs)
    report.send((began, time.perf_counter()))
    report.recv()


def _actions(number: int, size: int) -> tuple[tuple[int | Record, ...], ...]:
    """Returns one turn: the first asserts, each later one replaces what the one before has asserted."""
    first = number * size
    gone = () if number == 1 else tuple([(RETRACT, first - size + n) for n in range(size)])
    return (*gone, *[(ASSERT, first + n, Record("says", first + n, VALUE)) for n in range(size)])


def _thread_seconds(pid: int) -> dict[int, float]:
    """Returns the CPU time of each thread of a process by its number; the first has that of the process."""
    seconds = {}
    for name in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{name}/schedstat") as file:
            seconds[int(name)] = int(file.read().split()[0]) / 1e9
    return seconds


if __name__ == "__main__":
    report(__doc__, measure, least=("cpu_us", "turn50_cpu_us"))
