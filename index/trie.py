"""The index: a trie of moves in which every value finds those who are interested in it.

The algorithm of "Efficient, Imperative Dataspaces for Conversational Concurrency" (HOWITWORKS): a handler's
skeleton is laid out as a path of *moves* from node to node, by the labels of the structure that it needs;
at the end of the path a *continuation* groups handlers by which constants they compare, a *leaf* by the
values of those, and a *handler* holds the captures that it has been told of.  To add, remove or send a value
is one traversal of the nodes that its structure reaches, with one table look-up for each group.

Always: every continuation, leaf and handler holds exactly the values that conform to its place; nodes,
groups and leaves that serve no handler are pruned; a callback runs only when the first value with its
captures comes, the last one goes, or a message passes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from index.errors import InternalError, UsageError
from index.patterns import MISSING, Check, Class, Path, Skeleton, Step, class_of, project, size_of, step
from index.values import Record, Value, key, keys


class Event(enum.Enum):
    """What a callback is told about its captures."""

    ADDED = "+"
    REMOVED = "-"
    MESSAGE = "!"


ADDED: Final = Event.ADDED
REMOVED: Final = Event.REMOVED
MESSAGE: Final = Event.MESSAGE

Captures: TypeAlias = tuple[Value, ...]
Callback: TypeAlias = Callable[[Event, Captures], None]
Cleanup: TypeAlias = Callable[[list[Captures]], None]
Move: TypeAlias = tuple[int, Step | None]
"""How many levels up, then one step down; the first move of a path is ``(0, None)``, to the value itself."""

_ROOT_MOVE: Final[Move] = (0, None)


class Net(NamedTuple):
    """What a patch meant: the values that appeared and those that vanished, in the order of the patch."""

    added: list[Value]
    removed: list[Value]


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """Counts of what an index holds."""

    values: int
    copies: int
    nodes: int
    groups: int
    leaves: int
    handlers: int


# -- getting parts of a value -------------------------------------------------------------------------

Getter: TypeAlias = Callable[[Value], Captures | None]


def _getter(paths: Sequence[Path]) -> Getter:
    """A function that projects a value to these paths, or gives None where one of them is missing."""
    flat = [path[0] for path in paths if len(path) == 1 and path[0].__class__ is int]
    if not paths:
        return _nothing
    if len(flat) < len(paths):
        return _general(paths)
    return _one_field(flat[0], paths) if len(flat) == 1 else _fields(flat, paths)


def _nothing(_value: Value) -> Captures | None:
    return ()


def _one_field(at: int, paths: Sequence[Path]) -> Getter:
    general = _general(paths)

    def get(value: Value) -> Captures | None:
        if value.__class__ is not Record:
            return general(value)
        fields = value.fields
        return (fields[at],) if at < len(fields) else None

    return get


def _fields(at: Sequence[int], paths: Sequence[Path]) -> Getter:
    general, several, needed = _general(paths), itemgetter(*at), max(at)
    whole = list(at) == list(range(len(at)))

    def get(value: Value) -> Captures | None:
        if value.__class__ is not Record:
            return general(value)
        fields = value.fields
        if len(fields) <= needed:
            return None
        return fields if whole and len(fields) == needed + 1 else several(fields)

    return get


def _general(paths: Sequence[Path]) -> Getter:
    def get(value: Value) -> Captures | None:
        found = []
        for path in paths:
            part = project(value, path)
            if part is MISSING:
                return None
            found.append(part)
        return tuple(found)  # type: ignore[arg-type]  # none is MISSING

    return get


def _placer(paths: Sequence[Path], checks: Sequence[Check]) -> Callable[[Value], Hashable]:
    """A function that says to which leaf of a group a value belongs, or ``MISSING`` where to none.

    Fields of the record itself, which is what most patterns speak of, are looked at directly.
    """
    needed = max([check.path[0] + 1 for check in checks if _is_field(check)], default=0)  # type: ignore[operator]
    others = [check for check in checks if not _is_field(check)]
    place = _place_of(paths)
    if not needed and not others:
        return place

    def checked(value: Value) -> Hashable:
        if needed and size_of(value) < needed:
            return MISSING
        for check in others:
            if not check.holds(value):
                return MISSING
        return place(value)

    return checked


def _is_field(check: Check) -> bool:
    return check.kind == "has" and len(check.path) == 1 and check.path[0].__class__ is int


def _place_of(paths: Sequence[Path]) -> Callable[[Value], Hashable]:
    get = _getter(paths)
    if not paths:
        return lambda _value: ()
    if len(paths) == 1 and len(paths[0]) == 1 and paths[0][0].__class__ is int:
        at: int = paths[0][0]

        def field(value: Value) -> Hashable:
            parts = value.fields if value.__class__ is Record else value
            return key(parts[at]) if at < len(parts) else MISSING  # type: ignore[index, arg-type]  # by its shape

        return field

    def place(value: Value) -> Hashable:
        row = get(value)
        return MISSING if row is None else keys(row)

    return place


# -- what stands at a node ----------------------------------------------------------------------------


class _Handler:
    """The captures that all handlers of one skeleton have been told of, and their callbacks."""

    __slots__ = ("callbacks", "cleanups", "get", "more", "rows")

    def __init__(self, get: Getter) -> None:
        self.get = get
        self.rows: dict[Hashable, Captures] = {}
        self.more: dict[Hashable, int] = {}
        self.callbacks: list[Callback] = []
        self.cleanups: dict[Callback, Cleanup] = {}

    def take_in(self, value: Value) -> Captures | None:
        """One more value: its captures if they are new."""
        row = self.get(value)
        if row is None:
            return None
        at = keys(row)
        if at in self.rows:
            self.more[at] = self.more.get(at, 0) + 1
            return None
        self.rows[at] = row
        return row

    def let_go(self, value: Value) -> Captures | None:
        """One value less: its captures if no other value has them."""
        row = self.get(value)
        if row is None:
            return None
        at = keys(row)
        if self.more and at in self.more:
            left = self.more[at] - 1
            if left:
                self.more[at] = left
            else:
                del self.more[at]
            return None
        return self.rows.pop(at)

    def tell(self, event: Event, row: Captures) -> None:
        for callback in self.callbacks:
            callback(event, row)


class _Leaf:
    """Values with the same constants, and the handlers that want those."""

    __slots__ = ("handlers", "values")

    def __init__(self) -> None:
        self.values: dict[Hashable, Value] = {}
        self.handlers: dict[tuple[Path, ...], _Handler] = {}


class _Group:
    """Handlers that compare the same positions and make the same checks, by the constants they want."""

    __slots__ = ("leaves", "place", "wanted")

    def __init__(self, paths: Sequence[Path], checks: Sequence[Check]) -> None:
        self.place = _placer(paths, checks)
        self.leaves: dict[Hashable, _Leaf] = {}
        self.wanted = 0
        """Leaves that have handlers; when there are none, the group goes."""


class _Continuation:
    """The values that reach a node, and the groups that wait for them there."""

    __slots__ = ("groups", "values")

    def __init__(self, values: dict[Hashable, Value]) -> None:
        self.values = values
        self.groups: dict[Hashable, _Group] = {}


class _Node:
    """One position in the trie: what is known to stop here, and where it goes on."""

    __slots__ = ("continuation", "moves")

    def __init__(self, values: dict[Hashable, Value]) -> None:
        self.continuation = _Continuation(values)
        self.moves: dict[Move, dict[Class, _Node]] = {}


Trail: TypeAlias = "tuple[Value, Trail | None]"
"""A part of a value, and the trail to the part that it is in."""


class Index:
    """All values and all handlers.  Not safe for threads; callbacks must not change the index."""

    __slots__ = ("_copies", "_root", "_values")

    def __init__(self) -> None:
        self._values: dict[Hashable, Value] = {}
        self._copies: dict[Hashable, int] = {}  # of those that are here more than once: how many more
        self._root = _Node(self._values)

    def __len__(self) -> int:
        """Distinct values."""
        return len(self._values)

    def values(self) -> Iterator[Value]:
        """The distinct values, in no certain order."""
        return iter(self._values.values())

    def count(self, value: Value) -> int:
        """How many copies of a value are here; O(1)."""
        at = key(value)
        return 1 + self._copies.get(at, 0) if at in self._values else 0

    # -- values ---------------------------------------------------------------------------------------

    def add(self, value: Value) -> bool:
        """Adds a copy of a value: whether it has appeared.  O(handlers reached)."""
        at = key(value)
        if at in self._values:
            self._copies[at] = self._copies.get(at, 0) + 1
            return False
        self._values[at] = value
        self._appear(at, value)
        return True

    def remove(self, value: Value) -> bool:
        """Removes a copy: whether the value has vanished.  ``UsageError`` if it is not here.  As ``add``."""
        at = key(value)
        known = self._values.get(at, MISSING)
        if known is MISSING:
            raise UsageError(f"removed what is not there: {value!r:.80}")
        if self._spare(at):
            return False
        del self._values[at]
        self._vanish(at, known)  # type: ignore[arg-type]  # not MISSING
        return True

    def send(self, value: Value) -> None:
        """Tells those who are interested of a message; nothing is kept.  O(handlers reached)."""
        for continuation in self._reached(value):
            for group in continuation.groups.values():
                leaf = group.leaves.get(group.place(value))
                if leaf is not None:
                    for handler in leaf.handlers.values():
                        row = handler.get(value)
                        if row is not None:
                            handler.tell(MESSAGE, row)

    def patch(self, added: Sequence[Value], removed: Sequence[Value], messages: Sequence[Value] = ()) -> Net:
        """Applies many changes at once: additions, then messages, then removals, with net effect only.

        What is both added and removed was never there, or never gone.  Raises ``UsageError`` for a removal
        of what is not there, and changes nothing.  O(changes + handlers reached).
        """
        if len(added) + len(removed) <= 1:
            return self._patch_one(added, removed, messages)
        values: dict[Hashable, Value] = {}
        change: dict[Hashable, int] = {}
        for by, changed in ((1, added), (-1, removed)):
            for value in changed:
                at = key(value)
                values.setdefault(at, value)
                change[at] = change.get(at, 0) + by
        appeared, vanished = self._settle(values, change)
        for at in appeared:
            self._appear(at, values[at])
        for message in messages:
            self.send(message)
        for at in vanished:
            self._vanish(at, values[at])
        return Net([values[at] for at in appeared], [values[at] for at in vanished])

    def _patch_one(self, added: Sequence[Value], removed: Sequence[Value], messages: Sequence[Value]) -> Net:
        net = Net([value for value in added if self.add(value)], [])
        if removed and not self.count(removed[0]):
            raise UsageError(f"removed what is not there: {removed[0]!r:.80}")
        for message in messages:
            self.send(message)
        net.removed.extend([value for value in removed if self.remove(value)])
        return net

    def _settle(
        self, values: dict[Hashable, Value], change: dict[Hashable, int]
    ) -> tuple[list[Hashable], list[Hashable]]:
        """Counts the copies anew: which values appear, and which vanish.  Checks before it changes."""
        after: list[tuple[Hashable, int, int]] = []
        for at, by in change.items():
            copies = 1 + self._copies.get(at, 0) if at in self._values else 0
            if copies + by < 0:
                raise UsageError(f"removed {-by} times but there {copies} times: {values[at]!r:.80}")
            after.append((at, copies, copies + by))
        appeared, vanished = [], []
        for at, before, copies in after:
            if copies > 1:
                self._copies[at] = copies - 1
            else:
                self._copies.pop(at, None)
            if copies and not before:
                self._values[at] = values[at]
                appeared.append(at)
            elif before and not copies:
                del self._values[at]
                vanished.append(at)
        return appeared, vanished

    def _spare(self, at: Hashable) -> bool:
        """Takes one of several copies away; False if there is only one."""
        more = self._copies.get(at, 0)
        if more > 1:
            self._copies[at] = more - 1
        elif more:
            del self._copies[at]
        return bool(more)

    # -- handlers -------------------------------------------------------------------------------------

    def add_handler(self, skeleton: Skeleton, callback: Callback, *, cleanup: Cleanup | None = None) -> None:
        """Installs a callback, and calls it at once for each distinct captures of the values here.

        ``cleanup`` is called with the captures still held when the handler is removed.  Raises
        ``UsageError`` if the callback is installed for this skeleton.  O(matches), and the first time for a
        set of positions O(values of the shape).
        """
        handler = self._handler(skeleton)
        if callback in handler.callbacks:
            raise UsageError("this callback is installed for this pattern already")
        handler.callbacks.append(callback)
        if cleanup is not None:
            handler.cleanups[callback] = cleanup
        for row in list(handler.rows.values()):
            callback(ADDED, row)

    def remove_handler(self, skeleton: Skeleton, callback: Callback) -> None:
        """Removes a callback and prunes what served it alone; ``UsageError`` if it is not installed."""
        found = self._find(skeleton)
        handler = found[-1] if found is not None else None
        if found is None or handler is None or callback not in handler.callbacks:
            raise UsageError("this callback is not installed for this pattern")
        handler.callbacks.remove(callback)
        cleanup = handler.cleanups.pop(callback, None)
        rows = list(handler.rows.values()) if cleanup is not None else []
        if not handler.callbacks:
            self._prune(skeleton, *found)
        if cleanup is not None:
            cleanup(rows)

    def matches(self, skeleton: Skeleton) -> list[Captures]:
        """The distinct captures of a skeleton now; O(matches) where it is installed, else O(values)."""
        found = self._find(skeleton)
        if found is not None and found[-1] is not None:
            return list(found[-1].rows.values())
        probe: list[Captures] = []

        def collect(_event: Event, row: Captures) -> None:
            probe.append(row)

        self.add_handler(skeleton, collect)
        self.remove_handler(skeleton, collect)
        return probe

    def _handler(self, skeleton: Skeleton) -> _Handler:
        """The handler of a skeleton, made with all that leads to it (HOWITWORKS, "extend", "addHandler")."""
        continuation = self._extend(skeleton).continuation
        paths, wanted = _constants(skeleton)
        at = (paths, skeleton.checks)
        group = continuation.groups.get(at)
        if group is None:
            group = continuation.groups[at] = _Group(paths, skeleton.checks)
            for value_at, value in continuation.values.items():
                _file(group, value_at, value)
        leaf = group.leaves.get(wanted)
        if leaf is None:
            leaf = group.leaves[wanted] = _Leaf()
        if not leaf.handlers:
            group.wanted += 1
        handler = leaf.handlers.get(skeleton.captures)
        if handler is None:
            handler = leaf.handlers[skeleton.captures] = _Handler(_getter(skeleton.captures))
            for value in leaf.values.values():
                handler.take_in(value)
        return handler

    def _extend(self, skeleton: Skeleton) -> _Node:
        node = self._root
        for move, path, of_class in _visit(skeleton):
            table = node.moves.setdefault(move, {})
            below = table.get(of_class)
            if below is None:
                values = {
                    at: value
                    for at, value in node.continuation.values.items()
                    if class_of(project(value, path)) == of_class  # type: ignore[arg-type]  # MISSING has none
                }
                below = table[of_class] = _Node(values)
            node = below
        return node

    def _find(
        self, skeleton: Skeleton
    ) -> tuple[list[tuple[_Node, Move, Class]], _Node, _Group, _Leaf, _Handler | None] | None:
        """The way to a skeleton's handler, without making anything."""
        node, way = self._root, []
        for move, _path, of_class in _visit(skeleton):
            below = node.moves.get(move, {}).get(of_class)
            if below is None:
                return None
            way.append((node, move, of_class))
            node = below
        paths, wanted = _constants(skeleton)
        group = node.continuation.groups.get((paths, skeleton.checks))
        leaf = group.leaves.get(wanted) if group is not None else None
        if group is None or leaf is None:
            return None
        return way, node, group, leaf, leaf.handlers.get(skeleton.captures)

    def _prune(
        self,
        skeleton: Skeleton,
        way: list[tuple[_Node, Move, Class]],
        node: _Node,
        group: _Group,
        leaf: _Leaf,
        _handler: _Handler | None,
    ) -> None:
        """Takes out a handler without callbacks, and whatever serves nobody any more; O(path)."""
        paths, wanted = _constants(skeleton)
        del leaf.handlers[skeleton.captures]
        if leaf.handlers:
            return
        group.wanted -= 1
        if not leaf.values:
            del group.leaves[wanted]
        if group.wanted:
            return
        del node.continuation.groups[(paths, skeleton.checks)]
        for above, move, of_class in reversed(way):
            if node.continuation.groups or node.moves:
                return
            del above.moves[move][of_class]
            if not above.moves[move]:
                del above.moves[move]
            node = above

    # -- the traversal --------------------------------------------------------------------------------

    def _reached(self, value: Value) -> list[_Continuation]:
        """The continuations whose shape a value has (HOWITWORKS, "modify"); O(moves tried)."""
        root = self._root
        reached = [root.continuation]
        table = root.moves.get(_ROOT_MOVE)
        if table is None:
            return reached
        of_class = class_of(value)
        node = None if of_class is None else table.get(of_class)
        if node is None:
            return reached
        reached.append(node.continuation)
        if node.moves:
            self._go_on(node, value, reached)
        return reached

    def _go_on(self, start: _Node, value: Value, reached: list[_Continuation]) -> None:
        waiting: list[tuple[_Node, Trail]] = [(start, (value, None))]
        while waiting:
            node, trail = waiting.pop()
            for (up, by), table in node.moves.items():
                above = trail
                for _ in range(up):
                    above = above[1]  # type: ignore[assignment]  # a move never leads above the root
                part = step(above[0], by)  # type: ignore[arg-type]  # only the first move has no step
                if part is MISSING:
                    continue
                of_class = class_of(part)  # type: ignore[arg-type]  # not MISSING
                below = None if of_class is None else table.get(of_class)
                if below is not None:
                    reached.append(below.continuation)
                    if below.moves:
                        waiting.append((below, (part, above)))  # type: ignore[arg-type]  # not MISSING

    def _appear(self, at: Hashable, value: Value) -> None:
        """A value that was not here is: it is filed everywhere, and news are told."""
        root_values = self._values
        for continuation in self._reached(value):
            if continuation.values is not root_values:
                continuation.values[at] = value
            for group in continuation.groups.values():
                leaf = _file(group, at, value)
                if leaf is not None:
                    for handler in leaf.handlers.values():
                        row = handler.take_in(value)
                        if row is not None:
                            handler.tell(ADDED, row)

    def _vanish(self, at: Hashable, value: Value) -> None:
        """A value that was here is not: the reverse of ``_appear``."""
        root_values = self._values
        for continuation in self._reached(value):
            if continuation.values is not root_values:
                del continuation.values[at]
            for group in continuation.groups.values():
                place = group.place(value)
                if place is MISSING:
                    continue
                leaf = group.leaves[place]
                del leaf.values[at]
                for handler in leaf.handlers.values():
                    row = handler.let_go(value)
                    if row is not None:
                        handler.tell(REMOVED, row)
                if not leaf.values and not leaf.handlers:
                    del group.leaves[place]

    # -- looking --------------------------------------------------------------------------------------

    def _nodes(self) -> Iterator[tuple[_Node, tuple[tuple[Path, Class], ...]]]:
        """Every node and the shape that leads to it."""
        waiting: list[tuple[_Node, tuple[tuple[Path, Class], ...]]] = [(self._root, ())]
        while waiting:
            node, shape = waiting.pop()
            yield node, shape
            here = shape[-1][0] if shape else ()
            for (up, by), table in node.moves.items():
                path = () if by is None else (*here[: len(here) - up], by)
                for of_class, below in table.items():
                    waiting.append((below, (*shape, (path, of_class))))

    def statistics(self) -> IndexStatistics:
        """Counts, in O(nodes + leaves)."""
        nodes = [node for node, _ in self._nodes()]
        groups = [group for node in nodes for group in node.continuation.groups.values()]
        leaves = [leaf for group in groups for leaf in group.leaves.values()]
        return IndexStatistics(
            values=len(self._values),
            copies=len(self._values) + sum(self._copies.values()),
            nodes=len(nodes),
            groups=len(groups),
            leaves=len(leaves),
            handlers=sum(len(handler.callbacks) for leaf in leaves for handler in leaf.handlers.values()),
        )

    def check(self) -> None:
        """Verifies every invariant; ``InternalError`` names the first that is broken.  O(nodes × values)."""
        for node, shape in self._nodes():
            conforming = {
                at: value
                for at, value in self._values.items()
                if all(class_of(project(value, path)) == of for path, of in shape)  # type: ignore[arg-type]
            }
            _hold(node.continuation.values.keys() == conforming.keys(), f"values at {shape}")
            _hold(
                node is self._root or bool(node.continuation.groups or node.moves), f"{shape} serves nobody"
            )
            _hold(all(node.moves.values()), f"an empty move at {shape}")
            for group in node.continuation.groups.values():
                _check_group(group, conforming)
        _hold(all(count > 0 for count in self._copies.values()), "copies are counted from one")
        _hold(self._copies.keys() <= self._values.keys(), "what has copies is here")


