"""The engine: a fixed set of rules, and what follows from the facts that it is told of.

An outline says which relations the rules have, and in which order they settle; here they are filled with
functions and tables, and run.  A tick takes what changed, counts derivations as it goes, and then lets one
stratum after the other settle.
An engine is thrown away when a rule in it fails: ``program`` then makes another without that rule.

Always: after a tick the derived facts are those that follow from the claimed facts and from nothing else,
whichever way they came to be; the relations of a stratum change only when all below are settled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Final

from dataspace.rules.budgets import MAX_TEXT, STEPS_FOR_EACH_ROW, TEXT_OF_A_ROW, Budget
from dataspace.rules.compiling import Compiler, RuleLimits
from dataspace.rules.costs import Costs, Spent
from dataspace.rules.derived import Derived
from dataspace.rules.failures import RuleFailed
from dataspace.rules.grouping import Grouping
from dataspace.rules.heads import HeadRelation, lead
from dataspace.rules.outlines import GROUP, Outline
from dataspace.rules.relations import Relation, settle
from dataspace.rules.syntax import Rule, Verb
from dataspace.rules.tables import write
from dataspace.rules.terms import Row, Terms
from dataspace.rules.views import View
from index.positions import Class, class_of
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
    ) -> None:
        self.outline = outline = Outline(rules, apart)
        self.terms = Terms()
        self._costs = Costs(clock)
        self._clock = clock
        self._deadline = deadline
        self._until: int | None = None
        self._ticks = [0]
        self._limits: dict[int, RuleLimits] = {}
        self._groupings: dict[int, Grouping] = {}
        self._max_inserted = max_inserted
        self._stamp = 0
        self._inserted: dict[str, int] = {}
        self._left = 0
        self._routes: dict[Class, list[View]] = {}
        self._wild: list[View] = []
        self._negated: set[Class | None] = set()  # of what negations ask for; None for any
        self._claimable = outline.claimable
        self._schedule: list[tuple[HeadRelation, Row, int]] = []
        self._facts = outline.of_verb(Verb.ASSERT)
        self._delayed = outline.of_verb(Verb.NEXT)
        self._sending = outline.of_verb(Verb.SEND)
        self._units = [self._unit(step) for step in outline.steps]
        self._fill_in()

    # -- building -------------------------------------------------------------------------------------

    def _unit(self, step: int | list[Relation]) -> Unit:
        if isinstance(step, int):
            rule = self.outline.rules[step]
            grouping = Grouping(f"{GROUP}{step + 1}", rule, self.outline.head(rule), self.terms)
            self._groupings[step] = grouping
            return Unit((grouping.pending,), grouping.settle)
        if id(step[0]) in self.outline.cycles:
            return Unit(tuple([each.pending for each in step]), self._cycle(step))
        return Unit((step[0].pending,), self._single(step[0]))

    def _fill_in(self) -> None:
        """Makes the functions and tables."""
        outline = self.outline
        for view in outline.views.values():
            self._feed(view)
        for number, atoms in enumerate(outline.atoms):
            self._negated.update(outline.asked[number][n].root for n, a in enumerate(atoms) if a.atom.negated)
            self._compiler(number).install()
        for relation in outline.relations():
            relation.in_cycle = id(relation) in outline.cycles
            write(relation)
        for number, rule in enumerate(outline.rules):
            if all(atom.negated for atom in rule.atoms):  # it holds from the start, or is not refuted yet
                self._compiler(number).hold()

    def _feed(self, view: View) -> None:
        """Leads claimed and derived facts into a view."""
        alias = self.outline.alias(view)
        if alias is not None:
            alias.is_shown = True
            return
        self._route(view)
        view.is_plain = not any(self.outline.matching(view))
        for head in self.outline.matching(view):
            lead(head, view, self.terms, within=view in self.outline.cycles.get(id(head), ()))

    def _route(self, view: View) -> None:
        """Has facts of the class of a view, or of all classes, read by it."""
        if view.root is not None:
            self._routes.setdefault(view.root, self._wild[:]).append(view)
            return
        self._wild.append(view)
        for views in self._routes.values():
            views.append(view)

    def _compiler(self, number: int) -> Compiler:
        rule, grouping = self.outline.rules[number], self._groupings.get(number)
        head = self.outline.head(rule)
        return Compiler(
            number,
            rule,
            self.outline.atoms[number],
            head,
            [] if grouping is not None else self.outline.cycles.get(id(head), ()),
            self.terms,
            None if grouping is None else grouping.change,
            self._limit(number),
            self._costs.meter(number),
        )

    def _limit(self, number: int) -> RuleLimits:
        known = self._limits.get(number)
        if known is None:
            most = self._max_inserted
            waiting = (
                () if number in self._groupings else self.outline.head(self.outline.rules[number]).pending
            )
            rows, late = STEPS_FOR_EACH_ROW * most, self._is_late
            steps = Budget(number, rows, "rows were looked at", self._ticks, waiting, most, is_late=late)
            text = Budget(number, MAX_TEXT, "characters of values were made", self._ticks, is_late=late)
            known = self._limits[number] = RuleLimits(steps, text)
        return known

    def _is_late(self) -> bool:
        return self._until is not None and self._clock is not None and self._clock() > self._until

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
            head = self.outline.heads.get((key(old.of), old.width, Verb.NEXT))
            if head is not None:
                mine = self.terms.row(tuple([term.value for term in row]))
                head.held[mine] = None
                head.news.noted.append(mine)
                self.outline.heads[key(old.of), old.width, Verb.ASSERT].support(mine, +1)
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
        if self._is_late():
            raise self._ran_away("still new facts when the time for one tick was over")

    def _ran_away(self, what: str) -> RuleFailed:
        """Names the rule of the relation that grew most, and the last rows of it."""
        name = max(self._inserted, key=self._inserted.__getitem__)
        outline = self.outline
        for number in sorted(range(len(outline.rules)), key=lambda at: -outline.recursion(at)):
            head = outline.head(outline.rules[number])
            if head.name == name:
                rows = list(head.states)[-3:]
                last = ", ".join([unparse(head.fact(row))[:60] for row in rows])
                return RuleFailed(number, {}, f"{what}, the last ones {last}", overran=True)
        return RuleFailed(0, {}, what, overran=True)

    def heavy(self) -> list[int]:
        """The rules that have used at least half of an even share of what this tick took.  O(rules)."""
        used = [self._used(number, rule) for number, rule in enumerate(self.outline.rules)]
        return [number for number, its in enumerate(used) if its and 2 * its * len(used) >= sum(used)]

    def _used(self, number: int, rule: Rule) -> int:
        """Rows that a rule has looked at and made in this tick, and as many for the text of its values."""
        limits = self._limit(number)
        made = self._inserted.get(self.outline.head(rule).name, 0)
        return limits.steps.used + made + limits.text.used // TEXT_OF_A_ROW

    def _delay(self) -> None:
        """Compares what ``next`` says now with what holds because of the tick before."""
        for head in self._delayed:
            if head.news:
                now = self.outline.heads[key(head.of), head.width, Verb.ASSERT]
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
            if id(self.outline.heads[key(head.of), head.width, Verb.ASSERT]) in due or head.is_due
        ]

    def spent(self, number: int) -> Spent:
        """What a rule has cost, if the engine was given a clock."""
        return self._costs.of(number)

    def rows(self) -> int:
        """Rows in all relations; O(relations)."""
        return sum(len(each.states) for each in self.outline.relations())

    def forbidding(self, facts: Iterable[Value]) -> int:
        """How many of these facts are of a class that a negation asks for; O(facts)."""
        negated = self._negated
        return sum(None in negated or class_of(fact) in negated for fact in facts) if negated else 0

    def size(self) -> int:
        """Entries in all tables, without terms and what is kept of rows that are gone.

        Nought when there are no facts, and rules need none.
        """
        rows = sum(each.size() for each in self.outline.relations())
        return rows + sum(len(each) + len(each.pending) for each in self._groupings.values())


class Unalias(Exception):
    """A claimed fact has more fields than the head it was taken for: the two have to be kept apart."""

    def __init__(self, label: Hashable) -> None:
        super().__init__(label)
        self.label = label
