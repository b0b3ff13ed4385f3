"""Failures: what stops one rule, and no other."""

from __future__ import annotations

from index.values import Value


class RuleFailed(Exception):
    """A rule raised, or ran away: ``rule`` is its number, ``row`` what its variables were."""

    def __init__(self, rule: int, row: dict[str, Value], reason: str) -> None:
        super().__init__(rule, row, reason)
        self.rule = rule
        self.row = row
        self.reason = reason
