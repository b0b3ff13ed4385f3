"""How fast is the daemon, beside a forwarder that does nothing but forward?

Every figure is taken through the real client over loopback TCP, in processes of their own: the daemon, the
writer, the observers.  The *floor* is a bare trio and msgpack server (``bench._floor``).  Floor and daemon
are measured in turn in the same run, the best of the rounds counts, and ``ratio`` is ours ÷ floor.

    changes_per_s                one writer, one observer, pipelined turns of TURN changes, decoded
    changes_per_s_10k_patterns   the same beside 10 000 other observed patterns
    changes_per_s_single         the same in turns of one change, each an epoch of its own
    fanout_events_per_s          100 observing connections, all decoding
    latency_p50_ms, _p99_ms      one change at a time, from the writer's call to the observer's hands
    turn50_change_cpu_us         CPU time of the daemon for a change, in turns that replace 50 facts
    client_for_cpu_us            CPU time of an observer for an event, by ``async for``; _each_ by ``each``
    kill_1000_ms, close_1000_ms  until an observer has seen 1 000 killed clients go, or 1 000 that say goodbye

With ``--compiled`` the same is measured again on a daemon of the compiled build, with the same clients; those
figures begin with ``compiled_``.

What a change costs the daemon in CPU time, and an observation in memory, is measured by ``_fanout``.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import trio

import dataspace
from bench._builds import environment, install_compiled
from bench._fanout import measure_fanout
from bench._figures import command_line, show
from bench._floor import Frames, connect, floor, forward, frame
from bench._latency import measure_latency
from bench._leaving import measure_leaving
from bench._observing import measure_observing
from bench._processes import Side, daemon, daemons_of
from bench._turns import measure_turns
from index.values.values import Record

TURN: Final = 50


# -- the two sides of each system ---------------------------------------------------------------------


async def _floor_write(port: str, count: int, turn: int, report: Connection) -> None:
    stream = await connect(port)
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)
    out = []
    for start in range(0, count, turn):
        out.append(frame([[0, n, ["says", n, "x"]] for n in range(start, min(start + turn, count))]))
        if len(out) >= 16:
            await stream.send_all(b"".join(out))
            out = []
    await stream.send_all(b"".join(out))
    await trio.sleep(30)


async def _floor_observe(port: str, count: int, report: Connection) -> None:
    stream = await connect(port)
    report.send("ready")
    frames = Frames()
    seen = 0
    while seen < count:
        for changes in frames.feed(await stream.receive_some(65536)):
            for _change in changes:
                seen += 1
    report.send(time.perf_counter())


async def _write(url: str, count: int, turn: int, report: Connection) -> None:
    async with dataspace.connect(url, name="bench writer") as space:
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        for start in range(0, count, turn):
            draft = space.draft()
            for n in range(start, min(start + turn, count)):
                draft.assert_(Record("says", n, "x"))
            await space.submit(draft)
        await space.drain(60)
        await trio.sleep(30)


async def _observe(url: str, count: int, report: Connection) -> None:
    async with dataspace.connect(url, name="bench observer") as space:
        async with space.observe("says($i, $what)", quiet=True) as observation:
            state = await observation.next_epoch()
            assert state is not None and not len(state)
            report.send("ready")
            seen = 0
            async for change in observation:
                assert change.kind == "+" and change.captures[1] == "x"
                seen += 1
                if seen == count:
                    break
            report.send(time.perf_counter())


async def _observe_many(url: str, patterns: range, report: Connection) -> None:
    async with dataspace.connect(url, name="bench patterns") as space:
        observations = [space.observe(f'other("topic {n}", $)', quiet=True) for n in patterns]
        for observation in observations:
            observation.open()
        for observation in observations:
            await observation.next_epoch()
        report.send("ready")
        await trio.sleep_forever()


async def _observe_connections(
    observe: Callable[..., Any], url: str, connections: int, count: int, report: Connection
) -> None:
    """Many observing connections in one process; the time at which the last has seen everything."""
    finished: list[float] = []

    class Each:
        def send(self, what: object) -> None:
            if isinstance(what, float):
                finished.append(what)
            elif what == "ready":
                ready.append(what)
                if len(ready) == connections:
                    everybody.set()

    ready: list[object] = []
    everybody = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(connections):
            nursery.start_soon(observe, url, count, Each())
        await everybody.wait()
        report.send("ready")
    report.send(max(finished))


def _ready(function: Callable[..., Any], *args: object) -> Side:
    """A side that has said that it can begin."""
    side = Side.start(function, *args)
    assert side.pipe.recv() == "ready"
    return side


def _transfer(
    write: Callable[..., Any],
    observe: Callable[..., Any],
    url: str,
    count: int,
    turn: int,
    *,
    connections: int = 1,
) -> float:
    """Events per second from one writer to all its observers."""
    if connections == 1:
        observer = _ready(observe, url, count)
    else:
        observer = _ready(_observe_connections, observe, url, connections, count)
    writer = _ready(write, url, count, turn)
    began = time.perf_counter()
    writer.pipe.send("go")
    ended = observer.pipe.recv()
    writer.stop()
    observer.stop()
    return float(count * connections / (ended - began))


# -- the run ------------------------------------------------------------------------------------------


def measure(rounds: int, scale: float) -> dict[str, float]:
    """All figures; ``scale`` shrinks the amounts for a quick look."""
    best: dict[str, float] = {}

    def keep(name: str, value: float, *, low: bool = False) -> None:
        best[name] = min(best.get(name, value), value) if low else max(best.get(name, value), value)

    changes, fanout, ticks = int(200_000 * scale), int(10_000 * scale), int(2000 * scale)
    for _ in range(rounds):
        with floor(forward) as served:
            port = served.url
            keep("floor_changes_per_s", _transfer(_floor_write, _floor_observe, port, changes, TURN))
            keep("floor_changes_per_s_single", _transfer(_floor_write, _floor_observe, port, changes, 1))
            keep(
                "floor_fanout_events_per_s",
                _transfer(_floor_write, _floor_observe, port, fanout, TURN, connections=100),
            )
        with daemon() as url:
            keep("changes_per_s", _transfer(_write, _observe, url, changes, TURN))
        with daemon() as url:
            keep("changes_per_s_single", _transfer(_write, _observe, url, changes // 2, 1))
        with daemon() as url:
            others = [_ready(_observe_many, url, range(at, at + 2500)) for at in range(0, 10_000, 2500)]
            keep("changes_per_s_10k_patterns", _transfer(_write, _observe, url, changes, TURN))
            for other in others:
                other.stop()
        with daemon() as url:
            keep("fanout_events_per_s", _transfer(_write, _observe, url, fanout, TURN, connections=100))
        for name, value in measure_latency(ticks).items():
            keep(name, value, low=True)
        for name, value in measure_fanout(scale).items():
            keep(name, value, low=True)
        for name, value in measure_turns(int(50_000 * scale)).items():
            keep(name, value, low=True)
        for name, value in measure_observing(int(50_000 * scale)).items():
            keep(name, value, low=True)
        for name, value in measure_leaving(int(1000 * scale)).items():
            keep(name, value, low=True)
    for way in ("kill", "close"):
        best[f"{way}_1000_ratio_floor"] = best[f"{way}_1000_ms"] / best[f"floor_{way}_1000_ms"]
    best["client_each_ratio"] = best["client_each_cpu_us"] / best["client_for_cpu_us"]
    for name in ("changes_per_s", "changes_per_s_single", "fanout_events_per_s"):
        best[f"{name}_ratio"] = best[name] / best[f"floor_{name}"]
    for part in ("p50", "p99"):
        best[f"latency_{part}_ratio"] = best[f"latency_{part}_ms"] / best[f"floor_latency_{part}_ms"]
    return best


def main() -> None:
    arguments = command_line(__doc__, quick="one round of a twentieth of the work")
    arguments.add_argument("--compiled", action="store_true", help="measure the compiled daemon as well")
    args = arguments.parse_args()
    size = (1, 0.05) if args.quick else (args.rounds, 1.0)
    figures = measure(*size)
    if args.compiled:
        with tempfile.TemporaryDirectory() as site:
            print("compiling …", flush=True)
            install_compiled(Path(site))
            with daemons_of(environment(Path(site))):
                figures |= {f"compiled_{name}": value for name, value in measure(*size).items()}
    ordered = sorted(figures, key=lambda name: name.removeprefix("floor_"))
    note = f"turns of {TURN} changes; {os.cpu_count()} cores; best of {size[0]}"
    show({name: figures[name] for name in ordered}, as_json=args.json, note=note)


if __name__ == "__main__":
    main()
