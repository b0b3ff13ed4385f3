"""A thread of one task: it runs one blocking function after another, and wakes the task after each.

Trio's own pool does that for anybody, with limits, contexts and names of threads.  For the writer of a log,
which calls it for each group, that was a third of what a single turn cost: this hands over with one lock and
takes back with one wake.

Always: one function runs at a time; a task that waits for it is not cancelled meanwhile, since what is half
written cannot be left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import trio


class WriteThread:
    """The thread; it begins with the first function and ends with ``close``."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._due: Final = threading.Lock()
        self._due.acquire()  # released for each function, and at the end
        self._thread: threading.Thread | None = None
        self._work: Callable[[], object] | None = None
        self._failure: BaseException | None = None
        self._resume: Callable[[], None]

    async def run(self, function: Callable[..., object], *args: Any) -> None:
        """Returns when the function has returned; raises what it raises.  Checks first for cancellation."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
        self._resume = lambda: token.run_sync_soon(trio.lowlevel.reschedule, task)
        self._work = lambda: function(*args)
        self._due.release()
        await trio.lowlevel.wait_task_rescheduled(_stay)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Ends the thread; no function may run.  The next one begins another thread."""
        if self._thread is not None:
            self._work = None
            self._due.release()
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while True:
            self._due.acquire()
            work = self._work
            if work is None:
                return
            try:
                work()
            except BaseException as failure:  # noqa: BLE001  # it is raised where the function was called
                self._failure = failure
            try:
                self._resume()
            except trio.RunFinishedError:  # the loop has failed meanwhile: nothing waits any more
                return


def _stay(_raise_cancel: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
