"""What do the verbs of coordination cost, beside what they are made of?

The daemon is a process of its own; the clients share one, so that one clock times them.

    plain_turns_per_s            one client replaces a fact in each turn, pipelined
    conditional_turns_per_s      the same, and each turn expects that the fact is the one before
    conditional_ratio            the second ÷ the first, in the same run
    plain_cpu_us, conditional_cpu_us   CPU time of the daemon for each
    change_p50_ms                from an assertion to the hands of an observer
    handover_p50_ms              from the end of one holder's block to the begin of the next one's
    accepted_p50_ms              from an assertion until it is on disk, which a lock waits for
    handover_ratio               a hand-over ÷ an accepted assertion, each after the same pause
    lock_p50_ms                  to take and release a lock that nobody else wants
    waiting_each_us, waiting_for_us    CPU time of a client for a message of 64 bytes that waits, by ``each``
                                 and by ``async for``
    each_us, live_us             the same for a change of a fact that is replaced, by ``each`` and by ``live``
    live_ratio                   the second ÷ the first, in the same run
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Final

import trio

import dataspace
from bench._figures import report
from bench._processes import Measuring, Served, serving
from bench._reading import measure_reading
from dataspace import Expectation, Record, exactly

WAITING: Final = 0.05
"""Seconds that a lock is held: by then the next one waits, and has nothing left to do.  So much passes before
each change as well: after a pause all processes take longer to begin."""


def measure(_round: int, quick: bool) -> dict[str, float]:
    """Returns one round of all figures."""
    with serving() as served:
        figures = trio.run(_measure, served, 200 if quick else 6_000, 10 if quick else 200)
    with serving() as served:
        return figures | measure_reading(served, 2_000 if quick else 20_000)


async def _measure(served: Served, turns: int, locks: int) -> dict[str, float]:
    async with dataspace.connect(served.url) as one, dataspace.connect(served.url) as two:
        figures: dict[str, float] = {}
        await _turns(served, one, turns // 10, conditional=True)
        for name in ("plain", "conditional"):
            rate, cpu = await _turns(served, one, turns, conditional=name == "conditional")
            figures |= {f"{name}_turns_per_s": rate, f"{name}_cpu_us": cpu}
        figures["conditional_ratio"] = figures["conditional_turns_per_s"] / figures["plain_turns_per_s"]
        seen, accepted = await _changes(one, two, locks)
        figures |= {"change_p50_ms": _median(seen), "accepted_p50_ms": _median(accepted)}
        figures["handover_p50_ms"] = _median(await _handovers(one, two, locks))
        figures["handover_ratio"] = figures["handover_p50_ms"] / figures["accepted_p50_ms"]
        figures["lock_p50_ms"] = _median(await _locks(one, locks))
        return figures


async def _turns(
    served: Served, space: dataspace.RemoteSpace, count: int, *, conditional: bool
) -> tuple[float, float]:
    """Returns turns in a second, and microseconds of the daemon's CPU time for each."""
    claim = await space.assert_(Record("state", "mine", 0))
    with Measuring(served.pid) as measuring:
        for n in range(count):
            expect: list[Expectation] = [exactly('state("mine", $n)', [(n,)])] if conditional else []
            draft = space.draft(expect=expect)
            claim = draft.replace(claim, Record("state", "mine", n + 1))
            ticket = await space.submit(draft)
        await ticket.wait()
    await space.retract(claim)
    run = measuring.run(count)
    return run.rate, run.cpu * 1e6


async def _changes(
    one: dataspace.RemoteSpace, two: dataspace.RemoteSpace, count: int
) -> tuple[Sequence[float], Sequence[float]]:
    """Returns how long changes took, one at a time, to be observed and to be on disk."""
    took, accepted = [], []
    async with two.observe("tick($)", snapshot=False) as observation:
        await two.sync()
        for n in range(count):
            await trio.sleep(WAITING)
            began = time.perf_counter()
            ticket = one.submit_nowait(_asserting(one, n))
            await observation.next_epoch()
            took.append(time.perf_counter() - began)
            await ticket.wait()
            accepted.append(time.perf_counter() - began)
    return took, accepted


def _asserting(space: dataspace.RemoteSpace, n: int) -> dataspace.Draft:
    draft = space.draft()
    draft.assert_(Record("tick", n))
    return draft


async def _handovers(one: dataspace.RemoteSpace, two: dataspace.RemoteSpace, count: int) -> Sequence[float]:
    """Returns how long the lock was nobody's, each time while the next one waits."""
    took: list[float] = []
    ended = 0.0

    async def take(space: dataspace.RemoteSpace) -> None:
        nonlocal ended
        for _ in range(count // 2):
            async with space.lock("bench") as lock:
                if ended:
                    took.append(time.perf_counter() - ended)
                await trio.sleep(WAITING)
                lock.check()
                ended = time.perf_counter()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, one)
        nursery.start_soon(take, two)
    return took[:-1]


async def _locks(space: dataspace.RemoteSpace, count: int) -> Sequence[float]:
    """Returns how long it took to take and release a lock."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        async with space.lock("free"):
            pass
        took.append(time.perf_counter() - began)
    return took


def _median(samples: Sequence[float]) -> float:
    return statistics.median(samples) * 1000


if __name__ == "__main__":
    times = ("change_p50_ms", "accepted_p50_ms", "handover_p50_ms", "lock_p50_ms")
    costs = ("plain_cpu_us", "conditional_cpu_us", "waiting_each_us", "waiting_for_us", "each_us", "live_us")
    report(__doc__, measure, least=(*times, "handover_ratio", *costs, "live_ratio"))
