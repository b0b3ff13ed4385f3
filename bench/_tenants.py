"""Loads that a tenant makes of groups, rules and observations, for ``fairness.py``.

Each prepares, waits for a word, and works.

Always: what is measured begins with the word from the pipe; a load is done when the daemon has done its work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

import trio

import dataspace
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value

if TYPE_CHECKING:
    from bench.fairness import Size

LEVELS: Final = 12
"""Levels of the topics that ``shapes`` observes."""

LARGE: Final = 20_000
"""Elements of the sequences that ``compares`` compares."""

ASKED: Final = 500
"""Requests that ``shown`` sends at once."""

JOB: Final = Record("job", capture("key"), capture("n"))


async def _go(report: Connection) -> None:
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)


async def _send(space: dataspace.RemoteSpace, values: list[Value]) -> None:
    async with space.turn() as turn:
        for value in values:
            turn.send(value)


async def _take(space: dataspace.RemoteSpace, group: str, most: int, **more: Value) -> list[Any]:
    asked = {"group": group, "pattern": JOB, "most": most, "wait": 10_000, **more}
    answer: Any = await space.request("take", Map(asked))
    return list(answer["jobs"])


async def _with_jobs(url: str, size: Size, report: Connection, end: Callable[..., Awaitable[None]]) -> None:
    """Takes jobs of one key, and ends all of them at once."""
    async with dataspace.connect(url, name="jobs") as space:
        async with space.consume("job($key, $n)", group="keyed", key="key"):
            pass
        for start in range(0, size.jobs, 1_000):
            await _send(space, [Record("job", "one", n) for n in range(start, min(start + 1_000, size.jobs))])
        jobs: list[Any] = []
        while len(jobs) < size.jobs:
            jobs += await _take(space, "keyed", size.jobs)
        await _go(report)
        await end(space, tuple([(job[0], job[1], job[3]) for job in jobs]))
    report.send("done")


async def done(url: str, size: Size, report: Connection) -> None:
    """Reports jobs of one key as done, in one request."""

    async def end(space: dataspace.RemoteSpace, jobs: Value) -> None:
        await space.request("settle", Map({"group": "keyed", "done": jobs}))

    await _with_jobs(url, size, report, end)


async def dead(url: str, size: Size, report: Connection) -> None:
    """Makes jobs dead letters, in one request."""

    async def end(space: dataspace.RemoteSpace, jobs: Value) -> None:
        await space.request("settle", Map({"group": "keyed", "dead": jobs, "reason": "bench"}))

    await _with_jobs(url, size, report, end)


async def groups(url: str, size: Size, report: Connection) -> None:
    """Sends one turn of messages to hundreds of groups."""
    async with dataspace.connect(url, name="groups") as space:
        for number in range(size.groups):
            await space.request("take", Map({"group": f"g{number}", "pattern": JOB, "wait": 0}))
        await _go(report)
        await _send(space, [Record("job", "k", n) for n in range(size.messages)])
        await space.sync()
        await trio.sleep(size.idle)  # what waits is worked on after the turn
    report.send("done")


async def shown(url: str, size: Size, report: Connection) -> None:
    """Asks at once, very often, who has which job."""

    async def end(space: dataspace.RemoteSpace, _jobs: Value) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(min(ASKED, size.asked)):
                nursery.start_soon(space.request, "groups", Map({"out": True}))

    await _with_jobs(url, size, report, end)


async def equal(url: str, size: Size, report: Connection) -> None:
    """Sends equal messages in one turn, which a window counts."""
    async with dataspace.connect(url, name="equal") as space:
        rule = "mean($d, avg($v)) <- reading($d, $v) within 60 s."
        await space.assert_(Record("rule", "mean", rule))
        await _go(report)
        try:
            await _send(space, [Record("reading", "d", 20)] * size.equal)
        except dataspace.Refused:
            pass  # beyond the budget of a turn
        await space.sync()
    report.send("done")


async def compares(url: str, size: Size, report: Connection) -> None:
    """Compares large sequences in a rule, which differ in their last element."""
    async with dataspace.connect(url, name="compares") as space:
        rule = "below($i) <- p($i, $x), q($y), $x < $y."
        await space.assert_(Record("rule", "below", rule))
        for number in range(size.compared):
            await space.assert_(Record("p", number, (*[0] * LARGE, number)))
        await _go(report)
        await space.assert_(Record("q", (*[0] * LARGE, size.compared)))
        await space.sync()
    report.send("done")


async def shapes(url: str, size: Size, report: Connection) -> None:
    """Observes patterns of one label with wildcards at different levels, while messages of the label come."""
    async with dataspace.connect(url, name="shapes") as space, trio.open_nursery() as nursery:

        async def observe(number: int) -> None:
            levels = tuple([Record("_") if number >> at & 1 else "q" for at in range(LEVELS)])
            pattern = Record("mqtt", Record("exact", levels), capture("value"))
            async with space.observe(pattern, quiet=True) as changes:
                async for _ in changes:
                    pass

        for number in range(size.shapes):
            nursery.start_soon(observe, number)
        await space.sync()
        await trio.sleep(size.idle)
        await _go(report)
        for number in range(size.sent):
            await space.send(Record("mqtt", tuple("abcdefghijkl"), number))
        nursery.cancel_scope.cancel()
    report.send("done")


LOADS: Final[dict[str, Callable[..., Any]]] = {
    "done": done,
    "dead": dead,
    "groups": groups,
    "shown": shown,
    "equal": equal,
    "compares": compares,
    "shapes": shapes,
}
