"""The validator of locks: who held a lock and believed so, what a store took, and what the log says.

Promise 20 of GUARANTEES.md.  Clients, daemon and store are on one machine, so one clock orders what is not
concurrent.  No search is needed: the tokens say in which order a lock was held.

Always: as ``validators``.
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
        *_facts(history.facts),
        *_grants(history.grants),
        *_beliefs(history.grants, history.beliefs),
        *_writes(history.grants, history.writes),
    ]


def _facts(changes: Sequence[tuple[int, list[Value], list[Value]]]) -> Iterable[str]:
    held: list[Value] = []
    for epoch, came, went in changes:
        held += came
        for each in went:
            held.remove(each)
        if len(held) > 1:
            yield f"a: in epoch {epoch} the lock has {len(held)} holders: {held}"


def _grants(grants: Sequence[Grant]) -> Iterable[str]:
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


def _beliefs(grants: Sequence[Grant], beliefs: Sequence[Belief]) -> Iterable[str]:
    for belief in beliefs:
        for grant in grants:
            if grant.token > belief.token and grant.ended < belief.at:
                yield f"c: {belief} passed {belief.at - grant.ended:.3f} s after {grant}"
                break


def _writes(grants: Sequence[Grant], writes: Sequence[Write]) -> Iterable[str]:
    owners, highest = {each.token: each.client for each in grants}, 0
    for each in writes:
        if not each.accepted:
            continue
        if each.token < highest:
            yield f"d: {each} was accepted after token {highest}"
        highest = max(highest, each.token)
        if owners.get(each.token, each.client) != each.client:
            yield f"e: {each} has the token of {owners[each.token]}"
