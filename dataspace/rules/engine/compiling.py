"""Compiling: the rules of an engine, written out as straight-line Python.

For each rule and each atom of its body there are two pieces of text: what to do when a row of that atom
comes, and when one goes.  Both are the nested loops that a person would write, and stand in the functions of
the relation whose row it is (``tables``), which know the row, its state and its fields.  For
``reach($x, $z) <- reach($x, $y), edge($y, $z)``, when a row of ``reach`` comes:

    while True:
        found = edge_by_0.get(f1)
        if found is None: break
        left -= len(found)
        if left < 0: left = steps.refill(left)
        for _, z in found:
            h = (f0, z)
            k = reach.get(h)
            if k is None:
                reach[h] = k = [1, 0, 0, False, h, None]; pending.append(k)
                bytes -= 69 + f0.size + z.size
                if bytes < 0: (another part is handed out, unless the fact is too large)
            else:
                if not k[0]: pending.append(k)
                k[0] += 1
        break

and when one goes, behind the same look-up,

            k = reach[(f0, z)]
            k[0] -= 1
            if k[2] > born:
                k[1] -= 1
                if not k[1]: pending.append(k)

The text is made of our own words, of numbered names and of operators from a fixed list; values, tables and
functions are bound by name and never spelt out.

Always: a derivation is counted when the last of its premises comes and discounted when the first goes.
Where one relation stands at several atoms, those before the trigger do not see the row that triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

from dataspace.rules.engine.bodies import UNCALCULATED, Body
from dataspace.rules.language.arithmetic import calculate, compare, refuse_number
from dataspace.rules.language.evaluating import evaluate
from dataspace.rules.language.hosted import CallFailed, TooSlow
from dataspace.rules.language.ordering import Pay
from dataspace.rules.language.syntax import (
    TIMELY,
    Aggregate,
    Arithmetic,
    Choice,
    Comparison,
    Compound,
    Elements,
    Expression,
    FunctionCall,
    Now,
    Rule,
    Structure,
    Variable,
    maker,
    members,
    parts_of,
    variables_of,
)
from dataspace.rules.relations.budgets import FACT_BYTES, SAMPLED, Budget, Meter
from dataspace.rules.relations.failures import FailedLater, LimitReached, RuleFailed, message_of
from dataspace.rules.relations.join_orders import Bind, BoundAtom, GoThrough, LookUp, Step, plan
from dataspace.rules.relations.relations import Relation
from dataspace.rules.relations.terms import MAX_FACT, Row, RuleTerm, Terms, size_in_facts, too_large
from index.emitter import Script, tuple_of
from index.values.values import Value


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """The allowance of one rule in a tick."""

    steps: Budget
    text: Budget
    facts: Budget
    deferred: Budget


MAX_TAKEN_APART = 4
"""Up to how many columns a row is taken apart as a whole, rather than by the columns that are asked for."""


class Compiler:
    """Writes what one rule has to do.

    ``cycle`` are the relations of the head's own cycle, if it has one; ``group`` takes solutions of a rule
    with aggregates, instead of a relation that takes its head; ``deferred`` keeps errors of expressions until
    the tick is settled, ``meter`` counts what the rule costs.  ``maybes`` are the compilers of the same rule
    with what may be there.
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
        deferred: DeferredErrors,
        meter: Meter | None = None,
    ) -> None:
        self.number = number
        self.rule = rule
        self.atoms = atoms
        self.head = head
        self.cycle = list(cycle)
        self.terms = terms
        self.group = group
        self.limits = limits
        self.pay: Final = limits.text.pay
        self.deferred = deferred
        self.body = Body(number, rule, atoms, terms, limits.deferred)
        self.meter = meter
        self.maybes: tuple[Compiler, ...] = ()

    def hold(self) -> None:
        """Counts what follows without any row, or from rows that are not there."""
        script = Script()
        script.begin("def hold():", loops=False)
        _Text(self, script, None, [], +1).write(plan(self.rule, self.atoms, None))
        script.functions("hold")["hold"]()


