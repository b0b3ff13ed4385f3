"""Hosts: the machines of a life, of which each has a clock, random bytes and a scope that ends with it.

Whatever runs for a host is a task that began on it, or was started by one that did: trio copies the context
of a task to those that it starts.  So product code is on a host without a word of it.

Always: a host that is dead does nothing any more that another one could notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, Final

import trio
from trio._core import _run

_HERE: Final[ContextVar[Host | None]] = ContextVar("_HERE", default=None)


class Host:
    """One process on a machine of its own, from its start to its end."""

    def __init__(self, name: str, random: Random, process: int = 1) -> None:
        self.name: Final = name
        self.process: Final = process
        """The number of its process."""
        self.random: Final = random
        self.scope: Final = trio.CancelScope()
        self.is_dead = False
        self.is_paused = False
        self.offset = 0.0
        """Seconds by which its clock differs from the true time."""
        self.rate = 1.0
        """Seconds that its steady clock counts in one."""
        self.used = 0.0
        """Seconds of its processor, as it measures them."""
        self.connections = 0
        """Accepted so far."""
        self.looks = 0
        """At its steady clock, so far."""
        self.held: list[trio.lowlevel.Task] = []
        """Tasks that would run if it were not paused."""
        self.at_death: list[Callable[[bool], None]] = []
        """Called once when it dies, with True where its power failed."""

    @property
    def title(self) -> str:
        """Its name, and which process of that name it is."""
        return f"{self.name} {self.process}"

    def enter(self) -> None:
        """From now on the present task, and all that it starts, is on this host."""
        _HERE.set(self)

    def pause(self) -> None:
        """Runs none of its tasks until ``go_on``; its kernel still takes what comes."""
        self.is_paused = not self.is_dead

    def go_on(self) -> None:
        """Runs the tasks that would have run meanwhile."""
        self.is_paused = False
        held, self.held = self.held, []
        _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(held)

    def die(self, *, power: bool) -> None:
        """Ends it in this instant: what its tasks still do has no effect."""
        if self.is_dead:
            return
        self.is_dead = True
        self.go_on()
        for told in self.at_death:
            told(power)
        self.scope.cancel()


@contextmanager
def outside() -> Iterator[None]:
    """Within the block the present task, and all that it starts, is on no host."""
    token = _HERE.set(None)
    try:
        yield
    finally:
        _HERE.reset(token)


def here() -> Host | None:
    """Returns the host of the present task; None outside of all."""
    return _HERE.get()


def host_of(task: Any) -> Host | None:
    """Returns the host of a task."""
    found: Host | None = task.context.get(_HERE)
    return found
