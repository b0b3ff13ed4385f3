"""Rebuilding: what rules over time remember, from the epochs of a log.

After a start, and where a follower takes over, nothing in memory says since when rows have been there and
which messages still count.  Windows see only what epochs have: claimed facts, derived facts and messages.
So the rules that ``lowering`` made for times, and no others, are carried out once more over the last epochs.

What began before the first of these epochs is taken from a snapshot, which has what ``Times.past`` gave.

Always: afterwards the forms are as they were after the last of those epochs, but for what began before the
first of them and is in no snapshot: that began there, and counts in no window of ``final``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from dataspace.rules.engine.program import Program
from dataspace.rules.engine.texts import Pair, check_windows
from dataspace.rules.language.hosted import NO_FUNCTIONS, Functions
from dataspace.rules.language.lowering import lowered
from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import TimeForm
from dataspace.rules.relations.budgets import Bounds
from dataspace.rules.relations.times import Times
from index.errors import UsageError
from index.values.values import Record, Value, key

PastEpoch: TypeAlias = tuple[int, int, Sequence[Value], Sequence[Value], Sequence[Value]]
"""The number and the time of an epoch, the facts that appeared, its messages, and the facts that vanished."""

Past: TypeAlias = tuple[int, Iterable[Sequence[Value]]]
"""The number of an epoch, and the rows of ``Times.past`` after that epoch."""


def forms_of(
    facts: Iterable[Value], window: int | None = None, functions: Functions = NO_FUNCTIONS
) -> list[TimeForm]:
    """Returns how rows of the rules among some facts depend on time; O(texts).

    Texts that look back for longer than ``window`` microseconds are refused, and have none.
    """
    found: list[TimeForm] = []
    for name, text in _texts(facts):
        try:
            rules = lowered(read_rules(text, functions), name, text)
            check_windows(rules, window)
        except UsageError:
            continue  # it is not carried out
        found += [rule.form for rule in rules if rule.form is not None]
    return found


def longest(forms: Iterable[TimeForm]) -> int | None:
    """Returns for how many microseconds before the present epochs are needed; None if for all.

    A time that a rule binds may be as old as the oldest fact.
    """
    spans = [None if form.is_exact else form.span for form in forms]
    known = [each for each in spans if each is not None]
    return None if len(known) < len(spans) else max(known, default=0)


def rebuild(
    times: Times,
    facts: Iterable[Value],
    since: int,
    epochs: Iterable[PastEpoch],
    *,
    bounds: Bounds | None = None,
    functions: Functions = NO_FUNCTIONS,
    past: Past | None = None,
    refused: Mapping[Pair, str] | None = None,
) -> dict[Pair, str]:
    """Fills empty ``times`` from the facts that held at a time and the epochs after it.

    ``past`` is an epoch that is not before those, with what ``Times.past`` gave after it.  The ``bounds`` of
    the rules count without their work.  The ``refused`` texts are not carried out.  Returns the texts that
    have a defect, with the reason: nothing is remembered for them.
    O(facts and changes that the rules over time read).
    """
    bounds = replace(bounds or Bounds(), work=None, reads=None)
    present: dict[Hashable, Value] = {key(value): value for value in facts}
    program = Program(
        present.values,
        start=True,
        times=times,
        only_timed=True,
        bounds=bounds,
        functions=functions,
        refused=refused,
    )
    times.ahead = since
    program.declare_and_tick((_texts(present.values()), ()), (), (), ())
    times.forget_final()
    for number, time, added, messages, removed in epochs:
        if past is not None and number > past[0]:
            times.load(past[1])
            past = None
        while times.next <= time:
            times.ahead = times.next
            program.tick()
        times.ahead = max(time, times.ahead)
        for value in added:
            present[key(value)] = value
        for value in removed:
            present.pop(key(value), None)
        program.declare_and_tick((_texts(added), _texts(removed)), added, removed, messages)
        times.mark()
    if past is not None:
        times.load(past[1])
        program.tick()
    times.mark()
    times.undo()  # nothing of the forms; no program shows them any more
    return {pair: entry.error for pair, entry in program.entries.items() if entry.has_defect}


def _texts(values: Iterable[Value]) -> list[tuple[str, str]]:
    """Returns names and texts of the rules among some facts."""
    found = []
    for value in values:
        match value:
            case Record(label="rule", fields=(str(name), str(text))):
                found.append((name, text))
    return found
