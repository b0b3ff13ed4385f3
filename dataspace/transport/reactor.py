"""A reactor: plain functions called for sockets that are ready, for deadlines, and for other threads.

A task that waits for a socket costs several kilobytes, and to wake it costs more than to act on a small
packet.  So one task waits here for all sockets, in an epoll of its own, and calls the handler of each that is
ready.  A handler starts a task for work that has to wait.

Always: a handler is called only while its socket is registered; other tasks run between two passes; functions
that were put off to the end of a pass are called in that pass, even if a handler raises.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from time import perf_counter
from typing import Final, Protocol

import trio

MOST: Final = 64
"""Sockets of one pass."""

PASS_SECONDS: Final = 0.004
"""Seconds after which other tasks run, and the sockets that are left have their turn in the next pass."""

TICK: Final = 0.01
"""Seconds to which deadlines are rounded up, so that many sockets share a wake-up."""

MARGIN: Final = 0.001
"""Ticks more, so that no deadline is rounded down: a deadline is looked at once for each."""

READ: Final = getattr(select, "EPOLLIN", 1)
WRITE: Final = getattr(select, "EPOLLOUT", 4)


def is_available() -> bool:
    """True if the system has what a reactor needs, as Linux does."""
    return hasattr(select, "epoll") and hasattr(os, "eventfd")


class Handler(Protocol):
    """Acts for one socket."""

    def ready(self, events: int) -> None:
        """Called when the socket has some of the events it was registered for, or an error.

        An exception of a handler, or of any called function, ends the reactor.
        """


class Deadline:
    """The next deadline of one connection, say; calls a function with the time when it has passed."""

    __slots__ = ("_function", "_reactor", "due")

    def __init__(self, reactor: Reactor, function: Callable[[float], None]) -> None:
        self._reactor = reactor
        self._function: Callable[[float], None] | None = function
        self.due = inf
        """The deadline, on trio's clock; infinite while there is none."""

    def set(self, time: float) -> None:
        """Sets the time, unless there is a nearer one; O(log deadlines)."""
        if time < self.due and self._function is not None:
            self.due = time
            self._reactor.at(time, self)

    def close(self) -> None:
        """Calls nothing any more, and drops the function at once."""
        self._function = None

    def run_if_due(self, now: float) -> None:
        """Calls the function if the deadline has passed: it may have been set for several times."""
        if self.due <= now and self._function is not None:
            self.due = inf
            self._function(now)


class Reactor:
    """Calls handlers while ``run`` runs."""

    def __init__(self, ended: Callable[[], None] = lambda: None) -> None:
        """``ended`` is called at the end of each pass, before what was put off to it."""
        self._ended = ended
        self.in_pass = False
        """True while functions are called, until the end of the pass."""
        self._epoll: Final = select.epoll()
        self._handlers: Final[dict[int, Handler]] = {}
        self._is_polling = False
        self._left: list[tuple[int, int]] = []
        self._again: list[Callable[[], None]] = []
        self._ends: list[Callable[[], None]] = []
        self._deadlines: Final[list[tuple[float, int, Deadline]]] = []
        self._numbers: Final = count()
        self._nearer = trio.Event()
        self._calls: Final[deque[Callable[[], None]]] = deque()
        self._lock: Final = threading.Lock()
        self._token: trio.lowlevel.TrioToken | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, READ)

    # -- sockets --------------------------------------------------------------------------------------

    def register(self, number: int, handler: Handler, events: int) -> None:
        """Calls the handler when the socket of that file number has an event of these, while ``run`` runs."""
        self._handlers[number] = handler
        if not self._epoll.closed:
            self._epoll.register(number, events)

    def modify(self, number: int, events: int) -> None:
        """Waits for other events of a registered socket."""
        if not self._epoll.closed:
            self._epoll.modify(number, events)

    def unregister(self, number: int) -> None:
        """Forgets a socket; to be called before it is closed, since its number is used again."""
        del self._handlers[number]
        if not self._epoll.closed:
            self._epoll.unregister(number)

    # -- deadlines, ends and threads ------------------------------------------------------------------

    def at(self, time: float, deadline: Deadline) -> None:
        """Looks at a deadline at a time of trio's clock, or up to ``TICK`` later."""
        time = ceil(time / TICK + MARGIN) * TICK
        is_nearer = not self._deadlines or time < self._deadlines[0][0]
        heappush(self._deadlines, (time, next(self._numbers), deadline))
        if is_nearer:
            self._nearer.set()

    def at_end(self, function: Callable[[], None]) -> None:
        """Calls a function at the end of this pass, in the order of the calls; only while ``in_pass``."""
        self._ends.append(function)

    def again(self, function: Callable[[], None]) -> None:
        """Calls a function in the next pass."""
        self._again.append(function)
        if not self._is_polling and self._wake >= 0:  # as from a deadline: nothing else may begin a pass
            os.eventfd_write(self._wake, 1)

    def soon(self, function: Callable[[], None]) -> None:
        """Calls a function in the next pass, or without one once ``run`` has ended; for any thread."""
        self._calls.append(function)
        with self._lock:  # else the number could be that of another file by now
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)
                return
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._do_calls)

    # -- the tasks ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Calls handlers until cancelled; to be called once."""
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_time)
                # An epoll is readable itself while one of its sockets is: trio watches one file for all.
                number = self._epoll.fileno()
                while True:
                    if self._again or self._left:
                        await trio.lowlevel.checkpoint()
                    else:
                        await trio.lowlevel.wait_readable(number)
                    self._do_pass()
        finally:
            with self._lock:
                os.close(self._wake)
                self._wake = -1
            self._epoll.close()
            self._do_calls()  # a thread may wait for the end of its work

    def _do_pass(self) -> None:
        handlers, again = self._handlers, self._again
        self._again = []
        self.in_pass = self._is_polling = True
        try:
            self._do_calls()
            until = perf_counter() + PASS_SECONDS
            for at, function in enumerate(again):
                function()
                if perf_counter() > until:  # the others go first in the next pass
                    self._again[:0] = again[at + 1 :]
                    break
            until = perf_counter() + PASS_SECONDS
            # The epoll is level-triggered, so what is left over from a pass would be found again; but at
            # the end of the list, behind sockets that have had their turn.
            left, self._left = self._left, []
            found = left or self._epoll.poll(0, MOST)
            for at, (number, events) in enumerate(found):
                handler = handlers.get(number)  # none where a handler of this pass has closed the socket
                if handler is not None:
                    handler.ready(events)
                elif number == self._wake:
                    os.eventfd_read(number)
                    self._do_calls()
                if perf_counter() > until:
                    self._left = found[at + 1 :]
                    break
        finally:
            self._is_polling = False
            self._end_pass()

    def _do_calls(self) -> None:
        calls = self._calls
        for _ in range(len(calls)):
            calls.popleft()()

    def _end_pass(self) -> None:
        try:
            self._ended()
            while self._ends:
                ends, self._ends = self._ends, []
                for function in ends:
                    function()
        finally:
            self.in_pass = False

    async def _keep_time(self) -> None:
        deadlines = self._deadlines
        while True:
            self._nearer = trio.Event()
            with trio.move_on_at(deadlines[0][0] if deadlines else inf):
                await self._nearer.wait()
            now = trio.current_time()
            self.in_pass = True
            try:
                due = []
                # All are taken out first: a function that sets its deadline to now would be called for ever.
                while deadlines and deadlines[0][0] <= now:
                    due.append(heappop(deadlines)[2])
                for deadline in due:
                    deadline.run_if_due(now)
            finally:
                self._end_pass()
