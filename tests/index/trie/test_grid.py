"""Each small pattern meets each small value as in the oracle, by every way that the index has.

``tests.index.grid`` has the patterns and the values.  Two levels run always, with every seventh pattern or
every 13th value; all of them, and three levels, with ``make torture``.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence

import pytest

from index.patterns.events import Captures, Event
from index.patterns.patterns import matcher, skeleton
from index.patterns.readers import alike_reader, walking_matches
from index.trie.trie import Index
from index.values.values import Value, keys
from tests.index.grid import KINDS, Case, deep, judged, nested, wide

THOROUGH = "TORTURE_ROUNDS" in os.environ
CHUNK = 1_000
"""Patterns that are in one index at a time."""
Heard = list[tuple[str, Hashable]]


class _Ear:
    def __init__(self) -> None:
        self.heard: Heard = []

    def __call__(self, event: Event, row: Captures) -> None:
        self.heard.append((event.value, keys(row)))

    def take(self) -> Heard:
        heard, self.heard = self.heard, []
        return heard


def _check(patterns: Sequence[Value], values: Sequence[Value]) -> None:
    for first in range(0, len(patterns), CHUNK):
        cases = judged(patterns[first : first + CHUNK], values)
        _check_readers(cases, values)
        _check_handlers_first(cases, values)
        _check_facts_first(cases, values)
        _check_patches(cases, values)


def _check_readers(cases: Sequence[Case], values: Sequence[Value]) -> None:
    for pattern, rows in cases:
        form = skeleton(pattern)
        for read in (matcher(pattern), alike_reader(form), walking_matches(form)):
            found = {at: read(value) for at, value in enumerate(values)}
            assert {at: keys(row) for at, row in found.items() if row is not None} == rows, pattern


def _check_handlers_first(cases: Sequence[Case], values: Sequence[Value]) -> None:
    """Each value comes, passes as a message, and goes."""
    index = Index()
    ears = [_listening(index, pattern) for pattern, _ in cases]
    for at, value in enumerate(values):
        index.add(value)
        index.send(value)
        index.remove(value)
        for (pattern, rows), ear in zip(cases, ears, strict=True):
            if ear.heard or at in rows:
                assert ear.take() == [(event, rows[at]) for event in "+!-" if at in rows], (pattern, value)
    index.check()
    for (pattern, _), ear in zip(cases, ears, strict=True):
        index.remove_handler(skeleton(pattern), ear)
    assert index.statistics().nodes == 1


def _check_facts_first(cases: Sequence[Case], values: Sequence[Value]) -> None:
    """Each pattern comes at once or in steps, and goes."""
    index = _filled(values)
    before = index.statistics()
    for n, (pattern, rows) in enumerate(cases):
        form, expected = skeleton(pattern), sorted(map(repr, {*rows.values()}))
        assert _texts(index.matches(form)) == expected, pattern
        some, is_whole = index.matches_among(form, 3)
        assert {*_texts(some)} <= {*expected} and (not is_whole or len(some) == len(expected)), pattern
        while n % 2 and not index.fill(form, 40):
            pass
        ear = _listening(index, pattern)
        assert sorted([repr(row) for _, row in ear.take()]) == expected, pattern
        assert _texts(index.matches(form)) == expected, pattern
        counts = {keys(row): index.row_count(form, row) for row in index.matches(form)}
        assert counts == {row: [*rows.values()].count(row) for row in counts}
        if n % 100 == 0:
            index.check()
        index.remove_handler(form, ear)
        assert n % 10 != 0 or index.statistics() == before, pattern
    index.check()


def _check_patches(cases: Sequence[Case], values: Sequence[Value]) -> None:
    """All values come and go at once, with rows that several have."""
    index = _filled([])
    ears = [_listening(index, pattern) for pattern, _ in cases]
    index.patch(values, [])
    index.check()
    index.patch([], values)
    index.check()
    for (pattern, rows), ear in zip(cases, ears, strict=True):
        expected = [(event, row) for event in "+-" for row in {*rows.values()}]
        assert sorted(map(repr, ear.take())) == sorted(map(repr, expected)), pattern


def _filled(values: Sequence[Value]) -> Index:
    index = Index()
    index.patch(values, [])
    return index


def _listening(index: Index, pattern: Value) -> _Ear:
    ear = _Ear()
    index.add_handler(skeleton(pattern), ear)
    return ear


def _texts(rows: Sequence[Captures]) -> list[str]:
    return sorted([repr(keys(row)) for row in rows])


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_levels(kind: str) -> None:
    patterns, values = nested(kind)
    _check(patterns[KINDS.index(kind) :: 1 if THOROUGH else 7], values)


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_names_in_three_places(kind: str) -> None:
    patterns, values = wide(kind)
    _check(patterns, values[:: 1 if THOROUGH else 13])


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.skipif(not THOROUGH, reason="make torture: some minutes")
@pytest.mark.parametrize("kind", KINDS)
def test_of_three_levels(kind: str) -> None:
    _check(*deep(kind))
