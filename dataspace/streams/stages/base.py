"""The common part of all stages: a line of requests, an end, and its teardown.

Sources, throughs and sinks differ in where their values come from.  How a stage ends is the same in all, and
it is here: the first cause is kept, waiting reads are answered before the abort is confirmed, upstream is
aborted once, and what the stage holds is released once, at the first end that it sees.

Always: after ``_end`` is set it stays; ``_close`` runs exactly once; upstream gets one end from this stage.
(pull-stream, layers 2 and 3; Promistream, "The abort function".)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import Enum
from time import perf_counter
from typing import Any, ClassVar, Final

from dataspace.errors import UsageError
from dataspace.loops.here import loop
from dataspace.loops.primitives import Nursery, Waker
from dataspace.streams.stages.protocol import SIGNALS, VERSION, End, Reason, Upstream, check_reason, own_error


class Kind(Enum):
    """The position that a stage can have in a pipe."""

    SOURCE = "source"
    THROUGH = "through"
    SINK = "sink"


class Base:
    """The end of a stage.  Subclasses define where values come from, and override the hooks below."""

    promistream_version: ClassVar[int] = VERSION
    kind: ClassVar[Kind]
    needs_tasks: ClassVar[bool] = False
    """True if the stage works in tasks of its own, which live in the block of its pipe."""

    description: str

    def __init__(self, description: str) -> None:
        self.description = description
        self._line: Final = Line()
        self._end: End | None = None
        self._closed = False
        self._bound: object = None
        self._nursery: Nursery | None = None

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.description}>"

    # -- hooks ----------------------------------------------------------------------------------------

    def _close(self, reason: Reason | None) -> None:
        """Releases what the stage holds; called once, at the first end (None: the stream came to its end)."""

    async def _teardown(self, reason: Reason) -> None:
        """Does what an abort must wait for beside that; not called for an indication."""

    def _indicate(self, reason: Reason) -> None:
        """Does the same for an indication, without waiting."""

    def _drop(self) -> None:
        """Drops what is buffered and wakes waiting tasks, because downstream wants no more."""

    # -- being bound ----------------------------------------------------------------------------------

    def bind(self, pipe: object) -> None:
        """Binds the stage to one pipe; raises ``UsageError`` if it is in another one."""
        if self._bound is not None:
            raise UsageError(f"{self.description} is in a pipe already; make another, or release() that one")
        self._bound = pipe

    def release(self, pipe: object) -> None:
        """Releases the stage, which can then be bound again."""
        if self._bound is pipe:
            self._bound = None

    def enter(self, nursery: Nursery | None) -> None:
        """Gives the stage a nursery for its tasks, or takes it back."""
        self._nursery = nursery

    def _tasks(self) -> Nursery:
        """Returns the nursery, or raises an error that explains how to get one."""
        if self._nursery is None:
            raise UsageError(f"{self.description} works in tasks of its own: read it in `async with pipe(…)`")
        return self._nursery

    # -- the end --------------------------------------------------------------------------------------

    def _finish(self, end: End) -> bool:
        """Ends the stage, unless it has ended; True if this was the first cause."""
        first = self._end is None
        if first:
            self._end = end
        if end.dropped:
            self._drop()
        return first

    def _ended(self) -> Exception:
        """Returns the error that a read of the ended stage must raise."""
        assert self._end is not None  # set before every call
        return self._end.next()

    def _close_once(self) -> None:
        if not self._closed and self._end is not None:
            self._closed = True
            try:
                self._close(self._end.reason)
            except SIGNALS as signal:
                raise own_error(signal, self.description) from signal
            except Exception:
                raise
            except BaseException:
                if self._end.reason is None:
                    self._end = End(True)  # so that it does not look complete
                raise

    async def _end_by_abort(self, reason: Reason, source: Upstream[Any] | None) -> None:
        """Handles an abort from downstream: aborts upstream, waits for open reads, and answers in its
        turn."""
        check_reason(reason)
        ticket = self._line.join()
        try:
            if self._finish(self._end_for(reason)):
                await self._pass_on(reason, source)
            await self._line.wait_turn(ticket)
        finally:
            self._line.leave(ticket)

    def _end_for(self, reason: Reason) -> End:
        """Returns the end for an abort from downstream."""
        return End(reason, dropped=True)

    async def _pass_on(self, reason: Reason, source: Upstream[Any] | None) -> None:
        """Aborts upstream first, so that it does not wait for a slow teardown; raises all errors at the end.

        When interrupted (by a cancellation, or an exception that no stage catches), it indicates the rest
        instead of waiting for it, so that the stages behind a slow one are closed as well.
        """
        errors: list[Exception] = []
        if source is not None:
            try:
                await source.abort(reason)
            except Exception as error:  # noqa: BLE001  # raised below: the teardown must not be left out
                errors.append(error)
            except BaseException:
                self._indicate_all(reason, source)
                raise
        try:
            self._close_once()
            await self._teardown(reason)
        except Exception as error:  # noqa: BLE001  # as above
            errors.append(error)
        except BaseException:
            self._indicate_all(reason, None)
            raise
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{self.description} could not end in order", errors)

    def _end_by_indication(self, reason: Reason, source: Upstream[Any] | None) -> None:
        """Handles an abort whose caller does not wait; runs to its end at once."""
        check_reason(reason)
        if self._finish(self._end_for(reason)):
            self._indicate_all(reason, source)

    def _indicate_all(self, reason: Reason, source: Upstream[Any] | None) -> None:
        """Indicates the end upstream and to what the stage holds, whatever one of them raises."""
        try:
            if source is not None:
                source.abort_nowait(reason)
        finally:
            try:
                self._close_once()
            finally:
                self._indicate(reason)

    def _interrupt(self, source: Upstream[Any] | None) -> None:
        """Handles an exception in own code that is no ``Exception`` (``KeyboardInterrupt``).

        The value in work is lost, so the stream must not go on as if nothing had happened.
        """
        self._end_by_indication(True, source)

    async def _fail(self, error: Exception, source: Upstream[Any] | None) -> None:
        """Handles an error in this stage: ends it, fails upstream first, and keeps the error for a read."""
        error = own_error(error, self.description)
        if self._finish(End(error, owed=True)):
            try:
                await self._pass_on(error, source)
            except Exception as further:  # noqa: BLE001  # the first error is the one to raise
                error.add_note(f"and ending what is before {self.description} failed as well: {further!r}")


# -- the line of requests --------------------------------------------------------------------------
#
# Several tasks may read one stage at once, and tasks that become ready together run in any order. Each
# request takes a ticket when it is made; a stage that can do one thing at a time lets a reader in when its
# turn has come, and a stage that lets several through holds each at the exit until earlier ones have left.
#
# A request that leaves wakes the next, which runs after it and not beside it: so what follows a read in its
# own task, up to its next wait, is done before the next answer is given. It is no lock, because a lock costs
# 3 µs for each value, and this, without other requests, two additions.
#
# ``left`` is the ticket whose turn it is; a ticket that is withdrawn delays no other.


class Line:
    """Tickets in order.  Hot paths update ``entered`` and ``left`` themselves while there is no other
    request."""

    __slots__ = ("_parked", "_withdrawn", "entered", "left")

    def __init__(self) -> None:
        self.entered = 0
        """The next ticket."""
        self.left = 0
        """The ticket whose turn it is."""
        self._parked: dict[int, Waker] = {}
        self._withdrawn: set[int] = set()

    def __len__(self) -> int:
        """Returns how many requests have not been answered."""
        return self.entered - self.left - len(self._withdrawn)

    def join(self) -> int:
        """Returns a ticket."""
        ticket = self.entered
        self.entered = ticket + 1
        return ticket

    async def wait_turn(self, ticket: int) -> None:
        """Returns when it is this ticket's turn; cancelled, the ticket is withdrawn and must not leave."""
        if self.left != ticket:
            await self._wait(ticket, _nothing)

    async def wait_exit(self, ticket: int, keep: Callable[[], None]) -> None:
        """Returns at the turn of a request that has its answer already; if cancelled, ``keep()`` is called at
        once.

        ``keep`` puts the answer where a later request finds it.  It runs before any other task does, so that
        no request can pass between the withdrawal and the keeping.
        """
        if self.left != ticket:
            await self._wait(ticket, keep)

    async def _wait(self, ticket: int, keep: Callable[[], None]) -> None:
        def withdraw() -> None:
            del self._parked[ticket]
            self._withdrawn.add(ticket)
            keep()

        def passed() -> None:  # it was its turn already, which the next one gets
            keep()
            self.leave(ticket)

        waker = self._parked[ticket] = loop().waker()
        await waker.wait(withdraw, passed)

    def leave(self, ticket: int) -> None:
        """Notes that a request is answered, or withdrawn before its turn; no effect for a request that has
        left; O(1)."""
        if ticket != self.left:
            if ticket > self.left:
                self._withdrawn.add(ticket)
            return
        left = ticket + 1
        while left in self._withdrawn:
            self._withdrawn.discard(left)
            left += 1
        self.left = left
        waker = self._parked.pop(left, None)
        if waker is not None:
            waker.wake()


