"""The index: a trie of moves in which every value finds those who are interested in it.

The algorithm of "Efficient, Imperative Dataspaces for Conversational Concurrency" (HOWITWORKS): a handler's
skeleton is laid out as a path of *moves* from node to node, by the classes of the structure that it needs;
at the end of the path a *group* collects handlers by which positions they compare, a *leaf* by the constants
found there, and a *handler* holds the captures that it has been told of.  To add, remove or send a value is
one walk over the nodes that its structure reaches, with one table look-up for each group.

Always: every node, group, leaf and handler holds exactly the values that conform to its place, and none is
there that serves nobody; a callback runs only when the first value with its captures comes, the last one
goes, or a message passes, and by then the index has changed completely.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from index.errors import UsageError
from index.patterns.events import ADDED, MESSAGE, REMOVED, Callback, Captures, Cleanup, Event, Visible
from index.patterns.moves import TO_THE_ROOT
from index.patterns.readers import handler_code, match_reader
from index.patterns.skeletons import Skeleton
from index.trie.drawings import draw
from index.trie.invariants import nodes_below, verify
from index.trie.nodes import At, Handler, News, Node, Values, all_at, at_of
from index.trie.walks import reached
from index.values.positions import MISSING, Class, Path, class_of, project
from index.values.values import COMPILED, Record, Value, keys

__all__ = [
    "Index",
    "Event",
    "ADDED",
    "REMOVED",
    "MESSAGE",
    "Net",
    "IndexStatistics",
    "Captures",
    "Callback",
    "Cleanup",
]


class Net(NamedTuple):
    """What a patch meant: the values that appeared and those that vanished, in the order of the patch."""

    added: list[Value]
    removed: list[Value]


NOTHING: Final = (False, False)
"""What ``Index.replace`` says where a value takes its own place."""


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """Counts of what an index holds: values distinct and in all, and what serves how many callbacks."""

    values: int
    copies: int
    nodes: int
    groups: int
    leaves: int
    handlers: int


class Index:
    """All values and all handlers.  Not safe for threads; a callback must not change it, nor raise.

    A value may come with a restriction, ``visible``: the paths at which the endpoint that brought it
    captures.  Only handlers that capture at none but those are told of it.  The same value under another
    restriction, or under none, is another one here.
    """

    __slots__ = ("_copies", "_root", "_telling", "_tops", "_values", "_visible")

    def __init__(self) -> None:
        self._values: Values = {}
        self._copies: dict[At, int] = {}  # of those that are here more than once: how many more
        self._visible: dict[At, Visible] = {}  # of those that are restricted
        self._root = Node((), self._values)
        self._tops = self._root.moves.setdefault(TO_THE_ROOT, {})  # which stays, even if empty
        self._telling = False

    def __len__(self) -> int:
        """Distinct values."""
        return len(self._values)

    def values(self) -> Iterator[Value]:
        """The distinct values, in the order in which they appeared."""
        return iter(self._values.values())

    def count(self, value: Value, *, visible: Visible | None = None) -> int:
        """How many copies of a value are here; O(1)."""
        return self.count_at(at_of(value, visible))

    def count_at(self, at: At) -> int:
        """The same for what ``at_of`` gives for a value."""
        return 1 + self._copies.get(at, 0) if at in self._values else 0

    def value(self, at: At) -> Value:
        """The value that is here under ``at``, as ``at_of`` gives it; ``KeyError`` if none is.  O(1)."""
        return self._values[at]

    # -- values ---------------------------------------------------------------------------------------

    def add(self, value: Value, *, visible: Visible | None = None) -> bool:
        """Adds a copy of a value: whether it has appeared.  O(handlers reached)."""
        if self._telling:
            raise _busy()
        at: At
        if type(value) is Record and visible is None:
            at = value._text or value.text  # spares a call
        else:
            at = at_of(value, visible)
        if at in self._values:
            self._copies[at] = self._copies.get(at, 0) + 1
            return False
        news: News = []
        self._appear(at, value, visible, news)
        try:  # as _tell, written out here and in remove: its call is a thirtieth of the whole
            self._telling = True
            for handler, row in news:
                if handler.sole is not None:
                    handler.sole(ADDED, row)
                else:
                    handler.call(ADDED, row)
        finally:
            self._telling = False
        return True

    def remove(self, value: Value, *, visible: Visible | None = None) -> bool:
        """Removes a copy: whether the value has vanished.  ``UsageError`` if it is not here.  As ``add``."""
        if self._telling:
            raise _busy()
        at: At
        if type(value) is Record and visible is None:
            at = value._text or value.text
        else:
            at = at_of(value, visible)
        if at not in self._values:
            raise _not_here(value)
        if self._copies and at in self._copies:
            self._recount({at: self._copies[at]})
            return False
        news: News = []
        self._vanish(at, visible, news)
        try:
            self._telling = True
            for handler, row in news:
                if handler.sole is not None:
                    handler.sole(REMOVED, row)
                else:
                    handler.call(REMOVED, row)
        finally:
            self._telling = False
        return True

    def send(self, value: Value, *, visible: Visible | None = None) -> None:
        """Tells those who are interested of a message; nothing is kept.  O(handlers reached)."""
        if self._telling:
            raise _busy()
        if visible is not None:
            news: News = []
            self._pass(value, visible, news)
            self._tell(MESSAGE, news)
            return
        if type(value) is Record and type(value.label) is str:
            top = self._tops.get(value.label)
        else:
            top = self._tops.get(class_of(value))
        try:
            self._telling = True
            for group in self._root.each:
                group.tell(group, value)
            if top is not None:
                for node in reached(top, value) if top.moves else [top]:
                    for group in node.each:
                        if COMPILED:
                            group.walk_by(value)
                        else:
                            group.tell(group, value)
        finally:
            self._telling = False

    def patch(
        self,
        added: Sequence[Value],
        removed: Sequence[Value],
        messages: Sequence[Value] = (),
        *,
        visible: Visible | None = None,
    ) -> Net:
        """Applies many changes at once: additions, then messages, then removals, with net effect only.

        What is both added and removed was never there, or never gone.  Raises ``UsageError`` for a removal
        of what is not there, and changes nothing.  O(changes + handlers reached).
        """
        coming, going = all_at(added, visible), all_at(removed, visible)
        came, went = self.patch_at(coming, added, going, removed, messages, visible)
        return Net(list(came), list(went))

    def patch_at(
        self,
        coming: list[At],
        added: Sequence[Value],
        going: list[At],
        removed: Sequence[Value],
        messages: Sequence[Value] = (),
        visible: Visible | None = None,
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """A patch by who knows under what each value stands: ``all_at`` of the additions and of the removals.

        What it answers with are those sequences themselves, where all of them appeared, and vanished.
        """
        if self._telling:
            raise _busy()
        changes = len(coming) + len(going)
        said: News = []
        if messages:
            if not changes and len(messages) == 1:
                self.send(messages[0], visible=visible)
                return added, removed
            for message in messages:  # first, as reading one may fail, and nothing has changed yet
                self._pass(message, visible, said)
        values, copies = self._values, self._copies
        grown: News = []
        gone: News = []
        if changes > 1 and len({*coming, *going}) < changes:
            added, removed = self._patch_balanced(added, removed, visible, grown, gone)
        else:
            for at in going:
                if at not in values:
                    raise _not_here(removed[going.index(at)])
            is_plain = visible is None and not (copies and not copies.keys().isdisjoint(going))
            if is_plain and values.keys().isdisjoint(coming):
                is_watched = self._tops or self._root.each
                if coming:
                    values.update(zip(coming, added, strict=True))
                    if is_watched:
                        self._file_all(coming, added, grown)
                for at in going:
                    del values[at]
                if is_watched and going:
                    self._drop_all(going, removed, gone)
            else:
                added, removed = self._patch_copies(coming, added, going, removed, visible, grown, gone)
        if grown:
            self._tell(ADDED, grown)
        if said:
            self._tell(MESSAGE, said)
        if gone:
            self._tell(REMOVED, gone)
        return added, removed

    def _patch_copies(
        self,
        coming: list[At],
        added: Sequence[Value],
        going: list[At],
        removed: Sequence[Value],
        visible: Visible | None,
        grown: News,
        gone: News,
    ) -> Net:
        """A patch that speaks of no value twice, of which some are there already, or restricted."""
        copies = self._copies
        net = Net([], [])
        for at, value in zip(coming, added, strict=True):
            if at in self._values:
                copies[at] = copies.get(at, 0) + 1
            else:
                self._appear(at, value, visible, grown)
                net.added.append(value)
        for at, value in zip(going, removed, strict=True):
            if at in copies:
                self._recount({at: copies[at]})
            else:
                self._vanish(at, visible, gone)
                net.removed.append(value)
        return net

    def _patch_balanced(
        self,
        added: Sequence[Value],
        removed: Sequence[Value],
        visible: Visible | None,
        grown: News,
        gone: News,
    ) -> Net:
        """A patch that speaks of some value more than once: what is left of it counts."""
        values, after = self._balance(added, removed, visible)
        appeared, vanished = self._recount(after)
        for at in appeared:
            self._appear(at, values[at], visible, grown)
        for at in vanished:
            self._vanish(at, visible, gone)
        return Net([values[at] for at in appeared], [values[at] for at in vanished])

    def replace(self, new: Value, old: Value, *, visible: Visible | None = None) -> tuple[bool, bool]:
        """A patch of one value in place of another: whether the new one appeared, and the old one vanished.

        What most patches of facts are, and therefore written out: there is next to nothing to be balanced.
        """
        if self._telling:
            raise _busy()
        at: At
        gone: At
        if type(new) is Record and type(old) is Record and visible is None:
            at, gone = new._text or new.text, old._text or old.text  # spares two calls
        else:
            at, gone = at_of(new, visible), at_of(old, visible)
        if at == gone:  # was never there, or never gone
            return NOTHING
        if gone not in self._values:
            raise _not_here(old)
        grown: News = []
        lost: News = []
        appears, vanishes = at not in self._values, gone not in self._copies
        if appears:
            self._appear(at, new, visible, grown)
        else:
            self._copies[at] = self._copies.get(at, 0) + 1
        if vanishes:
            self._vanish(gone, visible, lost)
        else:
            self._recount({gone: self._copies[gone]})
        try:
            self._telling = True
            for handler, row in grown:
                (handler.sole or handler.call)(ADDED, row)
            for handler, row in lost:
                (handler.sole or handler.call)(REMOVED, row)
        finally:
            self._telling = False
        return appears, vanishes

    def reset(self, values: Iterable[Value]) -> None:
        """Holds exactly these values, unrestricted and as often as they are given, whatever was here.

        What an exception has interrupted is in no order: every table is filled anew, and no callback is
        called.  Values that were here keep their order.  O(values × nodes).
        """
        found: Values = {}
        counts: dict[At, int] = {}
        for value in values:
            at = at_of(value)
            found[at] = value
            counts[at] = counts.get(at, 0) + 1
        ordered = {at: found[at] for at in self._values if at in found}
        ordered.update(found)
        self._values.clear()
        self._values.update(ordered)
        self._copies = {at: count - 1 for at, count in counts.items() if count > 1}
        self._visible = {}
        self._telling = False
        for node in nodes_below(self._root):  # each before those below it
            for table in node.moves.values():
                for of_class, below in table.items():
                    below.values = _of_class(node.values, below.shape[-1][0], of_class)
            for group in node.groups.values():
                group.reset(node.values)

    def calm(self) -> None:
        """Notes that no callback runs any more: an exception may have struck where one had ended.  O(1)."""
        self._telling = False

    # -- handlers -------------------------------------------------------------------------------------

    def add_handler(self, skeleton: Skeleton, callback: Callback, *, cleanup: Cleanup | None = None) -> None:
        """Installs a callback, and calls it at once for each distinct captures of the values here.

        ``cleanup`` is called with the captures still held when the handler is removed.  Raises
        ``UsageError`` if the callback is installed for this skeleton.  O(matches), and the first time for a
        set of positions O(values of the shape).
        """
        if self._telling:
            raise _busy()
        handler = self._find(skeleton) or self._install(skeleton)
        if callback in handler.callbacks:
            raise UsageError("this callback is installed for this pattern already")
        handler.install(callback, cleanup)
        try:
            self._telling = True
            for row in handler.rows.values():
                callback(ADDED, row)
        finally:
            self._telling = False

    def remove_handler(self, skeleton: Skeleton, callback: Callback) -> None:
        """Removes a callback and all that served it alone; ``UsageError`` if it is not installed.

        The callback is told nothing more; its ``cleanup``, if it has one, of all captures it still held.
        O(path), and O(captures held) for a cleanup.
        """
        if self._telling:
            raise _busy()
        handler = self._find(skeleton)
        if handler is None or callback not in handler.callbacks:
            raise UsageError("this callback is not installed for this pattern")
        cleanup = handler.dismiss(callback)
        if not handler.callbacks:
            self._prune(skeleton)
        if cleanup is not None:
            cleanup(list(handler.rows.values()))

    def matches(self, skeleton: Skeleton) -> list[Captures]:
        """The distinct captures of a skeleton now; O(matches) where it is installed, else O(values alike)."""
        handler = self._find(skeleton)
        if handler is not None:
            return list(handler.rows.values())
        match, paths = match_reader(skeleton), frozenset(skeleton.captures)
        rows: dict[Hashable, Captures] = {}
        for at, value in self._candidates(skeleton).items():
            visible = self._visible.get(at)
            row = match(value) if visible is None or paths <= visible else None
            if row is not None:
                rows.setdefault(keys(row), row)
        return list(rows.values())

    def row_count(self, skeleton: Skeleton, captures: Captures) -> int:
        """How many values have these captures of a skeleton that is installed; O(path), O(captures)."""
        handler = self._find(skeleton)
        if handler is None:
            raise UsageError("no callback is installed for this pattern")
        return handler.count(captures)

    def statistics(self) -> IndexStatistics:
        """Counts, in O(nodes + leaves)."""
        nodes = list(nodes_below(self._root))
        leaves = [leaf for node in nodes for group in node.groups.values() for leaf in group.leaves.values()]
        return IndexStatistics(
            values=len(self._values),
            copies=len(self._values) + sum(self._copies.values()),
            nodes=len(nodes),
            groups=sum(len(node.groups) for node in nodes),
            leaves=len(leaves),
            handlers=sum(len(handler.callbacks) for leaf in leaves for handler in leaf.handlers),
        )

    def draw(self, form: str = "text", *, most: int = 20) -> str:
        """What the trie looks like, as ``text``, ``mermaid`` or ``dot``; see ``drawings``."""
        return draw(self._root, form, most=most)

    def check(self) -> None:
        """Verifies every invariant; ``InternalError`` names the first that is broken.  O(nodes × values)."""
        verify(self._root, self._copies, self._visible)

    # -- the way to a handler -------------------------------------------------------------------------

    def _way(self, skeleton: Skeleton) -> list[Node]:
        """The nodes on the way to a skeleton, the root first, as far as they are there."""
        way = [self._root]
        for move, of_class in skeleton.way:
            below = way[-1].moves.get(move, {}).get(of_class)
            if below is None:
                break
            way.append(below)
        return way

    def _find(self, skeleton: Skeleton) -> Handler | None:
        """The handler of a skeleton, if it is there; O(path)."""
        way = self._way(skeleton)
        group = way[-1].groups.get(skeleton.group) if len(way) > len(skeleton.shape) else None
        leaf = group.leaves.get(skeleton.place) if group is not None else None
        return leaf.handler(skeleton.captures) if leaf is not None else None

    def _candidates(self, skeleton: Skeleton) -> Values:
        """The fewest values among which are all that match a skeleton."""
        way = self._way(skeleton)
        group = way[-1].groups.get(skeleton.group) if len(way) > len(skeleton.shape) else None
        return way[-1].values if group is None else group.held(skeleton.place, way[-1].values)

    def _install(self, skeleton: Skeleton) -> Handler:
        """A new handler, with all that leads to it (HOWITWORKS, "addHandler")."""
        node = self._extend(skeleton)
        code = handler_code(node.shape, skeleton.captures)
        leaf = node.group(skeleton.group, code).open(skeleton.place, node.values)
        handler = Handler(code)
        leaf.serve((*leaf.handlers, handler))
        for at, value in leaf.values.items():
            row = handler.row(value, self._visible.get(at))
            if row is not None:
                handler.add(row)
        return handler

    def _extend(self, skeleton: Skeleton) -> Node:
        """The node of a shape, with those that lead to it (HOWITWORKS, "extend"); O(values) for a new one."""
        way = self._way(skeleton)
        node, done = way[-1], len(way) - 1
        for move, of_class in skeleton.way[done:]:
            path = skeleton.shape[done][0]
            done += 1
            below = Node(skeleton.shape[:done], _of_class(node.values, path, of_class))
            node.moves.setdefault(move, {})[of_class] = below
            node = below
        return node

    def _prune(self, skeleton: Skeleton) -> None:
        """Takes out a handler without callbacks, and whatever serves nobody any more; O(path)."""
        way, of, place = self._way(skeleton), skeleton.group, skeleton.place
        group = way[-1].groups[of]
        leaf = group.leaves[place]
        leaf.serve(tuple([each for each in leaf.handlers if each.code.captures != skeleton.captures]))
        if leaf.handlers:
            return
        group.close(place)
        if group.leaves:
            return
        way[-1].ungroup(of)
        for move, of_class in reversed(skeleton.way):
            if not way.pop().is_idle:
                return
            moves = way[-1].moves
            del moves[move][of_class]
            if not moves[move] and move != TO_THE_ROOT:
                del moves[move]

    # -- what happens to a value ----------------------------------------------------------------------

    def _appear(self, at: At, value: Value, visible: Visible | None, news: News) -> None:
        """A value that was not here is: it is filed everywhere."""
        values = self._values
        values[at] = value
        if visible is not None:
            self._appear_to(at, value, visible, news)
            return
        for group in self._root.each:
            group.file(group, at, value, values, news)
        if type(value) is Record and type(value.label) is str:
            top = self._tops.get(value.label)
        else:
            top = self._tops.get(class_of(value))
        if top is not None:
            _enter(top, at, value, news)

    def _vanish(self, at: At, visible: Visible | None, news: News) -> None:
        """A value that was here is not: the reverse of ``_appear``."""
        value = self._values.pop(at)
        if visible is not None:
            self._vanish_from(at, value, visible, news)
            return
        for group in self._root.each:
            group.drop(group, at, value, news)
        if type(value) is Record and type(value.label) is str:
            top = self._tops.get(value.label)
        else:
            top = self._tops.get(class_of(value))
        if top is not None:
            _leave(top, at, value, news)

    def _file_all(self, coming: list[At], added: Sequence[Value], news: News) -> None:
        """``_appear`` of many, but for the root: those of one label in a row are led down the same way."""
        everything, tops, each = self._values, self._tops, self._root.each
        last: Class | None = None
        top: Node | None = None
        for at, value in zip(coming, added, strict=True):
            for group in each:
                group.file(group, at, value, everything, news)
            of = value.label if type(value) is Record and type(value.label) is str else class_of(value)
            if of is not last:
                last, top = of, tops.get(of)
            if top is not None:
                _enter(top, at, value, news)

    def _drop_all(self, going: list[At], removed: Sequence[Value], news: News) -> None:
        """``_vanish`` of many, but for the root, in the same way."""
        tops, each = self._tops, self._root.each
        last: Class | None = None
        top: Node | None = None
        for at, value in zip(going, removed, strict=True):
            for group in each:
                group.drop(group, at, value, news)
            of = value.label if type(value) is Record and type(value.label) is str else class_of(value)
            if of is not last:
                last, top = of, tops.get(of)
            if top is not None:
                _leave(top, at, value, news)

    def _appear_to(self, at: At, value: Value, visible: Visible, news: News) -> None:
        """``_appear`` of a restricted value."""
        self._visible[at] = visible
        for node in self._reached(value):
            node.values[at] = value
            for group in node.each:
                place = group.place(value)
                if place is MISSING:
                    continue
                leaf = group.leaves.get(place)
                if leaf is None:
                    group.rest(at, place, node.values)
                    continue
                leaf.values[at] = value
                for handler in leaf.handlers:
                    if handler.code.paths <= visible:
                        handler.gain(handler, value, news)

    def _vanish_from(self, at: At, value: Value, visible: Visible, news: News) -> None:
        """``_vanish`` of a restricted value."""
        del self._visible[at]
        for node in self._reached(value):
            node.values.pop(at, None)  # it is gone from the root's already
            for group in node.each:
                place = group.place(value)
                if place is MISSING:
                    continue
                leaf = group.leaves.get(place)
                if leaf is None:
                    group.rouse(at, place)
                    continue
                del leaf.values[at]
                for handler in leaf.handlers:
                    if handler.code.paths <= visible:
                        handler.lose(handler, value, news)

    def _reached(self, value: Value) -> list[Node]:
        """All nodes whose shape a value has, the root first."""
        top = self._tops.get(class_of(value))
        return [self._root] if top is None else [self._root, *reached(top, value)]

    def _pass(self, value: Value, visible: Visible | None, news: News) -> None:
        """A message finds its handlers, and leaves no trace."""
        for node in self._reached(value):
            for group in node.each:
                leaf = group.leaves.get(group.place(value))
                if leaf is not None:
                    for handler in leaf.handlers:
                        row = handler.row(value, visible)
                        if row is not None:
                            news.append((handler, row))

    def _tell(self, event: Event, news: News) -> None:
        try:
            self._telling = True
            for handler, row in news:
                if handler.sole is not None:
                    handler.sole(event, row)
                else:
                    handler.call(event, row)
        finally:
            self._telling = False

    # -- copies ---------------------------------------------------------------------------------------

    def _balance(
        self, added: Sequence[Value], removed: Sequence[Value], visible: Visible | None
    ) -> tuple[Values, dict[At, int]]:
        """What a patch speaks of, and how many copies there are after it; ``UsageError`` if below none."""
        values: Values = {}
        after: dict[At, int] = {}
        for value in added:
            at = at_of(value, visible)
            if at not in after:
                values[at] = value
                after[at] = self.count_at(at)
            after[at] += 1
        for value in removed:
            at = at_of(value, visible)
            if at not in after:
                values[at] = value
                after[at] = self.count_at(at)
            after[at] -= 1
            if after[at] < 0:
                raise UsageError(f"removed what is not there, or not so often: {value!r:.80}")
        return values, after

    def _recount(self, after: dict[At, int]) -> tuple[list[At], list[At]]:
        """Takes over the new counts of copies: which values are to appear, and which to vanish."""
        appeared, vanished = [], []
        for at, copies in after.items():
            if copies > 1:
                self._copies[at] = copies - 1
            elif at in self._copies:
                del self._copies[at]
            if copies and at not in self._values:
                appeared.append(at)
            elif not copies and at in self._values:
                vanished.append(at)
        return appeared, vanished


def _enter(top: Node, at: At, value: Value, news: News) -> None:
    """Files a value under a node of its class, and all below that have its shape."""
    for node in reached(top, value) if top.moves else [top]:
        values = node.values
        values[at] = value
        for group in node.each:
            if COMPILED:
                group.walk_in(at, value, values, news)
            else:
                group.file(group, at, value, values, news)


def _leave(top: Node, at: At, value: Value, news: News) -> None:
    """The reverse of ``_enter``."""
    for node in reached(top, value) if top.moves else [top]:
        del node.values[at]
        for group in node.each:
            if COMPILED:
                group.walk_out(at, value, news)
            else:
                group.drop(group, at, value, news)


def _of_class(values: Values, path: Path, of_class: Class) -> Values:
    """Those of the values that have a class at a path; O(values)."""
    if type(of_class) is not str:
        return {at: value for at, value in values.items() if class_of(project(value, path)) == of_class}
    if not path:  # a label among all values, by far the most frequent and the longest search
        return {at: v for at, v in values.items() if type(v) is Record and v.label == of_class}
    parts = ((at, value, project(value, path)) for at, value in values.items())
    return {at: value for at, value, part in parts if type(part) is Record and part.label == of_class}


def _busy() -> UsageError:
    return UsageError("a callback must not change the index that calls it")


def _not_here(value: Value) -> UsageError:
    return UsageError(f"removed what is not there: {value!r:.80}")
