"""The demo on the screen: a line for each change in the space, and below them the board if it can be drawn.

``Play`` follows the space and notes each change on the board.  On a terminal with rich the board stays below
the lines and changes in place.  Elsewhere there are lines alone.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from dataspace.client.space import RemoteSpace
from dataspace.kernel.changes import Change
from index.patterns.text import parse_pattern
from index.values.values import Map, Record

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Shown:
    """Where the demo shows something: a line, and the board as it is now."""

    line: Callable[[str], None]
    draw: Callable[[], None]
    is_live: bool = False

    def lines(self, texts: Iterable[str]) -> None:
        """Shows lines of a text that belongs together."""
        for text in texts:
            self.line(f"    {text}")


@contextmanager
def showing(board: Board) -> Iterator[Shown]:
    """Shows a board for as long as the block runs."""
    if not sys.stdout.isatty() or not _has_rich():
        yield Shown(lambda text: print(text, flush=True), lambda: None)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False)
    with Live(drawn(board), console=console, auto_refresh=False) as live:
        yield Shown(console.print, lambda: live.update(drawn(board), refresh=True), is_live=True)


def _has_rich() -> bool:
    from importlib.util import find_spec

    return find_spec("rich") is not None


def drawn(board: Board) -> Table:
    """Returns the board as a table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(caption=f"epoch {board.epoch}; workers: {', '.join(sorted(board.workers)) or 'none'}")
    for name in ("task", "", "state", "worker"):
        table.add_column(name)
    styles = {"done": "green", "in work": "yellow", "waiting": ""}
    for task, what in enumerate(TASKS, 1):
        state, who = board.state(task)
        table.add_row(str(task), what, Text(state, style=styles[state]), who)
    return table


async def why(space: RemoteSpace, about: str) -> list[str]:
    """Returns the proof of a fact, as ``dataspace rule why`` prints it."""
    answer = await space.request("rules", Map({"ask": "why", "about": parse_pattern(about), "form": "text"}))
    return str(answer).splitlines()


