"""What does an event cost a client, by ``async for`` and by ``each``?

One writer sends messages in pipelined turns of one, and one observer in a process of its own gets each as an
event of an epoch of its own.  The figure is the observer's CPU time; both ways are measured in turn, and in
the same run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

import dataspace
from bench._processes import Measuring, Side, daemon
from dataspace.client.session.turns import Ticket
from dataspace.kernel.changes import Change
from index.values.values import Record

PADDING: Final = "x" * 64
UNDER_WAY: Final = 64
"""Turns without an answer."""


def measure_observing(events: int) -> dict[str, float]:
    """Returns one round: microseconds of CPU time for each event."""
    return {
        "client_for_cpu_us": _cost(_by_iteration, events),
        "client_each_cpu_us": _cost(_by_each, events),
    }


def _cost(observe: Callable[..., Any], events: int) -> float:
    with daemon() as url:
        observer = Side.start(observe, url, events)
        assert observer.pipe.recv() == "ready"
        writer = Side.start(_write, url, events)
        assert writer.pipe.recv() == "ready"
        with Measuring(observer.pid) as measuring:
            writer.pipe.send("go")
            assert observer.pipe.recv() == "done"
        writer.stop()
        observer.stop()
    return measuring.run(events).cpu * 1e6


async def _write(url: str, events: int, report: Connection) -> None:
    async with dataspace.connect(url, name="bench writer") as space:
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        tickets: deque[Ticket] = deque()
        for number in range(events):
            draft = space.draft()
            draft.send(Record("says", number, PADDING))
            tickets.append(await space.submit(draft))
            if len(tickets) > UNDER_WAY:
                await tickets.popleft().wait()
        await space.drain(60)
        await trio.sleep_forever()


@asynccontextmanager
async def _observing(url: str, report: Connection) -> AsyncIterator[dataspace.Observation]:
    """An observation that has its state; the bench is told when it has begun."""
    async with dataspace.connect(url, name="bench observer") as space:
        async with space.observe("says($i, $what)", policy="wait", quiet=True) as observation:
            await observation.next_epoch()
            report.send("ready")
            yield observation


async def _by_iteration(url: str, events: int, report: Connection) -> None:
    seen = 0
    async with _observing(url, report) as observation:
        async for change in observation:
            assert change.captures[0] == seen
            seen += 1
            if seen == events:
                report.send("done")


async def _by_each(url: str, events: int, report: Connection) -> None:
    seen = 0

    def count(change: Change) -> None:
        nonlocal seen
        assert change.captures[0] == seen
        seen += 1
        if seen == events:
            report.send("done")

    async with _observing(url, report) as observation:
        await observation.each(count)
