"""An observation: the changes of one pattern, one at a time or by whole epochs.

Both forms are streams (STREAMS.md): ``async for``, ``read`` and ``peek`` work on them, and ``pipe`` takes
them as sources.  ``EpochStream`` pulls whole epochs from the daemon with credit: received epochs are buffered
here, and more are requested as the application takes them.  After a reconnect, the stream is opened again
after the last epoch that came.  Where the daemon cannot continue from there, an observation that follows the
state gets the difference to what was known, with the range of epochs that it stands for; any other one fails
with ``epoch-gone``.

Always: whole epochs, in ascending order, no change twice and no gap in the state; changes of an epoch come in
the order in which they happened; the buffer is bounded by the credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from dataspace.client.assembling import Assembler
from dataspace.errors import Closed, DataspaceError, ProtocolError, Refused
from dataspace.kernel.changes import Change, EpochChanges
from dataspace.loops.here import loop, parking_lot
from dataspace.streams.sources.pulled import Source
from dataspace.streams.stages.protocol import End, EndOfStream, Iteration, Reason
from dataspace.wire import packets as p
from dataspace.wire.observing import ObserveOptions, Policy
from dataspace.wire.windows import ReceiveWindow
from index.patterns.patterns import capture_names
from index.values.values import Value, keys

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession

RESTARTS: Final = frozenset(["epoch-gone", "epoch-lost", "epoch-ahead"])
"""Error codes of an opening that mean: the stream cannot start at that epoch, but the state is available."""

ABORT_SECONDS: Final = 1.0
"""Seconds that leaving a block waits for the daemon to confirm the end."""


@dataclass(frozen=True, slots=True)
class EpochsStatistics:
    """How far behind a reader is: epochs ``held`` here, values ``ready`` at the daemon as far as is known.

    ``came`` counts values since the stream was opened, ``window`` is the number of bytes that may be under
    way.  All changes up to the epoch ``known`` have come, which the daemon reports from time to time; None
    before its first report.
    """

    held: int
    ready: int
    came: int
    window: int
    known: int | None


class EpochStream(Source[EpochChanges], Iteration[EpochChanges]):
    """The whole epochs of one observation: iterate, read, or use it as the source of a pipe."""

    def __init__(self, session: ClientSession, options: ObserveOptions, window: int | None) -> None:
        super().__init__("observation")
        self.names: Final = capture_names(options.pattern)
        self._session = session
        self._options: Final = options
        self._lazy = window == 0
        self._stream: int | None = None
        self._assembler = Assembler(self.names)
        self._costs: Final[deque[tuple[int, int]]] = deque()
        self._pending_items = self._pending_bytes = 0
        self._window: Final = ReceiveWindow(session.budget, window)
        self._ready = 0
        self._peeked = -1
        self._known: Final[dict[Hashable, tuple[Value, ...]]] = {}
        self._restated = self._catching_up = False
        self._since = 0
        self._newest: int | None = options.after
        self._reached: int | None = None
        self._arrival: Final = parking_lot()
        self._over = False
        self._error: DataspaceError | None = None

    # -- the application's side -----------------------------------------------------------------------

    def open(self) -> None:
        """Opens the stream now rather than at the first read; does nothing if it is open."""
        if self._stream is None and not self._over:
            self._open()

    async def peek(self, source: object = None) -> bool:
        """Waits until there is one more epoch, here or at the daemon, and reserves it; requests none."""
        if not self._can_open():
            return False
        while (wanted := self._reserved + len(self._line) + 1) > len(self._held) + self._ready:
            if self._end is not None or self._over:
                return False
            self._ask_to_know(self._window.came + wanted - len(self._held))
            await self._arrival.park()
        if self._end is not None:
            return False
        self._reserved += 1
        return True

    def statistics(self) -> EpochsStatistics:
        """Returns counts, in O(1)."""
        window = self._window
        return EpochsStatistics(len(self._held), self._ready, window.came, window.limits[1], self._told)

    def _can_open(self) -> bool:
        """True if the stream is open or could be opened; an error is kept for the next read."""
        try:
            self.open()
        except DataspaceError:
            return False
        return True

    async def _fetch_once(self) -> None:
        """Waits until something happens.  Only the first reader in line does, so no scope is needed."""
        if self._over:
            self._finish(End(None) if self._error is None else End(_copied(self._error), owed=True))
            self._settle()
        elif self._stream is None:
            await self._fetch()
        else:
            await self._arrival.park()
            self.pace.begin()

    async def _fetch(self) -> None:
        try:
            self.open()
        except DataspaceError as error:
            self._finish(End(error, owed=True))
            self._settle()

    def _drop(self) -> None:
        super()._drop()
        self._costs.clear()
        self._arrival.unpark_all()

    def _close(self, reason: Reason | None) -> None:
        if self._stream is not None and not self._over:
            self._session.budget.leave()
        self._known.clear()

    async def _teardown(self, reason: Reason) -> None:
        """Ends the stream and waits until the daemon has confirmed it: its interest is retracted by then."""
        if self._leave():
            assert self._stream is not None  # it is open
            await self._session.end_stream(self._stream, _said(reason))

    def _indicate(self, reason: Reason) -> None:
        if self._leave():
            assert self._stream is not None  # it is open
            self._session.drop_stream(self._stream, _said(reason))

    def _leave(self) -> bool:
        """Marks the stream as ended; True if the daemon must be notified."""
        opened, self._over = self._stream is not None and not self._over, True
        return opened

    # -- credit ---------------------------------------------------------------------------------------

    def _wanted(self, readers: int) -> None:
        if self._lazy:
            self._want(readers)

    def _took(self, count: int) -> None:
        for _ in range(count):
            items, size = self._costs.popleft()
            if self._window.take(items, size):
                self._want(len(self._line))

    def _want(self, readers: int) -> None:
        """Requests more where too little is on its way, for so many readers where nothing is requested
        ahead."""
        if self._lazy:
            self._window.wanted = readers
        if self._stream is None:
            return
        dry = self._window.spent  # nothing is on its way: waiting for the next pause would add a delay
        totals = self._window.ask((self._pending_items, self._pending_bytes))
        if totals is not None and not self._over:
            self._session.send_on_stream(p.Ask(self._stream, *totals), at_once=dry)

    def _ask_to_know(self, total: int) -> None:
        """Requests a notice when there are so many values, unless they will come by themselves."""
        if self._window.spent and total != self._peeked and self._stream is not None:
            self._peeked = total
            self._session.send_on_stream(p.Peek(self._stream, total))

    # -- the wire's side ------------------------------------------------------------------------------

    def _open(self, number: int | None = None, *, net: bool = False) -> None:
        self._assembler = Assembler(self.names)
        held = sum([items for items, _ in self._costs]), sum([size for _, size in self._costs])
        self._pending_items = self._pending_bytes = self._ready = 0
        self._peeked = -1
        first = self._stream is None
        if first:
            self._session.budget.join()
        if self._lazy:
            self._window.wanted = len(self._line)
        options = _going_on(self._options, self._told, net=net, restated=self._restated)
        credit = self._window.open(held)
        try:
            self._stream = self._session.open_stream(self, options.spec(), *credit, number)
        except DataspaceError:
            if first:
                self._session.budget.leave()
            raise
        self._arrival.unpark_all()  # readers that peek must request it again

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """Resumes from the last epoch that came, unless the new connection is to another space.

        In a session that was resumed nothing is left out.  In a new one, or with a pace, ``conflate`` with
        the state shows the difference only, and so not that facts were retracted and asserted again; other
        policies show each change.
        """
        if not self._over:
            if moved and self._newest not in (None, self._options.after):
                self._catch_up()
            elif moved:
                self._reached = None
            conflates = self._options.policy is Policy.CONFLATE
            follows = conflates and _follows_state(self._options, restated=self._restated)
            self._open(number, net=follows and (not resumed or self._options.pace > 0))

    def reach(self, epoch: int) -> None:
        """Notes that everything up to this epoch has come."""
        self._reached = epoch

    @property
    def _told(self) -> int | None:
        """Returns the epoch up to which all changes are here; None before the first."""
        if self._reached is None or self._newest is None:
            return self._newest if self._reached is None else self._reached
        return max(self._newest, self._reached)

    def _catch_up(self) -> None:
        """Opens the stream with the state, and will show only its difference to the known state."""
        self._since, self._newest, self._reached = self._told or 0, None, None
        self._catching_up = self._restated = True

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """Takes a frame of values, which cost ``size`` bytes of credit; O(their rows).

        Raises ``ProtocolError`` for values that were not requested, or do not follow those before.
        """
        came = self._window.came
        if first != came:
            raise ProtocolError("unexpected", f"stream {self._stream}: values from {first}, expected {came}")
        if not self._window.allows(len(values)):
            raise ProtocolError(
                "limit", f"stream {self._stream}: {came + len(values)} values were not asked for"
            )
        self._pending_bytes += size
        self._window.arrive(len(values), size)
        self._ready = available
        feed = self._assembler.feed
        for value in values:
            self._pending_items += 1
            epoch = feed(value)
            if epoch is not None:
                self._take_in(epoch)
        if self._pending_items and not self._held:  # a reader cannot take a part of an epoch
            self._want(len(self._line))
        if self._arrival:
            self._arrival.unpark_all()

    def know(self, total: int) -> None:
        """Notes that so many values have come or are ready."""
        self._ready = max(0, total - self._window.came)
        self._peeked = -1
        self._arrival.unpark_all()

    def _take_in(self, epoch: EpochChanges) -> None:
        if self._catching_up:
            epoch = self._difference(epoch)
        known = self._known
        for row in epoch.added:
            known[keys(row)] = row
        for row in epoch.removed:
            known.pop(keys(row), None)
        self._newest = epoch.number
        self._held.append(epoch)
        self._costs.append((self._pending_items, self._pending_bytes))
        self._pending_items = self._pending_bytes = 0

    def _difference(self, state: EpochChanges) -> EpochChanges:
        """Returns the changes that lead from the known state to this one."""
        self._catching_up = False
        now = {keys(row): row for row in state.added}
        first = min(self._since + 1, state.number)
        came = [row for at, row in now.items() if at not in self._known]
        went = [row for at, row in self._known.items() if at not in now]
        return EpochChanges(state.number, state.micros, first, self.names, came, [], went)

    def finish(self) -> None:
        """Notes that the daemon has completed the stream."""
        self._end_wire()

    def fail(self, error: DataspaceError) -> None:
        """Notes that the stream has failed, or that the space was closed."""
        newer = self._newest not in (None, self._options.after)
        restarts = isinstance(error, Refused) and error.code in RESTARTS
        if newer and restarts and _may_skip(self._options, restated=self._restated):
            self._catch_up()
            self._open()
            return
        self._error = error
        self._end_wire()

    def _end_wire(self) -> None:
        """Ends the input: nothing more will come, but received values can be read."""
        if not self._over:
            self._over = True
            if self._stream is not None and not self._closed:
                self._session.budget.leave()
        self._arrival.unpark_all()


class Observation(Source[Change], Iteration[Change]):
    """The changes of one pattern.  Iterate over changes, or over ``epochs()``.

    ``async with`` ends it at the end of the block; without, it goes on until it is closed.  Raises
    ``Refused("slow-observer")`` where messages were lost because the reader was too slow: once, then
    ``Aborted``.
    """

    def __init__(self, session: ClientSession, options: ObserveOptions, window: int | None) -> None:
        self._epochs: Final = EpochStream(session, options, window)
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

    # -- as a source ----------------------------------------------------------------------------------

    async def _fetch_once(self) -> None:
        """Fetches one more epoch.  An abort of the epochs ends this too: no scope is needed for it."""
        try:
            await self._fetch()
        except Exception as error:  # noqa: BLE001  # what the epochs have to say; a read will raise it
            self._finish(End.met(error))
        self._settle()

    async def _fetch(self) -> None:
        self._held.extend(await self._epochs.read())

    async def _teardown(self, reason: Reason) -> None:
        await self._epochs.abort(reason)

    def _indicate(self, reason: Reason) -> None:
        self._epochs.abort_nowait(reason)


def _follows_state(options: ObserveOptions, *, restated: bool) -> bool:
    """True if it begins with the state, or has begun with it anew, and does not read the past."""
    past = options.after is not None or (options.as_of is not None and not restated)
    return (options.snapshot or restated) and not past and options.upto is None and not options.durable


def _may_skip(options: ObserveOptions, *, restated: bool) -> bool:
    """True if the net difference of the facts may stand for epochs that the daemon no longer has.

    Not where the past is read, or every epoch or each message is wanted: that ends with ``epoch-gone``.
    """
    news = options.policy in (Policy.CONFLATE, Policy.DROP)
    return news and _follows_state(options, restated=restated)


def _going_on(options: ObserveOptions, newest: int | None, *, net: bool, restated: bool) -> ObserveOptions:
    """Returns how to open it after ``newest``, the last epoch known here, or anew where there is none."""
    if newest is not None:
        net = net or (options.net and newest == options.after)
        return replace(options, snapshot=True, after=newest, as_of=None, net=net)
    snapshot = options.snapshot or restated
    as_of = None if restated else options.as_of
    return replace(options, snapshot=snapshot, after=None, as_of=as_of, net=False)


def _copied(error: DataspaceError) -> DataspaceError:
    """Returns a copy of the error for one stream: other streams may raise the same one."""
    return type(error)(*error.args)


def _said(reason: Reason) -> str:
    return "" if reason is True else f"{type(reason).__name__}: {reason}"


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
        async with loop().open_nursery() as nursery:
            nursery.start_soon(work, *args)
            row = await _next_row(epochs)
            nursery.cancel_scope.cancel()
        return row
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None  # of the work, which is the only task
        raise
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
