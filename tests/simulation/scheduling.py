"""Scheduling: trio runs one life in virtual time, and in an order that a seed decides.

In each pass trio shuffles the tasks that can run.  It does that with a generator of its own, after it has
sorted them where a flag says so, which Hypothesis's plugin sets.  Here that generator is seeded; and since it
is given the tasks of each pass, it keeps back those of hosts that are paused.

This leans on what trio does not promise, so ``check_trio`` looks whether it is still so.
"""

from __future__ import annotations

import gc
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import trio
import trio.abc
from trio._core import _run

from tests.simulation.hosts import host_of

_NEEDED: Final = (
    "timeout = runner.clock.deadline_to_sleep_time(deadline)",
    "batch.sort(key=lambda t: t._counter)",
    "_r.shuffle(batch)",
    "while batch:",
)


def check_trio() -> None:
    """Raises ``RuntimeError`` where this trio does not schedule as it is taken to do here."""
    source = inspect.getsource(_run.unrolled_run)
    missing = [each for each in _NEEDED if each not in source]
    if missing or not hasattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING"):
        raise RuntimeError(f"trio {trio.__version__} schedules in another way: it has no {missing}")


class Order(Random):
    """The order of the tasks in each pass, by a seed."""

    def shuffle(self, x: Any) -> None:
        """Shuffles the tasks of a pass in place, and keeps back those that may not run now."""
        if len(x) == 1 and ((host := host_of(x[0])) is None or not host.is_paused):
            return  # nearly always
        paused = [task for task in x if (host := host_of(task)) is not None and host.is_paused]
        if paused:
            for task in paused:
                host = host_of(task)
                assert host is not None  # see above
                host.held.append(task)
            x[:] = [task for task in x if task not in paused]
        super().shuffle(x)


class Jumping(trio.abc.Clock):
    """Time that stands still while a task can run, and is at the next deadline once none can.

    trio asks how long it may sleep when no task can run, and before it looks which deadlines are over; so a
    jump costs no pass of its own, as it does with the clock of ``trio.testing``.
    """

    def __init__(self) -> None:
        self._now = 0.0

    def start_clock(self) -> None:
        """It needs no start."""

    def current_time(self) -> float:
        """Returns the seconds since the life began."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Goes to the next deadline; returns how long to sleep, which is not at all."""
        if deadline == math.inf:
            return math.inf  # only a signal can wake it
        self._now = max(self._now, deadline)
        return 0.0


@contextmanager
def _ordered(seed: str) -> Iterator[None]:
    before = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r
    was_enabled = gc.isenabled()
    gc.disable()  # what a collection ends would do so at instants of its own
    _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r = True, Order(seed)  # type: ignore[misc]  # see above
    try:
        yield
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r = before  # type: ignore[misc]  # as it was
        if was_enabled:
            gc.enable()


def run_ordered(seed: str, function: Callable[..., Awaitable[object]], *args: object) -> None:
    """Runs it in virtual time, which passes when nothing else can happen."""
    with _ordered(seed):
        trio.run(function, *args, clock=Jumping())
