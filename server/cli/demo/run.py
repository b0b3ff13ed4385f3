"""``dataspace demo``: a daemon, three workers and a board, for about twenty seconds, without Java.

The daemon and the workers are processes.  One worker is killed with SIGKILL in the middle of a task.  Nothing
cleans up after it but the dataspace: its claim was its own, so it ends with it, and what follows from that
follows.

Always: started processes are ended, and their files are deleted; the exit code is 0 only if every task was
done, the killed worker's task by another one.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

from dataspace.client.connect import connect
from dataspace.client.observations import Observation
from dataspace.client.space import RemoteSpace
from dataspace.errors import Broken
from dataspace.kernel.changes import Change
from dataspace.transport.addresses import can_listen_for_web, page_of, parse_listen
from index.values.values import Record
from server.children import running
from server.cli.demo.showing import RULES, TASKS, WORKERS, Board, Play, Shown, showing, why

BEFORE: Final = 4
"""Tasks that are done before a worker is killed."""

READING: Final = 5.0
"""Seconds to read the explanation on a terminal."""

PATIENCE: Final = 120.0
"""Seconds after which the demo ends in any case."""

TRY: Final = """\
Now by hand:
  dataspace serve --data ./data              a daemon, in one terminal
  dataspace observe 'present($who)'          in a second: what is, and each change
  dataspace assert 'present("Alice")'        in a third: a fact, until Ctrl-C or kill -9"""

END_SECONDS: Final = 10.0
"""Seconds in which a process must end before it is killed."""

SECONDS: Final = (1.5, 2.5)
"""What a task takes, at least and at most."""


async def demo(args: argparse.Namespace) -> int:
    """Runs the demo, or one of its workers."""
    if args.worker:
        return await work(args)
    board = Board()
    with TemporaryDirectory(prefix="dataspace-demo-") as data, showing(board) as shown:
        with trio.move_on_after(PATIENCE):
            async with _daemon(Path(data)) as (url, page):
                if page:
                    shown.line(f"The inspector shows it in a browser: {page}")
                shown.line(f"A daemon is at {url}. To look at it meanwhile, in another terminal:")
                shown.line(f"    dataspace observe --url {url} 'waiting($n, $what)'")
                await _play(url, board, shown, args.speed)
        shown.draw()
    print(f"{len(board.done)} of {len(TASKS)} tasks are done, after {board.epoch} epochs.")
    task = board.given_up
    if task is None:
        return 1
    by = board.done.get(task, "nobody")
    print(f"Task {task} was begun by {board.killed}, who was killed, and done by {by}.")
    print(TRY)
    return 0 if len(board.done) == len(TASKS) and by in WORKERS and by != board.killed else 1


async def _play(url: str, board: Board, shown: Shown, speed: float) -> None:
    async with connect(url, name="board", owner="board", token="") as space, trio.open_nursery() as nursery:
        async with space.turn() as turn:
            for number, what in enumerate(TASKS, 1):
                turn.assert_(Record("task", number, what))
            for name, text in RULES.items():
                turn.assert_(Record("rule", name, text))
        shown.line(f"{len(TASKS)} tasks are on the board, and two rules:")
        shown.lines(RULES.values())
        play = Play(space, board, shown)
        await play.start(nursery)
        async with space.asserting(Record("inspection")):  # else the last to come may find all tasks done
            processes = {name: await nursery.start(_worker, url, name, speed) for name in WORKERS}
            await play.until(lambda: len(board.workers) == len(WORKERS))
        await play.until(lambda: len(board.done) >= BEFORE)
        await _inspect(url, play, processes[WORKERS[1]], READING / speed if shown.is_live else 0.0)
        await play.until(lambda: len(board.done) == len(TASKS))
        nursery.cancel_scope.cancel()


async def _inspect(url: str, play: Play, process: trio.Process, reading: float) -> None:
    """Kills a worker in the middle of a task, and shows why that waits again.

    While there is an inspection no task is taken, so that one can look.
    """
    board, shown, name = play.board, play.shown, WORKERS[1]
    async with connect(url, name="inspector", token="") as space:
        while board.given_up is None:
            await play.until(lambda: board.task_of(name))
            async with space.asserting(Record("inspection")):
                task = board.give_up(name)  # it may have ended meanwhile
                if task is None:
                    continue
                process.kill()
                shown.line(f"kill -9 {process.pid}: {name} is killed in the middle of task {task}")
                await play.until(board.is_given_back)
                # before its command is shown, or lines of other tasks come between
                proof = await why(space, f"waiting({task}, _)")
                shown.line(f"dataspace rule why 'waiting({task}, _)'")
                shown.lines(proof)
                shown.draw()
                await trio.sleep(reading)


@asynccontextmanager
async def _daemon(data: Path) -> AsyncIterator[tuple[str, str]]:
    """Runs a daemon on a free port; gives its URL, and the address of its page if it can have one."""
    errors = data / "errors"
    wanted = ["tcp:127.0.0.1:0", *(["http:127.0.0.1:0"] if can_listen_for_web() else [])]
    with errors.open("w") as file:
        words = ["serve", "--data", str(data / "log")]
        words += [word for address in wanted for word in ("--listen", address)]
        async with _running(*words, stdout=subprocess.PIPE, stderr=file) as process:
            assert process.stdout is not None  # a pipe, as asked for
            heard = b""
            while heard.count(b"\n") < len(wanted):
                part = await process.stdout.receive_some()
                if not part:
                    raise Broken(f"the daemon did not start: {errors.read_text().strip()}")
                heard += part
            lines = heard.decode().splitlines()[: len(wanted)]
            tcp, *web = [line.split("listening on ")[1].split(",")[0] for line in lines]
            yield parse_listen(tcp).url, "".join(map(page_of, web))


async def _worker(url: str, name: str, speed: float, *, task_status: trio.TaskStatus[trio.Process]) -> None:
    """Runs a worker until cancelled."""
    words = ["demo", "--worker", name, "--daemon", url, "--speed", str(speed)]
    async with _running(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        task_status.started(process)
        await trio.sleep_forever()


def _running(*words: str, **options: Any) -> AbstractAsyncContextManager[trio.Process]:
    """Runs a command, without the settings of other daemons."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("DATASPACE_")}
    return running([sys.executable, "-m", "dataspace", *words], END_SECONDS, env=settings, **options)


