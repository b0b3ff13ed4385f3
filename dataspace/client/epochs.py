"""The epochs of an observation as its client pulls them: with credit, whole, one line across reconnects.

The daemon may send as much as it was asked for; what has come is held, and more is asked for as the
application takes it out.  When the connection is lost, the stream is opened again from the last epoch that
came.  Where the daemon cannot go on from there, who follows the state is shown the difference to what was
known, with the range of epochs that it stands for; anybody else is told that they are gone, and what is held.
It is a source like any other (STREAMS.md), with the wire where others have an iterator.

Always: the application sees whole epochs in ascending order, and neither a change twice nor a gap in the
state; what is held here is bounded by the credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from dataspace.client.assembling import Assembler
from dataspace.errors import DataspaceError, ProtocolError, Refused
from dataspace.kernel.epoch_changes import EpochChanges
from dataspace.streams.sources.base import Source
from dataspace.streams.stages.iteration import Iteration
from dataspace.streams.stages.marks import End, Reason
from dataspace.wire import packets as p
from dataspace.wire.windows import Window
from index.patterns.patterns import capture_names
from index.values.values import Map, Value, keys

if TYPE_CHECKING:
    from dataspace.client.session.session import Exchange

RESTARTS: Final = frozenset(["epoch-gone", "epoch-lost", "epoch-ahead"])
"""Errors of an opening that mean: not from that epoch, but the state can be had."""


@dataclass(frozen=True, slots=True)
class View:
    """What an observation is to show; ``RemoteSpace.observe`` says what each means."""

    pattern: Value
    snapshot: bool = True
    after: int | None = None
    upto: int | None = None
    quiet: bool = False
    durable: bool = False
    policy: str = "conflate"
    as_of: int | None = None
    net: bool = False
    progress: bool = False

    def follows_state(self, *, restated: bool) -> bool:
        """Whether this begins with the state, or has begun with it anew, and is no reading of the past."""
        past = self.after is not None or (self.as_of is not None and not restated)
        return (self.snapshot or restated) and not past and self.upto is None and not self.durable

    def may_skip(self, *, restated: bool) -> bool:
        """Whether the net difference of the facts may stand for epochs that the daemon has no more.

        Not for who reads the past, or wants every epoch or each message: it is told that they are gone.
        """
        return self.follows_state(restated=restated) and self.policy in ("conflate", "drop")

    def spec(self, newest: int | None, *, net: bool, restated: bool) -> Map:
        """How to open it; ``newest`` is the last epoch that is known, ``restated`` begins with the state."""
        spec: dict[str, Value] = {"kind": "observe", "pattern": self.pattern, "quiet": self.quiet}
        if newest is not None:
            spec["after"] = newest
            if net or (self.net and newest == self.after):
                spec["net"] = True
        elif self.as_of is not None and not restated:
            spec["as_of"] = self.as_of
        elif not (self.snapshot or restated):
            spec["snapshot"] = False
        if self.upto is not None:
            spec["upto"] = self.upto
        if self.durable:
            spec["durable"] = True
        if self.progress:
            spec["progress"] = True
        if self.policy != "conflate":
            spec["policy"] = self.policy
        return Map(spec)


@dataclass(frozen=True, slots=True)
class EpochsStatistics:
    """How far behind a reader is: epochs ``held`` here, values ``ready`` at the daemon as far as is known.

    ``came`` counts values since the stream was opened, ``window`` is what may be under way, in bytes.  All to
    the epoch ``known`` has come, as the daemon says every now and then; None where nothing was heard yet.
    """

    held: int
    ready: int
    came: int
    window: int
    known: int | None


class Epochs(Source[EpochChanges], Iteration[EpochChanges]):
    """The whole epochs of one observation: iterate, read, or put it at the beginning of a pipe."""

    def __init__(self, exchange: Exchange, view: View, window: int | None) -> None:
        super().__init__("observation")
        self.names: Final = capture_names(view.pattern)
        self._exchange = exchange
        self._view = view
        self._lazy = window == 0
        self._stream: int | None = None
        self._assembler = Assembler(self.names)
        self._costs: Final[deque[tuple[int, int]]] = deque()
        self._pending_items = self._pending_bytes = 0
        self._window: Final = Window(exchange.budget, window)
        self._ready = 0
        self._peeked = -1
        self._known: Final[dict[Hashable, tuple[Value, ...]]] = {}
        self._restated = self._catching_up = False
        self._since = 0
        self._newest: int | None = view.after
        self._reached: int | None = None
        self._arrival: Final = trio.lowlevel.ParkingLot()
        self._over = False
        self._error: DataspaceError | None = None

    # -- the application's side -----------------------------------------------------------------------

    def open(self) -> None:
        """Opens the stream now rather than at the first read; nothing happens if it is open."""
        if self._stream is None and not self._over:
            self._open()

    async def peek(self, source: object = None) -> bool:
        """Waits until there is one more epoch, here or at the daemon, and reserves it; asks for none."""
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
        """Counts, in O(1)."""
        window = self._window
        return EpochsStatistics(len(self._held), self._ready, window.came, window.limits[1], self._told)

    def _can_open(self) -> bool:
        """Opens the stream for who must not be told of errors: a read will be."""
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
            self._exchange.budget.leave()
        self._known.clear()

    async def _teardown(self, reason: Reason) -> None:
        """The abort is confirmed by the daemon: its interest has gone by then."""
        if self._leave():
            assert self._stream is not None  # so it is open
            await self._exchange.end_stream(self._stream, _said(reason))

    def _indicate(self, reason: Reason) -> None:
        if self._leave():
            assert self._stream is not None  # so it is open
            self._exchange.drop_stream(self._stream, _said(reason))

    def _leave(self) -> bool:
        """Takes note that this is over; whether the daemon has still to be told."""
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
        """Asks for more where too little is on its way, for so many readers where nothing is asked ahead."""
        if self._lazy:
            self._window.wanted = readers
        if self._stream is None:
            return
        dry = self._window.spent  # nothing is on its way: to wait for the next pause would be a pause more
        totals = self._window.ask((self._pending_items, self._pending_bytes))
        if totals is not None and not self._over:
            self._exchange.say_on_stream(p.Ask(self._stream, *totals), at_once=dry)

    def _ask_to_know(self, total: int) -> None:
        """Has the daemon say when there are so many values, unless they will come by themselves."""
        if self._window.spent and total != self._peeked and self._stream is not None:
            self._peeked = total
            self._exchange.say_on_stream(p.Peek(self._stream, total))

    # -- the wire's side ------------------------------------------------------------------------------

    def _open(self, number: int | None = None, *, net: bool = False) -> None:
        self._assembler = Assembler(self.names)
        held = sum([items for items, _ in self._costs]), sum([size for _, size in self._costs])
        self._pending_items = self._pending_bytes = self._ready = 0
        self._peeked = -1
        if self._stream is None:
            self._exchange.budget.join()
        if self._lazy:
            self._window.wanted = len(self._line)
        spec = self._view.spec(self._told, net=net, restated=self._restated)
        self._stream = self._exchange.open_stream(self, spec, *self._window.open(held), number)
        self._arrival.unpark_all()  # who peeks has to ask anew

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """The connection is new: goes on from the last epoch that came, unless it was another space's.

        In a session that goes on nothing is left out.  In a new one, who began with the state is shown the
        difference only, and so not that facts went and came back.
        """
        if not self._over:
            if moved and self._newest not in (None, self._view.after):
                self._catch_up()
            elif moved:
                self._reached = None
            follows = self._view.follows_state(restated=self._restated)
            self._open(number, net=follows and not resumed)

    def reach(self, epoch: int) -> None:
        """All up to this epoch has been told."""
        self._reached = epoch

    @property
    def _told(self) -> int | None:
        """The epoch up to which all is known here; None where nothing is, not even that there was nothing."""
        if self._reached is None or self._newest is None:
            return self._newest if self._reached is None else self._reached
        return max(self._newest, self._reached)

    def _catch_up(self) -> None:
        """Begins with the state, of which only the difference to what is known will be shown."""
        self._since, self._newest, self._reached = self._told or 0, None, None
        self._catching_up = self._restated = True

    def arrive(self, values: tuple[Value, ...], first: int, size: int, available: int) -> None:
        """A frame of values has come, which cost ``size`` bytes of credit; O(their rows).

        Raises ``ProtocolError`` for values that were not asked for, or do not follow those before.
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
        if self._pending_items and not self._held:  # nobody can take out a part of an epoch
            self._want(len(self._line))
        if self._arrival:
            self._arrival.unpark_all()

    def know(self, total: int) -> None:
        """So many values have come or are ready."""
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
        """What a state means to somebody who knew another one."""
        self._catching_up = False
        now = {keys(row): row for row in state.added}
        first = min(self._since + 1, state.number)
        came = [row for at, row in now.items() if at not in self._known]
        went = [row for at, row in self._known.items() if at not in now]
        return EpochChanges(state.number, state.micros, first, self.names, came, [], went)

    def finish(self) -> None:
        """The daemon has said that this was all."""
        self._end_wire()

    def fail(self, error: DataspaceError) -> None:
        """The stream has failed, or the space was closed."""
        newer = self._newest not in (None, self._view.after)
        restarts = isinstance(error, Refused) and error.code in RESTARTS
        if newer and restarts and self._view.may_skip(restated=self._restated):
            self._catch_up()
            self._open()
            return
        self._error = error
        self._end_wire()

    def _end_wire(self) -> None:
        """Nothing more will come; what has is still read."""
        if not self._over:
            self._over = True
            if self._stream is not None and not self._closed:
                self._exchange.budget.leave()
        self._arrival.unpark_all()


def _copied(error: DataspaceError) -> DataspaceError:
    """The same error for one stream alone: others may be told of it as well, and raise it."""
    return type(error)(*error.args)


def _said(reason: Reason) -> str:
    return "" if reason is True else f"{type(reason).__name__}: {reason}"