def _nothing() -> None:
    """Keeps nothing: the request has no answer yet."""


# -- readable streams ------------------------------------------------------------------------------
#
# Streams that read streams check them where they are made, so that a mistake is found there and not by a
# reader: is it a stream, has it a source, and does it fit on Python's stack? A stage that does not say what
# it is is taken at its shape.


FRAMES: Final = 4
"""Frames of Python's stack that an abort or an indication takes in one stage at the most."""

JOIN_FRAMES: Final = 9
"""The same for a source that reads another stream."""

SPARE: Final = 200
"""Frames of Python's recursion limit that are left for what reads a pipe and what its stages call."""

READABLE: Final = ("read", "peek", "abort", "abort_nowait")


def check_stream(stream: Any, where: str) -> None:
    """Raises ``UsageError`` for what cannot be read as it stands: no stream, or stages without a source."""
    missing = [name for name in READABLE if not hasattr(stream, name)]
    if missing:
        raise UsageError(
            f"{where} reads streams, and {stream!r:.80} is none: it has no {missing[0]}; "
            "of an iterable, values(…) makes a stream"
        )
    if lacks_source(stream):
        raise UsageError(f"{where} reads streams that have a source, and {stream.description} has none")


def lacks_source(stage: Any) -> bool:
    """True if a stage needs another before it; a stage that does not say is taken for a source."""
    kind = getattr(stage, "kind", Kind.SOURCE)
    return kind is Kind.THROUGH or (kind is Kind.SINK and not getattr(stage, "whole", False))


