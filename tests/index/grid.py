"""All small patterns beside all small values, up to a size.

Random patterns rarely repeat a name at two depths, and values that just miss them are rarer.  Here nothing is
left to chance: a *tree* is how structure nests, each leaf of it gets each kind of slot, and each structure
each kind of wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import product
from typing import Final, TypeAlias

from index.patterns.patterns import DISCARD, capture, discard, exact, lit
from index.values.values import Map, Record, Value, key, keys
from tests.model import patterns as oracle

Tree: TypeAlias = "tuple[str, tuple[Tree, ...]] | None"
"""A kind of structure with what is in it; None is a leaf."""

KINDS: Final = ("record", "sequence", "map")
SLOTS: Final[Sequence[Value]] = (
    DISCARD,
    discard("int"),
    capture(),
    capture("x"),
    capture("y"),
    capture("x", "int"),
    capture("x", None, 1),
    1,
    lit(1),
    lit(Record("q", 1)),
)
FEWER: Final[Sequence[Value]] = (DISCARD, capture("x"), capture("y"), capture("x", "int"), 1)
NAMES: Final[Sequence[Value]] = (capture("x"), capture("y"))
WRAPS: Final[Sequence[Callable[[Value], Value]]] = (
    exact,
    lit,
    lambda sub: capture(None, None, sub),
    lambda sub: capture("x", None, sub),
    lambda sub: capture("x", "seq", sub),
    lambda sub: capture("x", "record", exact(sub)),
)
KEYS: Final = ("k", 1, "m")

Case: TypeAlias = tuple[Value, dict[int, Hashable]]
"""A pattern, and the key of its row for each value that it matches, by the index of the value."""


def trees(most: Sequence[int], kinds: Sequence[str] = KINDS) -> list[Tree]:
    """Returns all structures with at most so many parts at each level, the outermost first."""
    if not most:
        return []
    inner: list[Tree] = [None, *trees(most[1:])]
    return [(kind, parts) for kind in kinds for n in range(most[0] + 1) for parts in product(inner, repeat=n)]


def patterns_of(tree: Tree, some: Sequence[Value] = SLOTS, names: Sequence[Value] = NAMES) -> Iterator[Value]:
    """Yields the patterns of a tree: with all slots, and with names beside each wrap of one structure."""
    size, structures = leaves_of(tree), _structures_of(tree)
    for slots in product(some, repeat=size):
        yield _built(tree, iter(slots))
    for slots in product(names, repeat=size):
        for at, wrap in product(range(structures), WRAPS):
            wraps: list[Callable[[Value], Value]] = [_plain] * structures
            wraps[at] = wrap
            yield _built(tree, iter(slots), iter(wraps))


def repetitions_of(tree: Tree) -> Iterator[Value]:
    """Yields the patterns of a tree with two names in all ways."""
    for slots in product(NAMES, repeat=leaves_of(tree)):
        yield _built(tree, iter(slots))


def values_of(tree: Tree, atoms: Sequence[Value]) -> Iterator[Value]:
    """Yields the values of a tree with these atoms in all ways."""
    for leaves in product(atoms, repeat=leaves_of(tree)):
        yield _built(tree, iter(leaves))


def leaves_of(tree: Tree) -> int:
    """Returns how many leaves a tree has."""
    return 1 if tree is None else sum(map(leaves_of, tree[1]))


def _structures_of(tree: Tree) -> int:
    return 0 if tree is None else 1 + sum(map(_structures_of, tree[1]))


def _plain(sub: Value) -> Value:
    return sub


def _built(
    tree: Tree,
    leaves: Iterator[Value],
    wraps: Iterator[Callable[[Value], Value]] | None = None,
    label: str = "p",
) -> Value:
    if tree is None:
        return next(leaves)
    wrap = _plain if wraps is None else next(wraps)
    kind, inner = tree
    parts = [_built(each, leaves, wraps, "q") for each in inner]
    if kind == "record":
        return wrap(Record(label, *parts))
    return wrap(tuple(parts) if kind == "sequence" else Map(zip(KEYS, parts, strict=False)))


def judged(patterns: Sequence[Value], values: Sequence[Value]) -> list[Case]:
    """Returns what the oracle says of each pattern and each value; O(patterns × values)."""
    cases: list[Case] = []
    for pattern in patterns:
        rows = {at: oracle.match(pattern, value) for at, value in enumerate(values)}
        cases.append((pattern, {at: keys(row) for at, row in rows.items() if row is not None}))
    return cases


def nested(kind: str) -> tuple[list[Value], list[Value]]:
    """Returns the patterns of two levels with an outer kind, and the values: 3 933 and 142."""
    some = trees((2, 1), [kind])
    return _all(some, patterns_of), _distinct(_all(some, lambda tree: values_of(tree, (1, 2))) + _OTHERS)


def wide(kind: str) -> tuple[list[Value], list[Value]]:
    """Returns three leaves with two names in all ways, each one level down or not, and the values."""
    inner: list[Tree] = [None, *[(each, (None,)) for each in KINDS]]
    short: list[Tree] = [None, *[(each, parts) for each in KINDS for parts in ((), (None,))]]
    some: list[Tree] = [(kind, parts) for parts in product(inner, repeat=3)]
    near: list[Tree] = [(kind, parts) for parts in product(short, repeat=3)]
    return _all(some, repetitions_of), _all(near, lambda tree: values_of(tree, (1, 2)))


def deep(kind: str) -> tuple[list[Value], list[Value]]:
    """Returns the patterns of three levels with an outer kind and fewer slots, and the values."""
    some = trees((2, 1, 1), [kind])
    patterns = _all(some, lambda tree: patterns_of(tree, FEWER, NAMES[:1]))
    return patterns, _distinct(_all(some, lambda tree: values_of(tree, (1, 2))) + _OTHERS)


_OTHERS: Final[list[Value]] = [
    1,
    True,
    (),
    Record("p", True, 1),
    Record("p", 1.0, 1),
    Record("p", Record("q", True), 1),
    Record("q", 1, 1),
    ((True,), 1),
    Map({"k": (1,), 1: True}),
    Map({True: 1, "k": 1}),
]


def _distinct(values: list[Value]) -> list[Value]:
    return list({key(value): value for value in values}.values())


def _all(some: Sequence[Tree], of: Callable[[Tree], Iterator[Value]]) -> list[Value]:
    return [each for tree in some for each in of(tree)]
