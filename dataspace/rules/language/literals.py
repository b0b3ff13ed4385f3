"""Reading literals: atoms with their times, comparisons, groups, and aggregates.

Atoms are the patterns of ``index/TEXT.md``, read by the reader of values.

Always: a literal that is printed reads back as the same one; each level of groups is counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dataspace.rules.language.expressions import (
    COMPARISON,
    MAX_NESTING,
    NUMBER,
    OPERATOR,
    ExpressionReader,
    expression_of,
)
from dataspace.rules.language.functions import FUNCTIONS
from dataspace.rules.language.groups import MIRRORED
from dataspace.rules.language.syntax import (
    AGGREGATES,
    CHOOSING,
    SOLUTIONS,
    UNITS,
    Aggregate,
    Atom,
    Comparison,
    Compound,
    EitherGroup,
    Elements,
    Expression,
    GroupAggregate,
    LastingGroup,
    Literal,
    MaybeGroup,
    NegatedGroup,
    Now,
    Structure,
    TimedAtom,
    Variable,
    variables_of,
)
from index.errors import UsageError
from index.patterns.patterns import skeleton
from index.patterns.text import ParseError, Reader
from index.values.scanner import WORD
from index.values.values import Value

MAX_SPAN: Final = 366 * UNITS["d"]

_AGGREGATE: Final = re.compile(rf"({'|'.join(AGGREGATES)})\(")
_MEMBER: Final = re.compile(rf"\$({WORD.pattern})\s*(?::\s+\$({WORD.pattern})\s*)?in\b(?![(-])")
OR: Final = re.compile(r"or\b|\|\|?|;")


class LiteralReader(ExpressionReader):
    """Reads literals, and the arguments of heads."""

    __slots__ = ()

    def argument(self) -> Expression | Aggregate:
        self.blanks()
        found = _AGGREGATE.match(self.text, self.position)
        if found is None:
            return self.expression(0)
        start = self.position
        self.position = found.end()
        n: int | float = 0
        if found[1] == "top":
            at = self.position
            given = self.value()
            if given.__class__ is not int or not 1 <= given <= 10_000:
                raise self.error("top takes a number from 1 to 10000, then what to take the largest of", at)
            n = given
            self.expect(",")
        self.blanks()
        if found[1] == "count" and self.accept(")"):
            return self._alone(Aggregate("count", SOLUTIONS), start)
        if self.ahead() == ")":
            raise self.error(f"{found[1]}() of what? name a variable of the body, such as {found[1]}($x)")
        inner = _AGGREGATE.match(self.text, self.position)
        if inner and inner[1] not in FUNCTIONS:
            raise self.error(f"an aggregate of an aggregate: derive {inner[1]}(…) by another rule first")
        distinct = self._distinct()
        if distinct and found[1] in CHOOSING:
            raise self.error(f"{found[1]} takes one value, so distinct means nothing: leave it out", start)
        of = self.expression(0)
        if found[1] in FUNCTIONS and self.accept(","):
            self.position = start
            return self.expression(0)  # of several values it is a function
        by = self._order_of(found[1]) if found[1] in CHOOSING else None
        n = self._percent() if found[1] == "percentile" else n
        self.expect(")")
        return self._alone(Aggregate(found[1], of, n, distinct, self._otherwise(), by), start)

    def _percent(self) -> int | float:
        self.blanks()
        at = self.position
        given = self.value() if self.accept(",") else None
        if given.__class__ not in (int, float) or not 0 < given <= 100:
            raise self.error(
                "percentile takes a value and a number above 0, up to 100: percentile($v, 95) (a record is"
                ' written "percentile"(…))',
                at,
            )
        return given

    def _order_of(self, name: str) -> Expression:
        """Reads what the values are ordered by of which an aggregate takes one."""
        self.blanks()
        if not self.accept(","):
            raise self.error(
                f"{name} takes a value and what it is ordered by: {name}($v, $n), or {name}($v, $t) with at"
                f' $t (a record is written "{name}"(…))'
            )
        return self.expression(0)

    def _otherwise(self) -> Structure | None:
        """Reads what an aggregate is where it has no value."""
        if not self.keyword("else"):
            return None
        self.blanks()
        at = self.position
        found = expression_of(self.value())
        if not isinstance(found, Structure) or next(variables_of(found), None) is not None:
            raise self.error("else takes a value, as in max($n) else 0", at)
        return found

    def _distinct(self) -> bool:
        """True if the word ``distinct`` stands before what an aggregate takes; then it is read."""
        at = self.position
        if not self.keyword("distinct"):
            return False
        self.blanks()
        if self.ahead() not in (")", ","):
            return True
        self.position = at  # a constant of that name
        return False

    def _alone(self, aggregate: Aggregate, at: int) -> Aggregate:
        """Returns an aggregate with which nothing is calculated."""
        self.blanks()
        if OPERATOR.match(self.text, self.position):
            self.refuse_foreign(aggregate.name, at)
        return aggregate

    def literal(self, level: int = 0) -> Literal:
        if level > MAX_NESTING:
            raise self.error(f"groups nested deeper than {MAX_NESTING} levels")
        if "maybe" not in self.constants and self.keyword("maybe"):
            return self._maybe(level)
        if self.keyword("not"):
            self.blanks()
            if self.ahead() == "(":
                return self._negated_group(level)
            at = self.position
            return self._timed(Atom(self._pattern(at, self.value()), negated=True), at)
        self.blanks()
        at = self.position
        if self.ahead() == "!":
            raise self.error("a negation is written not, as in not closed($x)")
        if self.text.startswith("not(", at):
            raise self.error('write not (…) with a blank for a negation, or "not"(…) for a fact')
        if self.ahead() == "(" and self._is_group():
            return self._group(level)
        aggregate = self._aggregate_of()
        if aggregate is not None:
            return self._compared_aggregate(aggregate, level)
        if found := _MEMBER.match(self.text, at):
            self.position = found.end()
            names = (found[1],) if found[2] is None else (found[1], found[2])
            return Elements(names, self.expression(0))
        pattern = self._pattern_alone()
        if pattern is not None:
            return self._timed(Atom(pattern), at)
        left = self.expression(0)
        self.blanks()
        operator = self.take_match(COMPARISON)
        if operator:
            operator = "=" if operator == "==" else operator
            aggregate = self._aggregate_of()
            if aggregate is None:
                return Comparison(operator, left, self.expression(0))
            return GroupAggregate(aggregate, self._needed_group(level), MIRRORED[operator], left)
        raise self.error("an expression alone says nothing: compare it with something", at)

    def _pattern_alone(self) -> Value:
        """Returns the next pattern; None, and reads nothing, if an expression is next."""
        at = self.position
        if self.ahead() in "-(" or self.hosted():
            return None
        try:
            value = self.value()
        except ParseError as error:
            self._refuse_pattern(error, at)
            return None
        self.blanks()
        here = self.text, self.position
        if COMPARISON.match(*here) or OPERATOR.match(*here) or NUMBER.match(self.text, at):
            self.position = at
            return None
        return self._pattern(at, value)

    def _refuse_pattern(self, error: ParseError, at: int) -> None:
        """Raises what is wrong with a text that is no pattern, unless it is a comparison."""
        self.position = at
        try:
            found = self.comparison(0)
        except ParseError as other:
            raise (other if other.position > error.position else error) from None
        self.position = at
        if isinstance(found, Compound):
            raise self.error(
                "a fact is asked for by a pattern, without calculations: write a variable there, and"
                " compare it"
            )
        if not isinstance(found, (Comparison, Now)):
            raise error

    def _timed(self, atom: Atom, start: int) -> Atom | TimedAtom:
        """Returns an atom with the times that follow it."""
        name, within = None, None
        if self.keyword("at"):
            self.blanks()
            at = self.position
            found = expression_of(self.value())
            if not isinstance(found, Variable):
                raise self.error("at gives a variable the time: write at $t, and compare $t", at)
            if atom.negated:
                raise self.error("not with at: no fact, no time; leave it out", start)
            name = found.name
        if self.keyword("within"):
            within = self._duration("within")
        if self.keyword("for"):
            lasting = f"({replace(atom, maybe=False)}) for 30 s"
            written = f"maybe ({lasting})" if atom.maybe else lasting
            raise self.error(f"for stands behind a group in parentheses: {written}", start)
        if name is None and within is None:
            return atom
        return TimedAtom(atom.pattern, atom.negated, name, within, atom.maybe)

    def _is_group(self) -> bool:
        """True if a parenthesis holds literals, and not a part of an expression; reads nothing."""
        at = self.position
        self.accept("(")
        try:
            if self.keyword("not"):
                return True
            self.expression(1)
            self.blanks()
            return not self.accept(")") or self.keyword("for")
        except ParseError:
            return True  # it is wrong as an expression; as a group perhaps not
        finally:
            self.position = at

    def _group(self, level: int) -> EitherGroup | LastingGroup:
        at = self.position
        branches = self._branches(level)
        if self.keyword("for"):
            literals = branches[0] if len(branches) == 1 else (EitherGroup(branches),)
            for each in literals:
                _refuse_times(self, each, at)
            return LastingGroup(literals, self._duration("for"))
        if len(branches) == 1:
            raise self.error("a group in parentheses has or in it, or says for how long: (…) for 30 s", at)
        return EitherGroup(branches)

    def _branches(self, level: int) -> tuple[tuple[Literal, ...], ...]:
        """Reads literals in parentheses, with ``or`` between branches of them."""
        self.expect("(")
        branches: list[tuple[Literal, ...]] = []
        branch: list[Literal] = []
        while True:
            branch.append(self.literal(level + 1))
            if self.keyword("or"):
                branches.append(tuple(branch))
                branch = []
                continue
            self.blanks()
            if OR.match(self.text, self.position):
                raise self.error("alternatives have the word or between them")
            if self.expect(",", ")") == ")":
                return (*branches, tuple(branch))

    def _literals(self, level: int) -> tuple[Literal, ...]:
        """Reads literals in parentheses that are to hold together."""
        branches = self._branches(level)
        return branches[0] if len(branches) == 1 else (EitherGroup(branches),)

    def _maybe(self, level: int) -> Atom | TimedAtom | MaybeGroup:
        self.blanks()
        at = self.position
        if level:
            raise self.error("maybe stands in the body of a rule, and in no group: derive it by another", at)
        if self.ahead() == "(":
            return MaybeGroup(self._literals(level))
        if self.keyword("not"):
            raise self.error("maybe stands before what may be there: write maybe job($q, $j)", at)
        return self._timed(Atom(self._pattern(at, self.value()), maybe=True), at)

    def _negated_group(self, level: int) -> NegatedGroup:
        at = self.position
        literals = self._literals(level)
        for word in ("at", "within", "for"):
            if self.keyword(word):
                raise self.error(f"{word} stands behind one fact: derive the group by a rule of its own", at)
        return NegatedGroup(literals)

    def _aggregate_of(self) -> Aggregate | None:
        """Returns the aggregate that is next, if ``of`` and a group follow; else None, and reads nothing."""
        self.blanks()
        at = self.position
        if _AGGREGATE.match(self.text, at) is None:
            return None
        try:
            found = self.argument()
        except ParseError:
            found = None
        if isinstance(found, Aggregate) and self.keyword("of"):
            self.blanks()
            return found
        self.position = at
        return None

    def _compared_aggregate(self, aggregate: Aggregate, level: int) -> GroupAggregate:
        literals = self._needed_group(level)
        self.blanks()
        operator = self.take_match(COMPARISON)
        if not operator:
            raise self.error(f"compare it, or give it a name: {aggregate} of (…) = $value")
        return GroupAggregate(aggregate, literals, "=" if operator == "==" else operator, self.expression(0))

    def _needed_group(self, level: int) -> tuple[Literal, ...]:
        if self.ahead() != "(":
            raise self.error("of takes literals in parentheses, as in count() of (open($door)) = $n")
        return self._literals(level)

    def _duration(self, behind: str) -> int:
        """Reads a duration, or a constant with a number of seconds; returns microseconds."""
        self.blanks()
        at = self.position
        number = self.take_match(NUMBER)
        if number:
            micros = self.micros(number, at)
        else:
            given = self.value()
            if given.__class__ not in (int, float):
                raise self.error(f"expected a duration behind {behind}, such as 60 s", at)
            if NUMBER.match(self.text, at) is None and self.text[at : at + 1].isdigit():
                raise self.error(f"a duration needs a unit, one of {' '.join(UNITS)}: {behind} {given} s", at)
            micros = round(given * 1_000_000)
        if not 0 < micros <= MAX_SPAN:
            raise self.error("a duration is more than nothing and at most 366 d", at)
        return micros

    def _pattern(self, at: int, pattern: Value) -> Value:
        try:
            skeleton(pattern)
        except UsageError as error:
            raise self.error(str(error), at) from None
        return pattern


def _refuse_times(reader: Reader, literal: Literal, at: int) -> None:
    """Refuses times inside a group that is to last."""
    match literal:
        case TimedAtom() | LastingGroup():
            raise reader.error(f"time within time: derive {literal} by a rule of its own", at)
        case EitherGroup(branches):
            for branch in branches:
                for each in branch:
                    _refuse_times(reader, each, at)
        case NegatedGroup(literals) | GroupAggregate(_, literals):
            for each in literals:
                _refuse_times(reader, each, at)


def count(literals: Sequence[Literal]) -> int:
    """Returns how many literals there are, those in groups included."""
    found = 0
    for literal in literals:
        match literal:
            case EitherGroup(branches):
                found += sum(map(count, branches))
            case NegatedGroup(inside) | GroupAggregate(_, inside) | LastingGroup(inside) | MaybeGroup(inside):
                found += count(inside)
            case _:
                found += 1
    return found
