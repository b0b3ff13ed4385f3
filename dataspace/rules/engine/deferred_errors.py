"""Deferred errors: expressions that raised in the middle of a tick, kept until the tick is settled.

A rule gets each row as it comes, before other rows of the tick come or go, and before the facts of a
negation are derived.  So it may get values that never hold together, or that its own body excludes, as in
``not same($a, $b), $z = 1 / ($a - $b)``.  An expression that raises makes no derivation.  Whether its rule
has failed is decided at the end of the tick, by what holds then.

Always: a rule fails only for values with which its whole body holds once the tick is settled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from dataspace.rules.engine.bodies import Body
from dataspace.rules.relations.failures import LimitReached, RuleFailed, message_of
from dataspace.rules.relations.terms import RuleTerm

MOST: Final = 10_000
"""Errors of one tick that are kept; the next one fails its rule at once."""


class DeferredErrors:
    """The deferred errors of the rules of one component; ``noted`` is empty when there are none."""

    __slots__ = ("noted",)

    def __init__(self) -> None:
        self.noted: Final[list[tuple[RuleFailed, Body, dict[str, RuleTerm]]]] = []

    def about(self, body: Body, *, comes: bool) -> Callable[[Exception, dict[str, RuleTerm]], None]:
        """Returns the function that a rule calls when an expression has raised, for a row that comes or
        goes."""
        return partial(self._note, body) if comes else _pass_over

    def _note(self, body: Body, error: Exception, row: dict[str, RuleTerm]) -> None:
        """Keeps what may stand in the end.

        A premise that is not there yet sets the rule off once more when it comes: without it nothing need be
        kept.  A negated fact is there while it goes.
        """
        _pass_over(error, row)
        if not body.holds(row, settled=False):
            return
        values = {name: term.value for name, term in row.items()}
        failed = RuleFailed(body.number, values, message_of(error))
        if len(self.noted) >= MOST:
            raise failed
        self.noted.append((failed, body, row))

    def resolve(self) -> None:
        """Forgets all; raises the first ``RuleFailed`` that stands.  O(errors × rows that they join)."""
        for failed, body, row in self.noted:
            if body.holds(row, settled=True):
                raise failed
        self.noted.clear()


def _pass_over(error: Exception, row: dict[str, RuleTerm]) -> None:
    """Ignores an error, unless a limit was reached: the row that goes was no derivation when it came."""
    if isinstance(error, RuleFailed) and not (error.row or error.overran):
        error.row = {name: term.value for name, term in row.items()}
    if isinstance(error, (RuleFailed, LimitReached)):
        raise error
