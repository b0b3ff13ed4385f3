"""The dependency graph: which relations feed which, and in which order do they settle?

Heads are the relations that rules derive, views are what their atoms read.  Where a view shows one head as it
is, both are one relation.  The graph makes no functions and holds no rows, so it also answers whether rules
can be carried out at all, and how they are drawn.  It can grow by further rules.

Always: a relation comes after all relations that feed it, and together with the relations of its cycle; if a
cycle waits for itself, there is no graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Generic, TypeAlias, TypeVar

from dataspace.flows.graphs import BlockingCycle, Edge, Graph, Strata, components
from dataspace.rules.language.syntax import Rule, Verb
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.join_orders import BoundAtom
from dataspace.rules.relations.relations import Relation
from dataspace.rules.relations.views import View, ViewForm, form_of
from index.errors import UsageError
from index.patterns.text import unparse
from index.values.positions import Class, label_class
from index.values.values import key

GROUP = "group "
"""How the names begin of what stands for the groups of one rule; its number follows, from 1."""


Node: TypeAlias = Relation | int
"""A relation, or the groups of a rule by its number."""

Flow: TypeAlias = tuple[Node, Node, bool]
"""An edge of the order; True if its target waits for all of its source."""

_NONE: Final[Mapping[Hashable, View]] = {}


@dataclass(slots=True)
class Growth:
    """What rules that were added to a graph have brought: what an engine has to make, and nothing else.

    ``fed`` are views that showed base facts alone, and now show heads as well.  ``leads`` are the heads that
    views have to show that are not one with them, where either is new; ``shown`` are older heads that a new
    view is one with.  ``is_in_place`` is False where a relation that was there has to become another, or
    settles in a cycle from now on: then the engine is made anew.
    """

    first: int
    heads: dict[HeadRelation, None] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    fed: list[View] = field(default_factory=list)
    leads: list[tuple[HeadRelation, View]] = field(default_factory=list)
    shown: list[HeadRelation] = field(default_factory=list)
    is_in_place: bool = True


class DependencyGraph:
    """The relations of some rules, in order; ``BlockingCycle`` where there is none.  O(rules).

    ``separated`` are labels of heads that no view may be one with; ``shared`` are views of what no rule
    derives, which are taken where they are asked for.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        separated: frozenset[Hashable] = frozenset(),
        shared: Mapping[Hashable, View] = _NONE,
    ) -> None:
        self.rules: list[Rule] = []
        self.heads: dict[tuple[Hashable, int, Verb], HeadRelation] = {}
        self.views: dict[Hashable, View] = {}
        self.atoms: list[list[BoundAtom]] = []
        self.asked: list[list[View]] = []
        """For each rule what its atoms ask for, also where that is one with a head."""
        self.claimable: dict[Class, list[HeadRelation]] = {}
        """Heads of facts, which owners may claim as well, by class."""
        self.timed: dict[Class, HeadRelation] = {}
        """Heads that depend on time, each of a label of its own, which no owner may claim."""
        self.order: SettlingOrder[Node] = SettlingOrder()
        """Heads, views, and the groups of rules by their numbers."""
        self.growth: Growth
        """What the rules that came last have brought."""
        self._separated = separated
        self._shared = shared
        self._aliases: dict[int, HeadRelation | None] = {}
        self._views_of: dict[Class | None, list[View]] = {}
        self._grow(rules)

    def grown(self, rules: Sequence[Rule]) -> DependencyGraph:
        """Returns the graph of these rules and further ones, over the same relations.

        Raises ``BlockingCycle`` if they cannot be put in order.  This graph stays as it is.
        O(what the further rules touch), beside copies of tables.
        """
        graph = DependencyGraph((), self._separated, self._shared)
        graph.rules, graph.atoms, graph.asked = self.rules.copy(), self.atoms.copy(), self.asked.copy()
        graph.heads, graph.views, graph.claimable = (
            self.heads.copy(),
            self.views.copy(),
            self.claimable.copy(),
        )
        graph.timed, graph.order = self.timed.copy(), self.order
        graph._aliases, graph._views_of = self._aliases.copy(), self._views_of.copy()
        graph._grow(rules)
        return graph

    def _grow(self, rules: Sequence[Rule]) -> None:
        self.growth = growth = Growth(len(self.rules))
        self.rules += rules
        for rule in rules:
            self._add_head(rule)
        self._claim(growth.heads)
        edges = [edge for head in growth.heads for edge in self._show(head)]
        for number in range(growth.first, len(self.rules)):
            edges += self._add_body(number, self.rules[number])
        groups = [n for n in range(growth.first, len(self.rules)) if self.rules[n].collects]
        nodes: list[Node] = [*growth.views, *groups, *growth.heads]
        try:
            self.order = self.order.extended(nodes, edges)
        except Blocked:
            raise self._refusal() from None
        growth.is_in_place &= not self.order.has_tied

    @staticmethod
    def joined(parts: Iterable[tuple[DependencyGraph, int]]) -> DependencyGraph:
        """Returns the graph of rules that are carried out apart from each other, in an order of their own.

        Each is given by the graph that it is in, and its number there.  The relations are the same ones.
        """
        whole, rules = DependencyGraph(()), []
        for part, number in parts:
            rule = part.rules[number]
            rules.append(rule)
            whole.heads.update([(at, part.heads[at]) for at in _heads_of(rule)])
            whole.atoms.append(part.atoms[number])
            whole.asked.append(part.asked[number])
            for view in part.asked[number]:
                whole.views[key(view.form.pattern)] = view
                whole._aliases[id(view)] = part.alias(view)
        whole.rules = rules
        whole._claim(whole.heads.values())
        return whole

    # -- relations ------------------------------------------------------------------------------------

    def head(self, rule: Rule) -> HeadRelation:
        """Returns the relation that a rule derives."""
        return self.heads[key(rule.head.label), len(rule.head.arguments), rule.head.verb]

    def of_verb(self, verb: Verb) -> list[HeadRelation]:
        """Returns the heads of facts, of messages, or of facts for the next tick."""
        return [head for head in self.heads.values() if head.verb is verb]

    def matching(self, view: View) -> Iterator[HeadRelation]:
        """Yields the heads of facts that a view could show; O(heads of its class)."""
        alike = self.of_verb(Verb.ASSERT) if view.root is None else self.claimable.get(view.root, ())
        if view.root in self.timed:
            alike = [*alike, self.timed[view.root]]
        for head in alike:
            if view.may_match(head.of, head.width):
                yield head

    def alias(self, view: View) -> HeadRelation | None:
        """Returns the only head that a view shows, if it shows it as it is: then both are one relation."""
        if id(view) not in self._aliases:
            self._aliases[id(view)] = self._only_head(view)
        return self._aliases[id(view)]

    def relations(self) -> list[Relation]:
        """Returns all relations, each once."""
        used = [atom.relation for atoms in self.atoms for atom in atoms]
        return list({id(each): each for each in [*self.heads.values(), *used]}.values())

    def cycle(self, relation: Relation) -> list[Relation]:
        """Returns the relations of the cycle that one is in; none if it is in no cycle.  O(those)."""
        knot = self.order.knot(relation)
        if not self.order.is_cycle(knot[0]):
            return []
        members = [node for node in knot if isinstance(node, Relation)]
        return list({id(each): each for each in map(self._itself, members)}.values())

    def step(self, entry: Node) -> int | list[Relation] | None:
        """Returns what settles as a whole at an entry of the order: the groups of a rule, or relations.

        Returns None for a relation that is settled elsewhere, as base facts are.  O(members).
        """
        if isinstance(entry, int):
            return entry
        if self.order.is_cycle(entry):
            return self.cycle(entry)
        is_elsewhere = isinstance(entry, View) and (self.alias(entry) is not None or self.is_plain(entry))
        return None if is_elsewhere else [entry]

    def _itself(self, relation: Relation) -> Relation:
        """Returns the head that a view is one with, or what was given."""
        return (self.alias(relation) if isinstance(relation, View) else None) or relation

    def recursion(self, number: int) -> int:
        """Returns the number of atoms in the cycle of the head: a rule with more is likelier to run away."""
        cycle = set(map(id, self.cycle(self.head(self.rules[number]))))
        return sum(id(atom.relation) in cycle for atom in self.atoms[number])

    def leads_to_itself(self, number: int) -> bool:
        """True if what a rule derives may set it off again, in this tick or in a later one.  O(graph)."""
        onward: dict[str, list[str]] = {}
        for edge in self.graph.edges:
            onward.setdefault(edge.source, []).append(edge.target)
        start = self.names[id(self.head(self.rules[number]))]
        reached, waiting = {start}, [start]
        while waiting:
            for name in onward.get(waiting.pop(), ()):
                if name not in reached:
                    reached.add(name)
                    waiting.append(name)
        return any(self.names[id(atom.relation)] in reached for atom in self.atoms[number])

    def _add_head(self, rule: Rule) -> None:
        for at in _heads_of(rule):
            if at not in self.heads:
                self.heads[at] = head = HeadRelation(rule.head.label, at[1], at[2])
                self.growth.heads[head] = None

    def _claim(self, heads: Iterable[HeadRelation]) -> None:
        for head in heads:
            if head.verb is Verb.ASSERT:
                at = label_class(head.of)
                self.claimable[at] = [*self.claimable.get(at, ()), head]
            elif head.verb is Verb.HIDDEN:
                self.timed[label_class(head.of)] = head

    def _show(self, head: HeadRelation) -> Iterator[Flow]:
        """Notes which older views have to show a new head; yields edges."""
        if head.verb not in (Verb.ASSERT, Verb.HIDDEN):
            return
        growth = self.growth
        of_any = self._views_of.get(None, ()) if head.verb is Verb.ASSERT else ()
        for view in [*self._views_of.get(label_class(head.of), ()), *of_any]:
            if view.may_match(head.of, head.width):
                growth.is_in_place &= self._aliases[id(view)] is None
                growth.leads.append((head, view))
                if not any(each not in growth.heads for each in self.matching(view)):
                    growth.fed.append(view)
                yield head, view, False

    def _add_body(self, number: int, rule: Rule) -> Iterator[Flow]:
        """Notes the atoms of a rule with their relations, negated ones behind all others; yields edges."""
        bound: list[BoundAtom] = []
        asked: list[View] = []
        end: Node = number if rule.collects else self.head(rule)
        for at, atom in enumerate(rule.atoms):
            form = form_of(atom, everything=bool(rule.head.aggregates) and not atom.negated)
            view = self.views.get(key(form.pattern))
            if view is None:
                view = self._new_view(form)
                yield from [(head, view, False) for head in self.matching(view)]
            names = [name if not name.startswith(" ") else f"{name} of {at}" for name in form.names]
            place = at + len(rule.atoms) if atom.negated else at
            bound.append(BoundAtom(place, atom, self.alias(view) or view, tuple(names)))
            asked.append(view)
            yield view, end, atom.negated or rule.collects
        if rule.collects:
            yield end, self.head(rule), False
        self.atoms.append(bound)
        self.asked.append(asked)

    def _new_view(self, form: ViewForm) -> View:
        place, growth = key(form.pattern), self.growth
        view = self._shared.get(place)
        if view is None or any(self.matching(view)):
            view = View(form)
        self.views[place] = view
        self._views_of[view.root] = [*self._views_of.get(view.root, ()), view]
        growth.views.append(view)
        alias = self.alias(view)
        if alias is None:
            growth.leads += [(head, view) for head in self.matching(view)]
        elif not (alias.is_shown or alias in growth.heads or alias in growth.shown):
            growth.shown.append(alias)
        return view

    def is_plain(self, view: View) -> bool:
        """True if no rule derives what a view shows."""
        return not any(self.matching(view))

    def _only_head(self, view: View) -> HeadRelation | None:
        heads = list(self.matching(view))
        if len(heads) != 1 or key(heads[0].of) in self._separated:
            return None
        whole = view.columns(heads[0].of) == tuple(range(heads[0].width))
        return heads[0] if whole else None

    # -- the graph ------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> dict[int, str]:
        """Returns the name of each relation, by its id; no two have the same."""
        names: dict[int, str] = {}
        shown = Counter([view.name for view in self.views.values()])
        for view in self.views.values():
            name = view.name if shown[view.name] == 1 else unparse(view.form.pattern)
            names[id(view)] = f"{name} "  # apart from a head of the same name
        hidden = {key(rule.head.label): rule.shown for rule in self.rules if rule.head.verb is Verb.HIDDEN}
        called = {head: hidden.get(key(head.of), head.name) for head in self.heads.values()}
        taken = Counter(called.values())
        for head, name in called.items():
            if taken[name] > 1:
                name = head.name if head.verb is Verb.HIDDEN else f"{name}/{head.width}"
            names[id(head)] = name
        return names

    @cached_property
    def graph(self) -> Graph:
        """Returns the graph of heads, views and groups, by those names; drawn when it is first asked for."""
        graph = Graph()
        views = [view for view in self.views.values() if self.alias(view) is None]
        for relation in [*views, *self.heads.values()]:
            graph.nodes[self.names[id(relation)]] = None
        for view in views:
            for head in self.matching(view):
                graph.edges.append(Edge(self.names[id(head)], self.names[id(view)]))
        for number, rule in enumerate(self.rules):
            self._draw_rule(graph, number, rule)
        return graph

    @cached_property
    def strata(self) -> Strata:
        """Returns the strata of that graph."""
        return self.graph.strata("next")

    def _draw_rule(self, graph: Graph, number: int, rule: Rule) -> None:
        head = self.names[id(self.head(rule))]
        end = head
        if rule.collects:
            end = f"{GROUP}{number + 1}"
            graph.nodes[end] = None
            graph.edges.append(Edge(end, head))
        for bound in self.atoms[number]:
            blocking = bound.atom.negated or rule.collects
            port = "time" if rule.form is not None else "aggregate" if rule.collects else ""
            port = "not" if bound.atom.negated else port
            graph.edges.append(Edge(self.names[id(bound.relation)], end, port, blocking))
        if rule.head.verb is Verb.NEXT:
            now = self.heads[key(rule.head.label), len(rule.head.arguments), Verb.ASSERT]
            graph.edges.append(Edge(head, self.names[id(now)], "next", delayed=True))

    def _denied(self) -> str:
        """Returns the head of a rule that asks for the absence of just this fact; nothing if there is none.

        With ``next`` such a fact would come and go for ever.
        """
        for number, rule in enumerate(self.rules):
            for bound in self.atoms[number]:
                if bound.atom.negated and str(bound.atom) == f"not {rule.head}":
                    return str(rule.head)
        return ""

    def _refusal(self) -> BlockingCycle:
        """Returns the error for a cycle that blocks, in the words of the rules: by their heads."""
        heads = {self.names[id(head)] for head in self.heads.values()}
        try:
            self.graph.strata("next")
        except BlockingCycle as error:
            way = [name for name in error.cycle if name in heads]
            if len(way) == 1 and (denied := self._denied()):
                text = f"{way[0]} -!-> {way[0]}: {denied} is derived where it is absent: derive another fact"
                return BlockingCycle(way, text)
            text = f"{' -> '.join(way)} -!-> {way[0]}: break it with next"
            return BlockingCycle(way, text)
        raise AssertionError("the order has a cycle that the graph has not")


def _heads_of(rule: Rule) -> list[tuple[Hashable, int, Verb]]:
    """Returns the key of a rule's head, and for ``next`` the key of the facts which hold a tick later."""
    at = (key(rule.head.label), len(rule.head.arguments), rule.head.verb)
    return [at, (at[0], at[1], Verb.ASSERT)] if rule.head.verb is Verb.NEXT else [at]


# -- settling orders -------------------------------------------------------------------------------
#
# Rules come one by one, and each brings a few nodes and edges. If the whole graph were ordered again each
# time, n rules would cost n². So an order is extended: a new node is placed right behind what feeds it, and
# where an edge leads backwards only the nodes between its two ends are moved (Pearce and Kelly, "A Dynamic
# Topological Sort Algorithm for Directed Acyclic Graphs", 2007). Nodes of one cycle become one entry, a
# *knot*. An edge leads to a later entry, or stays within a knot; a blocking edge within a knot is refused; an
# order is never changed, since what extends it may yet be refused.


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
