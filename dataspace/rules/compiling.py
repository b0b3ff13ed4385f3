"""Compiling: the rules of an engine, written out as straight-line Python.

For each rule and each atom of its body there are two functions: what to do when a row of that atom comes,
and when one goes.  Both are the nested loops that a person would write:

    def on_insert(f, s):
        x, y = f
        found = index_by_0.get(y)
        if found is None: return
        for r1, s1 in found.items():
            z = r1[1]
            h = (x, z)
            st = head.get(h)
            if st is None: head[h] = [1, 0, 0, None]; touch(h)
            else: st[0] += 1

The text is made of our own words, of numbered names and of operators from a fixed list; values, tables and
functions are bound by name and never spelt out.

Always: a derivation is counted when the last of its premises comes and discounted when the first goes.
Where one relation stands at several atoms, those before the trigger do not see the row that triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, NoReturn

from dataspace.rules.arithmetic import calculate, compare, maker
from dataspace.rules.budgets import Budget
from dataspace.rules.failures import RuleFailed
from dataspace.rules.plans import Bind, BoundAtom, Look, plan
from dataspace.rules.relations import Relation, Trigger
from dataspace.rules.syntax import Aggregate, Arithmetic, Comparison, Expression, Rule, Structure, Variable
from dataspace.rules.terms import Terms
from index.text import unparse
from index.values import Value


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """What one rule may use up in a tick, and how many rows of its head may wait to be inserted."""

    steps: Budget
    text: Budget
    waiting: int


class Compiler:
    """Writes the functions of one rule.

    ``cycle`` are the relations of the head's own cycle, if it has one; ``group`` takes solutions of a rule
    with aggregates, instead of a relation that takes its head.
    """

    def __init__(
        self,
        number: int,
        rule: Rule,
        atoms: list[BoundAtom],
        head: Relation | None,
        cycle: Iterable[Relation],
        terms: Terms,
        group: Callable[[Any, Any, int], None] | None,
        limits: RuleLimits,
    ) -> None:
        self.number = number
        self.rule = rule
        self.atoms = atoms
        self.head = head
        self.cycle = list(cycle)
        self.terms = terms
        self.group = group
        self.limits = limits

    def install(self, around: Callable[[Trigger], Trigger]) -> None:
        """Adds this rule's functions to the relations of its body, and makes the indexes they need."""
        for atom in self.atoms:
            on_insert, on_delete = self.triggers(atom)
            atom.relation.on_insert.append(around(on_insert))
            atom.relation.on_delete.append(around(on_delete))

    def triggers(self, atom: BoundAtom) -> tuple[Trigger, Trigger]:
        """What to do when a row of an atom comes, and when one goes; a negated atom works the other way."""
        more, less = self.function(atom, +1), self.function(atom, -1)
        return (less, more) if atom.atom.negated else (more, less)

    def function(self, trigger: BoundAtom | None, by: int) -> Trigger:
        """A function that counts or discounts every derivation in which a row takes part."""
        text = _Text(self, trigger, by)
        text.write()
        return text.function()


