"""The half of ``streams.py`` that goes over TCP: the real client and daemon, beside a bare forwarder.

Values are epochs of one message each, read from the log with a fixed window.  The *floor* is a trio and
msgpack server between a source that always has more and a reader with the same window: it decodes and
encodes each frame, one value in each, and sends no more than it was asked for.

A ratio is the median over many short pairs, of which each measures both sides right after one another and
begins with the other side than the pair before: what else the machine does strikes both alike.  What a value
costs is said in seconds of CPU time as well, which a busy machine lengthens less than seconds of the clock.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

import trio

import dataspace
from bench._floor import Frames, frame
from bench._processes import Measuring, Run, Served, Side, running, serving
from dataspace import Claim
from index.values.values import Record

WINDOWS: Final = (1, 64, 256, 1024)
TURN: Final = 50
STREAMS: Final = 1000
NINE: Final = 9
STALL: Final = 250
"""Turns after which a stream that nobody reads has more waiting than may wait, so that it is put together."""

# -- the floor ----------------------------------------------------------------------------------------


class _Frames:
    """What is said on a connection, frame by frame."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._cut = Frames()

    async def some(self) -> list[Any]:
        """One or more; none at the end."""
        said: list[Any] = []
        while not said:
            chunk = await self._stream.receive_some(65536)
            if not chunk:
                return []
            said = self._cut.feed(chunk)
        return said


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
                await reader.send_all(b"".join([frame(body) for body in some]))
                at, sent = at + len(some), sent + len(some)
        nursery.cancel_scope.cancel()


async def _source(port: int, count: int, report: Connection) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    report.send("connected")
    now = time.time_ns() // 1000
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        await stream.send_all(b"".join([frame([n, now, 0, [], [[n, "x"]], [], n]) for n in numbers]))
    await trio.sleep_forever()


async def _floor_reader(port: int, count: int, window: int, report: Connection) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    report.send("connected")
    await trio.to_thread.run_sync(report.recv)
    frames = _Frames(stream)
    seen, asked = 0, window
    await stream.send_all(frame(asked))
    while seen < count:
        for body in await frames.some():
            assert body[4][0][1] == "x"
            seen += 1
        if 2 * (asked - seen) <= window:
            asked = seen + window
            await stream.send_all(frame(asked))
    report.send(seen)
    await trio.sleep_forever()


def floor(count: int, window: int) -> Run:
    """So many values through the forwarder."""
    with running(_forwarder) as forwarder:
        port = forwarder.pipe.recv()
        with running(_source, port, count) as source:
            assert source.pipe.recv() == "connected"
            with running(_floor_reader, port, count, window) as reader:
                assert reader.pipe.recv() == "connected"
                with Measuring(forwarder.pid, reader.pid) as measuring:
                    reader.pipe.send(None)
                    reader.pipe.recv()
                return measuring.run(count)


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


async def _read(url: str, upto: int, window: int, count: int, orders: Connection) -> None:
    async with dataspace.connect(url, name="bench reader") as space:
        orders.send(None)
        await trio.to_thread.run_sync(orders.recv)
        seen = 0
        async with space.observe(
            "says($n, $what)", after=0, upto=upto, window=window, quiet=True
        ) as observation:
            async for epoch in observation.epochs():
                assert epoch.messages[0][1] == "x"
                seen += 1
                if seen == count:
                    break
            orders.send(seen)
    await trio.sleep_forever()


def _ours(served: Served, count: int, upto: int, window: int) -> Run:
    """So many values from the log of a daemon."""
    with running(_read, served.url, upto, window, count) as reader:
        reader.pipe.recv()
        with Measuring(served.pid, reader.pid) as measuring:
            reader.pipe.send(None)
            assert reader.pipe.recv() == count
        return measuring.run(count)