class TaskTable:
    """What a worker has seen: tasks that are open or done, and who claims each, in order."""

    def __init__(self) -> None:
        self.open: set[object] = set()
        self.done: set[object] = set()
        self.claims: dict[object, list[object]] = {}
        self._changed = trio.Event()

    def on_change(self, kind: str, change: Change) -> None:
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
    """Works until it is ended.

    Several workers may claim one task at once.  All observers see the claims in the order of the epochs, so
    all agree on which was the first; the others withdraw.

    Always: a worker works on a task only while it holds the first claim on it.
    """
    async with (
        connect(args.daemon, name=args.worker, token="", reconnect=False) as space,
        trio.open_nursery() as nursery,
    ):
        await space.assert_(Record("worker", args.worker, os.getpid()))
        tasks = TaskTable()
        for kind, pattern in (("open", "open($n)"), ("done", "done($n, _)"), ("claim", "claim($n, $who)")):
            await nursery.start(_follow, space, tasks, kind, pattern)
        while True:
            await tasks.until(tasks.free)
            await _one(space, tasks, random.choice(tasks.free()), args)


async def _one(space: RemoteSpace, tasks: TaskTable, task: object, args: argparse.Namespace) -> None:
    """Works on one task, unless another worker was first."""
    claim = await space.assert_(Record("claim", task, args.worker))
    await tasks.until(lambda: args.worker in tasks.claims.get(task, ()))
    if tasks.claims[task][0] == args.worker:
        await trio.sleep(random.uniform(*SECONDS) / args.speed)
        await space.send(Record("finished", task, args.worker))
        await tasks.until(lambda: task in tasks.done)
    await space.retract(claim)
    await tasks.until(lambda: args.worker not in tasks.claims[task])


async def _follow(
    space: RemoteSpace,
    tasks: TaskTable,
    kind: str,
    pattern: str,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    observation: Observation
    async with space.observe(pattern) as observation:
        task_status.started()
        async for change in observation:
            tasks.on_change(kind, change)
