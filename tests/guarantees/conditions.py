"""The validator of conditional turns: did what each of them expected hold in the state before it, or, of a
refused one, fail to hold in some state since it was submitted?

It goes through the log with plain lists, as ``tests/server/conditions/test_laws.py`` does beside the daemon.

Always: as ``validators``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from dataspace.kernel.expectations import Expectation
from index.values.values import Value, key
from tests.guarantees.history import History, Turn
from tests.model.conditions import holds


def conditions(history: History) -> Iterator[str]:
    """A turn happens if and only if all that it expects holds in the state before it."""
    refused = [turn for turn in history.turns if turn.answer == "expectation" and turn.after >= history.base]
    expected = {(turn.client, turn.sequence): turn.expected for turn in history.turns if turn.expected}
    held: dict[Hashable, Value] = {}
    changes: list[tuple[int, Value]] = []
    for epoch in history.log:
        is_base = bool(history.base) and epoch is history.log[0]
        if is_base:
            held |= {key(fact): fact for fact in epoch.added}
            refused = _not_justified(refused, epoch.number, list(held.values()), changes)
            continue
        if epoch is history.log[0]:
            refused = _not_justified(refused, 0, [], changes)
        for each in expected.get((epoch.client or "", epoch.sequence), ()):
            if not _holds(each, list(held.values()), changes):
                named = f"turn {epoch.sequence} of {epoch.client}"
                yield f"{named} expected {each}, and is in epoch {epoch.number}"
        held |= {key(fact): fact for fact in epoch.added}
        for fact in epoch.removed:
            held.pop(key(fact), None)
        changes += [(epoch.number, fact) for fact in (*epoch.added, *epoch.removed)]
        refused = _not_justified(refused, epoch.number, list(held.values()), changes)
    for turn in refused:
        yield (
            f"turn {turn.sequence} of {turn.client} was refused, and what it expected held in every state"
            f" from epoch {turn.after} on: {list(turn.expected)}"
        )


def _not_justified(
    refused: list[Turn], number: int, facts: list[Value], changes: list[tuple[int, Value]]
) -> list[Turn]:
    """Returns the refused turns that the state after an epoch does not justify either."""
    return [
        turn
        for turn in refused
        if turn.after > number or all(_holds(each, facts, changes) for each in turn.expected)
    ]


def _holds(expected: Expectation, facts: list[Value], changes: list[tuple[int, Value]]) -> bool:
    return holds(expected.kind, expected.pattern, expected.argument, facts, changes)
