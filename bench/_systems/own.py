"""The daemon of this project and the floor, as rows of the same table."""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import trio

from bench import _fanout, _latency, _leaving
from bench._floor import Frames, announce, connect, floor, forward, frame
from bench._processes import serving
from bench._systems.links import TOGETHER, VALUE
from bench._systems.system import Promises, System

OWN: Final = System(
    "**dataspace**",
    Promises("yes", "yes", "any part of a value", "yes", "with the connection"),
    serving,
    _fanout.write,
    _fanout.watch_all,
    _latency.tick,
    _latency.hear,
    _leaving.crowd,
    _leaving.observe,
    _fanout.open_all,
)


async def _write(port: str, turns: int, report: Connection) -> None:
    stream = await connect(port)
    text = VALUE.decode()
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)
    for start in range(0, turns, TOGETHER):
        some = range(start, min(start + TOGETHER, turns))
        await stream.send_all(b"".join([frame([0, n, ["says", n, text]]) for n in some]))
    report.send("written")
    await trio.sleep_forever()


async def _watch(port: str, watchers: int, turns: int, report: Connection) -> None:
    left = watchers

    async def watch(stream: trio.SocketStream) -> None:
        nonlocal left
        frames, seen = Frames(), 0
        while seen < turns:
            seen += len(frames.feed(await stream.receive_some(65536)))
        left -= 1
        if not left:
            report.send("seen")
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        streams = [await connect(port) for _ in range(watchers)]
        other = await connect(port)
        await other.send_all(frame("here"))  # comes back once all that have connected before are served
        for stream in streams:
            frames = Frames()
            while not frames.feed(await stream.receive_some(65536)):
                pass
        await other.aclose()
        for stream in streams:
            nursery.start_soon(watch, stream)
        report.send("ready")


FLOOR: Final = System(
    "floor",
    Promises("no", "no", "all", "no", "with the connection"),
    partial(floor, forward),
    _write,
    _watch,
    _latency.floor_tick,
    _latency.floor_hear,
    _leaving.floor_crowd,
    _leaving.floor_observe,
    None,
)
ANNOUNCER: Final = partial(floor, announce)
"""What serves the floor's clients that come and go."""
