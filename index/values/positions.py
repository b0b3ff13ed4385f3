"""Positions: paths within a value, and the parts that stand there.

A *path* leads from a value to a part of it, one step at a time; the *class* of a part is what structure it
has (HOWITWORKS, "classof" and "project").  Shapes, moves and skeletons are all told in these terms.

Always: whatever path is asked for, what is not there is ``MISSING``, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeAlias

from index.values.values import Map, Record, Value, key

Step: TypeAlias = int | tuple[Hashable]
"""From a compound to a part: the index of a field or element, or the boxed key form of a map's key."""

Path: TypeAlias = tuple[Step, ...]
Class: TypeAlias = Hashable
"""What a position must hold for structure below it to make sense: a record's label, sequence, or map."""

Shape: TypeAlias = tuple[tuple[Path, Class], ...]

SEQUENCE: Final = ("sequence",)
MAPPING: Final = ("map",)


class Missing:
    """The part found at a position that a value does not have; there is one, ``MISSING``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def class_of(value: Value | Missing) -> Class | None:
    """The class of a compound, None for atoms (HOWITWORKS, "classof")."""
    if isinstance(value, Record):
        return label_class(value.label)
    if isinstance(value, tuple):
        return SEQUENCE
    return MAPPING if isinstance(value, Map) else None


def label_class(label: Value) -> Class:
    """The class of records with this label: mostly the label itself."""
    return label if type(label) is str else ("label", key(label))


def step(value: Value | Missing, by: Step) -> Value | Missing:
    """The part of a value one step below, or ``MISSING``."""
    if isinstance(by, int):
        parts = value.fields if isinstance(value, Record) else value
        return parts[by] if isinstance(parts, tuple) and by < len(parts) else MISSING
    if isinstance(value, Map):
        entry = value.find(by[0])
        return MISSING if entry is None else entry[1]
    return MISSING


def project(value: Value, path: Path) -> Value | Missing:
    """The part of a value at a path (HOWITWORKS, "project"), or ``MISSING``; O(path).

    >>> project(Record("x", Record("y", 3, 4)), (0, 1))
    4
    """
    part: Value | Missing = value
    for by in path:
        part = step(part, by)
    return part


def size_of(value: Value | Missing) -> int:
    """How many parts a compound has; -1 for anything else."""
    kind = value.__class__
    if kind is Record:
        return len(value.fields)  # type: ignore[union-attr]  # narrowed by class
    return len(value) if kind is tuple or kind is Map else -1  # type: ignore[arg-type]  # as above
