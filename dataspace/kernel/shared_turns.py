"""Shared turns: one turn with actions of several owners.

A client may keep facts of its session and facts of a durable owner, and change both at once.  Each owner's
actions are taken into its own claims, as in a turn of its own; what they change together is one epoch.  It is
apart from ``Space.commit``, which is on the path of every turn and knows one owner.

Always: all of it happens in one epoch, or an exception is raised and nothing has; limits hold for each owner,
and for the sum of what all of them add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from dataspace.errors import Refused
from dataspace.kernel.actions import Action
from dataspace.kernel.epochs import Claims, Epoch
from dataspace.kernel.handles import Handles
from dataspace.kernel.space import Admit, Space, Submit
from dataspace.kernel.turns import PendingTurn, take_back

MOST_OWNERS: Final = 16
"""Owners of one turn."""

Part: TypeAlias = tuple[str, Sequence[Action]]
"""An owner, and its actions of a turn."""


def commit_shared(
    space: Space,
    parts: Sequence[Part],
    now: int,
    *,
    client: str | None = None,
    sequence: int = 0,
    submit: Submit | None = None,
    admit: Admit | None = None,
) -> Epoch:
    """Applies one turn of several owners, each named once, as ``Space.commit`` does that of one.

    The actions are in form already.  Raises ``Refused`` for an owner that is named twice, for too many owners
    and for rules of more than one of them.
    """
    _check(parts)
    was = space._begin()
    space.limits.check_length(sum([len(actions) for _, actions in parts]), publication=False)
    whole = PendingTurn([], [], [])
    taken: list[_Taken] = []
    try:
        claims = tuple([claim for part in parts for claim in _take(space, part, taken, admit)])
        space._claimed = was[2]  # it was counted up for the limits, and ``_apply`` counts it
        _join(whole, [each.draft for each in taken])
        if space.rules.awake or whole.brings_rules:
            claims += space.rules.turn(whole)
        epoch = space._apply(whole, claims, now, client, sequence)
        if submit is not None:
            submit(epoch)
    except BaseException:
        space._restore(lambda: _put_back(space, taken), whole, was)
        raise
    if space._touched:
        space._tell()
    return epoch


def _check(parts: Sequence[Part]) -> None:
    if len(parts) > MOST_OWNERS:
        raise Refused("limit", f"a turn of {len(parts)} owners, the limit is {MOST_OWNERS}")
    owners = [owner for owner, _ in parts]
    if len(set(owners)) < len(owners):
        raise Refused("bad-request", "an owner stands twice in a turn: put its actions together")


class _Taken:
    """What was taken of one owner, and how it is put back."""

    def __init__(self, owner: str, actions: Sequence[Action], held: Handles | None) -> None:
        self.draft = PendingTurn([], [], [])
        self._owner = owner
        self._actions = actions
        self._held = held
        self._size = 0 if held is None else held.size

    def put_back(self, space: Space) -> None:
        """Makes the claims of the owner what they were."""
        held = self._held
        if held is None:
            space._claims.pop(self._owner, None)
            return
        take_back(held.places, self._actions, len(self.draft.asserted), self.draft.removed)
        held.highest = None
        held.size = self._size
        space._claims[self._owner] = held


def _put_back(space: Space, taken: Sequence[_Taken]) -> None:
    for each in taken:
        each.put_back(space)


def _take(space: Space, part: Part, taken: list[_Taken], admit: Admit | None) -> tuple[Claims, ...]:
    """Takes the actions of one owner into its claims, on top of what was taken of others."""
    owner, actions = part
    held = space._claims.get(owner)
    one = _Taken(owner, actions, held)
    facts = sum([len(each.draft.added) - len(each.draft.removed) for each in taken])
    size = sum([each.draft.size for each in taken])
    rules = any(each.draft.brings_rules for each in taken)
    taken.append(one)

    def admit_all(grown: int, more: int) -> None:
        if admit is not None:
            admit(facts + grown, size + more)

    claims = space._take(owner, held, actions, one.draft, False, admit_all)
    if rules and one.draft.brings_rules:
        raise Refused("bad-request", "rules of two owners in one turn: assert those of each in its own")
    space._claimed += len(one.draft.added) - len(one.draft.removed)
    return claims


def _join(whole: PendingTurn, drafts: Sequence[PendingTurn]) -> None:
    """Adds up what the owners change."""
    for each in drafts:
        whole.added += each.added
        whole.messages += each.messages
        whole.removed += each.removed
        whole.brings_rules |= each.brings_rules
    coming = [at for each in drafts for at in each.places[0]]
    whole.at = coming, [at for each in drafts for at in each.places[1]]
