"""The board of the demo: the state of each task, as it follows from the facts.

Always: a task is done, in work or waiting; each change is told once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
"""A task waits while nobody claims it and it is not done; it may be taken unless there is an inspection."""

WORKERS = ("ann", "bob", "cho")


@dataclass(slots=True)
class Board:
    """The tasks, with the workers that work on them or have done them.

    ``begun`` has all workers that were the first to claim a task, ``given_up`` the task of the worker that
    was killed.
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
