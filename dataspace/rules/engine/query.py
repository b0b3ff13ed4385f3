"""Solving: which solutions does a body have, looked up now?

Ticks never search; explanations do.  This follows the join order of a rule over the relations of an engine as
they are, for one fact at a time, and uses the indexes that are there.

Always: nothing is changed; a solution's rows are all there; a search looks at a given number of rows, and
then raises ``SearchedEnough``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from dataspace.rules.language.evaluating import evaluate, holds
from dataspace.rules.language.functions import BYTES_OF_WORK
from dataspace.rules.language.ordering import Pay, free
from dataspace.rules.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    EitherGroup,
    Elements,
    Expression,
    GroupAggregate,
    LastingGroup,
    Literal,
    MaybeGroup,
    NegatedGroup,
    Rule,
    Structure,
    TimedAtom,
    TimeForm,
    Variable,
    duration_text,
    maker,
    members,
    with_operands,
    with_parts,
)
from dataspace.rules.relations.join_orders import Bind, BoundAtom, GoThrough, LookUp, Step, plan
from dataspace.rules.relations.relations import Relation, State
from dataspace.rules.relations.terms import Row, RuleTerm, Terms
from index.errors import UsageError
from index.patterns.text import unparse
from index.values.values import Record, Value, keys, same

Known = dict[str, Value]
Admits = Callable[[Relation, State], bool]
"""Whether a premise may be used: proofs ask for older ones within a cycle."""


class SearchedEnough(Exception):
    """A search has looked at all the rows that it may."""


class Allowance:
    """The rows that searches may still look at, all together."""

    __slots__ = ("left",)

    def __init__(self, rows: int) -> None:
        self.left = rows

    def spend(self, rows: int = 1) -> None:
        """Counts rows before they are looked at."""
        self.left -= rows
        if self.left < 0:
            raise SearchedEnough

    def pay(self, cost: int) -> None:
        """Counts bytes that a function is about to read or to make."""
        if cost >= BYTES_OF_WORK:
            self.spend(cost // BYTES_OF_WORK)


FEW: Final = 32
"""So many rows are looked through sooner than put in order."""

FILED: Final = 4
"""So many rows are filed in the time in which a search looks at one."""


class Lookups:
    """Finds rows by some of their columns for the questions of one asker.

    Where no rule has an index by these columns one is made, which costs a row of the allowance for each four:
    so a proof of many levels does not look through a relation at each of them.
    """

    __slots__ = ("_allowance", "_made")

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._made: dict[tuple[int, tuple[int, ...]], dict[Row, list[tuple[Row, State]]]] = {}

    def candidates(self, relation: Relation, given: dict[int, RuleTerm]) -> Iterable[tuple[Row, State]]:
        """Returns rows that include all rows with these terms; ``SearchedEnough`` beyond the allowance."""
        columns = tuple(sorted(given))
        is_found = len(columns) == relation.width or columns in relation.indexes
        if is_found or not columns or len(relation.states) <= FEW:
            return candidates(relation, given)
        place = id(relation), columns
        index = self._made.get(place)
        if index is None:
            self._allowance.spend(len(relation.states) // FILED)
            index = self._made[place] = {}
            for row, state in relation.states.items():
                index.setdefault(tuple([row[at] for at in columns]), []).append((row, state))
        return index.get(tuple([given[at] for at in columns]), ())


@dataclass(slots=True)
class Solution:
    """The values of a rule's variables, and the rows that they were found in."""

    known: Known
    rows: dict[int, Row]


@dataclass(slots=True)
class Furthest:
    """The furthest point of a search, for when it finds nothing: the step that failed, and the known
    terms."""

    steps: list[Step] = field(default_factory=list)
    depth: int = -1
    known: Known = field(default_factory=dict)


