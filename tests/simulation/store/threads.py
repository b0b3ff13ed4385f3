"""Threads of a life: one runs at a time, and stands still while it waits for virtual time.

Product code over a store blocks, so it runs in threads, with locks and timers between them.  Here each such
thread is a *fiber*: a real thread that runs only while the loop waits for it, in the context of its host.
Where it would block it hands control back, and a task of its host has it go on when its wait is over.

The loop's own thread cannot wait for virtual time.  Where it would wait for a fiber, that one goes on without
any time; where it would wait for time alone, its process is killed.

Always: product code and the loop never run at once; after the end of a host no fiber of it waits any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from typing import Any, Final, Self, TypeVar
from unittest.mock import patch

import trio
from trio._core import _run

from relay.store.errors import LogFailed
from tests.simulation.entropy import product_modules
from tests.simulation.hosts import Host, here

T = TypeVar("T")

MOST_FORCED: Final = 10_000
"""Steps that a fiber may need while the loop waits for it."""

_start: Final = threading.Thread.start  # which nothing of the product may call in a life
_local: Final = threading.local()


class Unwound(BaseException):
    """Ends a fiber at the end of a life."""


class Wait:
    """What a fiber waits for: to be set, or for some seconds."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._event: Final = trio.Event()

    def set(self) -> None:
        """Ends it."""
        self._event.set()

    async def over(self) -> None:
        """Returns when it is over."""
        if self._seconds is None:
            await self._event.wait()
        else:
            with trio.move_on_after(self._seconds):
                await self._event.wait()

    def force(self) -> None:
        """Ends it in no time, since the loop waits for its fiber."""
        self.set()


class Fiber:
    """One thread: ``result`` once ``ended`` is set."""

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self._function = function
        self._context: Final = copy_context()
        self._name = name
        self._ours: Final = threading.Lock()
        self._theirs: Final = threading.Lock()
        for each in (self._ours, self._theirs):
            each.acquire()
        self._thread: threading.Thread | None = None
        self._unwinds = False
        self.waiting: Wait | None = None
        self.ended: Final = trio.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def has_begun(self) -> bool:
        """True once it has run."""
        return self._thread is not None

    def step(self) -> None:
        """Runs it until it waits, or has ended."""
        if self.ended.is_set():
            return
        self.waiting = None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            loop = vars(_run.GLOBAL_RUN_CONTEXT).copy()
            self._loop = loop
            _start(self._thread)
        else:
            self._ours.release()
        self._theirs.acquire()

    def _run(self) -> None:
        vars(_run.GLOBAL_RUN_CONTEXT).update(self._loop)  # so that trio's own calls work here
        _local.fiber = self
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            self._error = error
        self.ended.set()
        self._theirs.release()

    def wait(self, wait: Wait) -> None:
        """Hands control back until a wait is over; called within the fiber."""
        self.waiting = wait
        self._theirs.release()
        self._ours.acquire()
        if self._unwinds:
            raise Unwound

    def force(self) -> None:
        """Has it go on, without any time."""
        if self.waiting is not None:
            self.waiting.force()
        self.step()

    def unwind(self) -> None:
        """Ends it; what it catches on its way has no effect."""
        for _ in range(MOST_FORCED):
            if self.ended.is_set() or not self.has_begun:
                return
            self._unwinds = True
            self.step()
        raise AssertionError(f"{self._name} does not end")

    @property
    def result(self) -> Any:
        """Returns what its function has; raises what that has raised."""
        if self._error is not None:
            raise self._error
        return self._value


class Threads:
    """All fibers of a life."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery: Final = nursery
        self._fibers: dict[Fiber, None] = {}
        self._waits: dict[Host, dict[Wait, None]] = {}
        self.stuck: Callable[[], None] = lambda: None
        """Called when a loop has waited for time, so that its process was killed."""

    def begin(self, function: Callable[[], Any], name: str) -> Fiber:
        """Begins a thread on the present host."""
        fiber = Fiber(function, name)
        self._fibers[fiber] = None
        self.nursery.start_soon(self._drive, fiber)
        return fiber

    async def _drive(self, fiber: Fiber) -> None:
        if not fiber.has_begun:
            fiber.step()
        while not fiber.ended.is_set():
            wait = fiber.waiting
            assert wait is not None  # as it has not ended
            await wait.over()
            if fiber.waiting is wait:
                fiber.step()
        self._fibers.pop(fiber, None)

    async def run(self, function: Callable[..., T], *args: Any, abandon: bool) -> T:
        """Returns what a function has returned in a thread; not waited for if it may be abandoned."""
        fiber = self.begin(lambda: function(*args), "worker")
        with trio.CancelScope(shield=not abandon):
            await fiber.ended.wait()
        found: T = fiber.result
        return found

    def wait(self, wait: Wait) -> None:
        """Waits in the present fiber.  Raises ``LogFailed`` once its host has died."""
        fiber, host = present(), here()
        assert fiber is not None  # the loop has another way
        if host is None:
            fiber.wait(wait)
            return
        check_alive(host)
        if host not in self._waits:
            self._waits[host] = {}
            host.at_death.append(lambda _power: self._end(host))
        self._waits[host][wait] = None
        fiber.wait(wait)
        self._waits[host].pop(wait, None)
        check_alive(host)

    def _end(self, host: Host) -> None:
        for each in list(self._waits[host]):
            each.set()

    def unwind(self) -> None:
        """Ends all fibers that are left."""
        for each in list(self._fibers):
            each.unwind()


def check_alive(host: Host) -> None:
    """Raises ``LogFailed`` if a host has died."""
    if host.is_dead:
        raise LogFailed("its process has ended")


def present() -> Fiber | None:
    """Returns the fiber that runs now; None in the loop's own thread."""
    found: Fiber | None = getattr(_local, "fiber", None)
    return found


