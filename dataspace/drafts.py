"""Drafts: a turn while it is checked, before anybody has been told of it.

What strangers send as actions is looked into one by one and taken into the claims of their owner, and at
the first that is wrong all is taken back.  It is apart from the space, which decides what a turn that is
right means.

Always: after an error the claims are what they were; whoever takes in all that a turn has begun, handle by
handle, and then all that it has ended, has the claims as they are after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.handles import ALL, NO_HANDLE, SECRET
from dataspace.wire.packets import ASSERT, REPLACE, RETRACT, SEND, Action
from index.leaves import At, all_at, at_of
from index.text import unparse
from index.values import Record, Value, is_flat, key

InForm: TypeAlias = tuple[Any, ...]
"""An action of which it is known that it is one: with its handles and value in their places."""


class Draft:
    """A turn while it is being checked: what it would change of the facts and of one owner's claims."""

    __slots__ = ("added", "asserted", "at", "messages", "removed", "retracted")

    def __init__(
        self,
        added: list[Value],
        messages: list[Value],
        removed: list[Value],
        asserted: Sequence[tuple[int, Value]] = (),
        retracted: dict[int, None] | None = None,
        at: tuple[list[At], list[At]] | None = None,
    ) -> None:
        self.added = added
        self.messages = messages
        self.removed = removed
        self.asserted = asserted
        self.retracted = retracted  # in order, each once
        self.at = at  # of what is added and removed, once it is known

    @property
    def places(self) -> tuple[list[At], list[At]]:
        """Under what the index has, or will have, what is added and what is removed."""
        if self.at is None:
            self.at = all_at(self.added), all_at(self.removed)
        return self.at


def take(places: dict[int, Value], actions: Sequence[Action]) -> Draft:
    """Takes a turn's actions into the claims of its owner and into a draft, or raises and takes none.

    One function for all verbs: most turns are one or two actions, and a call for each would be most of it.
    """
    added: list[Value] = []
    messages: list[Value] = []
    removed: list[Value] = []
    asserted: list[tuple[int, Value]] = []
    retracted: dict[int, None] = {}
    coming: list[At] = []
    going: list[At] = []
    again: list[int] = []  # what was begun under handles that this turn had ended
    done = 0
    try:
        for action in actions:
            size = len(action)
            verb = action[0] if size else None
            if verb.__class__ is not int:
                raise _no_action(action)
            if (verb == ASSERT and size == 3) or (verb == REPLACE and size == 4):
                handle, value = action[-2], action[-1]
                if handle.__class__ is not int or not 0 <= handle < NO_HANDLE:
                    raise _no_handle(handle)
                place = handle * SECRET & ALL
                if place in places:
                    raise _in_use(handle, places[place])
                if handle in retracted:
                    again.append(handle)
                # fails for what no index can hold, while nothing is changed
                at = value._text or value.text if value.__class__ is Record else at_of(value)
                if verb == REPLACE:
                    going.append(_release(places, action[1], removed, retracted))
                coming.append(at)
                places[place] = value
                added.append(value)
                asserted.append((handle, value))
            elif verb == RETRACT and size == 2:
                going.append(_release(places, action[1], removed, retracted))
            elif verb == SEND and size == 2:
                message = action[1]
                if not is_flat(message):
                    key(message)  # fails as above
                messages.append(message)
            else:
                raise _no_action(action)
            done += 1
        for handle in again:
            if handle * SECRET & ALL in places:  # it stands for another value, and was not ended
                retracted.pop(handle, None)
    except (Refused, ProtocolError, UsageError):  # the last for values that are too deep to have a key
        take_back(places, actions[:done], removed)
        raise
    return Draft(added, messages, removed, asserted, retracted, (coming, going))


def _release(places: dict[int, Value], handle: Value, removed: list[Value], retracted: dict[int, None]) -> At:
    """Ends one claim: under what the index has its value."""
    if handle.__class__ is not int or not 0 <= handle < NO_HANDLE:
        raise _no_handle(handle)
    place = handle * SECRET & ALL
    if place not in places:
        raise Refused("unknown-handle", f"handle {handle} stands for nothing")
    value = places.pop(place)
    removed.append(value)
    retracted[handle] = None
    return value._text or value.text if value.__class__ is Record else at_of(value)


def take_back(places: dict[int, Value], actions: Sequence[InForm], removed: list[Value]) -> None:
    """Undoes what actions did to the claims, the last one first."""
    for action in reversed(actions):
        verb = action[0]
        if verb in (ASSERT, REPLACE):
            del places[action[-2] * SECRET & ALL]
        if verb in (RETRACT, REPLACE):
            places[action[1] * SECRET & ALL] = removed.pop()


def _no_handle(value: Value) -> ProtocolError:
    return ProtocolError("malformed", f"a handle is a number from 0 to 2^63-1, got {value!r:.60}")


def _in_use(handle: int, value: Value) -> Refused:
    return Refused("handle-in-use", f"handle {handle} stands for {unparse(value):.80} already")


def _no_action(action: Action) -> ProtocolError:
    return ProtocolError("malformed", f"no action: {action!r:.80}, see Turn in WIRE.md")
