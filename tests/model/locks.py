"""A lock: at most one client holds it, for a time, under a token.

The holder checks its time by its own clock; a store that is shown tokens takes no write with a lower token
than it has seen.  These are constraints on what clients and a store saw, by one clock, and on the facts of
the holders.  No search is needed: the tokens say in which order a lock was held.

Always: a function yields one sentence for each place where its promise is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from index.values.values import Value


@dataclass(frozen=True)
class Grant:
    """A client's ``acquire``, from its call to its return."""

    client: str
    token: int
    began: float
    ended: float


@dataclass(frozen=True)
class Belief:
    """A check of a holder that passed, and when it was begun."""

    client: str
    token: int
    at: float


@dataclass(frozen=True)
class Write:
    """What a store did with a write, in its order."""

    client: str
    token: int
    accepted: bool


@dataclass
class LockHistory:
    """One lock; ``facts`` are the facts, or rows, of its holders that came and went, by epochs."""

    grants: list[Grant] = field(default_factory=list)
    beliefs: list[Belief] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    facts: list[tuple[int, list[Value], list[Value]]] = field(default_factory=list)


def lock_violations(history: LockHistory) -> list[str]:
    """Returns what is wrong with a history; nothing if it is one of a lock."""
    return [
        *one_holder(history.facts),
        *rising_tokens(history.grants),
        *no_belief_beside_another(history.grants, history.beliefs),
        *no_write_of_an_earlier_holder(history.grants, history.writes),
    ]


def one_holder(changes: Sequence[tuple[int, list[Value], list[Value]]]) -> Iterable[str]:
    """After each epoch at most one client holds the lock."""
    held: list[Value] = []
    for epoch, came, went in changes:
        held += came
        for each in went:
            held.remove(each)
        if len(held) > 1:
            yield f"a: in epoch {epoch} the lock has {len(held)} holders: {held}"


def rising_tokens(grants: Sequence[Grant]) -> Iterable[str]:
    """Each grant has a token of its own, higher than that of any grant that ended before it began."""
    seen: dict[int, Grant] = {}
    for each in grants:
        if each.token in seen:
            yield f"b: token {each.token} was granted to {seen[each.token].client} and to {each.client}"
        seen[each.token] = each
    rising = sorted(grants, key=lambda each: each.ended)
    for later in grants:
        for earlier in rising:
            if earlier.ended >= later.began:
                break
            if earlier.token >= later.token:
                yield f"b: {earlier} ended before {later} began, and has no lower token"


def no_belief_beside_another(grants: Sequence[Grant], beliefs: Sequence[Belief]) -> Iterable[str]:
    """No check of a holder passes once the lock was granted to another."""
    for belief in beliefs:
        for grant in grants:
            if grant.token > belief.token and grant.ended < belief.at:
                yield f"c: {belief} passed {belief.at - grant.ended:.3f} s after {grant}"
                break


def no_write_of_an_earlier_holder(grants: Sequence[Grant], writes: Sequence[Write]) -> Iterable[str]:
    """A store takes no write of an earlier holder after one of a later holder."""
    owners, highest = {each.token: each.client for each in grants}, 0
    for each in writes:
        if not each.accepted:
            continue
        if each.token < highest:
            yield f"d: {each} was accepted after token {highest}"
        highest = max(highest, each.token)
        if owners.get(each.token, each.client) != each.client:
            yield f"e: {each} has the token of {owners[each.token]}"
