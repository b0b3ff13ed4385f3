"""Describing: how are rules carried out, which of them only ever add facts, and what of that may be shown?

Rules that ``lowering`` makes of one with times are described as part of that rule.

Always: an answer shows a rule or a relation only if the asker may observe all of its patterns; other rules
and relations are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dataspace.flows.mermaid import DiagramPart
from dataspace.rules.engine.dependencies import GROUP, DependencyGraph
from dataspace.rules.language.syntax import Atom, Rule, Verb
from dataspace.rules.relations.budgets import Spent
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.join_orders import plan, step_text
from dataspace.rules.relations.proofs import Sight, withheld
from dataspace.rules.relations.relations import Relation
from dataspace.rules.relations.views import View
from index.values.values import Map, Record, Value, key


class Visible:
    """What an asker may observe of some rules; all of it without a ``sight``.

    ``visible`` says of each rule whether its text is in a fact that the asker may observe.
    """

    def __init__(self, dependencies: DependencyGraph, sight: Sight | None, visible: Sequence[bool]) -> None:
        self.sight = sight
        self.texts = visible
        self._dependencies = dependencies
        self._making: dict[int, list[int]] = {}
        for number, rule in enumerate(dependencies.rules):
            if rule.head.verb is Verb.HIDDEN:
                self._making.setdefault(id(dependencies.head(rule)), []).append(number)

    def fact(self, fact: Value) -> bool:
        """True if the asker may observe a fact."""
        return self.sight is None or self.sight.fact(fact)

    def pattern(self, pattern: Value) -> bool:
        """True if the asker may observe every match of a pattern."""
        return self.sight is None or self.sight.pattern(pattern)

    def rule(self, number: int) -> bool:
        """True if the asker may observe a rule, and all its atoms."""
        return self.sight is None or (
            self.texts[number] and all(map(self._view, self._dependencies.asked[number]))
        )

    def relation(self, name: str, relation: Relation | None) -> bool:
        """True if the asker may observe all facts of a relation, or see the rule of a group."""
        if self.sight is None:
            return True
        if relation is None:
            return self.rule(int(name.removeprefix(GROUP)) - 1)
        if isinstance(relation, View):
            return self._view(relation)
        assert isinstance(relation, HeadRelation)  # there are no others
        if relation.verb is Verb.HIDDEN:
            return all(map(self.rule, self.making(relation)))
        return self.sight.pattern(Record.of(relation.of, (Record("_"),) * relation.width))

    def _view(self, view: View) -> bool:
        timed = self._dependencies.timed.get(view.root) if view.root is not None else None
        return self.pattern(view.form.pattern) if timed is None else all(map(self.rule, self.making(timed)))

    def making(self, head: Relation) -> list[int]:
        """Returns the numbers of the rules that derive a hidden head; none for any other."""
        return self._making.get(id(head), [])

    def parts(self, number: int) -> list[int]:
        """Returns the numbers of the rules that were made of a written rule, itself at last."""
        found: dict[int, None] = {}
        for atom in self._dependencies.atoms[number]:
            for made in self.making(atom.relation):
                found.update(dict.fromkeys(self.parts(made)))
        return [*found, number]

    @property
    def everything(self) -> bool:
        """True if nothing of the rules has to be withheld from the asker."""
        names = {self._dependencies.names[id(each)]: each for each in self._dependencies.relations()}
        return all(map(self.rule, range(len(self._dependencies.rules)))) and all(
            self.relation(name, relation) for name, relation in names.items()
        )


class Description:
    """Says how the rules of a space are carried out; ``spent`` returns the cost of a rule, by its number."""

    def __init__(
        self, dependencies: DependencyGraph, spent: Callable[[int], Spent], visible: Visible
    ) -> None:
        self._dependencies = dependencies
        self._spent = spent
        self._visible = visible

    @property
    def shows_all(self) -> bool:
        """True if nothing of the rules has to be withheld from the asker."""
        return self._visible.everything

    @property
    def _written(self) -> list[int]:
        """Returns the numbers of the rules that were written, as far as they may be seen."""
        rules = enumerate(self._dependencies.rules)
        return [at for at, rule in rules if rule.head.verb is not Verb.HIDDEN and self._visible.rule(at)]

    @property
    def _hidden(self) -> int:
        written = sum(rule.head.verb is not Verb.HIDDEN for rule in self._dependencies.rules)
        return written - len(self._written)

    # -- how ------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Returns strata with their relations, rows and indexes, then each rule with its join orders."""
        lines = []
        by_name = {self._dependencies.names[id(each)]: each for each in self._dependencies.relations()}
        hidden = 0
        for stratum in range(self._dependencies.strata.count):
            lines.append(f"stratum {stratum}")
            for members in self._dependencies.strata.members(stratum):
                seen = [name for name in members if self._visible.relation(name, by_name.get(name))]
                hidden += len(members) - len(seen)
                lines += [f"    {_line(name, by_name.get(name))}" for name in seen]
                if len(seen) > 1:
                    lines.append(f"    ^ a cycle of {len(members)}")
        if hidden:
            lines.append(withheld(hidden, "relation"))
        if self._hidden:
            lines += ["", withheld(self._hidden, "rule")]
        for number in self._written:
            how = [*self._cost(number), *self._orders(number)]
            lines += ["", self._dependencies.rules[number].text, *[f"    {line}" for line in how]]
        return "\n".join(lines)

    def explained_rows(self) -> Iterator[Map]:
        """Yields the same for programs: a row for each relation, then one for each rule."""
        by_name = {self._dependencies.names[id(each)]: each for each in self._dependencies.relations()}
        for stratum in range(self._dependencies.strata.count):
            for members in self._dependencies.strata.members(stratum):
                for name in members:
                    if not self._visible.relation(name, by_name.get(name)):
                        continue
                    row = {"stratum": stratum, "relation": name.strip(), "cycle": len(members) > 1}
                    yield Map(row | _counts(by_name.get(name)))
        for number in self._written:
            calls, nanoseconds = self._spent_by(number)
            yield Map(
                {
                    "rule": self._dependencies.rules[number].text,
                    "rows": calls,
                    "milliseconds": nanoseconds / 1e6,
                    "orders": tuple(self._orders(number)),
                }
            )

    def _spent_by(self, number: int) -> tuple[int, int]:
        """Returns the rows and nanoseconds of a rule with all its parts."""
        spent = [self._spent(part) for part in self._visible.parts(number)]
        return sum(each.calls for each in spent), sum(each.nanoseconds for each in spent)

    def _cost(self, number: int) -> list[str]:
        calls, nanoseconds = self._spent_by(number)
        return [f"{calls} rows took {nanoseconds / 1e6:.1f} ms"] if calls else []

    def _orders(self, number: int) -> Iterator[str]:
        """Yields the order in which the body is looked up, from each of its atoms."""
        for part in self._visible.parts(number):
            rule, atoms = self._dependencies.rules[part], self._dependencies.atoms[part]
            end = rule.shown
            for atom in atoms:
                steps = [step_text(step) for step in plan(rule, atoms, atom)]
                yield f"{atom.atom} -> {', '.join([*steps, end])}"

    def part(self) -> DiagramPart:
        """Returns strata, handoffs and inputs that block, to be drawn."""
        return DiagramPart("", self._dependencies.graph, self._dependencies.strata)

    # -- monotone -------------------------------------------------------------------------------------

    def monotonicity(self) -> str:
        """Returns which rules only ever add facts when facts are added, and which not, and at which input."""
        lines = [
            f"{rule.text}\n    {'not monotone: ' + '; '.join(reasons) if reasons else 'monotone'}"
            for rule, reasons in self._leanings()
        ]
        return "\n".join([*lines, *[withheld(self._hidden, "rule")] * bool(self._hidden)])

    def monotonicity_rows(self) -> Iterator[Map]:
        """Yields the same for programs."""
        for rule, reasons in self._leanings():
            yield Map({"rule": rule.text, "monotone": not reasons, "because": tuple(reasons)})

    def _leanings(self) -> Iterator[tuple[Rule, list[str]]]:
        """Yields the rules, each with why it may take facts away when others are added, or by time alone."""
        shrinking = self._not_monotone()
        timed = {rule.form.shown for rule in self._dependencies.rules if rule.form is not None}
        for number in self._written:
            reasons: list[str] = []
            for part in self._visible.parts(number):
                rule = self._dependencies.rules[part]
                reasons += [f"depends on time: {rule.form.shown}"] if rule.form is not None else []
                reasons += [f"waits for all of {atom}" for atom in _blocking(rule) if atom.shown not in timed]
                reasons += [
                    f"leans on {self._dependencies.names[id(atom.relation)].strip()}"
                    for atom in self._dependencies.atoms[part]
                    if id(atom.relation) in shrinking and not atom.atom.shown
                ]
            yield self._dependencies.rules[number], list(dict.fromkeys(reasons))

    def _not_monotone(self) -> set[int]:
        """Returns the relations that may shrink when facts are added, or by time alone."""
        shrinking: set[int] = set()
        grown = True
        while grown:
            before = len(shrinking)
            for number, rule in enumerate(self._dependencies.rules):
                leans = any(id(atom.relation) in shrinking for atom in self._dependencies.atoms[number])
                if leans or rule.form is not None or next(_blocking(rule), None) is not None:
                    head = rule.head
                    shrinking.add(id(self._dependencies.head(rule)))
                    now = self._dependencies.heads.get((key(head.label), len(head.arguments), Verb.ASSERT))
                    shrinking.update({id(now)} if now is not None else ())
            for view in self._dependencies.views.values():
                if any(id(head) in shrinking for head in self._dependencies.matching(view)):
                    shrinking.add(id(view))
            grown = len(shrinking) > before
        return shrinking


def _blocking(rule: Rule) -> Iterator[Atom]:
    for atom in rule.atoms:
        if atom.negated or rule.head.aggregates:
            yield atom


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
