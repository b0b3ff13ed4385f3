"""Rules as data: heads, atoms, comparisons and expressions, and the values of expressions.

A rule is a head and a body.  The body is a list of atoms (patterns, as observed), negated atoms, and
comparisons between expressions.  The head is the result: a fact that holds, a fact that will hold in the next
tick, or a message.  Everything here is immutable, prints as the text that is read back as it, and does not
depend on how rules are carried out.

Always: ``str(rule)`` reads back as the same rule.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from index.errors import UsageError
from index.patterns.text import unparse
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, order_key


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


# -- Arithmetic ------------------------------------------------------------------------------------
# Values are not Python's numbers: a truth value is no number, text is not compared with numbers, and
# what a rule computes must stay within bounds.
#
# Always: a comparison never raises; arithmetic raises ``UsageError`` (or ``ZeroDivisionError``) for
# operands that it cannot use; the same operands give the same result.


MAX_BITS: Final = 4096
"""How large an integer, and 8 × how long a text or a sequence, an expression may make."""


def calculate(operator: str, left: Value, right: Value) -> Value:
    """Returns the result of an operator on two values.

    Numbers know all operators; texts, bytes and sequences can be put together by ``+``.
    """
    if left.__class__ in _NUMBERS and right.__class__ in _NUMBERS:
        return _bounded(_OPERATIONS[operator](left, right))
    if operator == "+" and left.__class__ is right.__class__ and left.__class__ in (str, bytes, tuple):
        return _bounded(left + right)  # type: ignore[operator]  # two of a class that has it
    raise UsageError(
        f"cannot calculate {_begun(left)} {operator} {_begun(right)}: {_kind(left)} and {_kind(right)}"
    )


def _begun(value: Value) -> str:
    """Returns the beginning of a value, as it is written."""
    text = unparse(value) if value.__class__ in (*_NUMBERS, str, bytes, bool, datetime) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _kind(value: Value) -> str:
    return _KINDS.get(value.__class__, "null")


def _bounded(made: Any) -> Value:
    if made.__class__ is int:
        size = made.bit_length()
    else:
        size = 0 if made.__class__ is float else 8 * len(made)
    if size > MAX_BITS * (1 if made.__class__ is int else 8):
        raise UsageError("an expression made a value that is too large")
    return freeze(made)


_NUMBERS: Final = (int, float)
_KINDS: Final[dict[type, str]] = {
    int: "a number",
    float: "a number",
    bool: "a truth",
    str: "a text",
    bytes: "bytes",
    datetime: "a time",
    tuple: "a sequence",
    Map: "a map",
    Record: "a record",
}
_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def compare(operator: str, left: Value, right: Value) -> bool:
    """True if values of one kind are in this order; values of different kinds are in none.

    Numbers are one kind, in which an integer and the equal float are alike.
    """
    if left.__class__ in _NUMBERS and right.__class__ in _NUMBERS:
        return _COMPARISONS[operator](left, right)
    if left.__class__ is not right.__class__ or left.__class__ in (bool, type(None)):
        return False
    if left.__class__ in (str, bytes, datetime):
        return _COMPARISONS[operator](left, right)
    return _COMPARISONS[operator](order_key(left), order_key(right))


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def maker(structure: Structure) -> tuple[tuple[str, ...], Callable[..., Value]]:
    """Returns the variables of a structure, and the function that makes its value from theirs."""
    names = tuple(dict.fromkeys(template_variables(structure.template)))
    return names, lambda *values: _filled(structure.template, dict(zip(names, values, strict=True)))


def _filled(template: Value, given: dict[str, Value]) -> Value:
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            return given[name]
        case Record(label="lit", fields=(value,)):
            return value
        case Record(label=label, fields=parts):
            return Record.of(label, tuple([_filled(part, given) for part in parts]))
        case tuple():
            return tuple([_filled(part, given) for part in template])
        case Map():
            return Map.of([(at, _filled(part, given)) for at, part in template.pairs()])
        case _:
            return template
