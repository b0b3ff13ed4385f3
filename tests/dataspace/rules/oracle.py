"""What follows from facts, computed from nothing by trying every fact at every atom: no indexes, no deltas.

Rules are held to this.  Strata are found by raising numbers until nothing contradicts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from dataspace.rules.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    EitherGroup,
    Elements,
    Expression,
    GroupAggregate,
    Literal,
    NegatedGroup,
    Rule,
    Structure,
    Variable,
)
from index.patterns.patterns import matcher
from index.patterns.skeletons import skeleton
from index.values.values import Map, Record, Value, key, order_key, same
from tests.dataspace.rules.expression_oracle import is_true, value_of


class _NotYet(Exception):
    """A comparison needs a variable that another group binds."""


Facts = dict[object, Value]
Solution = dict[str, Value]


def follow(rules: Sequence[Rule], claimed: Iterable[Value], rounds: int = 1 << 30) -> Facts:
    """All facts: those claimed and those that follow, by key, after so many rounds in each stratum."""
    facts: Facts = {key(value): value for value in claimed}
    number = _strata(rules)
    for stratum in range(max(number.values(), default=0) + 1):
        chosen = [rule for rule in rules if number[rule.head.label] == stratum]
        grown, left = True, rounds
        while grown and left:
            left -= 1
            new = [fact for rule in chosen for fact in _heads(rule, facts)]
            grown = any(key(fact) not in facts for fact in new)
            facts.update((key(fact), fact) for fact in new)
    return facts


def _strata(rules: Sequence[Rule]) -> dict[Value, int]:
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
            case EitherGroup(branches):
                for branch in branches:
                    yield from _read(branch, blocks)
            case NegatedGroup(literals) | GroupAggregate(_, literals):
                yield from _read(literals, True)


def _heads(rule: Rule, facts: Facts) -> Iterator[Value]:
    everything = bool(rule.head.aggregates)
    needed = {name for each in rule.head.arguments for name in _names(each)}
    solutions = list(_solutions(rule.body, {}, list(facts.values()), needed, everything))
    if not everything:
        for solution in solutions:
            yield Record.of(rule.head.label, tuple([_value(each, solution) for each in rule.head.arguments]))
        return
    distinct = {key(Map.of(list(solution.items()))): solution for solution in solutions}
    groups: dict[object, list[Solution]] = {}
    for solution in distinct.values():
        plain = [_value(e, solution) for e in rule.head.arguments if not isinstance(e, Aggregate)]
        groups.setdefault(key(tuple(plain)), []).append(solution)
    for group in groups.values():
        fields = [
            _aggregate(e, [_value(e.of, s) for s in group])
            if isinstance(e, Aggregate)
            else _value(e, group[0])
            for e in rule.head.arguments
        ]
        yield Record.of(rule.head.label, tuple(fields))


def _solutions(
    body: Sequence[Literal], known: Solution, facts: list[Value], needed: set[str], everything: bool
) -> Iterator[Solution]:
    """Positive atoms first, in the order of the text; then whatever can be asked, negations at last.

    ``needed`` are the variables that are used beside the body.
    """
    yield from _rest(list(body), body, known, facts, needed, everything)


def _rest(
    left: list[Literal],
    body: Sequence[Literal],
    known: Solution,
    facts: list[Value],
    needed: set[str],
    everything: bool,
) -> Iterator[Solution]:
    def on(literal: Literal, found: Solution) -> Iterator[Solution]:
        return _rest([e for e in left if e is not literal], body, found, facts, needed, everything)

    for literal in left:
        if isinstance(literal, Atom) and not literal.negated:
            pattern = _open(literal.pattern, len(left)) if everything else literal.pattern
            names, match = skeleton(pattern).names, matcher(pattern)
            for fact in facts:
                row = match(fact)
                joined = None if row is None else _joined(known, names, row)
                if joined is not None:
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
            whole = _value(literal.of, known)
            rows = [(each,) for each in whole] if isinstance(whole, tuple) else whole.pairs()  # type: ignore[union-attr]  # a map, in these programs
            for row in {key(tuple(each)): each for each in rows}.values():
                joined = _joined(known, literal.names, row)
                if joined is not None:
                    yield from on(literal, joined)
            return
    for literal in left:
        if isinstance(literal, EitherGroup | GroupAggregate):
            beside = needed | {n for e in body if e is not literal for n in _visible(e)}
            try:
                if isinstance(literal, EitherGroup):
                    solutions = _either(literal, known, facts, beside)
                else:
                    solutions = list(_counted(literal, known, facts, beside))
            except _NotYet:
                continue
            for found in solutions:
                yield from on(literal, found)
            return
    if any(isinstance(literal, Comparison | Elements | EitherGroup | GroupAggregate) for literal in left):
        raise _NotYet
    for literal in left:
        if isinstance(literal, Atom) and not _absent(literal, known, facts):
            return
        if isinstance(literal, NegatedGroup) and any(
            True for _ in _solutions(literal.literals, known, facts, set(), False)
        ):
            return
    yield known


def _either(group: EitherGroup, known: Solution, facts: list[Value], beside: set[str]) -> list[Solution]:
    found: dict[object, Solution] = {}
    for branch in group.branches:
        for solution in _solutions(branch, known, facts, beside, False):
            kept = {name: value for name, value in solution.items() if name in beside or name in known}
            found[key(Map.of(list(kept.items())))] = kept
    return list(found.values())


def _counted(
    group: GroupAggregate, known: Solution, facts: list[Value], beside: set[str]
) -> Iterator[Solution]:
    groups: dict[object, dict[object, Solution]] = {}
    needed = beside | set(_names(group.aggregate))
    for solution in _solutions(group.literals, known, facts, needed, True):
        kept = {name: value for name, value in solution.items() if name in beside or name in known}
        at = key(Map.of(list(kept.items())))
        groups.setdefault(at, {})[key(Map.of(list(solution.items())))] = solution
    for distinct in groups.values():
        some = list(distinct.values())
        value = _aggregate(group.aggregate, [_value(group.aggregate.of, each) for each in some])
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


_LATER: Solution = {"later": None}


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


def _absent(atom: Atom, known: Solution, facts: list[Value]) -> bool:
    names, match = skeleton(atom.pattern).names, matcher(atom.pattern)
    return not any(row is not None and _joined(known, names, row) is not None for row in map(match, facts))


def _joined(known: Solution, names: Sequence[str | None], row: Sequence[Value]) -> Solution | None:
    found = dict(known)
    for name, value in zip(names, row, strict=True):
        if name is not None and not same(found.setdefault(name, value), value):
            return None
    return found


def _open(pattern: Value, at: int) -> Value:
    """Discards as variables of their own, since an aggregate tells apart what differs in them."""
    match pattern:
        case Record(label="_", fields=()):
            return Record("$", f"open-{at}", None, Record("_"))
        case Record(label="$" | "lit" | "exact"):
            return pattern
        case Record(label=label, fields=fields):
            return Record.of(label, tuple([_open(each, at * 10 + n) for n, each in enumerate(fields)]))
        case _:
            return pattern


def _value(expression: Expression | Aggregate, known: Solution) -> Value:
    assert not isinstance(expression, Aggregate)  # its groups take it
    return value_of(expression, known)


def _aggregate(aggregate: Aggregate, values: list[Value]) -> Value:
    if aggregate.distinct:
        values = list({key(each): each for each in values}.values())
    ordered = sorted(values, key=order_key)
    match aggregate.name:
        case "count":
            return len(values)
        case "sum":
            return sum(values)  # type: ignore[arg-type]  # numbers, in these programs
        case "avg":
            return float(Fraction(sum(values), len(values)))  # type: ignore[arg-type]  # as above
        case "min":
            return ordered[0]
        case "max":
            return ordered[-1]
        case "top":
            return tuple(ordered[::-1][: aggregate.n])
        case _:
            return tuple(ordered)
