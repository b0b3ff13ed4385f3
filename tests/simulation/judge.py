"""The judge: do the promises of GUARANTEES.md hold in a life?

The validators of the guarantees are asked, and a final one: in the end each durable owner has exactly what it
was told that it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT
from index.values.values import Record, Value, key
from tests.guarantees.history import History, Turn
from tests.guarantees.topics import topic_violations
from tests.guarantees.validators import broken
from tests.server.coordination import histories
from tests.simulation.world import World


def judge_all(world: World) -> Iterator[str]:
    """Yields what is broken in a life, in any space and in the topic."""
    for space, history in world.histories.items():
        yield from broken(history)
        yield from (f"final: {said}" for said in final(history))
        yield from _judge_locks(history, world.locks[space])
    yield from topic_violations(world.topic)


def _judge_locks(history: History, locks: histories.History) -> list[str]:
    """Returns what is wrong with what those did who took locks."""
    changes: list[tuple[int, list[Value], list[Value]]] = []
    for epoch in history.log:
        came, went = ([fact for fact in facts if _is_lock(fact)] for facts in (epoch.added, epoch.removed))
        changes.append((epoch.number, came, went))
    locks.facts = changes
    return [f"lock: {said}" for said in histories.violations(locks)]


def _is_lock(fact: Value) -> bool:
    return isinstance(fact, Record) and fact.label == "lock"


def final(history: History) -> Iterator[str]:
    """An owner of whom every turn was answered has in the end what those turns leave it."""
    turns: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in history.turns:
        turns[turn.client].append(turn)
    for client, all_turns in turns.items():
        if not client.startswith("owner:") or any(turn.answer is None for turn in all_turns):
            continue
        expected = _held_after(sorted(all_turns, key=lambda turn: turn.sequence))
        owner = f"durable:{client.removeprefix('owner:')}"
        held = _held_in_log(history, owner)
        if expected != held:
            yield f"{owner} holds {held}, its turns leave {expected}"


def _held_after(turns: list[Turn]) -> dict[int, Hashable]:
    held: dict[int, Hashable] = {}
    for turn in turns:
        if isinstance(turn.answer, str):
            continue
        for verb, *rest in turn.actions:
            if verb == ASSERT:
                held[rest[0]] = key(rest[1])
            elif verb == RETRACT:
                held.pop(rest[0], None)
            elif verb == REPLACE:
                held.pop(rest[0], None)
                held[rest[1]] = key(rest[2])
    return held


def _held_in_log(history: History, owner: str) -> dict[int, Hashable]:
    held: dict[int, Hashable] = {}
    for epoch in history.log:
        for name, asserted, retracted in epoch.claims:
            if name == owner:
                for handle in retracted:
                    held.pop(handle, None)
                held |= {handle: key(fact) for handle, fact in asserted}
    return held
