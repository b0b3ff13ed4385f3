"""Group writer: brings what was queued to the disk, as much at a time as has gathered.

A flush of the disk takes as long as dozens of turns or steps, so everything that was queued while one
transaction was written goes into the next one.  The log of a space and the journal of topics are both written
this way; they differ in what one entry is and in what follows once it is on disk.

A thread writes, since a flush may take long.  Where it takes no longer than to wake a thread, as in memory or
with a cache that survives a loss of power, the loop's own thread writes small groups, until a write is slow.

Always: one group is written at a time; entries are written in the order in which they were queued, and stay
in the queue until their transaction is on disk; a full disk is tried again, with less at a time; after any
other failure of the disk nothing more is accepted, and every waiting task gets ``LogFailed``.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import perf_counter, time_ns
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import trio

from dataspace.errors import Closed
from relay.store.durations import Durations
from relay.store.errors import LogFailed

logger = logging.getLogger("dataspace")

QUICK_SECONDS: Final = 0.0002
SLOW_SECONDS: Final = 0.001
"""Seconds of a write that is worth no thread, and of one after which the thread writes again."""

ENTRY_SECONDS: Final = 0.000005
"""Seconds of work for each entry of a group; the rest of a write may be a wait for the disk."""

LEAST_TRIED: Final = 16
MOST_TRIED: Final = 4096
"""Small groups after which the loop's thread tries one again; twice as many each time in vain."""

STREAK: Final = 256
"""Quick writes in a row after which a slow one is taken for an exception."""

SMALL_BYTES: Final = 64 << 10
"""Bytes of a group that another thread may not have to write."""

RETRY_SECONDS: Final = 0.5
"""Seconds between two attempts to write to a full disk."""

E = TypeVar("E")
G = TypeVar("G")


