"""Building: rules written in Python, as the same data that text gives.

    x, y, z, n = variables("x y z n")
    edge, reach, hub = relations("edge reach hub")
    reach(x, y) <= edge(x, y)
    reach(x, z) <= reach(x, y) & edge(y, z) & ~gone(z)
    hub(x, count(y)) <= edge(x, y)
    big(x) <= hub(x, n) & when(n >= 3)

The operators belong to patterns and variables, never to values.  What Python would understand otherwise
(``and``, ``not``, ``a < b < c``, two arrows) is caught where it is written, with what to write instead.

Always: a rule built here is safe, and prints as the text that gives the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from dataspace.rules.language.parser import expression_of
from dataspace.rules.language.safety import check
from dataspace.rules.language.syntax import (
    Aggregate,
    Arithmetic,
    Atom,
    Comparison,
    Expression,
    Head,
    Literal,
    Rule,
    Structure,
    Variable,
    Verb,
)
from index.errors import UsageError
from index.patterns.patterns import DISCARD, capture
from index.values.freezing import freeze
from index.values.values import Record, Value

Open = Any
"""What may stand as a field: a variable, ``...``, a value, a pattern, or a term of relations."""


class Made:
    """An expression of variables."""

    __slots__ = ("expression",)
    __hash__ = None  # type: ignore[assignment]  # == makes a comparison

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __add__(self, other: Open) -> Made:
        return _arithmetic("+", self, other)

    def __sub__(self, other: Open) -> Made:
        return _arithmetic("-", self, other)

    def __mul__(self, other: Open) -> Made:
        return _arithmetic("*", self, other)

    def __truediv__(self, other: Open) -> Made:
        return _arithmetic("/", self, other)

    def __floordiv__(self, other: Open) -> Made:
        return _arithmetic("//", self, other)

    def __mod__(self, other: Open) -> Made:
        return _arithmetic("%", self, other)

    def __lt__(self, other: Open) -> Condition:
        return _condition("<", self, other)

    def __le__(self, other: Open) -> Condition:
        return _condition("<=", self, other)

    def __gt__(self, other: Open) -> Condition:
        return _condition(">", self, other)

    def __ge__(self, other: Open) -> Condition:
        return _condition(">=", self, other)

    def __eq__(self, other: Open) -> Condition:  # type: ignore[override]  # a condition, not an answer
        return _condition("=", self, other)

    def __ne__(self, other: Open) -> Condition:  # type: ignore[override]  # as above
        return _condition("!=", self, other)

    def __bool__(self) -> NoReturn:
        raise _no_truth("a variable")


class Condition:
    """A comparison; ``when`` makes it part of a body."""

    __slots__ = ("comparison",)

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def __bool__(self) -> NoReturn:
        raise _no_truth("a comparison")


class RuleBody:
    """Literals that must all hold."""

    __slots__ = ("literals",)

    def __init__(self, *literals: Literal) -> None:
        self.literals = literals

    def __and__(self, other: RuleBody | Condition) -> RuleBody:
        if not isinstance(other, RuleBody):
            raise UsageError("a comparison in a body stands in when(…): `edge(x, n) & when(n >= 3)`")
        return RuleBody(*self.literals, *other.literals)

    def __bool__(self) -> NoReturn:
        raise _no_truth("a body")


class Pattern(RuleBody):
    """A record of a relation: an atom in a body, a head before ``<=``."""

    __slots__ = ("arguments", "label", "verb")

    def __init__(self, label: str, arguments: tuple[Open, ...], verb: Verb = Verb.ASSERT) -> None:
        self.label = label
        self.arguments = arguments
        self.verb = verb

    @property
    def literals(self) -> tuple[Literal, ...]:  # type: ignore[override]  # made when asked for
        return (Atom(self.pattern),)

    @property
    def pattern(self) -> Value:
        """Returns the pattern that this is in a body."""
        if self.verb is not Verb.ASSERT:
            raise UsageError(f"{self.verb} is what becomes of a head: it cannot be asked for")
        return Record(self.label, *[_part(each) for each in self.arguments])

    def __invert__(self) -> RuleBody:
        return RuleBody(Atom(self.pattern, negated=True))

    def __le__(self, body: RuleBody) -> Rule:
        if not isinstance(body, RuleBody):
            raise UsageError(f"behind <= stands a body of patterns joined by &, not {body!r:.60}")
        rule = Rule(self.head(), body.literals)
        check(rule)
        return rule

    def head(self) -> Head:
        """Returns what this is before ``<=``."""
        return Head(self.label, tuple([_argument(each) for each in self.arguments]), self.verb)


class RelationName:
    """Makes patterns of one label: ``edge(x, y)``."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    def __call__(self, *fields: Open) -> Pattern:
        return Pattern(self.label, fields)


