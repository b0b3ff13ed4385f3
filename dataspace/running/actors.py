"""The shell: runs actors on trio, with linked tasks, timers, and entry from other tasks and threads.

    trio.run(run, boot)            # until only daemon actors are left

It is apart from the engine because the engine never waits.

Always: the engine is stepped from one task; other tasks run after ``SLICE_SECONDS``, or after the handler
that runs then; a linked task ends with its facet.  A linked task runs step by step, so
that the watchdog can name a task that does not yield; awaits, exceptions and results are the same as without
that.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Final

import trio

from dataspace.actors.engine.actors import Actor, AsyncFunction, Call, Facet, FacetResource, Handler
from dataspace.actors.engine.engine import Engine
from dataspace.actors.engine.handlers import bound, crash_of, is_within, leaves
from dataspace.actors.engine.turns import Turn
from dataspace.errors import ActorCrashed

logger = logging.getLogger("dataspace.actors")

SLICE_SECONDS: Final = 0.002
"""Seconds of turns before other tasks run; a handler is not interrupted."""


def wall() -> int:
    """Returns the time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class Outside:
    """Enters a facet from outside of its turns: from tasks, and from threads."""

    def __init__(self, shell: Shell, facet: Facet) -> None:
        self._shell = shell
        self._facet = facet

    @property
    def ended(self) -> bool:
        """True if the facet has ended, so that entering it does nothing."""
        return self._facet.ended

    def external(self, function: Handler, *args: object) -> None:
        """Calls a function in a turn of the facet, if it still lives then; from the loop's thread."""
        self._facet.actor.engine.enqueue(Call(self._facet, "external", function, *args))

    def external_from_thread(self, function: Handler, *args: object) -> None:
        """Calls a function like ``external``, from any other thread; does not wait."""
        self._shell.token.run_sync_soon(self.external, function, *args)


class LinkedTask(FacetResource):
    """An async function that runs for a facet and is cancelled at its end."""

    __slots__ = ("facet", "scope")

    def __init__(self, facet: Facet) -> None:
        self.facet = facet
        self.scope = trio.CancelScope()
        facet.own(self)

    def close(self) -> None:
        """Cancels it."""
        self.scope.cancel()


class Shell:
    """Runs one engine in the current trio run, while ``run`` runs."""

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        before: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        after: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.engine = engine or Engine(clock=trio.current_time, wall=wall)
        self.engine.start_task = self.start
        self.engine.on_ready = self._wake
        self.token = trio.lowlevel.current_trio_token()
        self.before = before
        """Awaited before a slice that goes on with what the last one has left."""
        self.after = after
        """Awaited after each slice, with its seconds: a daemon flushes its connections and waits for its
        log."""
        self.running: set[LinkedTask] = set()
        """The linked tasks that have started and not ended."""
        self.ended = trio.Event()
        """Set when ``run`` and all linked tasks have ended."""
        self._ready = trio.Event()
        self._nursery: trio.Nursery | None = None

    def outside(self, actor: Actor) -> Outside:
        """Returns the root facet of an actor, to be entered from outside."""
        return Outside(self, actor.root)

    def start(
        self, facet: Facet, function: AsyncFunction, args: tuple[object, ...], keep: bool
    ) -> FacetResource:
        """Starts a linked task when the running turn has committed."""
        task = LinkedTask(facet)

        def begin() -> None:
            assert self._nursery is not None
            self._nursery.start_soon(self._run_task, task, function, args, keep)

        self.engine.effects.starts.append(bound(self.engine.context, begin))
        return task

    async def run(self, *, forever: bool = False) -> None:
        """Runs until only daemon actors are left, or until cancelled.

        ``trio`` schedules others after ``SLICE_SECONDS``, or after the handler that runs then.
        """
        engine = self.engine
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                while forever or engine.inhabitants or not engine.is_idle:
                    since = time.perf_counter()
                    engine.fire()
                    engine.run(seconds=SLICE_SECONDS)
                    if self.after is not None:
                        await self.after(time.perf_counter() - since)
                    if not engine.is_idle:
                        await self.before()
                    elif forever or engine.inhabitants:
                        await self._wait()
                    else:
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        finally:
            self.ended.set()

    async def _wait(self) -> None:
        """Waits until an event is queued or a timer is due."""
        due = self.engine.timers.next
        self._ready = trio.Event()
        seconds = math.inf if due is None else max(0.0, due - self.engine.clock())
        with trio.move_on_after(seconds):
            await self._ready.wait()

    def _wake(self) -> None:
        self._ready.set()

    async def _run_task(
        self, task: LinkedTask, function: AsyncFunction, args: tuple[object, ...], keep: bool
    ) -> None:
        facet = task.facet
        actor, outside = facet.actor, Outside(self, facet)
        if actor.ended or facet.ended:
            return
        self.running.add(task)
        try:
            with task.scope:
                await _stepped(self.engine, actor, function, outside, *args)
        except BaseException as error:  # a task's fence: its error ends its actor and no other
            if not trio.lowlevel.in_trio_task():
                raise  # it never ends: the loop was dropped, and with it this coroutine
            self._settle_failure(facet, error)
            return
        finally:
            self.running.remove(task)
        if not facet.ended:
            outside.external(_finish, task, keep)

    def _settle_failure(self, facet: Facet, error: BaseException) -> None:
        """Crashes the actor with what its task raised; raises a cancellation of the program again."""
        found = leaves(error)
        ending = [leaf for leaf in found if isinstance(leaf, trio.Cancelled)]
        if trio.current_effective_deadline() > -math.inf:
            ending = []  # it was not cancelled: the exception was kept from another scope
        if len(ending) < len(found):
            own = [leaf for leaf in found if leaf not in ending] if ending else [error]
            failure = own[0] if len(own) == 1 else BaseExceptionGroup("several errors", own)
            cancellations = () if ending else (trio.Cancelled,)
            if not is_within(failure, (*self.engine.fence, *cancellations)):
                raise failure
            crash = crash_of(f"actor {facet.actor.name}, facet {facet}, linked task", failure)
            self.engine.fell(facet.actor, "linked task", crash)
            self._wake()
        if ending:
            raise ending[0]


