"""How fast is a stream of work divided among members, and acknowledged?

A real daemon, and members in processes of their own, over TCP: 20 000 messages of 72 bytes that wait in the
log.  A fetch is what has come, up to 100 jobs.  Each acknowledgement is on disk before it is answered.

    fetch_N_per_s       N members, one turn that says a whole fetch is done
    each_N_per_s        one ``done`` for each job, of which up to 100 wait for their answers; those that come
                        while two turns have no answer share the next one
    result_N_per_s      a turn for each job, with a fact as its result
    topic_N_per_s       as fetch, of a durable topic in epochs of 100 items
    …_daemon_us         µs of the daemon's CPU for a job
    jetstream_N_per_s   the same jobs by JetStream, if there is a ``nats-server``: a stream in a file, pulled
                        a hundred at a time, each ``+ACK`` answered, and synced to disk within two minutes
    out_ratio           daemon_us with 10 000 jobs out to one member ÷ with 100, one turn for each hundred
    idle_ratio          daemon_us of a turn beside 1 000 groups of other labels ÷ without them
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import trio

import dataspace
from bench._figures import report
from bench._processes import Measuring, Served, Side, running, serving, serving_on
from bench._systems import jetstream as js, nats
from bench._systems.system import Missing
from dataspace import Job, Jobs, Record, RemoteSpace

FETCH: Final = 100
TEXT: Final = "x" * 48
BODY: Final = 72
ENDLESS: Final = 1 << 60

Work = Callable[[RemoteSpace, Jobs, int], Awaitable[None]]


async def _fetches(space: RemoteSpace, jobs: Jobs, count: int) -> None:
    """Reports what has come as done, a fetch in a turn, two at once."""
    done = trio.CapacityLimiter(2)
    async with trio.open_nursery() as nursery:
        while count:
            batch = await _fetch(jobs, min(count, FETCH))
            count -= len(batch)
            await done.acquire_on_behalf_of(batch[0])
            nursery.start_soon(_report, jobs, batch, done)


async def _fetch(jobs: Jobs, most: int) -> list[Job]:
    batch: list[Job] = []
    while len(batch) < most and (jobs.ready or not batch):
        job = await jobs.next_job()
        assert job is not None  # nothing ends the group
        batch.append(job)
    return batch


async def _report(jobs: Jobs, batch: list[Job], done: trio.CapacityLimiter) -> None:
    await jobs.done(*batch)
    done.release_on_behalf_of(batch[0])


async def _singly(space: RemoteSpace, jobs: Jobs, count: int) -> None:
    await _each(jobs, count, lambda job: job.done())


async def _results(space: RemoteSpace, jobs: Jobs, count: int) -> None:
    async def work(job: Job) -> None:
        async with space.turn(done=[job]) as turn:
            turn.assert_(Record("result", job["id"], 1), owner="results")

    await _each(jobs, count, work)


async def _each(jobs: Jobs, count: int, work: Callable[[Job], Awaitable[object]]) -> None:
    left = trio.CapacityLimiter(FETCH)

    async def one(job: Job) -> None:
        await work(job)
        left.release_on_behalf_of(job)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            job = await jobs.next_job()
            assert job is not None  # as above
            await left.acquire_on_behalf_of(job)
            nursery.start_soon(one, job)


async def _all_out(space: RemoteSpace, jobs: Jobs, count: int) -> None:
    """Takes everything that may be out, and then reports it, the latest first."""
    out = [job for _ in range(count) if (job := await jobs.next_job()) is not None]
    while out:
        batch, out = out[-FETCH:], out[:-FETCH]
        await jobs.done(*batch)


WORK: Final[dict[str, Work]] = {
    "fetch": _fetches,
    "each": _singly,
    "result": _results,
    "out": _all_out,
    "topic": _fetches,
}


async def _member(url: str, kind: str, count: int, in_flight: int, pipe: Connection) -> None:
    async with dataspace.connect(url) as space, space.consume(group="w", in_flight=in_flight) as jobs:
        pipe.send("ready")
        await trio.to_thread.run_sync(pipe.recv)
        await WORK[kind](space, jobs, count)
        pipe.send("done")
        await trio.to_thread.run_sync(pipe.recv)


async def _fill(url: str, count: int) -> None:
    """Makes a paused group, and as many jobs as are wanted."""
    async with dataspace.connect(url) as space:
        async with space.consume("job($id, $)", group="w", ack_within=600):
            await space.request("group-alter", dataspace.Map({"group": "w", "what": "pause"}))
        for start in range(0, count, 100):
            draft = space.draft()
            for number in range(start, min(start + 100, count)):
                draft.send(Record("job", number, TEXT))
            await space.submit(draft)
        await space.drain(60)


async def _fill_topic(url: str, count: int) -> None:
    """Makes a paused group of a durable topic, which has as many items as are wanted."""
    async with dataspace.connect(url) as space:
        async with space.publish("t", durable=True) as topic:
            for start in range(0, count, 100):
                items = [Record("job", number, TEXT) for number in range(start, min(start + 100, count))]
                await topic.finish(*items, then=start + 100)
        async with space.consume("job($id, $)", topic="t", group="w", start=1, ack_within=600):
            await space.request("group-alter", dataspace.Map({"group": "w", "what": "pause"}))


async def _resume(url: str, count: int) -> None:
    """Lets the members begin, and returns when so many jobs are done."""
    async with dataspace.connect(url) as space:
        await space.request("group-alter", dataspace.Map({"group": "w", "what": "resume"}))
        left = count
        while left:
            await trio.sleep(0.01)
            answer: Any = await space.request("groups", dataspace.Map({"group": "w"}))
            left = count - answer[0]["counts"]["done"]


def divide(
    served: Served, kind: str, members: int, count: int, in_flight: int = 2 * FETCH
) -> tuple[float, float]:
    """Returns jobs a second, and µs of the daemon's CPU for one."""
    trio.run(_fill_topic if kind == "topic" else _fill, served.url, count)
    most = count if kind == "out" else ENDLESS
    with ExitStack() as stack:
        sides: list[Side] = [
            stack.enter_context(running(_member, served.url, kind, most, in_flight)) for _ in range(members)
        ]
        for side in sides:
            side.pipe.recv()
        with Measuring(served.pid) as measuring:
            for side in sides:
                side.pipe.send("go")
            trio.run(_resume, served.url, count)
    run = measuring.run(count)
    return run.rate, run.cpu * 1e6


