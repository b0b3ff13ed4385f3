"""What does a change that waits cost a client: by ``each``, ``async for`` and ``live``?

The epochs lie in the log, and a process of its own reads them from the first one on, as fast as it can.  The
figure is its CPU time, from the first change to the last.  Messages have 64 bytes and an epoch each.  Facts
are replaced one in each turn, which makes two changes, over ``KEYS`` keys.
"""

from __future__ import annotations

import math
import time
from multiprocessing.connection import Connection
from typing import Final

import trio

import dataspace
from bench._processes import Served, running
from dataspace import Record

PADDING: Final = "x" * 64
KEYS: Final = 1_000
ROUNDS: Final = 3


def measure_reading(served: Served, events: int) -> dict[str, float]:
    """Returns microseconds of the reader's CPU time for each change, the least of some, and their ratio."""
    start, said, held = trio.run(_write, served.url, events)
    asked = {
        "waiting_each_us": ("each", "says($n, $what)", start, said, events),
        "waiting_for_us": ("for", "says($n, $what)", start, said, events),
        "each_us": ("each", "state($key, $n)", said, held, 2 * events - KEYS),
        "live_us": ("live", "state($key, $n)", said, held, 2 * events - KEYS),
    }
    figures: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, (way, pattern, after, upto, changes) in asked.items():
            with running(_read, served.url, way, pattern, after, upto) as side:
                took = side.pipe.recv()
            figures[name] = min(figures.get(name, math.inf), took / changes * 1e6)
    figures["live_ratio"] = figures["live_us"] / figures["each_us"]
    return figures


async def _write(url: str, events: int) -> tuple[int, int, int]:
    """Returns the epochs before the messages, after them, and after the facts."""
    async with dataspace.connect(url) as space:
        start = await space.sync()
        for n in range(events):
            draft = space.draft()
            draft.send(Record("says", n, PADDING))
            await space.submit(draft)
        said = await space.sync()
        for n in range(events):
            draft = space.draft()
            draft.put("state", n % KEYS, n, owner="bench")
            await space.submit(draft)
        return start, said, await space.sync()


async def _read(url: str, way: str, pattern: str, after: int, upto: int, report: Connection) -> None:
    async with dataspace.connect(url, name="bench reader") as space:
        if way == "live":
            async with space.live(pattern, by="key", as_of=after, follow=True, quiet=True) as rows:
                began = time.process_time()
                await rows.at(upto)
                report.send(time.process_time() - began)
                assert len(rows) == KEYS
            return
        count = 0

        def take(change: dataspace.Change) -> None:
            nonlocal count
            count += 1

        async with space.observe(pattern, as_of=after, upto=upto, quiet=True) as observation:
            await observation.next_epoch()
            began = time.process_time()
            if way == "each":
                await observation.each(take)
            else:
                async for change in observation:
                    take(change)
            report.send(time.process_time() - began)
            assert count