def windows(rounds: int, count: int) -> dict[str, float]:
    """Values per second at each window, ours and the floor's in turn."""
    figures: dict[str, float] = {}
    with serving() as served:
        with running(_fill, served.url, count) as writer:
            upto = writer.pipe.recv()
        for window in WINDOWS:
            some = count if window > 1 else max(100, count // 40)
            pairs = [
                _alternately(number, partial(floor, some, window), partial(_ours, served, some, upto, window))
                for number in range(rounds)
            ]
            figures[f"tcp_floor_values_per_s_{window}"] = max(other.rate for other, _ in pairs)
            figures[f"tcp_values_per_s_{window}"] = max(ours.rate for _, ours in pairs)
            figures[f"tcp_ratio_floor_{window}"] = median(ours.rate / other.rate for other, ours in pairs)
            figures[f"tcp_cpu_ratio_floor_{window}"] = median(other.cpu / ours.cpu for other, ours in pairs)
    return figures


# -- many streams on one connection ---------------------------------------------------------------------


async def _write(url: str, keys: int, orders: Connection) -> None:
    """Facts under so many keys: as many turns as are ordered, each ending what the one before began."""
    async with dataspace.connect(url, name="bench writer") as space:
        claims: list[Claim] = []
        numbers, turns = count(), 1
        while True:
            for _ in range(turns):
                draft = space.draft()
                for claim in claims:
                    draft.retract(claim)
                claims = [draft.assert_(Record("n", n % keys, n)) for n in islice(numbers, TURN)]
                await space.submit(draft)
            await space.drain(60)
            orders.send(None)
            turns = await trio.to_thread.run_sync(orders.recv)


class _Followers:
    """Streams of one connection, which count together what they have yet to be told."""

    def __init__(self, space: dataspace.RemoteSpace) -> None:
        self._space = space
        self._missing = 0
        self._ready = 0
        self._changed = trio.Condition()

    async def follow(self, pattern: str) -> None:
        async with self._space.observe(pattern, quiet=True) as observation:
            await observation.next_epoch()
            await self._note(ready=1)
            async for epoch in observation.epochs():
                assert not epoch.conflated, "slices are small enough"
                self._missing -= len(epoch)
                if self._missing == 0:
                    await self._note()

    async def _note(self, ready: int = 0) -> None:
        async with self._changed:
            self._ready += ready
            self._changed.notify_all()

    async def wait_ready(self, streams: int) -> None:
        async with self._changed:
            while self._ready < streams:
                await self._changed.wait()

    def expect(self, changes: int) -> None:
        self._missing += changes

    async def wait_told(self) -> None:
        async with self._changed:
            while self._missing:
                await self._changed.wait()


async def _observe(url: str, patterns: list[str], orders: Connection) -> None:
    """A stream for each pattern; what is ordered is that so many changes will come, or that one stalls."""
    async with dataspace.connect(url, name="bench reader") as space, trio.open_nursery() as nursery:
        followers = _Followers(space)
        for pattern in patterns:
            nursery.start_soon(followers.follow, pattern)
        await followers.wait_ready(len(patterns))
        stalled: dataspace.Observation | None = None
        orders.send(None)
        while True:
            order = await trio.to_thread.run_sync(orders.recv)
            if order == "stall":
                stalled = space.observe("n($k, $n)", quiet=True, window=16)
                stalled.open()
            elif order == "go on":
                assert stalled is not None
                await stalled.aclose()
            else:
                followers.expect(order)
                orders.send(None)
                await followers.wait_told()
            orders.send(None)


class _Following:
    """A daemon, a writer, and streams of one connection that are told of what it writes."""

    def __init__(self, served: Served, reader: Side, writer: Side, fan_out: int) -> None:
        self._served, self._reader, self._writer, self._fan_out = served, reader, writer, fan_out

    def order(self, what: object) -> None:
        self._reader.pipe.send(what)
        assert self._reader.pipe.recv() is None

    def run(self, turns: int) -> Run:
        """Writes so many turns, and waits until all streams have been told of them."""
        told = turns * 2 * TURN * self._fan_out
        self.order(told)
        with Measuring(self._served.pid, self._reader.pid) as measuring:
            self._writer.pipe.send(turns)
            self._reader.pipe.recv()
        self._writer.pipe.recv()
        return measuring.run(told)


@contextmanager
def _following(patterns: list[str], keys: int, fan_out: int) -> Iterator[_Following]:
    with (
        serving() as served,
        running(_write, served.url, keys) as writer,
    ):
        assert writer.pipe.recv() is None  # there is something to begin with
        with running(_observe, served.url, patterns) as reader:
            assert reader.pipe.recv() is None
            yield _Following(served, reader, writer, fan_out)


def stalled(rounds: int, turns: int, before: int) -> dict[str, float]:
    """What nine streams are told beside a tenth that stalls, and what nine others are told alone.

    Two daemons with all that belongs to them; half-way they change their parts.  It has stalled for so many
    turns ``before`` it counts.
    """
    nine = (["n($k, $n)"] * NINE, 1, NINE)
    pairs: list[tuple[Run, Run]] = []
    with _following(*nine) as one, _following(*nine) as other:
        for alone, beside in ((one, other), (other, one)):
            beside.order("stall")
            for each in (alone, beside):
                for _ in range(0, before, 50):  # few enough at once that the nine keep up
                    each.run(50)
            for number in range(rounds):
                pairs.append(_alternately(number, partial(alone.run, turns), partial(beside.run, turns)))
            beside.order("go on")
    return {
        "tcp_nine_alone_per_s": max(alone.rate for alone, _ in pairs),
        "tcp_nine_beside_stalled_per_s": max(beside.rate for _, beside in pairs),
        "stalled_ratio": median(beside.rate / alone.rate for alone, beside in pairs),
        "stalled_cpu_ratio": median(alone.cpu / beside.cpu for alone, beside in pairs),
    }


def thousand(rounds: int, turns: int, window: int) -> dict[str, float]:
    """Facts spread over a thousand streams, beside one stream through the floor."""
    patterns = [f"n({key}, $n)" for key in range(STREAMS)]
    with _following(patterns, STREAMS, 1) as following:
        following.run(2 * STREAMS // TURN)
        pairs = [
            _alternately(number, partial(floor, turns * 2 * TURN, window), partial(following.run, turns))
            for number in range(rounds)
        ]
    return {
        "tcp_1000_streams_per_s": max(ours.rate for _, ours in pairs),
        "tcp_1000_ratio_floor": median(ours.rate / other.rate for other, ours in pairs),
        "tcp_1000_daemon_us": min(ours.costs[0] for _, ours in pairs) * 1e6,
        "tcp_1000_reader_us": min(ours.costs[1] for _, ours in pairs) * 1e6,
    }


# -- in pairs -------------------------------------------------------------------------------------------


def _alternately(number: int, one: Callable[[], Run], other: Callable[[], Run]) -> tuple[Run, Run]:
    """A run of each, right after one another; every second time the other one goes first."""
    if number % 2:
        later = other()
        return one(), later
    return one(), other()


def measure(rounds: int, scale: float) -> dict[str, float]:
    """All figures of this half; ``scale`` shrinks the amounts for a quick look, with one pair of each."""
    pairs = 3 * rounds if scale == 1 else 1
    return {
        **windows(pairs, int(20_000 * scale)),
        **stalled(pairs, max(2, int(30 * scale)), STALL if scale == 1 else 50),
        **thousand(pairs, max(2, int(200 * scale)), WINDOWS[-1]),
    }
