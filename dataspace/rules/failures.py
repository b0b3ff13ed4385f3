"""Failures: what stops one rule, and no other."""

from __future__ import annotations

from index.values import Value


class RuleFailed(Exception):
    """A rule raised, or ran away: ``rule`` is its number, ``row`` what its variables were.

    ``overran``: it used up what one tick may, so that others may have had a part in it.
    """

    def __init__(self, rule: int, row: dict[str, Value], reason: str, *, overran: bool = False) -> None:
        super().__init__(rule, row, reason)
        self.rule = rule
        self.row = row
        self.reason = reason
        self.overran = overran
