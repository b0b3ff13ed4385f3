"""Forms: what a pattern asks of the columns of one label, if columns alone can answer it.

A pattern of one label whose fields are captures, constants of atoms, or left out has a form.  If captures and
constants are all fields of a fact, and no fact of the label has more of them, each change of a fact is a
change for the observer.  Else facts with the same captures are counted.  All other patterns are replayed from
segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from index.patterns.skeletons import ATOM_CLASSES, Check, CheckKind, skeleton
from index.values.positions import Path
from index.values.values import Value
from relay.archive.columns import LETTERS

CLASSES: Final[Mapping[str, type]] = {letter: kind for kind, letter in LETTERS.items()}
"""The class of values for each letter of a manifest's ``types``."""


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A pattern of one label that looks no deeper than the fields of a fact, and names ``fields`` of them.

    ``captures`` has the field of each capture, in their order.  With ``exact`` no fact has more fields;
    ``faithful`` if captures and constants are all fields.
    """

    label: str
    fields: int
    exact: bool
    captures: tuple[int, ...]
    constants: Mapping[int, Value]
    classes: Mapping[int, type]
    faithful: bool


def column_form(pattern: Value) -> ColumnForm | None:
    """Returns what a pattern asks of columns; None for a pattern that they cannot answer alone."""
    form = skeleton(pattern)
    if len(form.shape) != 1 or form.shape[0][1].__class__ is not str:
        return None
    if not all(map(_testable, form.checks)):
        return None
    paths = [*form.captures, *[path for path, _ in form.constants]]
    checked = [check.path for check in form.checks if check.kind is not CheckKind.SIZE]
    if not all(len(path) == 1 for path in [*paths, *checked]):
        return None
    sizes = [int(check.argument) for check in form.checks if check.kind is CheckKind.SIZE]  # type: ignore[call-overload]  # a number of fields
    count = sizes[0] if sizes else max([_field(path) + 1 for path in [*paths, *checked]], default=0)
    return ColumnForm(
        label=str(form.shape[0][1]),
        fields=count,
        exact=bool(sizes),
        captures=tuple(map(_field, form.captures)),
        constants={_field(path): value for path, value in form.constants},
        classes={
            _field(check.path): ATOM_CLASSES[str(check.argument)]
            for check in form.checks
            if check.kind is CheckKind.CLASS
        },
        faithful={*map(_field, paths)} == {*range(count)},
    )


def _testable(check: Check) -> bool:
    if check.kind is CheckKind.SIZE:
        return not check.path
    return check.kind is CheckKind.HAS or (
        check.kind is CheckKind.CLASS and check.argument not in ("record", "seq", "map", "null")
    )


def _field(path: Path) -> int:
    return int(path[0])  # type: ignore[arg-type]  # an index, one step below a record