class _Text:
    """The text of one function."""

    def __init__(self, compiler: Compiler, trigger: BoundAtom | None, by: int) -> None:
        self._of = compiler
        self._trigger = trigger
        self._by = by
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[str, str] = {}
        self._stamps: list[str] = []
        self._bound: dict[str, object] = {
            "terms": compiler.terms.of,
            "steps": compiler.limits.steps,
            "pay_for": compiler.limits.text.pay_for,
        }

    def write(self) -> None:
        trigger = self._trigger
        if trigger is not None:
            for at, name in enumerate(trigger.names):
                self._line(f"{self._variable(name)} = f[{at}]")
            if trigger.relation in self._of.cycle and not trigger.atom.negated:
                self._stamps.append("s[2]")
        for step in plan(self._of.rule, self._of.atoms, trigger):
            if isinstance(step, Look):
                self._look(step)
            elif isinstance(step, Bind):
                made = self._term(step.to)
                self._line(f"{self._variable(step.name)} = {made}")
            else:
                self._compare(step)
        self._conclude()

    # -- the body -------------------------------------------------------------------------------------

    def _look(self, step: Look) -> None:
        atom = step.atom
        names = [self._variable(name) for name in atom.names]
        states = self._bind(atom.relation.states)
        skipped = self._is_skipped(atom)
        if atom.atom.negated:
            found = self._new("n")
            self._line(f"{found} = {states}.get({_row(names)})")
            itself = f" and {_row(names)} != f" if skipped else ""
            self._refuse_if(f"{found} is not None and {found}[2]{itself}")
        elif not step.opens:
            found = self._new("s")
            self._line(f"{found} = {states}.get({_row(names)})")
            self._refuse_if(f"{found} is None or not {found}[2]")
            if skipped:
                self._refuse_if(f"{_row(names)} == f")
            self._note_stamp(atom, found)
        else:
            self._search(step, names, skipped=skipped)

    def _search(self, step: Look, names: list[str], *, skipped: bool) -> None:
        """A loop over the rows with the columns that are bound."""
        atom = step.atom
        index = self._bind(atom.relation.index(step.bound))
        known = [names[at] for at in step.bound]
        at = known[0] if len(known) == 1 else _row(known)
        row, state, found = self._new("r"), self._new("s"), self._new("b")
        self._line(f"{found} = {index}.get({at})")
        self._refuse_if(f"{found} is None")
        self._line(f"steps.left -= len({found})")
        self._line(f"if steps.left < 0: steps.refill(len({found}))")
        if self._of.group is None and self._of.head is not None:
            self._check_room(self._of.head)
        if self._in_cycle(atom):
            self._line(f"for {row}, {state} in {found}.items():")
        else:
            self._line(f"for {row} in {found}:")
        self._depth += 1
        if skipped:
            self._line(f"if {row} == f: continue")
        for opened in step.opens:
            self._line(f"{names[opened]} = {row}[{opened}]")
        self._note_stamp(atom, state)

    def _check_room(self, head: Relation) -> None:
        """Before each loop, since within it a look at every row would cost as much as the row."""
        waiting, limit = self._bind(head.pending), self._of.limits.waiting
        full = self._bind(_full(self._of.number, limit))
        self._line(f"if len({waiting}) > {limit}: {full}({waiting}[-1])")

    def _is_skipped(self, atom: BoundAtom) -> bool:
        """Whether an atom stands for the trigger's relation before it: there its row is not to be seen."""
        trigger = self._trigger
        return trigger is not None and atom.relation is trigger.relation and atom.at < trigger.at

    def _in_cycle(self, atom: BoundAtom) -> bool:
        return atom.relation in self._of.cycle

    def _note_stamp(self, atom: BoundAtom, state: str) -> None:
        if self._in_cycle(atom):
            self._stamps.append(f"{state}[2]")

    def _compare(self, step: Comparison) -> None:
        left, right = step.left, step.right
        if step.operator in ("=", "!="):
            wrong = "is not" if step.operator == "=" else "is"
            self._refuse_if(f"{self._term(left)} {wrong} {self._term(right)}")
        else:
            holds = self._bind(compare)
            self._refuse_if(f"not {holds}({step.operator!r}, {self._value(left)}, {self._value(right)})")

    # -- expressions ----------------------------------------------------------------------------------

    def _term(self, expression: Expression) -> str:
        """The expression for the term of one."""
        match expression:
            case Variable(name):
                return self._variable(name)
            case Structure() if not maker(expression)[0]:
                return self._bind(self._of.terms.of(maker(expression)[1]()))
            case _:
                value = self._value(expression)
                made = self._new("t")
                self._guarded(f"pay_for({value}); {made} = terms({value})")
                return made

    def _value(self, expression: Expression) -> str:
        """The expression for the value of one; what may raise is written before, within a fence."""
        match expression:
            case Variable(name):
                return f"{self._variable(name)}.value"
            case Structure():
                names, make = maker(expression)
                if not names:
                    return self._bind(make())
                return f"{self._bind(make)}({', '.join([f'{self._variable(each)}.value' for each in names])})"
            case Arithmetic(operator, left, right):
                one, other = self._value(left), self._value(right)
                made = self._new("v")
                self._guarded(f"{made} = {self._bind(calculate)}({operator!r}, {one}, {other})")
                return made

    def _guarded(self, line: str) -> None:
        """A line whose exception is the rule's fault."""
        row = ", ".join([f"{name!r}: {local}" for name, local in self._names.items()])
        fail = self._bind(_failure(self._of.number))
        self._line("try:")
        self._line(f"    {line}")
        self._line(f"except Exception as error: {fail}(error, {{{row}}})")

    # -- the head -------------------------------------------------------------------------------------

    def _conclude(self) -> None:
        arguments = self._of.rule.head.arguments
        if self._of.group is not None:
            fields = [self._term(each) for each in arguments if not isinstance(each, Aggregate)]
            taken = [self._term(each.of) for each in arguments if isinstance(each, Aggregate)]
            self._guarded(f"{self._bind(self._of.group)}({_row(fields)}, {_row(taken)}, {self._by})")
            return
        head = self._of.head
        assert head is not None  # one of the two takes the solution
        fields = [self._term(each) for each in arguments if not isinstance(each, Aggregate)]
        states, touch = self._bind(head.states), self._bind(head.pending.append)
        self._line(f"h = {_row(fields)}")
        if self._by > 0:
            self._count(states, touch)
        else:
            self._discount(states, touch)

    def _count(self, states: str, touch: str) -> None:
        self._line(f"st = {states}.get(h)")
        self._line("if st is None:")
        self._line(f"    {states}[h] = [1, 0, 0, None]; {touch}(h)")
        self._line("else:")
        self._line("    st[0] += 1")
        if not self._stamps:
            self._line("    st[1] += 1")
        elif not self._triggered_from_within():
            self._line(f"    if {self._older()}: st[1] += 1")

    def _discount(self, states: str, touch: str) -> None:
        self._line(f"st = {states}[h]")
        self._line("st[0] -= 1")
        self._line(f"if {self._older() if self._stamps else 'st[2]'}:")
        self._line("    st[1] -= 1")
        self._line(f"    if not st[1]: {touch}(h)")

    def _older(self) -> str:
        """Whether all premises of the cycle are older than the head, which is then there."""
        return " and ".join([f"st[2] > {stamp}" for stamp in self._stamps])

    def _triggered_from_within(self) -> bool:
        """A premise that has just come is younger than any head that is there."""
        trigger = self._trigger
        return trigger is not None and trigger.relation in self._of.cycle and not trigger.atom.negated

    # -- writing --------------------------------------------------------------------------------------

    def function(self) -> Trigger:
        text = "def run(f, s):\n" + "\n".join(self._lines) + "\n"
        names = dict(self._bound)
        exec(_compiled(text), names)  # our own words, numbers and operators: see above
        return names["run"]  # type: ignore[return-value]  # defined by the text

    def _variable(self, name: str) -> str:
        return self._names.setdefault(name, f"x{len(self._names)}")

    def _new(self, kind: str) -> str:
        return f"{kind}{len(self._lines)}"

    def _bind(self, thing: object) -> str:
        name = f"c{len(self._bound)}"
        self._bound[name] = thing
        return name

    def _refuse_if(self, condition: str) -> None:
        self._line(f"if {condition}: {'continue' if self._depth > 1 else 'return'}")

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)


def _row(names: list[str]) -> str:
    return f"({''.join([name + ',' for name in names])})"


def _failure(number: int) -> Callable[[Exception, dict[str, Any]], NoReturn]:
    def fail(error: Exception, row: dict[str, Any]) -> NoReturn:
        if isinstance(error, RuleFailed):
            raise error
        values = {name: term.value for name, term in row.items()}
        raise RuleFailed(number, values, f"{type(error).__name__}: {error}") from error

    return fail


def _full(number: int, limit: int) -> Callable[[tuple[Any, ...]], NoReturn]:
    def full(row: tuple[Any, ...]) -> NoReturn:
        last = unparse(tuple([term.value for term in row]))[:60]
        raise RuleFailed(number, {}, f"more than {limit} new facts in one tick, the last one of {last}")

    return full


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    return compile(text, "<rule>", "exec")


def row_text(row: dict[str, Value]) -> str:
    """What the variables of a rule were, for people."""
    return ", ".join([f"${name} = {unparse(value):.80}" for name, value in row.items()])
