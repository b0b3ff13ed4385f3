"""What does a change cost the daemon, and what one more observer of it, in CPU time and in memory?

The CPU time is that of the daemon's process, all its threads included: so it says less about what else the
machine does than a rate would.  Writer and watchers are processes of their own, with the real client.  All
turns are single changes with values of 64 bytes, durable and acknowledged.

    single_turn_cpu_us      pipelined turns, one watcher
    alone_turn_cpu_us       each turn after the one before was accepted and seen
    fanout_single_cpu_us    pipelined turns, for each of 100 watchers
    first_of_100_p50_ms     from the call of a writer to the first of 100 watchers
    bytes_per_connection    an idle connection; ``…_observation`` one of 10 000, each of a pattern of its own
    crowd_turn_cpu_us       a turn of one of 2 500 connections that each wait for the acceptance of the one
                            before, beside 2 500 that are idle
"""

from __future__ import annotations

import os
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

import dataspace
from bench._processes import Measuring, Run, Served, Side, resident_bytes, running, serving
from dataspace.kernel.actions import SEND
from dataspace.wire import packets
from dataspace.wire.features import MAIN, Wanted
from dataspace.wire.session import encode
from index.patterns.patterns import capture
from index.values.values import Map, Record

WATCHERS: Final = 100
OBSERVATIONS: Final = 10_000
CONNECTIONS: Final = 3000
CROWD: Final = 5000
PLENTY: Final = 1 << 40
TURN: Final = 50
VALUE: Final = "x" * 64