class Play:
    """Follows the space; ``until`` waits for what the board shows."""

    def __init__(self, space: RemoteSpace, board: Board, shown: Shown) -> None:
        self.board = board
        self.shown = shown
        self._space = space
        self._changed = trio.Event()

    async def start(self, nursery: trio.Nursery) -> None:
        """Begins to follow what the demo shows."""
        for pattern, take in (
            ("worker($name, $pid)", self._worker),
            ("claim($n, $who)", self._claim),
            ("waiting($n, _)", self._waiting),
            ("finished($n, $who)", self._finished),
            ("done($n, $who)", self._done),
        ):
            await nursery.start(self._follow, pattern, take)

    async def until(self, holds: Callable[[], object]) -> None:
        """Waits until something is the case."""
        while not holds():
            await self._changed.wait()

    async def _follow(
        self,
        pattern: str,
        take: Callable[[Change], Awaitable[str]],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        async with self._space.observe(pattern) as observation:
            task_status.started()
            async for change in observation:
                text = await take(change)
                self.board.epoch = max(self.board.epoch, change.epoch)
                if text:
                    self.shown.line(f"{change.epoch:5}  {text}")
                self.shown.draw()
                self._changed.set()
                self._changed = trio.Event()

    async def _worker(self, change: Change) -> str:
        name, process = change.captures
        return f"{self.board.worker(str(name), is_new=change.kind == '+')} (process {process!r})"

    async def _claim(self, change: Change) -> str:
        task, who = change.captures
        assert isinstance(task, int)  # as the demo numbers them
        return self.board.claim(task, str(who), is_new=change.kind == "+")

    async def _waiting(self, change: Change) -> str:
        (task,) = change.captures
        assert isinstance(task, int)  # as above
        return self.board.wait(task) if change.kind == "+" else ""

    async def _finished(self, change: Change) -> str:
        """Writes down that a task is done, unless its worker was killed: the board outlives workers."""
        task, who = change.captures
        assert isinstance(task, int)  # as above
        if self.board.accepts(task, str(who)):
            await self._space.assert_(Record("done", task, who))
        return ""

    async def _done(self, change: Change) -> str:
        task, who = change.captures
        assert isinstance(task, int)  # as above
        return self.board.finish(task, str(who))


TASKS = (
    "measure the hall",
    "order the timber",
    "lay the floor",
    "hang the doors",
    "paint the walls",
    "wire the lamps",
    "fit the locks",
    "glaze the windows",
    "sand the stairs",
    "plaster the ceiling",
    "lay the hearth",
    "sweep the yard",
)

RULES = {
    "waiting": "waiting($n, $what) <- task($n, $what), not claim($n, _), not done($n, _).",
    "open": "open($n) <- waiting($n, _), not inspection().",
}
"""A task waits until it is claimed or done; workers may take a waiting task unless there is an inspection."""

WORKERS = ("ann", "bob", "cho")


@dataclass(slots=True)
class Board:
    """The tasks, with the workers that work on them or have done them.

    ``begun`` has all workers that were the first to claim a task, ``given_up`` the task of the worker that
    was killed.

    Always: a task is done, in work or waiting; each change is told once.
    """

    claims: dict[int, list[str]] = field(default_factory=dict)
    reported: dict[int, str] = field(default_factory=dict)
    done: dict[int, str] = field(default_factory=dict)
    begun: dict[int, list[str]] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)
    given_up: int | None = None
    killed: str = ""
    epoch: int = 0

    def worker(self, name: str, *, is_new: bool) -> str:
        """Takes a worker that came or went; returns what there is to tell of it."""
        if is_new:
            self.workers.add(name)
            return f"{name} is here"
        self.workers.discard(name)
        return f"{name} is gone"

    def claim(self, task: int, who: str, *, is_new: bool) -> str:
        """Takes a claim that came or went; returns what there is to tell of it."""
        claims = self.claims.setdefault(task, [])
        if is_new:
            claims.append(who)
            if len(claims) > 1:
                return ""  # a second claim withdraws by itself
            self.begun.setdefault(task, []).append(who)
            return f"{who} takes task {task}, {TASKS[task - 1]}"
        claims.remove(who)
        return ""

    def wait(self, task: int) -> str:
        """Takes that a task waits; what follows by a rule does not depend on which change is seen first."""
        begun = self.begun.get(task)
        if not begun:
            return ""
        return f"task {task} waits again: the claim of {begun[-1]} has ended with its session"

    def accepts(self, task: int, who: str) -> bool:
        """True if a report that a task is done counts; it is not one of a worker that was killed."""
        if who == self.killed or task in self.reported:
            return False
        self.reported[task] = who
        return True

    def give_up(self, who: str) -> int | None:
        """Returns the task that a worker is in the middle of, and counts no more on that worker.

        Returns None, and nothing has changed, if it has none or has reported it.
        """
        task = self.task_of(who)
        if task is None or task in self.reported:
            return None
        self.given_up, self.killed = task, who
        return task

    def finish(self, task: int, who: str) -> str:
        """Takes that a task is done."""
        self.done[task] = who
        return f"{who} has done task {task} ({len(self.done)} of {len(TASKS)})"

    def state(self, task: int) -> tuple[str, str]:
        """Returns the state of a task, and whose it is."""
        if task in self.done:
            return "done", self.done[task]
        claims = self.claims.get(task)
        return ("in work", claims[0]) if claims else ("waiting", "")

    def is_given_back(self) -> bool:
        """True if the task of the worker that was killed waits again."""
        return self.given_up is not None and self.state(self.given_up)[0] == "waiting"

    def task_of(self, who: str) -> int | None:
        """Returns the task that a worker works on."""
        for task in range(1, len(TASKS) + 1):
            if self.state(task) == ("in work", who):
                return task
        return None
