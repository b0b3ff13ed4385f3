"""Programs of owners, rules and time are carried out by the kernel as the model says."""

from __future__ import annotations

import os

import pytest

from index.values.values import Record
from tests.generated.kernel import failure
from tests.generated.programs import Toggle, Turn, draw, shrunk
from tests.generated.texts import KNOWN
from tests.model.space import ASSERT

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROGRAMS = 500
"""Programs of the quick form, in about twelve seconds."""


def _fine(first: int, count: int) -> None:
    for seed in range(first, first + count):
        program = draw(seed)
        if failure(program) is not None:
            smaller = shrunk(program, failure)
            pytest.fail("\n".join([f"seed {seed}: {failure(smaller)}", *map(repr, smaller)]), pytrace=False)


@pytest.mark.slow
def test_programs() -> None:
    _fine(0, PROGRAMS)


@pytest.mark.parametrize("reason", KNOWN)
def test_what_is_known_to_differ_does_so_still(reason: str) -> None:
    first, second = Record("m", "a", 1), Record("n", "b")
    turns = [Turn("s:1", ((ASSERT, at, fact),)) for at, fact in enumerate([first, second])]
    assert failure((Toggle("r0", KNOWN[reason][1]), *turns)) is not None


@pytest.mark.torture(long=True)
def test_further_programs() -> None:
    _fine(PROGRAMS, 1_000 * ROUNDS)
