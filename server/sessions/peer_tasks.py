"""The tasks of one peer: the one that serves it while something has to wait, and those of features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio


class PeerTasks:
    """The tasks of one peer; ``run_task`` runs one that a feature starts, with a fence.

    A peer whose packets can all be acted on at once has none.
    """

    def __init__(self, run_task: Callable[..., Awaitable[None]]) -> None:
        self._run_task = run_task
        self._nursery: trio.Nursery | None = None
        self.serving: trio.CancelScope | None = None
        """The scope of the task that serves the peer, while there is one, or was one at its end."""
        self.reading: trio.CancelScope | None = None
        """The part of that which reads on."""
        self._due: list[tuple[Callable[..., Awaitable[None]], *tuple[object, ...]]] = []
        """What begins with the next task."""
        self.ended: Final = trio.Event()
        """Set once the peer has ended and what its session owned is retracted."""

    def start(self, function: Callable[..., Awaitable[None]], *args: object) -> bool:
        """Runs a task that ends with the peer; returns False if it waits for the one that serves it."""
        if self._nursery is None:
            self._due.append((function, *args))
            return False
        self._nursery.start_soon(self._run_task, function, *args)
        return True

    def expect(self) -> None:
        """Notes that a task will serve the peer, so that it can be cancelled from now on."""
        self.serving, self.reading = trio.CancelScope(), trio.CancelScope()

    def begin(self, nursery: trio.Nursery) -> None:
        """Runs what is due, and all later tasks, in a nursery of the task that serves the peer."""
        self._nursery = nursery
        due, self._due = self._due, []
        for function, *args in due:
            nursery.start_soon(self._run_task, function, *args)

    @property
    def are_done(self) -> bool:
        """True if no task that a feature has started runs or is due."""
        return not (self._due or (self._nursery is not None and self._nursery.child_tasks))

    def rest(self) -> None:
        """Notes that the task that serves the peer ends, as nothing waits; ``expect`` begins another one."""
        self._nursery = self.serving = self.reading = None
