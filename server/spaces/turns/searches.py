"""Searches under way: claims of owners are looked through before the turns that end claims.

A look through all claims of an owner takes as long as many turns, so a search works in steps, and other turns
come between the steps.  A search that has begun is told which claims other turns make, and looks at each of
these claims too; claims that other turns end are left out at the end.  So a search is exact in the step in
which its turn is committed, and no other turn waits for a search.

Always: a search that waits for its turn in the lane holds only the actions; a search that has begun holds the
places of its owner's claims, 8 bytes for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakValueDictionary

import trio

from dataspace.errors import Refused
from dataspace.kernel.actions import Action
from dataspace.kernel.handles import ALL, SECRET, handle_at
from dataspace.kernel.searches import Search
from dataspace.steps import Steps, at_once, batched
from index.values.positions import MISSING
from index.values.values import Value

if TYPE_CHECKING:
    from dataspace.kernel.changes import Claims
    from dataspace.kernel.space import Space

QUICK: Final = 256
"""Comparisons that are made without waiting for the lane, in less than a millisecond."""


class Searches:
    """The searches of one space that have begun and whose turns are not committed yet."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.begun: Final[dict[str, list[OwnerSearch]]] = {}
        """The searches that have begun, by owner; ``add_claims`` is of no use where there are none."""
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        """Returns in the claims of how many owners something is searched."""
        return len(self.begun)

    def of(self, owner: str, actions: Sequence[Action]) -> OwnerSearch:
        """Returns a search for what the actions of a turn end of an owner's claims; raises as ``Search``."""
        return OwnerSearch(self, self._space, owner, Search(actions), len(actions))

    def lock(self, owner: str) -> trio.Lock:
        """Returns the lock under which claims of an owner are searched for and taken back.

        A search takes several slices of the lane, and two of one owner would look at the same claims.  A lock
        exists only while a request holds it or waits for it.
        """
        return self._locks.setdefault(owner, trio.Lock())

    def add_claims(self, claims: Iterable[Claims]) -> None:
        """Tells searches which claims a turn has begun; O(owners of the turn)."""
        for owner, asserted, _ in claims:
            if asserted:
                for search in self.begun.get(owner, ()):
                    search.came.append(asserted)

    def begin(self, search: OwnerSearch) -> None:
        """Tells a search from now on which claims come."""
        self.begun.setdefault(search.owner, []).append(search)

    def end(self, search: OwnerSearch) -> None:
        """Tells a search of no further claims; the search need not have begun."""
        others = [each for each in self.begun.pop(search.owner, ()) if each is not search]
        if others:
            self.begun[search.owner] = others


class OwnerSearch:
    """A search for what a turn ends of one owner's claims; a context manager, at whose end it is over."""

    __slots__ = ("_actions", "_search", "_searches", "_space", "came", "owner")

    def __init__(self, searches: Searches, space: Space, owner: str, search: Search, actions: int) -> None:
        self._searches = searches
        self._space = space
        self._search = search
        self._actions = actions
        self.owner: Final = owner
        self.came: Final[deque[Sequence[tuple[int, Value]]]] = deque()
        """Handles and facts of the claims that came since it began, not looked at yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._searches.end(self)

    @property
    def is_quick(self) -> bool:
        """True if all steps together take less than a millisecond."""
        return (len(self._space.places(self.owner)) + self._actions) * self._search.cost <= QUICK

    @property
    def is_behind(self) -> bool:
        """True if more claims have come since than are looked at in the step of a commit."""
        return sum(map(len, self.came)) * self._search.cost > QUICK

    def reading(self) -> Steps[None]:
        """Looks through the claims of the owner, in steps; raises ``Refused`` where the turn would end more
        claims than one turn may."""
        self._searches.begin(self)
        yield from self.looking()
        yield from self.catching_up()

    def looking(self) -> Steps[None]:
        """Does the same where no turn comes between the steps."""
        yield from self._search.reading()
        for some in batched(list(self._space.places(self.owner)), self._search.step):
            for place in some:
                self._look(place)
            yield

    def catching_up(self) -> Steps[None]:
        """Looks at the claims that came since, in steps."""
        while self.came:
            for some in batched(self.came.popleft(), self._search.step):
                for handle, _ in some:
                    self._look(handle * SECRET & ALL)
                yield

    def _look(self, place: Hashable) -> None:
        value = self._space.places(self.owner).get(place, MISSING)
        if value is MISSING:
            return
        if self._search.claim(handle_at, place, value):  # type: ignore[arg-type]  # a value then
            most = self._space.limits.actions_per_turn
            if len(self._search) > most:
                raise Refused(
                    "limit",
                    f"the turn would end more than {most} claims of one owner, the limit is "
                    "limits.actions_per_turn: withdraw them by a request, which makes several turns",
                )

    def settled(self) -> list[Action]:
        """Returns the actions of the turn by handle, as of now; the turn must be committed in this step."""
        at_once(self.catching_up())
        places = self._space.places(self.owner)
        return self._search.settled(lambda handle, value: places.get(handle * SECRET & ALL, MISSING) is value)
