"""What follows from facts by rules, in one state: every fact is tried at every atom.

Rules are in strata: what a rule negates, counts, or looks back at is complete before the rule is tried.  In a
stratum rules are tried until nothing new follows.

Time adds a past.  A *stay* is a fact with the time at which it came, and the time at which it went if it has
gone; a fact and a message are *occurrences*, each for itself, also where they are equal.  A rule sees what
happened from the state in which its text came.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import stdev
from typing import Final, NamedTuple

from dataspace.rules.language.syntax import (
    Aggregate,
    Arithmetic,
    Atom,
    Comparison,
    EitherGroup,
    Elements,
    Expression,
    FunctionCall,
    GroupAggregate,
    LastingGroup,
    Literal,
    MaybeGroup,
    NegatedGroup,
    Rule,
    Structure,
    TimedAtom,
    Variable,
    Verb,
)
from index.values.values import Map, Record, Value, key, order_key, same
from tests.model.calendars import following
from tests.model.expressions import NOW, is_true, micros_of, time_of, value_of
from tests.model.patterns import named

GRID: Final = 10_000
"""Microseconds between two instants: time alone changes what follows only at multiples of it."""

NO_VALUE: Final = Record("an aggregate without a value")

Facts = dict[Hashable, Value]
"""Facts by their keys."""

Solution = dict[str, Value]
"""The values of the variables with which a body holds."""


class Occurrence(NamedTuple):
    """A stay of a fact, or a message; ``end`` is None for a fact that is there."""

    value: Value
    since: int
    end: int | None


class Past:
    """The states of a space, one after the other: one for each turn, and for each instant.

    Each has a time, the facts at its end, and the messages of clients in its turn.
    """

    def __init__(self) -> None:
        self.times: list[int] = []
        self.facts: list[Facts] = []
        self.held: dict[Hashable, tuple[Value, int]] = {}
        """The facts of the latest state, each with the number of the state in which it came."""
        self.gone: list[tuple[Value, int, int]] = []
        """Facts that have gone, each with the numbers of two states: in one it came, in one it went."""
        self.sent: list[tuple[Value, int]] = []
        """Messages, with the numbers of their states."""
        self.lasted: dict[Hashable, dict[Hashable, Solution]] = {}
        """What held together in a state, where that was asked before."""

    def copy(self) -> Past:
        """Returns a past that goes on from here by itself."""
        other = Past()
        other.times, other.facts = [*self.times], [*self.facts]
        other.held, other.gone, other.sent = dict(self.held), [*self.gone], [*self.sent]
        other.lasted = dict(self.lasted)
        return other

    def add(self, time: int, facts: Facts, messages: Sequence[Value] = ()) -> None:
        """Adds the next state."""
        number = len(self.times)
        self.gone += [(*self.held.pop(at), number) for at in self.held.keys() - facts.keys()]
        for at, fact in facts.items():
            self.held.setdefault(at, (fact, number))
        self.sent += [(message, number) for message in messages]
        self.times.append(time)
        self.facts.append(facts)


class View:
    """What one rule sees in a state that is being made: its facts so far, and the past from ``begun`` on."""

    def __init__(
        self,
        past: Past,
        begun: int,
        time: int,
        facts: Facts,
        messages: Sequence[Value],
        staying: Facts | None = None,
    ) -> None:
        """``staying`` are the facts of the state, where ``facts`` has those as well that go with a message:
        of these an atom knows, and time does not."""
        self.past = past
        self.begun = begun
        self.times = [*past.times, time]
        self.facts = facts
        self.staying = facts if staying is None else staying
        self.messages = messages
        self.now = time // GRID * GRID

    def is_old(self, span: int) -> bool:
        """True if the rule is there for so long."""
        return self.times[self.begun] + span <= self.now

    def stays(self) -> Iterator[Occurrence]:
        """Yields the facts that are there, as stays."""
        for at, fact in self.staying.items():
            _, since = self.past.held.get(at, (fact, len(self.times) - 1))
            yield Occurrence(fact, self.times[max(since, self.begun)], None)

    def ended(self) -> Iterator[Occurrence]:
        """Yields the stays that have ended, and the messages, which end when they come."""
        last = len(self.times) - 1
        going = [(*self.past.held[at], last) for at in self.past.held.keys() - self.staying.keys()]
        for fact, since, end in [*self.past.gone, *going]:
            if end > self.begun:
                yield Occurrence(fact, self.times[max(since, self.begun)], self.times[end])
        for message, at in [*self.past.sent, *[(each, last) for each in self.messages]]:
            if at >= self.begun:
                yield Occurrence(message, self.times[at], self.times[at])

    def _heard(self) -> Iterator[Occurrence]:
        """Yields the messages of this state that are among its facts, if no fact that stays is equal."""
        for message in self.messages:
            if key(message) in self.facts.keys() - self.staying.keys():
                yield Occurrence(message, self.times[-1], self.times[-1])

    def ranged(self, atom: TimedAtom, is_final: bool) -> Iterator[Occurrence]:
        """Yields what an atom with times ranges over."""
        yield from self.stays()
        if atom.within is None:
            yield from self._heard()
        else:
            for each in self.ended():
                if is_final or (each.end or 0) + atom.within > self.now:
                    yield each


def follow(rules: Sequence[Rule], claimed: Iterable[Value], rounds: int = 1 << 30) -> Facts:
    """All facts without times: those claimed and those that follow, after so many rounds in each stratum."""
    return follow_in(Past(), [(rule, 0) for rule in rules], claimed, 0, (), rounds)


def follow_in(
    past: Past,
    rules: Sequence[tuple[Rule, int]],
    claimed: Iterable[Value],
    time: int,
    messages: Sequence[Value] = (),
    rounds: int = 1 << 30,
    staying: Facts | None = None,
) -> Facts:
    """All facts of the state after a past: those claimed, and those that follow.

    Each rule comes with the number of the state in which it came.  ``messages`` are those of the clients in
    this state, which are occurrences of it.  ``staying`` is as in ``View``.
    """
    facts: Facts = {key(value): value for value in claimed}
    number = _strata([rule for rule, _ in rules])
    for stratum in range(max(number.values(), default=0) + 1):
        chosen = [
            (rule, View(past, begun, time, facts, messages, staying))
            for rule, begun in rules
            if number[rule.head.label] == stratum and rule.head.verb in (Verb.ASSERT, Verb.FINAL)
        ]
        grown, left = True, rounds
        while grown and left:
            left -= 1
            new = [fact for rule, view in chosen for fact in _heads(rule, view)]
            grown = any(key(fact) not in facts for fact in new)
            facts.update((key(fact), fact) for fact in new)
    return facts


def heads_in(rule: Rule, view: View) -> Facts:
    """What follows from the facts of a whole state by one rule: messages, or facts of the next state."""
    return {key(head): head for head in _heads(rule, view)}


# -- strata -----------------------------------------------------------------------------------------


def _strata(rules: Sequence[Rule]) -> dict[Value, int]:
    """Numbers that are raised until nothing contradicts them."""
    number: dict[Value, int] = {rule.head.label: 0 for rule in rules}
    for _ in range(len(rules) ** 2 + 1):
        for rule in rules:
            for label, blocks in _read(rule.body, bool(rule.head.aggregates)):
                if label in number:
                    number[rule.head.label] = max(number[rule.head.label], number[label] + blocks)
    return number


def _read(body: Iterable[Literal], blocks: bool) -> Iterator[tuple[Value, bool]]:
    """The labels that literals read, and whether they wait for all of them."""
    for each in body:
        match each:
            case Atom(Record(label=label), negated):
                yield label, blocks or negated
            case TimedAtom(Record(label=label)):
                yield label, True
            case EitherGroup(branches):
                for branch in branches:
                    yield from _read(branch, blocks)
            case (
                NegatedGroup(literals)
                | GroupAggregate(_, literals)
                | LastingGroup(literals)
                | MaybeGroup(literals)
            ):
                yield from _read(literals, True)


# -- heads ------------------------------------------------------------------------------------------


def _heads(rule: Rule, view: View) -> Iterator[Value]:
    everything = bool(rule.head.aggregates)
    needed = {name for each in rule.head.arguments for name in _names(each)}
    body = _Body(view, everything, is_final=rule.head.verb is Verb.FINAL)
    literals = [each for each in rule.body if not _is_maybe(each)]
    solutions = list(body.solutions(literals, {NOW: time_of(view.now)}, needed))
    if rule.head.verb is Verb.FINAL:
        solutions = [each for each in solutions if _is_complete(rule, each, view.now)]
    if not everything:
        for solution in solutions:
            yield Record.of(rule.head.label, tuple([_value(each, solution) for each in rule.head.arguments]))
        return
    groups = _grouped(rule, solutions)
    further: dict[str, dict[object, list[Solution]]] = {}
    for maybe in filter(_is_maybe, rule.body):
        whole = [*literals, _surely(maybe)]
        found = _grouped(rule, body.solutions(whole, {NOW: time_of(view.now)}, needed))
        own = set(_names(maybe)) - {name for each in literals for name in _names(each)}
        further.update(dict.fromkeys(own, found))
    for at, group in groups.items():
        fields = []
        for e in rule.head.arguments:
            if isinstance(e, Aggregate):
                taken = next((further[name] for name in _names(e) if name in further), groups)
                fields.append(_aggregate(e, taken.get(at, ())))
            else:
                fields.append(_value(e, group[0]))
        if not any(each is NO_VALUE for each in fields):
            yield Record.of(rule.head.label, tuple(fields))


def _is_maybe(literal: Literal) -> bool:
    return isinstance(literal, MaybeGroup) or (isinstance(literal, Atom | TimedAtom) and literal.maybe)


def _surely(literal: Literal) -> Literal:
    """What may be there as what must."""
    if isinstance(literal, MaybeGroup):
        return EitherGroup((literal.literals,))
    assert isinstance(literal, Atom | TimedAtom)  # there are no others
    return replace(literal, maybe=False)


def _grouped(rule: Rule, solutions: Iterable[Solution]) -> dict[object, list[Solution]]:
    """Distinct solutions by the fields of the head that are no aggregates."""
    distinct = {key(Map.of(list(solution.items()))): solution for solution in solutions}
    groups: dict[object, list[Solution]] = {}
    for solution in distinct.values():
        plain = [_value(e, solution) for e in rule.head.arguments if not isinstance(e, Aggregate)]
        groups.setdefault(key(tuple(plain)), []).append(solution)
    return groups


def _is_complete(rule: Rule, solution: Solution, now: int) -> bool:
    """True from the end of a window of ``floor`` on, until its first row would leave ``within``."""
    (atom,) = [each for each in rule.body if isinstance(each, TimedAtom)]
    (floor,) = [
        side
        for each in rule.body
        if isinstance(each, Comparison)
        for side in (each.left, each.right)
        if isinstance(side, Arithmetic | FunctionCall) and str(side).startswith("floor(")
    ]
    begin = micros_of(_value(floor, solution))
    if isinstance(floor, FunctionCall):
        unit, zone = (str(_value(each, solution)) for each in floor.arguments[1:])
        window = micros_of(following(time_of(begin), unit, zone)) - begin
        return begin + window <= now < begin + (atom.within or 0)
    window = round(float(str(_value(floor.right, solution))) * 1_000_000)
    return begin + window <= now < begin + (atom.within or 0)


def _aggregate(aggregate: Aggregate, solutions: Sequence[Solution]) -> Value:
    values = [_value(aggregate.of, each) for each in solutions]
    if aggregate.distinct:
        values = list({key(each): each for each in values}.values())
    if not values and aggregate.otherwise is not None:
        return _value(aggregate.otherwise, {})
    ordered = sorted(values, key=order_key)
    match aggregate.name:
        case "count":
            return len(values)
        case "sum":
            return sum(values)  # type: ignore[arg-type]  # numbers, in these programs
        case "avg":
            return float(Fraction(sum(values), len(values)))  # type: ignore[arg-type]  # as above
        case "stddev" if len(values) < 2:
            return NO_VALUE if aggregate.otherwise is None else _value(aggregate.otherwise, {})
        case "stddev":
            return float(stdev([Fraction(each) for each in values]))  # type: ignore[arg-type]  # as above
        case "first" | "last":
            assert aggregate.by is not None
            pairs = [(_value(aggregate.by, each), _value(aggregate.of, each)) for each in solutions]
            pairs.sort(key=order_key)
            return pairs[0 if aggregate.name == "first" else -1][1]
        case "min":
            return ordered[0]
        case "max":
            return ordered[-1]
        case "top":
            return tuple(ordered[::-1][: int(aggregate.n)])
        case "percentile":
            below = [at for at in range(len(ordered)) if 100 * at < Fraction(str(aggregate.n)) * len(ordered)]
            return ordered[below[-1]]
        case _:
            return tuple(ordered)


# -- bodies -----------------------------------------------------------------------------------------


class _NotYet(Exception):
    """A comparison needs a variable that another group binds."""


_LATER: Solution = {"later": None}


class _Body:
    """How literals hold together in one state."""

    def __init__(self, view: View, everything: bool, *, is_final: bool = False, depth: int = 0) -> None:
        """With ``everything`` solutions differ in what no variable names: an aggregate counts them."""
        self.view = view
        self.facts = list(view.facts.values())
        self.everything = everything
        self.is_final = is_final
        self.depth = depth

    def inner(self, everything: bool = False) -> _Body:
        """The body of a group within this one."""
        return _Body(self.view, everything, depth=self.depth + 1)

    def solutions(self, body: Sequence[Literal], known: Solution, needed: set[str]) -> Iterator[Solution]:
        """Positive atoms first, in the order of the text; then whatever can be asked, negations at last.

        ``needed`` are the variables that are used beside the body.
        """
        yield from self._rest(list(body), body, known, needed)

    def _rest(
        self, left: list[Literal], body: Sequence[Literal], known: Solution, needed: set[str]
    ) -> Iterator[Solution]:
        def on(literal: Literal, found: Solution) -> Iterator[Solution]:
            return self._rest([e for e in left if e is not literal], body, found, needed)

        for literal in left:
            if isinstance(literal, Atom | TimedAtom) and not literal.negated:
                for found in self._matched(literal, known, len(left)):
                    yield from on(literal, found)
                return
            if isinstance(literal, LastingGroup):
                others = [e for e in body if e is not literal]
                beside = needed | {n for e in others for n in (*_visible(e), *_taken_in(e))}
                for held in self._lasting(literal, beside):
                    if (joined := _joined(known, held.items())) is not None:
                        yield from on(literal, joined)
                return
        for literal in left:
            if isinstance(literal, Comparison):
                solved = _ask(literal, known)
                if solved is None:
                    return
                if solved is not _LATER:
                    yield from on(literal, solved)
                    return
        for literal in left:
            if isinstance(literal, Elements) and set(_names(literal.of)) <= set(known):
                for row in _elements(literal, known):
                    if (joined := _joined(known, zip(literal.names, row, strict=True))) is not None:
                        yield from on(literal, joined)
                return
        for literal in sorted(left, key=lambda each: isinstance(each, GroupAggregate)):
            if isinstance(literal, EitherGroup | GroupAggregate):
                beside = needed | {n for e in body if e is not literal for n in _visible(e)}
                if isinstance(literal, EitherGroup):
                    beside |= _bound(literal) & {n for e in body for n in _taken_in(e)}
                try:
                    if isinstance(literal, EitherGroup):
                        solutions = self._either(literal, known, beside)
                    else:
                        solutions = list(self._counted(literal, known, beside))
                except _NotYet:
                    continue
                for found in solutions:
                    yield from on(literal, found)
                return
        if any(isinstance(literal, Comparison | Elements | EitherGroup | GroupAggregate) for literal in left):
            raise _NotYet
        if all(self._is_absent(literal, known) for literal in left):
            yield known

    def _matched(self, atom: Atom | TimedAtom, known: Solution, number: int) -> Iterator[Solution]:
        """Yields what an atom makes of the known variables, for each fact or occurrence that matches it."""
        unnamed = f"{self.depth}-{number}"
        pattern = _open(atom.pattern, unnamed) if self.everything else atom.pattern
        if isinstance(atom, Atom):
            for fact in self.facts:
                if (joined := _joined(known, named(pattern, fact))) is not None:
                    yield joined
            return
        for at, each in enumerate(self.view.ranged(atom, self.is_final)):
            joined = _joined(known, named(pattern, each.value))
            if joined is not None and atom.at is not None:
                joined = _joined(joined, [(atom.at, time_of(each.since))])
            if joined is not None:
                yield joined | {f"occurrence-{unnamed}": at} if self.everything else joined

    def _is_absent(self, literal: Literal, known: Solution) -> bool:
        if isinstance(literal, NegatedGroup):
            return not any(True for _ in self.inner().solutions(literal.literals, known, set()))
        assert isinstance(literal, Atom | TimedAtom)  # as all others were asked before
        if isinstance(literal, TimedAtom) and not self.view.is_old(literal.within or 0):
            return False
        return not any(True for _ in self.inner()._matched(literal, known, 0))

    def _lasting(self, group: LastingGroup, beside: set[str]) -> list[Solution]:
        """What has held in every state for a span, for the same values of variables that are used beside."""
        view, since = self.view, dict[Hashable, tuple[int, Solution]]()
        for number in range(view.begun, len(view.times)):
            held = self._held_in(number, group, beside)
            since = {at: since.get(at, (view.times[number], kept)) for at, kept in held.items()}
        return [kept for time, kept in since.values() if time + group.span <= view.now]

    def _held_in(self, number: int, group: LastingGroup, beside: set[str]) -> dict[Hashable, Solution]:
        """What holds together in one state, the one that is being made or an earlier one."""
        past = self.view.past
        asked = number, group, frozenset(beside)
        if (found := past.lasted.get(asked)) is not None:
            return found
        facts = past.facts[number] if number < len(past.facts) else self.view.staying
        held: dict[Hashable, Solution] = {}
        body = _Body(View(Past(), 0, 0, facts, ()), False)
        for solution in body.solutions(group.literals, {}, beside):
            kept = {name: value for name, value in solution.items() if name in beside}
            held[key(Map.of(list(kept.items())))] = kept
        if number < len(past.facts):
            past.lasted[asked] = held
        return held

    def _either(self, group: EitherGroup, known: Solution, beside: set[str]) -> list[Solution]:
        found: dict[object, Solution] = {}
        for branch in group.branches:
            for solution in self.inner().solutions(branch, known, beside):
                kept = {name: value for name, value in solution.items() if name in beside or name in known}
                found[key(Map.of(list(kept.items())))] = kept
        return list(found.values())

    def _counted(self, group: GroupAggregate, known: Solution, beside: set[str]) -> Iterator[Solution]:
        groups: dict[object, dict[object, Solution]] = {}
        needed = beside | set(_names(group.aggregate))
        for solution in self.inner(everything=True).solutions(group.literals, known, needed):
            kept = {name: value for name, value in solution.items() if name in beside or name in known}
            at = key(Map.of(list(kept.items())))
            groups.setdefault(at, {})[key(Map.of(list(solution.items())))] = solution
        for distinct in groups.values():
            some = list(distinct.values())
            value = _aggregate(group.aggregate, some)
            if value is NO_VALUE:
                continue
            kept = {name: each for name, each in some[0].items() if name in beside or name in known}
            solved = _ask(Comparison(group.operator, Structure(Record("lit", value)), group.other), kept)
            if solved is _LATER:
                raise _NotYet
            if solved is not None:
                yield solved


def _names(part: object) -> list[str]:
    return re.findall(r"\$([\w-]+)", str(part))


def _visible(literal: Literal) -> list[str]:
    """The variables that a literal has in common with others."""
    match literal:
        case NegatedGroup():
            return []
        case GroupAggregate(_, _, _, other):
            return _names(other)
        case EitherGroup(branches):
            return [name for branch in branches for each in branch for name in _visible(each)]
    return _names(literal)


def _taken_in(literal: Literal) -> list[str]:
    """The variables inside a group that knows those beside it, and shows none of its own."""
    match literal:
        case NegatedGroup(literals) | GroupAggregate(_, literals):
            return [name for each in literals for name in _names(each)]
    return []


def _bound(literal: Literal) -> set[str]:
    """The variables to which the facts of a literal give values: of branches, what all of them do."""
    match literal:
        case Atom(_, False) | TimedAtom(_, False):
            return set(_names(literal))
        case LastingGroup(literals):
            return set().union(*map(_bound, literals))
        case EitherGroup(branches):
            return set.intersection(*[set().union(*map(_bound, branch)) for branch in branches])
    return set()


def _elements(literal: Elements, known: Solution) -> Iterable[Sequence[Value]]:
    whole = _value(literal.of, known)
    rows = [(each,) for each in whole] if isinstance(whole, tuple) else whole.pairs()  # type: ignore[union-attr]  # a map, in these programs
    return {key(tuple(each)): each for each in rows}.values()


def _ask(literal: Comparison, known: Solution) -> Solution | None:
    for one, other in (literal.left, literal.right), (literal.right, literal.left):
        if literal.operator == "=" and isinstance(one, Variable) and one.name not in known:
            try:
                return known | {one.name: _value(other, known)}
            except KeyError:
                return _LATER
    try:
        return known if is_true(literal, known) else None
    except KeyError:
        return _LATER


def _joined(known: Solution, row: Iterable[tuple[str | None, Value]] | None) -> Solution | None:
    if row is None:
        return None
    found = dict(known)
    for name, value in row:
        if name is not None and not same(found.setdefault(name, value), value):
            return None
    return found


def _open(pattern: Value, at: str) -> Value:
    """Discards as variables of their own, since an aggregate tells apart what differs in them."""
    match pattern:
        case Record(label="_", fields=()):
            return Record("$", f"open-{at}", None, Record("_"))
        case Record(label="$" | "lit" | "exact"):
            return pattern
        case Record(label=label, fields=fields):
            return Record.of(label, tuple([_open(each, f"{at}-{n}") for n, each in enumerate(fields)]))
        case _:
            return pattern


def _value(expression: Expression | Aggregate, known: Solution) -> Value:
    assert not isinstance(expression, Aggregate)  # its groups take it
    return value_of(expression, known)