class Solver:
    """The search over one rule's body."""

    def __init__(
        self,
        rule: Rule,
        atoms: list[BoundAtom],
        terms: Terms,
        admits: Admits,
        allowance: Allowance,
        lookups: Lookups,
    ) -> None:
        self.rule = rule
        self._allowance = allowance
        self._lookups = lookups
        self.furthest = Furthest()
        self._atoms = atoms
        self._terms = terms
        self._admits = admits

    def solutions(self, known: Known) -> Iterator[Solution]:
        """Yields all solutions in which the variables have these values."""
        self.furthest.steps = plan(self.rule, self._atoms, None, frozenset(known))
        yield from self._from(0, Solution(known, {}))

    def _from(self, depth: int, so_far: Solution) -> Iterator[Solution]:
        if depth > self.furthest.depth:
            self.furthest.depth, self.furthest.known = depth, so_far.known
        if depth == len(self.furthest.steps):
            yield so_far
            return
        for found in self._step(self.furthest.steps[depth], so_far):
            yield from self._from(depth + 1, found)

    def _step(self, step: Step, so_far: Solution) -> Iterator[Solution]:
        try:
            if isinstance(step, LookUp):
                yield from self._look(step, so_far)
            elif isinstance(step, Bind):
                value = evaluate(step.to, so_far.known, self._allowance.pay)
                yield Solution(so_far.known | {step.name: value}, so_far.rows)
            elif isinstance(step, GoThrough):
                yield from self._go_through(step.member, so_far)
            elif holds(step, so_far.known, self._allowance.pay):
                yield so_far
        except (UsageError, ArithmeticError):
            return

    def _go_through(self, member: Elements, so_far: Solution) -> Iterator[Solution]:
        known = so_far.known
        for row in each_member(member, known, self._allowance.pay):
            self._allowance.spend()
            yield Solution(known | dict(zip(member.names, row, strict=True)), so_far.rows)

    def _look(self, step: LookUp, so_far: Solution) -> Iterator[Solution]:
        atom = step.atom
        given = {at: self._terms.of(so_far.known[atom.names[at]]) for at in step.bound}
        found = self._found(atom.relation, given)
        is_none = True
        if atom.atom.negated:
            if next(found, None) is None:
                yield so_far
            return
        for row in found:
            if self._admits(atom.relation, atom.relation.states[row]):
                is_none = False
                known = dict(so_far.known)
                known.update((name, term.value) for name, term in zip(atom.names, row, strict=True))
                yield Solution(known, so_far.rows | {atom.at: row})
        if atom.atom.maybe and is_none:
            yield so_far

    def _found(self, relation: Relation, given: dict[int, RuleTerm]) -> Iterator[Row]:
        for row, state in self._lookups.candidates(relation, given):
            self._allowance.spend()
            if state[2] and all(row[at] is term for at, term in given.items()):
                yield row


def each_member(member: Elements, known: Known, pay: Pay) -> Iterator[tuple[Value, ...]]:
    """Yields the members that agree with the known values, each once; raises as ``evaluate``."""
    seen: set[Hashable] = set()
    for row in members(member, evaluate(member.of, known, pay)):
        pairs = zip(member.names, row, strict=True)
        if (at := keys(row)) not in seen and all(same(known.get(name, each), each) for name, each in pairs):
            seen.add(at)
            yield row


def candidates(relation: Relation, given: dict[int, RuleTerm]) -> Iterable[tuple[Row, State]]:
    """Returns rows that include all rows with these terms."""
    if len(given) == relation.width:
        row: Row = tuple([given[at] for at in range(relation.width)])
        state = relation.states.get(row)
        return [] if state is None else [(row, state)]
    usable = [columns for columns in relation.indexes if set(columns) <= set(given)]
    if not usable:
        return relation.states.items()
    columns = max(usable, key=len)
    at = given[columns[0]] if len(columns) == 1 else tuple([given[each] for each in columns])
    return relation.indexes[columns].get(at, {}).items()