def frames_of(stream: Any) -> int:
    """How deep Python's stack gets at the most while a stream is read, peeked or aborted.

    A stage of this package states it in ``frames``; for another, the same depth is assumed.
    """
    frames = getattr(stream, "frames", FRAMES)
    return frames if isinstance(frames, int) else FRAMES


def check_depth(frames: int, what: str) -> None:
    """Raises ``UsageError`` where streams within streams would not fit on Python's stack."""
    deepest = sys.getrecursionlimit() - SPARE
    if frames > deepest:
        raise UsageError(
            f"{what} would take {frames} frames of Python's stack, and {deepest} fit below its limit: "
            "make one stage of several"
        )


def deeper(streams: Iterable[Any], where: str) -> int:
    """The ``frames`` of a source that reads other streams; ``UsageError`` where they are too many."""
    frames = JOIN_FRAMES + max(map(frames_of, streams), default=0)
    check_depth(frames, f"{where} of streams within streams")
    return frames


def check_streams(streams: Iterable[Any], where: str) -> None:
    """``check_stream`` for each of several streams; no stream may come twice."""
    seen: set[int] = set()
    for stream in streams:
        check_stream(stream, where)
        if id(stream) in seen:
            raise UsageError(
                f"{where} was given the same stream twice: {stream!r:.80}; fork_mirror makes two of one"
            )
        seen.add(id(stream))


# -- paces -----------------------------------------------------------------------------------------
#
# trio requires of every async call a checkpoint, at which other tasks run. For a read of a value that is at
# hand this would cost many times the read itself (2.8 µs against a few tenths), so a stage has a checkpoint
# only from time to time: after ``LONGEST`` values, and sooner where the values take long, so that about
# ``SECONDS`` pass in between. The length of a run is between 1 and ``LONGEST``; it doubles while runs are
# short in time and halves when one was not.


LONGEST: Final = 128
"""Values between two checkpoints at the most."""

SECONDS: Final = 0.002
"""Seconds that a run of values should take at the most."""


class Pace:
    """The length of the runs of one stage, in values; ``passed`` is counted by the code that answers
    reads."""

    __slots__ = ("_since", "passed", "run")

    def __init__(self) -> None:
        self.run = 1
        self.passed = 0
        self._since = perf_counter()

    async def rest(self) -> None:
        """Runs other tasks and sets the length of the next run.  A full checkpoint: may be cancelled."""
        self.adapt()
        await loop().checkpoint()
        self.begin()

    def begin(self) -> None:
        """Starts a new run after a wait, in which other tasks ran; the wait is not a part of it."""
        self.passed = 0
        self._since = perf_counter()

    def adapt(self) -> None:
        """Sets the length of the next run by how long this one took."""
        if perf_counter() - self._since > SECONDS:
            self.run = max(1, self.run // 2)
        elif self.run < LONGEST:
            self.run *= 2
