"""Groups: ``or``, the negation of several literals, and aggregates in bodies become rules of their own.

Each group is taken out of its rule, and an atom that reads a hidden head stands in its place.  The head has
the variables that the group shares with the rest of the rule.  What its branches compare and do not bind
comes from the literals beside it.  ``p($x) <- q($x, $n), ($n > 3 or vip($x)).`` becomes

    hidden("($n > 3 or vip($x)) …"($n, $x)) <- q($x, $n), $n > 3.
    hidden("($n > 3 or vip($x)) …"($n, $x)) <- q($x, $n), vip($x).
    p($x) <- q($x, $n), "($n > 3 or vip($x)) …"($n, $x).

Always: the only groups left are groups of ``for``, with plain literals in them; a rule without groups stays
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from dataspace.rules.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    EitherGroup,
    Elements,
    Expression,
    GroupAggregate,
    Head,
    LastingGroup,
    Literal,
    MaybeGroup,
    NegatedGroup,
    Rule,
    Structure,
    TimedAtom,
    Variable,
    Verb,
    variables_of,
)
from index.errors import UsageError
from index.patterns.patterns import DISCARD, skeleton
from index.values.values import Record, Value

MAX_PARTS: Final = 64
"""Rules that are made of one rule."""

MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons, and the same with the sides exchanged."""

_GROUPS: Final = (EitherGroup, NegatedGroup, GroupAggregate, MaybeGroup)


def ungrouped(rule: Rule, mark: str = "") -> tuple[Rule, ...]:
    """Returns the rules that are carried out for a rule with groups, itself first; O(literals).

    ``mark`` tells its hidden heads from the heads of others.  Raises ``UsageError`` for variables that a
    group gives no values.
    """
    if not any(map(_has_groups, rule.body)):
        return (rule,)
    heads = {name for each in rule.head.arguments for name in variables_of(each)}
    taking = _Ungrouping(str(rule), mark, _all_names(rule))
    body = taking.body(rule.body, heads)
    return (Rule(rule.head, body, written=str(rule)), *taking.made)


def _has_groups(literal: Literal) -> bool:
    if isinstance(literal, LastingGroup):
        return any(map(_has_groups, literal.literals))
    return isinstance(literal, _GROUPS)


def _check_count(group: GroupAggregate) -> None:
    """Raises ``UsageError`` for a count that has to be 0: where there is no solution, there is no count."""
    if group.aggregate.name != "count" or not isinstance(group.other, Structure):
        return
    most = group.other.template
    if most.__class__ not in (int, float):
        return
    is_none = {"=": most == 0, "<": most <= 1, "<=": most < 1}.get(group.operator, False)
    if is_none:
        written = ", ".join(map(str, group.literals))
        raise UsageError(
            f"{group}: what has no solution has no count, so it is never 0: write not ({written})"
        )


