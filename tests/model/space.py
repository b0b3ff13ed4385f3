"""A space: facts, who claims them, and one turn after another.

A fact is there exactly while an owner claims it, or while it follows from facts that are there.  Owners claim
facts under handles of their own.  A turn happens whole or not at all; what follows from it by rules is in its
epoch.  Within an epoch additions come first, then messages, then removals; none is both added and removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from typing import Any, Final, NamedTuple, Self, TypeAlias

from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import Rule, Verb
from index.values.values import Record, Value, key
from tests.model.patterns import match
from tests.model.rules import GRID, Facts, Past, View, follow_in, heads_in

ASSERT, RETRACT, SEND, REPLACE, SWEEP, PUT, STATE, UNSTATE = range(8)
"""What an action does: claim a fact under a handle; end a claim; send a message; claim and end; end all
claims on what matches; claim a fact in the place of those with its key; state a fact without a handle; end
that.
"""

Claimed: TypeAlias = dict[str, dict[int, Value]]
"""What each owner claims, by its handles."""

read: Final = cache(read_rules)


class Refused(Exception):
    """The turn does not happen; the argument is the code."""


class Epoch(NamedTuple):
    """What observers of everything are shown: what came, what was sent, what went, in this order.

    Facts are there by their keys; none is both added and removed.  Messages are in order.

    ``said`` are the messages of rules, which are in no order.
    """

    time: int
    added: frozenset[object]
    messages: tuple[object, ...]
    said: frozenset[object]
    removed: frozenset[object]


class Space:
    """One space, in one state; the times are those of the epochs, in microseconds since 1970."""

    def __init__(self) -> None:
        self.claims: Claimed = {}
        self.past: Past = Past()
        self.begun: dict[object, int] = {}
        """In which state each text came."""
        self.carried: Facts = {}
        """What ``next`` has derived for this state."""
        self.coming: Facts = {}
        """What ``next`` derives for the state after it."""
        self.remaining: Facts = {}
        """The same without the messages of this state, which are gone then."""
        self.sending: Facts = {}
        """What ``send`` derives from the facts of this state."""
        self.latest = 0
        """The latest time that was seen, also by what had no effect."""

    def copy(self) -> Self:
        """Returns a space that goes on from here by itself."""
        other = copy(self)
        other.past = self.past.copy()
        return other

    @property
    def facts(self) -> Facts:
        """Returns all facts."""
        return self.past.facts[-1] if self.past.facts else {}

    @property
    def derived(self) -> Facts:
        """Returns the facts that follow, and that no owner claims."""
        claimed = {key(fact) for held in self.claims.values() for fact in held.values()}
        return {at: fact for at, fact in self.facts.items() if at not in claimed}

    @property
    def is_settled(self) -> bool:
        """False if ``next`` asks for another turn, as what it derives will change."""
        return self.carried.keys() == self.coming.keys() == self.remaining.keys()

    # -- turns ------------------------------------------------------------------------------------------

    def turn(
        self, parts: Sequence[tuple[str, Sequence[tuple[Any, ...]]]], time: int, *, is_lost: bool = False
    ) -> Epoch | None:
        """Makes a turn of one owner or several; returns None for one that observers see nothing of.

        Raises ``Refused`` for a handle that is in use, or of which an owner claims nothing; and where the
        epoch ``is_lost``, since the log does not take it.
        """
        claims, messages = dict(self.claims), list[Value]()
        for owner, actions in parts:
            claims[owner], sent = self.carried_out(owner, actions)
            messages += sent
        if is_lost:
            raise Refused("full")
        return self._next_state({at: each for at, each in claims.items() if each}, time, messages)

    def carried_out(
        self, owner: str, actions: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Value], list[Value]]:
        """What an owner claims after these actions, and the messages of the turn."""
        held, messages = dict(self.claims.get(owner, {})), []
        stated: dict[object, tuple[int, Value, bool]] = {}
        for verb, *rest in actions:
            if verb in (ASSERT, REPLACE, PUT) and rest[verb == REPLACE] in held:
                raise Refused("handle-in-use")
            if verb in (RETRACT, REPLACE) and rest[0] not in held:
                raise Refused("unknown-handle")
            if verb == SEND:
                messages.append(rest[0])
            elif verb == SWEEP:
                held = {at: fact for at, fact in held.items() if match(rest[0], fact) is None}
            elif verb == PUT:
                held = {at: fact for at, fact in held.items() if not _has_key(fact, rest[1], rest[2])}
                held[rest[0]] = rest[1]
            elif verb in (STATE, UNSTATE):  # the last that is said of a fact counts
                before = stated.get(key(rest[0]))
                stated[key(rest[0])] = verb, rest[0], verb == UNSTATE or (before is not None and before[2])
            elif verb in (RETRACT, REPLACE):
                del held[rest[0]]
            if verb in (ASSERT, REPLACE):
                held[rest[-2]] = rest[-1]
        return _stating(held, stated.values()), messages

    def end(self, owners: Collection[str], time: int) -> Epoch | None:
        """Retracts all that these owners claim, in one epoch."""
        return self._next_state({at: each for at, each in self.claims.items() if at not in owners}, time)

    def settle(self, time: int) -> Epoch | None:
        """Makes the turn that ``next`` asks for."""
        return self._next_state(self.claims, time)

    def become(self, claims: Claimed, time: int, messages: Sequence[Value] = ()) -> Epoch | None:
        """Makes a turn after which owners claim this, and which sends these, whatever its actions were."""
        return self._next_state({at: each for at, each in claims.items() if each}, time, messages)

    def until(self, time: int) -> Iterator[Epoch | None]:
        """Makes the turns that time alone makes up to a time: one for each instant at which facts change, or
        after which ``next`` may ask for one."""
        begun = self.past.times[-1] if self.begun else time
        for instant in range(begun // GRID * GRID + GRID, time + 1, GRID):
            made = self._next_state(self.claims, instant)
            if made is not None or not self.is_settled:
                yield made
        self.latest = max(self.latest, time)

    # -- states -----------------------------------------------------------------------------------------

    def _next_state(self, claims: Claimed, time: int, messages: Sequence[Value] = ()) -> Epoch | None:
        """Adds a state with these claims; returns what observers of everything are shown of it.

        Times never go back: a clock that is behind the latest state stands still.
        """
        before, time = self.facts, max([time, self.latest, *self.past.times[-1:]])
        claimed = [fact for held in claims.values() for fact in held.values()]
        texts = {key(fact): text for fact in claimed if (text := _text_of(fact)) is not None}
        self.begun = {at: self.begun.get(at, len(self.past.times)) for at in texts}
        rules = [(rule, self.begun[at]) for at, text in texts.items() for rule in read(text)]
        carried = {at: fact for at, fact in self.coming.items() if _is_kept(fact, rules)}
        base = [*claimed, *carried.values()]
        facts = follow_in(self.past, rules, base, time, messages)
        within = facts
        if messages:  # for rules a message is a fact of its turn
            within = follow_in(self.past, rules, [*base, *messages], time, messages, staying=facts)

        def heads(verb: Verb, of: Facts) -> Facts:
            views = [(rule, View(self.past, begun, time, of, messages, facts)) for rule, begun in rules]
            return {
                at: head
                for rule, view in views
                if rule.head.verb is verb
                for at, head in heads_in(rule, view).items()
            }

        sent = frozenset(heads(Verb.SEND, within).keys() - self.sending.keys())
        self.carried, self.sending = carried, heads(Verb.SEND, facts)
        self.coming, self.remaining = heads(Verb.NEXT, within), heads(Verb.NEXT, facts)
        self.claims = claims
        self.past.add(time, facts, messages)
        added, removed = frozenset(facts.keys() - before.keys()), frozenset(before.keys() - facts.keys())
        if not (added or removed or messages or sent):
            return None
        return Epoch(time, added, tuple(map(key, messages)), sent, removed)


def _is_kept(fact: Value, rules: Sequence[tuple[Rule, int]]) -> bool:
    """True if a rule of ``next`` has heads like this fact: what the last of them has derived goes with it."""
    assert isinstance(fact, Record)  # as heads are
    return any(
        rule.head.verb is Verb.NEXT
        and rule.head.label == fact.label
        and len(rule.head.arguments) == len(fact.fields)
        for rule, _ in rules
    )


def _text_of(fact: Value) -> str | None:
    """Returns the text of a fact that is a rule."""
    return str(fact.fields[1]) if isinstance(fact, Record) and fact.label == "rule" else None


def _has_key(fact: Value, other: Value, by: Value) -> bool:
    """True if two facts have one key: the captures of a pattern, or all fields of a record but the last."""
    if by is not None:
        row, wanted = match(by, fact), match(by, other)
        return row is not None and key(row) == key(wanted)
    if not isinstance(fact, Record) or not isinstance(other, Record):
        return False
    parts = [(key(each.label), len(each.fields), key(each.fields[:-1])) for each in (fact, other)]
    return parts[0] == parts[1]


def _stating(held: dict[int, Value], stated: Iterable[tuple[int, Value, bool]]) -> dict[int, Value]:
    """Returns claims after facts that were named without handles: each claimed once, or not at all.

    A fact that is claimed already stays as it is, but with one claim if it was ended before it was stated;
    the handles of others are not known to clients.
    """
    for verb, fact, is_ended in stated:
        same = [at for at, each in held.items() if key(each) == key(fact)]
        gone = same[verb == STATE :] if is_ended else ()
        held = {at: each for at, each in held.items() if at not in gone}
        if verb == STATE and not same:
            held = {**held, min([0, *held]) - 1: fact}
    return held
