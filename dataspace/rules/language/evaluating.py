"""Evaluating: the value of an expression, and whether a comparison holds, for some values of variables.

Ticks do this in functions that are generated; explanations, the checks of rules and the branches of ``if``
come here.

Always: the value is the same as in a tick; what an expression raises is ``UsageError`` or
``ArithmeticError``.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataspace.rules.language.arithmetic import calculate, compare
from dataspace.rules.language.ordering import Pay, ordered
from dataspace.rules.language.syntax import (
    Arithmetic,
    Choice,
    Comparison,
    Compound,
    Expression,
    FunctionCall,
    Now,
    Structure,
    Variable,
    maker,
)
from index.errors import UsageError
from index.values.values import Value


def evaluate(expression: Expression, known: Mapping[str, Value], pay: Pay) -> Value:
    """Returns the value of an expression; ``UsageError`` or ``ArithmeticError`` if it has none.

    ``KeyError`` for a variable that is not ``known``.  ``pay`` takes the cost of functions before they run.
    """
    match expression:
        case Variable(name):
            return known[name]
        case Structure():
            names, make = maker(expression)
            return make(*[known[name] for name in names])
        case Arithmetic(operator, left, right):
            return calculate(operator, evaluate(left, known, pay), evaluate(right, known, pay), pay)
        case FunctionCall(_, arguments):
            return expression.function.apply(pay, *[evaluate(each, known, pay) for each in arguments])
        case Choice(condition, then, otherwise):
            return evaluate(then if holds(condition, known, pay) else otherwise, known, pay)
        case Compound(_, parts):
            return expression.made(*[evaluate(each, known, pay) for each in parts])
        case Now():
            raise UsageError("now has no value here: it is compared with in rules")


def holds(comparison: Comparison, known: Mapping[str, Value], pay: Pay) -> bool:
    """True if a comparison holds; raises as ``evaluate``."""
    left, right = evaluate(comparison.left, known, pay), evaluate(comparison.right, known, pay)
    if comparison.operator in ("=", "!="):
        return (not ordered(pay, left, right)) == (comparison.operator == "=")
    return compare(comparison.operator, left, right, pay)
