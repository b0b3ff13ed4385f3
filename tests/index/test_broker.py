"""Strangers come and go with patterns that nobody had before, and nothing of them stays.

The source keeps shapes for ever: "This assumption will have to be revisited in future broker-like cases where
handlers are dynamically installed."  ``make torture`` does it a million times.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys
from collections.abc import Callable
from random import Random

import pytest

from index import emitter
from index.patterns import readers as projections, skeletons
from index.patterns.patterns import capture, exact, lit, skeleton
from index.trie.trie import Index
from index.values.values import Map, Record, Value

Make = Callable[[int, Random], Value]


def fresh_constants(n: int, _chance: Random) -> Value:
    return Record("p", f"constant {n}", capture())


def fresh_labels(n: int, _chance: Random) -> Value:
    return Record(f"label {n}", capture(), Record(f"inner {n}", n))


def fresh_keys(n: int, _chance: Random) -> Value:
    return Record("p", Map({f"key {n}": capture(), n: lit((n,))}))


def fresh_captures(n: int, chance: Random) -> Value:
    fields = [capture() if chance.getrandbits(1) else n for _ in range(chance.randrange(1, 30))]
    return Record("p", *fields)


def fresh_shapes(_n: int, chance: Random) -> Value:
    def structure(depth: int) -> Value:
        parts = [
            structure(depth - 1) if depth and chance.random() < 0.4 else capture()
            for _ in range(chance.randrange(4))
        ]
        return tuple(parts) if chance.getrandbits(1) else exact(Record("p", *parts))

    return Record("p", structure(4), structure(3))


def long_constants(n: int, _chance: Random) -> Value:
    return Record("p", f"{n:0100000}", capture(f"name-{n}"))


PASS = 500
"""Patterns of each kind that come and go in one pass."""

KINDS: list[Make] = [
    fresh_constants,
    fresh_labels,
    fresh_keys,
    fresh_captures,
    fresh_shapes,
    long_constants,
]


def _facts() -> Index:
    index = Index()
    for n in range(50):
        index.add(Record("p", f"constant {n}", n))
        index.add(Record("p", ((n,), Record("p", n)), Record("p")))
        index.add(Record(f"label {n}", n, Record(f"inner {n}", n)))
    return index


def _come_and_go(index: Index, make: Make, first: int, count: int) -> None:
    """A few hundred are here at a time."""
    chance = Random(first)
    here = []
    for n in range(first, first + count):

        def told(_event: object, _row: object) -> None:
            pass

        form = skeleton(make(n, chance))
        index.add_handler(form, told)
        here.append((form, told))
        if len(here) > 200:
            index.remove_handler(*here.pop(chance.randrange(len(here))))
    for each in here:
        index.remove_handler(*each)


def _remembered() -> dict[str, int]:
    """Every table of the package that outlives a pattern."""
    return {
        "skeletons": len(skeletons._cache),
        "forms": len(skeletons._forms),
        "texts": len(emitter._codes),
        "handlers": projections._handler_code.cache_info().currsize,
        "groups": projections._group_code.cache_info().currsize,
        "functions": projections._defined.cache_info().currsize,
        "sources": sum(1 for name in linecache.cache if name.startswith("<") and " text " in name),
    }


@pytest.mark.slow
@pytest.mark.parametrize("make", KINDS)
def test_tables_return_to_the_start(make: Make) -> None:
    index = _facts()
    start = index.statistics()
    _come_and_go(index, make, 0, 600)
    assert index.statistics() == start
    index.check()
    bounds = {
        "skeletons": skeletons.CACHED,
        "forms": skeletons.CACHED,
        "texts": emitter.TEXTS,
        "handlers": 1_024,
        "groups": 1_024,
        "functions": projections.FUNCTIONS,
        "sources": emitter.TEXTS,
    }
    for name, count in _remembered().items():
        assert count <= bounds[name], name


@pytest.mark.slow
@pytest.mark.torture
def test_memory_returns_to_the_start() -> None:
    """What may stay are the caches, which are full after two passes: no later one leaves anything behind.

    Counted in blocks of memory, since ``tracemalloc`` keeps the name of each function's text for good.
    """
    index = _facts()
    start = index.statistics()
    blocks: list[int] = []
    for number in range(3 + int(os.environ.get("TORTURE_ROUNDS", "0"))):
        for at, make in enumerate(KINDS):
            _come_and_go(index, make, at * 10_000_000 + number * PASS, PASS)
        assert index.statistics() == start
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    full = blocks[1]
    assert all(later < full + full // 20 for later in blocks[2:]), blocks
