"""The lane: one piece of background work at a time, each asker in its turn.

The daemon runs on one thread.  Work that takes long (a replay, a search in the log, a large frame) is cut
into slices, but slices alone are not fair: the event loop runs every task that is ready once in each pass, so
forty tasks with slices of 5 ms make a pass of 200 ms, which everything else waits for.  So background work
passes one token: a single slice runs between two passes of the loop.  Askers take turns whatever number of
pieces each has, and after a slice other tasks have the thread for as long as the slice took, if they can use
it.  Work in a thread takes its turns here as well, since threads share the interpreter; what waits for a
database does not, but only some such threads run at once.

Always: at most one piece of work holds the lane; it passes to the asker that has waited longest since its
last slice; a cancelled piece leaves no gap.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import trio

T = TypeVar("T")

SLICE_SECONDS: Final = 0.005
"""Seconds after which a piece of work lets others have the thread."""

FAR: Final = 4
"""Threads that read a database at once."""

SORTING: Final = 2
"""Threads that sort a state, or wait until another one has: seconds, in which others read the database."""

IDLE_SECONDS: Final = 0.0001
"""A pass of the event loop that takes less than this had nothing to do."""


QUIET: Final = 3
"""Passes one after the other that had nothing to do, after which all input that was there was acted on."""

LONGEST: Final = 2.0
"""Seconds for which ``input_handled`` waits at most, where there is input all the time."""


async def input_handled(clock: Callable[[], float] = perf_counter) -> None:
    """Returns once what the sockets had when it was called was acted on, or after ``LONGEST`` seconds.

    A daemon that stood still (it was stopped, or had too much to do) finds timers that are over beside the
    renewals that waited in its sockets meanwhile.  What ends for want of input is ended after this.
    """
    until, quiet = clock() + LONGEST, 0
    while quiet < QUIET:
        before = clock()
        if before > until:
            return
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if clock() - before < IDLE_SECONDS else 0


@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """Counts: slices so far, pieces of work that wait for one, and the askers that these belong to."""

    slices: int
    waiting: int
    askers: int


class Lane:
    """The token, and the askers that wait for it; ``clock`` counts seconds."""

    def __init__(self, *, clock: Callable[[], float] = perf_counter) -> None:
        self.clock: Final = clock
        self.far: Final = trio.CapacityLimiter(FAR)
        """The threads that read a database."""
        self.sorting: Final = trio.CapacityLimiter(SORTING)
        """The threads that sort states."""
        self._askers: OrderedDict[Hashable, deque[trio.Event]] = OrderedDict()
        self._is_taken = False
        self._slices = 0

    def work(self, asker: Hashable, *, begun: bool = False) -> Work:
        """Returns a piece of work for an asker, such as a connection; ``async with`` waits for its turn.

        Work that ends what was ``begun`` comes before other pieces of the same asker.
        """
        return Work(self, asker, begun=begun)

    def statistics(self) -> LaneStatistics:
        """Returns counts, in O(askers)."""
        waiting = sum(map(len, self._askers.values()))
        return LaneStatistics(self._slices, waiting, len(self._askers))

    async def enter(self, asker: Hashable, *, begun: bool = False) -> None:
        """Waits until it is the turn of this asker; ``leave`` must follow, once.

        A piece that ends ``begun`` work comes before other pieces of the asker.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._is_taken:
            turn, waiting = trio.Event(), self._askers.setdefault(asker, deque())
            (waiting.appendleft if begun else waiting.append)(turn)
            await self._wait(asker, turn)
        self._is_taken = True
        self._slices += 1

    async def pass_on(self, asker: Hashable) -> None:
        """Passes the token on to other askers, if any wait, and returns when it is back.

        It does not go to other pieces of the same asker: begun work ends sooner, and less half-done work is
        in memory.
        """
        if len(self._askers) > (asker in self._askers):
            turn = trio.Event()
            self._askers.setdefault(asker, deque()).appendleft(turn)
            self.leave(asker)
            await self._wait(asker, turn)
        self._slices += 1

    async def _wait(self, asker: Hashable, turn: trio.Event) -> None:
        try:
            await turn.wait()
            await trio.lowlevel.checkpoint_if_cancelled()  # it may be cancelled after its turn has come
        except BaseException:
            if turn.is_set():  # the token came and nobody is there to use it
                self.leave(asker)
            else:
                self._askers[asker].remove(turn)
                if not self._askers[asker]:
                    del self._askers[asker]
            raise

    def leave(self, asker: Hashable) -> None:
        """Passes the token on: to the asker whose turn it is, and among its pieces to the first."""
        if asker in self._askers:
            self._askers.move_to_end(asker)  # now, as others may have come while it had its turn
        if not self._askers:
            self._is_taken = False
            return
        following, waiting = next(iter(self._askers.items()))
        waiting.popleft().set()
        if not waiting:
            del self._askers[following]

    async def yield_thread(self, used: float) -> None:
        """Gives the thread to other tasks for as long as a slice has ``used`` it, if they want it."""
        given = 0.0
        while True:
            before = self.clock()
            await trio.lowlevel.checkpoint()
            spent = self.clock() - before
            given += spent
            if spent < IDLE_SECONDS or given >= used:
                return


