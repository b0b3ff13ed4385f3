"""Drafts: a turn while it is checked, before any observer has seen it.

Actions that are in form are taken one by one into the claims of their owner, and at the first that is
wrong all is taken back.  It is apart from the space, which decides what a turn that is
right means.

A turn may have actions of several owners: a client may keep facts of its session and of a durable owner, and
change both at once.  The actions of each are taken into its own claims, and their changes together are one
epoch; limits hold for each owner, and for the sum of all additions.

Always: each change of the claims is noted in the draft before it is made, so that ``take_back`` undoes a turn
that failed anywhere, with any exception; the claims after a turn are its begun claims, handle by handle, and
then its ended claims, applied to the claims before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action, no_action
from dataspace.kernel.handles import ALL, SECRET, Handles
from dataspace.kernel.limits import FACT_BYTES, LONG, TEXT_BYTES, WIDE, weight
from index.patterns.text import unparse
from index.trie.nodes import At, all_at, at_of
from index.values.freezing import is_flat
from index.values.values import Record, Value, key

MOST_OWNERS: Final = 16
"""Owners of one turn."""

Part: TypeAlias = tuple[str, Sequence[Action]]
"""An owner, and its actions of a turn."""

Sender: TypeAlias = tuple[str | None, int]
"""The client of a turn, and the number that the client gave it."""

Admit: TypeAlias = Callable[[int, int], None]
"""Gets the claims and bytes that a turn adds, where it adds any; raises ``Refused`` to refuse it."""

InForm: TypeAlias = tuple[Any, ...]
"""An action that has passed its check: with its handles and value in their places."""

KEYED: Final = 256
"""Values that get their keys in one step, in less than a millisecond."""


class PendingTurn:
    """A turn while it is being checked: its changes of the facts and of one owner's claims.

    It is also the journal by which the turn is undone: ``is_followed`` once rules have seen it, and
    ``is_patching`` once the index may have changed.
    """

    __slots__ = (
        "added",
        "asserted",
        "at",
        "brings_rules",
        "is_followed",
        "is_patching",
        "messages",
        "removed",
        "retracted",
        "size",
    )

    size: int
    """Bytes by which what is claimed has grown, as ``limits.size_of`` counts them; once it was taken."""

    def __init__(self, added: list[Value], messages: list[Value], removed: list[Value]) -> None:
        self.added = added
        self.messages = messages
        self.removed = removed
        self.asserted: list[tuple[int, Value]] = []
        self.retracted: dict[int, None] = {}  # in order, each once
        self.at: tuple[list[At], list[At]] | None = None  # of what is added and removed, once it is known
        self.brings_rules = False
        """True if a rule is among what is added; once it was taken."""
        self.is_followed = False
        self.is_patching = False

    @property
    def places(self) -> tuple[list[At], list[At]]:
        """Returns the keys in the index of the added and of the removed facts."""
        if self.at is None:
            self.at = all_at(self.added), all_at(self.removed)
        return self.at

    def join(self, other: PendingTurn) -> None:
        """Adds the changes of another owner's part of the turn."""
        coming, going = self.places
        self.added += other.added
        self.messages += other.messages
        self.removed += other.removed
        self.brings_rules |= other.brings_rules
        more, less = other.places
        self.at = [*coming, *more], [*going, *less]


class OwnersTurn:
    """The part of one owner in a turn of several: its actions, and the noted changes."""

    __slots__ = ("actions", "draft", "held", "owner", "size")

    def __init__(self, owner: str, actions: Sequence[Action], held: Handles | None) -> None:
        self.draft = PendingTurn([], [], [])
        self.owner = owner
        self.actions = actions
        self.held = held
        self.size = 0 if held is None else held.size
        """Bytes of what the owner claimed before."""

    @property
    def grown(self) -> int:
        """Returns how many more claims the owner has."""
        return len(self.draft.added) - len(self.draft.removed)


class SeveralOwners:
    """A turn of several owners while it is taken, one owner after the other.

    Raises ``Refused`` for too many owners, for an owner that stands in the turn twice, and for rules of more
    than one of them.
    """

    __slots__ = ("_coming", "_taken", "admit", "whole")

    def __init__(self, parts: Sequence[tuple[str, Sequence[Action], Handles | None]]) -> None:
        if len(parts) > MOST_OWNERS:
            raise Refused("limit", f"a turn of {len(parts)} owners, the limit is {MOST_OWNERS}")
        self._coming = [OwnersTurn(*part) for part in parts]
        if len({each.owner for each in self._coming}) < len(parts):
            raise Refused("bad-request", "an owner stands twice in a turn: put its actions together")
        self._taken: list[OwnersTurn] = []
        self.whole = PendingTurn([], [], [])
        """What all owners change together, once all were taken."""
        self.admit: Admit | None = None
        """Admits the sum of what the owners add, once ``in_turn`` has begun."""

    def in_turn(self, admit: Admit | None) -> Iterator[OwnersTurn]:
        """Yields each owner, whose actions are to be taken before the next is requested."""
        for one in self._coming:
            drafts = [each.draft for each in self._taken]
            facts = sum([each.grown for each in self._taken])
            size = sum([draft.size for draft in drafts])
            if admit is not None:
                self.admit = partial(_admit_sum, admit, facts, size)
            self._taken.append(one)
            yield one
            if one.draft.brings_rules and any(draft.brings_rules for draft in drafts):
                text = "rules of two owners in one turn: assert those of each in its own"
                raise Refused("bad-request", text)
        self._join()

    def _join(self) -> None:
        """Adds up what the owners change."""
        whole = self.whole
        coming: list[At] = []
        going: list[At] = []
        for draft in [each.draft for each in self._taken]:
            whole.added += draft.added
            whole.messages += draft.messages
            whole.removed += draft.removed
            whole.brings_rules |= draft.brings_rules
            coming += draft.places[0]
            going += draft.places[1]
        whole.at = coming, going

    def put_back(self, claims: dict[str, Handles]) -> None:
        """Makes the claims of the owners as they were before."""
        for part in self._taken:
            if part.held is None:
                claims.pop(part.owner, None)
                continue
            take_back(part.held.places, part.actions, len(part.draft.asserted), part.draft.removed)
            part.held.highest = None
            part.held.size = part.size
            claims[part.owner] = part.held


