"""The whole epochs of one observation: a stream over a connection that may be lost.

``EpochStream`` pulls whole epochs from the daemon with credit: received epochs are buffered here, and more
are requested as the application takes them.  After a reconnect, the stream is opened again after the last
epoch that came.  Where the daemon cannot continue from there, an observation that follows the state gets the
difference to what was known, with the range of epochs that it stands for; any other one fails with
``epoch-gone``.

With ``each`` nothing is buffered: a function is called where epochs are decoded, for at most ``VISIT``
seconds on end, and the task of ``each`` does the rest.

Always: whole epochs, in ascending order, no change twice and no gap in the state; changes of an epoch come in
the order in which they happened; the buffer is bounded by the credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from dataspace.client.epochs.assembling import Assembler
from dataspace.client.epochs.reopening import RESTARTS, copied, follows_state, going_on
from dataspace.client.epochs.tables import RowTable, StateTable
from dataspace.errors import DataspaceError, ProtocolError, Refused
from dataspace.kernel.changes import EpochChanges
from dataspace.loops.blocks import AsyncOnly
from dataspace.loops.here import loop, parking_lot
from dataspace.loops.primitives import Event
from dataspace.streams.sources.pulled import Source
from dataspace.streams.stages.functions import check_plain, check_sync
from dataspace.streams.stages.protocol import End, EndOfStream, Iteration, Reason, own_error
from dataspace.wire import packets as p
from dataspace.wire.observing import ObserveOptions, Policy
from dataspace.wire.windows import ReceiveWindow
from index.patterns.patterns import capture_names
from index.values.values import Value

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession

VISIT: Final = 0.002
"""Seconds after which ``each`` lets other tasks run: a slow function must not delay the heartbeat."""

ITERATE: Final = "use async for instead"
"""What the errors of ``each`` recommend for an asynchronous function."""


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


class Handover:
    """One call of ``each``: its function, and the received items that the function has not been called with.

    ``split`` if the items are the changes of epochs, else the items are the epochs.
    """

    __slots__ = ("due", "error", "function", "items", "split", "wake")

    def __init__(self, function: Callable[[Any], object], items: deque[Any], *, split: bool) -> None:
        self.function: Final = function
        self.items: Final = items
        self.split: Final = split
        self.due: tuple[int, int] | None = None
        """The cost of the epoch in work, whose credit is released when the function has returned."""
        self.error: BaseException | None = None
        """The exception of the function."""
        self.wake: Event = loop().event()
        """Set when the task of ``each`` must continue."""


class EpochStream(AsyncOnly, Source[EpochChanges], Iteration[EpochChanges]):
    """The whole epochs of one observation: iterate, read, or use it as the source of a pipe."""

    _usage = "async for epoch in space.observe(…).epochs()"

    def __init__(
        self,
        session: ClientSession,
        options: ObserveOptions,
        window: int | None,
        table: StateTable | None = None,
    ) -> None:
        super().__init__("observation")
        self.names: Final = capture_names(options.pattern)
        self.by: tuple[int, ...] = ()
        """The places of the captures that are a key, by which changes know what they replace."""
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
        self._table: Final[StateTable] = RowTable() if table is None else table
        """The state up to the newest epoch that came."""
        self._restated = self._catching_up = False
        self._since = 0
        self._newest: int | None = options.after
        self._reached: int | None = None
        self._arrival: Final = parking_lot()
        self._over = False
        self._error: DataspaceError | None = None
        self._each: Handover | None = None
        """Gets epochs as they are decoded, while its task waits."""
        self._wire: Final = StreamWire(self)
        self._soon: Callable[[Callable[[], object]], object] | None = None
        """Calls a function in the loop of the connection, from any thread."""

    def __del__(self) -> None:
        """Ends a stream that nothing can read any more, as after ``async for … : break``.

        It runs wherever the last reference goes, which may be another thread or amid another call.
        """
        stream, soon = getattr(self, "_stream", None), getattr(self, "_soon", None)
        if stream is not None and soon is not None and not self._over:
            self._wire.last_seen = self.seen
            with suppress(RuntimeError):  # the loop has ended, and with it the connection
                soon(partial(_forget, self._session, stream, self._wire))

    # -- the application's side -----------------------------------------------------------------------

    def open(self) -> None:
        """Opens the stream now rather than at the first read; does nothing if it is open."""
        if self._stream is None and not self._over:
            self._open()

    def take_nowait(self) -> EpochChanges | None:
        """Takes the next epoch if one has come and nobody waits for it; else None."""
        if not self._held or self._line.entered != self._line.left:
            return None
        if self._reserved:
            self._reserved -= 1
        epoch = self._held.popleft()
        self._took(1)
        return epoch

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

    async def each(self, function: Callable[[EpochChanges], object]) -> None:
        """Calls a plain function with each whole epoch; see ``Observation.each``."""
        check_sync(function, "each", instead=ITERATE)
        handover = Handover(function, deque(), split=False)
        try:
            await self.hand_over(handover)
        except EndOfStream:
            return
        if handover.error is not None:
            raise handover.error

    async def hand_over(self, handover: Handover) -> None:
        """Returns when the function has raised an exception; raises what a read raises at the end.

        Epochs that came before, or for which a visit had no time, are passed by this task; all others where
        they are decoded.  Cancelled, it leaves what the function was not called with to the next reader.
        """
        self._wanted(len(self._line) + 1)
        ticket = self._line.join()
        await self._line.wait_turn(ticket)
        try:
            while True:
                self._call_with_items(handover, perf_counter() + VISIT)
                if handover.error is not None:
                    return
                if handover.items or self._held:
                    await loop().checkpoint()
                elif self._end is not None:
                    raise self._end.next()
                elif self._over or self._stream is None:
                    await self._fetch_once()
                else:
                    await self._stand_by(handover)
        finally:
            self._pay(handover)
            self._line.leave(ticket)

    async def _stand_by(self, handover: Handover) -> None:
        """Waits while the function is called where epochs are decoded."""
        handover.wake = loop().event()
        self._each = handover
        try:
            await handover.wake.wait()
        finally:
            self._each = None

    def _call_with_items(self, handover: Handover, until: float) -> None:
        """Calls the function with one item after the other, until a time on the clock of ``perf_counter``."""
        items, function, held = handover.items, handover.function, self._held
        late = False
        try:
            while True:
                while items:
                    answer = function(items.popleft())
                    if answer is not None:
                        check_plain(answer, "each", instead=ITERATE)
                    late = perf_counter() > until
                    if late and items:
                        return
                self._pay(handover)
                if late or not held:
                    return
                epoch = held.popleft()
                handover.due = self._costs.popleft()
                if self._reserved:
                    self._reserved -= 1
                if handover.split:
                    items.extend(epoch.listed())
                else:
                    items.append(epoch)
        except Exception as error:  # noqa: BLE001  # the task of ``each`` raises it
            handover.error = own_error(error, "each")
            items.clear()
            self.abort_nowait(handover.error)
        except BaseException as error:  # noqa: BLE001  # the same: it is not meant for the connection's task
            handover.error = error
            items.clear()
            self.abort_nowait()

    def _pay(self, handover: Handover) -> None:
        """Releases the credit of the epoch in work."""
        due, handover.due = handover.due, None
        if due is not None and self._window.consume(*due):
            self._want(len(self._line))

    def _visit(self, handover: Handover) -> None:
        """Calls the function where epochs are decoded; after a long visit its task does the rest."""
        until = self._session.uplink.began + VISIT
        if perf_counter() < until:
            self._call_with_items(handover, until)
        if self._held or handover.items:
            self._wake()

    def _wake(self) -> None:
        """Resumes the task of ``each``, if there is one."""
        if self._each is not None:
            self._each.wake.set()
            self._each = None

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
            self._finish(End(None) if self._error is None else End(copied(self._error), owed=True))
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
        self._wake()
        self._arrival.unpark_all()

    def _close(self, reason: Reason | None) -> None:
        if self._stream is not None and not self._over:
            self._session.budget.leave()
        self._table.close()

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
            if self._window.consume(items, size):
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
            self._soon = loop().soon()
            self._session.budget.join()
        if self._lazy:
            self._window.wanted = len(self._line)
        options = going_on(self._options, self._told, net=net, restated=self._restated)
        credit = self._window.open(held)
        try:
            self._stream = self._session.open_stream(self._wire, options.spec(), *credit, number)
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
            options = self._options
            is_past = (options.after, options.as_of, options.upto) != (None, None, None)
            if moved and is_past and self._newest in (None, options.after) and not self._restated:
                raise Refused("epoch-lost", "its epochs are of another space than the connection is to now")
            if moved and self._newest not in (None, self._options.after):
                self._catch_up()
            elif moved:
                self._reached = None
            conflates = self._options.policy is Policy.CONFLATE
            follows = conflates and follows_state(self._options, restated=self._restated)
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

    @property
    def seen(self) -> int:
        """The newest epoch that has come; 0 before the first."""
        told = self._told
        return 0 if told is None or told == self._options.after else told

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
        if self._each is not None:
            self._visit(self._each)
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
        epoch.by = self.by
        if epoch.added or epoch.removed:
            self._table.apply(epoch.added, epoch.removed)
        self._newest = epoch.number
        self._hold(epoch)

    def _hold(self, epoch: EpochChanges) -> None:
        """Keeps a whole epoch for its reader."""
        self._held.append(epoch)
        self._costs.append((self._pending_items, self._pending_bytes))
        self._pending_items = self._pending_bytes = 0

    def _difference(self, state: EpochChanges) -> EpochChanges:
        """Returns the changes that lead from the known state to this one."""
        self._catching_up = False
        came, went = self._table.difference(state.added)
        first = min(self._since + 1, state.number)
        return EpochChanges(state.number, state.micros, first, self.names, tuple(came), (), tuple(went))

    def finish(self) -> None:
        """Notes that the daemon has completed the stream."""
        self._end_wire()

    def fail(self, error: DataspaceError) -> None:
        """Notes that the stream has failed, or that the space was closed."""
        newer = self._newest not in (None, self._options.after)
        restarts = isinstance(error, Refused) and error.code in RESTARTS
        if newer and restarts and self._may_skip():
            self._catch_up()
            self._open()
            return
        self._error = error
        self._end_wire()

    def _may_skip(self) -> bool:
        """True if the net difference of the facts may stand for epochs that the daemon no longer has.

        Not where the past is read, or every epoch or each message is wanted: that ends with ``epoch-gone``.
        """
        news = self._options.policy in (Policy.CONFLATE, Policy.DROP)
        return news and follows_state(self._options, restated=self._restated)

    def _end_wire(self) -> None:
        """Ends the input: nothing more will come, but received values can be read."""
        if not self._over:
            self._over = True
            if self._stream is not None and not self._closed:
                self._session.budget.leave()
        self._wake()
        self._arrival.unpark_all()


class StreamWire:
    """An epoch stream as the session knows it, which does not keep it alive: its readers do.

    Values for a stream without readers are dropped until the daemon has ended the stream.
    """

    __slots__ = ("_stream", "last_seen")

    def __init__(self, stream: EpochStream) -> None:
        self._stream = ref(stream)
        self.last_seen = 0
        """The newest epoch that had come when the last reader left."""

    @property
    def seen(self) -> int:
        """The newest epoch that has come; 0 before the first."""
        stream = self._stream()
        return self.last_seen if stream is None else stream.seen

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """Takes a frame of values, which cost ``size`` bytes of credit."""
        if (stream := self._stream()) is not None:
            stream.arrive(values, first, size, available)

    def know(self, total: int) -> None:
        """Notes that so many values have come or are ready."""
        if (stream := self._stream()) is not None:
            stream.know(total)

    def reach(self, epoch: int) -> None:
        """Notes that everything up to this epoch has come."""
        if (stream := self._stream()) is not None:
            stream.reach(epoch)

    def finish(self) -> None:
        """Notes that the daemon has completed the stream."""
        if (stream := self._stream()) is not None:
            stream.finish()

    def fail(self, error: DataspaceError) -> None:
        """Notes that the stream has failed, or that the space was closed."""
        if (stream := self._stream()) is not None:
            stream.fail(error)

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """Opens the stream again on a new connection."""
        if (stream := self._stream()) is not None:
            stream.reopen(number, resumed=resumed, moved=moved)


def _forget(session: ClientSession, number: int, wire: StreamWire) -> None:
    """Ends a stream without readers, in the loop of its connection."""
    if session.has_stream(number, wire):
        session.drop_stream(number)
    session.budget.leave()


def _said(reason: Reason) -> str:
    return "" if reason is True else f"{type(reason).__name__}: {reason}"