class Work:
    """A piece of work that has its turn while it is entered.

    It asks ``is_over`` after each 50 µs of work or so, and calls ``pass_on`` when its slice is over; it waits
    for other things outside of its turn (``leave``, ``enter``).
    """

    __slots__ = ("_asker", "_begun", "_lane", "_since", "_until", "has_turn")

    def __init__(self, lane: Lane, asker: Hashable, *, begun: bool = False) -> None:
        self._lane = lane
        self._begun = begun
        self._asker = asker
        self.has_turn = False
        """True while it may work."""
        self._since = self._until = 0.0

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.leave()

    async def enter(self) -> None:
        """Waits for a turn, unless it is this one's."""
        if not self.has_turn:
            await self._lane.enter(self._asker, begun=self._begun)
            self._begin()

    def _begin(self) -> None:
        self.has_turn = True
        self._since = self._lane.clock()
        self._until = self._since + SLICE_SECONDS

    def leave(self) -> None:
        """Ends the turn; may be called again."""
        if self.has_turn:
            self.has_turn = False
            self._lane.leave(self._asker)

    @property
    def is_over(self) -> bool:
        """True if the slice has taken its time, or the turn was left; 0.1 µs."""
        return not self.has_turn or self._lane.clock() > self._until

    async def pass_on(self) -> None:
        """Yields to other tasks and askers; returns when it is this one's turn again."""
        if not self.has_turn:
            await self.enter()
            return
        await self._lane.yield_thread(self._lane.clock() - self._since)
        self.has_turn = False
        await self._lane.pass_on(self._asker)
        self._begin()

    async def do(self, steps: Generator[None, None, T]) -> T:
        """Runs steps in turns of the lane, and returns their value."""
        async with self:
            return await self.go_on(steps)

    async def go_on(self, steps: Generator[None, None, T]) -> T:
        """Runs steps in this turn and the following ones, and keeps the turn; returns their value."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("T", end.value)
            if self.is_over:
                await self.pass_on()

    async def read(self, question: Callable[[], T], *, far: bool, sorts: bool = False) -> T:
        """Returns the answer to a question about a log, from a thread, and has the turn then.

        A ``far`` log may take long, so the turn is left to others until the answer is there; one that
        ``sorts`` a state takes longer.
        """
        if not (far or sorts):
            await self.enter()
            return await trio.to_thread.run_sync(question)
        self.leave()
        answer = await trio.to_thread.run_sync(
            question, limiter=self._lane.sorting if sorts else self._lane.far
        )
        await self.enter()
        return answer

    async def finish(self) -> None:
        """Ends the turn, after other tasks had the thread for as long as this one."""
        try:
            if self.has_turn:
                await self._lane.yield_thread(self._lane.clock() - self._since)
        finally:
            self.leave()

    def pass_on_from_thread(self) -> None:
        """Does ``pass_on`` for a thread that works in this turn, if the slice is over; blocks."""
        if self.is_over:
            trio.from_thread.run(self.pass_on)
