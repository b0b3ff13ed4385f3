"""Bodies: is there a solution of a rule's body, as far as it can be calculated, with some values given?

The generated functions find solutions from a row that comes.  When an expression has raised, it matters
whether the rest of the body holds; then a solution is looked for here, among the rows that are there.

Always: nothing is changed; what cannot be calculated refutes nothing; each row is paid for before it is
looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataspace.rules.engine.query import candidates, each_member
from dataspace.rules.language.evaluating import evaluate, holds
from dataspace.rules.language.functions import BYTES_OF_WORK
from dataspace.rules.language.ordering import Pay
from dataspace.rules.language.syntax import Comparison, Elements, Rule, Variable
from dataspace.rules.relations.budgets import Budget
from dataspace.rules.relations.join_orders import BoundAtom, LookUp, plan
from dataspace.rules.relations.terms import Row, RuleTerm, Terms
from index.values.values import Value

UNCALCULATED: Final = (ArithmeticError, ValueError, TypeError)
"""What expressions raise: a ``UsageError`` is a ``ValueError``."""


class Body:
    """The body of one rule over the relations of its engine; ``number`` is the number of the rule.

    ``failed`` are the calls of functions of the host that have failed for rows that came.
    """

    __slots__ = (
        "_comparisons",
        "_head",
        "_members",
        "_negated",
        "_paid",
        "_plans",
        "_positive",
        "_terms",
        "failed",
        "number",
    )

    def __init__(
        self, number: int, rule: Rule, atoms: Sequence[BoundAtom], terms: Terms, paid: Budget
    ) -> None:
        self.number = number
        self.failed: Final[set[int]] = set()
        self._head = Rule(rule.head)
        self._positive = [each for each in atoms if not each.atom.negated]
        self._negated = [each for each in atoms if each.atom.negated]
        self._comparisons = [each for each in rule.body if isinstance(each, Comparison)]
        self._members = [each for each in rule.body if isinstance(each, Elements)]
        self._terms = terms
        self._paid = paid
        self._plans: dict[frozenset[str], list[LookUp]] = {}

    def holds(self, known: dict[str, RuleTerm], *, settled: bool) -> bool:
        """True if all atoms hold together with these values, and nothing else refutes them.

        Negations are looked at only where the tick is ``settled``.

        O(rows that are joined); ``RuleFailed`` or ``LimitReached`` where those are too many.
        """
        names = frozenset(known)
        looks = self._plans.get(names)
        if looks is None:
            steps = plan(self._head, self._positive, None, names)
            looks = self._plans[names] = [step for step in steps if isinstance(step, LookUp)]
        return self._from(looks, 0, known, settled=settled)

    def _from(self, looks: list[LookUp], depth: int, known: dict[str, RuleTerm], *, settled: bool) -> bool:
        if depth == len(looks):
            return self._admits(known, settled=settled)
        atom, bound = looks[depth].atom, looks[depth].bound
        given = {at: known[atom.names[at]] for at in bound}
        for row, state in candidates(atom.relation, given):
            self._paid.left -= 1
            if self._paid.left < 0:
                self._paid.left = self._paid.refill(self._paid.left)
            if state[2] and all(row[at] is term for at, term in given.items()):
                found = known | dict(zip(atom.names, row, strict=True))
                if self._from(looks, depth + 1, found, settled=settled):
                    return True
        return False

    def _admits(self, known: dict[str, RuleTerm], *, settled: bool) -> bool:
        """True if no comparison and no negation refutes these values, as far as they are known."""
        values = {name: term.value for name, term in known.items()}
        return self._agree(values, self._comparisons, self._members, settled=settled)

    def _agree(
        self,
        values: dict[str, Value],
        comparisons: Sequence[Comparison],
        left: Sequence[Elements],
        *,
        settled: bool,
    ) -> bool:
        waiting, moved = comparisons, True
        while moved:
            later = []
            for comparison in waiting:
                try:
                    if not _agrees(comparison, values, self._pay):
                        return False
                except KeyError:  # of variables that have no values yet
                    later.append(comparison)
                except UNCALCULATED:
                    pass
            moved, waiting = len(later) < len(waiting), later
        for at, member in enumerate(left):
            rest = [*left[:at], *left[at + 1 :]]
            try:
                rows = list(each_member(member, values, self._pay))
            except KeyError:
                continue
            except UNCALCULATED:
                return self._agree(values, waiting, rest, settled=settled)
            self._pay(BYTES_OF_WORK * len(rows))
            bindings = [values | dict(zip(member.names, row, strict=True)) for row in rows]
            return any(self._agree(each, waiting, rest, settled=settled) for each in bindings)
        return not settled or not any(self._is_there(atom, values) for atom in self._negated)

    def _pay(self, cost: int) -> None:
        self._paid.left -= cost // BYTES_OF_WORK
        if self._paid.left < 0:
            self._paid.left = self._paid.refill(self._paid.left)

    def _is_there(self, atom: BoundAtom, values: dict[str, Value]) -> bool:
        if any(name not in values for name in atom.names):
            return False
        row: Row = tuple([self._terms.of(values[name]) for name in atom.names])
        return atom.relation.has(row)


def _agrees(comparison: Comparison, values: dict[str, Value], pay: Pay) -> bool:
    """True if a comparison holds; ``=`` gives a variable its value.  ``KeyError`` for a variable without a
    value."""
    left, right = comparison.left, comparison.right
    if comparison.operator == "=":
        for one, other in (left, right), (right, left):
            if isinstance(one, Variable) and one.name not in values:
                values[one.name] = evaluate(other, values, pay)
                return True
    return holds(comparison, values, pay)
