"""Actions: what a turn does, one tuple for each, and the flags of the changes that observers get.

A turn asserts, retracts, replaces and sends.  Hosted actors, clients and publications build the same tuples,
and the wire carries them as they are; so they stand here, below the wire.

Two actions of clients name no claims: ``WITHDRAW`` ends claims on facts that match a pattern, ``PUT`` claims
on facts with the same key.  ``searches`` makes actions by handle of both; a space commits no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from dataspace.errors import ProtocolError
from index.values.values import Value

# Operations inside a turn: the first element of each action.
ASSERT: Final = 0
RETRACT: Final = 1
SEND: Final = 2
REPLACE: Final = 3
WITHDRAW: Final = 4
PUT: Final = 5

# Flags of a stream value, which is one epoch (or a part of one) of one pattern.
MORE: Final = 1
SNAPSHOT: Final = 2
CONFLATED: Final = 4
PROGRESS: Final = 8

NUMBERS: Final = 1 << 48
"""Numbers that rows of a state may have: each row has one by a hash of its captures."""

Action: TypeAlias = tuple[Value, ...]
"""``(ASSERT, handle, value)``, ``(RETRACT, handle)``, ``(SEND, value)``, ``(REPLACE, old, new, value)``,
``(WITHDRAW, pattern)`` or ``(PUT, handle, value, by)``, where ``by`` is None for the usual key."""


def are_actions(value: Value) -> bool:
    """True if this is an array of actions; raises ``ProtocolError`` for an element that is no action."""
    if value.__class__ is not tuple:
        return False
    check_actions(value)
    return True


def check_actions(actions: Iterable[Value]) -> None:
    """Raises ``ProtocolError`` for the first that is no action."""
    for action in actions:
        if action.__class__ is not tuple or not action or action[0].__class__ is not int:
            raise no_action(action)
        verb = action[0]
        if _SIZES.get(verb) != len(action):
            raise no_action(action)
        if verb != SEND and verb != WITHDRAW:
            handle = action[1]
            if handle.__class__ is not int or not 0 <= handle < _NO_HANDLE:
                raise no_handle(handle)
            if verb == REPLACE:
                handle = action[2]
                if handle.__class__ is not int or not 0 <= handle < _NO_HANDLE:
                    raise no_handle(handle)


_NO_HANDLE: Final = 1 << 63
_SIZES: Final[dict[Value, int]] = {ASSERT: 3, RETRACT: 2, SEND: 2, REPLACE: 4, WITHDRAW: 2, PUT: 4}
"""The elements of an action, by its verb."""

ACTIONS: Final = tuple(_SIZES)
"""The verbs that a turn may have."""


def are_by_handle(actions: Sequence[Action]) -> bool:
    """True if every action names the claims that it begins and ends; O(actions)."""
    for action in actions:  # noqa: SIM110  # sooner than a generator, and every turn asks
        if action[0] > REPLACE:  # type: ignore[operator]  # a number, as its form was checked
            return False
    return True


def no_action(value: Value) -> ProtocolError:
    """Returns what to raise for a value that should be an action."""
    return ProtocolError("malformed", f"no action: {value!r:.80}, see Turn in WIRE.md")


def no_handle(value: Value) -> ProtocolError:
    """Returns what to raise for a value that should be a handle."""
    return ProtocolError("malformed", f"a handle is a number from 0 to 2^63-1, got {value!r:.60}")