class GroupWriter(ABC, Generic[E]):
    """A queue of entries, and the task that writes them.

    A subclass appends to ``_waiting``, sets ``_arrived``, and implements ``_write_group``.
    """

    NAME: ClassVar[str]
    """The name of the written things, for messages."""

    REFUSED: ClassVar[str]
    """The name of the things that are not accepted while the disk is full, for messages."""

    def __init__(self, portion: int) -> None:
        """Takes the most that one transaction may write, in units of the subclass."""
        self.failure: LogFailed | None = None
        """Why nothing can be written any more."""
        self.full: LogFailed | None = None
        """Why queued entries wait for free space on the disk; None while they do not."""
        self._waiting: deque[E] = deque()
        self._arrived = trio.Event()
        self._settled = trio.lowlevel.ParkingLot()
        self._closing = trio.Event()
        self._over = trio.Event()
        self._is_over = False
        self._running = False
        self._whole_portion: Final = portion
        self._portion = portion
        self._groups = 0
        self.durations: Final = Durations()
        """How long the groups took that are on disk."""
        self.writing_since = 0.0
        """When the present write began, as of ``perf_counter``; 0 while there is none."""
        self._began = 0.0
        self.group_began = self.group_size = 0
        """When the latest write began, in nanoseconds since 1970, and the entries in it."""
        self.is_quick = True
        """True while small groups are written by the loop's own thread."""
        self._count, self._needed = 0, LEAST_TRIED
        self._writer: Final = WriteThread(f"writer of {self.NAME}")

    # -- for those that submit ------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises ``LogFailed`` or ``Closed`` if nothing can be submitted any more; O(1)."""
        if self.failure is not None:
            raise self.failure
        if self._is_over:
            raise Closed(f"{self.NAME} is closed")

    async def _wait_group(self) -> None:
        """Waits for the next group, or for the disk to be full.  Raises as ``check_open``."""
        self.check_open()
        await self._settled.park()

    # -- the task -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Writes what is submitted, until ``close``.  Raises ``LogFailed`` when the disk fails."""
        if self._running:  # by ``close``, which came before this task had begun
            await self._over.wait()
            return
        self._running = True
        try:
            while not self._finished():
                if self.failure is not None:
                    raise self.failure
                await self._work()
        except LogFailed as failure:
            self.failure = failure
            raise
        finally:
            self._writer.close()  # first: a task that is woken may close the file that the thread writes
            self._is_over = True
            self._over.set()
            self._settled.unpark_all()

    async def close(self) -> None:
        """Ends ``run`` once everything queued is on disk, or at once if the disk is full; returns then."""
        self._closing.set()
        self._arrived.set()
        if self._running:
            await self._over.wait()
        else:
            await self.run()

    def _finished(self) -> bool:
        """True if ``run`` has to end."""
        if not self._closing.is_set():
            return False
        if self.full is not None:
            logger.warning(
                "%s: %d queued writes, none of them acknowledged, are discarded: %s",
                self.NAME,
                len(self._waiting),
                self.full,
            )
            return True
        return not self._waiting

    async def _work(self) -> None:
        """Writes one group, or waits until there is something to write."""
        if self._waiting:
            await self._write_group()
        else:
            await self._wait_arrival()

    async def _wait_arrival(self) -> None:
        self._arrived = trio.Event()
        await self._arrived.wait()

    @abstractmethod
    async def _write_group(self) -> None:
        """Writes the first entries of ``_waiting``, removes them from it and calls ``_group_done``."""

    async def _on_disk(self, write: Callable[[Sequence[G]], None], group: Sequence[G]) -> bool:
        """Calls ``write`` in a thread; returns False if the disk is full, after a pause.

        Raises ``LogFailed`` if the disk fails for good.
        """
        self._begins(len(group))
        try:
            if self._may_write_here(group):
                # No whole checkpoint: another task would run between a turn and its write, each time.
                await trio.lowlevel.checkpoint_if_cancelled()
                write(group)
            else:
                await self._writer.run(write, group)
        except LogFailed as failure:
            await self._wait_after(failure, group)
            return False
        finally:
            self.writing_since = 0.0
        self._is_written()
        return True

    def _begins(self, size: int) -> None:
        """Notes that a group of so many entries is written now."""
        self.writing_since = self._began = perf_counter()
        self.group_began, self.group_size = time_ns(), size

    def _is_written(self) -> None:
        """Notes that the group is on disk."""
        self.durations.add(perf_counter() - self._began)
        if self.full is not None:
            logger.warning("%s: there is free space on the disk again", self.NAME)
        self.full, self._portion = None, self._whole_portion

    def _may_write_here(self, _group: Sequence[Any]) -> bool:
        """True if the loop's own thread may write a group, since that does not take long."""
        return False

    async def _wait_after(self, failure: LogFailed, group: Sequence[Any]) -> None:
        """Pauses where the disk is full; raises any other failure."""
        if not failure.full:
            raise failure
        self.writing_since = 0.0
        await self._wait_for_space(failure, self._size(group))

    def _judge(self, seconds: float, entries: int) -> None:
        """Notes how long a small group took to be written, and chooses the thread for the next one."""
        self._count += 1
        if not self.is_quick:
            if self._count >= self._needed:
                self.is_quick, self._count = True, 0
            return
        # The work for each entry would be the same in a thread, so only the wait for the disk counts.
        seconds -= ENTRY_SECONDS * entries
        if seconds <= QUICK_SECONDS:
            if self._count == STREAK:
                self._needed = LEAST_TRIED
        elif seconds > SLOW_SECONDS or self._count < LEAST_TRIED:
            self.is_quick, self._count, self._needed = False, 0, min(2 * self._needed, MOST_TRIED)
        else:
            self._count = 0  # the next one decides

    async def _wait_for_space(self, failure: LogFailed, tried: int) -> None:
        """Wakes the tasks that wait for the backlog to shrink; the next attempt is half as large."""
        if self.full is None:
            logger.error("%s; %s refused until there is free space", failure, self.REFUSED)
        self.full = failure
        # A smaller group may fit on the disk, and what is written can be acknowledged.
        self._portion = max(1, min(self._portion, tried) // 2)
        self._settled.unpark_all()
        with trio.move_on_after(RETRY_SECONDS):
            await self._closing.wait()

    def _size(self, group: Sequence[Any]) -> int:
        """Returns the size of a group in the units of ``portion``."""
        return len(group)

    def _group_done(self) -> None:
        """Counts a group that is on disk, and wakes the tasks that wait for one."""
        self._groups += 1
        self._settled.unpark_all()


# -- the thread of a writer ------------------------------------------------------------------------
#
# Trio's own pool runs functions for all callers, with limits, contexts and names of threads. For the writer
# of a log, which calls it for each group, that was a third of what a single turn cost: this hands over with
# one queue and takes back with one wake. Functions run one after the other; a task that waits for one is not
# cancelled meanwhile, since what is half written cannot be left.


Resume: TypeAlias = Callable[[BaseException | None], object]
"""Called by the thread with what a function has raised, if anything; must not raise."""


class WriteThread:
    """The thread; it begins with the first function and ends with ``close``."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._due: SimpleQueue[tuple[Callable[[], object], Resume] | None] = SimpleQueue()
        self._started: threading.Thread | None = None

    async def run(self, function: Callable[..., object], *args: Any) -> None:
        """Returns when the function has returned; raises what it raises.  Checks first for cancellation."""
        await trio.lowlevel.checkpoint_if_cancelled()
        task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
        failures: list[BaseException | None] = []

        def resume(failure: BaseException | None) -> None:
            failures.append(failure)
            call_in_loop(token, partial(trio.lowlevel.reschedule, task))

        self.begin(partial(function, *args), resume)
        await trio.lowlevel.wait_task_rescheduled(_stay)
        if failures[0] is not None:
            raise failures[0]

    def begin(self, work: Callable[[], object], resume: Resume) -> None:
        """Calls a function in the writer's thread, then ``resume`` with its exception or None."""
        if self._started is None:
            self._started = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._started.start()
        self._due.put((work, resume))

    def close(self) -> None:
        """Ends the thread once all functions have returned.  The next one begins another thread."""
        if self._started is not None:
            self._due.put(None)
            self._started.join()  # the file is closed next
            self._started = None

    def _serve(self) -> None:
        while self._do_next():
            pass

    def _do_next(self) -> bool:
        """Returns False at the end; a function of its own, so that nothing is kept of the last group."""
        due = self._due.get()
        if due is None:
            return False
        work, resume = due
        failure: BaseException | None = None
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # it is raised where the function was called
            failure = error
        resume(failure)
        return True


def call_in_loop(token: trio.lowlevel.TrioToken, function: Callable[[], object]) -> None:
    """Calls a function in the loop, from another thread; does nothing once the loop has failed."""
    with suppress(trio.RunFinishedError):
        token.run_sync_soon(function)


def _stay(_raise_cancel: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
