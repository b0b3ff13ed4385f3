"""Explaining: why is a fact there, and why is another one not?

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
from typing import Any, Final

from dataspace.rules.engine.dependencies import DependencyGraph
from dataspace.rules.engine.describing import Description, Visible
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
    literal_text,
    literals_text,
    unify,
)
from dataspace.rules.language.syntax import (
    TIMELY,
    Aggregate,
    Arithmetic,
    Expression,
    Rule,
    TimeForm,
    TimeKind,
    Variable,
    Verb,
)
from dataspace.rules.relations.base_facts import BaseFacts
from dataspace.rules.relations.budgets import Spent
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.join_orders import BoundAtom, LookUp, failed_text
from dataspace.rules.relations.past_rows import RowTimes, row_times
from dataspace.rules.relations.proofs import (
    HIDDEN_RULE,
    WITHHELD,
    Lack,
    Owners,
    Proof,
    Sight,
    lack_of,
    lack_of_silence,
    sooner,
    withheld,
)
from dataspace.rules.relations.relations import Relation, State
from dataspace.rules.relations.terms import Row, RuleTerm
from dataspace.rules.relations.times import Times
from dataspace.rules.relations.views import View
from index.patterns.patterns import matcher
from index.patterns.text import unparse
from index.values.positions import Class, class_of
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

    ``facts`` has the claimed facts; ``times`` is what rules over time remember; ``stated`` gives the fact
    that a rule is from, by its number, and ``sight`` says what the asker may observe: everything, where there
    is none.  ``now`` is the present in microseconds; without it, the time of the last tick.
    """

    def __init__(
        self,
        dependencies: DependencyGraph,
        times: Times,
        spent: Callable[[int], Spent],
        facts: BaseFacts[Any],
        *,
        stated: Callable[[int], Value] = lambda _: None,
        sight: Sight | None = None,
        now: int | None = None,
    ) -> None:
        self._facts = facts
        texts = [sight is None or sight.fact(stated(at)) for at in range(len(dependencies.rules))]
        self._visible = Visible(dependencies, sight, texts)
        self.description: Final = Description(dependencies, spent, self._visible)
        """How the rules are carried out."""
        self._dependencies = dependencies
        self._terms = times.terms
        self._times = times
        self._now = times.time if now is None else max(now, times.time)
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
        if not self._visible.fact(fact):
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
        return Proof(fact, "next, from the tick before")

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
        premises, absent, hidden = self._premises(number, solutions, depth)
        by = rule.text if self._visible.texts[number] else HIDDEN_RULE
        return Proof(fact, by, tuple(premises), tuple(dict.fromkeys(absent)), hidden)

    def _premises(
        self, number: int, solutions: list[Solution], depth: int
    ) -> tuple[list[Proof], list[str], int]:
        """Returns proofs of the premises of a body, its patterns without a match, and the count withheld."""
        premises, absent, hidden = [], [], 0
        for solution in solutions:
            for atom in self._dependencies.atoms[number]:
                if not (atom.atom.negated or (atom.atom.maybe and atom.at not in solution.rows)):
                    premise = self._premise(atom, solution, depth + 1)
                    if premise is WITHHELD:
                        hidden += 1
                    else:
                        premises.append(premise)
                elif self._may_show(atom, solution.known):
                    absent.append(self._absent(atom, solution.known))
                else:
                    hidden += 1
        return premises, absent, hidden

    def _may_show(self, atom: BoundAtom, known: Known) -> bool:
        """True if the asker may observe what an atom asks for."""
        numbers = self._visible.making(atom.relation)
        if not numbers:
            return self._visible.pattern(instance_of(atom.atom, known))
        return all(
            self._may_show(each, known) for number in numbers for each in self._dependencies.atoms[number]
        )

    def _absent(self, atom: BoundAtom, known: Known) -> str:
        if self._visible.making(atom.relation):
            text = self._literal_text(atom, known)
            return f"not {text.removeprefix('maybe ')}" if atom.atom.maybe else text
        return f"not {unparse(instance_of(atom.atom, known))}"

    def _literal_text(self, atom: BoundAtom, known: Known) -> str:
        """Returns the literal for which an atom of a hidden head stands, with the known values."""
        rule = self._dependencies.rules[self._visible.making(atom.relation)[0]]
        if rule.form is not None:
            return literals_text(rule.form, known)
        return rule.shown if rule.part is None else literal_text(rule.part, known)

    def _form(self, atom: BoundAtom) -> TimeForm | None:
        """Returns how a hidden head depends on time; None for any other."""
        made = self._visible.making(atom.relation)
        return self._dependencies.rules[made[0]].form if made else None

    def _of_group(self, atom: BoundAtom, solution: Solution, depth: int) -> Proof:
        """Returns the facts for which a group of literals holds, from the branch that does."""
        if not self._may_show(atom, solution.known):
            return WITHHELD
        head, row = atom.relation, solution.rows[atom.at]
        assert isinstance(head, HeadRelation)  # a hidden one
        fact, state = head.fact(row), head.states[row]
        premises: list[Proof] = []
        absent: list[str] = []
        with suppress(SearchedEnough):
            for number in self._visible.making(head):
                found = next(self._solutions(number, fact, head, state), None)
                if found is not None:
                    premises, absent, _ = self._premises(number, found, depth)
                    break
        text = self._literal_text(atom, solution.known)
        return Proof(None, "group", tuple(premises), tuple(dict.fromkeys(absent)), literal=text)

    def _over_time(self, form: TimeForm, atom: BoundAtom, solution: Solution, depth: int) -> Proof:
        """Returns since when a literal with times holds, until when, and the facts that it needs."""
        if not self._may_show(atom, solution.known):
            return WITHHELD
        number = self._visible.making(atom.relation)[0]
        rule = self._dependencies.rules[number]
        past = self._times.forms.get(key(rule.head.label))
        shown = RowTimes() if past is None else row_times(past, solution.rows[atom.at])
        columns = zip(rule.head.arguments, atom.names, strict=True)
        known = {at: solution.known[name] for each, name in columns if (at := _variable(each))}
        premises: list[Proof] = []
        if shown.is_there:
            fact = Record.of(rule.head.label, tuple([term.value for term in solution.rows[atom.at]]))
            with suppress(SearchedEnough):
                for found in self._solver(number).solutions(known):
                    if form.kind is not TimeKind.NOW or gives(rule, found.known, fact):
                        premises = self._premises(number, [found], depth)[0]
                        known = found.known if form.kind is TimeKind.NOW else known
                        break
        text = literals_text(form, solution.known | known)
        return Proof(None, "time", tuple(premises), literal=text, since=shown.since, until=shown.until)

    def _solver(self, number: int) -> Solver:
        """Returns what finds the solutions of a body as it is, of whatever age."""
        rule, atoms = self._dependencies.rules[number], self._dependencies.atoms[number]
        return Solver(rule, atoms, self._terms, _any, self._allowance, self._lookups)

    def _premise(self, atom: BoundAtom, solution: Solution, depth: int) -> Proof:
        if self._visible.making(atom.relation):
            form = self._form(atom)
            if form is None:
                return self._of_group(atom, solution, depth)
            return self._over_time(form, atom, solution, depth)
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
            for head_row, head_state in self._lookups.candidates(head, given):
                self._allowance.spend()
                older = self._place(head) != self._place(relation) or head_state[2] < state[2]
                if head_state[2] and older and project(head_row) == row:
                    return self._proof(head, head.fact(head_row), head_state, depth)
        found = self._found(relation, shown)
        if found is None:
            return Proof(shown) if self._visible.pattern(shown) else WITHHELD
        return Proof(found) if self._visible.fact(found) else WITHHELD

    def _found(self, view: View, pattern: Value) -> Value | None:
        """Returns the fact that a pattern stands for, as it is; None if that takes too long to find."""
        if self._facts.holds(pattern):
            return pattern
        return next(self._matching(view.root, pattern), None)

    def _matching(self, root: Class | None, pattern: Value) -> Iterator[Value]:
        """Yields the claimed facts of a class that a pattern matches, as far as a question may look."""
        match = matcher(pattern)
        with suppress(SearchedEnough):
            for fact in self._alike(root, pattern):
                self._allowance.spend()
                if match(fact) is not None:
                    yield fact

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

    def claimed(self, pattern: Value) -> Value | None:
        """Returns a claimed fact that a pattern matches and the asker may observe, or None; as bounded."""
        found = self._matching(None if is_open(pattern) else class_of(pattern), pattern)
        return next(filter(self._visible.fact, found), None)

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
                    if match(fact) is not None and self._visible.fact(fact):
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
        lines = [_lack_text(row) for row in self.why_not_rows(fact)]
        return "\n".join(lines) or f"no rule derives facts like {unparse(fact)}{self._near(fact)}"

    def why_not_rows(self, fact: Value) -> Iterator[Map]:
        """Yields the same for programs: a row for each rule that could derive the fact, or the fact of the
        pattern that is there.

        ``due`` is the time at which a condition will hold if only time passes, ``ended`` the time from which
        on it did not hold any more.
        """
        there = self.match(fact)
        if there is not None:
            yield Map({"there": there})
            return
        hidden = 0
        for number, rule in enumerate(self._dependencies.rules):
            known = unify(rule, fact)
            if known is not None and self._visible.rule(number):
                lack = self._lacking(number, known)
                yield Map({"rule": rule.text, "lacks": lack.text, **lack.times})
            elif known is not None:
                hidden += 1
        if hidden:
            yield Map({"withheld": hidden})

    def _near(self, fact: Value) -> str:
        """Returns what the question may have meant: a label much like it, or the same with other fields."""
        if not isinstance(fact, Record):
            return ""
        heads = {str(head.of): head for head in self._dependencies.heads.values() if head.verb is Verb.ASSERT}
        near = get_close_matches(str(fact.label), heads, n=1)
        if not near:
            return ""
        for number, rule in enumerate(self._dependencies.rules):
            if str(rule.head.label) == near[0] and self._visible.rule(number):
                return f": did you mean {rule.head}?"
        return ""

    def _lacking(self, number: int, known: Known) -> Lack:
        """Returns what the body of a rule lacks for some values of its variables."""
        solver = self._solver(number)
        try:
            if next(solver.solutions(known), None) is not None:
                return Lack("its body holds, for other fields of the head")
            furthest = solver.furthest
            step = furthest.steps[furthest.depth]
            if isinstance(step, LookUp) and self._visible.making(step.atom.relation):
                form = self._form(step.atom)
                if form is None:
                    return self._lacking_in_group(step.atom, furthest.known)
                return self._lacking_in_time(form, step.atom, furthest.known)
        except SearchedEnough:
            return Lack(f"nothing found among the first {LOOKED_AT} rows: ask with fewer fields left open")
        given = ", ".join([f"${name} = {unparse(value)}" for name, value in furthest.known.items()])
        return Lack(f"{failed_text(step)}{f'  with {given}' if given else ''}")

    def _lacking_in_group(self, atom: BoundAtom, known: Known) -> Lack:
        """Returns why a group of literals does not hold, or what holds that must not."""
        text = self._literal_text(atom, known)
        if atom.atom.negated:
            return Lack(f"{text.removeprefix('not ')} holds")
        found: dict[str, Lack] = {}
        for number in self._visible.making(atom.relation):
            columns = zip(self._dependencies.rules[number].head.arguments, atom.names, strict=True)
            inner = {
                each.name: known[name]
                for each, name in columns
                if isinstance(each, Variable) and name in known
            }
            lack = self._lacking(number, inner)
            found.setdefault(lack.text, lack)
        if len(found) == 1:
            return next(iter(found.values()))
        due = min([each.due for each in found.values() if each.due is not None], default=None)
        return Lack(f"{text} does not hold: {'; '.join(found)}", due)

    def _lacking_in_time(self, form: TimeForm, atom: BoundAtom, known: Known) -> Lack:
        """Returns when a literal with times will hold, or since when it does not; else what it lacks."""
        number = self._visible.making(atom.relation)[0]
        rule = self._dependencies.rules[number]
        past = self._times.forms.get(key(rule.head.label))
        columns = list(zip(rule.head.arguments, atom.names, strict=True))
        given = {at: self._terms.of(known[name]) for at, (_, name) in enumerate(columns) if name in known}
        if atom.atom.negated and past is not None:
            silent: Row = tuple([given[at] for at in range(len(columns))])
            return lack_of_silence(literals_text(form, known), row_times(past, silent), self._now)
        found: Lack | None = None
        for row in () if past is None else past.rows():
            self._allowance.spend()
            if past is not None and all(row[at] is term for at, term in given.items()):
                pairs = zip(rule.head.arguments, row, strict=True)
                values = {at: term.value for each, term in pairs if (at := _variable(each))}
                found = sooner(found, lack_of(literals_text(form, known | values), past, row, self._now))
        if found is not None:
            return found
        if form.kind in (TimeKind.FOR, TimeKind.NOW, TimeKind.AT) and rule.body:
            inner = {at: known[name] for each, name in columns if name in known and (at := _variable(each))}
            return self._lacking(number, inner)
        return Lack(f"no match of {literals_text(form, known)}")


def _lack_text(row: Map) -> str:
    """Returns a row of ``why_not_rows`` for people."""
    if "there" in row:
        return f"{unparse(row['there'])} is there: ask why"
    hidden = row.get("withheld")
    return withheld(hidden, "rule") if isinstance(hidden, int) else f"{row['rule']!s}\n    {row['lacks']!s}"


def _any(_relation: Relation, _state: State) -> bool:
    return True


def _variable(argument: Expression | Aggregate) -> str:
    """Returns the variable whose values a column has; empty if it is calculated."""
    if isinstance(argument, Arithmetic) and argument.operator == TIMELY:
        argument = argument.left
    return argument.name if isinstance(argument, Variable) else ""
