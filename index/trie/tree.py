"""The tree of nodes: the way to a handler, and the nodes that a value reaches.

A handler's skeleton is laid out as a path of moves from the root; nodes, groups and leaves are created on the
way and removed when they have no handler (HOWITWORKS, "extend", "addHandler", "removeHandler"). ``reached``
is the single traversal of the source's ``modify``, without the work on the way: additions, removals and
messages all start from the nodes that it returns.  It loops rather than recurses, so that no pattern is too
deep for the interpreter's stack.

The first handler for a set of positions needs a look at all values that may be concerned, some microseconds
for each.  So a *filling* installs the handler empty, with the nodes, group and leaf that lead to it: from
then on new values are filed there like in all other places.  Earlier values are *pending*, and are filed a
few at a time.

A node tries all its groups, and each of them keeps each value.  So only the first forms of a label are laid
out; further forms, with groups of their own, are in a *net* (``net``), which costs a value nothing unless it
meets their requirements.  A leaf there is filled from all values of its label, as nothing is kept for it
before.  So that many leaves of one form cost that only a few times, a form that has some in the net gets its
further leaves in the trie: the more, the more forms are there.

Always: a walk returns each node once, and exactly the nodes whose shape the value has; no node or net exists
without a handler at it or below it; a place has one leaf, in the trie or in a net.  Each value is filed in
the new places of a filling or pending; a pending value is filed before it is removed, so that its removal
finds it at its place; nothing reads the new places until nothing is pending.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from index.patterns.events import Visible
from index.patterns.readers import HandlerCode, handler_code
from index.patterns.skeletons import Skeleton
from index.trie.net import ANY_CLASS, DiscriminationNet, NetForm
from index.trie.nodes import At, Group, Handler, Leaf, News, Node, Values
from index.values.positions import TO_THE_ROOT, Class, Path, class_of, project, step
from index.values.values import COMPILED, Record, Value

IN_TRIE: Final = 16
"""Forms of one label that are laid out in the trie, whatever they are: trying so many takes some
microseconds."""

IN_NET: Final = 16
"""Leaves of one form in a net, before further ones make it the next form beyond ``IN_TRIE`` in the trie."""


class Tree:
    """The nodes of one index, whose values are in ``values``, and the nets beside them.

    ``tops`` are the nodes below the root, and ``nets`` have the forms that are not in the trie, by the class
    of a whole value.
    """

    __slots__ = ("_in_net", "_in_trie", "nets", "root", "tops")

    def __init__(self, values: Values, in_trie: int = IN_TRIE, in_net: int = IN_NET) -> None:
        self._in_trie: Final = in_trie
        self._in_net: Final = in_net
        self.root: Final = Node((), values)
        self.tops: Final[dict[Class, Node]] = self.root.moves.setdefault(
            TO_THE_ROOT, {}
        )  # stays, even if empty
        self.nets: Final[dict[Class, DiscriminationNet]] = {}

    def reached(self, value: Value) -> list[Node]:
        """Returns all nodes whose shape a value has, the root first."""
        top = self.tops.get(class_of(value))
        return [self.root] if top is None else [self.root, *reached(top, value)]

    def beside(self, value: Value) -> list[Group]:
        """Returns the groups outside of the trie that a value may meet."""
        found: list[Group] = []
        of_class = class_of(value)
        for of in (ANY_CLASS, of_class):
            net = None if of is None else self.nets.get(of)
            if net is not None:
                found += net.reached(value)
        return found

    def _form(self, skeleton: Skeleton) -> NetForm | None:
        """Returns the form of a skeleton in a net, if it is there."""
        net = self.nets.get(_label(skeleton)) if self.nets else None
        return None if net is None else net.forms.get((skeleton.shape, skeleton.group))

    def _leaf_beside(self, skeleton: Skeleton) -> Leaf | None:
        """Returns the leaf at the place of a skeleton in a net, if it is there."""
        form = self._form(skeleton)
        return None if form is None else form.group.leaves.get(skeleton.place)

    def _is_beside(self, skeleton: Skeleton, way: list[Node]) -> bool:
        """True if the leaf of a skeleton is in a net, or would be; O(nodes of the label) for a new leaf of a
        form that is not in the trie."""
        form = self._form(skeleton)
        if form is not None and skeleton.place in form.group.leaves:
            return True
        if len(way) > len(skeleton.way) and skeleton.group in way[-1].groups:
            return False
        more = _forms_in_trie(skeleton, way) - self._in_trie
        return more >= 0 and (form is None or len(form.group.leaves) < self._in_net * (more + 1))

    def _way(self, skeleton: Skeleton) -> list[Node]:
        """Returns the nodes on the way to a skeleton, the root first, as far as they exist."""
        way = [self.root]
        for move, of_class in skeleton.way:
            below = way[-1].moves.get(move, {}).get(of_class)
            if below is None:
                break
            way.append(below)
        return way

    def find(self, skeleton: Skeleton) -> Handler | None:
        """Returns the handler of a skeleton, if there is one; O(path)."""
        return self.lookup(skeleton)[0]

    def of_shape(self, skeleton: Skeleton) -> int:
        """Returns how many values are at the last node that exists on the way to a skeleton; O(path)."""
        return len(self._way(skeleton)[-1].values)

    def candidates(self, skeleton: Skeleton) -> Values:
        """Returns the smallest known collection that contains all values that match a skeleton."""
        return self.lookup(skeleton)[1]

    def lookup(self, skeleton: Skeleton) -> tuple[Handler | None, Values]:
        """Returns what ``find`` and ``candidates`` do, with one walk."""
        if self.nets:
            beside = self._leaf_beside(skeleton)
            if beside is not None:
                return beside.handler(skeleton.captures), beside.values
        way = self._way(skeleton)
        values = way[-1].values
        group = way[-1].groups.get(skeleton.group) if len(way) > len(skeleton.shape) else None
        if group is None:
            return None, values
        leaf = group.leaves.get(skeleton.place)
        handler = leaf.handler(skeleton.captures) if leaf is not None else None
        return handler, group.held(skeleton.place, values)

    def install(self, skeleton: Skeleton, visible: Mapping[At, Visible]) -> Handler:
        """Creates a handler, with the nodes, group and leaf that lead to it (HOWITWORKS, "addHandler").

        ``visible`` has the restrictions of the values that have one.  O(values of the shape) for a new group.
        Where an exception interrupts it, ``prune`` must follow.
        """
        code = handler_code(skeleton.shape, skeleton.captures)
        way = self._way(skeleton)
        if self._is_beside(skeleton, way):
            leaf = self._open_beside(skeleton, code, way[-1].values)
        else:
            node = self._extend(skeleton, way)
            leaf = node.group(skeleton.group, code).open(skeleton.place, node.values)
        handler = Handler(code)
        for at, value in leaf.values.items():
            row = handler.row(value, visible.get(at))
            if row is not None:
                handler.add(row)
        leaf.serve((*leaf.handlers, handler))
        return handler

    def begin(self, skeleton: Skeleton) -> Filling:
        """Does ``install`` for a skeleton without a handler, but for the values, which the filling files.

        O(path), and a copy of the table of the values that may be concerned.  Where an exception interrupts
        it, ``prune`` must follow.
        """
        way = self._way(skeleton)
        node, before = way[-1], way[-1].values
        if self._is_beside(skeleton, way):
            return self._begin_beside(skeleton, before)
        new: list[tuple[Path, Class, Node]] = []
        for at in range(len(way) - 1, len(skeleton.way)):
            move, of_class = skeleton.way[at]
            below = Node(skeleton.shape[: at + 1], {})
            node.attach(move, of_class, below)
            new.append((skeleton.shape[at][0], of_class, below))
            node = below
        code = handler_code(node.shape, skeleton.captures)
        handler = Handler(code)
        group = node.groups.get(skeleton.group)
        if group is None:
            group = node.new_group(skeleton.group, code, {})
            leaf = group.leaves[skeleton.place] = Leaf({})
            filling = Filling(skeleton, handler, group, new, node.values, before)
        else:
            leaf = group.open(skeleton.place, node.values)
            filling = Filling(skeleton, handler, None, new, node.values, leaf.values)
        leaf.serve((*leaf.handlers, handler))
        return filling

    def _begin_beside(self, skeleton: Skeleton, values: Values) -> Filling:
        """Does ``begin`` for a handler whose leaf is in a net, or is to be."""
        code = handler_code(skeleton.shape, skeleton.captures)
        handler = Handler(code)
        leaf = self._leaf_beside(skeleton)
        if leaf is None:
            leaf = Leaf({})
            group = self._net(skeleton).open(skeleton, code, leaf)
            filling = Filling(skeleton, handler, group, [], values, values)
            filling.leaf = leaf
        else:
            filling = Filling(skeleton, handler, None, [], values, leaf.values)
        leaf.serve((*leaf.handlers, handler))
        return filling

    def _open_beside(self, skeleton: Skeleton, code: HandlerCode, values: Values) -> Leaf:
        """Returns the leaf of a skeleton in a net, created if needed: O(values) then."""
        leaf = self._leaf_beside(skeleton)
        if leaf is None:
            leaf = Leaf({})
            group = self._net(skeleton).open(skeleton, code, leaf)
            place_of, place = group.place, skeleton.place
            leaf.values.update({at: value for at, value in values.items() if place_of(value) == place})
        return leaf

    def _net(self, skeleton: Skeleton) -> DiscriminationNet:
        """Returns the net for the label of a skeleton, created if needed."""
        label = _label(skeleton)
        net = self.nets.get(label)
        if net is None:
            net = self.nets[label] = DiscriminationNet()
        return net

    def needs(self, skeleton: Skeleton, filling: Filling) -> bool:
        """True if a skeleton has its handler, or would have it, where a filling is not done; O(path)."""
        way = self._way(skeleton)
        group = way[-1].groups.get(skeleton.group) if len(way) > len(skeleton.shape) else None
        return filling.concerns(way, group, self._leaf_beside(skeleton), self.find(skeleton))

    def _extend(self, skeleton: Skeleton, way: list[Node]) -> Node:
        """Returns the node of a shape, created with those on the way (HOWITWORKS, "extend"); O(values) for a
        new one.  ``way`` has the nodes that exist."""
        node, done = way[-1], len(way) - 1
        for move, of_class in skeleton.way[done:]:
            path = skeleton.shape[done][0]
            done += 1
            below = Node(skeleton.shape[:done], of_class_at(node.values, path, of_class))
            node.attach(move, of_class, below)
            node = below
        return node

    def prune(self, skeleton: Skeleton) -> None:
        """Removes the handler of a skeleton, and every node that has no handler any more; O(path).

        Any of that may be gone, or not be there yet: for a handler whose installation or removal was
        interrupted.
        """
        if self.nets:
            self._prune_beside(skeleton)
        way, of, place = self._way(skeleton), skeleton.group, skeleton.place
        if len(way) > len(skeleton.way):
            group = way[-1].groups.get(of)
            leaf = None if group is None else group.leaves.get(place)
            if group is not None and leaf is not None:
                leaf.serve(tuple([each for each in leaf.handlers if each.code.captures != skeleton.captures]))
                if leaf.handlers:
                    return
                group.close(place)
            if group is not None and group.leaves:
                return
            way[-1].ungroup(of)
        for move, of_class in reversed(skeleton.way[: len(way) - 1]):
            if not way.pop().is_idle:
                return
            way[-1].detach(move, of_class)

    def _prune_beside(self, skeleton: Skeleton) -> None:
        """Does ``prune`` for a handler that is in a net, if there is one."""
        label = _label(skeleton)
        net = self.nets.get(label)
        if net is None:
            return
        leaf = self._leaf_beside(skeleton)
        if leaf is not None:
            leaf.serve(tuple([each for each in leaf.handlers if each.code.captures != skeleton.captures]))
        if leaf is None or not leaf.handlers:
            net.close(skeleton)
        if not net.forms:
            self.nets.pop(label, None)


def _label(skeleton: Skeleton) -> Class:
    """Returns the class of all values that a pattern matches."""
    return skeleton.shape[0][1] if skeleton.shape else ANY_CLASS


def _forms_in_trie(skeleton: Skeleton, way: list[Node]) -> int:
    """Returns how many forms with the label of a skeleton are in the trie; O(nodes of the label)."""
    if not skeleton.shape:
        return len(way[0].groups)
    count = 0
    waiting = way[1:2]
    while waiting:
        node = waiting.pop()
        count += len(node.groups)
        for table in node.moves.values():
            waiting.extend(table.values())
    return count


Trail: TypeAlias = tuple[Value, ...]
"""A part of a value, the part that contains it, and so on up to the value: the way back for moves
rootward."""


def reached(top: Node, value: Value) -> list[Node]:
    """Returns the nodes below the root whose shape a value has, given the first of them; O(moves tried)."""
    nodes = [top]
    waiting: list[tuple[Node, Trail]] = [(top, (value,))]
    while waiting:
        node, trail = waiting.pop()
        for (up, (by,)), table in node.moves.items():
            above = trail[up:] if up else trail
            whole = above[0]
            if type(whole) is Record and type(by) is int:
                fields = whole.fields
                if by >= len(fields):
                    continue
                part = fields[by]
            else:
                part = step(whole, by)  # type: ignore[assignment]  # MISSING has no class
            if type(part) is Record and type(part.label) is str:
                below = table.get(part.label)
            else:
                below = table.get(class_of(part))
            if below is not None:
                nodes.append(below)
                if below.moves:
                    waiting.append((below, (part, *above)))
    return nodes


def enter(top: Node, at: At, value: Value, news: News) -> None:
    """Files a value under a node of its class, and under all below that have its shape."""
    for node in reached(top, value) if top.moves else [top]:
        values = node.values
        values[at] = value
        for group in node.each:
            if COMPILED:
                group.walk_in(at, value, values, news)
            else:
                group.file(group, at, value, values, news)


def leave(top: Node, at: At, value: Value, news: News) -> None:
    """Does the reverse of ``enter``."""
    for node in reached(top, value) if top.moves else [top]:
        del node.values[at]
        for group in node.each:
            if COMPILED:
                group.walk_out(at, value, news)
            else:
                group.drop(group, at, value, news)


def of_class_at(values: Values, path: Path, of_class: Class) -> Values:
    """Returns the values that have a class at a path; O(values)."""
    if type(of_class) is not str:
        return {at: value for at, value in values.items() if class_of(project(value, path)) == of_class}
    if not path:  # a label among all values, by far the most frequent and the longest search
        return {at: v for at, v in values.items() if type(v) is Record and v.label == of_class}
    parts = ((at, value, project(value, path)) for at, value in values.items())
    return {at: value for at, value, part in parts if type(part) is Record and part.label == of_class}


# -- fillings --------------------------------------------------------------------------------------


class Filling:
    """One handler that is being filled.

    ``nodes`` are the new nodes, each with the class that values have at a path; ``group`` is the new group,
    or None if only the handler is new.  ``leaf`` is a new leaf in a net, whose group is ``group``.
    """

    __slots__ = ("_group", "_nodes", "_order", "_pending", "_values", "handler", "leaf", "skeleton")

    def __init__(
        self,
        skeleton: Skeleton,
        handler: Handler,
        group: Group | None,
        nodes: list[tuple[Path, Class, Node]],
        values: Values,
        before: Values,
    ) -> None:
        """``values`` are the values of the group's node; ``before`` is copied: the earlier values that are
        to be filed."""
        self.skeleton: Final = skeleton
        self.handler: Final = handler
        self._group: Final = group
        self.leaf: Leaf | None = None
        self._nodes: Final = nodes
        self._values: Final = values
        self._pending: Final = before.copy()
        self._order: Iterator[At] | None = (
            None  # made by the first step, as either copy takes 2 ms for 300 000
        )

    def __len__(self) -> int:
        """Returns how many values are pending."""
        return len(self._pending)

    def concerns(
        self, way: list[Node], group: Group | None, beside: Leaf | None, handler: Handler | None
    ) -> bool:
        """True if nodes, a group, a leaf in a net or a handler are among the new places, or reached through
        them."""
        if self._nodes:
            return self._nodes[0][2] in way
        if self.leaf is not None:
            return beside is self.leaf
        return group is self._group if self._group is not None else handler is self.handler

    def fill(self, count: int) -> bool:
        """Files up to so many values, the oldest first; True if none is pending any more."""
        pending = self._pending
        if self._order is None:
            self._order = iter(list(pending))  # rows stay in the order in which their values appeared
        while pending and count > 0:
            at = next(self._order)
            if at in pending:
                self._file(at, pending.pop(at))
                count -= 1
        return not pending

    def file_pending(self, at: At) -> None:
        """Files a value that is about to be removed, if it is pending; O(1)."""
        if at in self._pending:
            self._file(at, self._pending.pop(at))

    def stop(self) -> None:
        """Notes that the places are filled in another way, or gone."""
        self._pending.clear()

    def _file(self, at: At, value: Value) -> None:
        for path, of_class, node in self._nodes:
            if class_of(project(value, path)) != of_class:
                return
            node.values[at] = value
        news: News = []  # nobody is called yet
        group = self._group
        leaf = self.leaf
        if leaf is not None:
            if group is not None and group.place(value) == self.skeleton.place:  # others have theirs
                leaf.values[at] = value
                leaf.gain(value, news)
        elif group is None:
            row = self.handler.row(value, None)
            if row is not None:
                self.handler.add(row)
        elif COMPILED:
            group.walk_in(at, value, self._values, news)
        else:
            group.file(group, at, value, self._values, news)
