"""Nodes, groups, leaves and handlers: the parts of the trie.

A *node* is reached by the values of one shape.  Its *groups* are the handlers there that compare the same
positions and make the same checks; one reading of a value gives its place in a group.  A *leaf* is one place,
with the handlers for its constants, and a *handler* has the captures at certain paths with the callbacks for
them.  (The source's Continuation is the node's values and groups; its table of constants is a group.)

They are apart from the index because each of them only updates its own tables; the index walks.

Always: a node, group or leaf holds exactly the values that conform to its place; a leaf has a handler and a
handler has a callback; values at a place without a leaf are *idle*, which costs one table entry.  A removal
that an exception has interrupted can be called again, and is then completed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from index.patterns.events import MESSAGE, Callback, Captures, Cleanup, Entry, Event, Restricted, Visible
from index.patterns.readers import GroupCode, HandlerCode, group_code
from index.patterns.skeletons import Check
from index.values.positions import MISSING, TO_THE_ROOT, Class, Move, Path, Shape
from index.values.values import COMPILED, Record, Value, key, keys

At: TypeAlias = Hashable
"""The key of a value in all tables of one index.

A record's key is its text, which is the fastest key in Python; other values have their own key, text in a
box, so that no two are the same.  The key of a restricted value includes the restriction.
"""

Values: TypeAlias = dict[At, Value]


def at_of(value: Entry) -> At:
    """Returns the key of a value in all tables; O(1) for a record whose text is cached, else O(size)."""
    if type(value) is Record:
        return value._text or value.text  # saves a call
    if isinstance(value, Restricted):
        return at_of(value.value), value.paths
    return (value, None) if type(value) is str else key(value)


def all_at(values: Sequence[Entry]) -> list[At]:
    """Returns the key of each of several values, without a call for most."""
    if not values:
        return []
    return [(each._text or each.text) if type(each) is Record else at_of(each) for each in values]


News: TypeAlias = "list[tuple[Handler, Captures]]"
"""The handlers whose callbacks are to be called, and with which captures, once the index has changed."""


class Handler:
    """The distinct captures that the callbacks of one skeleton have been called with: a counted set of rows.

    The operations for its paths are generated in its ``code`` (``readers.HandlerCode``).
    """

    __slots__ = ("callbacks", "code", "gain", "lose", "more", "rows", "sole")

    def __init__(self, code: HandlerCode) -> None:
        self.code = code
        self.gain = code.gain or Handler.walk_in
        self.lose = code.lose or Handler.walk_out
        self.rows: dict[Hashable, Captures] = {}
        self.more: dict[Hashable, int] | None = None
        """How many further values have the same row; None while no row has more than one value, the usual
        case."""
        self.callbacks: tuple[Callback, ...] | dict[Callback, Cleanup | None] = ()
        """A tuple of one without a cleanup, the usual case, takes a quarter of a table."""
        self.sole: Callback | None = None
        """The callback, if there is exactly one, the usual case: the shortest way to it."""

    def install(self, callback: Callback, cleanup: Cleanup | None) -> None:
        """Adds a callback; O(1)."""
        if not self.callbacks:
            self.callbacks = (callback,) if cleanup is None else {callback: cleanup}
            self.sole = callback
            return
        several = dict.fromkeys(self.callbacks) if isinstance(self.callbacks, tuple) else self.callbacks
        self.sole = None
        several[callback] = cleanup
        self.callbacks = several

    def cleanup(self, callback: Callback) -> Cleanup | None:
        """Returns the cleanup of a callback, if it has one; O(1)."""
        return None if isinstance(self.callbacks, tuple) else self.callbacks[callback]

    def dismiss(self, callback: Callback) -> None:
        """Removes a callback, if it is installed; O(1)."""
        if not isinstance(self.callbacks, tuple):
            self.callbacks.pop(callback, None)
        elif callback in self.callbacks:
            self.callbacks = ()
        self.sole = next(iter(self.callbacks)) if len(self.callbacks) == 1 else None

    def row(self, value: Value, visible: Visible | None) -> Captures | None:
        """Returns the captures of a value, or None if one is missing or the value is not visible here."""
        return self.code.read(value) if visible is None or self.code.paths <= visible else None

    def tell(self, value: Value) -> None:
        """Calls the callbacks with the captures of a message, if it has them."""
        row = self.code.rows.read(value) if COMPILED else self.code.read(value)
        if row is not None:
            self.call(MESSAGE, row)

    def call(self, event: Event, row: Captures) -> None:
        """Calls the callbacks with an event and its captures."""
        if self.sole is not None:
            self.sole(event, row)
            return
        for callback in self.callbacks:
            callback(event, row)

    def walk_in(self, value: Value, news: News) -> None:
        """Counts one more value with its captures, as ``gain`` does."""
        row = self.code.rows.read(value)
        if row is not None and self.add(row):
            news.append((self, row))

    def walk_out(self, value: Value, news: News) -> None:
        """Counts one value less with its captures, as ``lose`` does."""
        row = self.code.rows.read(value)
        if row is not None and self.remove(row):
            news.append((self, row))

    def count(self, row: Captures) -> int:
        """Returns how many values have this row."""
        at = keys(row)
        return 1 + (self.more.get(at, 0) if self.more else 0) if at in self.rows else 0

    def add(self, row: Captures) -> bool:
        """Counts one more value with this row; True if it is the first."""
        at = keys(row)
        if at in self.rows:
            self.again(at)
            return False
        self.rows[at] = row
        return True

    def remove(self, row: Captures) -> bool:
        """Counts one value less with this row; True if it was the last."""
        at = keys(row)
        if self.more and self.less(at):
            return False
        del self.rows[at]
        return True

    def again(self, at: Hashable) -> None:
        """Counts a further value with a row that is here."""
        if self.more is None:
            self.more = {}
        self.more[at] = self.more.get(at, 0) + 1

    def less(self, at: Hashable) -> bool:
        """Decrements the count of a shared row.  Returns False, unchanged, if only one value has it."""
        more = self.more.get(at) if self.more else None
        if not self.more or more is None:
            return False
        if more > 1:
            self.more[at] = more - 1
        else:
            del self.more[at]
        return True


class Leaf:
    """The values with certain constants, and the handlers for those, each with other captures.

    ``sole`` is the handler, if there is exactly one, the usual case.
    """

    __slots__ = ("handlers", "sole", "values")

    def __init__(self, values: Values) -> None:
        self.values = values
        self.handlers: tuple[Handler, ...] = ()
        self.sole: Handler | None = None

    def handler(self, captures: tuple[Path, ...]) -> Handler | None:
        """Returns the handler that captures at these paths; O(handlers here)."""
        for handler in self.handlers:
            if handler.code.captures == captures:
                return handler
        return None

    def serve(self, handlers: tuple[Handler, ...]) -> None:
        """Replaces the handlers."""
        self.handlers = handlers
        self.sole = handlers[0] if len(handlers) == 1 else None

    def gain(self, value: Value, news: News) -> None:
        """Counts one more value for each handler."""
        if COMPILED and self.sole is not None:
            self.sole.walk_in(value, news)
            return
        for handler in self.handlers:
            handler.gain(handler, value, news)

    def lose(self, value: Value, news: News) -> None:
        """Counts one value less for each handler."""
        if COMPILED and self.sole is not None:
            self.sole.walk_out(value, news)
            return
        for handler in self.handlers:
            handler.lose(handler, value, news)

    def tell(self, value: Value) -> None:
        """Calls the callbacks of each handler with a message."""
        if self.sole is not None:
            self.sole.tell(value)
            return
        for handler in self.handlers:
            handler.tell(value)


class Group:
    """The leaves for one set of compared positions and checks, and the values that are idle there.

    If idle values were not kept by their place, a new handler with one more constant would have to look at
    every value of the node.  If constants are names, each name belongs to one value, so a value that is
    alone at its place is kept without a table of its own.  ``place``, ``file``, ``drop`` and ``tell`` are
    generated for its positions (``readers.GroupCode``).  A group that is not in the trie keeps no idle values
    (``net``).
    """

    __slots__ = ("drop", "file", "idle", "in_trie", "leaves", "place", "places", "tell", "usual")

    def __init__(self, code: GroupCode, *, in_trie: bool = True) -> None:
        self.in_trie = in_trie
        self.usual = code.usual
        self.places = code.places
        self.place = code.place
        self.file = code.file or Group.walk_in
        self.drop = code.drop or Group.walk_out
        self.tell = code.tell or Group.walk_by
        self.leaves: dict[Hashable, Leaf] = {}
        self.idle: dict[Hashable, At | Values] = {}

    def walk_in(self, at: At, value: Value, values: Values, news: News) -> None:
        """Adds one of the node's values, as ``file`` does."""
        place = self.places.place(value)
        leaf = self.leaves.get(place)
        if leaf is not None:
            leaf.values[at] = value
            leaf.gain(value, news)
        elif place is not MISSING and self.in_trie:
            self.rest(at, place, values)

    def walk_out(self, at: At, value: Value, news: News) -> None:
        """Removes a value, as ``drop`` does."""
        place = self.places.place(value)
        leaf = self.leaves.get(place)
        if leaf is not None:
            del leaf.values[at]
            leaf.lose(value, news)
        elif place is not MISSING and self.in_trie:
            self.rouse(at, place)

    def walk_by(self, value: Value) -> None:
        """Calls the handlers of a message, as ``tell`` does."""
        leaf = self.leaves.get(self.places.place(value))
        if leaf is not None:
            leaf.tell(value)

    def place_all(self, values: Values) -> None:
        """Keeps all values of the node at their places, where there is no leaf yet; O(values)."""
        place_of, idle = self.place, self.idle
        for at, value in values.items():
            place = place_of(value)
            if place not in idle and place is not MISSING:
                idle[place] = at  # the usual case, without a call
            elif place is not MISSING:
                self.rest(at, place, values)

    def reset(self, values: Values) -> None:
        """Holds exactly these values of the node from now on; O(values)."""
        self.idle.clear()
        for leaf in self.leaves.values():
            leaf.values = {}
            for handler in leaf.handlers:
                handler.rows.clear()
                handler.more = None
        for at, value in values.items():
            place = self.hold(at, value)
            if place is not MISSING:
                self.rest(at, place, values)

    def hold(self, at: At, value: Value) -> Hashable:
        """Adds a value to the leaf at its place and calls no callback; returns the place if there is none."""
        place = self.place(value)
        leaf = self.leaves.get(place)
        if leaf is None:
            return place
        leaf.values[at] = value
        for handler in leaf.handlers:
            row = handler.row(value, None)
            if row is not None:
                handler.add(row)
        return MISSING

    def rest(self, at: At, place: Hashable, values: Values) -> None:
        """Adds one of the node's values to those without a leaf; O(1)."""
        resting = self.idle.get(place, MISSING)
        if resting is MISSING:
            self.idle[place] = at
        elif isinstance(resting, dict):
            resting[at] = values[at]
        else:
            self.idle[place] = {resting: values[resting], at: values[at]}

    def rouse(self, at: At, place: Hashable) -> None:
        """Removes one idle value; O(1)."""
        resting = self.idle[place]
        if isinstance(resting, dict):
            del resting[at]
            if resting:
                return
        del self.idle[place]

    def held(self, place: Hashable, values: Values) -> Values:
        """Returns the node's values at a place, idle or not; not to be changed."""
        leaf = self.leaves.get(place)
        if leaf is not None:
            return leaf.values
        resting = self.idle.get(place, _NOTHING)
        return resting if isinstance(resting, dict) else {resting: values[resting]}

    def open(self, place: Hashable, values: Values) -> Leaf:
        """Returns a new leaf at a place, with the values that were idle there; O(1)."""
        leaf = self.leaves.get(place)
        if leaf is None:
            leaf = self.leaves[place] = Leaf(self.held(place, values) or {})
            self.idle.pop(place, None)
        return leaf

    def close(self, place: Hashable) -> None:
        """Removes a leaf without handlers; its values are idle from now on; O(1)."""
        values = self.leaves[place].values
        if values:
            self.idle[place] = values
        del self.leaves[place]


