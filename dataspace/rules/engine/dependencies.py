"""The dependency graph: which relations feed which, and in which stratum each settles.

Derived relations are what rules derive, views what their atoms read; where a view shows one derived relation
as it is, both are one.  The graph makes no function and holds no row, so it also answers whether rules can be
carried out at all, and how they are drawn.

Always: a relation comes after all relations that feed it, and together with those of its cycle; if a cycle
waits for itself, there is no graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from dataspace.flows.graphs import BlockingCycle, Edge, Graph, Strata
from dataspace.rules.engine.join_orders import BoundAtom
from dataspace.rules.language.syntax import Rule, Verb
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.relations import Relation
from dataspace.rules.relations.views import Form, View, form_of
from index.patterns.text import unparse
from index.values.positions import Class, label_class
from index.values.values import key

GROUP = "group "
"""How the names begin of what stands for the groups of one rule; its number follows, from 1."""


_NONE: Final[Mapping[Hashable, View]] = {}


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
        self.rules = tuple(rules)
        self.heads: dict[tuple[Hashable, int, Verb], HeadRelation] = {}
        self.views: dict[Hashable, View] = {}
        self.atoms: list[list[BoundAtom]] = []
        self.asked: list[list[View]] = []
        """For each rule what its atoms ask for, also where that is one with a head."""
        self.claimable: dict[Class, list[HeadRelation]] = {}
        """Heads of facts, which somebody may claim as well, by class."""
        self.graph = Graph()
        self.strata: Strata
        self.names: dict[int, str] = {}
        self.steps: list[int | list[Relation]] = []
        """What settles one after the other: the groups of a rule, by its number, or relations as a whole."""
        self.cycles: dict[int, list[Relation]] = {}
        """For each relation in a cycle, by its id, all that are in it."""
        self._separated = separated
        self._shared = shared
        self._aliases: dict[int, HeadRelation | None] = {}
        for rule in self.rules:
            self._add_head(rule)
        self._claim()
        for rule in self.rules:
            self._add_body(rule)
        self._arrange()

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
        whole.rules = tuple(rules)
        whole._claim()
        whole._arrange()
        return whole

    def _arrange(self) -> None:
        self._name()
        self._draw()
        self._order()

    # -- relations ------------------------------------------------------------------------------------

    def head(self, rule: Rule) -> HeadRelation:
        """The relation that a rule derives."""
        return self.heads[key(rule.head.label), len(rule.head.arguments), rule.head.verb]

    def of_verb(self, verb: Verb) -> list[HeadRelation]:
        """The heads of facts, of messages, or of what is for the next tick."""
        return [head for head in self.heads.values() if head.verb is verb]

    def matching(self, view: View) -> Iterator[HeadRelation]:
        """The heads of facts that a view could show; O(heads of its class)."""
        alike = self.of_verb(Verb.ASSERT) if view.root is None else self.claimable.get(view.root, ())
        for head in alike:
            if view.may_match(head.of, head.width):
                yield head

    def alias(self, view: View) -> HeadRelation | None:
        """The only head that a view shows, if it shows it as it is: then both are one relation."""
        if id(view) not in self._aliases:
            self._aliases[id(view)] = self._only_head(view)
        return self._aliases[id(view)]

    def relations(self) -> list[Relation]:
        """All relations, each once."""
        used = [atom.relation for atoms in self.atoms for atom in atoms]
        return list({id(each): each for each in [*self.heads.values(), *used]}.values())

    def recursion(self, number: int) -> int:
        """How many atoms of a rule are in the cycle of its head: the more, the likelier it runs away."""
        cycle = set(map(id, self.cycles.get(id(self.head(self.rules[number])), ())))
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
                self.heads[at] = HeadRelation(rule.head.label, at[1], at[2])

    def _claim(self) -> None:
        for head in self.of_verb(Verb.ASSERT):
            self.claimable.setdefault(label_class(head.of), []).append(head)

    def _add_body(self, rule: Rule) -> None:
        """Atoms with their relations; negated ones count behind all others."""
        bound, asked = [], []
        for at, atom in enumerate(rule.atoms):
            form = form_of(atom, everything=bool(rule.head.aggregates) and not atom.negated)
            view = self._view(form)
            names = [name if not name.startswith(" ") else f"{name} of {at}" for name in form.names]
            place = at + len(rule.atoms) if atom.negated else at
            bound.append(BoundAtom(place, atom, self.alias(view) or view, tuple(names)))
            asked.append(view)
        self.atoms.append(bound)
        self.asked.append(asked)

    def _view(self, form: Form) -> View:
        place = key(form.pattern)
        view = self.views.get(place)
        if view is None:
            view = self._shared.get(place)
            if view is None or any(self.matching(view)):
                view = View(form)
            self.views[place] = view
        return view

    def is_plain(self, view: View) -> bool:
        """Whether no rule derives what a view shows."""
        return not any(self.matching(view))

    def _only_head(self, view: View) -> HeadRelation | None:
        heads = list(self.matching(view))
        if len(heads) != 1 or key(heads[0].of) in self._separated:
            return None
        whole = view.columns(heads[0].of) == tuple(range(heads[0].width))
        return heads[0] if whole else None

    # -- the graph ------------------------------------------------------------------------------------

    def _name(self) -> None:
        """Names for people, each of one relation."""
        shown = Counter([view.name for view in self.views.values()])
        for view in self.views.values():
            name = view.name if shown[view.name] == 1 else unparse(view.form.pattern)
            self.names[id(view)] = f"{name} "  # apart from a head of the same name
        taken = Counter([head.name for head in self.heads.values()])
        for head in self.heads.values():
            self.names[id(head)] = head.name if taken[head.name] == 1 else f"{head.name}/{head.width}"

    def _draw(self) -> None:
        """The graph of heads, views and groups."""
        nodes, edges = self.graph.nodes, self.graph.edges
        views = [view for view in self.views.values() if self.alias(view) is None]
        for relation in [*views, *self.heads.values()]:
            nodes[self.names[id(relation)]] = None
        for view in views:
            for head in self.matching(view):
                edges.append(Edge(self.names[id(head)], self.names[id(view)]))
        for number, rule in enumerate(self.rules):
            self._draw_rule(number, rule)

    def _draw_rule(self, number: int, rule: Rule) -> None:
        head = self.names[id(self.head(rule))]
        end = head
        if rule.head.aggregates:
            end = f"{GROUP}{number + 1}"
            self.graph.nodes[end] = None
            self.graph.edges.append(Edge(end, head))
        for bound in self.atoms[number]:
            blocking = bound.atom.negated or bool(rule.head.aggregates)
            port = "not" if bound.atom.negated else ("aggregate" if rule.head.aggregates else "")
            self.graph.edges.append(Edge(self.names[id(bound.relation)], end, port, blocking))
        if rule.head.verb is Verb.NEXT:
            now = self.heads[key(rule.head.label), len(rule.head.arguments), Verb.ASSERT]
            self.graph.edges.append(Edge(head, self.names[id(now)], "next", delayed=True))

    def _order(self) -> None:
        """Puts relations and groups in order."""
        try:
            self.strata = self.graph.strata("next")
        except BlockingCycle as error:
            raise self._refusal(error) from None
        by_name = {self.names[id(each)]: each for each in [*self.views.values(), *self.heads.values()]}
        looped = {edge.source for edge in self.graph.edges if edge.source == edge.target}
        for members in self.strata.components:
            if members[0].startswith(GROUP):
                self.steps.append(int(members[0].removeprefix(GROUP)) - 1)
                continue
            relations: list[Relation] = [by_name[name] for name in members]
            self.steps.append(relations)
            if len(relations) > 1 or members[0] in looped:
                self.cycles.update({id(each): relations for each in relations})

    def _refusal(self, error: BlockingCycle) -> BlockingCycle:
        """The cycle in the words of the rules: by what they derive."""
        heads = {self.names[id(head)] for head in self.heads.values()}
        way = [name for name in error.cycle if name in heads]
        text = f"{' -> '.join(way)} -!-> {way[0]}: break it with next"
        return BlockingCycle(way, text)


def _heads_of(rule: Rule) -> list[tuple[Hashable, int, Verb]]:
    """The head of a rule, and what it holds as a tick later."""
    at = (key(rule.head.label), len(rule.head.arguments), rule.head.verb)
    return [at, (at[0], at[1], Verb.ASSERT)] if rule.head.verb is Verb.NEXT else [at]