def _finish(turn: Turn, task: LinkedTask, keep: bool) -> None:
    task.facet.release(task)
    if not keep:
        turn.stop(task.facet)


async def run(boot: Handler, *args: object, space: str = "main") -> None:
    """Runs a program, one first actor, until only daemon actors are left.

    Crashes of actors are logged, and the others go on.
    """
    shell = Shell()
    shell.engine.on_crash = log_crash
    shell.engine.spawn(boot, *args, home=shell.engine.home(space))
    await shell.run()


def log_crash(crash: ActorCrashed) -> None:
    """Logs a crash with its cause."""
    logger.error("%s", crash, exc_info=crash.__cause__, extra={"event": "actor-crashed"})


# -- steps of linked tasks -------------------------------------------------------------------------


async def _stepped(engine: Engine, actor: Actor, function: AsyncFunction, *args: object) -> object:
    """Awaits a function and returns its result; during each step ``engine.stepping`` is its actor."""

    async def whole() -> object:
        return await function(*args)

    return await _drive(engine, actor, whole())


@types.coroutine
def _drive(
    engine: Engine, actor: Actor, coroutine: Coroutine[Any, Any, object]
) -> Generator[Any, Any, object]:
    resume, value = coroutine.send, None
    while True:
        engine.steps += 1
        engine.stepping = actor
        try:
            wanted = resume(value)
        except StopIteration as end:
            return end.value
        finally:
            engine.stepping = None
        try:
            resume, value = coroutine.send, (yield wanted)
        except BaseException as thrown:  # noqa: BLE001  # it is for the function, whatever it is
            resume, value = coroutine.throw, thrown


WINDOW: Final = 6
"""A watchdog adds up the turns of each program once in so many times its limit."""

SHARE: Final = 0.5
"""The part of the time from which a program is reported to hold the loop."""

AGAIN: Final = 60.0
"""Seconds after which a program that goes on to hold the loop is reported again."""


class Watchdog:
    """Reports, within its ``with`` block, turns and steps that do not end within ``limit`` seconds.

    It also reports a program whose turns end in time, but one after the other take most of the time: no
    client is served while one of them runs.  It only reads: the engine's thread itself is stuck, and another
    thread cannot interrupt it.

    Always: one turn, or one step of a linked task, is reported once; a program that holds the loop is
    reported within two windows, and then once in ``AGAIN`` seconds.
    """

    def __init__(
        self, engine: Engine, *, limit: float = 0.8, report: Callable[[str], None] | None = None
    ) -> None:
        self.engine = engine
        self.limit = limit
        self.report = report or logger.error
        self.stalls: Counter[str] = Counter()
        """How often an actor of each program did not yield in time."""
        self.stuck: str | None = None
        """The name of the actor that does not yield now; None if all do."""
        self._seen: tuple[Actor | None, str, int] = (None, "", 0)
        self._since = self._window = -math.inf
        self._spent: Mapping[str, float] = {}
        self._reported: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self.limit / 8):
            self.check(time.monotonic())

    def check(self, now: float) -> None:
        """Compares the engine with how it was at the last look; ``now`` is in seconds."""
        actor, what, _ = seen = self._running()
        if seen != self._seen or actor is None:
            self._seen, self._since, self.stuck = seen, now, None
        elif self.stuck is None and now - self._since >= self.limit:
            self.stuck = actor.name
            self.stalls[actor.program] += 1
            self.report(f"actor {actor.name} does not yield: {what} lasts {self.limit} s and more")
        if now - self._window >= WINDOW * self.limit:
            self._add_up(now)

    def _add_up(self, now: float) -> None:
        """Reports the program whose turns have taken most of the time since it was last called."""
        passed, before = now - self._window, self._spent
        spent: Mapping[str, float] = dict(self.engine.spent)  # in one step: the engine's thread changes it
        longest = self.engine.longest
        self._window, self._spent, self.engine.longest = now, spent, 0.0
        for program, seconds in spent.items():
            used = seconds - before.get(program, 0.0)
            if used < SHARE * passed or now - self._reported.get(program, -math.inf) < AGAIN:
                continue
            self._reported[program] = now
            self.report(
                f"actor {program} holds the loop: its turns took {used:.1f} of the last {passed:.1f} s, the"
                f" longest {longest:.2f} s; clients and other actors wait for each of them"
            )

    def _running(self) -> tuple[Actor | None, str, int]:
        """Returns the actor that runs, which turn or step of it, and a number for the part of that turn."""
        engine = self.engine
        if (actor := engine.running) is not None:
            return actor, f"its turn {engine.turn}", engine.parts
        return engine.stepping, f"step {engine.steps} of its tasks", 0
