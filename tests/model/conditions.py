"""What a turn may expect of the state before it: it happens if all of that holds, else it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from index.values.values import Value, key
from tests.model.patterns import match

ABSENT, EXACTLY, UNCHANGED = range(3)


def holds(
    kind: int, pattern: Value, argument: object, facts: Iterable[Value], changes: Iterable[tuple[int, Value]]
) -> bool:
    """Returns whether a condition holds: no fact matches; those that match have exactly these captures; or
    no fact that matches came or went after an epoch.

    ``changes`` are the facts that came and went so far, each with its epoch.
    """
    captures = partial(match, pattern)
    if kind == UNCHANGED:
        assert isinstance(argument, int)  # an epoch
        return all(captures(fact) is None for number, fact in changes if number > argument)
    rows = {key(row) for row in map(captures, facts) if row is not None}
    if kind == ABSENT:
        return not rows
    assert isinstance(argument, tuple)  # rows of captures
    return rows == {key(row) for row in argument}
