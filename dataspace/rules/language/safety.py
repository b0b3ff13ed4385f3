"""Safety: does every variable of a rule get its values from somewhere?

A variable gets its values from an atom that is not negated, or from ``$z = …`` of variables that have values.
All other places only compare it.  A variable that nothing binds would have infinitely many values, so a rule
with one is refused, however it is written.

Always: a rule that passed can be carried out in some order of its body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import count
from typing import Final

from dataspace.rules.language.evaluating import evaluate
from dataspace.rules.language.functions import FUNCTIONS, nearest, with_article
from dataspace.rules.language.groups import bound_in, part_of
from dataspace.rules.language.hosted import UnknownFunction
from dataspace.rules.language.lowering import flattened
from dataspace.rules.language.ordering import free
from dataspace.rules.language.syntax import (
    AGGREGATES,
    CHOOSING,
    DEVIATION,
    Aggregate,
    Arithmetic,
    Atom,
    Choice,
    Comparison,
    Compound,
    Elements,
    Expression,
    FunctionCall,
    LastingGroup,
    Literal,
    Now,
    Rule,
    Structure,
    Verb,
    class_of,
    parts_of,
    variables_of,
)
from index.errors import UsageError
from index.patterns.patterns import DISCARD, capture, skeleton
from index.patterns.text import unparse
from index.values.values import Map, Record, Value

RESERVED = ("rule", "rule-error", "flow-error", "Observe", "$", "_", "lit", "exact")
"""Labels that no rule may derive."""

VERBS: Final = ("next", "send")

CLOCKS: Final = frozenset(["clock", "current_time", "now", "time", "timestamp", "today"])
"""What other languages call the present time."""

MAX_FIELDS = 64

MAX_ATOMS = 17
"""Atoms of a body that are not negated: each but one is a loop, beside four blocks, and Python nests 20."""


class UnsafeVariable(UsageError):
    """A variable that nothing binds; ``name`` is it, without the ``$``."""

    def __init__(self, name: str, where: str, bound: Iterable[str]) -> None:
        near = get_close_matches(name, bound, n=1)
        hint = f": did you mean ${near[0]}?" if near and len(name) > 1 else ""
        alike = [each for each in bound if each.lower() == name.lower()]
        if alike:
            hint = f": did you mean ${alike[0]}? Upper and lower case are two names"
        if _is_difference(name, bound):
            hint = f": with blanks around the minus, ${' - '.join(name.split('-', 1))} is a difference"
        super().__init__(f"unsafe rule: ${name} in {where} is bound by no positive part of the body{hint}")
        self.name = name


def _is_difference(name: str, bound: Iterable[str]) -> bool:
    """True if a name looks like a difference that was written without blanks, ``x-1``."""
    start, minus, _ = name.partition("-")
    return bool(minus) and start in bound


def check(rule: Rule) -> None:
    """Raises ``UsageError`` for a rule that is unsafe, or not allowed."""
    label = rule.head.label
    if label in RESERVED:
        raise UsageError(f"no rule may derive {unparse(label)} facts")
    if len(rule.head.arguments) > MAX_FIELDS:
        raise UsageError(f"a head of {len(rule.head.arguments)} fields, limit {MAX_FIELDS}")
    for literal in rule.body:
        if isinstance(literal, LastingGroup):
            _check_by_itself(literal)
    rule = flattened(rule)
    _check_words(rule)
    if rule.loops > MAX_ATOMS:
        raise UsageError(
            f"a body of {rule.loops} atoms, limit {MAX_ATOMS}: derive a part of it by another rule"
        )
    if rule.head.aggregates and rule.head.verb is Verb.SEND:
        raise UsageError("an aggregate is a fact that changes: derive it, and send from another rule")
    bound = bound_by(rule)
    _check_maybe(rule, bound)
    unbound = [(name, where) for name, where in _asked(rule) if name not in bound]
    if unbound:
        # the one that is a difference is why others, which it would give values to, have none
        name, where = max(unbound, key=lambda pair: _is_difference(pair[0], bound))
        raise UnsafeVariable(name, where, bound)
    for argument in rule.head.arguments:
        for part in parts_of(argument) if isinstance(argument, Aggregate) else (argument,):
            _check_made(part)
    for literal in rule.body:
        if isinstance(literal, Comparison):
            _check_made(literal.left)
            _check_made(literal.right)
        elif isinstance(literal, Elements):
            _check_made(literal.of)


def _check_by_itself(group: LastingGroup) -> None:
    """Raises ``UsageError`` for a variable to which only literals beside a group before ``for`` give a value:
    since when the group has held does not depend on them."""
    bound = bound_in(group.literals)
    for name, where in _asked_by(group.literals):
        if name not in bound:
            raise UsageError(
                f"unsafe rule: ${name} in {where} is bound by no positive part of {group}, which holds by"
                " itself: repeat what binds it inside, as in (limit($d, $m), temp($d, $v), $v > $m) for 30 s"
            )


_OF_NONE: Final = ("count", "sum", "collect", "top")
"""Aggregates that have a value of nothing."""


def _check_maybe(rule: Rule, bound: set[str]) -> None:
    """Refuses an atom that is ``maybe`` and that no aggregate takes, or that others lean on; and an aggregate
    that has no value of nothing."""
    maybes = [each for each in rule.atoms if each.maybe]
    own = [set(names_in(each)) - bound for each in maybes]
    for aggregate in rule.head.aggregates:
        place = part_of(rule, aggregate) - 1
        names = set(variables_of(aggregate)) - bound
        if maybes and not list(variables_of(aggregate)):
            raise UsageError(f"{aggregate} beside maybe: name what is counted, a variable, as in count($j)")
        for name in sorted(names if place >= 0 else ()):
            if sum(name in each for each in own) > 1:
                raise UsageError(
                    f"${name} in two maybe, which are counted apart: give each a name of its own"
                )
            if name not in own[place]:
                raise UsageError(f"{aggregate} takes what two maybe give, which are counted apart")
        has_none = place >= 0 and aggregate.name not in _OF_NONE
        if has_none and aggregate.otherwise is None:
            raise UsageError(f"{aggregate} of maybe has no value of none: write {aggregate} else 0, say")
        if aggregate.otherwise is not None and not (has_none or aggregate.name == DEVIATION):
            raise UsageError(f"{aggregate}: it always has a value, so leave else out")
    for atom, names in zip(maybes, own, strict=True):
        if not any(names.intersection(variables_of(each)) for each in rule.head.aggregates):
            raise UsageError(f"{atom} gives nothing: let an aggregate take a variable of it, as count($j)")
        for name, where in _asked(rule):
            if name in names:
                raise UsageError(
                    f"${name} in {where} may have no value, as {atom} gives it: only aggregates take it; what"
                    " is compared stands within, as in maybe (job($q, $j), $j > 3)"
                )


def _check_words(rule: Rule) -> None:
    """Refuses what looks like a call or a verb at a place where it would be read as a record."""
    if rule.head.label in VERBS:
        raise UsageError(f"{rule.head.label} stands alone around a head: {rule.head.label}(seen($x)) <- …")
    for argument in rule.head.arguments:
        for part in parts_of(argument) if isinstance(argument, Aggregate) else (argument,):
            _check_calls(part)
    for literal in rule.body:
        if isinstance(literal, Atom):
            pattern = literal.pattern
            if isinstance(pattern, Record) and pattern.label in VERBS and len(pattern.fields) == 1:
                raise UsageError(f"{pattern.label} stands in heads only: ask for the fact itself")
            _check_fields(pattern)
        elif isinstance(literal, Comparison):
            _check_calls(literal.left)
            _check_calls(literal.right)
            _check_order(literal)
        elif isinstance(literal, Elements):
            _check_calls(literal.of)
            wanted = "sequence" if len(literal.names) == 1 else "map"
            if (found := class_of(literal.of)) not in ("", wanted):
                hint = ": for a map write $key: $value in …" if found == "map" else ""
                raise UsageError(
                    f"{literal} goes through {with_article(wanted)}, not {with_article(found)}{hint}"
                )


def _check_fields(pattern: Value) -> None:
    """Refuses an aggregate in the pattern of a body."""
    if not isinstance(pattern, Record):
        return
    for at, field in enumerate(pattern.fields):
        if not isinstance(field, Record) or (name := _label(Structure(field))) not in AGGREGATES:
            continue
        if len(field.fields) != (2 if name in ("top", "percentile", *CHOOSING) else 1) or not (
            used := skeleton(field).names
        ):
            continue
        taken = {*skeleton(pattern).names, *used}
        free = next(candidate for n in count(1) if (candidate := f"{name}{n if n > 1 else ''}") not in taken)
        asked = Record(
            pattern.label, *[capture(free) if n == at else each for n, each in enumerate(pattern.fields)]
        )
        raise UsageError(
            f"{unparse(field)} in a body would be a record, as aggregates stand in heads: derive it by a rule"
            f" of its own, {unparse(pattern)} <- …, and write {unparse(asked)} here; or calculate it: "
            f"{unparse(field)} of (…) = ${free}"
        )


def _check_calls(expression: Expression) -> None:
    """Refuses operands that can never be calculated with, and values that can never be made."""
    if _label(expression) in CLOCKS and expression == Structure(Record(clock := _label(expression))):
        raise UsageError(
            f"{expression} would be a record; the present time is the word now, as in $due <= now; or have a"
            f" client put the time as a fact, and ask for that: {unparse(Record(clock, capture('t')))}"
        )
    parts = parts_of(expression)
    for part in parts:
        _check_calls(part)
    match expression:
        case Arithmetic():
            for operand in parts:
                if class_of(operand) in ("record", "map"):
                    reason = f"{operand} is no number and no text: nothing can be calculated with it"
                    raise UsageError(reason + _meant(operand))
        case FunctionCall():
            function = expression.function
            for at, part in enumerate(parts):
                wanted, found = function.class_at(at), class_of(part)
                if wanted and found and found not in wanted.split("|"):
                    raise function.refusal(at, f"{part}, {with_article(found)}{_meant(part)}")
        case Choice(condition):
            _check_order(condition)
    if parts and not (list(variables_of(expression)) or _has_now(expression)):
        try:
            evaluate(expression, {}, free)
        except UnknownFunction:
            pass
        except ZeroDivisionError as error:
            raise UsageError(f"{expression}: {error}") from None


def _has_now(expression: Expression) -> bool:
    return isinstance(expression, Now) or any(map(_has_now, parts_of(expression)))


def _check_order(comparison: Comparison) -> None:
    """Refuses a comparison that never holds, because its sides have different classes."""
    left, right = class_of(comparison.left), class_of(comparison.right)
    if "record" in (left, right) and left and right and left != right:
        record = comparison.left if left == "record" else comparison.right
        raise UsageError(
            f"{comparison} compares {with_article(left)} with {with_article(right)}{_meant(record)}"
        )


def _meant(expression: Expression) -> str:
    """Returns the function that a record may have been meant to be."""
    label = _label(expression)
    near = nearest(label) if isinstance(label, str) and label not in FUNCTIONS else ""
    return f": did you mean {near}(…)?" if near else ""


def _label(expression: Expression) -> Value:
    if isinstance(expression, Structure) and isinstance(expression.template, Record):
        return expression.template.label
    return expression.label if isinstance(expression, Compound) else None


def bound_by(rule: Rule) -> set[str]:
    """Returns the variables that have values."""
    return bound_in(rule.body)


def names_in(atom: Atom) -> tuple[str, ...]:
    """Returns the variables of an atom, in order."""
    return tuple([name for name in skeleton(atom.pattern).names if name is not None])


def _asked(rule: Rule) -> Iterator[tuple[str, str]]:
    for argument in rule.head.arguments:
        if not (isinstance(argument, Aggregate) and part_of(rule, argument)):
            yield from _each(variables_of(argument), "the head")
    yield from _asked_by(rule.body)


def _asked_by(literals: Iterable[Literal]) -> Iterator[tuple[str, str]]:
    for literal in literals:
        if isinstance(literal, Comparison):
            yield from _each(variables_of(literal.left), str(literal))
            yield from _each(variables_of(literal.right), str(literal))
        elif isinstance(literal, Elements):
            yield from _each([*literal.names, *variables_of(literal.of)], str(literal))
        elif isinstance(literal, Atom) and literal.negated:
            yield from _each(names_in(literal), str(literal))


def _each(names: Iterable[str], where: str) -> Iterator[tuple[str, str]]:
    return ((name, where) for name in names)


def _check_made(expression: Expression) -> None:
    """Raises ``UsageError`` if something in a value that is made is left open."""
    if isinstance(expression, Structure):
        _check_template(expression.template)
    for part in parts_of(expression):
        _check_made(part)


def _check_template(template: Value) -> None:
    match template:
        case Record(label="_"):
            raise UsageError("_ stands for anything: it can be asked for, not made")
        case Record(label="$", fields=(None, _, _)):
            raise UsageError("a $ without a name can be asked for, not made")
        case Record(label="$", fields=(_, of_class, sub)) if of_class is not None or sub != DISCARD:
            raise UsageError(f"{unparse(template)} has a condition: it can be asked for, not made")
        case Record(label="$" | "lit"):
            return
        case Record(fields=parts):
            for part in parts:
                _check_template(part)
        case tuple():
            for part in template:
                _check_template(part)
        case Map():
            for at, part in template.pairs():
                _check_template(at)
                _check_template(part)
