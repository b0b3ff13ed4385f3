"""Questions: what a query reads, the rule that gives its rows, and the states from which they follow.

A query is the body of a rule.  Each of its atoms is a pattern, and the matching facts are fetched as any
observer gets them, so a query needs the right to observe them.  The rule is carried out over these facts
alone: each fact is filed under the atom that it was fetched for, so nothing that the rule derives is read by
it.  An answer asks for states and gets them, whatever connection fetches them, so that all clients answer
alike.

Always: equal patterns are fetched once; a parameter is a value, whatever its text looks like; all states are
of one epoch; no more facts and rows are held than the bounds allow, and a query that needs more is refused
with the bound.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.client.query.rows import Rows
from dataspace.errors import Refused, UsageError
from dataspace.rules.engine.program import Program
from dataspace.rules.language.groups import names_of, ungrouped
from dataspace.rules.language.hosted import calls_in
from dataspace.rules.language.lowering import has_times
from dataspace.rules.language.parser import read_body, read_rule
from dataspace.rules.language.safety import bound_by, check
from dataspace.rules.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    EitherGroup,
    Expression,
    GroupAggregate,
    Head,
    Literal,
    MaybeGroup,
    NegatedGroup,
    Rule,
    Structure,
    Variable,
    Verb,
)
from dataspace.rules.relations.budgets import Bounds
from index.patterns.patterns import DISCARD
from index.values.values import Map, Record, Value, text_of

ANSWER: Final = "answer"
"""Label of what the rule of a query derives."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query: the patterns whose matches it reads, whole, the rule over them, and the names of its columns.

    The rule reads each match of the pattern at place ``n`` as a record ``facts-n([match])``.
    """

    patterns: tuple[Value, ...]
    rule: Rule
    names: tuple[str, ...]


def question(text: str, parameters: Mapping[str, Value]) -> Question:
    """Returns the query of a text, with values for some of its variables; raises ``UsageError`` with the
    place.

    >>> question("edge($x, $y), not gone($y), $x != $home", {"home": 1}).names
    ('x', 'y')
    """
    arguments, body = _read(text)
    body = (*body, *[Comparison("=", Variable(name), _constant(value)) for name, value in parameters.items()])
    unknown = set(parameters) - {
        name for each in body[: len(body) - len(parameters)] for name in _names(each)
    }
    if unknown:
        raise UsageError(f"no ${min(unknown)} in {text.strip()}, so it needs no value")
    if arguments is None:
        bound = bound_by(Rule(Head(ANSWER, ()), body))
        columns = dict.fromkeys(name for each in body for name in _names(each))
        arguments = tuple(Variable(each) for each in columns if each in bound and each not in parameters)
    try:
        for part in ungrouped(Rule(Head(ANSWER, arguments), body)):
            if has_times(part):
                raise UsageError("a query has no times: derive the facts by a rule, and ask for those")
            if name := next(calls_in(part), ""):
                raise UsageError(
                    f"{name} is a function of the daemon's rules, and a query has none: derive the facts by a"
                    " rule, and ask for those"
                )
            check(part)
    except UsageError as error:
        raise UsageError(str(error).removeprefix("unsafe rule: ")) from None
    patterns: dict[str, tuple[int, Value]] = {}
    filed = tuple([_filed(each, patterns, parameters) for each in body])
    return Question(
        tuple([pattern for _, pattern in patterns.values()]),
        Rule(Head(ANSWER, arguments), filed),
        tuple([_column(each) for each in arguments]),
    )


def label(place: int) -> str:
    """Returns the label under which the rule reads the matches of the pattern at a place."""
    return f"facts-{place}"


def _read(text: str) -> tuple[tuple[Expression | Aggregate, ...] | None, tuple[Literal, ...]]:
    """Returns the columns that a text names in a head, if it has one, and its body."""
    try:
        return None, read_body(text)
    except UsageError:
        if "<-" not in text:
            raise
    whole = text.strip()
    rule = read_rule(whole if whole.endswith(".") else f"{whole}.")
    if rule.head.verb is not Verb.ASSERT:
        raise UsageError(f"a query derives nothing: write its head without {rule.head.verb}")
    return rule.head.arguments, rule.body


def _filed(literal: Literal, patterns: dict[str, tuple[int, Value]], known: Mapping[str, Value]) -> Literal:
    """Returns a literal that reads what was fetched for it; notes the pattern to fetch."""

    def filed(literals: Iterable[Literal]) -> tuple[Literal, ...]:
        return tuple([_filed(each, patterns, known) for each in literals])

    match literal:
        case EitherGroup(branches):
            return EitherGroup(tuple(map(filed, branches)))
        case NegatedGroup(literals):
            return NegatedGroup(filed(literals))
        case MaybeGroup(literals):
            return MaybeGroup(filed(literals))
        case GroupAggregate(aggregate, literals, operator, other):
            return GroupAggregate(aggregate, filed(literals), operator, other)
        case Atom():
            pass
        case _:
            return literal  # a comparison; times are refused
    wanted = anonymous(literal.pattern, known)
    place, _ = patterns.setdefault(text_of(wanted), (len(patterns), wanted))
    # in a sequence, since a record count(…) that is a field of another one would be taken for an aggregate
    return Atom(Record(label(place), (literal.pattern,)), literal.negated, maybe=literal.maybe)


def anonymous(pattern: Value, known: Mapping[str, Value]) -> Value:
    """Returns a pattern that matches the same and captures nothing; known variables become their values.

    >>> from dataspace.text import parse_pattern, unparse
    >>> unparse(anonymous(parse_pattern("at($x, $n:int, on($))"), {"x": 1}))
    'at(lit(1), _:int, on(_))'
    """
    match pattern:
        case Record(label="$", fields=(name, of_class, sub)):
            if sub == DISCARD:
                if name in known and of_class is None:
                    return Record("lit", known[str(name)])
                return DISCARD if of_class is None else Record("_", of_class)
            inner = anonymous(sub, known)
            return inner if of_class is None else Record("$", None, of_class, inner)
        case Record(label="lit" | "exact" | "_"):
            return pattern
        case Record(label=of, fields=parts):
            return Record.of(of, tuple([anonymous(each, known) for each in parts]))
        case tuple():
            return tuple([anonymous(each, known) for each in pattern])
        case Map():
            return Map({at: anonymous(part, known) for at, part in pattern.pairs()})
        case _:
            return pattern


def _constant(value: Value) -> Structure:
    return Structure(Record("lit", value))


def _names(literal: Literal) -> list[str]:
    """Returns the variables of a literal, in order."""
    return list(names_of(literal))


def _column(argument: Expression | Aggregate) -> str:
    """Returns the name of a column: the variable's name, else the text of the expression."""
    return argument.name if isinstance(argument, Variable) else str(argument)


