"""Flushing: the send queues of all connections that have something, and when they are written.

Mostly a turn concerns a few connections, and these are written when the bundle of work is done that concerned
them.  But a turn that thousands observe would be thousands of calls of the system in one step.  So many are
written by a task of their own, some at a time; what happens before a queue's turn comes leaves with it, so
that a thousand turns for a thousand observers are far less than a million writes.

Always: each queue that was touched is written, in the order in which they were touched; if no task runs, as
before the start and at the end, they are written at once.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final, Protocol

import trio

AT_ONCE: Final = 64
"""Queues that are written in one step, in less than a millisecond."""

SLICE_SECONDS: Final = 0.002
"""Seconds after which the task lets others run."""


class Queue(Protocol):
    """What one connection has to send."""

    def flush(self) -> None:
        """Writes what the socket takes."""


class Flushing:
    """The queues that have something to send."""

    def __init__(self) -> None:
        self._touched: list[Queue] = []
        self._due = trio.Event()
        self._is_running = False

    def touch(self, queue: Queue) -> None:
        """Includes a queue in the next flush."""
        self._touched.append(queue)

    def flush(self) -> None:
        """Writes all queues that have something, or has the task write them where they are many."""
        if len(self._touched) > AT_ONCE and self._is_running:
            self._due.set()
            return
        while self._touched:
            touched, self._touched = self._touched, []
            for queue in touched:
                queue.flush()

    async def run(self) -> None:
        """Writes queues where they are many, until cancelled; then writes what is left."""
        self._is_running = True
        touched: list[Queue] = []
        try:
            while True:
                await self._due.wait()
                self._due = trio.Event()
                touched, self._touched = self._touched, []
                touched.reverse()
                until = perf_counter() + SLICE_SECONDS
                while touched:
                    touched.pop().flush()
                    if perf_counter() > until:
                        await trio.lowlevel.checkpoint()
                        until = perf_counter() + SLICE_SECONDS
        finally:
            self._is_running = False
            self._touched[:0] = reversed(touched)
            self.flush()
