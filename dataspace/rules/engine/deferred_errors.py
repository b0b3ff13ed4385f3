"""Doubts: what rules could not calculate in the middle of a tick, kept until it is settled.

A rule is told of each row as it comes, while others of the tick have still to come or to go, and before what
a negation asks for is derived.  So it may meet values that are never there together, or that its own negation
is to keep from it: ``not same($a, $b), $z = 1 / ($a - $b)``.  An expression that raises makes no derivation,
and whether that fails the rule is decided by what is there in the end.

Always: a rule fails only by values of facts that are all there once the tick is settled, and of which nothing
is there that it negates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from dataspace.rules.engine.join_orders import BoundAtom
from dataspace.rules.relations.failures import RanAway, RuleFailed
from dataspace.rules.relations.terms import Term

MOST: Final = 10_000
"""Doubts of one tick that are kept; the next one fails its rule at once."""


class Doubts:
    """The doubts of the rules of one island; ``noted`` is empty when there are none."""

    __slots__ = ("noted",)

    def __init__(self) -> None:
        self.noted: Final[list[tuple[RuleFailed, Sequence[BoundAtom], dict[str, Term]]]] = []

    def about(
        self, rule: int, atoms: Sequence[BoundAtom], *, comes: bool
    ) -> Callable[[Exception, dict[str, Term]], None]:
        """What a rule calls whose expression has raised, for a row that comes or for one that goes."""
        return partial(self._note, rule, atoms) if comes else _pass_over

    def _note(self, rule: int, atoms: Sequence[BoundAtom], error: Exception, row: dict[str, Term]) -> None:
        _pass_over(error, row)
        values = {name: term.value for name, term in row.items()}
        failed = RuleFailed(rule, values, f"{type(error).__name__}: {error}")
        if len(self.noted) >= MOST:
            raise failed
        self.noted.append((failed, atoms, row))

    def resolve(self) -> None:
        """Forgets all; raises the first ``RuleFailed`` that stands.  O(doubts × atoms)."""
        for failed, atoms, row in self.noted:
            if all(_stands(atom, row) for atom in atoms):
                raise failed
        self.noted.clear()


def _pass_over(error: Exception, _row: dict[str, Term]) -> None:
    """What goes was no derivation either when it came; limits are limits all the same."""
    if isinstance(error, (RuleFailed, RanAway)):
        raise error


def _stands(atom: BoundAtom, known: dict[str, Term]) -> bool:
    """Whether an atom holds, or may: not all of its variables may have been known."""
    row = []
    for name in atom.names:
        term = known.get(name)
        if term is None:
            return True
        row.append(term)
    state = atom.relation.states.get(tuple(row))
    return (state is not None and bool(state[2])) is not atom.atom.negated
