"""The validator of rules: is what is derived what follows?

It goes through the log with the model, which knows no restarts, crashes and followers: the log must not show
them.  Of a long history it works out what follows at some epochs, from nothing.

Always: as ``validators``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Final

from dataspace.kernel.changes import Claims, Epoch
from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import Rule, Verb
from index.values.values import Map, Record, Value, key
from tests.guarantees.history import History, take_in
from tests.model import space as model
from tests.model.rules import GRID, follow

DERIVED: Final = "rules"
"""The owner of derived facts."""

SHORT: Final = 600
"""Epochs of a history that is gone through one by one."""

LOOKS: Final = 12
"""Epochs of a longer one after which everything is worked out from nothing."""

SPARE: Final = 4
"""Instants beyond the spans of a text within which time alone may change what it derives."""

_SPAN: Final = re.compile(r"([0-9]+) (ms|s)")


def rules(history: History) -> Iterator[str]:
    """After every epoch the derived facts are exactly those that follow from the facts by the rules."""
    if len(history.log) > SHORT or history.base:
        yield from _looked_at(history)
        return
    texts = _texts([fact for epoch in history.log for fact in epoch.added])
    rules = [rule for text in texts for rule in model.read(text)]
    if rules and not any(rule.head.verb is Verb.NEXT for rule in rules):  # whose turns are in between others
        yield from _gone_through(history.log, rules, max(map(_instants, texts)))


def said_in(log: Iterable[Epoch]) -> set[Value]:
    """Returns the labels of messages that rules send, behind those of their turns."""
    texts = _texts([fact for epoch in log for fact in epoch.added])
    return {rule.head.label for text in texts for rule in model.read(text) if rule.head.verb is Verb.SEND}


# -- a short history -----------------------------------------------------------------------------------


def _gone_through(log: Iterable[Epoch], rules: Sequence[Rule], instants: int) -> Iterator[str]:
    """Yields where a log is not what follows from its turns by these rules and by time.

    For so many instants after a change time alone may change what follows.
    """
    space, changed = model.Space(), 0
    entries = list(_entries(log, rules))
    for before, entry, after in zip([None, *entries], entries, [*entries[1:], None], strict=False):
        if before is not None and before.number == entry.number and not any(entry.shown):
            end = entry.time if after is None else after.time
            later = _unseen(space, entry, range(changed, min(end, changed + instants * GRID), GRID))
            if later is not None:
                space, changed = later, later.latest
                continue
        for instant in range(changed // GRID * GRID + GRID, entry.time + 1, GRID):
            if not changed or instant > changed + instants * GRID:
                break
            if instant == entry.time and not entry.is_turn:
                break
            if (made := space.become(space.claims, instant)) is not None:
                yield f"at {instant}, before epoch {entry.number}, the model makes {made}"
                changed = instant
        made = space.become(entry.claims, entry.time, entry.messages)
        shown = (frozenset(), (), frozenset(), frozenset()) if made is None else made[1:]
        if shown != entry.shown:
            yield f"epoch {entry.number} at {entry.time} is {entry.shown}, the model says {shown}"
        if space.derived.keys() != entry.derived:
            more, less = entry.derived - space.derived.keys(), space.derived.keys() - entry.derived
            yield f"after epoch {entry.number} rules claim {set(more)} too many, and lack {set(less)}"
        changed = entry.time


def _unseen(space: model.Space, entry: _Entry, times: range) -> model.Space | None:
    """Returns the space after a turn that observers see nothing of; None if no time explains it.

    The log has it with the number and the time of the epoch before it: it was then, or later.
    """
    space = deepcopy(space)
    for time in times:
        if time > times.start and space.become(space.claims, time // GRID * GRID) is not None:
            return None
        after = deepcopy(space)
        made = after.become(entry.claims, time, entry.messages)
        if made is None and after.derived.keys() == entry.derived:
            after.latest = max(after.latest, time)
            return after
    return None


class _Entry:
    """What an entry of the log says of the facts that rules are about; ``claims`` are all after it."""

    def __init__(
        self, epoch: Epoch, claims: dict[str, dict[int, Value]], said: set[Value], *, is_turn: bool
    ) -> None:
        """``said`` are the labels of messages of rules."""
        self.number, self.time = epoch.number, epoch.time
        self.messages = [each for each in epoch.messages if _label(each) not in said]
        self.shown = (
            frozenset(map(key, epoch.added)),
            tuple(map(key, self.messages)),
            frozenset([key(each) for each in epoch.messages if _label(each) in said]),
            frozenset(map(key, epoch.removed)),
        )
        self.derived = {key(fact) for fact in claims.get(DERIVED, {}).values()}
        self.claims = {owner: dict(held) for owner, held in claims.items() if owner != DERIVED}
        self.is_turn = is_turn or bool(self.messages)
        """False for what rules and time have done alone."""


def _entries(log: Iterable[Epoch], rules: Sequence[Rule]) -> Iterator[_Entry]:
    """Yields what concerns the labels that rules are about."""
    labels = {"rule", *[label for rule in rules for label in (rule.head.label, *_labels(rule))]}
    said = {rule.head.label for rule in rules if rule.head.verb is Verb.SEND}
    claims: dict[str, dict[int, Value]] = {}

    def ours(values: Iterable[Value]) -> list[Value]:
        return [each for each in values if _label(each) in labels]

    for epoch in log:
        changes = []
        for owner, asserted, retracted in epoch.claims:
            begun = [(handle, each) for handle, each in asserted if _label(each) in labels]
            held = claims.get(owner, {}).keys() | {handle for handle, _ in begun}
            changes.append(Claims(owner, begun, [handle for handle in retracted if handle in held]))
        changes = [each for each in changes if each.asserted or each.retracted]
        part = Epoch(
            epoch.number, epoch.time, ours(epoch.added), ours(epoch.messages), ours(epoch.removed), changes
        )
        take_in(claims, part)
        if changes or part.messages:
            yield _Entry(part, claims, said, is_turn=any(each.owner != DERIVED for each in changes))


def _labels(part: object) -> Iterator[Value]:
    """Yields the labels of all records in a rule."""
    if isinstance(part, Record):
        yield part.label
    parts: Iterable[object] = ()
    if isinstance(part, Record):
        parts = part.fields
    elif isinstance(part, tuple | list | frozenset):
        parts = part
    elif isinstance(part, Map):
        parts = [each for pair in part.pairs() for each in pair]
    elif hasattr(part, "__dataclass_fields__"):
        parts = [getattr(part, name) for name in part.__dataclass_fields__]
    for each in parts:
        yield from _labels(each)


def _label(value: Value) -> Value:
    return value.label if isinstance(value, Record) else None


def _instants(text: str) -> int:
    """Returns for how many instants after a change a text may derive something else by time alone."""
    spans = [int(count) * (1_000 if unit == "ms" else 1_000_000) for count, unit in _SPAN.findall(text)]
    return sum(spans) // GRID + SPARE if spans else 0


# -- a long history ------------------------------------------------------------------------------------


def _looked_at(history: History) -> Iterator[str]:
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


def _texts(facts: Iterable[Value]) -> list[str]:
    held = [fact for fact in facts if isinstance(fact, Record) and fact.label == "rule"]
    return list({key(fact): str(fact.fields[-1]) for fact in held}.values())