def variables(names: str) -> Iterator[Made]:
    """Returns a variable for each word: ``x, y = variables("x y")``."""
    return (Made(Variable(name)) for name in names.split())


def relations(labels: str) -> Iterator[RelationName]:
    """Returns a relation for each word: ``edge, reach = relations("edge reach")``."""
    return (RelationName(label) for label in labels.split())


def when(condition: Condition) -> RuleBody:
    """Returns a comparison as part of a body."""
    if not isinstance(condition, Condition):
        raise UsageError(f"when takes a comparison such as n >= 3, not {condition!r:.60}")
    return RuleBody(condition.comparison)


def fact(head: Pattern) -> Rule:
    """Returns a rule without a body: its head always holds."""
    rule = Rule(head.head())
    check(rule)
    return rule


def next_(head: Pattern) -> Pattern:
    """Returns the head as a fact of the next tick."""
    return Pattern(head.label, head.arguments, Verb.NEXT)


def send(head: Pattern) -> Pattern:
    """Returns the head as a message."""
    return Pattern(head.label, head.arguments, Verb.SEND)


def count(of: Open) -> Aggregate:
    """Returns the aggregate that counts values."""
    return Aggregate("count", _expression(of))


def total(of: Open) -> Aggregate:
    """Returns the aggregate that adds values up."""
    return Aggregate("sum", _expression(of))


def average(of: Open) -> Aggregate:
    """Returns the aggregate of the mean."""
    return Aggregate("avg", _expression(of))


def least(of: Open) -> Aggregate:
    """Returns the aggregate of the first in the order of values."""
    return Aggregate("min", _expression(of))


def greatest(of: Open) -> Aggregate:
    """Returns the aggregate of the last in the order of values."""
    return Aggregate("max", _expression(of))


def collect(of: Open) -> Aggregate:
    """Returns the aggregate that collects all values, in order."""
    return Aggregate("collect", _expression(of))


def top(n: int, of: Open) -> Aggregate:
    """Returns the aggregate of the ``n`` last in the order of values, the last first."""
    return Aggregate("top", _expression(of), n)


def text_of_rules(*rules: Rule) -> str:
    """Returns the text of rules, one in a line: what a ``rule`` fact carries."""
    return "\n".join(map(str, rules))


def _part(field: Open) -> Value:
    """Returns a field of an atom as a pattern."""
    match field:
        case Made(expression=Variable(name)):
            return capture(name)
        case Made() | Aggregate():
            raise UsageError(f"in a body a field is a variable or a value: compute {field!r} by when(z == …)")
        case Pattern():
            return field.pattern
        case _ if field is ...:
            return DISCARD
        case _:
            return freeze(field)


def _argument(field: Open) -> Expression | Aggregate:
    if field is ...:
        raise UsageError("... stands for anything: it can be asked for, not made")
    return field if isinstance(field, Aggregate) else _expression(field)


def _expression(thing: Open) -> Expression:
    match thing:
        case Made():
            return thing.expression
        case Pattern():
            return Structure(thing.pattern)
        case _:
            return expression_of(freeze(thing))


def _arithmetic(operator: str, left: Made, right: Open) -> Made:
    return Made(Arithmetic(operator, left.expression, _expression(right)))


def _condition(operator: str, left: Made, right: Open) -> Condition:
    if isinstance(right, RuleBody):
        raise UsageError(
            f"{operator} compares expressions; a body is joined by &, its comparisons in when(…)"
        )
    return Condition(Comparison(operator, left.expression, _expression(right)))


def _no_truth(what: str) -> UsageError:
    return UsageError(
        f"{what} is neither true nor false: join with &, negate with ~, one comparison in each when(…)"
    )


__all__ = [
    "variables",
    "relations",
    "when",
    "fact",
    "next_",
    "send",
    "count",
    "total",
    "average",
    "least",
    "greatest",
    "collect",
    "top",
    "text_of_rules",
]