_NOTHING: Values = {}


class Node:
    """The values of one shape, the groups for them, and the moves on from there.

    ``each`` holds the groups once more, in the form that a walk needs.
    """

    __slots__ = ("each", "groups", "moves", "shape", "values")

    def __init__(self, shape: Shape, values: Values) -> None:
        self.shape = shape
        self.values = values
        self.groups: dict[GroupKey, Group] = {}
        self.each: tuple[Group, ...] = ()
        self.moves: dict[Move, dict[Class, Node]] = {}

    @property
    def is_idle(self) -> bool:
        """True if it has neither handlers nor nodes below."""
        return not self.groups and not self.moves

    def group(self, of: GroupKey, usual: HandlerCode) -> Group:
        """Returns the group of these paths and checks, created if needed: O(values of the node) then."""
        return self.groups.get(of) or self.new_group(of, usual, self.values)

    def new_group(self, of: GroupKey, usual: HandlerCode, values: Values) -> Group:
        """Returns a new group of these paths and checks, in which these values are filed.

        The node has no group if an exception interrupts that.
        """
        group = Group(group_code(self.shape, *of, usual))
        group.place_all(values)
        self.groups[of] = group
        self.each = tuple(self.groups.values())
        return group

    def ungroup(self, of: GroupKey) -> None:
        """Removes a group, if it is there; O(groups)."""
        self.groups.pop(of, None)
        self.each = tuple(self.groups.values())

    def attach(self, move: Move, of_class: Class, below: Node) -> None:
        """Adds a node below, in one step; O(1)."""
        table = self.moves.get(move)
        if table is None:
            self.moves[move] = {of_class: below}
        else:
            table[of_class] = below

    def detach(self, move: Move, of_class: Class) -> None:
        """Removes a node below, in one step; O(1)."""
        table = self.moves[move]
        if len(table) == 1 and move != TO_THE_ROOT:  # that one stays, even if empty
            del self.moves[move]
        else:
            del table[of_class]


GroupKey: TypeAlias = tuple[tuple[Path, ...], tuple[Check, ...]]