def _admit_sum(admit: Admit, facts: int, size: int, grown: int, more: int) -> None:
    """Admits what one owner adds beside what the owners before it add."""
    admit(facts + grown, size + more)


def keys_in_steps(values: Iterable[Value]) -> Generator[None, None, None]:
    """Computes the keys of records, which keep them: half of the work of their turn.

    A turn cannot be interrupted; this can, after each ``KEYED`` values.
    """
    for at, value in enumerate(values, 1):
        if value.__class__ is Record:
            _ = value.text
        if not at % KEYED:
            yield


def take(places: dict[int, Value], actions: Sequence[InForm], draft: PendingTurn) -> None:
    """Takes a turn's actions into its owner's claims and into an empty draft.

    Raises ``Refused`` at the first action that is wrong, and ``UsageError`` for values that are too deep;
    then, as after any exception, ``take_back`` undoes what was taken.  One function for all verbs: most turns
    are one or two actions, and a call for each would be most of the time.
    """
    added, messages, removed = draft.added, draft.messages, draft.removed
    asserted, retracted = draft.asserted, draft.retracted
    grown = 0
    coming: list[At] = []
    going: list[At] = []
    at: At
    again: list[int] = []  # what was begun under handles that this turn had ended
    for action in actions:
        verb = action[0]
        if verb in _BEGINNING:
            handle, value = action[-2], action[-1]
            place = handle * SECRET & ALL
            if place in places:
                raise _in_use(handle, places[place])
            if retracted and handle in retracted:
                again.append(handle)
            if value.__class__ is Record:  # as ``at_of`` and ``weight``, without their calls
                at = value._text or value.text  # fails for what no index can hold, as below
                size = len(at)
                grown += size if size < LONG or at.isascii() else WIDE * size
                if value.label == "rule":
                    draft.brings_rules = True
            else:
                at = at_of(value)
                grown += weight(at)
            if verb == REPLACE:
                going.append(_release(places, action[1], removed, retracted))
            coming.append(at)
            asserted.append((handle, value))
            places[place] = value
            added.append(value)
        elif verb == RETRACT:
            going.append(_release(places, action[1], removed, retracted))
        else:
            if verb != SEND:
                raise no_action(action)
            message = action[1]
            if not is_flat(message):
                key(message)  # fails as above
            messages.append(message)
    for handle in again:
        if handle * SECRET & ALL in places:  # it stands for another value, and was not ended
            retracted.pop(handle, None)
    for at in going:
        if at.__class__ is str:  # as above
            size = len(at)
            grown -= size if size < LONG or at.isascii() else WIDE * size
        else:
            grown -= weight(at)
    draft.at = coming, going
    draft.size = FACT_BYTES * (len(coming) - len(going)) + TEXT_BYTES * grown


_BEGINNING: Final = frozenset([ASSERT, REPLACE])


def _release(places: dict[int, Value], handle: int, removed: list[Value], retracted: dict[int, None]) -> At:
    """Ends one claim: under what the index has its value."""
    place = handle * SECRET & ALL
    if place not in places:
        raise Refused("unknown-handle", f"handle {handle} stands for nothing")
    value = places[place]
    removed.append(value)
    retracted[handle] = None
    del places[place]
    return value._text or value.text if value.__class__ is Record else at_of(value)


def take_back(places: dict[int, Value], actions: Sequence[Any], begun: int, removed: Sequence[Value]) -> None:
    """Undoes what actions did to the claims; O(those).

    ``begun`` is the number of claims that the actions are known to begin, and ``removed`` the values of the
    claims that they are known to end, in order: a change that was noted and not done yet needs no undoing.
    """
    before: dict[int, Value | _Absent] = {}
    ended = 0
    for action in actions:
        if not begun and ended == len(removed):
            break  # what comes is not known to be an action
        verb = action[0]
        if verb in (RETRACT, REPLACE) and ended < len(removed):
            before.setdefault(action[1] * SECRET & ALL, removed[ended])
            ended += 1
        if verb in (ASSERT, REPLACE) and begun:
            before.setdefault(action[-2] * SECRET & ALL, _ABSENT)
            begun -= 1
    for place, value in before.items():
        if isinstance(value, _Absent):
            places.pop(place, None)
        else:
            places[place] = value


class _Absent:
    """Stands for the value of a handle that stood for nothing."""


_ABSENT: Final = _Absent()


def _in_use(handle: int, value: Value) -> Refused:
    return Refused("handle-in-use", f"handle {handle} stands for {unparse(value):.80} already")
