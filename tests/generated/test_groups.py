"""Jobs of a group are handed out, and are done, as a plain list of them says."""

from __future__ import annotations

import os

import pytest

from tests.generated.groups import failure
from tests.generated.jobs import draw, less
from tests.generated.shrinking import check

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROGRAMS = 3_000
"""Programs of the quick form, in about two seconds."""


@pytest.mark.slow
def test_programs() -> None:
    check(range(PROGRAMS), draw, failure, less)


@pytest.mark.torture(long=True)
def test_further_programs() -> None:
    check(range(PROGRAMS, PROGRAMS + 10_000 * ROUNDS), draw, failure, less)
