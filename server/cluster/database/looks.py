"""Looks at a store, which all tasks of a daemon share: who lives, who leads, where more was written.

A daemon with nothing to do asks its database one question each third of its lease: the renewal, which answers
the rest as well.  A task that needs a newer view asks for one of its own, and all that wait for one share it.

Always: a view is no older than was asked for, and the leases in it last as long as they do by now.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import trio

from relay.store.postgres.members import SpaceTerms
from server.cluster.database.cluster_state import VIEW, StoreView

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_SECONDS: Final = 0.2
"""How often a task wakes to look who leads, at a view that is there already."""

CALM_SECONDS: Final = 1.25
"""The age of a view with which a task is content while nothing hurries it: with the default lease a renewal
comes each second."""

HURRY_SECONDS: Final = 1.0
HURRIED_SECONDS: Final = 0.02
"""For how long tasks hurry, and how often they look then."""


class StoreLooks:
    """The newest view of a store, and when the next one is due."""

    def __init__(self, terms: SpaceTerms, renewed: Callable[[], StoreView | None]) -> None:
        """``renewed`` returns the view that the latest renewal of the lease has brought."""
        self._terms: Final = terms
        self._renewed: Final = renewed
        self._asked: StoreView | None = None
        self._asking: Final = trio.Lock()
        self._hurry: Final = trio.lowlevel.ParkingLot()
        self._hurries_until = 0.0

    async def view(self, within: float = CALM_SECONDS) -> StoreView:
        """Returns a view that is at most so many seconds old; raises ``LogFailed``."""
        if self._hurries:
            within = min(within, HURRIED_SECONDS)
        await trio.lowlevel.checkpoint()
        least = monotonic() - within
        async with self._asking:
            found = self._newest()
            if found is None or found.at < least:
                found = await trio.to_thread.run_sync(self.ask, abandon_on_cancel=True)
        return found.aged(monotonic() - found.at)

    def ask(self) -> StoreView:
        """Returns a view of now, in whatever thread this is; raises ``LogFailed``."""
        at = monotonic()
        self._asked = StoreView.of(at, *self._terms.ask(VIEW))
        return self._asked

    def _newest(self) -> StoreView | None:
        found = [each for each in (self._asked, self._renewed()) if each is not None]
        return max(found, key=lambda each: each.at, default=None)

    async def pause(self, seconds: float = LOOK_SECONDS) -> None:
        """Waits so long until the next look, or shorter after ``hasten``."""
        with trio.move_on_after(min(seconds, HURRIED_SECONDS) if self._hurries else seconds):
            await self._hurry.park()

    def hasten(self) -> None:
        """Has all tasks look more often for a moment: a leader that ends gives its term back soon."""
        self._hurries_until = monotonic() + HURRY_SECONDS
        self._hurry.unpark_all()

    @property
    def _hurries(self) -> bool:
        return monotonic() < self._hurries_until
