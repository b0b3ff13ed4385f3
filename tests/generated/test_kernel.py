"""Programs of owners, rules and time are carried out by the kernel as the model says."""

from __future__ import annotations

import os

import pytest

from tests.generated.kernel import failure
from tests.generated.programs import draw, less
from tests.generated.shrinking import check

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROGRAMS = 500
"""Programs of the quick form, in about twelve seconds."""


@pytest.mark.slow
def test_programs() -> None:
    check(range(PROGRAMS), draw, failure, less)


@pytest.mark.torture(long=True)
def test_further_programs() -> None:
    check(range(PROGRAMS, PROGRAMS + 1_000 * ROUNDS), draw, failure, less)
