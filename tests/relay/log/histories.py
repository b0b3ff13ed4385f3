"""Histories for tests: epochs made by hand, or by a real space whose observers are listened to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataspace.kernel.actions import Action
from dataspace.kernel.changes import Changes, Claims, Epoch
from dataspace.kernel.space import Space
from index.values.values import Record, Value, key
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.segments import encode, table
from relay.log.snapshots import RecoveredState

Told = tuple[int, int, list[tuple[Value, ...]], list[tuple[Value, ...]], list[tuple[Value, ...]]]


def flight(number: int) -> Record:
    """A fact like those that the demo is made of."""
    return Record("flight", "UA", number, "N14228", "EWR", "IAH", 1_357_034_400_000_000 + number)


def epoch(number: int, *values: Value, owner: str = "durable:EWR", client: str | None = None) -> Epoch:
    """An epoch in which an owner asserts values, under handles that no other epoch has."""
    asserted = [(number * 1000 + at, value) for at, value in enumerate(values)]
    return Epoch(number, number * 10, values, (), (), (Claims(owner, asserted),), client, number)


def append(log: Log, *epochs: Epoch) -> None:
    """Appends epochs in one transaction."""
    log.append([encode(each) for each in epochs])


def facts_of(state: RecoveredState) -> list[Value]:
    """The distinct values that are claimed."""
    return [*{key(value): value for claims in state.owners.values() for value in claims.values()}.values()]


def snapshot_facts(log: LogReader) -> tuple[int, list[Value]]:
    """The epoch of the newest snapshot, and what is claimed in it, once for each claim."""
    with log.snapshot_values() as (number, parts):
        return number, [value for rows, bare in parts for value in table(rows, bare, len(rows))]


def plain(epochs: Iterable[Epoch]) -> list[object]:
    """Epochs in a form that can be compared: sequences of every kind are lists."""
    return [
        (
            e.number,
            e.time,
            list(e.added),
            list(e.messages),
            list(e.removed),
            [(c.owner, list(c.asserted), list(c.retracted)) for c in e.claims],
            e.client,
            e.sequence,
            e.silent,
        )
        for e in epochs
    ]


class Witness:
    """An observer that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def offer(self, changes: Changes) -> None:
        self.told.append(
            (changes.number, changes.time, list(changes.added), list(changes.messages), list(changes.removed))
        )


def lived(
    turns: Sequence[tuple[str, Sequence[Action]]], patterns: Sequence[Value]
) -> tuple[Space, list[Epoch], list[Witness]]:
    """A space in which these turns (owner and actions) happened, their epochs, and what observers heard."""
    space = Space("test")
    witnesses = [Witness() for _ in patterns]
    for pattern, witness in zip(patterns, witnesses, strict=True):
        space.observe(pattern, witness)
    epochs = [space.commit(owner, actions, 100 + at) for at, (owner, actions) in enumerate(turns)]
    return space, epochs, witnesses
