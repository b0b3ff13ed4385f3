"""Failures: what stops one rule, and no other."""

from __future__ import annotations

import enum
from collections.abc import Hashable

from index.values.values import Value


class Unit(enum.Enum):
    """What of the work of rules is counted, and bounded for all of them together."""

    ROWS = "rows"
    STEPS = "steps"
    BYTES = "bytes"
    WORK = "work"
    """All of them together."""


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


class LimitReached(Exception):
    """A limit that all rules share was reached: which one did it is for their program to find out."""

    def __init__(self, what: str, unit: Unit) -> None:
        super().__init__(what)
        self.what = what
        self.unit = unit


class Unalias(Exception):
    """A claimed fact has more fields than the head it was taken for: the two have to be kept apart."""

    def __init__(self, label: Hashable) -> None:
        super().__init__(label)
        self.label = label


class Defect(Exception):
    """An error of this program, which has been logged; no rule is at fault."""


def message_of(error: BaseException) -> str:
    """Returns the kind of an exception, and its message where it has one."""
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
