"""A stream of work while the daemon is killed and members are stopped: how many jobs, results, doubles?

    python -m tests.server.groups.kills --kills 30 --stops 30 --jobs 20000

Each job leaves a result in the turn that reports it as done.  A member is stopped in the middle of a job,
without a word, and another one takes its place; a stalled member goes on after its deadline, with a job that
another member has by then.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

import dataspace
from dataspace import Broken, Closed, DeliveryLost, Record, Unreachable
from tests.server.processes import DaemonProcess

JOB = "job($id)"


@dataclass
class Counts:
    """What a run has seen."""

    jobs: int = 0
    results: int = 0
    twice: int = 0
    missing: int = 0
    refused: int = 0
    kills: int = 0
    stops: int = 0


async def divide(
    daemon: DaemonProcess,
    *,
    jobs: int,
    kills: int,
    stops: int,
    seed: int = 1,
    members: int = 3,
    topic: str | None = None,
) -> Counts:
    """Works off jobs, while the daemon is killed and members are stopped, as often as is said.

    The jobs are messages, or the items of a durable topic.
    """
    counts, chance = Counts(jobs=jobs), random.Random(seed)
    async with dataspace.connect(daemon.url, grace=5) as boss:
        if topic is not None:
            async with boss.publish(topic, durable=True) as publication:
                await publication.advance(1)
        async with boss.consume(JOB, group="w", ack_within=0.5, attempts=0, topic=topic):
            pass
        finished = trio.Event()
        async with trio.open_nursery() as nursery:
            scopes: list[trio.CancelScope] = []
            for _ in range(members):
                scopes.append(await nursery.start(_member, daemon.url, counts, chance))
            nursery.start_soon(_send if topic is None else _publish, boss, jobs)
            nursery.start_soon(_count, daemon.url, jobs, finished)
            disturb = ["kill"] * kills + ["stop"] * stops
            chance.shuffle(disturb)
            for what in disturb:
                await trio.sleep(chance.uniform(0.02, 0.2))
                if what == "kill":
                    await trio.to_thread.run_sync(daemon.kill)
                    await trio.to_thread.run_sync(daemon.start)
                    counts.kills += 1
                else:
                    scopes.pop(0).cancel()
                    counts.stops += 1
                    scopes.append(await nursery.start(_member, daemon.url, counts, chance))
            with trio.fail_after(60 + jobs / 100):
                await finished.wait()
            nursery.cancel_scope.cancel()
        found = Counter([row[0] for row in await boss.matches("result($id, _)")])
        counts.results = sum(found.values())
        counts.twice = sum(count > 1 for count in found.values())
        counts.missing = jobs - len(found)
    return counts


async def _send(space: dataspace.RemoteSpace, jobs: int) -> None:
    for number in range(jobs):
        await space.submit([(2, Record("job", number))])
    await space.drain(60)


async def _publish(space: dataspace.RemoteSpace, jobs: int) -> None:
    async with space.publish("jobs", durable=True, name="boss", away=60) as topic:
        for number in range(jobs):
            await topic.send(Record("job", number))
            if number % 7 == 6:
                assert isinstance(topic.time, int)  # the topic has no dimensions
                await topic.advance(topic.time + 1)


async def _count(url: str, jobs: int, finished: trio.Event) -> None:
    async with dataspace.connect(url) as space:
        seen = set[object]()
        async for change in space.watch("result($id, _)"):
            if change.kind == "+":
                seen.add(change["id"])
            if len(seen) >= jobs:
                finished.set()
                return


async def _member(
    url: str,
    counts: Counts,
    chance: random.Random,
    task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.CancelScope() as scope, suppress(Closed, Broken, Unreachable):
        async with dataspace.connect(url, grace=chance.choice((0, 1))) as space:
            async with space.consume(group="w", in_flight=chance.choice((1, 4, 16))) as jobs:
                task_status.started(scope)
                number = 0
                async for job in jobs:
                    number += 1
                    if chance.random() < 0.002:
                        await trio.sleep(0.7)  # beyond its deadline
                    try:
                        async with space.turn(done=[job]) as turn:
                            turn.assert_(Record("result", job["id"], f"{job.token}"), owner="results")
                    except DeliveryLost:
                        counts.refused += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("jobs", 20_000), ("kills", 30), ("stops", 30), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        daemon = DaemonProcess(Path(place) / "data")
        daemon.start()
        try:
            print(
                trio.run(
                    lambda: divide(daemon, jobs=args.jobs, kills=args.kills, stops=args.stops, seed=args.seed)
                )
            )
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
