"""Crafted values cost a table no more steps than others do, wherever a stranger's values stand in tables."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from index.patterns.patterns import capture, lit, skeleton
from index.trie.trie import Index
from index.values.values import Map, Record, Value, key, keys, same
from tests.index.floods import (
    FLOODS,
    chained,
    minus_one_and_two,
    ordinary,
    probes,
    same_low_bits,
    same_remainder,
)

pytestmark = pytest.mark.torture

COUNT = 20_000 if "TORTURE_ROUNDS" in os.environ else 5_000

Flood = Callable[[int], list[Value]]
FACTOR = 2
"""By how much a flood may be slower; a good hash is at 1.0 and 1.3, by chance."""


@pytest.mark.parametrize("flood", [same_remainder, same_low_bits, chained, minus_one_and_two])
def test_the_floods_are_floods(flood: Flood) -> None:
    count = 2_000  # they are quadratic
    plain = probes(ordinary(count))
    assert probes(flood(count)) > 4 * plain


@pytest.mark.parametrize("flood", FLOODS)
def test_a_table_by_key(flood: Flood) -> None:
    values = flood(COUNT)
    usual = probes(map(key, ordinary(len(values))))
    assert len({key(value) for value in values}) == len(values)
    assert probes(map(key, values)) < FACTOR * usual


@pytest.mark.parametrize("flood", FLOODS)
def test_a_table_by_rows(flood: Flood) -> None:
    values = flood(COUNT)
    usual = probes(keys((value, 1)) for value in ordinary(len(values)))
    assert probes(keys((value, 1)) for value in values) < FACTOR * usual
    assert probes(keys((value,)) for value in values) < FACTOR * usual


@pytest.mark.parametrize("flood", FLOODS)
def test_a_map(flood: Flood) -> None:
    values = flood(COUNT)
    usual = probes(Map([(value, 1) for value in ordinary(len(values))])._entries)
    made = Map([(value, 1) for value in values])
    assert len(made) == len(values) and same(made[values[-1]], 1)
    assert probes(made._entries) < FACTOR * usual


def _tables(values: list[Value]) -> dict[str, int]:
    """The steps that each table of an index takes for facts, constants, labels and captures of this kind."""
    index = Index()
    index.add_handler(skeleton(Record("p", 0, capture())), lambda _event, _row: None)
    index.add_handler(skeleton(Record("p", capture())), lambda _event, _row: None)
    for value in values[:1_000]:  # an observer is dear
        index.add_handler(skeleton(Record("p", lit(value))), lambda _event, _row: None)
        index.add_handler(skeleton(Record(value, 1)), lambda _event, _row: None)
    for value in values:
        index.add(Record("p", value))
    groups = [group for table in index._root.moves.values() for node in table.values() for group in node.each]
    handlers = [handler for group in groups for leaf in group.leaves.values() for handler in leaf.handlers]
    return {
        "values": probes(index._values),
        "leaves": sum(probes(group.leaves) for group in groups),
        "idle": sum(probes(group.idle) for group in groups),
        "rows": sum(probes(handler.rows) for handler in handlers),
        "labels": sum(probes(table) for table in index._root.moves.values()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS)
def test_the_index(flood: Flood) -> None:
    values = flood(COUNT)
    usual = _tables(ordinary(len(values)))
    for name, steps in _tables(values).items():
        assert steps < FACTOR * usual[name] + 100, name
