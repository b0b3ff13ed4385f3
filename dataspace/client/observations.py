"""An observation as its client sees it: pulled with credit, whole epochs, one line across reconnects.

The daemon may send as much as it was asked for; what has come waits in an inbox, and more is asked for as
the application takes it out.  When the connection is lost, the observation is opened again from the last
epoch that came; where the daemon cannot go on from there, it gives the state, and only the difference to
what was known is shown.

Always: the application sees whole epochs in ascending order, and neither a change twice nor a gap in the
state; what waits here is bounded by the credit.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from dataspace.client.assembling import Assembler
from dataspace.client.changes import Change, EpochChanges
from dataspace.errors import DataspaceError, Refused
from dataspace.wire import packets as p
from dataspace.wire.windows import Window
from index.patterns import capture_names
from index.values import Map, Value, keys

if TYPE_CHECKING:
    from dataspace.client.space import RemoteSpace

RESTARTS: Final = frozenset(["epoch-gone", "epoch-lost", "epoch-ahead"])
"""Errors of an opening that mean: not from that epoch, but the state can be had."""


class Observation:
    """The changes of one pattern.  Iterate over changes, or over ``epochs()``.

    ``async with`` ends it at the end of the block; an iteration left by ``break`` ends when it is
    forgotten.  Raises ``Refused("slow-observer")`` where messages were lost because nobody took them.
    """

    def __init__(
        self,
        space: RemoteSpace,
        pattern: Value,
        *,
        snapshot: bool,
        after: int | None,
        upto: int | None,
        quiet: bool,
        durable: bool,
        policy: str,
        window: int | None,
        as_of: int | None = None,
        net: bool = False,
        progress: bool = False,
    ) -> None:
        self.pattern = pattern
        self.names = capture_names(pattern)
        self._space = space
        self._snapshot = snapshot
        self._after = after
        self._upto = upto
        self._quiet = quiet
        self._durable = durable
        self._policy = policy
        self._as_of = as_of
        self._net = net
        self._progress = progress
        self._stream: int | None = None
        self._assembler = Assembler(self.names)
        self._inbox: deque[tuple[EpochChanges, int, int]] = deque()
        self._pending_items = 0
        self._pending_bytes = 0
        self._window = Window(space.budget, window)
        self._known: dict[Hashable, tuple[Value, ...]] = {}
        self._catching_up = False
        self._since = 0
        self._newest: int | None = after
        self._current: Iterator[Change] = iter(())
        self._arrival = trio.Event()
        self._ended = False
        self._error: DataspaceError | None = None

    # -- the application's side -----------------------------------------------------------------------

    def __aiter__(self) -> Observation:
        return self

    async def __anext__(self) -> Change:
        for change in self._current:
            return change
        while True:
            epoch = await self._next()
            if epoch is None:
                raise StopAsyncIteration
            self._current = iter(epoch)
            for change in self._current:
                return change

    def epochs(self) -> Epochs:
        """Whole epochs, the first one being the state unless told otherwise (it may have no rows)."""
        return Epochs(self)

    async def next_epoch(self) -> EpochChanges | None:
        """The next whole epoch, or None when the observation is complete."""
        return await self._next()

    async def __aenter__(self) -> Observation:
        self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the observation; its interest goes with it."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """The same without letting others run, for where nothing can be awaited."""
        self._abort()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the loop may be gone already: then so is the stream
            self._abort()

    def open(self) -> None:
        """Opens the observation now rather than at the first read; nothing happens if it is open."""
        if self._stream is None and not self._ended:
            self._open()

    async def peek(self) -> bool:
        """Waits until it is known whether there is another epoch, and takes nothing; false at the end.

        Never raises: what the observation has failed with is for who reads.
        """
        self.open()
        while not self._inbox and not self._ended:
            await self._wait_arrival()
        return bool(self._inbox)

    async def _wait_arrival(self) -> None:
        if self._arrival.is_set():  # several tasks may read
            self._arrival = trio.Event()
        await self._arrival.wait()

    async def _next(self) -> EpochChanges | None:
        self.open()
        while not self._inbox:
            if self._error is not None:
                raise type(self._error)(*self._error.args)
            if self._ended:
                return None
            await self._wait_arrival()
        epoch, items, size = self._inbox.popleft()
        if self._window.take(items, size):
            self._ask_if_low()
        return epoch

    # -- the wire's side ------------------------------------------------------------------------------

    def _spec(self, *, net: bool) -> Map:
        spec: dict[str, Value] = {"kind": "observe", "pattern": self.pattern, "quiet": self._quiet}
        if self._newest is not None:
            spec["after"] = self._newest
            if net or (self._net and self._newest == self._after):
                spec["net"] = True
        elif self._as_of is not None:
            spec["as_of"] = self._as_of
        elif not self._snapshot:
            spec["snapshot"] = False
        if self._upto is not None:
            spec["upto"] = self._upto
        if self._durable:
            spec["durable"] = True
        if self._progress:
            spec["progress"] = True
        if self._policy != "conflate":
            spec["policy"] = self._policy
        return Map(spec)

    def _open(self, number: int | None = None, *, net: bool = False) -> None:
        self._assembler = Assembler(self.names)
        held = sum([items for _, items, _ in self._inbox]), sum([size for _, _, size in self._inbox])
        if self._stream is None:
            self._space.budget.join()
        self._stream = self._space.open_stream(self, self._spec(net=net), *self._window.open(held), number)

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """The connection is new: goes on from the last epoch that came, unless it was another space's.

        In a session that goes on nothing is left out.  In a new one, who began with the state is shown the
        difference only, and so not that facts went and came back.
        """
        if not self._ended:
            self._pending_items = self._pending_bytes = 0
            if moved and self._newest not in (None, self._after):
                self._catch_up()
            self._open(number, net=self._follows_state and not resumed)

    @property
    def _follows_state(self) -> bool:
        """Whether this began with the state, and is not a reading of the past."""
        past = self._after is not None or self._as_of is not None
        return self._snapshot and not past and self._upto is None and not self._durable

    def _catch_up(self) -> None:
        """Begins with the state, of which only the difference to what is known will be shown."""
        self._since, self._newest = self._newest or 0, None
        self._as_of = None
        self._catching_up = self._snapshot = True

    def arrive(self, values: tuple[Value, ...], size: int) -> None:
        """A frame of values has come, which cost ``size`` bytes of credit; O(their rows)."""
        self._pending_bytes += size
        self._window.arrive(len(values), size)
        for value in values:
            self._pending_items += 1
            epoch = self._assembler.feed(value)
            if epoch is not None:
                self._take_in(epoch)
        if self._pending_items and not self._inbox:  # nobody can take out a part of an epoch
            self._ask_if_low()
        self._arrival.set()

    def _take_in(self, epoch: EpochChanges) -> None:
        if self._catching_up:
            epoch = self._difference(epoch)
        known = self._known
        for row in epoch.added:
            known[keys(row)] = row
        for row in epoch.removed:
            known.pop(keys(row), None)
        self._newest = epoch.number
        self._inbox.append((epoch, self._pending_items, self._pending_bytes))
        self._pending_items = self._pending_bytes = 0

    def _difference(self, state: EpochChanges) -> EpochChanges:
        """What a state means to somebody who knew another one."""
        self._catching_up = False
        now = {keys(row): row for row in state.added}
        first = min(self._since + 1, state.number)
        shown = EpochChanges(state.number, state.micros, first, self.names, snapshot=False)
        shown.added = [row for at, row in now.items() if at not in self._known]
        shown.removed = [row for at, row in self._known.items() if at not in now]
        return shown

    def finish(self) -> None:
        """The daemon has said that this was all."""
        self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            if self._stream is not None:
                self._space.budget.leave()
        self._arrival.set()

    def fail(self, error: DataspaceError) -> None:
        """The stream has failed, or the space was closed."""
        if isinstance(error, Refused) and error.code in RESTARTS and self._newest not in (None, self._after):
            self._catch_up()
            self._open()
            return
        self._error = error
        self._end()

    def _ask_if_low(self) -> None:
        """Asks for more when half the window is used up, beside the epoch that is coming in parts."""
        totals = self._window.ask((self._pending_items, self._pending_bytes))
        if totals is not None and self._stream is not None:
            self._space.say_on_stream(p.Ask(self._stream, *totals))

    def _abort(self) -> None:
        if self._stream is not None and not self._ended:
            self._space.drop_stream(self._stream)
        self._end()


class Epochs:
    """The whole epochs of an observation, one after another.

    Not an asynchronous generator: one of those, left in the middle, would have to be cleaned up.
    """

    __slots__ = ("_observation",)

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    def __aiter__(self) -> Epochs:
        return self

    async def __anext__(self) -> EpochChanges:
        epoch = await self._observation.next_epoch()
        if epoch is None:
            raise StopAsyncIteration
        return epoch
