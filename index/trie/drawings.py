"""Drawings of the trie as it is now: text, a mermaid flowchart, or a graph for Graphviz.

They show operators why an observer is called, or not, or slowly: nodes by their move and class, groups by
their comparisons and checks, leaves by their constants, handlers by their captures; each with counts.  A net
is drawn as a node of the root, with its groups.

Always: nothing here changes anything; a drawing has a limited number of boxes, and texts from clients are
escaped and cut, so that a drawing is harmless and of limited size.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from index.errors import UsageError
from index.patterns.skeletons import Check, CheckKind
from index.patterns.text import unparse
from index.trie.net import ANY_CLASS, DiscriminationNet
from index.trie.nodes import Group, GroupKey, Leaf, Node
from index.values.positions import MAPPING, SEQUENCE, Class, Missing, Move, Path, Shape, project
from index.values.values import SECRET, Value, whole_text

DEEPEST: Final = 48
"""Boxes from the root to the deepest that is drawn; there is a node for each position of a pattern."""

_SHOWN: Final = 60
"""Characters of a constant or label that are drawn."""


class Drawing(enum.StrEnum):
    """The formats of a drawing."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


@dataclass(slots=True)
class _Box:
    """One box in a drawing, with its children."""

    text: str
    kind: str
    below: list[_Box] = field(default_factory=list)
    passed: bool = False


Nets: TypeAlias = "Mapping[Class, DiscriminationNet]"


@dataclass(frozen=True, slots=True)
class Passage:
    """The way of one value: the nodes that it reaches, and its place in each of their groups."""

    nodes: Set[int]
    places: Mapping[int, Hashable]


NOWHERE: Final = Passage(frozenset(), {})
"""The way of no value."""


def passage(reached: Sequence[Node], beside: Sequence[Group], value: Value) -> Passage:
    """Returns the way of a value through the nodes that it reaches (``Tree.reached``), and the groups beside
    the trie that it may meet (``Tree.beside``); O(groups)."""
    groups = [group for node in reached for group in node.groups.values()] + list(beside)
    places = {id(group): group.place(value) for group in groups}
    found = {at: place for at, place in places.items() if not isinstance(place, Missing)}
    return Passage({id(node) for node in reached}, found)


def rows(
    root: Node, nets: Nets, way: Passage = NOWHERE, *, most: int = 20, boxes: int = 1_000
) -> Iterator[tuple[int, int, str, str, bool]]:
    """Yields the boxes of a drawing: number, number of the box above, kind, text, and if the way leads here.

    The first is the root, which is its own box above.  Boxes on the way are drawn before others.
    """
    for number, above, box in _numbered(_boxes(root, nets, most, boxes, way)):
        yield number, above, box.kind, box.text, box.passed


def draw(root: Node, nets: Nets, form: str = Drawing.TEXT, *, most: int = 20, boxes: int = 1_000) -> str:
    """Returns a drawing of the trie below a node, and of nets beside it.

    A box has at most ``most`` children, and there are about ``boxes`` in all; where there are more, the
    drawing has their number.  Raises ``UsageError`` for an unknown form.  O(boxes).
    """
    if form not in list(Drawing):
        raise UsageError(f"no form {form!r:.40} of drawings, there are {', '.join(Drawing)}")
    top = _boxes(root, nets, most, boxes)
    if form == Drawing.TEXT:
        return "".join([f"{line}\n" for line in _text(top)])
    return "".join([f"{line}\n" for line in (_mermaid(top) if form == Drawing.MERMAID else _dot(top))])


# -- what is drawn ------------------------------------------------------------------------------------


def _boxes(root: Node, nets: Nets, most: int, limit: int, way: Passage = NOWHERE) -> _Box:
    top = _Box(f"root: {_count(len(root.values), 'value')}", "node", passed=id(root) in way.nodes)
    waiting = [(root, top, 1)]
    boxes = 1
    while waiting:
        node, box, depth = waiting.pop(0)
        groups = list(node.groups.items())
        if way is not NOWHERE:  # sorts are stable: the others stay in their order
            groups.sort(key=lambda item: id(item[1]) not in way.places)
        for key, group in groups[:most]:
            if boxes >= limit:
                break
            box.below.append(_group(key, group, most, way))
            boxes += 1 + len(box.below[-1].below)
        nodes = [(move, of, below) for move, table in node.moves.items() for of, below in table.items()]
        if way is not NOWHERE:
            nodes.sort(key=lambda edge: id(edge[2]) not in way.nodes)
        for move, of_class, below in nodes[: most if boxes < limit and depth < DEEPEST else 0]:
            box.below.append(_node(move, of_class, below, passed=id(below) in way.nodes))
            waiting.append((below, box.below[-1], depth + 1))
            boxes += 1
        _rest(box, len(node.groups) + len(nodes))
    drawn = [_net(label, net, most, way) for label, net in nets.items()]
    drawn.sort(key=lambda net_box: not net_box.passed)
    top.below += drawn[:most]
    if len(drawn) > most:
        top.below.append(_Box(f"… {len(drawn) - most} more nets", "rest"))
    return top


def _rest(box: _Box, count: int) -> None:
    if count > len(box.below):
        box.below.append(_Box(f"… {count - len(box.below)} more", "rest"))


def _node(move: Move, of_class: Class, node: Node, *, passed: bool) -> _Box:
    up, down = move
    text = f"({up}, {_path(down)}) {_class(of_class)}: {_count(len(node.values), 'value')}"
    return _Box(text, "node", passed=passed)


