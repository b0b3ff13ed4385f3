"""Lowering: rules with times become rules whose only times are in how long rows stay.

Each literal with a time is taken out of its rule and becomes a rule of its own, with a head that is read by
that rule alone: the rows of such a head come and go by the time of epochs (``relations/timing.py``).  For
``hot($d) <- (temp($d, $v), $v > 90) for 30 s.`` that is

    timed("(temp($d, $v), $v > 90) for 30 s …"($d)) <- temp($d, $v), $v > 90.
    hot($d) <- "(temp($d, $v), $v > 90) for 30 s …"($d).

Always: the rules that are made have no times in their bodies; a rule without times is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Final, NamedTuple, TypeGuard

from dataspace.rules.language.arithmetic import calculate
from dataspace.rules.language.functions import CALENDAR
from dataspace.rules.language.groups import MIRRORED, named, names_of, ungrouped
from dataspace.rules.language.ordering import free
from dataspace.rules.language.syntax import (
    FLOOR,
    TIMELY,
    Aggregate,
    Arithmetic,
    Atom,
    Comparison,
    Compound,
    Elements,
    Expression,
    FunctionCall,
    Head,
    LastingGroup,
    Literal,
    Now,
    Rule,
    Structure,
    TimedAtom,
    TimeForm,
    TimeKind,
    Variable,
    Verb,
    class_of,
    duration_text,
    parts_of,
    variables_of,
    with_operands,
    with_parts,
)
from dataspace.rules.language.zones import LONGEST
from index.errors import UsageError
from index.patterns.patterns import DISCARD
from index.values.values import Record, Value

_PLACE: Final = Structure(0)
"""Stands in a head for a column that time fills."""


def has_times(rule: Rule) -> bool:
    """True if anything in a rule depends on time."""
    return rule.head.verb is Verb.FINAL or any(
        isinstance(each, TimedAtom | LastingGroup)
        or (isinstance(each, Comparison) and (_is_about_now(each) or _shown_in(each)))
        for each in rule.body
    )


def lowered(rules: Iterable[Rule], name: str = "", text: str = "") -> tuple[Rule, ...]:
    """Returns the rules that are carried out for the rules of a text; O(rules).

    ``name`` and ``text`` tell the heads of one text from the heads of others.
    """
    mark = mark_of(name, text)
    results: list[Rule] = []
    known: dict[str, Rule] = {}
    for at, rule in enumerate(rules):
        for part, ungrouped_rule in enumerate(ungrouped(rule, f"{mark}.{at}")):
            if not has_times(ungrouped_rule):
                results.append(ungrouped_rule)
                continue
            lowering = _Lowering(ungrouped_rule, f"{mark}.{at}.{part}" if part else f"{mark}.{at}")
            results.append(lowering.rule())
            for hidden in lowering.hidden:
                known.setdefault(str(hidden.head.label), hidden)
    return (*known.values(), *results)


def mark_of(name: str, text: str) -> str:
    """Returns what stands in all labels of the heads that are made for a text, and in no others."""
    return blake2b(f"{name}\0{text}".encode(errors="surrogatepass"), digest_size=6).hexdigest()


class _Lowering:
    """One rule with times while it is taken apart."""

    def __init__(self, rule: Rule, mark: str) -> None:
        self._rule = rule
        self._mark = mark
        self._collects = bool(rule.head.aggregates)
        self._opened = 0
        heads = [name for each in rule.head.arguments for name in variables_of(each)]
        self._taken = {*heads, *[name for each in rule.body for name in names_of(each)]}
        self.hidden: list[Rule] = []

    def rule(self) -> Rule:
        """Returns the rule that is left; ``hidden`` are the others then."""
        rule = self._rule
        head = rule.head
        body: list[Literal] = []
        if head.verb is Verb.FINAL:
            head = Head(head.label, head.arguments)
            window = next(window_of(side) for each in rule.body for side in _sides_with_floor(each))
            assert window is not None  # else it is refused
            body = [self._final(each, window) if isinstance(each, TimedAtom) else each for each in rule.body]
        else:
            for literal in rule.body:
                match literal:
                    case TimedAtom():
                        body += self._timed(literal)
                    case LastingGroup():
                        body.append(self._lasting(literal))
                    case _:
                        body.append(literal)
        if any(isinstance(each, Comparison) and _shown_in(each) for each in body):
            body = self._clocked(body)
        about_now = [each for each in body if isinstance(each, Comparison) and _is_about_now(each)]
        if about_now:
            maybes = [each for each in body if isinstance(each, Atom) and each.maybe]
            rest = [each for each in body if each not in about_now and each not in maybes]
            body = [self._compared(head, rest, about_now), *maybes]
        return Rule(head, tuple(body), written=rule.text, part=rule.part)

    # -- literals --------------------------------------------------------------------------------------

    def _timed(self, literal: TimedAtom) -> Iterator[Literal]:
        if literal.negated:
            assert literal.within is not None  # not with at is refused
            names = [each for each in named(literal.pattern) if each in self._bound()]
            unnamed = _closed(literal.pattern, set(names))
            form = TimeForm(
                TimeKind.WITHIN, literal.within, pattern=unnamed, shown=str(literal), literals=(literal,)
            )
            yield self._hide(form, [Atom(unnamed)], names, negated=True)
            age = f"the rule is {duration_text(literal.within)} old"
            old = TimeForm(TimeKind.FOR, literal.within, shown=age)
            yield self._hide(old, [], [])
            return
        is_each = self._collects or literal.at is not None
        pattern = _opened(literal.pattern, self if is_each else None)
        names = named(pattern)
        whole = self._fresh() if is_each else ""
        if literal.within is None:
            assert literal.at is not None  # else it is an atom
            form = TimeForm(TimeKind.AT, is_exact=True, shown=str(literal), literals=(literal,))
            hidden = self._hide(form, [Atom(_whole(pattern, whole))], [*names, whole], extra=[literal.at])
            yield replace(hidden, maybe=literal.maybe)
            return
        kind = TimeKind.OCCURRENCES if is_each else TimeKind.WITHIN
        form = TimeForm(
            kind,
            literal.within,
            pattern=pattern,
            is_exact=literal.at is not None,
            shown=str(literal),
            literals=(literal,),
        )
        if not is_each:
            yield self._hide(form, [Atom(pattern)], names)
            return
        extra = [literal.at or self._fresh(), self._fresh()]
        hidden = self._hide(form, [Atom(_whole(pattern, whole))], names, extra=extra, whole=whole)
        yield replace(hidden, maybe=literal.maybe)

    def _clocked(self, body: Sequence[Literal]) -> list[Literal]:
        """Returns the literals with an atom that shows what clocks show now, in one row for the whole rule.

        Comparisons with constants decide whether it is there, so that it changes as rarely as they do.
        """
        conditions: list[Literal] = []
        names: dict[FunctionCall, str] = {}
        rest: list[Literal] = []
        for literal in body:
            if not isinstance(literal, Comparison) or not (calls := _shown_in(literal)):
                rest.append(literal)
            elif all(isinstance(each, Structure) or each in calls for each in (literal.left, literal.right)):
                conditions.append(literal)
            else:
                names.update({each: names.get(each) or self._fresh(f"{each.name}-now") for each in calls})
                left, right = (_with_shown(each, names) for each in (literal.left, literal.right))
                rest.append(Comparison(literal.operator, left, right))
        shown = ", ".join(map(str, [*conditions, *names]))
        form = TimeForm(TimeKind.CLOCK, shown=shown, literals=tuple(conditions), shows=tuple(names))
        return [*rest, self._hide(form, [], [], extra=[*names.values()])]

    def _final(self, literal: TimedAtom, window: FloorWindow) -> Literal:
        pattern = _opened(literal.pattern, self)
        assert literal.within is not None and literal.at is not None  # else it is refused
        form = TimeForm(
            TimeKind.FINAL,
            literal.within,
            window.longest,
            pattern,
            shown=str(literal),
            literals=(literal,),
            calendar=window.calendar,
        )
        extra, whole = [literal.at, self._fresh()], self._fresh()
        return self._hide(form, [Atom(_whole(pattern, whole))], named(pattern), extra=extra, whole=whole)

    def _lasting(self, group: LastingGroup) -> Literal:
        used = {name for argument in self._rule.head.arguments for name in variables_of(argument)}
        for each in self._rule.body:
            if each is not group:
                used.update(names_of(each))
        inside = dict.fromkeys(name for each in group.literals for name in names_of(each))
        form = TimeForm(TimeKind.FOR, group.span, shown=str(group), literals=(group,))
        return self._hide(form, group.literals, [name for name in inside if name in used])

    def _compared(self, head: Head, rest: Sequence[Literal], about_now: Sequence[Comparison]) -> Literal:
        """Takes the whole body apart, since it needs the values of its variables."""
        if self._collects:
            rest = [
                replace(each, pattern=_opened(each.pattern, self))
                if isinstance(each, Atom) and not each.negated
                else each
                for each in rest
            ]
            names = list(dict.fromkeys(name for each in rest for name in names_of(each)))
        else:
            names = list(dict.fromkeys(n for each in head.arguments for n in variables_of(each)))
        operators, operands = zip(*[_sides(each) for each in about_now], strict=True)
        shown = ", ".join(map(str, about_now))
        form = TimeForm(TimeKind.NOW, operators=operators, shown=shown, literals=tuple(about_now))
        extra = [self._fresh() for _ in operands]
        return self._hide(form, rest, names, extra=extra, operands=operands)

    def _hide(
        self,
        form: TimeForm,
        body: Sequence[Literal],
        names: Sequence[str],
        *,
        extra: Sequence[str] = (),
        operands: Sequence[Expression] = (),
        negated: bool = False,
        whole: str = "",
    ) -> Atom:
        """Makes a rule of its own for a literal; returns the atom that reads it.

        ``extra`` are the variables of further columns, for ``operands`` or filled by time.  The last of them
        is the fact itself before time fills it, where that is the variable ``whole``.
        """
        label = f"{form.shown} [{self._mark}.{len(self.hidden)}]"
        columns: list[Expression] = [Variable(name) for name in names]
        columns += [Arithmetic(TIMELY, each, _PLACE) for each in operands] or [_PLACE for _ in extra]
        if whole:
            columns[-1] = Variable(whole)
        made = Rule(Head(label, tuple(columns), Verb.HIDDEN), tuple(body), form, self._rule.text)
        self.hidden.append(made)
        fields = [Record("$", name, None, DISCARD) for name in [*names, *extra]]
        return Atom(Record.of(label, tuple(fields)), negated, form.shown)

    def _bound(self) -> set[str]:
        """Returns the variables that anything else in the rule has."""
        return {
            name
            for each in self._rule.body
            if not (isinstance(each, TimedAtom) and each.negated)
            for name in names_of(each)
        }

    def _fresh(self, word: str = "column") -> str:
        """Returns a variable that the rule does not have."""
        while True:
            self._opened += 1
            if (name := f"{word}-{self._opened}") not in self._taken:
                return name


def _opened(pattern: Value, by: _Lowering | None) -> Value:
    """Returns a pattern that captures each discarded part; ``by`` gives the names."""
    if by is None:
        return pattern
    match pattern:
        case Record(label="lit"):
            return pattern
        case Record(label="_", fields=fields):
            return Record.of("$", (by._fresh(), fields[0] if fields else None, DISCARD))
        case Record(label="$", fields=(name, of_class, sub)):
            return Record.of(
                "$", (name or by._fresh(), of_class, sub if sub == DISCARD else _opened(sub, by))
            )
    return with_parts(pattern, lambda part: _opened(part, by))


def _whole(pattern: Value, name: str) -> Value:
    """Returns a pattern that captures the fact as well.

    Facts that differ only where the pattern names nothing are occurrences of their own.
    """
    return Record.of("$", (name, None, pattern))


def _closed(pattern: Value, names: set[str]) -> Value:
    """Returns a pattern that captures only these variables."""
    match pattern:
        case Record(label="lit" | "_"):
            return pattern
        case Record(label="$", fields=(name, of_class, sub)):
            inner = sub if sub == DISCARD else _closed(sub, names)
            return Record.of("$", (name if name in names else None, of_class, inner))
    return with_parts(pattern, lambda part: _closed(part, names))


def _is_about_now(comparison: Comparison) -> bool:
    return any(_mentions_now(each) for each in (comparison.left, comparison.right))


def _mentions_now(expression: Expression | Aggregate) -> bool:
    """True if the present time is in an expression itself, and not what a clock shows then."""
    if _is_shown(expression):
        return False
    return isinstance(expression, Now) or any(map(_mentions_now, parts_of(expression)))


def _is_shown(expression: Expression | Aggregate) -> TypeGuard[FunctionCall]:
    """True for a function of a calendar of the present time, such as ``hour(now, "Europe/Zurich")``."""
    return (
        isinstance(expression, FunctionCall)
        and expression.name in CALENDAR
        and expression.hosted is None
        and isinstance(expression.arguments[0], Now)
    )


def _shown_in(literal: Comparison | Expression | Aggregate) -> list[FunctionCall]:
    """Returns the calls of such functions in a comparison or an expression."""
    if isinstance(literal, Comparison):
        return _shown_in(literal.left) + _shown_in(literal.right)
    if _is_shown(literal):
        return [literal]
    return [call for part in parts_of(literal) for call in _shown_in(part)]


def _with_shown(expression: Expression, names: Mapping[FunctionCall, str]) -> Expression:
    """Returns an expression with variables in place of these calls."""
    if _is_shown(expression):
        return Variable(names[expression])
    return with_operands(expression, lambda part: _with_shown(part, names))


def _sides(comparison: Comparison) -> tuple[str, Expression]:
    """Returns how an expression compares with the present time, from its side: ``<=`` is ``e <= now``."""
    if isinstance(comparison.right, Now):
        return comparison.operator, comparison.left
    return MIRRORED[comparison.operator], comparison.right


class FloorWindow(NamedTuple):
    """The windows of a ``floor``: of what they are, how long the longest is in microseconds, and the unit and
    the zone of a calendar."""

    of: Expression
    longest: int
    calendar: tuple[str, str] | None = None


def window_of(expression: Expression) -> FloorWindow | None:
    """Returns the windows of a ``floor``; None for any other expression."""
    match expression:
        case Arithmetic(operator, of, span) if operator == FLOOR:
            return FloorWindow(of, _seconds(span))
        case FunctionCall(name, (of, Structure(str(unit)), Structure(str(zone)))) if name == FLOOR:
            return FloorWindow(of, LONGEST[unit] // timedelta(microseconds=1), (unit, zone))
    return None


def _sides_with_floor(literal: Literal) -> list[Expression]:
    sides = (literal.left, literal.right) if isinstance(literal, Comparison) else ()
    return [each for each in sides if window_of(each) is not None]


def _seconds(expression: Expression) -> int:
    if isinstance(expression, Structure) and expression.template.__class__ in (int, float):
        return round(expression.template * 1_000_000)
    return 0


# -- what is refused -------------------------------------------------------------------------------


def flattened(rule: Rule) -> Rule:
    """Returns a rule in which variables are bound as in the given one, without times: for ``safety``."""
    body: list[Literal] = []
    for literal in rule.body:
        match literal:
            case TimedAtom(pattern, negated, at, _, maybe):
                unbound = _closed(pattern, set(_free(rule, literal))) if negated else pattern
                if maybe and at is not None:
                    unbound = Record("$", at, None, unbound)
                    at = None
                body.append(Atom(unbound, negated, maybe=maybe))
                if at is not None:
                    body.append(Atom(Record("at", Record("$", at, None, DISCARD))))
            case LastingGroup(literals, _):
                body += literals
            case _:
                body.append(literal)
    return Rule(rule.head, tuple(body))


def _free(rule: Rule, literal: TimedAtom) -> list[str]:
    others = {name for each in rule.body if each is not literal for name in names_of(each)}
    return [name for name in named(literal.pattern) if name in others] or named(literal.pattern)


def check_times(rule: Rule) -> None:
    """Raises ``UsageError`` for times at places where they mean nothing; says what to write instead."""
    for argument in rule.head.arguments:
        if _mentions_now(argument):
            raise UsageError("now in a head would change all the time: compare it in the body, $t <= now")
        if calls := _shown_in(argument):
            raise UsageError(f"{calls[0]} in a head: give it a name in the body, $x = {calls[0]}")
    timed = [each.at for each in rule.body if isinstance(each, TimedAtom) and each.at is not None]
    times = dict.fromkeys(timed, "time")
    for literal in rule.body:
        match literal:
            case Comparison():
                _check_comparison(literal, times)
            case LastingGroup(literals, _):
                _check_group(literal, literals)
            case Elements(_, of) if _mentions_now(of) or _shown_in(of):
                raise UsageError(f"now in {literal}: compare it, as in $t <= now")
            case TimedAtom(pattern, _, _, within):
                if within is not None and not (
                    isinstance(pattern, Record) and pattern.label not in ("$", "_")
                ):
                    raise UsageError(f"{literal} would keep every fact and message: name a label")
    if rule.head.verb is Verb.FINAL:
        _check_final(rule)


def _check_comparison(comparison: Comparison, times: Mapping[str, str]) -> None:
    left, right = comparison.left, comparison.right
    if _is_about_now(comparison):
        if comparison.operator in ("=", "!="):
            raise UsageError(
                f"{comparison}: now is equal to a time in one instant only; write <= or >, such as $t <= now"
            )
        sides = [isinstance(each, Now) for each in (left, right)]
        if sides.count(True) != 1 or _mentions_now(right if sides[0] else left):
            raise UsageError(f"{comparison}: now stands alone on one side{_rewritten(comparison)}")
    classes = {class_of(left, times), class_of(right, times)}
    if "time" in classes and classes & {"number", "text"} and comparison.operator != "=":
        raise UsageError(
            f"{comparison} compares a time with a {'number' if 'number' in classes else 'text'}: a time is"
            " compared with a time, as in $t + 60 <= now"
        )


def _rewritten(comparison: Comparison) -> str:
    """Returns how a comparison is to be written in which now has been calculated with."""
    for side, other, operator in (
        (comparison.left, comparison.right, MIRRORED[comparison.operator]),
        (comparison.right, comparison.left, comparison.operator),
    ):
        if isinstance(side, Arithmetic) and isinstance(side.left, Now) and side.operator in ("+", "-"):
            moved = Arithmetic("-" if side.operator == "+" else "+", other, side.right)
            if side.operator == "-" and isinstance(side.right, Variable):
                moved = Arithmetic("+", side.right, other)
            return f": write {str(moved).strip('()')} {operator} now"
        if isinstance(side, Compound) and side.kind == "record":
            shown = 'year month day weekday hour, as in hour(now, "Europe/Zurich") > 8'
            return f"; {side.label!r} is no function, and a clock shows {shown}"
    return ""


def _check_group(group: LastingGroup, literals: Sequence[Literal]) -> None:
    if not any(isinstance(each, Atom) and not each.negated for each in literals):
        raise UsageError(f"{group} needs a fact that holds, such as (temp($d, $v), $v > 90) for 30 s")
    for each in literals:
        if isinstance(each, Comparison) and (_is_about_now(each) or _shown_in(each)):
            raise UsageError(f"time within time: compare with now beside {group}, not inside")


def _check_final(rule: Rule) -> None:
    example = "final(per_minute($m, count($v))) <- reading($v) at $t within 3 min, $m = floor($t, 1 min)."
    timed = [each for each in rule.body if isinstance(each, TimedAtom)]
    sides = [side for each in rule.body for side in _sides_with_floor(each)]
    floors = [window for side in sides if (window := window_of(side))]
    others = [
        each
        for each in rule.body
        if isinstance(each, Atom | LastingGroup) or (isinstance(each, Comparison) and _shown_in(each))
    ]
    if (
        len(timed) != 1
        or timed[0].negated
        or timed[0].at is None
        or timed[0].within is None
        or others
        or timed[0].maybe
    ):
        raise UsageError(f"final takes one atom with at and within, and no other, as in {example}")
    if len(floors) != 1 or floors[0].of != Variable(timed[0].at) or not floors[0].longest:
        raise UsageError(f"final takes one floor of the time of its atom, as in {example}")
    if timed[0].within <= floors[0].longest:
        lasts = f", which last up to {duration_text(floors[0].longest)}" if floors[0].calendar else ""
        raise UsageError(f"final needs within to be longer than its windows{lasts}, as in {example}")
    if isinstance(sides[0], Arithmetic):
        calculate(FLOOR, 0, sides[0].right.template, free)  # type: ignore[union-attr]  # a number, as above
