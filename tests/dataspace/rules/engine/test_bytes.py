"""What rules keep of facts is counted within a factor of two of what it takes, and given back."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.kernel.space import Space
from index.values.values import Record

COUNT = 4_000


def grown(rule: str) -> tuple[Space, int]:
    """Returns a space with a rule and facts, and how many bytes of memory the facts have taken with it."""
    space = Space("main")
    space.commit("rules", [(ASSERT, 1, Record("rule", "r", rule))], 1)
    facts = [Record("f", at, at % 10, float(at)) for at in range(COUNT)]
    gc.collect()
    tracemalloc.start()
    space.commit("facts", [(ASSERT, at, fact) for at, fact in enumerate(facts, 1)], 2)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return space, taken


@pytest.mark.parametrize(
    "rule",
    [
        "n(count($x)) <- f($x).",
        "n($k, count($x)) <- f($x, $k).",
        "n($k, max($v)) <- f(_, $k, $v).",
        "n(percentile($v, 95)) <- f(_, _, $v).",
    ],
)
def test_what_aggregates_keep_is_counted(rule: str) -> None:
    _, plain = grown("n($y) <- nothing($y).")
    space, taken = grown(rule)
    program = space.rules.program
    assert program is not None
    assert (taken - plain) / 2 < program.statistics().bytes < 2 * (taken - plain)
    space.commit("facts", [(RETRACT, at) for at in range(1, COUNT + 1)], 3)
    gc.collect()
    assert program.statistics().bytes < COUNT