class RuleTrigger:
    """Counts or discounts every derivation in which a row of one atom takes part.

    ``stands`` is True where its rows have not just come: others of a cycle may be younger than they are.
    """

    __slots__ = ("_atom", "_by", "_compiler", "_stands", "_steps")

    def __init__(self, compiler: Compiler, atom: BoundAtom, by: int, *, stands: bool = False) -> None:
        self._compiler = compiler
        self._atom = atom
        self._by = by
        self._stands = stands
        self._steps = plan(compiler.rule, compiler.atoms, atom)
        for step in self._steps:
            if isinstance(step, LookUp) and step.opens:
                step.atom.relation.index(step.bound)

    def write(self, script: Script, fields: Sequence[str]) -> None:
        """Writes the loops of the rule, from a row of this atom."""
        _Text(self._compiler, script, self._atom, fields, self._by, stands=self._stands).write(self._steps)


class _Text:
    """The text of one trigger, written into a function of the relation whose rows set it off."""

    def __init__(
        self,
        compiler: Compiler,
        script: Script,
        trigger: BoundAtom | None,
        fields: Sequence[str],
        by: int,
        *,
        stands: bool = False,
    ) -> None:
        self._of = compiler
        self._script = script
        self._trigger = trigger
        self._by = by
        self._base = script.depth
        self._is_left = False
        self._stands = stands
        self._names: dict[str, str] = {}
        self._stamps: list[str] = []
        if trigger is not None:
            self._names.update(zip(trigger.names, fields, strict=True))
            if trigger.relation in compiler.cycle and not trigger.atom.negated:
                self._stamps.append("born")

    def write(self, steps: list[Step]) -> None:
        """Writes it as a block that may be left anywhere."""
        since, meter = self._script.mark(), self._of.meter
        if meter is not None:
            self._begin_meter(meter)
        if self._stands and self._stamps:
            self._line("born = st[2]")
        for step in steps:
            if isinstance(step, LookUp):
                self._look(step)
            elif isinstance(step, Bind):
                term = self._term(step.to)  # first: where that raises, the variable is not known yet
                self._line(f"{self._variable(step.name)} = {term}")
            elif isinstance(step, GoThrough):
                self._go_through(step)
            else:
                self._compare(step)
        self._conclude()
        self._script.depth = self._base
        if self._is_left:
            self._script.wrap(since, "while True:", "break")
        if meter is not None:
            self._end_meter(meter)

    def _begin_meter(self, meter: Meter) -> None:
        """Counts rows, and times one of so many."""
        spent, clock = self._bind(meter.spent), self._bind(meter.clock)
        self._line(f"{spent}.calls += 1")
        self._line(f"begun = {clock}() if {spent}.calls % {SAMPLED} == 1 else 0")

    def _end_meter(self, meter: Meter) -> None:
        spent, clock = self._bind(meter.spent), self._bind(meter.clock)
        self._line(f"if begun: {spent}.nanoseconds += {SAMPLED} * ({clock}() - begun)")

    # -- the body -------------------------------------------------------------------------------------

    def _look(self, step: LookUp) -> None:
        atom = step.atom
        names = [self._variable(name) for name in atom.names]
        states = self._bind(atom.relation.states)
        skipped = self._is_skipped(atom)
        if atom.atom.negated:
            found = self._new("n")
            self._line(f"{found} = {states}.get({tuple_of(names)})")
            itself = f" and {tuple_of(names)} != row" if skipped else ""
            self._refuse_if(f"{found} is not None and {found}[2]{itself}")
        elif not step.opens:
            found = self._new("s")
            self._line(f"{found} = {states}.get({tuple_of(names)})")
            self._refuse_if(f"{found} is None or not {found}[2]")
            if skipped:
                self._refuse_if(f"{tuple_of(names)} == row")
            self._note_stamp(atom, found)
        else:
            self._search(step, names, skipped=skipped)

    def _search(self, step: LookUp, names: list[str], *, skipped: bool) -> None:
        """Writes a loop over the rows with the columns that are bound."""
        atom = step.atom
        index = self._bind(atom.relation.index(step.bound))
        known = [names[at] for at in step.bound]
        at = known[0] if len(known) == 1 else tuple_of(known)
        row, state, found = self._new("r"), self._new("s"), self._new("b")
        self._line(f"{found} = {index}.get({at})")
        self._refuse_if(f"{found} is None")
        steps = self._bind(self._of.limits.steps)
        left = self._script.counter(f"{steps}.left")
        self._line(f"{left} -= len({found})")
        self._line(f"if {left} < 0: {left} = {steps}.refill({left})")
        if skipped or len(names) > MAX_TAKEN_APART:
            taken = row
        else:
            taken = tuple_of([each if at in step.opens else "_" for at, each in enumerate(names)])
        if self._in_cycle(atom):
            self._line(f"for {taken}, {state} in {found}.items():")
        else:
            self._line(f"for {taken} in {found}:")
        self._script.depth += 1
        if skipped:
            self._line(f"if {row} == row: continue")
        if taken == row:
            for opened in step.opens:
                self._line(f"{names[opened]} = {row}[{opened}]")
        self._note_stamp(atom, state)

    def _go_through(self, step: GoThrough) -> None:
        """Writes a loop over the members of a value, each once."""
        member, whole, found = step.member, self._value(step.member.of), self._new("e")
        self._guarded(f"{found} = {self._bind(partial(_elements, member, self._of.terms))}({whole})")
        steps = self._bind(self._of.limits.steps)
        left = self._script.counter(f"{steps}.left")
        self._line(f"{left} -= len({found})")
        self._line(f"if {left} < 0: {left} = {steps}.refill({left})")
        names = [self._variable(name) for name in member.names]
        is_bound = [name in step.bound for name in member.names]
        taken = [f"{found}_{at}" if known else names[at] for at, known in enumerate(is_bound)]
        self._line(f"for {tuple_of(taken)} in {found}:")
        self._script.depth += 1
        for at, known in enumerate(is_bound):
            if known:
                self._line(f"if {taken[at]} is not {names[at]}: continue")

    def _is_skipped(self, atom: BoundAtom) -> bool:
        """True if an atom before the trigger has the same relation: there the trigger's row is skipped."""
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
            one, other, result = self._value(left), self._value(right), self._new("v")
            pay = self._bind(self._of.pay)
            self._guarded(f"{result} = {self._bind(compare)}({step.operator!r}, {one}, {other}, {pay})")
            self._refuse_if(f"not {result}")

    # -- expressions ----------------------------------------------------------------------------------

    def _term(self, expression: Expression) -> str:
        """Returns the text for the term of an expression."""
        match expression:
            case Variable(name):
                return self._variable(name)
            case Structure() if not maker(expression)[0]:
                return self._bind(self._of.terms.of(maker(expression)[1]()))
            case Arithmetic(operator, left) if operator == TIMELY:
                term = self._term(left)
                self._guarded(f"{self._bind(refuse_number)}({term}.value)")
                return term
            case _:
                value = self._value(expression)
                result = self._new("t")
                pay, terms = self._bind(self._of.limits.text.pay_for), self._bind(self._of.terms.of)
                self._guarded(f"{pay}({value}); {result} = {terms}({value})")
                return result

    def _value(self, expression: Expression) -> str:
        """Returns the text for the value of an expression; calls that may raise are written before, in a
        fence."""
        match expression:
            case Variable(name):
                return f"{self._variable(name)}.value"
            case Structure():
                names, make = maker(expression)
                if not names:
                    return self._bind(make())
                return f"{self._bind(make)}({', '.join([f'{self._variable(each)}.value' for each in names])})"
            case Now():
                raise TypeError("times are taken out of rules before")
            case Arithmetic(operator, left, right):
                one, other = self._value(left), self._value(right)
                result = self._new("v")
                pay = self._bind(self._of.pay)
                self._guarded(f"{result} = {self._bind(calculate)}({operator!r}, {one}, {other}, {pay})")
                return result
            case FunctionCall(_, arguments):
                given = [self._bind(self._of.pay), *map(self._value, arguments)]
                return self._called(expression.function.apply, given)
            case Compound(_, parts):
                return self._called(expression.made, [self._value(each) for each in parts])
            case Choice():
                asked = list(dict.fromkeys(variables_of(expression)))
                choose = partial(_chosen, expression, asked, self._of.pay)
                return self._called(choose, [f"{self._variable(each)}.value" for each in asked])

    def _called(self, function: Callable[..., Value], given: list[str]) -> str:
        """Writes a call that may raise; returns the text for its result."""
        result = self._new("v")
        self._guarded(f"{result} = {self._bind(function)}({', '.join(given)})")
        return result

    def _guarded(self, line: str) -> None:
        """Writes a line that may raise: then there is no derivation, and perhaps the rule has failed."""
        of = self._of
        self._fenced(line, of.deferred.about(of.body, comes=self._by > 0))
        self._line(f"    {self._leave()}")

    def _fenced(self, line: str, fail: Callable[[Exception, dict[str, Any]], None]) -> None:
        """Writes a line whose exception is passed to ``fail``, with the values that the row has so far."""
        row = ", ".join([f"{name!r}: {local}" for name, local in self._names.items()])
        self._line("try:")
        self._line(f"    {line}")
        self._line("except Exception as error:")
        self._line(f"    {self._bind(fail)}(error, {{{row}}})")

    # -- the head -------------------------------------------------------------------------------------

    def _conclude(self) -> None:
        arguments = self._of.rule.head.arguments
        if self._of.group is not None:
            fields = [self._term(each) for each in arguments if not isinstance(each, Aggregate)]
            taken = [self._term(part) for each in self._of.rule.head.aggregates for part in parts_of(each)]
            change = f"{self._bind(self._of.group)}({tuple_of(fields)}, {tuple_of(taken)}, {self._by})"
            self._fenced(change, _failure(self._of.number))
            return
        head = self._of.head
        assert head is not None  # one of the two takes the solution
        fields = [self._term(each) for each in arguments if not isinstance(each, Aggregate)]
        states, touch = self._bind(head.states), f"{self._bind(head.pending)}.append"
        if self._by > 0:
            self._count(states, touch, fields)
        else:
            self._discount(states, touch, tuple_of(fields))

    def _count(self, states: str, touch: str, fields: list[str]) -> None:
        paid = self._bind(self._of.limits.facts)
        left = self._script.counter(f"{paid}.left")
        base = FACT_BYTES + size_in_facts(self._of.rule.head.label)
        size = " + ".join([str(base), *[f"{each}.size" for each in fields]])
        self._line(f"h = {tuple_of(fields)}")
        self._line(f"k = {states}.get(h)")
        self._line("if k is None:")
        self._line(f"    {states}[h] = k = [1, 0, 0, False, h, None]; {touch}(k)")
        self._line(f"    {left} -= {size}")
        self._line(f"    if {left} < 0:")
        self._script.depth += 2
        self._pay(paid, left, size)
        self._script.depth -= 2
        self._line("else:")
        self._line(f"    if not k[0]: {touch}(k)")
        self._line("    k[0] += 1")
        if not self._stamps:
            self._line("    k[1] += 1")
        elif not self._triggered_from_within():
            self._line(f"    if {self._older()}: k[1] += 1")

    def _pay(self, paid: str, left: str, size: str) -> None:
        """Pays for a fact where the part that was handed out is used up, as it is by a fact that is too
        large.

        Such a row is counted like any other until the tick is settled: if its premises are all there then,
        the rule has failed.
        """
        of = self._of
        defer = of.deferred.about(of.body, comes=True)
        row = ", ".join([f"{name!r}: {local}" for name, local in self._names.items()])
        self._line(f"w = {size}")
        self._line(f"if w > {MAX_FACT}:")
        self._line(f"    {left} += w")
        self._line(f"    {self._bind(defer)}({self._bind(too_large)}(w), {{{row}}})")
        self._line(f"else: {left} = {paid}.refill({left})")

    def _discount(self, states: str, touch: str, row: str) -> None:
        self._line(f"k = {states}[{row}]")
        self._line("k[0] -= 1")
        self._line(f"if {self._older() if self._stamps else 'k[2]'}:")
        self._line("    k[1] -= 1")
        self._line(f"    if not k[1]: {touch}(k)")

    def _older(self) -> str:
        """Returns the condition that all premises of the cycle are older than the head, which is there."""
        return " and ".join([f"k[2] > {stamp}" for stamp in self._stamps])

    def _triggered_from_within(self) -> bool:
        """True if a premise has just come: then it is younger than any head that is there."""
        trigger = self._trigger
        is_within = trigger is not None and trigger.relation in self._of.cycle and not trigger.atom.negated
        return is_within and not self._stands

    # -- writing --------------------------------------------------------------------------------------

    def _variable(self, name: str) -> str:
        return self._names.setdefault(name, f"x{len(self._names)}")

    def _new(self, kind: str) -> str:
        return self._script.new(kind)

    def _bind(self, thing: object) -> str:
        return self._script.bind(thing)

    def _refuse_if(self, condition: str) -> None:
        """Writes what goes on with the next row, or leaves the block where there is none."""
        self._line(f"if {condition}: {self._leave()}")

    def _leave(self) -> str:
        """Returns the statement that goes on with the next row, from here."""
        is_outermost = self._script.depth == self._base
        self._is_left |= is_outermost
        return "break" if is_outermost else "continue"

    def _line(self, text: str) -> None:
        self._script.line(text)


