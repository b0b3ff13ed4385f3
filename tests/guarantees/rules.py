"""The validator of rules: is what is derived what follows?

It works out what follows from nothing, as ``tests/dataspace/rules/test_laws.py`` does beside the engine.

Always: as ``validators``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from dataspace.rules.language.parser import read_rules
from index.values.values import Record, Value, key
from tests.guarantees.history import History, take_in
from tests.model.rules import follow

DERIVED: Final = "rules"
"""The owner of derived facts."""

LOOKS: Final = 12
"""Epochs of a history after which everything is worked out from nothing."""


def rules(history: History) -> Iterator[str]:
    """After every epoch the derived facts are exactly those that follow from the facts by the rules."""
    claims: dict[str, dict[int, Value]] = {}
    every = max(1, len(history.log) // LOOKS)
    for at, epoch in enumerate(history.log, 1):
        take_in(claims, epoch)
        is_last = at == len(history.log) or history.log[at].number != epoch.number
        if is_last and (at % every == 0 or at == len(history.log)):
            yield from _differences(epoch.number, claims)


def _differences(number: int, claims: dict[str, dict[int, Value]]) -> Iterator[str]:
    derived = {key(fact): fact for fact in claims.get(DERIVED, {}).values()}
    claimed = [fact for owner, each in claims.items() if owner != DERIVED for fact in each.values()]
    texts = _texts(claimed)
    if not texts and not derived:
        return
    given: set[Hashable] = {key(fact) for fact in claimed}
    following = follow(read_rules(" ".join(texts)), claimed)
    for at in following.keys() - given - derived.keys():
        yield f"after epoch {number}: {following[at]!r} follows, and is not derived"
    for at in derived.keys() - following.keys():
        yield f"after epoch {number}: {derived[at]!r} is derived, and does not follow"


def _texts(facts: Sequence[Value]) -> list[str]:
    held = [fact for fact in facts if isinstance(fact, Record) and fact.label == "rule"]
    return list({key(fact): str(fact.fields[-1]) for fact in held}.values())
