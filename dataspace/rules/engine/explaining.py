"""Explaining: how are rules carried out, why is a fact there, and why is another one not?

A proof is a tree of facts, each with the rule that derives it and the premises it has.  It always ends:
within a cycle of rules only premises older than the fact are taken, of which there is always a way, since
that is what keeps the fact there; and other premises are of lower strata.

Always: explaining changes nothing, and costs nothing unless asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from dataspace.flows.mermaid import Part
from dataspace.rules.engine.costs import Spent
from dataspace.rules.engine.dependencies import Outline
from dataspace.rules.engine.join_orders import Bind, BoundAtom, Look, Step, plan
from dataspace.rules.engine.query import (
    Allowance,
    Known,
    SearchedEnough,
    Solution,
    Solver,
    gives,
    is_open,
    unify,
)
from dataspace.rules.language.syntax import Atom, Rule, Structure, Verb
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.relations import Relation, State
from dataspace.rules.relations.terms import Term, Terms
from dataspace.rules.relations.views import View
from index.patterns.patterns import matcher
from index.patterns.text import unparse
from index.values.positions import Class
from index.values.values import Map, Record, Value, key, same

SHOWN = 5
"""Solutions of an aggregate that a proof shows."""

DEEPEST = 40
"""Levels of a proof that are shown."""

MOST = 1000
"""Facts of a proof that are shown."""

LOOKED_AT = 50_000
"""Rows that one question may look at, in which time nobody else has a turn: less than a second."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a fact is there: by a rule and its premises, or because it is claimed (``rule`` is then empty)."""

    fact: Value
    rule: str = ""
    premises: tuple[Proof, ...] = ()
    absent: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, depth: int = 0) -> Iterator[str]:
        """The proof as indented text."""
        because = f"by {self.rule}" if self.rule else "claimed"
        yield f"{'    ' * depth}{unparse(self.fact)}    {because}"
        for premise in self.premises:
            yield from premise.lines(depth + 1)
        for text in self.absent:
            yield f"{'    ' * (depth + 1)}{text}"

    def rows(self, depth: int = 0) -> Iterator[Map]:
        """The same for programs: a row for each fact, and for each pattern that must have no match."""
        yield Map({"depth": depth, "fact": self.fact, "by": self.rule or "claimed"})
        for premise in self.premises:
            yield from premise.rows(depth + 1)
        yield from [Map({"depth": depth + 1, "absent": text}) for text in self.absent]


