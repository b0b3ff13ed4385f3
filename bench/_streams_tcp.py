"""The half of ``streams.py`` that goes over TCP: the real client and daemon, beside a bare forwarder.

Values are epochs of one message each, read from the log with a fixed window.  The *floor* is a trio and
msgpack server between a source that always has more and a reader with the same window: it decodes and
encodes each frame, one value in each, and sends no more than it was asked for.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

import msgpack
import trio

import dataspace
from bench._processes import daemon, running
from index.values import Record

WINDOWS: Final = (1, 64, 256, 1024)
TURN: Final = 50
STREAMS: Final = 1000
HEAD: Final = 4


# -- the floor ----------------------------------------------------------------------------------------


def _framed(body: object) -> bytes:
    packed: bytes = msgpack.packb(body)
    return len(packed).to_bytes(HEAD, "big") + packed


class _Frames:
    """The decoded frames of a socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._held = b""

    async def some(self) -> list[Any]:
        """One or more; none at the end."""
        bodies: list[Any] = []
        while not bodies:
            chunk = await self._stream.receive_some(65536)
            if not chunk:
                return []
            held, at = self._held + chunk, 0
            while len(held) - at >= HEAD:
                size = int.from_bytes(held[at : at + HEAD], "big")
                if len(held) - at - HEAD < size:
                    break
                bodies.append(msgpack.unpackb(held[at + HEAD : at + HEAD + size]))
                at += HEAD + size
            self._held = held[at:]
        return bodies


