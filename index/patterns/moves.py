"""Moves: a visit of a tree, written as steps from one position to the next.

A *visit* is a sequence of positions.  It may be given as *paths* from the root, or as *moves*: some steps
rootward from the present position, then a path leafward (HOWITWORKS, "From pattern shapes to tries of
moves").  The index lays shapes out by moves, because two shapes that begin alike then share their beginning,
whatever comes later.

Always: ``to_paths(to_moves(paths)) == paths``, and the moves of a shape are the root and then single steps
leafward, because a pattern's structure leaves out no position between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from index.values.positions import Class, Path, Shape

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