def _net(label: Class, net: DiscriminationNet, most: int, way: Passage) -> _Box:
    forms = list(net.forms.items())
    forms.sort(key=lambda item: id(item[1].group) not in way.places)
    below = [_group(key, form.group, most, way, shape[1:]) for (shape, key), form in forms[:most]]
    of = "" if label == ANY_CLASS else f"{_class(label)}: "
    text = f"{of}{_count(len(forms), 'more form')} in a net"
    box = _Box(text, "node", below, passed=any(each.passed for each in below))
    _rest(box, len(forms))
    return box


def _group(key: GroupKey, group: Group, most: int, way: Passage, shape: Shape = ()) -> _Box:
    paths, checks = key
    asks = [f"{_class(of)} at {_path(path)}" for path, of in shape]
    asks += [f"compare {' '.join(map(_path, paths))}"] if paths else []
    asks += map(_check, checks)
    idle = f"; {_count(len(group.idle), 'idle place')}" if group.idle else ""
    box = _Box(f"{', '.join(asks) or 'whatever is there'}{idle}", "group", passed=id(group) in way.places)
    here = way.places.get(id(group))
    led = group.leaves.get(here) if box.passed else None
    if led is not None:
        box.below.append(_Box(_leaf(here, led, paths), "leaf", passed=True))
    others = ((place, leaf) for place, leaf in group.leaves.items() if leaf is not led)
    for place, leaf in islice(others, most - len(box.below)):
        box.below.append(_Box(_leaf(place, leaf, paths), "leaf"))
    _rest(box, len(group.leaves))
    return box


def _check(check: Check) -> str:
    at = _path(check.path)
    match check.kind:
        case CheckKind.HAS:
            return f"something at {at}"
        case CheckKind.CLASS:
            return f"{check.argument} at {at}"
        case CheckKind.SIZE:
            return f"{check.argument} parts at {at}"
        case CheckKind.SAME:
            return f"{at} as {_path(check.argument)}"  # type: ignore[arg-type]  # a path, of this kind


def _leaf(place: Hashable, leaf: Leaf, paths: Sequence[Path]) -> str:
    """Returns the text of a leaf with its handlers: constants, number of values, and captures of each
    handler."""
    handlers = [
        f"captures {' '.join(map(_path, handler.code.captures)) or 'nothing'}"
        f" ({_count(len(handler.rows), 'row')}) → {_count(len(handler.callbacks), 'callback')}"
        for handler in islice(leaf.handlers, 8)
    ]
    more = ["…"] if len(leaf.handlers) > 8 else []
    return f"{_place(place, leaf, paths)}: {_count(len(leaf.values), 'value')}, {', '.join(handlers + more)}"


def _place(place: Hashable, leaf: Leaf, paths: Sequence[Path]) -> str:
    """Returns the constants of a leaf, read from one of its values if it has any."""
    if not paths:
        return "()"
    for value in leaf.values.values():
        parts = [project(value, path) for path in paths]
        return _cut(" ".join([unparse(part) for part in parts if not isinstance(part, Missing)]))
    return _cut(_key_text(place) if len(paths) == 1 else str(place))


def _class(of_class: Class) -> str:
    if of_class == SEQUENCE:
        return "[…]"
    if of_class == MAPPING:
        return "{…}"
    return _cut(of_class if isinstance(of_class, str) else f"<{_key_text(of_class[1])}>")  # type: ignore[index]


def _path(path: Path) -> str:
    """Returns a path as the documents write it.

    >>> _path((2, 1)), _path(())
    ('[2,1]', '[]')
    """
    return f"[{','.join([str(by) if isinstance(by, int) else _cut(_key_text(by[0])) for by in path])}]"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _cut(text: str) -> str:
    """Returns a text cut to a limited length, on one line."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return shown if shown.isprintable() else ascii(shown)[1:-1]


# -- how it is written --------------------------------------------------------------------------------


def _text(top: _Box) -> Iterator[str]:
    waiting = [(top, "", "")]
    while waiting:
        box, first, indent = waiting.pop()
        yield first + box.text
        for at, below in enumerate(reversed(box.below)):
            last = at == 0
            waiting.append((below, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")))


_SHAPES: Final = {
    "node": ("(", ")", "ellipse"),
    "group": ("{{", "}}", "hexagon"),
    "leaf": ("[", "]", "box"),
    "rest": (">", "]", "plaintext"),
}


def _numbered(top: _Box) -> Iterator[tuple[int, int, _Box]]:
    """Yields each box with its number and its parent's number."""
    waiting, number = [(0, top)], 0
    while waiting:
        above, box = waiting.pop()
        yield number, above, box
        waiting.extend((number, below) for below in reversed(box.below))
        number += 1


def _mermaid(top: _Box) -> Iterator[str]:
    yield "flowchart LR"
    for number, above, box in _numbered(top):
        before, after, _ = _SHAPES[box.kind]
        text = "".join(
            [each if each.isalnum() or each in " .,:→…" else f"#{ord(each)};" for each in box.text]
        )
        yield f'    b{number}{before}"{text}"{after}'
        if number:
            yield f"    b{above} --> b{number}"


def _dot(top: _Box) -> Iterator[str]:
    yield "digraph index {"
    yield "    rankdir=LR;"
    for number, above, box in _numbered(top):
        text = box.text.replace("\\", "\\\\").replace('"', '\\"')
        yield f'    b{number} [label="{text}", shape={_SHAPES[box.kind][2]}];'
        if number:
            yield f"    b{above} -> b{number};"
    yield "}"


def _key_text(at: Hashable) -> str:
    """Returns the text of the value of a key (``values.key``)."""
    if isinstance(at, int):
        return whole_text(at // SECRET)
    text = str(at[-1]) if isinstance(at, tuple) and at else repr(at)
    return text.removeprefix("key(").removesuffix(")") if text.startswith("key(") else text
