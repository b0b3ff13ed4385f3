"""The engine: a fixed set of rules, and what follows from the facts that it is told of.

Rules come in as data; here they become relations, views and functions, put in the order of their strata.
A tick takes what changed, counts derivations as it goes, and then lets one stratum after the other settle.
An engine is thrown away when a rule in it fails: ``program`` then makes another without that rule.

Always: after a tick the derived facts are those that follow from the claimed facts and from nothing else,
whichever way they came to be; the relations of a stratum change only when all below are settled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Final

from dataspace.rules.budgets import MAX_TEXT, STEPS_FOR_EACH_ROW, Budget
from dataspace.rules.compiling import Compiler, RuleLimits
from dataspace.rules.costs import Costs, Spent
from dataspace.rules.derived import Derived
from dataspace.rules.failures import RuleFailed
from dataspace.rules.graphs import BlockingCycle, Edge, Graph, Strata
from dataspace.rules.grouping import Grouping
from dataspace.rules.heads import HeadRelation, lead
from dataspace.rules.plans import BoundAtom
from dataspace.rules.relations import Relation, settle
from dataspace.rules.syntax import Rule, Verb
from dataspace.rules.tables import write
from dataspace.rules.terms import Row, Terms
from dataspace.rules.views import View, form_of
from index.positions import Class, class_of, label_class
from index.text import unparse
from index.values import Record, Value, key

MAX_INSERTED: Final = 2_000_000
"""Rows that may be inserted in one tick, unless the engine is told otherwise."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What settles as a whole: the relations of one cycle, a relation in none, or the groups of one rule.

    There is something to do when any of ``pending`` is not empty.
    """

    pending: tuple[Sized, ...]
    settle: Callable[[], None]


class Engine:
    """Rules, compiled, with their state."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        max_inserted: int = MAX_INSERTED,
        apart: frozenset[Hashable] = frozenset(),
        clock: Callable[[], int] | None = None,
        deadline: Callable[[], int | None] = lambda: None,
        carried_out: bool = True,
    ) -> None:
        self._costs = Costs(clock)
        self._clock = clock
        self._deadline = deadline
        self._until: int | None = None
        self._ticks = [0]
        self._limits: dict[int, RuleLimits] = {}
        self.rules = tuple(rules)
        self.terms = Terms()
        self.heads: dict[tuple[Hashable, int, Verb], HeadRelation] = {}
        self.views: dict[Hashable, View] = {}
        self.groupings: dict[int, Grouping] = {}
        self.atoms: list[list[BoundAtom]] = []
        self.graph = Graph()
        self.strata: Strata
        self.names: dict[int, str] = {}
        self._max_inserted = max_inserted
        self._apart = apart
        self._stamp = 0
        self._inserted: dict[str, int] = {}
        self._left = 0
        self._units: list[Unit] = []
        self._routes: dict[Class, list[View]] = {}
        self._wild: list[View] = []
        self._negated: set[Class | None] = set()  # of what negations ask for; None for any
        self._claimable: dict[Class, list[HeadRelation]] = {}
        self._schedule: list[tuple[HeadRelation, Row, int]] = []
        self._aliases: dict[int, HeadRelation | None] = {}
        self._facts: list[HeadRelation] = []
        self._delayed: list[HeadRelation] = []
        self._sending: list[HeadRelation] = []
        cycles = self._outline()
        if carried_out:
            self._fill_in(cycles)

    # -- building -------------------------------------------------------------------------------------

    @staticmethod
    def check(rules: Sequence[Rule], apart: frozenset[Hashable]) -> None:
        """Raises ``BlockingCycle`` where these rules cannot be put in order; makes no functions."""
        Engine(rules, apart=apart, carried_out=False)

    def _outline(self) -> dict[int, list[Relation]]:
        """The graph of the rules, in order; for each relation in a cycle all that are in it.  O(rules)."""
        for rule in self.rules:
            self._add_head(rule)
        for head in self.heads.values():
            {Verb.ASSERT: self._facts, Verb.NEXT: self._delayed, Verb.SEND: self._sending}[head.verb].append(
                head
            )
        for head in self._facts:
            self._claimable.setdefault(label_class(head.of), []).append(head)
        for rule in self.rules:
            self.atoms.append([self._bound(at, rule) for at in range(len(rule.atoms))])
        self._draw()
        return self._order()

    def _fill_in(self, cycles: dict[int, list[Relation]]) -> None:
        """Makes the functions and tables."""
        for view in self.views.values():
            self._feed(view, cycles)
        for number, rule in enumerate(self.rules):
            self._compile(number, rule, cycles)
        for relation in self.relations():
            write(relation)
        for number, rule in enumerate(self.rules):
            if all(atom.negated for atom in rule.atoms):
                self._hold(number, rule)

    def _add_head(self, rule: Rule) -> None:
        at = (key(rule.head.label), len(rule.head.arguments), rule.head.verb)
        if at not in self.heads:
            self.heads[at] = HeadRelation(rule.head.label, at[1], rule.head.verb)
        if rule.head.verb is Verb.NEXT:
            now = (at[0], at[1], Verb.ASSERT)
            if now not in self.heads:
                self.heads[now] = HeadRelation(rule.head.label, at[1], Verb.ASSERT)

    def _head(self, rule: Rule) -> HeadRelation:
        return self.heads[key(rule.head.label), len(rule.head.arguments), rule.head.verb]

    def _bound(self, at: int, rule: Rule) -> BoundAtom:
        """An atom with its relation; negated ones count behind all others."""
        atoms = rule.atoms
        atom = atoms[at]
        form = form_of(atom, everything=bool(rule.head.aggregates) and not atom.negated)
        place = key(form.pattern)
        view = self.views.get(place)
        if view is None:
            view = self.views[place] = View(form)
        if atom.negated:
            self._negated.add(view.root)
        names = tuple([name if not name.startswith(" ") else f"{name} of {at}" for name in form.names])
        return BoundAtom(at + len(atoms) if atom.negated else at, atom, self._relation(view), names)

    def _relation(self, view: View) -> Relation:
        """The relation of a view: that of the only head which it shows as it is, or its own."""
        alias = self._alias(view)
        return view if alias is None else alias

    def _alias(self, view: View) -> HeadRelation | None:
        if id(view) not in self._aliases:
            self._aliases[id(view)] = self._only_head(view)
        return self._aliases[id(view)]

    def _only_head(self, view: View) -> HeadRelation | None:
        heads = list(self.matching(view))
        if len(heads) != 1 or key(heads[0].of) in self._apart:
            return None
        whole = view.columns(heads[0].of, heads[0].width) == tuple(range(heads[0].width))
        return heads[0] if whole else None

    def _draw(self) -> None:
        """The graph of heads, views and groupings."""
        self.names = {id(each): each.name for each in [*self.views.values(), *self.heads.values()]}
        shown = Counter([view.name for view in self.views.values()])
        for view in self.views.values():
            name = view.name if shown[view.name] == 1 else unparse(view.form.pattern)
            self.names[id(view)] = f"{name} "  # apart from a head of the same name
        taken: dict[str, int] = {}
        for head in self.heads.values():
            taken[head.name] = taken.get(head.name, 0) + 1
        for head in self.heads.values():
            if taken[head.name] > 1:
                self.names[id(head)] = f"{head.name}/{head.width}"
        nodes, edges = self.graph.nodes, self.graph.edges
        for relation in [*self.views.values(), *self.heads.values()]:
            if not (isinstance(relation, View) and self._alias(relation)):
                nodes[self.names[id(relation)]] = None
        for view in self.views.values():
            if self._alias(view) is None:
                for head in self.matching(view):
                    edges.append(Edge(self.names[id(head)], self.names[id(view)]))
        for number, rule in enumerate(self.rules):
            self._draw_rule(number, rule)

    def matching(self, view: View) -> Iterator[HeadRelation]:
        """The heads of facts that a view could show; O(heads of its class)."""
        alike = self._facts if view.root is None else self._claimable.get(view.root, ())
        for head in alike:
            if view.may_match(head.of, head.width):
                yield head

    def _draw_rule(self, number: int, rule: Rule) -> None:
        head = self.names[id(self._head(rule))]
        end = head
        if rule.head.aggregates:
            end = f"group {number + 1}"
            self.graph.nodes[end] = None
            self.graph.edges.append(Edge(end, head))
        for bound in self.atoms[number]:
            blocking = bound.atom.negated or bool(rule.head.aggregates)
            port = "not" if bound.atom.negated else ("aggregate" if rule.head.aggregates else "")
            self.graph.edges.append(Edge(self.names[id(bound.relation)], end, port, blocking))
        if rule.head.verb is Verb.NEXT:
            now = self.heads[key(rule.head.label), len(rule.head.arguments), Verb.ASSERT]
            self.graph.edges.append(Edge(head, self.names[id(now)], "next", delayed=True))

    def _order(self) -> dict[int, list[Relation]]:
        """Puts the units in order; for each relation, those of its cycle, or none."""
        try:
            self.strata = self.graph.strata("next")
        except BlockingCycle as error:
            raise self._refusal(error) from None
        by_name: dict[str, Relation] = {}
        for each in [*self.views.values(), *self.heads.values()]:
            by_name[self.names[id(each)]] = each
        looped = {edge.source for edge in self.graph.edges if edge.source == edge.target}
        cycles: dict[int, list[Relation]] = {}
        for members in self.strata.components:
            if members[0].startswith("group "):
                number = int(members[0].removeprefix("group ")) - 1
                rule = self.rules[number]
                grouping = Grouping(members[0], rule, self._head(rule), self.terms)
                self.groupings[number] = grouping
                self._units.append(Unit((grouping.pending,), grouping.settle))
                continue
            relations = [by_name[name] for name in members]
            if len(relations) > 1 or members[0] in looped:
                self._units.append(Unit(tuple([e.pending for e in relations]), self._cycle(relations)))
                cycles.update({id(each): relations for each in relations})
            elif isinstance(alone := relations[0], View) and not any(self.matching(alone)):
                alone.is_plain = True
            else:
                self._units.append(Unit((alone.pending,), self._single(alone)))
        return cycles

    def _refusal(self, error: BlockingCycle) -> BlockingCycle:
        """The cycle in the words of the rules: by what they derive."""
        heads = {self.names[id(head)] for head in self.heads.values()}
        way = [name for name in error.cycle if name in heads]
        text = f"{' -> '.join(way)} -!-> {way[0]}: break it with next"
        return BlockingCycle(way, text)

    def _feed(self, view: View, cycles: dict[int, list[Relation]]) -> None:
        """Leads claimed and derived facts into a view."""
        alias = self._alias(view)
        if alias is not None:
            alias.is_shown = True
            return
        self._route(view)
        for head in self.matching(view):
            within = id(head) in cycles and view in cycles[id(head)]
            lead(head, view, self.terms, within=within)

    def _route(self, view: View) -> None:
        """Has facts of the class of a view, or of all classes, read by it."""
        if view.root is not None:
            self._routes.setdefault(view.root, self._wild[:]).append(view)
            return
        self._wild.append(view)
        for views in self._routes.values():
            views.append(view)

    def _compile(self, number: int, rule: Rule, cycles: dict[int, list[Relation]]) -> None:
        head = self._head(rule)
        grouping = self.groupings.get(number)
        cycle = [] if grouping is not None else cycles.get(id(head), [])
        change = None if grouping is None else grouping.change
        compiler = Compiler(
            number, rule, self.atoms[number], head, cycle, self.terms, change, self._limit(number)
        )
        compiler.install(self._costs.timed(number))

    def _hold(self, number: int, rule: Rule) -> None:
        """What follows from nothing, or from what is not there, holds from the start."""
        grouping = self.groupings.get(number)
        change = None if grouping is None else grouping.change
        compiler = Compiler(
            number, rule, self.atoms[number], self._head(rule), [], self.terms, change, self._limit(number)
        )
        compiler.function(None, +1)((), [])

    def _limit(self, number: int) -> RuleLimits:
        known = self._limits.get(number)
        if known is None:
            most = self._max_inserted
            steps = Budget(number, STEPS_FOR_EACH_ROW * most, "rows were looked at", self._ticks)
            text = Budget(number, MAX_TEXT, "characters of values were made", self._ticks)
            known = self._limits[number] = RuleLimits(steps, text, most)
        return known

    # -- ticks ----------------------------------------------------------------------------------------

    def tick(
        self, added: Iterable[Value] = (), removed: Iterable[Value] = (), messages: Sequence[Value] = ()
    ) -> Derived:
        """Takes the claimed facts that appeared and vanished, and messages; what follows from that.

        Raises ``RuleFailed``, after which this engine is good for nothing but ``derived``.
        O(derivations touched).
        """
        self._ticks[0] += 1
        self._inserted.clear()
        self._left = self._max_inserted
        self._until = self._deadline()
        derived = Derived([], [], [])
        if self._schedule:
            schedule, self._schedule = self._schedule, []
            for head, row, by in schedule:
                head.support(row, by)
        for value in added:
            self._claim(value, +1)
        for value in removed:
            self._claim(value, -1)
        for value in messages:
            self._claim(value, +1)
        self._settle()
        if self._delayed:
            self._delay()
        for head in self._sending:
            head.send(derived.messages)
        if messages:
            for value in messages:
                self._claim(value, -1)
            self._settle()
            for head in self._sending:
                head.send([])  # which sends nothing: what held because of a message no longer does
        for head in self._facts:
            if head.news:
                head.publish(derived)
        return derived

    def load(self, facts: Iterable[Value], before: Engine) -> Derived:
        """The first tick: all claimed facts at once, going on where another engine was.

        What holds because of that one's last tick still does; what it has sent is not sent again.
        """
        for old, row in before.held():
            head = self.heads.get((key(old.of), old.width, Verb.NEXT))
            if head is not None:
                mine = self.terms.row(tuple([term.value for term in row]))
                head.held[mine] = None
                head.news.noted.append(mine)
                self.heads[key(old.of), old.width, Verb.ASSERT].support(mine, +1)
        sent = {key(fact) for fact in before.sent()}
        derived = self.tick(facts)
        derived.messages = [value for value in derived.messages if key(value) not in sent]
        return derived

    def _claim(self, value: Value, by: int) -> None:
        """Routes a claimed fact to the relations that it is a row of."""
        root, of = class_of(value), self.terms.of
        if root in self._claimable:
            self._claim_derivable(value, root, by)  # type: ignore[arg-type]  # a record, by its class
        for view in self._routes.get(root, self._wild):
            captures = view.read(value)
            if captures is not None:
                row = tuple([of(capture) for capture in captures])
                if view.is_plain:
                    view.table.claim(row, by)
                else:
                    view.support(row, by)

    def _claim_derivable(self, value: Record, root: Class, by: int) -> None:
        """Takes the claim on a fact as one that rules could derive: then they need not."""
        for head in self._claimable[root]:
            if len(value.fields) == head.width:
                row = self.terms.row(value.fields)
                if head.is_shown:
                    head.claim(row, by)
                else:
                    head.note(row, by)
            elif len(value.fields) > head.width and head.is_shown:
                raise Unalias(key(head.of))

    def _settle(self) -> None:
        for unit in self._units:
            for pending in unit.pending:
                if pending:
                    unit.settle()
                    break

    def _cycle(self, relations: list[Relation]) -> Callable[[], None]:
        def run() -> None:
            self._stamp = settle(relations, self._stamp, self._spend)

        return run

    def _single(self, relation: Relation) -> Callable[[], None]:
        def run() -> None:
            self._spend(relation, len(relation.pending))
            relation.table.settle()

        return run

    def _spend(self, relation: Relation, count: int) -> None:
        if not count:
            return
        self._left -= count
        self._inserted[relation.name] = self._inserted.get(relation.name, 0) + count
        if self._left < 0:
            raise self._ran_away(f"more than {self._max_inserted} new facts in one tick")
        if self._until is not None and self._clock is not None and self._clock() > self._until:
            raise self._ran_away("still new facts when the time for one tick was over")

    def _ran_away(self, what: str) -> RuleFailed:
        """Names the rule of the relation that grew most, and the last rows of it."""
        name = max(self._inserted, key=self._inserted.__getitem__)
        for number in sorted(range(len(self.rules)), key=lambda at: -self._recursion(at)):
            head = self._head(self.rules[number])
            if head.name == name:
                rows = list(head.states)[-3:]
                last = ", ".join([unparse(head.fact(row))[:60] for row in rows])
                return RuleFailed(number, {}, f"{what}, the last ones {last}")
        return RuleFailed(0, {}, what)

    def _recursion(self, number: int) -> int:
        """How many atoms of a rule are in the cycle of its head: the more, the likelier it runs away."""
        component = next(
            m for m in self.strata.components if self.names[id(self._head(self.rules[number]))] in m
        )
        return sum(self.names[id(atom.relation)] in component for atom in self.atoms[number])

    def _delay(self) -> None:
        """Compares what ``next`` says now with what holds because of the tick before."""
        for head in self._delayed:
            if head.news:
                now = self.heads[key(head.of), head.width, Verb.ASSERT]
                self._schedule += [(now, row, by) for row, by in head.delay()]

    @property
    def pending(self) -> bool:
        """Whether ``next`` has something to say in a tick that nothing else causes."""
        return bool(self._schedule) or any(head.is_due for head in self._delayed)

    # -- looking --------------------------------------------------------------------------------------

    def derived(self) -> Iterator[Value]:
        """What follows and nobody claims, as of the last tick that succeeded; O(those)."""
        for head in self._facts:
            yield from head.said()

    def held(self) -> Iterator[tuple[HeadRelation, Row]]:
        """What holds because of the tick before."""
        for head in self._delayed:
            for row in head.held:
                yield head, row

    def sent(self) -> Iterator[Value]:
        """What has been sent for as long as its body holds."""
        for head in self._sending:
            for row in head.states:
                if head.has(row):
                    yield head.fact(row)

    def asking(self) -> list[HeadRelation]:
        """The heads of ``next`` that ask for a tick."""
        due = {id(head) for head, _, _ in self._schedule}
        return [
            head
            for head in self._delayed
            if id(self.heads[key(head.of), head.width, Verb.ASSERT]) in due or head.is_due
        ]

    def spent(self, number: int) -> Spent:
        """What a rule has cost, if the engine was given a clock."""
        return self._costs.of(number)

    def relations(self) -> list[Relation]:
        """All relations, each once."""
        used = [atom.relation for atoms in self.atoms for atom in atoms]
        return list({id(each): each for each in [*self.heads.values(), *used]}.values())

    def rows(self) -> int:
        """Rows in all relations; O(relations)."""
        return sum(len(each.states) for each in self.relations())

    def forbidding(self, facts: Iterable[Value]) -> int:
        """How many of these facts are of a class that a negation asks for; O(facts)."""
        negated = self._negated
        return sum(None in negated or class_of(fact) in negated for fact in facts) if negated else 0

    def size(self) -> int:
        """Entries in all tables, the terms left out; nought when there are no facts, and rules need none."""
        rows = sum(len(each.states) + len(each.base) + len(each.pending) for each in self.relations())
        indexed = sum(
            len(bucket) for each in self.relations() for ix in each.indexes.values() for bucket in ix.values()
        )
        return rows + indexed + sum(len(each) + len(each.pending) for each in self.groupings.values())


class Unalias(Exception):
    """A claimed fact has more fields than the head it was taken for: the two have to be kept apart."""

    def __init__(self, label: Hashable) -> None:
        super().__init__(label)
        self.label = label
