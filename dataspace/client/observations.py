"""An observation: the changes of one pattern, one at a time, or by whole epochs.

It is a stream (STREAMS.md): ``async for``, ``read`` and ``peek`` work on it, and ``pipe`` takes it, or its
``epochs()``, as a source.  How epochs come is the business of ``Epochs``; this is what most programs hold.

Always: changes come in the order in which they happened; an epoch of which some changes were read is not
given as a whole.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from dataspace.client.epochs import Epochs, View
from dataspace.kernel.epoch_changes import Change, EpochChanges
from dataspace.streams.sources.base import Source
from dataspace.streams.stages.iteration import Iteration
from dataspace.streams.stages.marks import End, EndOfStream, Reason

if TYPE_CHECKING:
    from dataspace.client.session.session import Exchange

ABORT_SECONDS: Final = 1.0
"""How long leaving a block waits until the daemon has confirmed the end."""


class Observation(Source[Change], Iteration[Change]):
    """The changes of one pattern.  Iterate over changes, or over ``epochs()``.

    ``async with`` ends it at the end of the block; without, it goes on until it is closed.  Raises
    ``Refused("slow-observer")`` where messages were lost because nobody took them: once, then ``Aborted``.
    """

    def __init__(self, exchange: Exchange, view: View, window: int | None) -> None:
        self._epochs: Final = Epochs(exchange, view, window)
        super().__init__("observation", pace=self._epochs.pace)
        self.pattern: Final = view.pattern

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the captures, in order."""
        return self._epochs.names

    def epochs(self) -> Epochs:
        """Whole epochs, the first one being the state unless told otherwise (it may have no rows)."""
        return self._epochs

    async def next_epoch(self) -> EpochChanges | None:
        """The next whole epoch, or None when the observation is complete."""
        try:
            return await self._epochs.read()
        except EndOfStream:
            return None

    def open(self) -> None:
        """Opens the observation now rather than at the first read; nothing happens if it is open."""
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
            with trio.move_on_after(ABORT_SECONDS, shield=True):
                await self.abort(True if error is None else error)
        self.close()

    async def aclose(self) -> None:
        """Ends the observation and waits until its interest has gone."""
        await self.abort(True)

    def close(self) -> None:
        """The same without waiting."""
        self.abort_nowait(True)

    # -- as a source ----------------------------------------------------------------------------------

    async def _fetch_once(self) -> None:
        """One more epoch.  An abort of the epochs ends this too: no scope is needed for it."""
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
