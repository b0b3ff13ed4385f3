"""A soak finds what grows, and a short one of the real daemon finds nothing wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.guarantees.validators import VALIDATORS
from tests.soak.soak import Soak
from tests.soak.verdict import FEWEST, MAY_BE, Sample, drifts, table

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))

JUDGED = VALIDATORS.keys() - {"conditions", "graces", "locks", "rights"}

FLAT = [
    Sample(at * 10.0, (50 << 20) + at % 7 * 4096, 30 + at % 3, 6, 9 << 20, 2.0 + at % 5, 20.0)
    for at in range(60)
]


@pytest.mark.parametrize("name", MAY_BE)
def test_what_grows_is_named(name: str) -> None:
    assert drifts(FLAT) == []
    grown = [replace(each, **{name: getattr(each, name) * 1.1**at + at}) for at, each in enumerate(FLAT)]
    (found,) = drifts(grown)
    assert found.startswith(f"{name} has grown from ")


def test_what_grows_at_first_and_stays_is_no_drift_and_a_peak_is_none() -> None:
    warming = [replace(each, resident=min(20 + at * 2, 80) << 20) for at, each in enumerate(FLAT)]
    assert drifts(warming) == []
    assert drifts([*FLAT[:-1], replace(FLAT[-1], latency=900.0)]) == []
    assert drifts(FLAT[: FEWEST - 1]) == []


def test_the_table_has_the_first_and_the_last() -> None:
    lines = table(FLAT, 5).splitlines()
    assert len(lines) == 6
    assert lines[1].split()[0] == "0.0" and lines[-1].split()[0] == "590.0"


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.skipif(not ROUNDS, reason="a minute of load, for make torture")
async def test_a_minute_of_it_finds_nothing_wrong(tmp_path: Path) -> None:
    soak = Soak(tmp_path / "data", seed=ROUNDS)
    assert await soak.run(60.0) == []
    print(soak.report())
    assert {"turns", "changes", "leases", "times", "queries", "visits", "kills", "cuts"} <= soak.done.keys()
    assert soak.judged == JUDGED
