"""Searches: the claims that a turn ends without naming them.

``WITHDRAW`` ends an owner's claims on facts that match a pattern, ``PUT`` its claims on facts with the key
of a new fact.  A space commits actions by handle alone.  So a search takes the claims of the owner, a few at
a time and before the turn, and then makes the actions by handle in one step, in the state in which they are
committed.  The client does the same with the claims that it keeps, so that both sides agree about the rest.

The actions of an owner are carried out in their order: each meets the claims that those before it have left.

Always: a search keeps only claims that the turn may end; ``settled`` costs O(actions + those), whatever the
owner claims.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from dataspace.errors import Refused
from dataspace.facts import usual_place
from dataspace.kernel.actions import ASSERT, PUT, REPLACE, RETRACT, SEND, WITHDRAW, Action
from dataspace.steps import Steps
from index.patterns.patterns import matcher
from index.patterns.text import unparse
from index.values.values import Value, key, keys

MOST_PATTERNS: Final = 16
"""Patterns and kinds of keys by which the actions of one owner may find claims."""

COMPARED: Final = 32
"""Values compared with the patterns of a search in one step, divided by how many patterns those are."""

Places = dict[int, Value]
"""Claims by their handles, in the order in which they were found."""


class _Kind:
    """One pattern, or one kind of key, with the keys that a turn names and the claims on facts with each."""

    __slots__ = ("at", "wanted")

    def __init__(self, at: Callable[[Value], Hashable | None]) -> None:
        self.at: Final = at
        """Returns the key of a fact, None for a fact without one."""
        self.wanted: Final[dict[Hashable, Places]] = {}
        """The claims with each key that the turn names."""


class Search:
    """The claims of one owner that the actions of a turn may end.

    Raises ``UsageError`` for a pattern that is none, ``Refused`` for a fact that does not have the key by
    which it is put, and for more than ``MOST_PATTERNS``.
    """

    __slots__ = ("_actions", "_found", "_kinds", "_own", "_targets")

    def __init__(self, actions: Sequence[Action]) -> None:
        self._actions = actions
        self._kinds: dict[Hashable, _Kind] = {}
        self._targets: dict[int, Places] = {}
        """By the place of an action in the turn: the claims that the action ends."""
        self._found: dict[int, list[Places]] = {}
        """By handle: wherever a claim is kept."""
        self._own: dict[int, list[Places]] = {}
        """By the place of an action: where the claim is to be kept that it begins."""
        for at, action in enumerate(actions):
            if action[0] == WITHDRAW:
                self._want(at, (WITHDRAW, key(action[1])), _matching, action[1], None)
            elif action[0] == PUT:
                _, _, fact, by = action
                if by is None:
                    self._want(at, PUT, _usual, None, fact)
                else:
                    self._want(at, (PUT, key(by)), _keyed, by, fact)

    def _want(
        self,
        at: int,
        kind: Hashable,
        make: Callable[[Value], Callable[[Value], Hashable | None]],
        pattern: Value,
        fact: Value,
    ) -> None:
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) == MOST_PATTERNS:
                raise Refused(
                    "limit",
                    f"a turn withdraws and puts by more than {MOST_PATTERNS} patterns for one owner: "
                    "make several turns",
                )
            known = self._kinds[kind] = _Kind(make(pattern))
        if self._actions[at][0] == WITHDRAW:
            place: Hashable | None = ()
        else:
            place = known.at(fact)
            if place is None:
                raise _keyless(fact, pattern)
        self._targets[at] = known.wanted.setdefault(place, {})

    @property
    def cost(self) -> int:
        """How many patterns each claim of the owner is compared with."""
        return len(self._kinds)

    @property
    def step(self) -> int:
        """How many values ``claim`` may get in one step."""
        return max(1, COMPARED // max(1, len(self._kinds)))

    def reading(self) -> Steps[None]:
        """Compares the facts of the turn itself, in steps: later actions may end what earlier ones begin."""
        compared = 0
        for at, action in enumerate(self._actions):
            if action[0] in _BEGINNING:
                found = self._places(_fact(action))
                if found:
                    self._own[at] = found
                compared += 1
                if compared % self.step == 0:
                    yield

    def claim(self, handle: Callable[[Hashable], int], place: Hashable, value: Value) -> bool:
        """Takes a claim of the owner; returns True if the turn may end it.

        A handle that stands for another value than before is taken anew.
        """
        found = self._places(value)
        if found:
            at = handle(place)
            self._drop(at)
            self._keep(at, value, found)
        return bool(found)

    def _places(self, value: Value) -> list[Places]:
        found = []
        for kind in self._kinds.values():
            at = kind.at(value)
            if at is not None and at in kind.wanted:
                found.append(kind.wanted[at])
        return found

    def _keep(self, handle: int, value: Value, places: list[Places]) -> None:
        self._found[handle] = places
        for each in places:
            each[handle] = value

    def _drop(self, handle: int) -> None:
        for each in self._found.pop(handle, ()):
            del each[handle]

    def __len__(self) -> int:
        """Returns how many claims were taken that the turn may end."""
        return len(self._found)

    def settled(self, stands: Callable[[int, Value], bool]) -> list[Action]:
        """Returns the actions by handle, given which of the claims that were taken still stand; once.

        O(actions + claims taken).
        """
        for handle, places in list(self._found.items()):
            if not stands(handle, places[0][handle]):
                self._drop(handle)
        actions: list[Action] = []
        for at, action in enumerate(self._actions):
            verb = action[0]
            if verb == WITHDRAW:
                self._end(self._targets[at], actions)
                continue
            if verb == PUT:
                actions.append((ASSERT, action[1], action[2]))
                self._end(self._targets[at], actions)
            else:
                actions.append(action)
                if verb != SEND and verb != ASSERT:
                    self._drop(action[1])  # type: ignore[arg-type]  # a handle, as its form was checked
            if verb in _BEGINNING and at in self._own:
                begun = action[2] if verb == REPLACE else action[1]
                assert isinstance(begun, int)  # as above
                self._keep(begun, _fact(action), self._own[at])
        return actions

    def _end(self, claims: Places, actions: list[Action]) -> None:
        for handle in list(claims):
            actions.append((RETRACT, handle))
            self._drop(handle)


_BEGINNING: Final = frozenset([ASSERT, REPLACE, PUT])


def _fact(action: Action) -> Value:
    """Returns the fact that an action asserts."""
    return action[2] if action[0] == PUT else action[-1]


def _matching(pattern: Value) -> Callable[[Value], Hashable | None]:
    match = matcher(pattern)
    return lambda value: None if match(value) is None else ()


def _keyed(by: Value) -> Callable[[Value], Hashable | None]:
    match = matcher(by)

    def at(value: Value) -> Hashable | None:
        row = match(value)
        return None if row is None else keys(row)

    return at


def _usual(_pattern: Value) -> Callable[[Value], Hashable | None]:
    return usual_place


def _keyless(fact: Value, by: Value) -> Refused:
    if by is None:
        text = (
            f"put needs a record with a key and a value, such as config('rate', 7), got {unparse(fact):.80}"
        )
    else:
        text = f"{unparse(fact):.80} does not have the key {unparse(by):.80}"
    return Refused("bad-request", text)
