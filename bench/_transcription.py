"""The baseline of ``index.py``: the source document's pseudo-code in plain Python, line by line.

It is what somebody would write in an afternoon with the document open: no generated code, no pruning, no
validation, and equality as Python has it, so that ``1``, ``1.0`` and ``True`` are one value.  Records are
tuples whose first element is the label, because nothing that Python offers is hashed or compared more
quickly; a bag is a dictionary of counts.

Always: it does what the document says and nothing else; a slower transcription would be no baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

Value: TypeAlias = Any
"""A tuple whose first element is its label, or an atom."""

Path: TypeAlias = tuple[int, ...]
Shape: TypeAlias = list[tuple[Path, str]]
Skeleton: TypeAlias = tuple[Shape, list[tuple[Path, Any]], tuple[Path, ...]]
Callback: TypeAlias = Callable[[str, tuple[Value, ...]], None]


class Discard:
    """The pattern ``_``."""


class Capture:
    """The pattern ``$``."""


DISCARD: Final = Discard()
CAPTURE: Final = Capture()
EXISTS: Final = object()
"""The document's ``inr ()``: that something must be there, whatever it is."""


def skeleton(pattern: Any) -> Skeleton:
    """``(shape p, constantmap p, capturemap p)``"""
    shape: Shape = []
    constants: list[tuple[Path, Any]] = []
    captures: list[Path] = []

    def walk(part: Any, path: Path) -> None:
        if part is DISCARD:
            constants.append((path, EXISTS))
        elif part is CAPTURE:
            captures.append(path)
        elif isinstance(part, tuple):
            shape.append((path, part[0]))
            for at, below in enumerate(part[1:], 1):  # element 0 is the label
                walk(below, (*path, at))
        else:
            constants.append((path, part))

    walk(pattern, ())
    return shape, constants, tuple(captures)


def shape_visit(shape: Shape) -> list[tuple[tuple[int, Path], str]]:
    """The shape's paths in lexicographic order, each relative to the one before."""
    visit = []
    here: Path = ()
    for path, label in sorted(shape):
        common = 0
        while common < min(len(here), len(path)) and here[common] == path[common]:
            common += 1
        visit.append(((len(here) - common, path[common:]), label))
        here = path
    return visit


def project_many(value: Value, paths: tuple[Path, ...]) -> tuple[Value, ...] | None:
    """The parts at the paths.  That what is above them has parts is known from the shape."""
    parts = []
    try:
        for path in paths:
            part = value
            for at in path:
                part = part[at]
            parts.append(part)
    except IndexError:
        return None
    return tuple(parts)


class Node:
    """A continuation, that is a cache and a table, and the moves on from here."""

    __slots__ = ("cache", "moves", "table")

    def __init__(self, cache: set[Value]) -> None:
        self.cache = cache
        self.table: dict[Any, dict[Any, Leaf]] = {}
        self.moves: dict[tuple[int, Path], dict[str, Node]] = {}


class Leaf:
    """The values with certain constants, and the handlers by what they capture."""

    __slots__ = ("cache", "handlers")

    def __init__(self) -> None:
        self.cache: set[Value] = set()
        self.handlers: dict[tuple[Path, ...], Handler] = {}


class Handler:
    """A bag of captures, and who is told of them."""

    __slots__ = ("bag", "callbacks")

    def __init__(self) -> None:
        self.bag: dict[tuple[Value, ...], int] = {}
        self.callbacks: dict[Callback, None] = {}