def _chosen(choice: Choice, names: Sequence[str], pay: Pay, *values: Value) -> Value:
    """Returns the value of a choice; only one of its branches is calculated."""
    return evaluate(choice, dict(zip(names, values, strict=True)), pay)


def _elements(member: Elements, terms: Terms, whole: Value) -> list[Row]:
    """Returns the terms of the members of a value, each once; ``UsageError`` where it has none."""
    return list(dict.fromkeys(map(terms.row, members(member, whole))))


def _failure(number: int) -> Callable[[Exception, dict[str, Any]], NoReturn]:
    def fail(error: Exception, row: dict[str, Any]) -> NoReturn:
        if isinstance(error, RuleFailed):
            raise error
        values = {name: term.value for name, term in row.items()}
        raise RuleFailed(number, values, message_of(error)) from error

    return fail


# -- deferred errors -------------------------------------------------------------------------------
#
# A rule gets each row as it comes, before other rows of the tick come or go, and before the facts of a
# negation are derived. So it may get values that never hold together, or that its own body excludes, as in
# ``not same($a, $b), $z = 1 / ($a - $b)``. An expression that raises makes no derivation. Whether its rule
# has failed is decided at the end of the tick, by what holds then: a rule fails only for values with which
# its whole body holds once the tick is settled.


