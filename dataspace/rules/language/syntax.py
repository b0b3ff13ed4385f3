"""Rules as data: heads, atoms, comparisons and expressions.

A rule is a head and a body.  The body is a list of atoms (patterns, as observed), negated atoms, and
comparisons between expressions.  The head is the result: a fact that holds, a fact that will hold in the next
tick, or a message.  Everything here is immutable, prints as the text that is read back as it, and does not
depend on how rules are carried out.

Always: ``str(rule)`` reads back as the same rule.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from index.patterns.text import unparse
from index.values.values import Map, Record, Value


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in an expression."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True)
class Structure:
    """A value with variables in it, written as the pattern that it looks like; without any, a constant."""

    template: Value

    def __str__(self) -> str:
        return unparse(self.template)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two expressions with an operator between them: ``+ - * / // %``."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


Expression: TypeAlias = Variable | Structure | Arithmetic

AGGREGATES = ("count", "sum", "avg", "min", "max", "collect", "top")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value made of all solutions of a body for the same other fields of the head; ``n`` is for
    ``top``."""

    name: str
    of: Expression
    n: int = 0

    def __str__(self) -> str:
        return f"{self.name}({f'{self.n}, ' if self.name == 'top' else ''}{self.of})"


@dataclass(frozen=True, slots=True)
class Atom:
    """A fact that must be there, or must not."""

    pattern: Value
    negated: bool = False

    def __str__(self) -> str:
        return f"{'not ' if self.negated else ''}{unparse(self.pattern)}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``= != < <= > >=`` between expressions; ``=`` gives a variable its value if nothing else does."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


Literal: TypeAlias = Atom | Comparison


class Verb(enum.StrEnum):
    """What becomes of a head: a fact, a fact of the next tick, or a message."""

    ASSERT = "assert"
    NEXT = "next"
    SEND = "send"


@dataclass(frozen=True, slots=True)
class Head:
    """What follows: a record with exactly these fields."""

    label: Value
    arguments: tuple[Expression | Aggregate, ...]
    verb: Verb = Verb.ASSERT

    def __str__(self) -> str:
        name = unparse(Record.of(self.label, ())).removesuffix("()")
        text = f"{name}({', '.join(map(str, self.arguments))})"
        return text if self.verb is Verb.ASSERT else f"{self.verb}({text})"

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        return tuple([each for each in self.arguments if isinstance(each, Aggregate)])


@dataclass(frozen=True, slots=True)
class Rule:
    """A head that follows from a body; without a body it always holds."""

    head: Head
    body: tuple[Literal, ...] = ()

    def __str__(self) -> str:
        body = ", ".join(map(str, self.body))
        return f"{self.head} <- {body}." if body else f"{self.head}."

    @property
    def atoms(self) -> tuple[Atom, ...]:
        return tuple([each for each in self.body if isinstance(each, Atom)])


def variables_of(expression: Expression | Aggregate) -> Iterator[str]:
    """Yields the names of the variables in an expression, with repetitions."""
    match expression:
        case Variable(name):
            yield name
        case Structure(template):
            yield from template_variables(template)
        case Arithmetic(_, left, right):
            yield from variables_of(left)
            yield from variables_of(right)
        case Aggregate(_, of):
            yield from variables_of(of)


def template_variables(template: Value) -> Iterator[str]:
    """Yields the names of the captures in a value that looks like a pattern; what ``lit`` quotes has none."""
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            yield name
        case Record(label="lit", fields=(_,)):
            return
        case Record(fields=parts):
            for part in parts:
                yield from template_variables(part)
        case tuple():
            for part in template:
                yield from template_variables(part)
        case Map():
            for _, part in template.pairs():
                yield from template_variables(part)
