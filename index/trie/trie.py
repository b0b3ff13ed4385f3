"""The index: a trie of moves that finds, for every value, the observers whose patterns match it.

The algorithm of "Efficient, Imperative Dataspaces for Conversational Concurrency" (HOWITWORKS): a handler's
skeleton is laid out as a path of *moves* from node to node, by the classes of the structure that it needs; at
the end of the path a *group* collects handlers by which positions they compare, a *leaf* by the constants
found there, and a *handler* holds the captures that its callbacks were called with.  To add, remove or send a
value is one walk over the nodes that its structure reaches, with one table look-up for each group.  Where one
label has many forms of patterns, a *net* beside the trie finds the groups that a value may meet.

Always: every node, group, leaf and handler holds exactly the values that conform to its place, and none
exists without a handler; a callback runs only when the first value with its captures comes, the last one
goes, or a message passes, and by then the index has changed completely.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from index.errors import UsageError
from index.patterns.events import (
    ADDED,
    MESSAGE,
    REMOVED,
    Callback,
    Captures,
    Cleanup,
    Entry,
    Event,
    Restricted,
)
from index.patterns.readers import alike_reader, match_reader
from index.patterns.skeletons import Skeleton
from index.trie.contents import (
    Contents,
    IndexStatistics,
    Net,
    all_entries,
    are_unrestricted,
    completed,
    entry_of,
    not_here,
    plain,
)
from index.trie.drawings import NOWHERE, draw, passage, rows
from index.trie.invariants import verify
from index.trie.nodes import At, News, all_at, at_of
from index.trie.tree import IN_NET, IN_TRIE, reached
from index.values.freezing import all_frozen, frozen
from index.values.positions import class_of
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


FEW: Final = 16
"""Values that are compared with a pattern sooner than a function for it is written."""

FORGOTTEN: Final = 1_000
"""Values that an index forgets in one step, where it forgets all."""

NOTHING: Final = (False, False)
"""Returned by ``Index.replace`` where a value replaces itself."""


class Index:
    """All values and all handlers.  Not safe for threads; a callback must not change it, nor raise.

    A value may be ``Restricted`` to the handlers that capture within given paths.  The same
    value under another restriction, or under none, is another one here.
    """

    __slots__ = (
        "_contents", "_copies", "_fillings", "_nets", "_prepared", "_root", "_telling", "_tops", "_tree",
        "_values", "_visible",
    )  # fmt: skip

    def __init__(self, *, in_trie: int = IN_TRIE, in_net: int = IN_NET) -> None:
        """``in_trie`` and ``in_net`` say when forms of one label go into a net (``tree``)."""
        self._contents = contents = Contents(in_trie, in_net)
        self._values = contents.values
        self._copies = contents.copies
        self._visible = contents.visible
        self._tree = contents.tree
        self._fillings = contents.fillings
        self._prepared = contents.prepared
        self._nets = contents.tree.nets
        self._root = contents.tree.root
        self._tops = contents.tree.tops
        self._telling = False

    def __len__(self) -> int:
        """Number of distinct values."""
        return len(self._values)

    def values(self) -> Iterator[Value]:
        """Yields the distinct values, in the order in which they appeared."""
        return iter(self._values.values())

    def items(self) -> Iterator[tuple[At, Value]]:
        """Yields the distinct values with their keys from ``at_of``, in the order in which they appeared."""
        return iter(self._values.items())

    def count(self, value: Entry) -> int:
        """Returns how many copies of a value are here; O(1)."""
        return self.count_at(at_of(value))

    def count_at(self, at: At) -> int:
        """Returns the same for a key from ``at_of``."""
        return 1 + self._copies.get(at, 0) if at in self._values else 0

    def value(self, at: At) -> Value:
        """Returns the value with the key ``at``, from ``at_of``; raises ``KeyError`` if there is none.
        O(1)."""
        return self._values[at]

    def emptying(self) -> Iterator[None]:
        """Forgets some values at each step, and tells no handler; the index is not to be used any more."""
        values, left = self._values, 0
        while values:
            values.popitem()
            left += 1
            if left % FORGOTTEN == 0:
                yield

    # -- values ---------------------------------------------------------------------------------------

    def add(self, value: Entry) -> bool:
        """Adds a copy of a value: True if it has appeared.  O(handlers reached).

        A value that is no record is frozen first; ``UsageError`` if ``value`` is no value.
        """
        if self._telling:
            raise _busy()
        at: At
        if type(value) is Record:
            at = value._text or value.text  # saves a call
        else:
            value = entry_of(value)
            at = at_of(value)
        if at in self._values:
            self._copies[at] = self._copies.get(at, 0) + 1
            return False
        news: News = []
        self._contents.appear(at, value, news)
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

    def remove(self, value: Entry) -> bool:
        """Removes a copy; True if the value has vanished.  Raises ``UsageError`` if it is not here.  As
        ``add``."""
        if self._telling:
            raise _busy()
        at: At
        if type(value) is Record:
            at = value._text or value.text
        else:
            value = entry_of(value)
            at = at_of(value)
        if at not in self._values:
            raise not_here(value)
        if self._copies and at in self._copies:
            self._contents.recount({at: self._copies[at]})
            return False
        news: News = []
        self._contents.vanish(at, news)
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

    def send(self, value: Entry) -> None:
        """Calls the handlers whose patterns match a message; nothing is kept.  O(handlers reached)."""
        if self._telling:
            raise _busy()
        if type(value) is Record and type(value.label) is str:
            top = self._tops.get(value.label)
        elif isinstance(value, Restricted):
            news: News = []
            self._pass(entry_of(value), news)
            self._tell(MESSAGE, news)
            return
        else:
            value = frozen(value)
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
            if self._nets:
                for group in self._tree.beside(value):
                    group.tell(group, value)
        finally:
            self._telling = False

    def patch(
        self,
        added: Sequence[Entry],
        removed: Sequence[Entry],
        messages: Sequence[Entry] = (),
    ) -> Net:
        """Applies many changes at once: additions, then messages, then removals, with net effect only.

        A value that is both added and removed has never been there, or never been away.  Raises
        ``UsageError`` for the removal of an absent value, and changes nothing.  O(changes + handlers
        reached).
        """
        messages = all_entries(messages)
        if are_unrestricted(added) and are_unrestricted(removed):
            added, removed = all_frozen(added), all_frozen(removed)
            came, went = self.patch_at(all_at(added), added, all_at(removed), removed, messages)
            return Net(list(came), list(went))
        added, removed = all_entries(added), all_entries(removed)
        coming, going = all_at(added), all_at(removed)
        if self._telling:
            raise _busy()
        passed: News = []
        for message in messages:
            self._pass(message, passed)
        grown: News = []
        gone: News = []
        net = self._contents.patch_any(coming, added, going, removed, grown, gone)
        self._tell_all(grown, passed, gone)
        return net

    def patch_at(
        self,
        coming: list[At],
        added: Sequence[Value],
        going: list[At],
        removed: Sequence[Value],
        messages: Sequence[Entry] = (),
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """Like ``patch``, for callers that hold frozen values and their keys; none is restricted.

        Returns what appeared and what vanished: ``added`` and ``removed`` where that is all of them.
        """
        if self._telling:
            raise _busy()
        if not messages and len(coming) < 2 and len(going) < 2 and (coming or going):
            return self._patch_few(added, removed)
        passed: News = []
        if messages:
            if len(messages) == 1 and not (coming or going):
                self.send(messages[0])
                return added, removed
            for message in messages:  # first, as reading one may fail, and nothing has changed yet
                self._pass(message, passed)
        grown: News = []
        gone: News = []
        added, removed = self._contents.patch(coming, added, going, removed, grown, gone)
        self._tell_all(grown, passed, gone)
        return added, removed

    def _patch_few(
        self, added: Sequence[Value], removed: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """Applies a patch of one value, or of one in place of another, as most are."""
        if not removed:
            appears, vanishes = self.add(added[0]), False
        elif not added:
            appears, vanishes = False, self.remove(removed[0])
        else:
            appears, vanishes = self.replace(added[0], removed[0])
        return added if appears else [], removed if vanishes else []

    def replace(self, new: Entry, old: Entry) -> tuple[bool, bool]:
        """Applies a patch of one value in place of another; returns whether the new one appeared, and the old
        one vanished.

        Most patches of facts are of this form; it is written out because there is next to nothing to balance.
        """
        if self._telling:
            raise _busy()
        at: At
        gone: At
        if type(new) is Record and type(old) is Record:
            at, gone = new._text or new.text, old._text or old.text  # saves two calls
        else:
            new, old = entry_of(new), entry_of(old)
            at, gone = at_of(new), at_of(old)
        if at == gone:  # no net effect
            return NOTHING
        if gone not in self._values:
            raise not_here(old)
        grown: News = []
        lost: News = []
        appears, vanishes = at not in self._values, gone not in self._copies
        if appears:
            self._contents.appear(at, new, grown)
        else:
            self._copies[at] = self._copies.get(at, 0) + 1
        if vanishes:
            self._contents.vanish(gone, lost)
        else:
            self._contents.recount({gone: self._copies[gone]})
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
        """Holds exactly these values from now on, unrestricted and as often as they are given; calls no
        callback.

        For tables that an exception has left half changed.  Values that were here keep their order. O(values
        × nodes).
        """
        self._contents.reset(map(frozen, values))
        self._telling = False

    def calm(self) -> None:
        """Notes that no callback runs any more: an exception may have struck where one had ended.  O(1)."""
        self._telling = False

    # -- handlers -------------------------------------------------------------------------------------

    def fill(self, skeleton: Skeleton, count: int) -> bool:
        """Prepares a handler in steps: files up to so many values, True if ``add_handler`` has none left to
        file.

        Any other use of the handler before that files all pending values.  Drop an unused handler with
        ``drop_idle``; an exception during the call has dropped it.
        """
        if self._telling:
            raise _busy()
        return self._contents.prepare(skeleton, count)

    def drop_idle(self, skeleton: Skeleton) -> None:
        """Removes a handler that was prepared, and has no callback; O(path + fillings)."""
        self._contents.drop_prepared(skeleton)

    def add_handler(
        self, skeleton: Skeleton, callback: Callback, *, cleanup: Cleanup | None = None, tells: bool = True
    ) -> None:
        """Installs a callback, and calls it at once for each distinct captures of the values here.

        With ``tells`` false it is not called for those.  ``cleanup`` is called with the captures still held
        when the handler is removed.  Raises ``UsageError`` if the callback is installed for this skeleton.
        O(matches), and the first time for a set of positions O(values of the shape), but for what ``fill``
        has done.  Installs all or nothing: an exception before the callback is called leaves the index as it
        was, and one of the callback leaves it installed.
        """
        if self._telling:
            raise _busy()
        handler = self._contents.install(skeleton, callback, cleanup)
        if not tells:
            return
        try:
            self._telling = True
            for row in handler.rows.values():
                callback(ADDED, row)
        finally:
            self._telling = False

    def remove_handler(self, skeleton: Skeleton, callback: Callback) -> None:
        """Removes a callback and the nodes that served it alone; raises ``UsageError`` if it is not
        installed.

        The callback is not called again; its ``cleanup``, if it has one, is called with all captures it still
        held. O(path), and O(captures held) for a cleanup.  Removes all or nothing: where an exception
        interrupts it, the removal is completed first.
        """
        if self._telling:
            raise _busy()
        handler = self._tree.find(skeleton)
        if handler is None or callback not in handler.callbacks:
            raise UsageError("this callback is not installed for this pattern")
        cleanup = handler.cleanup(callback)
        try:
            completed(self._contents.take_out, skeleton, callback, handler)
        finally:
            if cleanup is not None:
                cleanup(list(handler.rows.values()))

    def has_handler(self, skeleton: Skeleton, callback: Callback) -> bool:
        """True if a callback is installed for a skeleton; O(path)."""
        handler = self._tree.find(skeleton)
        return handler is not None and callback in handler.callbacks

    def matches(self, skeleton: Skeleton) -> list[Captures]:
        """Returns the distinct captures of a skeleton now; O(matches) where it is installed, else O(values
        alike)."""
        return self.matches_among(skeleton, None)[0]

    def matches_among(self, skeleton: Skeleton, most: int | None) -> tuple[list[Captures], bool]:
        """Does the same for the first ``most`` values alike; the second is true if there are no more."""
        if self._fillings:
            self._contents.fill_all(skeleton)
        handler, alike = self._tree.lookup(skeleton)
        if handler is not None and (most is None or len(handler.rows) <= most):
            return list(handler.rows.values()), True
        match = match_reader(skeleton) if len(alike) > FEW else alike_reader(skeleton)
        if len(alike) == 1 and most != 0 and not self._visible:
            lone = match(next(iter(alike.values())))
            return [] if lone is None else [lone], True
        rows = dict[Hashable, Captures]()
        paths = frozenset(skeleton.captures)
        for at, value in islice(alike.items(), most):
            visible = self._visible.get(at)
            row = match(value) if visible is None or paths <= visible else None
            if row is not None:
                rows.setdefault(keys(row), row)
        return list(rows.values()), most is None or len(alike) <= most

    def alike(self, skeleton: Skeleton) -> int:
        """Returns how many values are compared with a skeleton that is not installed; O(path)."""
        return len(self._tree.candidates(skeleton))

    def of_shape(self, skeleton: Skeleton) -> int:
        """Returns how many values are filed at the last node on the way to a skeleton; O(path)."""
        return self._tree.of_shape(skeleton)

    def is_filling(self, skeleton: Skeleton) -> bool:
        """True if values are pending where a skeleton has its handler, or would have it; O(path)."""
        return any(self._tree.needs(skeleton, each) for each in self._fillings)

    def rows(self, skeleton: Skeleton) -> Mapping[Hashable, Captures] | None:
        """Returns the distinct captures of an installed skeleton by key: the table itself, which is not whole
        while ``is_filling``; None where none is installed.  O(path)."""
        handler = self._tree.find(skeleton)
        return None if handler is None else handler.rows

    def row_count(self, skeleton: Skeleton, captures: Captures) -> int:
        """Returns how many values have these captures of an installed skeleton; O(path), O(captures)."""
        if self._fillings:
            self._contents.fill_all(skeleton)
        handler = self._tree.find(skeleton)
        if handler is None:
            raise UsageError("no callback is installed for this pattern")
        return handler.count(captures)

    def statistics(self) -> IndexStatistics:
        """Returns counts, in O(nodes + leaves)."""
        return self._contents.statistics()

    def draw(self, form: str = "text", *, most: int = 20) -> str:
        """Returns a drawing of the trie, as ``text``, ``mermaid`` or ``dot``; see ``drawings``."""
        return draw(self._root, self._nets, form, most=most)

    def drawn_rows(self, *values: Value, most: int = 20) -> Iterator[tuple[int, int, str, str, bool]]:
        """Yields the boxes of a drawing; with a value, those on its way are marked (``drawings.rows``)."""
        way = NOWHERE
        if values:
            way = passage(self._tree.reached(values[0]), self._tree.beside(values[0]), values[0])
        return rows(self._root, self._nets, way, most=most)

    def check(self) -> None:
        """Verifies every invariant; raises ``InternalError`` that names the first that is broken.

        Pending values of handlers that are being prepared are filed first.  O(nodes × values).
        """
        while self._fillings:
            self._contents.fill_all(self._fillings[0].skeleton)
        verify(self._root, self._nets, self._copies, self._visible, self._prepared)

    def _pass(self, message: Entry, news: News) -> None:
        """Collects the handlers of a message; nothing is kept."""
        paths = message.paths if isinstance(message, Restricted) else None
        self._contents.collect(plain(message), paths, news)

    def _tell_all(self, grown: News, passed: News, gone: News) -> None:
        """Calls the callbacks of a patch: additions, then messages, then removals."""
        if grown:
            self._tell(ADDED, grown)
        if passed:
            self._tell(MESSAGE, passed)
        if gone:
            self._tell(REMOVED, gone)

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


def _busy() -> UsageError:
    return UsageError("a callback must not change the index that calls it")
