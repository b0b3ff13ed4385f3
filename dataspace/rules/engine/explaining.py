"""Explaining: how are rules carried out, why is a fact there, and why is another one not?

A proof is a tree of facts, each with the rule that derives it and the premises it has.  It always ends.
Within a cycle of rules only premises older than the fact are taken; there is always a derivation from such
premises, since that is what keeps the fact there.  Other premises are of lower strata.

An answer shows only facts, patterns and rules that the asker may observe.  The others are counted, and the
answer says how many are withheld.

Always: explaining changes nothing, and costs nothing unless asked for; a question looks at a bounded number
of rows; an answer has only the count of facts that may not be observed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Any

from dataspace.flows.mermaid import DiagramPart
from dataspace.rules.engine.dependencies import GROUP, DependencyGraph
from dataspace.rules.engine.query import (
    FILED,
    Allowance,
    Known,
    Lookups,
    SearchedEnough,
    Solution,
    Solver,
    gives,
    instance_of,
    is_open,
    unify,
)
from dataspace.rules.language.syntax import Rule, Verb
from dataspace.rules.relations.base_facts import BaseFacts
from dataspace.rules.relations.budgets import Spent
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.join_orders import BoundAtom, failed_text, plan, step_text
from dataspace.rules.relations.proofs import HIDDEN_RULE, WITHHELD, Owners, Proof, Sight, withheld
from dataspace.rules.relations.relations import Relation, State
from dataspace.rules.relations.terms import RuleTerm, Terms
from dataspace.rules.relations.views import View
from index.patterns.patterns import matcher
from index.patterns.text import unparse
from index.values.positions import Class
from index.values.values import Map, Record, Value, key, same

__all__ = ("Explainer", "Owners", "Proof", "Sight")

SHOWN = 5
"""Solutions of an aggregate that a proof shows."""

DEEPEST = 40
"""Levels of a proof that are shown."""

MOST = 1000
"""Facts of a proof that are shown."""

LOOKED_AT = 50_000
"""Rows that one question may look at; others wait meanwhile, for less than a second."""


class Explainer:
    """Answers questions about the rules of a space; ``spent`` returns the cost of a rule, by its number.

    ``facts`` has the claimed facts; ``stated`` gives the fact that a rule is from, by its number, and
    ``sight`` says what the asker may observe: everything, where there is none.
    """

    def __init__(
        self,
        dependencies: DependencyGraph,
        terms: Terms,
        spent: Callable[[int], Spent],
        facts: BaseFacts[Any],
        *,
        stated: Callable[[int], Value] = lambda _: None,
        sight: Sight | None = None,
    ) -> None:
        self._facts = facts
        self._sight = sight
        self._visible = [sight is None or sight.fact(stated(at)) for at in range(len(dependencies.rules))]
        self._dependencies = dependencies
        self._terms = terms
        self._spent = spent
        self._shown: set[Hashable] = set()
        self._allowance = Allowance(LOOKED_AT)
        self._lookups = Lookups(self._allowance)
        self._filed: dict[tuple[Class | None, int], dict[Hashable, list[Value]]] = {}
        self._component = {
            name: at for at, members in enumerate(dependencies.strata.components) for name in members
        }

    # -- why ------------------------------------------------------------------------------------------

    def why(self, fact: Value) -> Proof | None:
        """Returns a proof of a fact that rules derive; None if none does.  O(searched rows), bounded."""
        if not isinstance(fact, Record):
            return None
        head = self._dependencies.heads.get((key(fact.label), len(fact.fields), Verb.ASSERT))
        row = self._terms.row(fact.fields)
        if head is None or not head.has(row):
            return None
        self._shown = set()
        return self._proof(head, fact, head.states[row], 0)

    def _proof(self, head: HeadRelation, fact: Value, state: State, depth: int) -> Proof:
        if not self._sees(fact):
            return WITHHELD
        if self._is_claimed(head, fact):
            return Proof(fact)
        if key(fact) in self._shown:
            return Proof(fact, "what is shown above")
        if depth > DEEPEST or len(self._shown) >= MOST:
            return Proof(fact, "rules, further down than is shown")
        self._shown.add(key(fact))
        try:
            for number, rule in enumerate(self._dependencies.rules):
                if self._dependencies.head(rule) is head:
                    for solution in self._solutions(number, fact, head, state):
                        return self._derived(number, rule, fact, solution, depth)
        except SearchedEnough:
            return Proof(fact, "rules, by more rows than a question may look at")
        is_kept = head.verb is Verb.TIMED
        return Proof(fact, "what was there before" if is_kept else "next, from the tick before")

    def _solutions(self, number: int, fact: Value, head: Relation, state: State) -> Iterator[list[Solution]]:
        """Yields the ways in which a rule derives a fact; all solutions of an aggregate are one way."""
        rule = self._dependencies.rules[number]
        known = unify(rule, fact)
        if known is None:
            return
        mine = self._place(head)

        def admits(relation: Relation, premise: State) -> bool:
            return self._place(relation) != mine or premise[2] < state[2]

        atoms = self._dependencies.atoms[number]
        solver = Solver(rule, atoms, self._terms, admits, self._allowance, self._lookups)
        found = (each for each in solver.solutions(known) if gives(rule, each.known, fact))
        if rule.head.aggregates:
            some = list(islice(found, SHOWN))
            if some:
                yield some
        else:
            yield from ([each] for each in found)

    def _derived(self, number: int, rule: Rule, fact: Value, solutions: list[Solution], depth: int) -> Proof:
        premises, absent, hidden = [], [], 0
        for solution in solutions:
            for atom in self._dependencies.atoms[number]:
                if not atom.atom.negated:
                    premise = self._premise(atom, solution, depth + 1)
                    if premise is WITHHELD:
                        hidden += 1
                    else:
                        premises.append(premise)
                    continue
                instance = instance_of(atom.atom, solution.known)
                if self._sight is None or self._sight.pattern(instance):
                    absent.append(f"not {unparse(instance)}")
                else:
                    hidden += 1
        by = str(rule) if self._visible[number] else HIDDEN_RULE
        return Proof(fact, by, tuple(premises), tuple(dict.fromkeys(absent)), hidden)

    def _sees(self, fact: Value) -> bool:
        return self._sight is None or self._sight.fact(fact)

    def _premise(self, atom: BoundAtom, solution: Solution, depth: int) -> Proof:
        relation, row = atom.relation, solution.rows[atom.at]
        state = relation.states[row]
        if isinstance(relation, HeadRelation):
            return self._proof(relation, relation.fact(row), state, depth)
        assert isinstance(relation, View)  # there are no others
        shown = instance_of(atom.atom, solution.known)
        for head in self._dependencies.matching(relation):
            project = relation.projection(head.of, head.width, self._terms)
            columns = relation.columns(head.of) or ()
            given = dict(zip(columns, row, strict=False))
            for each, its in self._lookups.candidates(head, given):
                self._allowance.spend()
                older = self._place(head) != self._place(relation) or its[2] < state[2]
                if its[2] and older and project(each) == row:
                    return self._proof(head, head.fact(each), its, depth)
        found = self._found(relation, shown)
        if found is None:
            return Proof(shown) if self._sight is None or self._sight.pattern(shown) else WITHHELD
        return Proof(found) if self._sees(found) else WITHHELD

    def _found(self, view: View, pattern: Value) -> Value | None:
        """Returns the fact that a pattern stands for, as it is; None if that takes too long to find."""
        if self._facts.holds(pattern):
            return pattern
        match = matcher(pattern)
        try:
            for fact in self._alike(view.root, pattern):
                self._allowance.spend()
                if match(fact) is not None:
                    return fact
        except SearchedEnough:
            pass
        return None

    def _alike(self, root: Class | None, pattern: Value) -> Iterable[Value]:
        """Returns facts of a class with the same value in the first field that is a constant."""
        fixed = next(iter(self._fixed(pattern).items()), None)
        if fixed is None:
            return self._facts.look(root)
        at, term = fixed
        filed = self._filed.get((root, at))
        if filed is None:
            self._allowance.spend(self._facts.count((root,)) // FILED)
            filed = self._filed[root, at] = {}
            for fact in self._facts.look(root):
                if isinstance(fact, Record) and len(fact.fields) > at:
                    filed.setdefault(key(fact.fields[at]), []).append(fact)
        return filed.get(key(term.value), ())

    def _is_claimed(self, head: HeadRelation, fact: Value) -> bool:
        """True if an owner claims the fact of a row."""
        assert isinstance(fact, Record)  # heads derive nothing else
        return self._terms.row(fact.fields) in head.base

    def _place(self, relation: Relation) -> int:
        return self._component.get(self._dependencies.names[id(relation)], -1)

    def match(self, pattern: Value) -> Value | None:
        """Returns a fact that rules derive now, that a pattern matches and the asker may observe, or None.

        It is not looked for any further than a question may.
        """
        with suppress(SearchedEnough):
            return self._match(pattern)
        return None

    def _match(self, pattern: Value) -> Value | None:
        match, fixed = matcher(pattern), self._fixed(pattern)
        for head in self._dependencies.of_verb(Verb.ASSERT):
            if isinstance(pattern, Record) and not (is_open(pattern) or same(head.of, pattern.label)):
                continue
            if any(at >= head.width for at in fixed):
                continue
            for row, state in self._lookups.candidates(head, fixed):
                self._allowance.spend()
                if state[2] and all(row[at] is term for at, term in fixed.items()):
                    fact = head.fact(row)
                    if match(fact) is not None and self._sees(fact):
                        return fact
        return None

    def _fixed(self, pattern: Value) -> dict[int, RuleTerm]:
        """Returns the terms of the fields that are constants, so that not all rows have to become facts."""
        if not isinstance(pattern, Record) or is_open(pattern):
            return {}
        plain = (str, int, float, bool, bytes)
        return {at: self._terms.of(each) for at, each in enumerate(pattern.fields) if isinstance(each, plain)}

    # -- why not --------------------------------------------------------------------------------------

    def why_not(self, fact: Value) -> str:
        """Returns what each rule lacks to derive a fact, or any fact of a pattern such as ``reach(1, _)``."""
        there = self.match(fact)
        if there is not None:
            return f"{unparse(there)} is there: ask why"
        lines, hidden = [], 0
        for number, rule, lacking in self._lackings(fact):
            if self._shows(number):
                lines.append(f"{rule}\n    {lacking}")
            else:
                hidden += 1
        lines += [withheld(hidden, "rule")] * bool(hidden)
        return "\n".join(lines) or f"no rule derives facts like {unparse(fact)}{self._near(fact)}"

    def why_not_rows(self, fact: Value) -> Iterator[Map]:
        """Yields the same for programs: a row for each rule that could derive the fact, or for the rule that
        does."""
        there = self.match(fact)
        if there is not None:
            yield Map({"there": there})
            return
        hidden = 0
        for number, rule, lacking in self._lackings(fact):
            if self._shows(number):
                yield Map({"rule": str(rule), "lacks": lacking})
            else:
                hidden += 1
        if hidden:
            yield Map({"withheld": hidden})

    def _shows(self, number: int) -> bool:
        """True if the asker may observe a rule, and all its atoms."""
        sight = self._sight
        return sight is None or (
            self._visible[number]
            and all(sight.pattern(view.form.pattern) for view in self._dependencies.asked[number])
        )

    def _lackings(self, fact: Value) -> Iterator[tuple[int, Rule, str]]:
        for number, rule in enumerate(self._dependencies.rules):
            known = unify(rule, fact)
            if known is not None:
                yield number, rule, self._lacking(number, rule, known) if self._shows(number) else ""

    def _near(self, fact: Value) -> str:
        """Returns what the question may have meant: a label much like it, or the same with other fields."""
        if not isinstance(fact, Record):
            return ""
        heads = {str(head.of): head for head in self._dependencies.heads.values() if head.verb is Verb.ASSERT}
        near = get_close_matches(str(fact.label), heads, n=1)
        if not near:
            return ""
        for number, rule in enumerate(self._dependencies.rules):
            if str(rule.head.label) == near[0] and self._shows(number):
                return f": did you mean {rule.head}?"
        return ""

    def _lacking(self, number: int, rule: Rule, known: Known) -> str:
        atoms = self._dependencies.atoms[number]
        solver = Solver(rule, atoms, self._terms, _any, self._allowance, self._lookups)
        try:
            if next(solver.solutions(known), None) is not None:
                return "its body holds, for other fields of the head"
        except SearchedEnough:
            return f"nothing found among the first {LOOKED_AT} rows: ask with fewer fields left open"
        furthest = solver.furthest
        step = furthest.steps[furthest.depth]
        given = ", ".join([f"${name} = {unparse(value)}" for name, value in furthest.known.items()])
        return f"{failed_text(step)}{f'  with {given}' if given else ''}"

    # -- how ------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Returns strata with their relations, rows and indexes, then each rule with its join orders."""
        lines = []
        by_name = {self._dependencies.names[id(each)]: each for each in self._dependencies.relations()}
        hidden = 0
        for stratum in range(self._dependencies.strata.count):
            lines.append(f"stratum {stratum}")
            for members in self._dependencies.strata.members(stratum):
                seen = [name for name in members if self._shows_relation(name, by_name.get(name))]
                hidden += len(members) - len(seen)
                lines += [f"    {_line(name, by_name.get(name))}" for name in seen]
                if len(seen) > 1:
                    lines.append(f"    ^ a cycle of {len(members)}")
        if hidden:
            lines.append(withheld(hidden, "relation"))
        if rules := sum(not self._shows(number) for number in range(len(self._dependencies.rules))):
            lines += ["", withheld(rules, "rule")]
        for number, rule in enumerate(self._dependencies.rules):
            if not self._shows(number):
                continue
            how = [*self._cost(number), *self._orders(number, rule)]
            lines += ["", str(rule), *[f"    {line}" for line in how]]
        return "\n".join(lines)

    def explained_rows(self) -> Iterator[Map]:
        """Yields the same for programs: a row for each relation, then one for each rule."""
        by_name = {self._dependencies.names[id(each)]: each for each in self._dependencies.relations()}
        for stratum in range(self._dependencies.strata.count):
            for members in self._dependencies.strata.members(stratum):
                for name in members:
                    if not self._shows_relation(name, by_name.get(name)):
                        continue
                    row = {"stratum": stratum, "relation": name.strip(), "cycle": len(members) > 1}
                    yield Map(row | _counts(by_name.get(name)))
        for number, rule in enumerate(self._dependencies.rules):
            if not self._shows(number):
                continue
            spent, orders = self._spent(number), tuple(self._orders(number, rule))
            took = spent.nanoseconds / 1e6
            yield Map({"rule": str(rule), "rows": spent.calls, "milliseconds": took, "orders": orders})

    def _shows_relation(self, name: str, relation: Relation | None) -> bool:
        """True if the asker may observe all facts of a relation, or see the rule of a group."""
        sight = self._sight
        if sight is None:
            return True
        if relation is None:
            return self._shows(int(name.removeprefix(GROUP)) - 1)
        if isinstance(relation, View):
            return sight.pattern(relation.form.pattern)
        assert isinstance(relation, HeadRelation)  # there are no others
        return sight.pattern(Record.of(relation.of, (Record("_"),) * relation.width))

    @property
    def shows_all(self) -> bool:
        """True if nothing of the rules has to be withheld from the asker."""
        names = {self._dependencies.names[id(each)]: each for each in self._dependencies.relations()}
        return all(map(self._shows, range(len(self._dependencies.rules)))) and all(
            self._shows_relation(name, relation) for name, relation in names.items()
        )

    def _cost(self, number: int) -> list[str]:
        spent = self._spent(number)
        return [f"{spent.calls} rows took {spent.nanoseconds / 1e6:.1f} ms"] if spent.calls else []

    def _orders(self, number: int, rule: Rule) -> Iterator[str]:
        """Yields the order in which the body is looked up, from each of its atoms."""
        atoms = self._dependencies.atoms[number]
        for atom in atoms:
            steps = [step_text(step) for step in plan(rule, atoms, atom)]
            yield f"{atom.atom} -> {', '.join([*steps, str(rule.head)])}"

    def part(self) -> DiagramPart:
        """Returns strata, handoffs and inputs that block, to be drawn."""
        return DiagramPart("", self._dependencies.graph, self._dependencies.strata)

    def monotonicity(self) -> str:
        """Returns which rules only ever add facts when facts are added, and which not, and at which input."""
        lines = [
            f"{rule}\n    {'not monotone: ' + '; '.join(reasons) if reasons else 'monotone'}"
            for rule, reasons in self._leanings()
        ]
        hidden = len(self._dependencies.rules) - len(lines)
        return "\n".join([*lines, *[withheld(hidden, "rule")] * bool(hidden)])

    def monotonicity_rows(self) -> Iterator[Map]:
        """Yields the same for programs."""
        for rule, reasons in self._leanings():
            yield Map({"rule": str(rule), "monotone": not reasons, "because": tuple(reasons)})

    def _leanings(self) -> Iterator[tuple[Rule, list[str]]]:
        """Yields the rules, each with why it may take facts away when others are added."""
        shrinking = self._not_monotone()
        for number, rule in enumerate(self._dependencies.rules):
            own = [f"waits for all of {atom}" for atom in _blocking(rule)]
            leaning = [
                f"leans on {self._dependencies.names[id(atom.relation)].strip()}"
                for atom in self._dependencies.atoms[number]
                if id(atom.relation) in shrinking
            ]
            if self._shows(number):
                yield rule, list(dict.fromkeys([*own, *leaning]))

    def _not_monotone(self) -> set[int]:
        """Returns the relations that may shrink when facts are added."""
        shrinking: set[int] = set()
        grown = True
        while grown:
            before = len(shrinking)
            for number, rule in enumerate(self._dependencies.rules):
                leans = any(id(atom.relation) in shrinking for atom in self._dependencies.atoms[number])
                if leans or next(_blocking(rule), None) is not None:
                    head = rule.head
                    shrinking.add(id(self._dependencies.head(rule)))
                    now = self._dependencies.heads.get((key(head.label), len(head.arguments), Verb.ASSERT))
                    shrinking.update({id(now)} if now is not None else ())
            for view in self._dependencies.views.values():
                if any(id(head) in shrinking for head in self._dependencies.matching(view)):
                    shrinking.add(id(view))
            grown = len(shrinking) > before
        return shrinking


def _any(_relation: Relation, _state: State) -> bool:
    return True


def _blocking(rule: Rule) -> Iterator[str]:
    if rule.form is not None:
        yield rule.form.shown
    for atom in rule.atoms:
        if atom.negated or rule.head.aggregates:
            yield str(atom)


def _line(name: str, relation: Relation | None) -> str:
    """Returns a relation, or a group, as ``explain`` lists it."""
    if relation is None:
        return name
    indexes = [
        f"by {', '.join(map(str, columns)) or 'nothing'}: {len(index)}"
        for columns, index in relation.indexes.items()
    ]
    what = f"{relation.count()} rows"
    return f"{name.strip():<30} {what:>12}{'  indexes ' if indexes else ''}{'; '.join(indexes)}"


def _counts(relation: Relation | None) -> dict[str, Value]:
    """Returns how many rows a relation has, and its indexes; nothing for a group."""
    if relation is None:
        return {}
    indexes = [Map({"columns": columns, "keys": len(index)}) for columns, index in relation.indexes.items()]
    return {"rows": relation.count(), "indexes": tuple(indexes)}
