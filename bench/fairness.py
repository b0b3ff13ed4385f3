"""How long does a client wait for the work of others?

An *innocent* client asserts a fact of its own every 20 ms, in place of the one before, and observes it.  Its
round trip, from when the assertion was due to when the observation has it, is measured beside one load at a
time: a daemon in a process of its own, the load in others, everything through real sockets.  An assertion
that is due while an earlier one waits counts from when it was due, so that one stall of a second is fifty
bad samples and not one.

    idle         nothing else
    replays      40 observations of the whole past at once
    frames       frames of 258 kB that hold empty maps, one after the other
    observers    observers of everything that announce themselves, each a connection of its own
    turns        turns as large as the daemon admits, one after the other
    end          the end of a session that owns very many facts
    publication  one publication of very many facts
    withdraw     requests at once to withdraw from an owner of many facts, of which none match
    owners       requests at once for the owners of facts that none match
    conditions   turns at once on connections of one client that expect exactly certain of many facts
    bodies       bodies of HTTP that hold empty objects, from two connections, one after the other
    fragments    WebSocket messages in 4 000 empty fragments, one after the other
    events       observers of one pattern as event streams, while it changes ten times a second
    done         one request that reports thousands of jobs of one key as done
    dead         one request that makes thousands of jobs dead letters
    groups       one turn of thousands of messages under hundreds of groups
    shown        requests at once for who has which of thousands of jobs
    equal        one turn of thousands of equal messages that a window counts
    compares     a rule that compares large sequences, which differ in their last element
    shapes       messages of a label that is observed by patterns with wildcards in different places

For each load: the 50th and 99th percentile and the maximum in ms, ``LOAD_loop_p99_ms``, which is the 99th
percentile in time that the daemon's loop has been running, which other programs on the machine change little,
``LOAD_ratio``, which is the 99th percentile ÷ that of the idle daemon in the same run, and the seconds that
the load took.  ``LOAD_mb`` is resident at its end, and ``LOAD_accounted_mb`` accounted for by the daemon;
``LOAD_uncounted_mb`` is the most that was resident beyond 1.5 times the accounted, ten times a second.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

import dataspace
from bench import _tenants, _web_loads
from bench._figures import command_line, show
from bench._processes import Served, Side, serving_on
from dataspace.codec import pack
from dataspace.transport.addresses import parse_url
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from index.patterns.patterns import capture
from index.values.values import Map, Record

PERIOD: Final = 0.02
"""Seconds between two assertions of the innocent client."""

REST: Final = 0.5
"""Seconds that are measured after a load: what it leaves behind to be done is part of it."""


PLENTY: Final = 1 << 40
"""Credit that does not run out."""

PIECE: Final = 20_000
"""Facts that are staged by one request."""


FEW: Final = 100
"""Facts that are there whatever the loads do, at most."""

CONNECTING: Final = 50
"""Observers that connect at once: far less than the daemon admits without a hello."""


class Size(NamedTuple):
    """How large the loads are."""

    replays: int = 40
    epochs: int = 17_000
    frames: int = 8
    observers: int = 500
    turns: int = 8
    facts: int = 1_000_000
    published: int = 200_000
    idle: float = 4.0
    many: int = 100_000
    asked: int = 200
    peers: int = 40
    bodies: int = 8
    fragmented: int = 40
    events: int = 500
    changes: int = 60
    jobs: int = 5_000
    groups: int = 500
    messages: int = 16_000
    equal: int = 3_000
    compared: int = 24
    shapes: int = 1_024
    sent: int = 200


QUICK: Final = Size(
    4, 500, 2, 20, 1, 10_000, 5_000, 0.5, 10_000, 20, 8, 2, 2, 10, 5, 200, 10, 200, 100, 4, 64, 20
)


# -- the innocent -------------------------------------------------------------------------------------


async def _innocent(url: str, report: Connection) -> None:
    """Makes round trips; at each word from the pipe, answers with the samples since the word before."""
    samples: list[tuple[float, float]] = []
    async with dataspace.connect(url, name="innocent") as space:
        loop = partial(_loop_seconds, int(str((await space.status())["process"])))
        mine = space.observe("innocent($n)", quiet=True)
        async with mine, trio.open_nursery() as nursery:
            await mine.next_epoch()
            began, ran = trio.current_time(), dict[int, float]()

            async def write() -> None:
                claim, n = None, 0
                while True:
                    await trio.sleep_until(began + n * PERIOD)
                    draft = space.draft()
                    if claim is not None:
                        draft.retract(claim)
                    claim = draft.assert_(Record("innocent", n))
                    ran[n] = loop()
                    space.submit_nowait(draft)
                    n += 1

            async def read() -> None:
                async for change in mine:
                    if change.kind == "+":
                        n = int(str(change.n))
                        samples.append((trio.current_time() - began - n * PERIOD, loop() - ran.pop(n)))

            nursery.start_soon(write)
            nursery.start_soon(read)
            report.send("ready")
            while True:
                await trio.to_thread.run_sync(report.recv, abandon_on_cancel=True)
                report.send(samples[:])
                samples.clear()


def _loop_seconds(pid: int) -> float:
    """Returns for how long the loop of a process has been running, on Linux; elsewhere 0."""
    try:
        with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9
    except OSError:
        return 0.0


# -- the loads: each does what can be done before, says "ready", waits, does the rest, says "done" --------


async def _turn_to_go(report: Connection) -> None:
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)


async def _idle(_url: str, size: Size, report: Connection) -> None:
    await _turn_to_go(report)
    await trio.sleep(size.idle)
    report.send("done")


async def _fill(url: str, epochs: int) -> None:
    async with dataspace.connect(url, name="past") as space:
        for n in range(epochs):
            draft = space.draft()
            draft.send(Record("past", n, "x" * 20))
            await space.submit(draft)
        await space.drain(120)


async def _replays(url: str, size: Size, report: Connection) -> None:
    await _fill(url, size.epochs)
    async with dataspace.connect(url, name="replays") as space:
        upto = await space.sync()
        await _turn_to_go(report)
        async with trio.open_nursery() as nursery:
            for _ in range(size.replays):
                nursery.start_soon(_replay, space, upto)
    report.send("done")


async def _replay(space: dataspace.RemoteSpace, upto: int) -> None:
    async with space.observe("past($n, $)", quiet=True, after=0, upto=upto) as past:
        async for _ in past:
            pass


async def _frames(url: str, size: Size, report: Connection) -> None:
    """A peer of its own, as the client would not send them; it connects again when it is sent away."""
    maps = pack((p.NUMBERS[p.Request], 1, "status", Map({"x": ()})))[:-1]  # without the empty array
    bad = frame(maps + b"\xdd" + (258_000).to_bytes(4, "big") + b"\x80" * 258_000)
    await _turn_to_go(report)
    for _ in range(size.frames):
        async with await _greeted(url) as stream:
            try:
                await stream.send_all(bad)
                await stream.receive_some(65536)
            except trio.BrokenResourceError:
                pass  # it was refused before all of it was sent
    report.send("done")


async def _greeted(url: str) -> trio.SocketStream:
    """A connection that has said hello and was welcomed."""
    address = parse_url(url)
    stream = await trio.open_tcp_stream(address.host, address.port)
    await stream.send_all(_framed(p.Hello(p.VERSION, f"~{id(stream)}", "raw", Map())))
    await stream.receive_some(65536)
    return stream


def _framed(packet: p.Packet) -> bytes:
    return frame(pack(p.written(packet)))


async def _observers(url: str, size: Size, report: Connection) -> None:
    """Peers that only receive: so many clients in one process would be what is slow.

    Each has a pattern of its own, so that each interest is a fact of its own.
    """
    await _turn_to_go(report)

    async def observe(n: int) -> None:
        stream = await _greeted(url)
        connecting.release()
        everything = Map({"kind": "observe", "pattern": capture(f"x{n}")})
        await stream.send_all(_framed(p.Open(1, everything, PLENTY, PLENTY)))
        while await stream.receive_some(1 << 20):
            pass

    connecting = trio.Semaphore(CONNECTING)
    async with dataspace.connect(url) as space, trio.open_nursery() as nursery:
        for n in range(size.observers):
            await connecting.acquire()
            nursery.start_soon(observe, n)
        while await _count(space, "observers") < size.observers:  # noqa: ASYNC110  # it is another process
            await trio.sleep(0.1)
        report.send("done")
        await trio.sleep_forever()


async def _count(space: dataspace.RemoteSpace, name: str) -> int:
    return int(str((await space.status())[name]))


async def _turns(url: str, size: Size, report: Connection) -> None:
    async with dataspace.connect(url, name="turns") as space:
        most = _most(space)
        await _turn_to_go(report)
        for _ in range(size.turns):
            claims = []
            async with space.turn() as turn:
                claims = [turn.assert_(Record("large", n, n)) for n in range(most)]
            async with space.turn() as turn:
                for claim in claims:
                    turn.retract(claim)
    report.send("done")


def _most(space: dataspace.RemoteSpace) -> int:
    """Facts that one turn may assert, in actions and in elements of its frame."""
    assert space.welcome is not None  # it is connected
    limits = space.welcome.limits
    actions, elements = limits["actions_per_turn"], limits["frame_elements"]
    assert isinstance(actions, int) and isinstance(elements, int)
    return min(actions, elements // 9)


async def _end(url: str, size: Size, report: Connection) -> None:
    async with dataspace.connect(url, name="end") as space:
        for start in range(0, size.facts, 4096):
            draft = space.draft()
            for n in range(start, min(start + 4096, size.facts)):
                draft.assert_(Record("owned", n, "x"))
            await space.submit(draft)
        await space.drain(120)
        await _turn_to_go(report)
    async with dataspace.connect(url) as space:
        while await _count(space, "claims") > FEW:  # noqa: ASYNC110  # it is another process
            await trio.sleep(0.1)
    report.send("done")


async def _publication(url: str, size: Size, report: Connection) -> None:
    starts = range(0, size.published, PIECE)
    async with dataspace.connect(url, name="publication") as space:
        for start in starts:
            rows = tuple([("published", n, "x") for n in range(start, min(start + PIECE, size.published))])
            staged = Map({"key": ("bench", str(start)), "rows": pack(("assert", rows, ()))})
            await space.request("stage", staged)
        await _turn_to_go(report)
        named = {"owner": "bench", "client": "bench", "sequence": 1}
        await space.request("publish", Map({"keys": tuple([("bench", str(at)) for at in starts]), **named}))
    report.send("done")


async def _own(space: dataspace.RemoteSpace, size: Size) -> None:
    """Makes the facts of an owner that stays."""
    for start in range(0, size.many, 4096):
        draft = space.draft()
        for n in range(start, min(start + 4096, size.many)):
            draft.assert_(Record("big", n, n % 7, "x"))
        await space.submit(draft)
    await space.drain(120)


async def _asking(url: str, size: Size, report: Connection, verb: str, arguments: Map) -> None:
    async with dataspace.connect(url, name=verb, owner="bench") as space:
        await _own(space, size)
        await _turn_to_go(report)
        async with trio.open_nursery() as nursery:
            for _ in range(size.asked):
                nursery.start_soon(space.request, verb, arguments)
    report.send("done")


async def _withdraw(url: str, size: Size, report: Connection) -> None:
    none = Map({"owner": "bench", "pattern": Record("none", capture("x"))})
    await _asking(url, size, report, "withdraw", none)


async def _owners(url: str, size: Size, report: Connection) -> None:
    await _asking(url, size, report, "owners", Map({"pattern": Record("none", capture("x"))}))


async def _conditions(url: str, size: Size, report: Connection) -> None:
    """Peers of their own, which send one turn after the other: each is refused, as it expects too little."""
    async with dataspace.connect(url, name="conditions", owner="bench") as space:
        await _own(space, size)
        await _turn_to_go(report)

        async def expect(peer: int) -> None:
            expected = ((1, Record("big", capture("a"), Record("_"), capture("t")), ()),)
            async with await _greeted(url) as stream:
                for n in range(1, 1 + max(1, size.asked // 20)):
                    await stream.send_all(_framed(p.Turn(n, "main", "", (), expected)))
                    await stream.receive_some(65536)

        async with trio.open_nursery() as nursery:
            for peer in range(size.peers):
                nursery.start_soon(expect, peer)
    report.send("done")


LOADS: Final[dict[str, Callable[..., Any]]] = {
    "idle": _idle,
    "replays": _replays,
    "frames": _frames,
    "observers": _observers,
    "turns": _turns,
    "end": _end,
    "publication": _publication,
    "withdraw": _withdraw,
    "owners": _owners,
    "conditions": _conditions,
    "bodies": _web_loads.bodies,
    "fragments": _web_loads.fragments,
    "events": _web_loads.events,
    **_tenants.LOADS,
}

WEB: Final = frozenset(["bodies", "fragments", "events"])
"""Loads that speak HTTP."""


# -- the run ------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """Round trips of the innocent beside a load, in seconds and in seconds of the daemon's loop; the seconds
    of the load, and memory in MB: resident and accounted at its end, and most that was not accounted for."""

    trips: list[tuple[float, float]]
    seconds: float
    resident: float
    accounted: float
    uncounted: float


async def _watch(url: str, report: Connection) -> None:
    """Reads the memory of the daemon until there is a word; answers with what it has found."""
    async with dataspace.connect(url, name="watch") as space, trio.open_nursery() as nursery:
        found = [0.0, 0.0, -float("inf")]

        async def look() -> None:
            while True:
                status = await space.status()
                resident, accounted = [
                    int(str(status[name])) / 1e6 for name in ("memory_bytes", "memory_accounted_bytes")
                ]
                found[:] = resident, accounted, max(found[2], resident - 1.5 * accounted)
                await trio.sleep(0.1)

        nursery.start_soon(look)
        report.send("ready")
        while True:
            await trio.to_thread.run_sync(report.recv, abandon_on_cancel=True)
            report.send(tuple(found))


@contextmanager
def _daemon(name: str, size: Size) -> Iterator[Served]:
    """The daemon of a load, whose quota admits all shapes that it observes."""
    others = ["http:127.0.0.1:0"] * (name in WEB)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "dataspace.toml")
        settings.write_text(f"[quota]\nshapes = {size.shapes}\n")
        options = "--config", str(settings), "--data"
        with serving_on(str(Path(folder, "data")), *others, options=options) as served:
            yield served


def _samples(name: str, size: Size) -> Measured:
    """Returns what was measured beside a load."""
    with _daemon(name, size) as served:
        innocent = Side.start(_innocent, served.url)
        watch = Side.start(_watch, served.url)
        other = Side.start(LOADS[name], served.others[0] if name in WEB else served.url, size)
        try:
            for side in (innocent, watch, other):
                assert side.pipe.recv() == "ready"
            time.sleep(REST)  # what the preparation left to be done is no part of it
            innocent.pipe.send("begin")
            innocent.pipe.recv()
            began = time.perf_counter()
            other.pipe.send("go")
            assert other.pipe.recv() == "done"
            took = time.perf_counter() - began
            time.sleep(REST)
            innocent.pipe.send("end")
            watch.pipe.send("end")
            return Measured(innocent.pipe.recv(), took, *watch.pipe.recv())
        finally:
            other.stop()
            watch.stop()
            innocent.stop()


def measure(rounds: int, size: Size, loads: list[str]) -> dict[str, float]:
    """All figures; the round with the lowest 99th percentile counts."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name in loads:
            found = _samples(name, size)
            at = partial(_percentile, sorted([wall for wall, _ in found.trips]))
            of_loop = partial(_percentile, sorted([ran for _, ran in found.trips]))
            if at(0.99) < best.get(f"{name}_p99_ms", float("inf")):
                best |= {
                    f"{name}_p50_ms": at(0.5),
                    f"{name}_p99_ms": at(0.99),
                    f"{name}_max_ms": at(1.0),
                    f"{name}_loop_p99_ms": of_loop(0.99),
                    f"{name}_seconds": found.seconds,
                    f"{name}_mb": found.resident,
                    f"{name}_accounted_mb": found.accounted,
                    f"{name}_uncounted_mb": found.uncounted,
                }
    for name in loads:
        best[f"{name}_ratio"] = best[f"{name}_p99_ms"] / best["idle_p99_ms"]
    return best


def _percentile(samples: list[float], share: float) -> float:
    return 1000 * samples[min(len(samples) - 1, int(len(samples) * share))]


def main() -> None:
    arguments = command_line(__doc__, rounds=2, quick="one round of small loads")
    arguments.add_argument("--only", nargs="*", choices=LOADS, help="these loads beside the idle daemon")
    args = arguments.parse_args()
    chosen = [name for name in LOADS if not args.only or name in ("idle", *args.only)]
    figures = measure(1 if args.quick else args.rounds, QUICK if args.quick else Size(), chosen)
    show(figures, as_json=args.json)


if __name__ == "__main__":
    main()