# -- answers ---------------------------------------------------------------------------------------


MOST_FACTS: Final = 1_000_000
"""Facts that one query reads."""

MOST_ROWS: Final = 1_000_000
"""Rows that one query finds; it looks at five times as many."""


@dataclass(frozen=True, slots=True)
class Look:
    """Asks for the first capture of each match of a pattern, as of an epoch or now."""

    pattern: Value
    as_of: int | None


State: TypeAlias = tuple[int, Sequence[tuple[Value, ...]]]
"""An epoch, and the captures of what matched in it."""


def looking(question: Question, as_of: int | None) -> Generator[Look, State, tuple[int, list[Value]]]:
    """Returns the epoch and the facts of a query, each filed for the rule; yields the states that it needs.

    States of now that are of several epochs are fetched again as of the newest of these.
    """
    if not question.patterns:
        raise UsageError("a query reads facts: name at least one, such as edge($x, $y)")
    while True:
        epochs: list[int] = []
        facts: list[Value] = []
        for place, pattern in enumerate(question.patterns):
            epoch, rows = yield Look(Record("$", None, None, pattern), as_of)
            epochs.append(epoch)
            if len(facts) + len(rows) > MOST_FACTS:
                raise Refused("limit", f"a query reads at most {MOST_FACTS} facts: ask for fewer of them")
            filed = label(place)
            facts += [Record.of(filed, ((row[0],),)) for row in rows]
        if as_of is not None or len(set(epochs)) == 1:
            return epochs[0] if as_of is None else as_of, facts
        as_of = max(epochs)


def answered(question: Question, epoch: int, facts: Sequence[Value]) -> Rows:
    """Returns the rows that follow from the facts of a query.

    Raises ``UsageError`` where it cannot be carried out, or needs too much work.
    """

    def given() -> Iterator[Value]:
        return iter(facts)

    program = Program(given, bounds=Bounds(rows=MOST_ROWS))
    derived = program.add("query", str(question.rule))
    for entry in program.entries.values():
        if entry.error:
            why = entry.error.split(" (in ")[0].replace(" in one tick", "").replace(" new facts", " rows")
            raise UsageError(f"the query cannot be carried out: {why}")
    rows = [fact.fields for fact in derived.added if isinstance(fact, Record)]
    return Rows(question.names, rows, epoch)
