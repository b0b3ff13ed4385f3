"""Failures: what stops one rule, and no other."""

from __future__ import annotations

import enum
import re
from collections.abc import Hashable
from itertools import islice
from typing import Final

from dataspace.rules.language.parser import MAX_TEXT
from dataspace.rules.relations.terms import TOO_DEEP, size_in_facts
from index.patterns.text import unparse
from index.values.values import Map, Record, Value

_GIVEN: Final = re.compile(r"(?:column|value)-\d+")
"""The names of variables for what a pattern over time discards, and for what an aggregate is."""


class Unit(enum.Enum):
    """What of the work of rules is counted, and bounded for all of them together."""

    ROWS = "rows"
    STEPS = "steps"
    BYTES = "bytes"
    WORK = "work"
    """All of them together."""


class RuleFailed(Exception):
    """A rule raised, or ran away: ``rule`` is its number, ``row`` what its variables were.

    ``overran``: it used up what one tick may, so that others may have had a part in it.  Without ``resumes``
    it is not tried again when facts change.
    """

    def __init__(
        self,
        rule: int,
        row: dict[str, Value],
        reason: str,
        *,
        overran: bool = False,
        resumes: bool = True,
    ) -> None:
        super().__init__(rule, row, reason)
        self.rule = rule
        self.row = row
        self.reason = reason
        self.overran = overran
        self.resumes = resumes and not overran


class FailedLater(RuleFailed):
    """A function of the host failed for a row that goes, and had not when it came: it is not pure.

    Whether the row was a derivation is not known any more.  So the engine is made anew from the rows that are
    left; where one is new already, the text is suspended.
    """


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


# -- Complaints ------------------------------------------------------------------------------------
# The values by which a rule fails may be as large and as deep as any fact, and a text that is no
# rule may be as long as a frame. A complaint about them is claimed, logged and sent like any fact,
# and puts levels of its own around them. So of names, texts and values beyond a bound it shows the
# beginning.
#
# Always: a complaint is a fact that the wire and the log can carry; two complaints about facts that
# are shown alike are the same fact, so that a start repeats the complaints that it finds in the
# log.


MAX_NAME: Final = 1024
MAX_REASON: Final = 2048
"""Characters of a name, and of a reason, that are shown."""

MAX_SHOWN: Final = 256
"""Bytes of a value of a row that is shown as it is; and characters of another that are shown."""

MAX_VARIABLES: Final = 64
"""Variables of a row that are shown."""

LEGIBLE: Final = 16 * 1024
"""Bytes of a value that is worth being written out, to show where it begins."""


SLACK: Final = 64
"""Characters beyond a bound up to which a text is shown whole: as many as the note that it was cut."""

_CUT: Final = re.compile(
    "… \\([0-9]+ characters\\)$| of about [0-9]+ bytes$|, nested too deeply to be shown$"
)


def complaint(name: Value, text: Value, row: Map, reason: str) -> Record:
    """Returns the fact that names what is wrong with a rule.

    >>> complaint("r", "p($x) <- q($x), $x > 1 / 0.", Map({"x": 1}), "ZeroDivisionError").fields[2]
    Map((('x', 1),))
    """
    written = [pair for pair in row.pairs() if not is_hidden(pair[0], text)]
    values = Map.of([(at, _shown(value)) for at, value in islice(written, MAX_VARIABLES)])
    return Record(
        "rule-error", _begun(name, MAX_NAME), _begun(text, MAX_TEXT), values, _begun(reason, MAX_REASON)
    )


def shown_name(name: Value) -> Value:
    """Returns the name of a text as complaints show it."""
    return _begun(name, MAX_NAME)


def is_hidden(variable: object, text: Value) -> bool:
    """True for the name of a variable that a rule was given, and that its text does not have."""
    return (
        isinstance(variable, str)
        and _GIVEN.fullmatch(variable) is not None
        and not (isinstance(text, str) and f"${variable}" in text)
    )


def shown_whole(row: Map) -> Map:
    """Returns the row of a complaint without the values that were cut short."""
    return Map.of([pair for pair in row.pairs() if not (isinstance(pair[1], str) and _CUT.search(pair[1]))])


def _begun(value: Value, most: int) -> Value:
    """Returns a text, or its beginning if it is long; other values as ``_shown``."""
    if value.__class__ is not str:
        return _shown(value)
    return value if len(value) <= most + SLACK else f"{value[:most]}… ({len(value)} characters)"


def _shown(value: Value) -> Value:
    """Returns a value as it is, or a description of a large or deep value."""
    size = size_in_facts(value)
    if size <= MAX_SHOWN:
        return value
    if value.__class__ is str:
        return _begun(value, MAX_SHOWN)
    if size <= LEGIBLE:
        return _begun(unparse(value), MAX_SHOWN)
    what = type(value).__name__.lower()
    if isinstance(value, Record) and isinstance(value.label, str):
        what = f"{value.label[:MAX_SHOWN]}(…)"
    return f"{what} of about {size} bytes" if size < TOO_DEEP else f"{what}, nested too deeply to be shown"
