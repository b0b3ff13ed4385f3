"""Positions: paths within a value, the parts that stand there, and moves from one position to the next.

A *path* leads from a value to a part of it, one step at a time; the *class* of a part is what structure it
has (HOWITWORKS, "classof" and "project").  Shapes, moves and skeletons are all told in these terms.

A *visit* is a sequence of positions.  It may be given as *paths* from the root, or as *moves*: some steps
rootward from the present position, then a path leafward (HOWITWORKS, "From pattern shapes to tries of
moves").  The index lays shapes out by moves, because two shapes that begin alike then share their beginning,
whatever comes later.

Always: a path that leads to no part gives ``MISSING``, and nothing raises; ``to_paths(to_moves(paths)) ==
paths``; the moves of a shape are the root and then single steps leafward, because a pattern's structure
leaves out no position between.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
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


# -- moves -----------------------------------------------------------------------------------------


Move: TypeAlias = tuple[int, Path]
"""How many steps rootward, then which path leafward."""

TO_THE_ROOT: Final[Move] = (0, ())
"""The first move of every shape."""


def apply(here: Path, move: Move) -> Path:
    """Returns the position to which a move leads (the source's ⊕).

    >>> apply((0, 3), (1, (2,)))
    (0, 2)
    """
    up, down = move
    return here[: len(here) - up] + down


def compute(there: Path, here: Path) -> Move:
    """Returns the move that leads from ``here`` to ``there`` (the source's ⊖).

    >>> compute((0, 2), here=(0, 3))
    (1, (2,))
    """
    common = 0
    for one, other in zip(here, there, strict=False):
        if one != other:
            break
        common += 1
    return len(here) - common, there[common:]


def to_moves(paths: Sequence[Path]) -> list[Move]:
    """Returns a visit as moves; the first move starts at the root.

    >>> to_moves([(), (0,), (2,), (2, 1)])
    [(0, ()), (0, (0,)), (1, (2,)), (0, (1,))]
    """
    return [compute(there, here) for here, there in zip([(), *paths], paths, strict=False)]


def to_paths(moves: Sequence[Move]) -> list[Path]:
    """Returns the same visit as paths from the root."""
    here: Path = ()
    paths = []
    for move in moves:
        here = apply(here, move)
        paths.append(here)
    return paths


def visit(shape: Shape) -> list[tuple[Move, Class]]:
    """Returns a shape as the way through the trie (the source's ``shapeVisit``); O(shape × depth).

    A shape is in lexicographic order of paths already, so nothing is sorted here.
    """
    paths, classes = [path for path, _ in shape], [of_class for _, of_class in shape]
    return list(zip(to_moves(paths), classes, strict=True))