class Explainer:
    """What can be asked of rules that are carried out; ``spent`` says what one has cost, by its number.

    ``facts`` gives the facts that are claimed of a class, or all.
    """

    def __init__(
        self,
        outline: Outline,
        terms: Terms,
        spent: Callable[[int], Spent],
        facts: Callable[[Class | None], Iterable[Value]] = lambda _: (),
    ) -> None:
        self._facts = facts
        self._outline = outline
        self._terms = terms
        self._spent = spent
        self._shown: set[Hashable] = set()
        self._allowance = Allowance(LOOKED_AT)
        self._component = {
            name: at for at, members in enumerate(outline.strata.components) for name in members
        }

    # -- why ------------------------------------------------------------------------------------------

    def why(self, fact: Value) -> Proof | None:
        """A proof of a fact that rules derive; None if none does now.  O(what is searched), bounded."""
        if not isinstance(fact, Record):
            return None
        head = self._outline.heads.get((key(fact.label), len(fact.fields), Verb.ASSERT))
        row = self._terms.row(fact.fields)
        if head is None or not head.has(row):
            return None
        self._shown = set()
        return self._proof(head, fact, head.states[row], 0)

    def _proof(self, head: HeadRelation, fact: Value, state: State, depth: int) -> Proof:
        if self._is_claimed(head, fact):
            return Proof(fact)
        if key(fact) in self._shown:
            return Proof(fact, "what is shown above")
        if depth > DEEPEST or len(self._shown) >= MOST:
            return Proof(fact, "rules, further down than is shown")
        self._shown.add(key(fact))
        try:
            for number, rule in enumerate(self._outline.rules):
                if self._outline.head(rule) is head:
                    for solution in self._solutions(number, fact, head, state):
                        return self._derived(number, rule, fact, solution, depth)
        except SearchedEnough:
            return Proof(fact, "rules, by more rows than a question may look at")
        return Proof(fact, "next, from the tick before")

    def _solutions(self, number: int, fact: Value, head: Relation, state: State) -> Iterator[list[Solution]]:
        """The ways in which a rule derives a fact; all solutions of an aggregate are one way."""
        rule = self._outline.rules[number]
        known = unify(rule, fact)
        if known is None:
            return
        mine = self._place(head)

        def admits(relation: Relation, premise: State) -> bool:
            return self._place(relation) != mine or premise[2] < state[2]

        solver = Solver(rule, self._outline.atoms[number], self._terms, admits, self._allowance)
        found = (each for each in solver.solutions(known) if gives(rule, each.known, fact))
        if rule.head.aggregates:
            some = list(islice(found, SHOWN))
            if some:
                yield some
        else:
            yield from ([each] for each in found)

    def _derived(self, number: int, rule: Rule, fact: Value, solutions: list[Solution], depth: int) -> Proof:
        premises, absent = [], []
        for solution in solutions:
            for atom in self._outline.atoms[number]:
                if atom.atom.negated:
                    absent.append(f"not {unparse(_instance(atom.atom, solution.known))}")
                else:
                    premises.append(self._premise(atom, solution, depth + 1))
        return Proof(fact, str(rule), tuple(premises), tuple(dict.fromkeys(absent)))

    def _premise(self, atom: BoundAtom, solution: Solution, depth: int) -> Proof:
        relation, row = atom.relation, solution.rows[atom.at]
        state = relation.states[row]
        if isinstance(relation, HeadRelation):
            return self._proof(relation, relation.fact(row), state, depth)
        assert isinstance(relation, View)  # there are no others
        shown = _instance(atom.atom, solution.known)
        for head in self._outline.matching(relation):
            project = relation.projection(head.of, head.width, self._terms)
            for each, its in head.states.items():
                self._allowance.spend()
                older = self._place(head) != self._place(relation) or its[2] < state[2]
                if its[2] and older and project(each) == row:
                    return self._proof(head, head.fact(each), its, depth)
        return Proof(self._found(relation, shown))

    def _found(self, view: View, pattern: Value) -> Value:
        """The fact that a pattern stands for, as it is; or the pattern, if that takes too long to find."""
        match = matcher(pattern)
        try:
            for fact in self._facts(view.root):
                self._allowance.spend()
                if match(fact) is not None:
                    return fact
        except SearchedEnough:
            pass
        return pattern

    def _is_claimed(self, head: HeadRelation, fact: Value) -> bool:
        """Whether somebody claims the fact of a row."""
        assert isinstance(fact, Record)  # heads derive nothing else
        return self._terms.row(fact.fields) in head.base

    def _place(self, relation: Relation) -> int:
        return self._component.get(self._outline.names[id(relation)], -1)

    def match(self, pattern: Value) -> Value | None:
        """A fact that rules derive now and a pattern matches, or None.  O(rows of its label)."""
        match, fixed = matcher(pattern), self._fixed(pattern)
        for head in self._outline.of_verb(Verb.ASSERT):
            if isinstance(pattern, Record) and not (is_open(pattern) or same(head.of, pattern.label)):
                continue
            for row, state in head.states.items():
                if state[2] and all(at < len(row) and row[at] is term for at, term in fixed.items()):
                    fact = head.fact(row)
                    if match(fact) is not None:
                        return fact
        return None

    def _fixed(self, pattern: Value) -> dict[int, Term]:
        """The terms of the fields that are constants, so that not all rows need be made facts of."""
        if not isinstance(pattern, Record) or is_open(pattern):
            return {}
        plain = (str, int, float, bool, bytes)
        return {at: self._terms.of(each) for at, each in enumerate(pattern.fields) if isinstance(each, plain)}

    # -- why not --------------------------------------------------------------------------------------

    def why_not(self, fact: Value) -> str:
        """What each rule lacks to derive a fact, or any fact that a pattern such as ``reach(1, _)`` means."""
        there = self.match(fact)
        if there is not None:
            return f"{unparse(there)} is there: ask why"
        lines = [f"{rule}\n    {lacking}" for rule, lacking in self._lackings(fact)]
        return "\n".join(lines) or f"no rule derives facts like {unparse(fact)}{self._near(fact)}"

    def why_not_rows(self, fact: Value) -> Iterator[Map]:
        """The same for programs: a row for each rule that could, or that of the fact that is there."""
        there = self.match(fact)
        if there is not None:
            yield Map({"there": there})
            return
        for rule, lacking in self._lackings(fact):
            yield Map({"rule": str(rule), "lacks": lacking})

    def _lackings(self, fact: Value) -> Iterator[tuple[Rule, str]]:
        for number, rule in enumerate(self._outline.rules):
            known = unify(rule, fact)
            if known is not None:
                yield rule, self._lacking(number, rule, known)

    def _near(self, fact: Value) -> str:
        """What the question may have meant: a label much like it, or the same with other fields."""
        if not isinstance(fact, Record):
            return ""
        heads = {str(head.of): head for head in self._outline.heads.values() if head.verb is Verb.ASSERT}
        near = get_close_matches(str(fact.label), heads, n=1)
        if not near:
            return ""
        rule = next(r for r in self._outline.rules if str(r.head.label) == near[0])
        return f": did you mean {rule.head}?"

    def _lacking(self, number: int, rule: Rule, known: Known) -> str:
        atoms = self._outline.atoms[number]
        solver = Solver(rule, atoms, self._terms, lambda _relation, _state: True, Allowance(LOOKED_AT))
        try:
            if next(solver.solutions(known), None) is not None:
                return "its body holds, for other fields of the head"
        except SearchedEnough:
            return f"nothing found among the first {LOOKED_AT} rows: ask with fewer fields left open"
        furthest = solver.furthest
        step = furthest.steps[furthest.depth]
        given = ", ".join([f"${name} = {unparse(value)}" for name, value in furthest.known.items()])
        return f"{_failed(step)}{f'  with {given}' if given else ''}"

    # -- how ------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Strata with their relations, rows and indexes, then each rule with the orders of its look-ups."""
        lines = []
        by_name = {self._outline.names[id(each)]: each for each in self._outline.relations()}
        for stratum in range(self._outline.strata.count):
            lines.append(f"stratum {stratum}")
            for members in self._outline.strata.members(stratum):
                lines += [f"    {_line(name, by_name.get(name))}" for name in members]
                if len(members) > 1:
                    lines.append(f"    ^ a cycle of {len(members)}")
        for number, rule in enumerate(self._outline.rules):
            how = [*self._cost(number), *self._orders(number, rule)]
            lines += ["", str(rule), *[f"    {line}" for line in how]]
        return "\n".join(lines)

    def explained_rows(self) -> Iterator[Map]:
        """The same for programs: a row for each relation, then one for each rule."""
        by_name = {self._outline.names[id(each)]: each for each in self._outline.relations()}
        for stratum in range(self._outline.strata.count):
            for members in self._outline.strata.members(stratum):
                for name in members:
                    row = {"stratum": stratum, "relation": name.strip(), "cycle": len(members) > 1}
                    yield Map(row | _counts(by_name.get(name)))
        for number, rule in enumerate(self._outline.rules):
            spent, orders = self._spent(number), tuple(self._orders(number, rule))
            took = spent.nanoseconds / 1e6
            yield Map({"rule": str(rule), "rows": spent.calls, "milliseconds": took, "orders": orders})

    def _cost(self, number: int) -> list[str]:
        spent = self._spent(number)
        return [f"{spent.calls} rows took {spent.nanoseconds / 1e6:.1f} ms"] if spent.calls else []

    def _orders(self, number: int, rule: Rule) -> Iterator[str]:
        """In which order the body is looked up from each of its atoms."""
        atoms = self._outline.atoms[number]
        for atom in atoms:
            steps = [_step_text(step) for step in plan(rule, atoms, atom)]
            yield f"{atom.atom} -> {', '.join([*steps, str(rule.head)])}"

    def part(self) -> Part:
        """Strata, handoffs and inputs that block, to be drawn."""
        return Part("", self._outline.graph, self._outline.strata)

    def monotonicity(self) -> str:
        """Which rules only ever add when facts are added, and which not, and at which input."""
        return "\n".join(
            f"{rule}\n    {'not monotone: ' + '; '.join(reasons) if reasons else 'monotone'}"
            for rule, reasons in self._leanings()
        )

    def monotonicity_rows(self) -> Iterator[Map]:
        """The same for programs."""
        for rule, reasons in self._leanings():
            yield Map({"rule": str(rule), "monotone": not reasons, "because": tuple(reasons)})

    def _leanings(self) -> Iterator[tuple[Rule, list[str]]]:
        """The rules, each with why it may take facts away when others are added."""
        doubtful = self._not_monotone()
        for number, rule in enumerate(self._outline.rules):
            own = [f"waits for all of {atom.pattern_text}" for atom in _blocking(rule)]
            leaning = [
                f"leans on {self._outline.names[id(atom.relation)].strip()}"
                for atom in self._outline.atoms[number]
                if id(atom.relation) in doubtful
            ]
            yield rule, list(dict.fromkeys([*own, *leaning]))

    def _not_monotone(self) -> set[int]:
        """The relations that may shrink when facts are added."""
        doubtful: set[int] = set()
        grown = True
        while grown:
            before = len(doubtful)
            for number, rule in enumerate(self._outline.rules):
                leans = any(id(atom.relation) in doubtful for atom in self._outline.atoms[number])
                if leans or next(_blocking(rule), None) is not None:
                    head = rule.head
                    doubtful.add(id(self._outline.head(rule)))
                    now = self._outline.heads.get((key(head.label), len(head.arguments), Verb.ASSERT))
                    doubtful.update({id(now)} if now is not None else ())
            for view in self._outline.views.values():
                if any(id(head) in doubtful for head in self._outline.matching(view)):
                    doubtful.add(id(view))
            grown = len(doubtful) > before
        return doubtful