class Index:
    """``Index = Bag(V) × Node``"""

    def __init__(self) -> None:
        self.bag: dict[Value, int] = {}
        self.root = Node(set())

    def extend(self, shape: Shape) -> Node:
        node = self.root
        here: Path = ()
        for move, label in shape_visit(shape):
            up, path = move
            here = (*here[: len(here) - up], *path)
            classes = node.moves.setdefault(move, {})
            if label not in classes:
                found = set()
                for value in node.cache:
                    parts = project_many(value, (here,))
                    if parts and parts[0].__class__ is tuple and parts[0][0] == label:
                        found.add(value)
                classes[label] = Node(found)
            node = classes[label]
        return node

    def add_handler(self, of: Skeleton, callback: Callback) -> None:
        shape, unsorted_constants, captures = of
        node = self.extend(shape)
        constants = sorted([(path, c) for path, c in unsorted_constants if c is not EXISTS])
        checks = tuple([path for path, c in unsorted_constants if c is EXISTS])
        paths = tuple([path for path, _ in constants])
        if (paths, checks) not in node.table:
            leaves = node.table[paths, checks] = {}
            for value in node.cache:
                key = project_many(value, paths)
                if key is not None and project_many(value, checks) is not None:
                    leaves.setdefault(key, Leaf()).cache.add(value)
        leaf = node.table[paths, checks].setdefault(tuple([c for _, c in constants]), Leaf())
        if captures not in leaf.handlers:
            handler = leaf.handlers[captures] = Handler()
            for value in leaf.cache:
                row = project_many(value, captures)
                if row is not None:
                    handler.bag[row] = handler.bag.get(row, 0) + 1
        handler = leaf.handlers[captures]
        handler.callbacks[callback] = None
        for row in handler.bag:
            callback("+", row)

    def remove_handler(self, of: Skeleton, callback: Callback) -> None:
        shape, unsorted_constants, captures = of
        node = self.extend(shape)
        constants = sorted([(path, c) for path, c in unsorted_constants if c is not EXISTS])
        at = (
            tuple([path for path, _ in constants]),
            tuple([path for path, c in unsorted_constants if c is EXISTS]),
        )
        place = tuple([c for _, c in constants])
        leaf = node.table[at][place]
        handler = leaf.handlers[captures]
        del handler.callbacks[callback]
        if not handler.callbacks:
            del leaf.handlers[captures]
        if not leaf.cache and not leaf.handlers:
            del node.table[at][place]
        if not node.table[at]:
            del node.table[at]

    def modify(self, operation: str, value: Value) -> None:
        self.visit(operation, value, self.root, [value])

    def visit(self, operation: str, value: Value, node: Node, trail: list[Value]) -> None:
        self.visit_node(operation, value, node)
        for (up, path), classes in node.moves.items():
            above = trail[up:]
            part = above[0]
            try:
                for at in path:
                    part = part[at]
            except IndexError:
                continue
            if part.__class__ is tuple:
                below = classes.get(part[0])
                if below is not None:
                    self.visit(operation, value, below, [part, *above])

    def visit_node(self, operation: str, value: Value, node: Node) -> None:
        if operation == "+":
            node.cache.add(value)
        elif operation == "-":
            node.cache.remove(value)
        for (paths, checks), leaves in list(node.table.items()):
            if checks and project_many(value, checks) is None:
                continue
            place = project_many(value, paths)
            if place is None:
                continue
            leaf = leaves.get(place)
            if leaf is None:
                if operation != "+":
                    continue
                leaf = leaves[place] = Leaf()
            if operation == "+":
                leaf.cache.add(value)
            elif operation == "-":
                leaf.cache.remove(value)
            for captures, handler in leaf.handlers.items():
                row = project_many(value, captures)
                if row is not None:
                    self.visit_handler(operation, handler, row)
            if operation == "-" and not leaf.cache and not leaf.handlers:
                del leaves[place]
                if not leaves:
                    del node.table[paths, checks]

    def visit_handler(self, operation: str, handler: Handler, row: tuple[Value, ...]) -> None:
        if operation == "+":
            count = handler.bag.get(row, 0)
            handler.bag[row] = count + 1
            if count:
                return
        elif operation == "-":
            count = handler.bag[row]
            if count > 1:
                handler.bag[row] = count - 1
                return
            del handler.bag[row]
        for callback in handler.callbacks:
            callback(operation, row)

    def add(self, value: Value) -> None:
        count = self.bag.get(value, 0)
        self.bag[value] = count + 1
        if not count:
            self.modify("+", value)

    def remove(self, value: Value) -> None:
        count = self.bag[value]
        if count > 1:
            self.bag[value] = count - 1
            return
        del self.bag[value]
        self.modify("-", value)

    def send(self, value: Value) -> None:
        self.modify("!", value)
