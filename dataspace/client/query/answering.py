"""Answering: which states a query needs, in order, and the rows that follow from them.

It asks for states and gets them, whatever connection fetches them, so that all clients answer alike.

Always: all states are of one epoch; no more facts and rows are held than the bounds allow, and a query that
needs more is refused with the bound.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.client.query.questions import Question, label
from dataspace.client.query.rows import Rows
from dataspace.errors import Refused, UsageError
from dataspace.rules.engine.program import Program
from dataspace.rules.relations.budgets import Bounds
from index.values.values import Record, Value

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