@dataclass(frozen=True, slots=True)
class _Blocking:
    pattern_text: str


def _blocking(rule: Rule) -> Iterator[_Blocking]:
    for atom in rule.atoms:
        if atom.negated or rule.head.aggregates:
            yield _Blocking(str(atom))


def _line(name: str, relation: Relation | None) -> str:
    """A relation, or a group, as ``explain`` lists it."""
    if relation is None:
        return name
    indexes = [
        f"by {', '.join(map(str, columns)) or 'nothing'}: {len(index)}"
        for columns, index in relation.indexes.items()
    ]
    what = f"{relation.count()} rows"
    return f"{name.strip():<30} {what:>12}{'  indexes ' if indexes else ''}{'; '.join(indexes)}"


def _counts(relation: Relation | None) -> dict[str, Value]:
    """How many rows a relation has, and its indexes; nothing for a group."""
    if relation is None:
        return {}
    indexes = [Map({"columns": columns, "keys": len(index)}) for columns, index in relation.indexes.items()]
    return {"rows": relation.count(), "indexes": tuple(indexes)}


def _instance(atom: Atom, known: Known) -> Value:
    """An atom with what is known filled in."""
    return _filled(atom.pattern, known)


def _filled(pattern: Value, known: Known) -> Value:
    match pattern:
        case Record(label="$", fields=(str(name), _, _)) if name in known:
            return known[name]
        case Record(label="$", fields=(_, _, sub)):
            return _filled(sub, known)
        case Record(label="lit", fields=(value,)):
            return value
        case Record(label=label, fields=fields) if label != "_":
            return Record.of(label, tuple([_filled(each, known) for each in fields]))
        case tuple():
            return tuple([_filled(each, known) for each in pattern])
        case _:
            return pattern


def _step_text(step: Step) -> str:
    match step:
        case Look(atom, bound):
            columns = ", ".join(map(str, bound)) or "nothing"
            how = "check" if len(bound) == len(atom.names) else f"by {columns}"
            return f"{atom.atom} ({how})"
        case Bind(name, to):
            return f"${name} = {to}"
        case _:
            return str(step)


def _failed(step: Step) -> str:
    match step:
        case Look(atom, _) if atom.atom.negated:
            return f"there is a match of {Structure(atom.atom.pattern)}"
        case Look(atom, _):
            return f"no match of {atom.atom}"
        case _:
            return f"{_step_text(step)} does not hold"
