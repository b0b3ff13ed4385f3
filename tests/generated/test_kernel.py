"""Programs of owners, rules and time are carried out by the kernel as the model says."""

from __future__ import annotations

import os

import pytest

from tests.generated.kernel import failure
from tests.generated.programs import draw, less
from tests.generated.shrinking import shrunk

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROGRAMS = 500
"""Programs of the quick form, in about twelve seconds."""


def _fine(first: int, count: int) -> None:
    for seed in range(first, first + count):
        program = draw(seed)
        if failure(program) is not None:
            smaller = shrunk(program, failure, less)
            pytest.fail("\n".join([f"seed {seed}: {failure(smaller)}", *map(repr, smaller)]), pytrace=False)


@pytest.mark.slow
def test_programs() -> None:
    _fine(0, PROGRAMS)


@pytest.mark.torture(long=True)
def test_further_programs() -> None:
    _fine(PROGRAMS, 1_000 * ROUNDS)
