"""Searching: claims that a turn ends without naming them are found before it and named as it is committed.

An owner with few claims is looked through in the step of the commit.  An owner with many is looked through in
the lane, before the turn and for one turn at a time, while other turns go on; claims that other turns begin
are looked at as well, and claims that other turns end are left out in the last step.

Always: actions by handle are exact in the step in which they are made; searches are over once ``close`` was
called.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dataspace.errors import Refused
from dataspace.kernel.actions import are_by_handle
from dataspace.kernel.turns import Part
from dataspace.steps import at_once
from server.spaces.searches import OwnerSearch

if TYPE_CHECKING:
    from server.lane import Work
    from server.spaces.space import HostedSpace


class TurnSearches:
    """The searches of one turn; ``close`` must follow."""

    def __init__(self, home: HostedSpace) -> None:
        self._home = home
        self._found: dict[str, OwnerSearch] = {}
        self._open = ExitStack()

    async def prepare(self, parts: Sequence[Part], work: Work) -> None:
        """Looks through the claims of the owners in turns of the lane; when called again, looks at newer
        claims alone."""
        home = self._home
        for owner, actions in parts:
            if are_by_handle(actions):
                continue
            if owner in self._found:
                await work.go_on(self._found[owner].catching_up())
                continue
            search = self._open.enter_context(home.searches.of(owner, actions))
            work.leave()  # else the one that has the lock would wait for this turn
            async with home.withdrawing(owner):  # requests that wait here have begun no search
                await work.enter()
                home.finish_ending(owner)
                await work.go_on(search.reading())
            self._found[owner] = search

    def by_handle(self, parts: Sequence[Part]) -> list[Part] | None:
        """Returns the parts of the turn with actions by handle, as of now; None if more must be prepared."""
        made: list[Part] = []
        for owner, actions in parts:
            if are_by_handle(actions):
                made.append((owner, actions))
                continue
            search = self._found.get(owner)
            if search is not None:
                if search.is_behind:
                    return None
                made.append((owner, search.settled()))
                continue
            quick = self._home.searches.of(owner, actions)
            if not quick.is_quick:
                return None
            at_once(quick.looking())
            made.append((owner, quick.settled()))
        return made

    def close(self) -> None:
        """Ends the searches; may be called again."""
        self._open.close()


def check_owners(parts: Sequence[Part]) -> None:
    """Raises ``Refused`` for an owner that stands in a turn twice."""
    if len({owner for owner, _ in parts}) < len(parts):
        raise Refused("bad-request", "an owner stands twice in a turn: put its actions together")
