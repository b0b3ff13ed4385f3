"""Contents: the values that an index holds, how many copies of each, and where each is filed.

Every change of an index comes down to values that appear and values that vanish.  This file does both: the
tables of values and copies are changed, and the value is added to, or removed from, each group that it
reaches.  The handlers concerned are only collected in ``News``; the index calls the callbacks when all is
done.

Always: a value is filed where its structure determines, once, however many copies there are; a patch that is
refused has changed nothing; a handler is installed and removed whole or not at all, whatever raises; a
handler counts a restricted value if and only if the handler captures within the value's paths.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeGuard

from index.errors import UsageError
from index.patterns.events import Callback, Cleanup, Entry, Restricted, Visible
from index.patterns.skeletons import Skeleton
from index.trie.invariants import nodes_below
from index.trie.net import DiscriminationNet
from index.trie.nodes import At, Group, Handler, News, Node, Values, at_of
from index.trie.tree import IN_NET, IN_TRIE, Filling, Tree, enter, leave, of_class_at
from index.values.freezing import frozen
from index.values.positions import MISSING, Class, class_of
from index.values.values import Record, Value


class Net(NamedTuple):
    """The net effect of a patch: the values that appeared and the values that vanished, in the order of the
    patch."""

    added: list[Value]
    removed: list[Value]


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """Counts of what an index holds: values distinct and in all, the parts of the trie and of the nets beside
    it, and callbacks."""

    values: int
    copies: int
    nodes: int
    groups: int
    leaves: int
    handlers: int


class Contents:
    """The values of one index, in the tree that files them.

    ``copies`` counts, for each value with more than one copy, the further ones; ``visible`` has the
    restrictions of the values that have one.
    """

    __slots__ = ("_nets", "_root", "_tops", "copies", "fillings", "prepared", "tree", "values", "visible")

    def __init__(self, in_trie: int = IN_TRIE, in_net: int = IN_NET) -> None:
        self.values: Final[Values] = {}
        self.copies: Final[dict[At, int]] = {}
        self.visible: Final[dict[At, Visible]] = {}
        self.fillings: Final[list[Filling]] = []
        self.prepared: Final[list[Handler]] = []
        """The handlers that are being filled, and prepared handlers without a callback yet."""
        self.tree: Final = Tree(self.values, in_trie, in_net)
        self._nets: Final[dict[Class, DiscriminationNet]] = self.tree.nets
        self._root = self.tree.root
        self._tops = self.tree.tops

    def count(self, at: At) -> int:
        """Returns how many copies of a value are here; O(1)."""
        return 1 + self.copies.get(at, 0) if at in self.values else 0

    # -- patches --------------------------------------------------------------------------------------

    def patch(
        self,
        coming: list[At],
        added: Sequence[Value],
        going: list[At],
        removed: Sequence[Value],
        grown: News,
        gone: News,
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """Applies a patch of unrestricted values; returns what appeared and what vanished."""
        values, copies = self.values, self.copies
        changes = len(coming) + len(going)
        if changes > 1 and len({*coming, *going}) < changes:
            return self.patch_any(coming, added, going, removed, grown, gone)
        for at in going:
            if at not in values:
                raise not_here(removed[going.index(at)])
        is_plain = not (copies and not copies.keys().isdisjoint(going))
        if not is_plain or not values.keys().isdisjoint(coming):
            return self._patch_copies(coming, added, going, removed, grown, gone)
        is_watched = self._tops or self._root.each or self._nets
        if coming:
            values.update(zip(coming, added, strict=True))
            if is_watched:
                self._file_all(coming, added, grown)
        if self.fillings and going:
            self._file_pending(going)
        for at in going:
            del values[at]
        if is_watched and going:
            self._drop_all(going, removed, gone)
        return added, removed

    def _patch_copies(
        self,
        coming: list[At],
        added: Sequence[Value],
        going: list[At],
        removed: Sequence[Value],
        grown: News,
        gone: News,
    ) -> Net:
        """Applies a patch that names no value twice but has values with copies; returns its net effect."""
        copies = self.copies
        net = Net([], [])
        for at, value in zip(coming, added, strict=True):
            if at in self.values:
                copies[at] = copies.get(at, 0) + 1
            else:
                self.appear(at, value, grown)
                net.added.append(value)
        for at, value in zip(going, removed, strict=True):
            if at in copies:
                self.recount({at: copies[at]})
            else:
                self.vanish(at, gone)
                net.removed.append(value)
        return net

    def patch_any(
        self,
        coming: list[At],
        added: Sequence[Entry],
        going: list[At],
        removed: Sequence[Entry],
        grown: News,
        gone: News,
    ) -> Net:
        """Applies any patch by its net counts; returns its net effect."""
        entries = dict(zip([*coming, *going], [*added, *removed], strict=True))
        appeared, vanished = self.recount(self._balance(coming, going, entries))
        for at in appeared:
            self.appear(at, entries[at], grown)
        for at in vanished:
            self.vanish(at, gone)
        return Net([plain(entries[at]) for at in appeared], [plain(entries[at]) for at in vanished])

    def _balance(self, coming: list[At], going: list[At], entries: dict[At, Entry]) -> dict[At, int]:
        """Returns the number of copies of each value after a patch; raises ``UsageError`` if one is
        negative."""
        after = {at: self.count(at) for at in entries}
        for at in coming:
            after[at] += 1
        for at in going:
            after[at] -= 1
            if after[at] < 0:
                raise not_here(entries[at], " so often" if self.count(at) else "")
        return after

    def recount(self, after: dict[At, int]) -> tuple[list[At], list[At]]:
        """Stores new counts of copies; returns the values that are to appear, and the values that are to
        vanish."""
        appeared, vanished = [], []
        for at, copies in after.items():
            if copies > 1:
                self.copies[at] = copies - 1
            elif at in self.copies:
                del self.copies[at]
            if copies and at not in self.values:
                appeared.append(at)
            elif not copies and at in self.values:
                vanished.append(at)
        return appeared, vanished

    def reset(self, values: Iterable[Value]) -> None:
        """Holds exactly these values from now on, unrestricted and as often as they are given.

        After an exception the tables may be inconsistent: every table is filled again, and no callback is
        called. Values that were here keep their order.  O(values × nodes).
        """
        found: Values = {}
        counts: dict[At, int] = {}
        for value in values:
            at = at_of(value)
            found[at] = value
            counts[at] = counts.get(at, 0) + 1
        ordered = {at: found[at] for at in self.values if at in found}
        ordered.update(found)
        self.values.clear()
        self.values.update(ordered)
        self.copies.clear()
        self.copies.update({at: count - 1 for at, count in counts.items() if count > 1})
        self.visible.clear()
        for filling in self.fillings:
            filling.stop()
        for node in nodes_below(self._root):  # parents before children
            for table in node.moves.values():
                for of_class, below in table.items():
                    below.values = of_class_at(node.values, below.shape[-1][0], of_class)
            for group in node.groups.values():
                group.reset(node.values)
        for net in self._nets.values():
            net.reset(self.values)

    # -- handlers -------------------------------------------------------------------------------------

    def install(self, skeleton: Skeleton, callback: Callback, cleanup: Cleanup | None) -> Handler:
        """Installs a callback, and calls it for nothing yet; an exception leaves all as it was."""
        if self.fillings:
            self.fill_all(skeleton)
        handler = self.tree.find(skeleton)
        if handler is not None and callback in handler.callbacks:
            raise UsageError("this callback is installed for this pattern already")
        try:
            if handler is None:
                handler = self.tree.install(skeleton, self.visible)
            handler.install(callback, cleanup)
            if self.prepared and handler in self.prepared:
                self.prepared.remove(handler)
        except BaseException:
            self.take_out(skeleton, callback, handler)
            raise
        return handler

    def take_out(self, skeleton: Skeleton, callback: Callback, handler: Handler | None) -> None:
        """Removes a callback, if it is there, and every node that nothing else needs; can be called again.

        ``handler`` is None where it was not installed to the end.
        """
        if handler is not None:
            handler.dismiss(callback)
            if handler.callbacks or handler in self.prepared:
                return
        self.tree.prune(skeleton)

    # -- handlers that are prepared -------------------------------------------------------------------

    def prepare(self, skeleton: Skeleton, count: int) -> bool:
        """Files up to so many values that a handler needs; True if there is nothing to do any more.

        Where values have restrictions nothing is prepared.  An exception leaves nothing prepared.
        """
        for filling in self.fillings:
            if self.tree.needs(skeleton, filling):
                self._fill(filling, count)
                return False
        if self.visible or self.tree.find(skeleton) is not None:
            return True
        try:
            filling = self.tree.begin(skeleton)
            self.fillings.append(filling)
            self.prepared.append(filling.handler)
        except BaseException:
            self._drop(skeleton, self.tree.find(skeleton))
            raise
        return False

    def fill_all(self, skeleton: Skeleton) -> None:
        """Files at once what is pending where a skeleton has its handler, or would have it."""
        for filling in [each for each in self.fillings if self.tree.needs(skeleton, each)]:
            self._fill(filling, len(filling))

    def drop_prepared(self, skeleton: Skeleton) -> None:
        """Removes a handler without a callback."""
        handler = self.tree.find(skeleton)
        if handler is not None and not handler.callbacks:
            completed(self._drop, skeleton, handler)

    def _fill(self, filling: Filling, count: int) -> None:
        """Files up to so many values of a filling.  Where an exception interrupts that, nothing is prepared
        any more: nobody has what is half filed, and who prepares it begins anew."""
        try:
            if filling.fill(count):
                self.fillings.remove(filling)
        except BaseException:
            self._drop(filling.skeleton, filling.handler)
            raise

    def _drop(self, skeleton: Skeleton, handler: Handler | None) -> None:
        """Removes a handler that is prepared, whole or in part."""
        for filling in [each for each in self.fillings if each.handler is handler]:
            filling.stop()
            self.fillings.remove(filling)
        if handler in self.prepared:
            self.prepared.remove(handler)
        self.tree.prune(skeleton)

    def statistics(self) -> IndexStatistics:
        """Returns counts, in O(nodes + leaves)."""
        nodes = list(nodes_below(self._root))
        forms = [form for net in self._nets.values() for form in net.forms.values()]
        groups = [group for node in nodes for group in node.groups.values()] + [each.group for each in forms]
        leaves = [leaf for group in groups for leaf in group.leaves.values()]
        return IndexStatistics(
            values=len(self.values),
            copies=len(self.values) + sum(self.copies.values()),
            nodes=len(nodes),
            groups=len(groups),
            leaves=len(leaves),
            handlers=sum(len(handler.callbacks) for leaf in leaves for handler in leaf.handlers),
        )

    # -- what happens to a value ----------------------------------------------------------------------

    def appear(self, at: At, entry: Entry, news: News) -> None:
        """Files a new value in all nodes that it reaches."""
        values = self.values
        if type(entry) is Restricted:
            values[at] = entry.value
            self._appear_restricted(at, entry, news)
            return
        value: Value = entry
        values[at] = value
        for group in self._root.each:
            group.file(group, at, value, values, news)
        if type(value) is Record and type(value.label) is str:
            top = self._tops.get(value.label)
        else:
            top = self._tops.get(class_of(value))
        if top is not None:
            enter(top, at, value, news)
        if self._nets:
            self._enter_nets(at, value, news)

    def vanish(self, at: At, news: News) -> None:
        """Removes a value from all nodes that it reached: the reverse of ``appear``."""
        if self.fillings:
            self._file_pending([at])
        value = self.values.pop(at)
        if self.visible and at in self.visible:
            self._vanish_restricted(at, value, news)
            return
        for group in self._root.each:
            group.drop(group, at, value, news)
        if type(value) is Record and type(value.label) is str:
            top = self._tops.get(value.label)
        else:
            top = self._tops.get(class_of(value))
        if top is not None:
            leave(top, at, value, news)
        if self._nets:
            self._leave_nets(at, value, news)

    def _enter_nets(self, at: At, value: Value, news: News) -> None:
        """Files a value in the groups beside the trie."""
        for group in self.tree.beside(value):
            group.file(group, at, value, self.values, news)

    def _leave_nets(self, at: At, value: Value, news: News) -> None:
        """Does the reverse of ``_enter_nets``."""
        for group in self.tree.beside(value):
            group.drop(group, at, value, news)

    def _file_pending(self, going: list[At]) -> None:
        """Files what is about to be removed where it is pending."""
        for filling in self.fillings:
            for at in going:
                filling.file_pending(at)

    def _file_all(self, coming: list[At], added: Sequence[Value], news: News) -> None:
        """Does ``appear`` for many values, but for the root: values of one label in a row share the way
        down."""
        everything, tops, nets, groups = self.values, self._tops, self._nets, self._root.each
        last: Class | None = None
        top: Node | None = None
        for at, value in zip(coming, added, strict=True):
            for group in groups:
                group.file(group, at, value, everything, news)
            of = value.label if type(value) is Record and type(value.label) is str else class_of(value)
            if of is not last:
                last, top = of, tops.get(of)
            if top is not None:
                enter(top, at, value, news)
            if nets:
                self._enter_nets(at, value, news)

    def _drop_all(self, going: list[At], removed: Sequence[Value], news: News) -> None:
        """Does ``vanish`` for many values, but for the root, in the same way."""
        tops, nets, groups = self._tops, self._nets, self._root.each
        last: Class | None = None
        top: Node | None = None
        for at, value in zip(going, removed, strict=True):
            for group in groups:
                group.drop(group, at, value, news)
            of = value.label if type(value) is Record and type(value.label) is str else class_of(value)
            if of is not last:
                last, top = of, tops.get(of)
            if top is not None:
                leave(top, at, value, news)
            if nets:
                self._leave_nets(at, value, news)

    # -- restricted values ----------------------------------------------------------------------------
    #
    # A restricted value is in the tables like any other, under a key that includes its restriction
    # (HOWITWORKS); only the handlers of a leaf are checked one by one. Restricted values are rare, so this is
    # short and not fast.

    def _met(self, value: Value) -> Iterator[tuple[Values, Group, Hashable]]:
        """Yields the groups that a value meets, with the values of their nodes and the place of the leaf."""
        reached = [(node.values, group) for node in self.tree.reached(value) for group in node.each]
        for values, group in [*reached, *[(self.values, group) for group in self.tree.beside(value)]]:
            place = group.place(value)
            if place is not MISSING:
                yield values, group, place

    def _appear_restricted(self, at: At, entry: Restricted, news: News) -> None:
        """Files a restricted value in all nodes that it reaches."""
        self.visible[at] = entry.paths
        value = entry.value
        for node in self.tree.reached(value):
            node.values[at] = value
        for values, group, place in self._met(value):
            leaf = group.leaves.get(place)
            if leaf is None:
                if group.in_trie:
                    group.rest(at, place, values)
                continue
            leaf.values[at] = value
            for handler in leaf.handlers:
                if handler.code.paths <= entry.paths:
                    handler.gain(handler, value, news)

    def _vanish_restricted(self, at: At, value: Value, news: News) -> None:
        """Takes a restricted value out of all nodes that it reached."""
        paths = self.visible.pop(at)
        for node in self.tree.reached(value):
            node.values.pop(at, None)  # already removed from the root's table
        for _, group, place in self._met(value):
            leaf = group.leaves.get(place)
            if leaf is None:
                if group.in_trie:
                    group.rouse(at, place)
                continue
            del leaf.values[at]
            for handler in leaf.handlers:
                if handler.code.paths <= paths:
                    handler.lose(handler, value, news)

    def collect(self, value: Value, paths: Visible | None, news: News) -> None:
        """Adds to ``news`` the handlers that a message concerns; those within ``paths`` if it is
        restricted."""
        groups = [group for node in self.tree.reached(value) for group in node.each]
        if self._nets:
            groups += self.tree.beside(value)
        for group in groups:  # not ``_met``: turns of several messages come here, and it costs a third more
            leaf = group.leaves.get(group.place(value))
            if leaf is not None:
                for handler in leaf.handlers:
                    row = handler.row(value, paths)
                    if row is not None:
                        news.append((handler, row))


def completed(work: Callable[..., None], *args: object) -> None:
    """Does work that can be done again from any point of it; completes it before an exception that interrupts
    it goes on."""
    try:
        work(*args)
    except BaseException:
        work(*args)
        raise


def not_here(value: Entry, often: str = "") -> UsageError:
    """Returns the error for a removal of an absent value."""
    return UsageError(f"removed what is not there{often}: {plain(value)!r:.80}")


def plain(entry: Entry) -> Value:
    """Returns the value of an entry, without its restriction."""
    return entry.value if isinstance(entry, Restricted) else entry


def entry_of(thing: Entry) -> Entry:
    """Returns an entry with its value frozen; raises ``UsageError`` if it has no value."""
    if type(thing) is Restricted:
        return Restricted(frozen(thing.value), thing.paths)
    return frozen(thing)


def all_entries(things: Sequence[Entry]) -> Sequence[Entry]:
    """Returns several entries frozen: ``things`` itself if they are records, as they mostly are."""
    for thing in things:
        if type(thing) is not Record:
            return [entry_of(each) for each in things]
    return things


def are_unrestricted(things: Sequence[Entry]) -> TypeGuard[Sequence[Value]]:
    """True if every handler may see each of these."""
    for thing in things:  # noqa: SIM110  all() would make a generator each time
        if type(thing) is Restricted:
            return False
    return True