def unify(rule: Rule, fact: Value) -> Known | None:
    """Returns the variables of a rule that would derive a fact; None if it could not.

    Parts of the fact that are patterns (``_``, ``$x``) match any value.
    """
    if not isinstance(fact, Record) or not same(fact.label, rule.head.label):
        return None
    if len(fact.fields) != len(rule.head.arguments):
        return None
    known: Known = {}
    for argument, value in zip(rule.head.arguments, fact.fields, strict=True):
        if isinstance(argument, Aggregate) or is_open(value):
            continue
        if isinstance(argument, Variable):
            if not same(known.setdefault(argument.name, value), value):
                return None
        elif isinstance(argument, Structure) and not maker(argument)[0] and argument.template != value:
            return None
    return known


def gives(rule: Rule, solution: Known, fact: Value) -> bool:
    """True if a solution makes exactly this fact, aggregates aside."""
    assert isinstance(fact, Record)  # by unify
    return all(
        isinstance(argument, Aggregate) or is_open(value) or _makes(argument, solution, value)
        for argument, value in zip(rule.head.arguments, fact.fields, strict=True)
    )


def _makes(argument: Expression, solution: Known, value: Value) -> bool:
    try:
        return same(evaluate(argument, solution, free), value)
    except (UsageError, ArithmeticError):
        return False


def is_open(value: Value) -> bool:
    """True if a value stands for others, as a pattern."""
    return isinstance(value, Record) and value.label in ("_", "$", "lit", "exact")


def instance_of(atom: Atom, known: Known) -> Value:
    """Returns an atom with the known terms filled in."""
    return _filled(atom.pattern, known)


def literals_text(form: TimeForm, known: Known) -> str:
    """Returns the literals of a rule that depend on time in one way, with the known values filled in."""
    return ", ".join([literal_text(each, known) for each in form.literals]) or form.shown


def literal_text(literal: Literal, known: Known) -> str:
    """Returns a literal with the known values filled in."""

    def inside(literals: Iterable[Literal]) -> str:
        return ", ".join([literal_text(each, known) for each in literals])

    match literal:
        case Atom(pattern):
            return str(replace(literal, pattern=_partly(pattern, known), shown=""))
        case TimedAtom(pattern, at=at):
            text = str(replace(literal, pattern=_partly(pattern, known)))
            return text if at not in known else text.replace(f" at ${at}", f" at {unparse(known[at])}")
        case LastingGroup(literals):
            return f"({inside(literals)}) for {duration_text(literal.span)}"
        case EitherGroup(branches):
            return f"({' or '.join(map(inside, branches))})"
        case NegatedGroup(literals):
            return f"not ({inside(literals)})"
        case MaybeGroup(literals):
            return f"maybe ({inside(literals)})"
        case Elements(names, of):
            return str(Elements(names, _given(of, known)))
        case GroupAggregate(aggregate, literals, operator, other):
            return f"{aggregate} of ({inside(literals)}) {operator} {_given(other, known)}"
        case Comparison(operator, left, right):
            return str(Comparison(operator, _given(left, known), _given(right, known)))


def _given(expression: Expression, known: Known) -> Expression:
    match expression:
        case Variable(name) if name in known:
            return Structure(known[name])
        case Structure(template):
            return Structure(_partly(template, known))
    return with_operands(expression, lambda part: _given(part, known))


def _partly(pattern: Value, known: Known) -> Value:
    """Returns a pattern in which the known variables have their values, and the others stay."""
    match pattern:
        case Record(label="$", fields=(str(name), _, _)) if name in known:
            return known[name]
        case Record(label="$" | "_" | "lit"):
            return pattern
    return with_parts(pattern, lambda part: _partly(part, known))


def _filled(pattern: Value, known: Known) -> Value:
    match pattern:
        case Record(label="$", fields=(str(name), _, _)) if name in known:
            return known[name]
        case Record(label="$", fields=(_, _, sub)):
            return _filled(sub, known)
        case Record(label="lit", fields=(value,)):
            return value
        case Record(label=label, fields=fields) if label != "_":
            return Record.of(label, tuple([_filled(each, known) for each in fields]))
        case tuple():
            return tuple([_filled(each, known) for each in pattern])
        case _:
            return pattern