class _Ungrouping:
    """One rule while its groups are taken out; ``made`` are the rules of these."""

    def __init__(self, written: str, mark: str, taken: set[str]) -> None:
        self.made: list[Rule] = []
        self._written = written
        self._mark = mark
        self._taken = taken
        self._heads = 0

    def body(self, body: Sequence[Literal], heads: set[str]) -> tuple[Literal, ...]:
        """Returns the literals with atoms in place of groups; ``heads`` are variables used beside them."""
        found: list[Literal] = []
        for at, literal in enumerate(body):
            beside = [*body[:at], *body[at + 1 :]]
            used = heads | {name for other in beside for name in _visible(other)}
            if isinstance(literal, EitherGroup):  # these see its variables, so it has to give them
                used |= bound_in([literal]) & {name for other in beside for name in _taken_in(other)}
            shared = [name for name in dict.fromkeys(_inside(literal)) if name in used]
            match literal:
                case EitherGroup(branches):
                    found.append(self._either(literal, branches, shared, beside))
                case NegatedGroup(literals):
                    context = _context(literals, shared, beside, literal)
                    label = self._label(literal)
                    self._make(label, [*map(Variable, shared)], (*context, *literals), literal)
                    found.append(_atom(label, shared, literal, negated=True))
                case MaybeGroup(literals):
                    found.append(replace(self._either(literal, (literals,), shared, beside), maybe=True))
                case GroupAggregate():
                    found += self._aggregate(literal, shared, beside)
                case LastingGroup(literals, span) if _has_groups(literal):
                    found.append(LastingGroup(self.body(literals, set(shared)), span))
                case _:
                    found.append(literal)
        return tuple(found)

    def _either(
        self,
        group: EitherGroup | MaybeGroup,
        branches: Iterable[Sequence[Literal]],
        shared: Sequence[str],
        beside: Sequence[Literal],
    ) -> Atom:
        label = self._label(group)
        for branch in branches:
            context = _context(branch, shared, beside, group)
            self._make(label, [*map(Variable, shared)], (*context, *branch), group)
        return _atom(label, shared, group)

    def _aggregate(
        self, group: GroupAggregate, shared: Sequence[str], beside: Sequence[Literal]
    ) -> Iterator[Literal]:
        """Yields the atom of the aggregate, and its comparison.

        What the literals need from outside is one more hidden head: its other variables are no solutions.
        """
        _check_count(group)
        literals = group.literals
        context = _context(literals, [*shared, *variables_of(group.aggregate)], beside, group)
        if context:
            label = self._label(group)
            given = [name for name in shared if name in bound_in(context)]
            self._make(label, [*map(Variable, given)], tuple(context), group)
            literals = (_atom(label, given, group), *literals)
        label, value = self._label(group), self._fresh()
        self._make(label, [*map(Variable, shared), group.aggregate], tuple(literals), group)
        other = group.other
        if group.operator == "=" and isinstance(other, Variable) and other.name not in shared:
            yield _atom(label, [*shared, other.name], group)
            return
        yield _atom(label, [*shared, value], group)
        yield Comparison(group.operator, Variable(value), other)

    def _label(self, group: Literal) -> str:
        self._heads += 1
        return f"{group} [{self._mark}.{self._heads}]"

    def _make(
        self, label: str, columns: Sequence[Expression | Aggregate], body: tuple[Literal, ...], group: Literal
    ) -> None:
        if len(self.made) >= MAX_PARTS:
            raise UsageError(f"a rule of more than {MAX_PARTS} parts: derive some by rules of their own")
        head = Head(label, tuple(columns), Verb.HIDDEN)
        at = len(self.made)
        self.made.append(Rule(head))
        names = {name for each in columns for name in variables_of(each)}
        self.made[at] = Rule(head, self.body(body, names), written=self._written, part=group)

    def _fresh(self) -> str:
        """Returns a variable that the rule does not have."""
        at = 1
        while f"value-{at}" in self._taken:
            at += 1
        self._taken.add(f"value-{at}")
        return f"value-{at}"


def _inside(literal: Literal) -> Iterator[str]:
    """Yields the variables of a literal, without what an aggregate is compared with."""
    if isinstance(literal, GroupAggregate):
        for each in literal.literals:
            yield from names_of(each)
        yield from variables_of(literal.aggregate)
    else:
        yield from names_of(literal)


def _atom(label: str, names: Sequence[str], group: Literal, *, negated: bool = False) -> Atom:
    fields = [Record("$", name, None, DISCARD) for name in names]
    return Atom(Record.of(label, tuple(fields)), negated, str(group))


def _context(
    literals: Sequence[Literal], shared: Sequence[str], beside: Sequence[Literal], group: Literal
) -> list[Literal]:
    """Returns the literals beside a group from which its variables have values that it does not give them.

    ``UsageError`` for a variable that has none there either.
    """
    found: list[Literal] = []
    needed = dict.fromkeys([*shared, *[name for each in literals for name in _asked(each)]])
    while missing := [name for name in needed if name not in bound_in([*found, *literals])]:
        name = missing[0]
        source = next((each for each in beside if each not in found and name in _given(each)), None)
        if source is None:
            where = f"in every branch of {group}" if isinstance(group, EitherGroup) else f"in {group}"
            raise UsageError(f"unsafe rule: ${name} is bound neither {where} nor beside it")
        found.append(source)
        needed.update(dict.fromkeys(_asked(source)))
    return found


def _asked(literal: Literal) -> Iterator[str]:
    """Yields the variables that a literal compares, and to which it gives no values."""
    match literal:
        case Comparison(_, left, right):
            yield from variables_of(left)
            yield from variables_of(right)
        case Elements(_, of):
            yield from variables_of(of)
        case Atom(pattern, True):
            yield from named(pattern)
        case GroupAggregate(_, _, operator, other):
            if operator != "=" or not isinstance(other, Variable):
                yield from variables_of(other)


def _given(literal: Literal) -> set[str]:
    """Returns the variables to which a literal gives values, if others in it have theirs."""
    if isinstance(literal, Comparison) and literal.operator == "=":
        return {each.name for each in (literal.left, literal.right) if isinstance(each, Variable)}
    if isinstance(literal, Elements):
        return set(literal.names)
    return bound_in([literal])


