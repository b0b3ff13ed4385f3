"""The validator of groups: what a log says of a group, and the deliveries that members were told.

It knows the notes of LOG.md and nothing of the daemon's code.  An item is a row of an epoch, named by epoch
and position among the rows that appeared or were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dataspace.kernel.changes import Epoch
from index.values.values import Value
from relay.log.notes import Note

At = tuple[int, int]


@dataclass(frozen=True)
class Told:
    """A delivery that a member was told: its item and its token."""

    at: At
    token: int


@dataclass
class GroupHistory:
    """The entries of a log, in order, and what members were told in the order of each."""

    group: str
    matches: Callable[[Value], bool]
    entries: list[Epoch | Note]
    told: list[Told] = field(default_factory=list)
    key: Callable[[Value], Hashable] | None = None


def broken_groups(history: GroupHistory) -> list[str]:
    """Returns what is wrong in a history of one group, in words; empty if nothing is."""
    return [*_of_log(history), *_of_deliveries(history)]


def _of_log(history: GroupHistory) -> Iterator[str]:
    items: dict[At, Value] = {}
    done: dict[At, int] = {}
    begun: At | None = None
    for place, entry in enumerate(history.entries):
        if isinstance(entry, Epoch):
            rows = (*entry.added, *entry.messages)
            for position, value in enumerate(rows if not entry.silent else ()):
                if begun is not None and (entry.number, position) > begun and history.matches(value):
                    items[entry.number, position] = value
            continue
        if not entry.fields or entry.fields[0] != history.group:
            continue
        if entry.kind == "group":
            begun, done = (entry.fields[1], entry.fields[2]), {}  # type: ignore[assignment]  # numbers
            items = {(each[0], each[1]): each[6] for each in entry.fields[4]}  # type: ignore[union-attr,index,misc]
        elif entry.kind == "group-done":
            for at in _cells(entry.fields[1:]):
                if at not in items:
                    yield f"{at} is done at entry {place}, and no such item is before it"
                elif at in done:
                    yield f"{at} is done at entry {place}, and was done at entry {done[at]}"
                else:
                    yield from _out_of_order(history, items, done, at)
                done[at] = place


def _out_of_order(
    history: GroupHistory, items: dict[At, Value], done: dict[At, int], at: At
) -> Iterator[str]:
    if history.key is None:
        return
    mine = history.key(items[at])
    earlier = [
        each for each, value in items.items() if each < at and each not in done and history.key(value) == mine
    ]
    if earlier:
        yield f"{at} is done before {earlier[0]}, which has the same key"


def _of_deliveries(history: GroupHistory) -> Iterator[str]:
    tokens: dict[int, At] = {}
    told: dict[At, list[int]] = {}
    for each in history.told:
        if tokens.setdefault(each.token, each.at) != each.at:
            yield f"token {each.token} names {each.at} and {tokens[each.token]}"
        told.setdefault(each.at, []).append(each.token)
    for at in undelivered(history, told):
        yield f"{at} is done, and was delivered to nobody"


def undelivered(history: GroupHistory, told: Iterable[At]) -> list[At]:
    """Returns the items that are done and were told to no member, where any was told at all."""
    known = set(told)
    return [at for at in done_in(history) if at not in known] if known else []


def done_in(history: GroupHistory) -> list[At]:
    """Returns the items that notes say are done."""
    return [
        at
        for entry in history.entries
        if isinstance(entry, Note) and entry.kind == "group-done" and entry.fields[0] == history.group
        for at in _cells(entry.fields[1:])
    ]


def left(history: GroupHistory) -> list[At]:
    """Returns the items that no note says are done: they must be undone in the daemon."""
    items: list[At] = []
    done: set[At] = set()
    begun: At | None = None
    for entry in history.entries:
        if isinstance(entry, Epoch):
            for position, value in enumerate((*entry.added, *entry.messages)):
                at = (entry.number, position)
                if not entry.silent and begun is not None and at > begun and history.matches(value):
                    items.append(at)
        elif entry.kind == "group" and entry.fields[0] == history.group:
            begun = (entry.fields[1], entry.fields[2])  # type: ignore[assignment]  # numbers
        elif entry.kind == "group-done" and entry.fields[0] == history.group:
            done.update(_cells(entry.fields[1:]))
    return [at for at in items if at not in done]


def _cells(cells: Sequence[Any]) -> Iterator[At]:
    epoch = 0
    for difference, position in zip(cells[::2], cells[1::2], strict=True):
        epoch += difference
        yield epoch, position