def measure_fanout(scale: float = 1.0) -> dict[str, float]:
    """Returns one round of all figures; ``scale`` shrinks the amounts."""
    few, many = int(4000 * scale), int(40_000 * scale)
    return {
        "fanout_single_cpu_us": cpu_of_turns(few, WATCHERS) / WATCHERS,
        "single_turn_cpu_us": cpu_of_turns(many, 1),
        "alone_turn_cpu_us": cpu_of_turns_alone(few),
        "first_of_100_p50_ms": first_watcher(max(20, few // 10), WATCHERS),
        "bytes_per_connection": memory_of_connections(int(CONNECTIONS * scale)),
        **crowd(max(20, int(CROWD * scale)), few),
        "bytes_per_observation": memory_of_observations(int(OBSERVATIONS * scale), shared=False),
        "bytes_per_shared_observation": memory_of_observations(int(OBSERVATIONS * scale), shared=True),
    }


def cpu_of_turns(turns: int, watchers: int) -> float:
    """Returns microseconds of the daemon's CPU time for each turn of one change that so many watch."""
    with serving() as served:
        return run_of_turns(served, write, watch_all, watchers, turns).cpu * 1e6


def cpu_of_turns_alone(turns: int) -> float:
    """Returns microseconds of the daemon's CPU time for each turn of one change, each after the one before.

    A turn is accepted, and its one watcher has seen it, before the next one is sent.
    """
    with serving() as served, running(_turns_alone, served.url, turns) as side:
        assert side.pipe.recv() == "ready"
        with Measuring(served.pid) as measuring:
            side.pipe.send("go")
            side.pipe.recv()
    return measuring.run(turns).cpu * 1e6


def first_watcher(turns: int, watchers: int) -> float:
    """Returns milliseconds from the call of a writer to the first of so many watchers, p50 of turns."""
    with serving() as served, running(_seen_first, served.url, turns) as first:
        assert first.pipe.recv() == "ready"
        with running(_drain_many, served.url, watchers - 1) as others:
            assert others.pipe.recv() == "ready"
            first.pipe.send("go")
            return float(first.pipe.recv())


def memory_of_connections(count: int) -> float:
    """Returns the bytes that each of so many idle connections costs the daemon, from 1 s after the last."""
    with serving() as served, running(_connect_many, served.url, count) as side:
        assert side.pipe.recv() == "ready"
        before = resident_bytes(served.pid)
        side.pipe.send("go")
        assert side.pipe.recv() == "connected"
        time.sleep(1.0)
        return (resident_bytes(served.pid) - before) / count


def crowd(connections: int, turns: int) -> dict[str, float]:
    """Returns what a turn costs the daemon that each of half of so many connections sends again and again.

    Each of these waits for the acceptance of its turn; the others are idle.
    """
    limits = {"connections": connections + 16, "strangers": connections}
    with serving_with(limits) as served, running(_turns_of_crowd, served.url, connections, turns) as side:
        assert side.pipe.recv() == "ready"
        with Measuring(served.pid) as measuring:
            side.pipe.send("go")
            side.pipe.recv()
    run = measuring.run(turns)
    return {"crowd_turn_cpu_us": run.cpu * 1e6, "crowd_turns_per_s": run.rate}


@contextmanager
def serving_with(limits: Mapping[str, int]) -> Iterator[Served]:
    """A daemon with these limits, and no quota below them."""
    stated = {f"DATASPACE_SERVE_LIMITS_{name.upper()}": str(most) for name, most in limits.items()}
    stated |= {f"DATASPACE_SERVE_QUOTA_{name.upper()}": str(most) for name, most in limits.items()}
    os.environ.update(stated)
    try:
        with serving() as served:
            yield served
    finally:
        for name in stated:
            del os.environ[name]


def run_of_turns(
    served: Served, write: Callable[..., Any], watch: Callable[..., Any], watchers: int, turns: int
) -> Run:
    """Returns the rate of so many changes and what one costs a server, from the first to the last watcher."""
    watching = _ready(watch, served.url, watchers, turns)
    writing = _ready(write, served.url, turns)
    with Measuring(served.pid) as measuring:
        writing.pipe.send("go")
        watching.pipe.recv()
        writing.pipe.recv()
    for side in (writing, watching):
        side.stop()
    return measuring.run(turns)


def memory_of_observations(count: int, *, shared: bool) -> float:
    """Returns the bytes that each of so many observations costs the daemon, of one pattern or of as many."""
    with serving() as served:
        return memory_of(served, open_all, count, shared=shared)


def memory_of(
    served: Served, opened: Callable[..., Any], count: int, *, shared: bool, connections: int = 10
) -> float:
    """Returns the bytes that each of so many observations costs a server."""
    opening = _ready(opened, served.url, count, shared, connections)
    before = resident_bytes(served.pid)
    opening.pipe.send("go")
    opening.pipe.recv()
    after = resident_bytes(served.pid)
    opening.stop()
    return (after - before) / count


def _ready(function: Callable[..., Any], *args: object) -> Side:
    side = Side.start(function, *args)
    assert side.pipe.recv() == "ready"
    return side


async def write(url: str, turns: int, report: Connection) -> None:
    """Writes so many turns of one change."""
    async with dataspace.connect(url, name="bench writer") as space:
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        for n in range(turns):
            draft = space.draft()
            draft.assert_(Record("says", n, VALUE))
            await space.submit(draft)
        await space.drain(60)
        report.send("written")
        await trio.sleep_forever()


async def _turns_alone(url: str, turns: int, report: Connection) -> None:
    async with dataspace.connect(url) as space, space.observe("says($n, $v)") as seen:
        await space.send(Record("says", -1, VALUE))
        await seen.next_epoch()
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        for n in range(turns):
            await space.send(Record("says", n, VALUE))
            await seen.next_epoch()
        report.send("seen")
        await trio.sleep_forever()


async def _seen_first(url: str, turns: int, report: Connection) -> None:
    """Watches before the others do, and sends each turn 2 ms after it has seen the one before."""
    async with dataspace.connect(url) as space, space.observe("says($n, $v)", quiet=True) as seen:
        await seen.next_epoch()
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        took = []
        for n in range(turns):
            await trio.sleep(0.002)
            draft = space.draft()
            draft.assert_(Record("says", n, VALUE))
            began = time.perf_counter()
            await space.submit(draft)
            await seen.next_epoch()
            took.append(time.perf_counter() - began)
    report.send(sorted(took)[len(took) // 2] * 1000)


async def _drain_many(url: str, count: int, report: Connection) -> None:
    """Observes on so many connections, and decodes nothing."""
    spec = Map({"space": MAIN, "pattern": Record("says", capture("n"), capture("v")), "quiet": True})
    waiting = selectors.DefaultSelector()
    for connected in _connected(url, count):
        connected.sendall(encode(packets.Open(1, spec, PLENTY, PLENTY)))
        waiting.register(connected, selectors.EVENT_READ)
    await trio.sleep(0.2)  # until all are opened
    report.send("ready")
    while True:
        for key, _ in waiting.select():
            assert key.fileobj.recv(1 << 16)  # type: ignore[union-attr]  # a socket


def _connected(url: str, count: int) -> list[socket.socket]:
    """Returns so many connections that were welcomed."""
    host, _, port = url.removeprefix("tcp:").rpartition(":")
    made = []
    for number in range(count):
        hello = packets.Hello(packets.VERSION, f"~{number}", "", Wanted().packed())
        made.append(socket.create_connection((host, int(port))))
        made[-1].sendall(encode(hello))
        assert made[-1].recv(1 << 16)  # the welcome
    return made


async def _turns_of_crowd(url: str, connections: int, turns: int, report: Connection) -> None:
    raise_file_limit(connections + 100)
    busy, waiting = _connected(url, connections)[: connections // 2], selectors.DefaultSelector()
    for connected in busy:
        waiting.register(connected, selectors.EVENT_READ)
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)
    sent = dict.fromkeys(busy, 0)

    def send(connected: socket.socket) -> None:
        sent[connected] += 1
        actions = ((SEND, Record("says", sent[connected], VALUE)),)
        connected.sendall(encode(packets.Turn(sent[connected], MAIN, "", actions)))

    for connected in busy:
        send(connected)
    accepted = 0
    while accepted < turns:
        for key, _ in waiting.select():
            accepted += 1
            assert isinstance(key.fileobj, socket.socket) and key.fileobj.recv(1 << 16)  # one acceptance
            send(key.fileobj)
    report.send("accepted")
    await trio.sleep_forever()


def raise_file_limit(wanted: int) -> None:
    """Lets this process open so many files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(wanted, 1024)), most))


async def _connect_many(url: str, count: int, report: Connection) -> None:
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)
    held = _connected(url, count)
    assert len(held) == count
    report.send("connected")
    await trio.sleep_forever()


async def watch_all(url: str, watchers: int, turns: int, report: Connection) -> None:
    """Watches on so many connections, each to the last change."""
    left = watchers

    async def watch(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal left
        async with dataspace.connect(url, name="bench watcher") as space:
            async with space.observe("says($i, $what)", quiet=True) as observation:
                await observation.next_epoch()
                task_status.started()
                seen = 0
                while seen < turns:
                    epoch = await observation.next_epoch()
                    assert epoch is not None and not epoch.conflated
                    seen += len(epoch)
                left -= 1
                if not left:
                    report.send("seen")
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(watchers):
            await nursery.start(watch)
        report.send("ready")
        await trio.sleep_forever()


async def open_all(url: str, count: int, shared: bool, connections: int, report: Connection) -> None:
    """Opens so many observations, of one key each, on some connections, and reads the state of each."""
    async with trio.open_nursery() as nursery:
        spaces = [await nursery.start(_stay_connected, url) for _ in range(connections)]
        observations = [
            spaces[n % connections].observe(f'says("key {0 if shared else n}", $)', quiet=True)
            for n in range(count)
        ]
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        for observation in observations:
            observation.open()
        for observation in observations:
            await observation.next_epoch()
        report.send("open")
        await trio.sleep_forever()


async def _stay_connected(url: str, *, task_status: trio.TaskStatus[dataspace.RemoteSpace]) -> None:
    async with dataspace.connect(url, name="bench observers") as space:
        task_status.started(space)
        await trio.sleep_forever()
