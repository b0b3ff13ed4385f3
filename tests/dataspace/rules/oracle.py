"""What follows from facts, computed from nothing by trying every fact at every atom: no indexes, no deltas.

Rules are held to this.  Strata are found by raising numbers until nothing contradicts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from dataspace.rules.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Expression,
    Rule,
    Variable,
)
from index.patterns.patterns import matcher
from index.patterns.skeletons import skeleton
from index.values.values import Map, Record, Value, key, order_key, same
from tests.dataspace.rules.expression_oracle import is_true, value_of


def _plain(rule: Rule) -> list[Atom | Comparison]:
    """The body of a rule without times."""
    return [each for each in rule.body if isinstance(each, Atom | Comparison)]


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
            for atom in rule.atoms:
                label = atom.pattern.label if isinstance(atom.pattern, Record) else None
                if label in number:
                    step = atom.negated or bool(rule.head.aggregates)
                    number[rule.head.label] = max(number[rule.head.label], number[label] + step)
    return number


def _heads(rule: Rule, facts: Facts) -> Iterator[Value]:
    everything = bool(rule.head.aggregates)
    solutions = list(_solutions(rule, _plain(rule), {}, list(facts.values()), everything))
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
    rule: Rule, body: list[Atom | Comparison], known: Solution, facts: list[Value], everything: bool
) -> Iterator[Solution]:
    """Positive atoms first, in the order of the text; then whatever can be asked."""
    positive = [each for each in body if isinstance(each, Atom) and not each.negated]
    if positive:
        rest = [each for each in body if each is not positive[0]]
        pattern = _open(positive[0].pattern, len(body)) if everything else positive[0].pattern
        names, match = skeleton(pattern).names, matcher(pattern)
        for fact in facts:
            row = match(fact)
            if row is not None:
                found = _joined(known, names, row)
                if found is not None:
                    yield from _solutions(rule, rest, found, facts, everything)
        return
    for literal in body:
        if isinstance(literal, Comparison):
            solved = _ask(literal, known)
            if solved is None:
                return
            if solved is not _LATER:
                yield from _solutions(rule, [e for e in body if e is not literal], solved, facts, everything)
                return
    if all(_absent(literal, known, facts) for literal in body if isinstance(literal, Atom)):
        yield known


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