async def _forwarder(report: Connection) -> None:
    """Accepts a source, then a reader, and passes on what the reader asks for."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    report.send(listener.socket.getsockname()[1])
    source, reader = await listener.accept(), await listener.accept()
    reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asked, sent = 0, 0
    more = trio.Event()

    async def listen() -> None:
        nonlocal asked
        frames = _Frames(reader)
        while bodies := await frames.some():
            asked = bodies[-1]
            more.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        frames = _Frames(source)
        while bodies := await frames.some():
            at = 0
            while at < len(bodies):
                while asked <= sent:
                    more = trio.Event()
                    await more.wait()
                some = bodies[at : at + asked - sent]
                await reader.send_all(b"".join([_framed(body) for body in some]))
                at, sent = at + len(some), sent + len(some)
        nursery.cancel_scope.cancel()


async def _source(port: int, count: int, report: Connection) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    report.send("connected")
    now = time.time_ns() // 1000
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        await stream.send_all(b"".join([_framed([n, now, 0, [], [[n, "x"]], [], n]) for n in numbers]))
    await trio.sleep_forever()


async def _floor_reader(port: int, count: int, window: int, report: Connection) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frames = _Frames(stream)
    began, seen, asked = time.perf_counter(), 0, window
    await stream.send_all(_framed(asked))
    while seen < count:
        for body in await frames.some():
            assert body[4][0][1] == "x"
            seen += 1
        if 2 * (asked - seen) <= window:
            asked = seen + window
            await stream.send_all(_framed(asked))
    report.send(time.perf_counter() - began)


def floor(count: int, window: int) -> float:
    """Values per second through the forwarder."""
    with running(_forwarder) as forwarder:
        port = forwarder.pipe.recv()
        with running(_source, port, count) as source:
            assert source.pipe.recv() == "connected"
            with running(_floor_reader, port, count, window) as reader:
                return float(count / reader.pipe.recv())


# -- ours ---------------------------------------------------------------------------------------------


async def _fill(url: str, count: int, report: Connection) -> None:
    """Messages, each an epoch of its own in the log."""
    async with dataspace.connect(url, name="bench writer") as space:
        for n in range(count):
            draft = space.draft()
            draft.send(Record("says", n, "x"))
            await space.submit(draft)
        report.send(await space.sync())
    await trio.sleep_forever()


async def _read(url: str, upto: int, window: int, report: Connection) -> None:
    async with dataspace.connect(url, name="bench reader") as space:
        began, seen = time.perf_counter(), 0
        async with space.observe(
            "says($n, $what)", after=0, upto=upto, window=window, quiet=True
        ) as observation:
            async for epoch in observation.epochs():
                assert epoch.messages[0][1] == "x"
                seen += 1
        report.send((seen, time.perf_counter() - began))
    await trio.sleep_forever()


def windows(count: int, keep: Callable[[str, float], None]) -> None:
    """Values per second at each window, ours and the floor's in turn."""
    with daemon() as url:
        with running(_fill, url, count) as writer:
            upto = writer.pipe.recv()
        for window in WINDOWS:
            some = count if window > 1 else max(200, count // 20)
            keep(f"tcp_floor_values_per_s_{window}", floor(some, window))
            with running(_read, url, upto if window > 1 else some, window) as reader:
                seen, seconds = reader.pipe.recv()
            assert abs(seen - some) <= 1, (seen, some)
            keep(f"tcp_values_per_s_{window}", seen / seconds)


# -- many streams on one connection ---------------------------------------------------------------------


async def _write(url: str, count: int, keys: int, report: Connection) -> None:
    """Facts, in turns; each under one of so many keys."""
    async with dataspace.connect(url, name="bench writer") as space:
        await trio.to_thread.run_sync(report.recv)
        for start in range(0, count, TURN):
            draft = space.draft()
            for n in range(start, min(start + TURN, count)):
                draft.assert_(Record("n", n % keys, n))
            await space.submit(draft)
        await space.drain(60)
        await trio.sleep_forever()


async def _observe(url: str, streams: int, stalled: int, count: int, report: Connection) -> None:
    """So many streams of everything on one connection, and some more that nobody reads."""
    async with dataspace.connect(url, name="bench reader") as space, trio.open_nursery() as nursery:
        for _ in range(stalled):
            space.observe("n($k, $n)", quiet=True, window=16).open()
        seen, over = 0, trio.Event()

        async def follow(pattern: str, mine: int) -> None:
            nonlocal seen
            async with space.observe(pattern, quiet=True) as observation:
                await observation.next_epoch()
                ready.append(pattern)
                if len(ready) == streams:
                    report.send("ready")
                while mine > 0:
                    epoch = await observation.next_epoch()
                    assert epoch is not None
                    mine -= len(epoch)
                    seen += len(epoch)
                if seen == (count if streams == STREAMS else count * streams):
                    report.send(time.perf_counter())
                    over.set()
                await over.wait()  # what leaving costs is not the question

        ready: list[str] = []
        for k in range(streams):
            if streams == STREAMS:
                nursery.start_soon(follow, f"n({k}, $n)", count // streams)
            else:
                nursery.start_soon(follow, "n($k, $n)", count)


def _observed(streams: int, stalled: int, count: int) -> float:
    """Values per second that all streams together are told."""
    with (
        daemon() as url,
        running(_observe, url, streams, stalled, count) as reader,
        running(_write, url, count, streams) as writer,
    ):
        assert reader.pipe.recv() == "ready"
        began = time.perf_counter()
        writer.pipe.send("go")
        seconds = reader.pipe.recv() - began
    return float(count / seconds if streams == STREAMS else count * streams / seconds)


def measure(rounds: int, scale: float) -> dict[str, float]:
    """All figures of this half; ``scale`` shrinks the amounts for a quick look.

    Rates are the best of the rounds.  Ratios are the median of those of each round: the two that are compared
    follow one another there, and what else the machine does may strike either.
    """
    told: list[dict[str, float]] = []
    for _ in range(rounds):
        one: dict[str, float] = {}
        windows(int(40_000 * scale), one.__setitem__)
        events = max(TURN, int(30_000 * scale))
        one["tcp_nine_alone_per_s"] = _observed(9, 0, events)
        one["tcp_nine_beside_stalled_per_s"] = _observed(9, 1, events)
        one["tcp_1000_streams_per_s"] = _observed(STREAMS, 0, max(2 * STREAMS, int(100_000 * scale)))
        told.append(one)
    figures = {name: max(one[name] for one in told) for name in told[0]}
    ratios = {
        f"tcp_ratio_floor_{w}": (f"tcp_values_per_s_{w}", f"tcp_floor_values_per_s_{w}") for w in WINDOWS
    }
    ratios["tcp_1000_ratio_floor"] = ("tcp_1000_streams_per_s", "tcp_floor_values_per_s_1024")
    ratios["stalled_ratio"] = ("tcp_nine_beside_stalled_per_s", "tcp_nine_alone_per_s")
    for name, (ours, other) in ratios.items():
        figures[name] = median(one[ours] / one[other] for one in told)
    return figures
