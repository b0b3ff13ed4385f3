"""Invariants of the index, each computed again in the obvious way.

The index keeps the same knowledge in many tables and changes them step by step.  This file computes what
those tables must hold, from the values alone; tests check it after every step, and operators can on demand.

Always: nothing here changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from index.errors import InternalError
from index.patterns.events import Entry, Restricted, Visible
from index.trie.net import Branch, DiscriminationNet, LeafEntry
from index.trie.nodes import At, Group, Handler, Leaf, Node, Values, at_of
from index.values.positions import MISSING, TO_THE_ROOT, Class, class_of, project, to_moves, visit
from index.values.values import Value, keys


def nodes_below(root: Node) -> Iterator[Node]:
    """Yields a node and all nodes below it."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(below for table in node.moves.values() for below in table.values())


def verify(
    root: Node,
    nets: Mapping[Class, DiscriminationNet],
    copies: Mapping[At, int],
    visible: Mapping[At, Visible],
    prepared: Sequence[Handler],
) -> None:
    """Raises ``InternalError`` naming the first invariant that is broken; O(nodes × values).

    Handlers that are ``prepared`` need no callback.
    """
    for node in nodes_below(root):
        conforming = {
            at: value
            for at, value in root.values.items()
            if all(class_of(project(value, path)) == of_class for path, of_class in node.shape)
        }
        _hold(node.values.keys() == conforming.keys(), f"the values of {node.shape}")
        _hold(node is root or not node.is_idle, f"{node.shape} has no handlers")
        _hold(node.each == tuple(node.groups.values()), f"the groups of {node.shape}")
        _verify_moves(node)
        for group in node.groups.values():
            _hold(group.in_trie, "a group of a net in the trie")
            _verify_group(group, conforming, visible, prepared)
    in_trie = {(node.shape, at): group for node in nodes_below(root) for at, group in node.groups.items()}
    for net in nets.values():
        _verify_net(net, root.values)
        for key, form in net.forms.items():
            _hold(not form.group.in_trie and not form.group.idle, "a group of a net keeps no idle values")
            _verify_group(form.group, root.values, visible, prepared)
            twice = key in in_trie and not form.group.leaves.keys().isdisjoint(in_trie[key].leaves)
            _hold(not twice, "a leaf is in the trie and in a net")
    stands = (at == at_of(_entry(value, visible.get(at))) for at, value in root.values.items())
    _hold(all(stands), "each value stands under its own key")
    _hold(all(count > 0 for count in copies.values()), "copies are counted from one")
    _hold(copies.keys() <= root.values.keys(), "what has copies is here")
    _hold(visible.keys() <= root.values.keys(), "what is restricted is here")


def _entry(value: Value, paths: Visible | None) -> Entry:
    return value if paths is None else Restricted(value, paths)


def _verify_moves(node: Node) -> None:
    for move, table in node.moves.items():
        _hold(bool(table) or move == TO_THE_ROOT, f"a move without nodes at {node.shape}")
        for of_class, below in table.items():
            _hold(below.shape[:-1] == node.shape, "a node is one position further than the one above")
            _hold(visit(below.shape)[-1] == (move, of_class), f"the move to {below.shape}")
    _hold(len(to_moves([path for path, _ in node.shape])) == len(node.shape), "a move for each position")


def _verify_net(net: DiscriminationNet, values: Values) -> None:
    _hold(bool(net.forms), "a net without handlers")
    entries = [entry for form in net.forms.values() for entry in form.entries.values()]
    found: list[LeafEntry] = []
    for branch in net.branches():
        found += branch.entries
        _hold(branch.groups == tuple(dict.fromkeys([e.form.group for e in branch.entries])), "its groups")
        below = [each for answers in branch.questions.values() for each in answers.values()]
        _hold(branch.size == len(branch.entries) + sum([each.size for each in below]), "entries of a branch")
        _hold(branch.above is None or branch.size > 0, "a branch without entries")
        _hold(all(branch.questions.values()), "a question without answers")
        _hold(all(_are_admitted(branch) for branch in below), "a guard that all entries pass")
        _hold(all(entry.branch is branch for entry in branch.entries), "the branch of an entry")
        by_position = None if branch.positions is None else set(branch.positions.all())
        _hold(by_position in (None, branch.questions.keys()), "the questions by position")
    met = {entry for entry in entries if entry.required() is not None}
    _hold(len(found) == len(met) and {*found} == met, "each entry that can be met is in one branch")
    for form in net.forms.values():
        _hold(form.entries.keys() == form.group.leaves.keys(), "an entry for each leaf")
        for leaf in form.group.leaves.values():
            for at in leaf.values:
                _hold(form.group in net.reached(values[at]), "a value does not reach its group")


def _are_admitted(branch: Branch) -> bool:
    """True if all entries from a branch on require what leads there and what its guard has."""
    waiting, wanted = [branch], dict(branch.guard)
    if branch.question is not None:
        wanted[branch.question] = branch.answer
    for reached in waiting:
        waiting += [below for answers in reached.questions.values() for below in answers.values()]
        for entry in reached.entries:
            if not wanted.items() <= (entry.required() or {}).items():
                return False
    return True


def _verify_group(
    group: Group, conforming: Values, visible: Mapping[At, Visible], prepared: Sequence[Handler]
) -> None:
    places = {at: group.place(value) for at, value in conforming.items()}
    expected = {at: place for at, place in places.items() if place is not MISSING}
    if not group.in_trie:
        expected = {at: place for at, place in expected.items() if place in group.leaves}
    kept = {place: group.held(place, conforming) for place in [*group.leaves, *group.idle]}
    _hold({at: place for place, values in kept.items() for at in values} == expected, "values by place")
    _hold(not group.leaves.keys() & group.idle.keys(), "a place is idle or has a leaf")
    _hold(all(kept[place] for place in group.idle), "an idle place without values")
    _hold(bool(group.leaves), "a group without handlers")
    for leaf in group.leaves.values():
        _hold(bool(leaf.handlers), "a leaf without handlers")
        _hold(leaf.sole is (leaf.handlers[0] if len(leaf.handlers) == 1 else None), "the sole handler")
        _hold(
            len({each.code.captures for each in leaf.handlers}) == len(leaf.handlers),
            "a handler for each captures",
        )
        for handler in leaf.handlers:
            _verify_handler(handler, leaf, visible)
            _hold(bool(handler.callbacks) is (handler not in prepared), "a handler without callbacks")
            sole = next(iter(handler.callbacks)) if len(handler.callbacks) == 1 else None
            _hold(handler.sole == sole, "the sole callback")


def _verify_handler(handler: Handler, leaf: Leaf, visible: Mapping[At, Visible]) -> None:
    found = [handler.row(value, visible.get(at)) for at, value in leaf.values.items()]
    counts: Counter[Hashable] = Counter(keys(row) for row in found if row is not None)
    more = handler.more or {}
    _hold({at: 1 + more.get(at, 0) for at in handler.rows} == counts, "captures reported, and how often")
    _hold(more.keys() <= handler.rows.keys(), "captures that were never reported")


def _hold(true: bool, what: str) -> None:
    if not true:
        raise InternalError(f"the index is inconsistent: {what}")