def _file(group: _Group, at: Hashable, value: Value) -> _Leaf | None:
    """Puts a value into its leaf, if it belongs into the group at all."""
    place = group.place(value)
    if place is MISSING:
        return None
    leaf = group.leaves.get(place)
    if leaf is None:
        leaf = group.leaves[place] = _Leaf()
    leaf.values[at] = value
    return leaf


def _visit(skeleton: Skeleton) -> Iterator[tuple[Move, Path, Class]]:
    """The shape as moves (HOWITWORKS, "shapeVisit"): every move but the first is one step down."""
    depth = 0
    for path, of_class in skeleton.shape:
        yield (_ROOT_MOVE if not path else (depth - len(path) + 1, path[-1])), path, of_class
        depth = len(path)


def _constants(skeleton: Skeleton) -> tuple[tuple[Path, ...], Hashable]:
    """Where the constants are, and the place of the leaf of those values."""
    paths = tuple([path for path, _ in skeleton.constants])
    return paths, keys(tuple([value for _, value in skeleton.constants]))


def _check_group(group: _Group, conforming: dict[Hashable, Value]) -> None:
    places = {at: group.place(value) for at, value in conforming.items()}
    filed = {at: place for place, leaf in group.leaves.items() for at in leaf.values}
    _hold(filed == {at: place for at, place in places.items() if place is not MISSING}, "leaves")
    _hold(group.wanted == sum(bool(leaf.handlers) for leaf in group.leaves.values()), "wanted leaves")
    _hold(group.wanted > 0, "a group that serves nobody")
    for leaf in group.leaves.values():
        _hold(bool(leaf.values or leaf.handlers), "an empty leaf")
        for handler in leaf.handlers.values():
            _hold(bool(handler.callbacks), "a handler without callbacks")
            _check_bag(handler, leaf.values.values())


def _check_bag(handler: _Handler, values: Iterable[Value]) -> None:
    counts: dict[Hashable, int] = {}
    for value in values:
        row = handler.get(value)
        if row is not None:
            counts[keys(row)] = counts.get(keys(row), 0) + 1
    _hold(handler.rows.keys() == counts.keys(), "captures that were told")
    _hold(
        {at: more + 1 for at, more in handler.more.items()} == {a: c for a, c in counts.items() if c > 1},
        "bag",
    )


def _hold(true: bool, what: str) -> None:
    if not true:
        raise InternalError(f"the index is inconsistent: {what}")
