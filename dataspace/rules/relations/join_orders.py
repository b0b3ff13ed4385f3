"""Join orders: in which order is the body of a rule looked up, once one of its atoms has changed?

A rule is carried out from each of its atoms: the row that came or went binds that atom's variables, and the
others are looked up one after the other.  Next is always the atom with the most columns bound already, and
among those the one with the fewest left open; comparisons and negations stand as early as they can.

Always: every literal is in an order exactly once; no step reads a variable before it is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataspace.rules.language.syntax import (
    Atom,
    Comparison,
    Elements,
    Expression,
    Rule,
    Structure,
    Variable,
    variables_of,
)
from dataspace.rules.relations.relations import Relation


@dataclass(frozen=True, slots=True)
class BoundAtom:
    """An atom of a rule with the relation that holds its rows; ``names`` are its variables by column."""

    at: int
    atom: Atom
    relation: Relation
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LookUp:
    """One step: look up an atom, by the columns that are bound."""

    atom: BoundAtom
    bound: tuple[int, ...]

    @property
    def opens(self) -> tuple[int, ...]:
        """Returns the columns whose variables it binds."""
        return tuple([at for at in range(len(self.atom.names)) if at not in self.bound])


@dataclass(frozen=True, slots=True)
class Bind:
    """One step: give a variable the value of an expression."""

    name: str
    to: Expression


@dataclass(frozen=True, slots=True)
class GoThrough:
    """One step: go through the elements of a value; ``bound`` are the variables that have values before."""

    member: Elements
    bound: frozenset[str]


Step = LookUp | Bind | Comparison | GoThrough


def plan(
    rule: Rule,
    atoms: Sequence[BoundAtom],
    trigger: BoundAtom | None,
    known: frozenset[str] = frozenset(),
) -> list[Step]:
    """Returns the steps that find all solutions in which ``trigger`` takes part, or all solutions.

    ``known`` are variables that have their values already.
    """
    bound = set(trigger.names) | known if trigger else set(known)
    positive = [each for each in atoms if each is not trigger and not each.atom.negated]
    asking: list[BoundAtom | Comparison | Elements] = [
        each for each in atoms if each is not trigger and each.atom.negated
    ]
    asking += [each for each in rule.body if isinstance(each, Comparison | Elements)]
    steps: list[Step] = []
    while True:
        _ask(asking, bound, steps)
        if not positive:
            return steps
        best = min(positive, key=lambda atom: _rank(atom, bound))
        positive.remove(best)
        steps.append(_look(best, bound))
        bound.update(best.names)


def _rank(atom: BoundAtom, bound: set[str]) -> tuple[bool, bool, int, int, int]:
    known = sum(name in bound for name in atom.names)
    left = len(atom.names) - known
    return atom.atom.maybe, left > 0, -known, left, atom.at


def _look(atom: BoundAtom, bound: set[str]) -> LookUp:
    return LookUp(atom, tuple([at for at, name in enumerate(atom.names) if name in bound]))


def _ask(asking: list[BoundAtom | Comparison | Elements], bound: set[str], steps: list[Step]) -> None:
    """Takes every literal that only asks, and can, into the steps."""
    moved = True
    while moved:
        moved = False
        for literal in asking[:]:
            step = _asked(literal, bound)
            if step is None:
                continue
            steps.append(step)
            asking.remove(literal)
            moved = True
            if isinstance(step, Bind):
                bound.add(step.name)
            elif isinstance(step, GoThrough):
                bound.update(step.member.names)


def _asked(literal: BoundAtom | Comparison | Elements, bound: set[str]) -> Step | None:
    if isinstance(literal, Elements):
        if not bound.issuperset(variables_of(literal.of)):
            return None
        return GoThrough(literal, frozenset(bound.intersection(literal.names)))
    if isinstance(literal, BoundAtom):
        return _look(literal, bound) if bound.issuperset(literal.names) else None
    left, right = set(variables_of(literal.left)) - bound, set(variables_of(literal.right)) - bound
    if not left and not right:
        return literal
    if literal.operator == "=":
        for one, other, open_ in (literal.left, literal.right, right), (literal.right, literal.left, left):
            if isinstance(one, Variable) and one.name not in bound and not open_:
                return Bind(one.name, other)
    return None


def step_text(step: Step) -> str:
    """Returns a step as explanations show it."""
    match step:
        case LookUp(atom, bound):
            columns = ", ".join(map(str, bound)) or "nothing"
            how = "check" if len(bound) == len(atom.names) else f"by {columns}"
            return f"{atom.atom} ({how})"
        case Bind(name, to):
            return f"${name} = {to}"
        case GoThrough(member):
            return str(member)
        case _:
            return str(step)


def failed_text(step: Step) -> str:
    """Returns why a step finds nothing."""
    match step:
        case LookUp(atom, _) if atom.atom.negated:
            return f"there is a match of {Structure(atom.atom.pattern)}"
        case LookUp(atom, _):
            return f"no match of {atom.atom}"
        case _:
            return f"{step_text(step)} does not hold"