_threads: Threads | None = None


def current() -> Threads | None:
    """Returns what runs the threads of this life, if they are simulated."""
    return _threads


def pass_time(wait: Wait, holders: Callable[[], list[Fiber]] = list) -> None:
    """Waits in whatever thread this is; the loop's own has the ``holders`` go on, and dies without any."""
    threads = current()
    assert threads is not None  # within ``simulated_threads``
    if present() is not None:
        threads.wait(wait)
        return
    if found := holders():
        found[0].force()
        return
    host = here()
    assert host is not None  # what waits is on a host
    if not host.is_dead:
        threads.stuck()
        host.die(power=False)
    check_alive(host)


# -- in place of ``threading`` -----------------------------------------------------------------------------


class _Held:
    """A lock that so many threads can hold, some of them more than once."""

    def __init__(self, most: int, *, again: bool) -> None:
        self._most = most
        self._again = again
        self._holders: list[Fiber | None] = []
        self._waits: list[Wait] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = present()
        while len(self._holders) >= self._most and not (self._again and me in self._holders):
            if not blocking:
                return False
            self._waits.append(wait := Wait())
            pass_time(wait, lambda: [each for each in self._holders if each is not None])
        self._holders.append(me)
        return True

    def release(self) -> None:
        me = present()
        self._holders.remove(me if me in self._holders else self._holders[-1])
        waits, self._waits = self._waits, []
        for each in waits:
            each.set()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Event:
    def __init__(self) -> None:
        self._flag = False
        self._waits: list[Wait] = []

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        waits, self._waits = self._waits, []
        for each in waits:
            each.set()

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._flag:
            self._waits.append(wait := Wait(timeout))
            pass_time(wait)
        return self._flag


class _Thread:
    def __init__(
        self, *, target: Callable[..., object], name: str, args: tuple[Any, ...] = (), daemon: bool = False
    ) -> None:
        self._target = target
        self._args = args
        self.name = name
        self.daemon = daemon
        self._fiber: Fiber | None = None

    def start(self) -> None:
        threads = current()
        assert threads is not None  # within ``simulated_threads``
        self._fiber = threads.begin(self._run, self.name)

    def _run(self) -> None:
        try:
            self._target(*self._args)
        except LogFailed:
            host = here()
            if host is None or not host.is_dead:
                raise

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.ended.is_set()

    def join(self) -> None:
        fiber = self._fiber
        assert fiber is not None  # as it was started
        for _ in range(MOST_FORCED):
            if fiber.ended.is_set():
                return
            if present() is None:
                fiber.force()
            else:
                pass_time(Wait(0.001))
        raise AssertionError(f"{self.name} does not end")


class _Timer(_Thread):
    def __init__(self, seconds: float, function: Callable[..., object], args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=self._wait, name="timer")
        self._seconds = seconds
        self._function = function
        self._arguments = args
        self._over = _Event()

    def _wait(self) -> None:
        if not self._over.wait(self._seconds):
            self._function(*self._arguments)

    def cancel(self) -> None:
        self._over.set()


class _Threading:
    """The module as product code sees it."""

    Thread = _Thread
    Timer = _Timer
    Event = _Event

    @staticmethod
    def Lock() -> _Held:  # as in ``threading``
        return _Held(1, again=False)

    @staticmethod
    def RLock() -> _Held:
        return _Held(1, again=True)

    @staticmethod
    def BoundedSemaphore(value: int) -> _Held:
        return _Held(value, again=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


@contextmanager
def simulated_threads(nursery: trio.Nursery) -> Iterator[Threads]:
    """Has product code begin fibers in place of threads, for as long as the block runs."""
    global _threads
    fake = _Threading()
    with ExitStack() as held:
        for module in product_modules():
            if vars(module).get("threading") is threading:
                held.enter_context(patch.object(module, "threading", fake))
        _threads = found = Threads(nursery)
        try:
            yield found
        finally:
            found.unwind()
            _threads = None
