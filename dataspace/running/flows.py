"""Feeds a flow from its streams and intervals.

A flow computes and does not wait.  ``pump`` is the task that waits for it: it reads a batch of its streams,
runs a tick with that, and only then reads on, so that nothing accumulates in between.

Always: values read together are in one tick; no stream is left open, in whatever way it ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from dataspace.errors import Closed
from dataspace.flows.flows import Flow
from dataspace.flows.inputs import MICROSECONDS, Interval, Streamed
from dataspace.flows.outputs import Writing
from dataspace.instants import NEVER
from dataspace.loops.lone import lone_nursery

BATCH: Final = 1024
"""How many values of a stream one tick takes at most."""


async def pump(
    flow: Flow, *, turn: Callable[[], object] | None = None, wall: Callable[[], int] | None = None
) -> None:
    """Runs a flow until all its streams have ended; a flow without streams, until it is cancelled.

    ``turn`` runs the tick instead of ``run_available``, for instance for a flow that a space drives:
    ``lambda: space.advance(now())``.  Without it, windows by the time of ticks get a tick when one is due.
    ``wall`` returns the time in microseconds since 1970.  Raises what a stream or the flow raises, after the
    other streams were aborted.
    """
    tick = _Ticks(flow, turn, wall or _wall)
    streams = [each for each in flow.operators.values() if isinstance(each, Streamed)]
    intervals = [each for each in flow.operators.values() if isinstance(each, Interval)]
    writing = [each for each in flow.operators.values() if isinstance(each, Writing)]
    try:
        async with lone_nursery() as beating:
            for interval in intervals:
                beating.start_soon(_beat, interval, tick, wall or _wall)
            if turn is None:
                beating.start_soon(tick.run_due)
            async with lone_nursery() as reading:
                for source in streams:
                    reading.start_soon(_read, source, tick, writing)
            if streams:
                beating.cancel_scope.cancel()
    finally:
        for each in writing:
            with suppress(Closed):  # by its reader
                each.stream.end()


class _Ticks:
    """Runs the ticks of a flow, and a tick for its windows when one is due and nothing comes."""

    def __init__(self, flow: Flow, turn: Callable[[], object] | None, wall: Callable[[], int]) -> None:
        self._flow = flow
        self._turn = turn
        self._wall = wall
        self._ran = trio.Event()

    def __call__(self) -> None:
        if self._turn is not None:
            self._turn()
        else:
            self._flow.run_available(now=self._wall())
        self._ran.set()

    async def run_due(self) -> None:
        """Runs a tick whenever one is due by time alone, until cancelled."""
        while True:
            self._ran = trio.Event()
            due = self._flow.due
            with trio.move_on_after(max(0, due - self._wall()) / MICROSECONDS if due < NEVER else math.inf):
                await self._ran.wait()
                continue
            self()


async def _drain(writing: Writing) -> None:
    """Waits until a stream has taken all written values."""
    writing.flush()
    while writing.waiting:
        await writing.stream.wait_room()  # type: ignore[attr-defined]  # whatever says that it is full can be waited for
        writing.flush()


async def _read(source: Streamed, tick: Callable[[], object], writing: Sequence[Writing]) -> None:
    stream, ended = source.stream, False
    try:
        while True:
            try:
                values = await stream.read_some(BATCH)
            except trio.EndOfChannel:
                ended = True
                return
            source.waiting.extend([(value, 1) for value in values])
            tick()
            for each in writing:
                await _drain(each)
            await trio.lowlevel.checkpoint()  # reads need not be checkpoints: see STREAMS.md
    finally:
        if not ended:
            with trio.move_on_after(1, shield=True):  # other tasks may wait until it is closed
                await stream.abort(True)


async def _beat(interval: Interval, tick: Callable[[], object], wall: Callable[[], int]) -> None:
    interval.beat(wall())
    while True:
        assert interval.due is not None  # set by the first beat
        await trio.sleep(max(0, interval.due - wall()) / MICROSECONDS)
        if interval.beat(wall()):
            tick()


def _wall() -> int:
    return time.time_ns() // 1000
