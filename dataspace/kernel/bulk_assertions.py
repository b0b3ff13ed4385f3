"""Assertions: a great many facts that one turn asserts, without an action for each.

A bulk load is a million facts under handles in a row.  As a million actions, each is a tuple to be made,
looked into and taken apart again, which costs more than its content.  So a turn may also be given as this: it
reads as a sequence of actions, and code that recognizes it takes the facts whole.

Always: taken whole or one by one, the claims and the turn are the same; what cannot be taken changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, overload

from dataspace.errors import ProtocolError, Refused
from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.handles import ALL, NO_HANDLE, SECRET
from dataspace.steps import Steps, at_once, batched
from index.values.values import Record, Value, key


def replacing(claims: Mapping[int, Value], values: Sequence[Value], first_handle: int) -> tuple[Action, ...]:
    """Returns the actions that make ``values`` the whole set of what an owner claims; O(both sets).

    Facts in both stay under their handles; new ones get handles from ``first_handle`` upwards.
    """
    return tuple(at_once(replacing_in_steps(claims, values, first_handle, len(values) + len(claims) + 1)))


def replacing_in_steps(
    claims: Mapping[int, Value], values: Sequence[Value], first_handle: int, step: int
) -> Steps[list[Action]]:
    """Does ``replacing`` in steps of so many facts; the claims must not change before the next step."""
    wanted: dict[Hashable, Value] = {}
    for some in batched(values, step):
        wanted.update([(key(value), value) for value in some])
        yield
    actions: list[Action] = []
    kept = set()
    for held in batched(claims.items(), step):
        for handle, value in held:
            at = key(value)
            if at in wanted and at not in kept:
                kept.add(at)
            else:
                actions.append((RETRACT, handle))
        yield
    for fresh in batched(wanted.items(), step):
        for at, value in fresh:
            if at not in kept:
                actions.append((ASSERT, first_handle, value))
                first_handle += 1
        yield
    return actions


class Assertions(Sequence[Action]):
    """The actions that assert ``values`` under the handles from ``first`` on; O(1) to make."""

    __slots__ = ("first", "values")

    def __init__(self, first: int, values: Sequence[Value]) -> None:
        self.first: Final = first
        self.values: Final = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, at: int) -> Action: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Action]: ...
    def __getitem__(self, at: int | slice) -> Action | Sequence[Action]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        at = range(len(self.values))[at]
        return (ASSERT, self.first + at, self.values[at])

    def claim(self, places: dict[int, Value], begun: list[tuple[int, Value]]) -> None:
        """Makes these the claims of an owner, and notes them in ``begun`` first; or raises and makes none.

        ``Refused("handle-in-use")`` and ``ProtocolError`` for handles, ``UsageError`` for a value that is too
        deep to have a key.  O(values).
        """
        handles = range(self.first, self.first + len(self.values))
        if handles and not 0 <= handles[0] <= handles[-1] < NO_HANDLE:
            raise ProtocolError("malformed", f"handles {handles[0]} to {handles[-1]} are not below 2^63")
        for value in self.values:  # fails for what no index can hold, while nothing is changed; it is kept
            value._text or value.text if value.__class__ is Record else key(value)
        at = [handle * SECRET & ALL for handle in handles]
        if not places.keys().isdisjoint(at):
            used = next(handle for handle in handles if handle * SECRET & ALL in places)
            there = places[used * SECRET & ALL]
            raise Refused("handle-in-use", f"handle {used} stands for {there!r:.80} already")
        begun.extend(zip(handles, self.values, strict=True))
        places.update(zip(at, self.values, strict=True))
