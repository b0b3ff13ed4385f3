"""The constructs that rules may have, read from the tables of their language, with a text of each.

Most are drawn (``texts``); ``SPOKEN`` has those that are not.  A text is accepted if it is carried out beside
the model, and something follows from it.  One that misuses a construct gives a ``rule-error``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, get_args

from dataspace.rules.engine.rebuilding import forms_of
from dataspace.rules.language.arithmetic import _OPERATIONS
from dataspace.rules.language.declarations import KINDS
from dataspace.rules.language.functions import CALENDAR, FUNCTIONS, NEGATIVE, Function
from dataspace.rules.language.groups import MIRRORED
from dataspace.rules.language.parser import read_text
from dataspace.rules.language.syntax import (
    AGGREGATES,
    CHOOSING,
    UNITS,
    Aggregate,
    Arithmetic,
    Atom,
    Comparison,
    EitherGroup,
    Elements,
    Expression,
    FunctionCall,
    GroupAggregate,
    LastingGroup,
    Literal,
    MaybeGroup,
    NegatedGroup,
    TimedAtom,
    TimeKind,
    Verb,
    parts_of,
)
from index.values.values import Map, Record, Value

OF_KINDS: Final[dict[str, Value]] = {
    "bool": True,
    "int": 1,
    "float": 1.5,
    "number": 1,
    "str": "a",
    "bytes": b"x",
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "record": Record("x"),
    "seq": (1,),
    "map": Map({"k": 1}),
    "null": None,
    "any": 1,
}
"""A value of each class that a relation may declare."""

FACTS: Final[tuple[Value, ...]] = (
    Record("q", "a", 2),
    Record("q", "b", 1),
    Record("w", ("a", "b"), Map({"k": 1}), b"x"),
    Record("m", "a", 1),
    Record("j", 1),
    *[Record("v", kind, value) for kind, value in OF_KINDS.items()],
)
"""What the texts below follow from."""

_GIVEN: Final = {"text": "$t", "number": "$n", "sequence": "$s", "map": "$m", "bytes": "$b", "": "$t"}


def _call(function: Function) -> str:
    """Returns a call with variables of a class that each argument may have."""
    if CALENDAR.get(function.name) is function:
        return f"""{function.name}($u, {'"1 day", ' * (len(function.takes) == 3)}"Europe/Zurich")"""
    count = len(function.takes) if function.least < 0 else function.least
    given = [_GIVEN[function.class_at(at).rpartition("|")[2]] for at in range(count)]
    return f"-{given[0]}" if function.name == NEGATIVE else f"{function.name}({', '.join(given)})"


UNWRITTEN: Final = {f"head {Verb.HIDDEN}": "no text has it: it is made of groups and of times"}


def entries() -> list[str]:
    """Returns the names of all constructs."""
    return [
        *[f"literal {each.__name__}" for each in get_args(Literal)],
        *[f"expression {each.__name__}" for each in get_args(Expression)],
        *[f"head {each}" for each in Verb],
        *[f"time {each.name}" for each in TimeKind],
        *[f"aggregate {each}" for each in AGGREGATES],
        *[f"function {each}" for each in FUNCTIONS],
        *[f"operator {each}" for each in _OPERATIONS],
        *[f"comparison {each}" for each in MIRRORED],
        *[f"unit {each}" for each in UNITS],
        *[f"relation of {each}" for each in KINDS],
        "let",
        "negated fact",
        "distinct",
        "maybe fact",
        "else",
        "strict relation",
    ]


_BODY: Final = 'q($t, $n), w($s, $m, $b), v("time", $u)'
SPOKEN: Final = (
    *[f"p({_call(each)}) <- {_BODY}." for each in FUNCTIONS.values()],
    'p(if($n > 1, "many", "one")) <- q(_, $n).',
    "p([$t, $n]) <- q($t, $n).",
    "p([$t, $n + 1]) <- q($t, $n).",
    *[f"p($n {each} 2) <- q(_, $n)." for each in ("+", "-", "*", "/", "//", "%")],
    "p(floor($n, 2)) <- q(_, $n).",
    *[f"p($n) <- q(_, $n), $n {each} {2 if '=' in each else 1.5}." for each in MIRRORED],
    "p($n) <- q(_, $n), $n != 7.",
    *[f"p($t) <- q($t, _) within 1 {each}." for each in UNITS],
    "let k = 2. p($t) <- q($t, k).",
    *[f'relation p(x: {each}). p($v) <- v("{each}", $v).' for each in KINDS],
    "strict relation p(x: str). p($t) <- q($t, _).",
    "p(sum(distinct $n)) <- q(_, $n).",
    "p(avg($n), min($n), max($n), collect($t), top(1, $n), count()) <- q($t, $n).",
    "p($e) <- w($s, _, _), $e in $s.",
    "p($t) <- q($t, _) at $u, $u <= now.",
    'p($t) <- q($t, _), hour(now, "Europe/Zurich") >= 0.',
    'p(floor($u, "1 month", "Europe/Zurich")) <- v("time", $u).',
    "p(first($t, $n), last($t, $n), stddev($n), percentile($n, 9.5)) <- q($t, $n).",
    "p($t, count($v)) <- q($t, $n), maybe (m($t, $v), $v < $n).",
    "p($t, max($v) else null) <- q($t, _), maybe m($t, $v).",
    "p($t) <- q($t, $n), count() of (m($t, _)) = $c, $c >= $n - 1.",
)
"""Texts beside those that are drawn."""

_MISUSED: Final[dict[str, str]] = {
    "literal Atom": "p($x) <- q($x), r($x + 1).",
    "literal Comparison": "p($x) <- q($x), $y > 1.",
    "literal Elements": "p($x) <- q($y), $x in 3.",
    "literal TimedAtom": "p($x) <- q($x) within 0 s.",
    "literal LastingGroup": "p($x) <- (q($x, $n)) for 0 s.",
    "literal EitherGroup": "p($x) <- (q($x) or r($y)).",
    "literal NegatedGroup": "p($x) <- q($x), not (r($y), $y > $z).",
    "literal MaybeGroup": "p($x) <- q($x), maybe (r($x, $y), $y > $z).",
    "literal GroupAggregate": "p($x) <- r($x), count() of (q($x, _)) = 0.",
    "expression Variable": "p($y) <- q($x).",
    "expression Structure": "p({1: 2, 1: $x}) <- q($x).",
    "expression Arithmetic": 'p("a" + 1) <- q().',
    "expression Now": "p(now) <- q($x).",
    "expression FunctionCall": "p(uper($x) + 1) <- q($x).",
    "expression Choice": "p(if($x > 1, 2)) <- q($x).",
    "expression Compound": "p({1: 2, 1: $x + 1}) <- q($x).",
    "head assert": "$x <- q($x).",
    "head next": "next(send(p($x))) <- q($x).",
    "head send": "p($x) <- q($x), not send(r($x)).",
    "head final": "final(p(count())) <- q($x).",
    "time WITHIN": "p($x) <- (q($x) or r($x) within 5 s) for 4 s.",
    "time OCCURRENCES": "p(count()) <- q($x) within -1 s.",
    "time AT": "p($x) <- q($x), not r($x) at $t.",
    "time FOR": "p($x) <- (q($x), not (r($x) within 5 s)) for 4 s.",
    "time NOW": "p($x) <- q($x), now > 3 + now.",
    "time CLOCK": 'p(hour(now, "UTC")) <- q($x).',
    "time FINAL": "final(p($x)) <- q($x).",
    "function -": 'p(-"a") <- q().',
    "let": "let k = 1. let k = 2. p($x) <- q($x, k).",
    "negated fact": "p($x) <- q($x), not r($y), $y > 1.",
    "distinct": "p(count(distinct)) <- q($x).",
    "maybe fact": "p($x, max($y)) <- q($x), maybe r($x, $y).",
    "else": "p(count($x) else 0) <- q($x).",
    "strict relation": "strict relation q(x: intt). p($x) <- q($x).",
}


_ANOTHER: Final = {"bool": "1", "any": "1, 2"}
"""What no relation of a class has as its only field, if not a truth value."""


def misused(entry: str) -> str:
    """Returns a text that is refused for a construct."""
    kind, _, name = entry.rpartition(" ")
    match kind:
        case "aggregate":
            return (
                f"p({name}($x) + 1) <- q($x)."
                if name not in (*CHOOSING, "percentile")
                else f"p({name}($x)) <- q($x)."
            )
        case "function" if name != NEGATIVE:
            return f"p({name}()) <- q($x)."
        case "operator":
            return 'p(floor("a", 2)) <- q().' if name == "floor" else f"p($x {name}) <- q($x)."
        case "comparison":
            return f"p($x) <- q($x), $x {name}."
        case "unit":
            return f"p($x) <- q($x) within {'9' * 20} {name}."
        case "relation of":
            return f"relation p(x: {name}). p({_ANOTHER.get(name, 'true')}) <- q()."
    return _MISUSED[entry]


# -- what a text has ---------------------------------------------------------------------------------


def constructs(text: str) -> set[str]:
    """Returns the constructs that a text has."""
    read = read_text(text)
    found = {f"time {form.kind.name}" for form in forms_of([Record("rule", "r", text)])}
    for rule in read.rules:
        found.add(f"head {rule.head.verb}")
        for argument in rule.head.arguments:
            found |= set(_of_expression(argument))
        for literal in rule.body:
            found |= set(_of_literal(literal))
    found |= {"let"} if text.startswith("let ") else set()
    for each in read.declared.values():
        found |= {f"relation of {kind}" for _, kind in each.fields}
        found |= {"strict relation"} if each.strict else set()
    return found | {f"unit {unit}" for unit in UNITS if f" {unit}." in text}


def heads(text: str) -> set[Value]:
    """Returns the labels of what the rules of a text derive and send."""
    return {rule.head.label for rule in read_text(text).rules}


def _of_expression(expression: Expression | Aggregate) -> Iterator[str]:
    match expression:
        case Aggregate(name):
            yield f"aggregate {name}"
            yield from ["distinct"] if expression.distinct else []
            yield from [] if expression.otherwise is None else ["else"]
        case FunctionCall(name):
            yield f"function {name}"
        case Arithmetic(operator):
            yield f"operator {operator}"
    if not isinstance(expression, Aggregate):
        yield f"expression {type(expression).__name__}"
    for each in parts_of(expression):
        yield from _of_expression(each)


def _of_literal(literal: Literal) -> Iterator[str]:
    yield f"literal {type(literal).__name__}"
    inner: tuple[Literal, ...] = ()
    match literal:
        case Atom() | TimedAtom():
            yield from ["negated fact"] if literal.negated else []
            yield from ["maybe fact"] if literal.maybe else []
        case Comparison(operator, left, right):
            yield f"comparison {operator}"
            yield from _of_expression(left)
            yield from _of_expression(right)
        case Elements(_, of):
            yield from _of_expression(of)
        case LastingGroup(literals) | NegatedGroup(literals) | MaybeGroup(literals):
            inner = literals
        case EitherGroup(branches):
            inner = tuple([each for branch in branches for each in branch])
        case GroupAggregate(aggregate, literals, operator, other):
            yield f"comparison {operator}"
            yield from _of_expression(aggregate)
            yield from _of_expression(other)
            inner = literals
    for each in inner:
        yield from _of_literal(each)
