"""Stopping: a daemon ends in good order at a signal, or is killed when its time is up.

An orderly end waits for what actors have begun, and an actor may block the event loop that handles the
signal, or have a task that does not end when it is cancelled.  Then the daemon ends as if it were killed,
which is safe: what was acknowledged is on disk.

Always: from the first signal on the process lives no longer than its time to stop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Final

import trio

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
UNFINISHED: Final = 1
"""The exit code of a daemon that did not end in good order."""


class Stopping:
    """The end of one daemon, within ``seconds`` of the first signal; as a context, which ends the watch."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = threading.Timer(seconds, self._kill)
        self._limit.daemon = True
        self._begun = False

    def __enter__(self) -> Stopping:
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.cancel()

    async def wait(
        self, ending: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Sets the event at the first signal; a second one ends the process at once.

        Where the event is set by others, the time to stop begins then.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._begin_when, ending)
            await self._receive(ending, task_status)

    async def _begin_when(self, ending: trio.Event) -> None:
        await ending.wait()
        self._begin()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._limit.start()

    async def _receive(self, ending: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            for number in SIGNALS:
                self._watch(number)
            task_status.started()
            async for caught in signals:
                print(f"dataspace: {signal.Signals(caught).name}, stopping", file=sys.stderr, flush=True)
                ending.set()
                return

    def _watch(self, number: signal.Signals) -> None:
        """Starts the clock with the signal itself, which the event loop may handle late."""
        receive = signal.getsignal(number)

        def begin(caught: int, frame: FrameType | None) -> None:
            self._begin()
            if callable(receive):
                receive(caught, frame)

        signal.signal(number, begin)

    def _kill(self) -> None:
        said = f"dataspace: has not stopped within {self._seconds:g} s, and ends as if it were killed\n"
        os.write(2, said.encode())
        os._exit(UNFINISHED)
