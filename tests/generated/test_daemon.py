"""Programs of clients are carried out by a real daemon as the model says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pytest

from tests.generated.clients import draw, less
from tests.generated.covering import Covered
from tests.generated.daemon import COVERED, POOL, failure
from tests.generated.shrinking import shrunk

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
SEEDS = range(40)
"""Programs of the quick form, in some fifteen seconds of CPU, one of them with a daemon that is killed."""
FURTHER = 40
"""Programs of each round."""


@pytest.fixture(autouse=True)
def _daemons() -> Iterator[None]:
    yield
    POOL.close()


def _fine(seeds: Iterable[int]) -> None:
    for seed in seeds:
        program = draw(seed)
        if failure(program) is not None:
            smaller = shrunk(program, failure, less)
            pytest.fail("\n".join([f"seed {seed}: {failure(smaller)}", *map(repr, smaller)]), pytrace=False)


@pytest.mark.slow
def test_programs() -> None:
    _fine(SEEDS)


@pytest.mark.torture(long=True)
def test_further_programs() -> None:
    _fine(range(SEEDS.stop, SEEDS.stop + FURTHER * ROUNDS))
    print(COVERED)  # the table of what was covered


def test_any_two_things_come_together_in_a_program() -> None:
    covered = Covered()
    for seed in range(1_600):
        covered.add(draw(seed), [])
    wanted = {"Post", "Restart", "Strike", "Stall", "with cut", "renew", "sweep", "several owners", "Outlast"}
    assert covered.things.keys() > wanted
    assert not covered.missing(), covered
