"""An observation: the changes of one pattern, one at a time or by whole epochs.

Both forms are streams (STREAMS.md): ``async for``, ``read`` and ``peek`` work on them, and ``pipe`` takes
them as sources.  ``each`` calls a function instead.  How epochs come is in ``epoch_streams.py``.

Always: no change twice and no gap in the state; changes of an epoch come in the order in which they happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypedDict

from dataspace.client.epoch_streams import ITERATE, EpochStream, Handover
from dataspace.client.epochs.tables import places_of
from dataspace.errors import Closed
from dataspace.kernel.changes import Change, EpochChanges
from dataspace.loops.blocks import AsyncOnly
from dataspace.loops.here import loop
from dataspace.loops.lone import lone_nursery
from dataspace.streams.sources.pulled import Source
from dataspace.streams.stages.functions import check_sync
from dataspace.streams.stages.protocol import End, EndOfStream, Iteration, Reason
from dataspace.wire.observing import ObserveOptions
from index.values.values import Value

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession

ABORT_SECONDS: Final = 1.0
"""Seconds that leaving a block waits for the daemon to confirm the end."""


class Observing(TypedDict, total=False):
    """Options of ``observe``."""

    snapshot: bool
    after: int | None
    upto: int | None
    quiet: bool
    durable: bool
    policy: str
    window: int | None
    as_of: int | None
    identity: str
    net: bool
    progress: bool
    pace: float | None
    by: str | Sequence[str] | None


class Observation(AsyncOnly, Source[Change], Iteration[Change]):
    """The changes of one pattern.  Iterate over changes, or over ``epochs()``.

    ``async with`` ends it at the end of the block; without, it goes on until it is closed.  Raises
    ``Refused("slow-observer")`` where messages were lost because the reader was too slow: once, then
    ``Aborted``.
    """

    _usage = "async for change in space.observe(…)"

    def __init__(
        self,
        session: ClientSession,
        options: ObserveOptions,
        window: int | None,
        by: str | Sequence[str] | None = None,
    ) -> None:
        self._epochs: Final = EpochStream(session, options, window)
        if by is not None:
            self._epochs.by = tuple(places_of(by, self._epochs.names))
        super().__init__("observation", pace=self._epochs.pace)
        self.pattern: Final = options.pattern

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the captures, in order."""
        return self._epochs.names

    def epochs(self) -> EpochStream:
        """Returns the whole epochs; by default the first one is the state (it may have no rows)."""
        return self._epochs

    async def next_epoch(self) -> EpochChanges | None:
        """Returns the next whole epoch, or None when the observation is complete."""
        try:
            return await self._epochs.read()
        except EndOfStream:
            return None

    async def each(self, function: Callable[[Change], object]) -> None:
        """Calls a plain function with each change where it is decoded; returns at the end of the observation.

        The function gets what ``async for`` gives, at a lower cost.  It runs in the task of the
        connection, so it must be quick.  More is requested once it has returned.  An exception of the
        function ends the observation and is raised here.  Cancelled, this leaves the next changes to the next
        reader.  Raises ``UsageError`` for an asynchronous function.
        """
        check_sync(function, "each", instead=ITERATE)
        ticket = self._line.join()
        await self._line.wait_turn(ticket)
        handover = Handover(function, self._held, split=True)
        try:
            self._reserved = 0
            await self._epochs.hand_over(handover)
        except Exception as error:  # noqa: BLE001  # what the epochs have to say; raised below
            self._finish(End.met(error))
        else:
            failure = handover.error
            self._finish(End(failure if isinstance(failure, Exception) else True, dropped=True))
        finally:
            self._line.leave(ticket)
        self._settle()
        if handover.error is not None:
            raise handover.error
        end = self._ended()
        if not isinstance(end, EndOfStream):
            raise end

    def open(self) -> None:
        """Opens the observation now rather than at the first read; does nothing if it is open."""
        self._epochs.open()

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, Exception):
            with loop().move_on_after(ABORT_SECONDS, shield=True):
                await self.abort(True if error is None else error)
        self.close()

    async def aclose(self) -> None:
        """Ends the observation and waits until its interest is retracted."""
        await self.abort(True)

    def close(self) -> None:
        """Ends the observation without waiting."""
        self.abort_nowait(True)

    async def read(self, source: object = None) -> Change:
        """Returns the next change; raises ``EndOfStream`` at the end."""
        change = self._at_hand()
        return await super().read() if change is None else change

    async def __anext__(self) -> Change:
        change = self._at_hand()  # here too: a read would be one more coroutine for each change
        return await super().__anext__() if change is None else change

    def _at_hand(self) -> Change | None:
        """Takes the next change if nobody else reads and no wait is due; else None."""
        held, line, pace = self._held, self._line, self.pace
        if line.entered != line.left or pace.passed + 1 >= pace.run:
            return None
        while not held:
            epoch = self._epochs.take_nowait()
            if epoch is None:
                return None
            pace.passed += 1
            held.extend(epoch.listed())
        pace.passed += 1
        if self._reserved:
            self._reserved -= 1
        return held.popleft()

    # -- as a source ----------------------------------------------------------------------------------

    async def _fetch_once(self) -> None:
        """Fetches one more epoch.  An abort of the epochs ends this too: no scope is needed for it."""
        try:
            await self._fetch()
        except Exception as error:  # noqa: BLE001  # what the epochs have to say; a read will raise it
            self._finish(End.met(error))
        self._settle()

    async def _fetch(self) -> None:
        self._held.extend((await self._epochs.read()).listed())

    async def _teardown(self, reason: Reason) -> None:
        await self._epochs.abort(reason)

    def _indicate(self, reason: Reason) -> None:
        self._epochs.abort_nowait(reason)


# -- waiting ---------------------------------------------------------------------------------------


async def first(observation: Observation, timeout: float | None) -> tuple[Value, ...]:
    """Returns the captures of a fact that matches, or of the first fact or message that comes, and closes the
    observation.

    Raises ``TimeoutError`` after so many seconds.
    """
    if timeout is None:
        return await _first(observation)
    with loop().move_on_after(timeout):
        return await _first(observation)
    raise TimeoutError(f"nothing has matched within {timeout:g} s")


async def react_until(
    observation: Observation, work: Callable[..., Awaitable[object]], *args: object
) -> tuple[Value, ...]:
    """Runs ``work(*args)`` until something matches, closes the observation, and returns the captures.

    The work is not begun if there is a match already, and has ended, by a cancellation, when this returns.
    """
    try:
        epochs = observation.epochs()
        state = await anext(epochs, None)
        if state is not None and state.added:
            return state.added[0]
        async with lone_nursery() as nursery:
            nursery.start_soon(work, *args)
            row = await _next_row(epochs)
            nursery.cancel_scope.cancel()
        return row
    finally:
        observation.close()


async def _first(observation: Observation) -> tuple[Value, ...]:
    try:
        return await _next_row(observation.epochs())
    finally:
        observation.close()


async def _next_row(epochs: AsyncIterator[EpochChanges]) -> tuple[Value, ...]:
    """Returns the captures of the next fact or message."""
    async for epoch in epochs:
        for row in [*epoch.added, *epoch.messages]:
            return row
    raise Closed("the observation has ended")
