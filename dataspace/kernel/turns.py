"""Drafts: a turn while it is checked, before any observer has seen it.

Actions that are in form are taken one by one into the claims of their owner, and at the first that is
wrong all is taken back.  It is apart from the space, which decides what a turn that is
right means.

Always: each change of the claims is noted in the draft before it is made, so that ``take_back`` undoes a turn
that failed anywhere, with any exception; all that a turn has begun, handle by handle, and then all that it
has ended, make the claims as they are after it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, TypeAlias

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT
from dataspace.kernel.handles import ALL, SECRET
from dataspace.kernel.limits import FACT_BYTES, LONG, TEXT_BYTES, WIDE, weight
from index.patterns.text import unparse
from index.trie.nodes import At, all_at, at_of
from index.values.freezing import is_flat
from index.values.values import Record, Value, key

InForm: TypeAlias = tuple[Any, ...]
"""An action of which it is known that it is one: with its handles and value in their places."""

KEYED: Final = 256
"""Values that get their keys in one step, in less than a millisecond."""


class PendingTurn:
    """A turn while it is being checked: what it would change of the facts and of one owner's claims.

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
        """Returns the keys in the index of what is added and of what is removed."""
        if self.at is None:
            self.at = all_at(self.added), all_at(self.removed)
        return self.at


def keys_in_steps(values: Iterable[Value]) -> Generator[None, None, None]:
    """Has records make their keys, which they keep: half of the work of their turn.

    A turn cannot be interrupted; this can, after each ``KEYED`` values.
    """
    for at, value in enumerate(values, 1):
        if value.__class__ is Record:
            _ = value.text
        if not at % KEYED:
            yield


def take(places: dict[int, Value], actions: Sequence[InForm], draft: PendingTurn) -> None:
    """Takes a turn's actions into its owner's claims and into an empty draft.

    Raises ``Refused`` at the first action that is wrong, and ``UsageError`` for values
    that are too deep; then, as after any exception, ``take_back`` undoes what was taken.
    One function for all verbs: most turns are one or two actions, and a call for each would be most of it.
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

    ``begun`` is how many claims they are known to begin, and ``removed`` the values of those that they are
    known to end, in order: what was noted and not done yet is as it was already, and stays so.
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