MOST: Final = 10_000
"""Errors of one tick that are kept; the next one fails its rule at once."""


class DeferredErrors:
    """The deferred errors of the rules of one component; ``noted`` is empty when there are none."""

    __slots__ = ("noted",)

    def __init__(self) -> None:
        self.noted: Final[list[tuple[RuleFailed, Body, dict[str, RuleTerm]]]] = []

    def about(self, body: Body, *, comes: bool) -> Callable[[Exception, dict[str, RuleTerm]], None]:
        """Returns the function that a rule calls when an expression has raised, for a row that comes or
        goes."""
        return partial(self._note, body) if comes else partial(_pass_over_going, body)

    def _note(self, body: Body, error: Exception, row: dict[str, RuleTerm]) -> None:
        """Keeps what may stand in the end.

        A premise that is not there yet sets the rule off once more when it comes: without it nothing need be
        kept.  A negated fact is there while it goes.
        """
        _pass_over(body.number, error, row)
        if isinstance(error, CallFailed):
            if len(body.failed) >= MOST:
                body.failed.clear()
            body.failed.add(error.about)
        if not body.holds(row, settled=False):
            return
        values = {name: term.value for name, term in row.items()}
        failed = RuleFailed(body.number, values, message_of(error))
        if len(self.noted) >= MOST:
            raise failed
        self.noted.append((failed, body, row))

    def resolve(self) -> None:
        """Forgets all; raises the first ``RuleFailed`` that stands.  O(errors × rows that they join)."""
        for failed, body, row in self.noted:
            if body.holds(row, settled=True):
                raise failed
        self.noted.clear()


def _pass_over(number: int, error: Exception, row: dict[str, RuleTerm]) -> None:
    """Ignores an error, unless a limit was reached."""
    if isinstance(error, TooSlow):
        raise RuleFailed(number, {}, str(error), resumes=False) from None
    if isinstance(error, RuleFailed) and not (error.row or error.overran):
        error.row = {name: term.value for name, term in row.items()}
    if isinstance(error, (RuleFailed, LimitReached)):
        raise error


def _pass_over_going(body: Body, error: Exception, row: dict[str, RuleTerm]) -> None:
    """Ignores an error for a row that goes: it was no derivation when it came, since it raised then as well.

    That holds for errors that follow from the values.  After a defect, or in a function of the host that did
    not fail then, it may have been one, which would stay: so the engine fails, and is made anew from the rows
    that are left.
    """
    _pass_over(body.number, error, row)
    if isinstance(error, CallFailed) and error.about not in body.failed:
        values = {name: term.value for name, term in row.items()}
        raise FailedLater(
            body.number, values, f"{error}, and not before: functions must be pure", resumes=False
        )
    if not isinstance(error, UNCALCULATED):
        raise error