async def _turns(url: str, count: int) -> float:
    """Returns the seconds of so many turns that are sent together."""
    async with dataspace.connect(url) as space:
        began = time.perf_counter()
        for number in range(count):
            await space.submit([(2, Record("other", number))])
        await space.drain(60)
        return time.perf_counter() - began


async def _idle(url: str, count: int) -> None:
    async with dataspace.connect(url) as space:
        for number in range(count):
            async with space.consume(
                Record(f"label{number}", Record("$", None, None, Record("_"))), group=f"g{number}"
            ):
                pass


def _idle_ratio(count: int, groups: int) -> float:
    """Returns the daemon's CPU time for turns beside so many idle groups ÷ without them.

    Two daemons take turns, so that what else the machine does meets both.
    """
    costs = [0.0, 0.0]
    with ExitStack() as stack:
        daemons: list[Served] = []
        for number in (0, groups):
            place = stack.enter_context(tempfile.TemporaryDirectory())
            settings = Path(place, "settings.toml")
            settings.write_text(f"[quota]\ngroups = {groups}\n")
            options = "--config", str(settings), "--data"
            daemons.append(served := stack.enter_context(serving_on(f"{place}/data", options=options)))
            trio.run(_idle, served.url, number)
            trio.run(_turns, served.url, count // 10)
        for _ in range(10):
            for at, served in enumerate(daemons):
                with Measuring(served.pid) as measuring:
                    trio.run(_turns, served.url, count // 10)
                costs[at] += measuring.run(1).cpu
    return costs[1] / costs[0]


def jetstream(members: int, count: int) -> tuple[float, float]:
    """Returns jobs a second of JetStream, and µs of its server's CPU for one."""
    with nats.serve() as served, ExitStack() as stack:
        port = str(served.url)
        js.fill(port, count, b"x" * BODY)
        sides: list[Side] = [stack.enter_context(running(js.member, port)) for _ in range(members)]
        for side in sides:
            side.pipe.recv()
        with Measuring(served.pid) as measuring:
            for side in sides:
                side.pipe.send("go")
            js.finish(port)
        run = measuring.run(count)
        for side in sides:
            side.process.terminate()
    return run.rate, run.cpu * 1e6


def measure(_round: int, quick: bool) -> dict[str, float]:
    """Returns one round of all figures."""
    count = 1_000 if quick else 20_000
    figures: dict[str, float] = {}
    for kind in ("fetch", "each", "result", "topic"):
        for members in (1, 4):
            with serving() as served:
                rate, cost = divide(served, kind, members, count)
            figures |= {f"{kind}_{members}_per_s": rate, f"{kind}_{members}_daemon_us": cost}
    try:
        for members in (1, 4):
            rate, cost = jetstream(members, count)
            figures |= {f"jetstream_{members}_per_s": rate, f"jetstream_{members}_server_us": cost}
    except Missing as missing:
        print(f"no JetStream beside it: {missing}", file=sys.stderr)
    costs = []
    for out in (FETCH, count // 2):
        with serving() as served:
            costs.append(divide(served, "out" if out > FETCH else "fetch", 1, count // 2, out)[1])
    figures["out_ratio"] = costs[1] / costs[0]
    figures["idle_ratio"] = _idle_ratio(count, 50 if quick else 1_000)
    return figures


LEAST: Final = frozenset(
    [
        *[f"{kind}_{n}_daemon_us" for kind in ("fetch", "each", "result") for n in (1, 4)],
        *[f"jetstream_{n}_server_us" for n in (1, 4)],
        "out_ratio",
        "idle_ratio",
    ]
)

if __name__ == "__main__":
    report(__doc__, measure, least=LEAST)
