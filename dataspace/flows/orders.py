"""Settling orders: in which order do the nodes of a graph settle, when the graph grows?

Rules come one by one, and each brings a few nodes and edges.  If the whole graph were ordered again each
time, n rules would cost n².  So an order is extended: a new node is placed right behind what feeds it, and
where an edge leads backwards only the nodes between its two ends are moved (Pearce and Kelly, "A Dynamic
Topological Sort Algorithm for Directed Acyclic Graphs", 2007).  Nodes of one cycle become one entry, a
*knot*.

Always: an edge leads to a later entry, or stays within a knot; a blocking edge within a knot is refused; an
order is never changed, since what extends it may yet be refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from dataspace.flows.graphs import components
from index.errors import UsageError

N = TypeVar("N", bound=Hashable)

FEW: Final = 32
"""Up to so many new nodes are put in one by one; for more, the whole is ordered again."""


class Blocked(UsageError):
    """A cycle has an edge that blocks, so it would wait for itself."""


class SettlingOrder(Generic[N]):
    """Nodes in the order in which they settle; ``entries`` has one node of each knot.

    ``has_tied`` is True if the last extension put a node that was there before into a knot, or a larger one.
    """

    __slots__ = ("_after", "_before", "_entry", "_place", "_tied", "entries", "has_tied", "moved")

    def __init__(self) -> None:
        self.entries: list[N] = []
        self.has_tied = False
        self.moved = 0
        """The number of entries that were looked at to order the last extension: its cost beside copies."""
        self._place: dict[N, int] = {}
        self._entry: dict[N, N] = {}
        self._tied: dict[N, tuple[N, ...]] = {}
        self._after: dict[N, tuple[tuple[N, bool], ...]] = {}
        self._before: dict[N, tuple[N, ...]] = {}

    def knot(self, node: N) -> tuple[N, ...]:
        """Returns the nodes that settle together with a node; itself alone where it is in no cycle.  O(1)."""
        entry = self._entry[node]
        return self._tied.get(entry, (entry,))

    def is_cycle(self, entry: N) -> bool:
        """True if what an entry stands for feeds itself.  O(1)."""
        return entry in self._tied

    def extended(self, nodes: Sequence[N], edges: Iterable[tuple[N, N, bool]]) -> SettlingOrder[N]:
        """Returns this order with further nodes and edges; the third of an edge is True if it blocks.

        Raises ``Blocked`` if a cycle would have an edge that blocks.
        O(new nodes and edges + nodes between the ends of edges that lead backwards), beside copies of tables.
        """
        order: SettlingOrder[N] = SettlingOrder()
        order.entries = self.entries.copy()
        order._place, order._entry, order._tied = self._place.copy(), self._entry.copy(), self._tied.copy()
        order._after, order._before = self._after.copy(), self._before.copy()
        new = list(edges)
        for node in nodes:
            order._after[node] = order._before[node] = ()
        for source, target, blocks in new:
            order._after[source] = (*order._after[source], (target, blocks))
            order._before[target] = (*order._before[target], source)
        if len(nodes) > FEW:
            order._order_all(self._entry)
            return order
        for node in nodes:
            order._put(node)
        for source, target, blocks in new:
            order._direct(source, target, blocks, self._entry)
        return order

    def _order_all(self, known: Mapping[N, N]) -> None:
        """Orders all nodes anew.  O(nodes + edges)."""
        found = components({node: [at for at, _ in onward] for node, onward in self._after.items()})
        before, self._tied, self._entry = self._tied, {}, {}
        self.entries = [members[0] for members in found]
        for members in found:
            self._entry.update(dict.fromkeys(members, members[0]))
            if len(members) > 1 or any(target == members[0] for target, _ in self._after[members[0]]):
                self._tied[members[0]] = members
                self._refuse_blocked(members)
                if any(
                    node in known and len(before.get(known[node], ())) != len(members) for node in members
                ):
                    self.has_tied = True
        self._number()
        self.moved = len(found)

    def _put(self, node: N) -> None:
        """Puts a new node behind every placed node that feeds it."""
        places = [self._place[self._entry[each]] for each in self._before[node] if each in self._entry]
        self._entry[node] = node
        self.entries.insert(max(places, default=-1) + 1, node)
        self._number()

    def _number(self) -> None:
        self._place = dict(zip(self.entries, range(len(self.entries)), strict=True))

    def _direct(self, source: N, target: N, blocks: bool, known: Mapping[N, N]) -> None:
        """Moves what stands between the ends of an edge, if it leads backwards."""
        first, last = self._entry[target], self._entry[source]
        if first == last:
            if blocks:
                raise Blocked(f"{source!r} waits for itself")
            if first not in self._tied:  # a node that feeds itself
                self._tied[first] = (first,)
                self.has_tied |= first in known
            return
        low, high = self._place[first], self._place[last]
        if high < low:
            return
        onward = self._reached(first, low, high, forward=True)
        backward = self._reached(last, low, high, forward=False)
        tied = onward.keys() & backward.keys()
        self.moved += len(onward) + len(backward)
        earlier = sorted(backward.keys() - tied, key=self._place.__getitem__)
        later = sorted(onward.keys() - tied, key=self._place.__getitem__)
        places = sorted([self._place[each] for each in onward.keys() | backward.keys()])
        for at, entry in zip(places, earlier, strict=False):
            self.entries[at] = entry
        if later:
            for at, entry in zip(places[-len(later) :], later, strict=True):
                self.entries[at] = entry
        if tied:
            middle = places[len(earlier) : len(places) - len(later)]
            self.entries[middle[0]] = self._tie(sorted(tied, key=self._place.__getitem__), known)
            for at in reversed(middle[1:]):
                del self.entries[at]
        self._number()

    def _reached(self, start: N, low: int, high: int, *, forward: bool) -> dict[N, None]:
        """Returns the entries between two places that an entry leads to, or that lead to it."""
        found, waiting = {start: None}, [start]
        while waiting:
            for node in self._tied.get(at := waiting.pop(), (at,)):
                beside = [each for each, _ in self._after[node]] if forward else self._before[node]
                for other in beside:
                    entry = self._entry[other]
                    if entry not in found and low <= self._place[entry] <= high:
                        found[entry] = None
                        waiting.append(entry)
        return found

    def _tie(self, entries: Sequence[N], known: Mapping[N, N]) -> N:
        """Makes one knot of several entries; returns its entry."""
        members = tuple([node for each in entries for node in self._tied.pop(each, (each,))])
        self._entry.update(dict.fromkeys(members, members[0]))
        self._tied[members[0]] = members
        self.has_tied |= any(node in known for node in members)
        self._refuse_blocked(members)
        return members[0]

    def _refuse_blocked(self, members: Sequence[N]) -> None:
        within = set(members)
        for node in members:
            for target, blocks in self._after[node]:
                if blocks and target in within:
                    raise Blocked(f"{node!r} waits for itself")
