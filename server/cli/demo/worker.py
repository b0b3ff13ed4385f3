"""A worker of the demo, a process of its own: takes a task, works on it, reports it, takes the next.

Several workers may claim one task at once.  All observers see the claims in the order of the epochs, so all
agree on which was the first; the others withdraw.

Always: a worker works on a task only while it holds the first claim on it.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from typing import Final

import trio

from dataspace.client.connect import connect
from dataspace.client.observations import Observation
from dataspace.client.space import RemoteSpace
from dataspace.kernel.epoch_changes import Change
from index.values.values import Record

SECONDS: Final = (1.5, 2.5)
"""What a task takes, at least and at most."""


class Desk:
    """What a worker has seen: tasks that are open or done, and who claims each, in order."""

    def __init__(self) -> None:
        self.open: set[object] = set()
        self.done: set[object] = set()
        self.claims: dict[object, list[object]] = {}
        self._changed = trio.Event()

    def take(self, kind: str, change: Change) -> None:
        """Takes one change of one of the three kinds of facts."""
        task, *rest = change.captures
        if kind == "claim":
            claims = self.claims.setdefault(task, [])
            if change.kind == "+":
                claims.append(rest[0])
            else:
                claims.remove(rest[0])
        else:
            among = self.open if kind == "open" else self.done
            if change.kind == "+":
                among.add(task)
            else:
                among.discard(task)
        self._changed.set()
        self._changed = trio.Event()

    def free(self) -> list[object]:
        """Returns the tasks that may be taken."""
        return [task for task in self.open if task not in self.done and not self.claims.get(task)]

    async def until(self, holds: Callable[[], object]) -> None:
        """Waits until something is the case."""
        while not holds():
            await self._changed.wait()


async def work(args: argparse.Namespace) -> int:
    """Works until it is ended."""
    async with (
        connect(args.daemon, name=args.worker, token="", reconnect=False) as space,
        trio.open_nursery() as nursery,
    ):
        await space.assert_(Record("worker", args.worker, os.getpid()))
        desk = Desk()
        for kind, pattern in (("open", "open($n)"), ("done", "done($n, _)"), ("claim", "claim($n, $who)")):
            await nursery.start(_follow, space, desk, kind, pattern)
        while True:
            await desk.until(desk.free)
            await _one(space, desk, random.choice(desk.free()), args)


async def _one(space: RemoteSpace, desk: Desk, task: object, args: argparse.Namespace) -> None:
    """Works on one task, unless another worker was first."""
    claim = await space.assert_(Record("claim", task, args.worker))
    await desk.until(lambda: args.worker in desk.claims.get(task, ()))
    if desk.claims[task][0] == args.worker:
        await trio.sleep(random.uniform(*SECONDS) / args.speed)
        await space.send(Record("finished", task, args.worker))
        await desk.until(lambda: task in desk.done)
    await space.retract(claim)
    await desk.until(lambda: args.worker not in desk.claims[task])


async def _follow(
    space: RemoteSpace,
    desk: Desk,
    kind: str,
    pattern: str,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    observation: Observation
    async with space.observe(pattern) as observation:
        task_status.started()
        async for change in observation:
            desk.take(kind, change)
