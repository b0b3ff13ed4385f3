"""Selections: captures taken from the rows of the log without making the records.

Most patterns look no deeper than the fields of records with one label.  For those a match is a few tests on
the plain row ``(label, field, …)`` that the log holds, and where every row of a piece matches, the captures
of all are whole columns of it.  Apart from the replays that use them because they know nothing of epochs.

A pattern is *faithful* where its captures and constants are all the fields of a fact: facts that differ
then differ in their captures as well, and no count of facts with the same captures is needed.  A fact that is
wider than the pattern says, which a pattern of at least so many fields admits, is where that ends.

Always: a selection finds the same values as ``matcher``, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from index.emitter import emitted
from index.patterns.skeletons import ATOM_CLASSES, Check, CheckKind, Skeleton
from index.values.positions import Path
from relay.log.cursors import Captures

Select: TypeAlias = Callable[[Sequence[Any]], list[Captures]]
"""The captures of those values, or plain rows, that match."""

Counts: TypeAlias = tuple[int, int, int]
"""How many values were added, sent and removed."""


@dataclass(frozen=True, slots=True)
class Flat:
    """What selects from plain rows, for a pattern that looks no deeper than their parts.

    ``parts`` is the number of parts of a row whose parts are all named by the pattern; with ``exact`` no
    other row matches.
    """

    label: str
    parts: int
    exact: bool
    faithful: bool
    constants: tuple[tuple[int, str], ...]
    classes: tuple[tuple[int, type], ...]
    captures: tuple[int, ...]
    select: Select

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]] | None:
        """Returns one column for each capture, where every row matches and none is wider; else None.

        O(rows), in a handful of calls.
        """
        if {*map(len, rows)} != {self.parts}:
            return None
        parts = [*zip(*rows, strict=True)]
        count = len(rows)
        if any(parts[at].count(value) != count for at, value in ((0, self.label), *self.constants)):
            return None
        if any({*map(type, parts[at])} != {kind} for at, kind in self.classes):
            return None
        return [parts[at] for at in self.captures]

    def wider(self, rows: Sequence[Sequence[Any]]) -> bool:
        """True if one of some rows has the label and parts that the pattern does not name; O(rows)."""
        if self.exact or max(map(len, rows), default=0) <= self.parts:
            return False
        return any(len(row) > self.parts and row[0] == self.label for row in rows)


def flat_selection(form: Skeleton) -> Flat | None:
    """Returns what selects from plain rows, or None for a pattern that looks deeper than their fields."""
    if len(form.shape) != 1 or form.shape[0][1].__class__ is not str:
        return None
    if not all(len(path) == 1 for path in _paths(form)) or not all(map(_testable, form.checks)):
        return None
    if not all(value.__class__ is str for _, value in form.constants):
        return None
    sizes = [int(check.argument) for check in form.checks if check.kind is CheckKind.SIZE]  # type: ignore[call-overload]  # a number of fields
    fields = sizes[0] if sizes else max([_part(path) for path in _paths(form)], default=0)
    constants = tuple([(_part(path), str(value)) for path, value in form.constants])
    captures = tuple(map(_part, form.captures))
    return Flat(
        label=str(form.shape[0][1]),
        parts=fields + 1,
        exact=bool(sizes),
        faithful={*captures, *[at for at, _ in constants]} == {*range(1, fields + 1)},
        constants=constants,
        classes=tuple(
            [
                (_part(check.path), ATOM_CLASSES[str(check.argument)])
                for check in form.checks
                if check.kind is CheckKind.CLASS
            ]
        ),
        captures=captures,
        select=_written(form, fields + 1, exact=bool(sizes)),
    )


def flat_places(form: Skeleton, flat: Flat) -> Callable[[Sequence[Any]], list[int]]:
    """Returns what finds the places of the plain rows that a selection selects."""
    bound, tests = _conditions(form, flat.parts, exact=flat.exact)
    text = f"def places(rows):\n    return [at for at, row in enumerate(rows) if {tests}]\n"
    return emitted(text, bound, of="log")["places"]  # type: ignore[no-any-return]  # by the text


def _written(form: Skeleton, parts: int, *, exact: bool) -> Select:
    """Returns what selects the captures of rows, as one comprehension."""
    bound, tests = _conditions(form, parts, exact=exact)
    row = "".join([f"row[{_part(path)}], " for path in form.captures])
    text = f"def select(rows):\n    return [({row}) for row in rows if {tests}]\n"
    return emitted(text, bound, of="log")["select"]  # type: ignore[no-any-return]  # by the text


def _conditions(form: Skeleton, parts: int, *, exact: bool) -> tuple[dict[str, object], str]:
    """Returns all conditions on a row, as text and with the values of its names.

    Positions are numbers in it, and whatever came from the pattern is bound by a name.
    """
    bound: dict[str, object] = {"label": form.shape[0][1]}
    tests = ["row[0] == label", f"len(row) {'==' if exact else '>='} {parts}"]
    for at, (path, value) in enumerate(form.constants):
        bound[f"constant{at}"] = value
        tests.append(f"row[{_part(path)}] == constant{at}")
    for at, check in enumerate(form.checks):
        if check.kind is CheckKind.CLASS:
            bound[f"class{at}"] = ATOM_CLASSES[str(check.argument)]
            tests.append(f"row[{_part(check.path)}].__class__ is class{at}")
    return bound, " and ".join(tests)


def records_only(counts: Counts, rows: Sequence[Any], plain: Sequence[int]) -> tuple[Counts, Sequence[Any]]:
    """Returns the counted rows of an epoch without the rows that stand for values of other forms."""
    ends = [*accumulate(counts, initial=0)]
    if not plain:
        return counts, rows[: ends[-1]]
    bare = {*plain}
    kept = [[rows[at] for at in range(*bounds) if at not in bare] for bounds in pairwise(ends)]
    added, sent, removed = map(len, kept)
    return (added, sent, removed), [row for part in kept for row in part]


def _paths(form: Skeleton) -> list[Path]:
    """Returns all positions below the record that a pattern speaks of."""
    checked = [check.path for check in form.checks if check.kind is not CheckKind.SIZE]
    return [*form.captures, *[path for path, _ in form.constants], *checked]


def _testable(check: Check) -> bool:
    """True if a check can be made on a plain row: no equality of positions, no class of compounds."""
    if check.kind is CheckKind.SIZE:
        return not check.path
    return check.kind is CheckKind.HAS or (
        check.kind is CheckKind.CLASS and check.argument not in ("record", "seq", "map")
    )


def _part(path: Path) -> int:
    """Returns where in a row a field is: behind the label."""
    return int(path[0]) + 1  # type: ignore[arg-type]  # an index, one step below a record