def bound_in(body: Sequence[Literal]) -> set[str]:
    """Returns the variables that have values where some literals hold together."""
    bound: set[str] = set()
    equations: list[tuple[tuple[str, ...], Expression]] = []
    for literal in body:
        match literal:
            case Atom(pattern, negated=False, maybe=False):
                bound.update(named(pattern))
            case TimedAtom(pattern, False, at, _, False):
                bound.update(named(pattern))
                bound.update(() if at is None else (at,))
            case LastingGroup(literals, _):
                bound |= bound_in(literals)
            case EitherGroup(branches):
                bound |= set.intersection(*map(bound_in, branches))
            case GroupAggregate(_, _, "=", Variable(name)):
                bound.add(name)
            case Comparison("=", left, right):
                pairs = (left, right), (right, left)
                equations += [((one.name,), other) for one, other in pairs if isinstance(one, Variable)]
            case Elements(names, of):
                equations.append((names, of))
    grown = True
    while grown:
        grown = False
        for names, other in equations:
            if not bound.issuperset(names) and bound.issuperset(variables_of(other)):
                bound.update(names)
                grown = True
    return bound


# -- what may be there -----------------------------------------------------------------------------


def parts_of_maybe(rule: Rule) -> list[Rule]:
    """Returns the rules whose solutions the aggregates of a rule take, which has plain literals: one without
    the atoms that are ``maybe``, then one with each of them.

    The head of each has the aggregates over its own solutions.
    """
    maybes = [each for each in rule.atoms if each.maybe]
    needed = tuple([each for each in rule.body if each not in maybes])
    bodies = [needed, *[(*needed, replace(each, maybe=False)) for each in maybes]]
    parts = [part_of(rule, each) for each in rule.head.aggregates]
    found = []
    for part, body in enumerate(bodies):
        taken = [each for each, at in zip(rule.head.aggregates, parts, strict=True) if at == part]
        fields = [each for each in rule.head.arguments if not isinstance(each, Aggregate)]
        found.append(replace(rule, head=replace(rule.head, arguments=(*fields, *taken)), body=body))
    return found


def part_of(rule: Rule, aggregate: Aggregate) -> int:
    """Returns which of the ``parts_of_maybe`` has the solutions that an aggregate takes."""
    names = set(variables_of(aggregate)) - bound_in(rule.body)
    maybes = [each for each in rule.atoms if each.maybe]
    return next((at for at, each in enumerate(maybes, 1) if names & set(named(each.pattern))), 0)


# -- names -----------------------------------------------------------------------------------------


def named(pattern: Value) -> list[str]:
    """Returns the variables of a pattern, each once, in order."""
    return list(dict.fromkeys([name for name in skeleton(pattern).names if name is not None]))


def names_of(literal: Literal) -> Iterator[str]:
    """Yields the variables of a literal, those inside groups too, with repetitions."""
    match literal:
        case Atom(pattern):
            yield from named(pattern)
        case TimedAtom(pattern, _, at, _):
            yield from named(pattern)
            if at is not None:
                yield at
        case LastingGroup(literals, _) | NegatedGroup(literals) | MaybeGroup(literals):
            for each in literals:
                yield from names_of(each)
        case EitherGroup(branches):
            for branch in branches:
                for each in branch:
                    yield from names_of(each)
        case GroupAggregate(aggregate, literals, _, other):
            for each in literals:
                yield from names_of(each)
            yield from variables_of(aggregate)
            yield from variables_of(other)
        case Elements(names, of):
            yield from names
            yield from variables_of(of)
        case Comparison(_, left, right):
            yield from variables_of(left)
            yield from variables_of(right)


def _visible(literal: Literal) -> Iterator[str]:
    """Yields the variables that a literal shares with others; negated groups and aggregates share none."""
    match literal:
        case NegatedGroup() | MaybeGroup():
            return
        case GroupAggregate(_, _, _, other):
            yield from variables_of(other)
        case EitherGroup(branches):
            for branch in branches:
                for each in branch:
                    yield from _visible(each)
        case _:
            yield from names_of(literal)


def _taken_in(literal: Literal) -> Iterator[str]:
    """Yields the variables inside a literal that shares them with what stands beside it, though none of its
    own is seen there."""
    if isinstance(literal, NegatedGroup | GroupAggregate | MaybeGroup):
        yield from _inside(literal)


def _all_names(rule: Rule) -> set[str]:
    heads = {name for each in rule.head.arguments for name in variables_of(each)}
    return heads | {name for each in rule.body for name in names_of(each)}
