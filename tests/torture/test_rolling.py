"""While the daemons of a cluster are replaced by newer ones, one after the other, no promise is broken."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from tests.guarantees.validators import VALIDATORS, broken, judged
from tests.torture.rolling import RollingUpgrade

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
LONG, SEEDS = 3, 7
"""Rounds of each history of the long form; an odd number, so that the last one leads to the newer version."""


async def upgraded(store: str, folder: Path, rounds: int, seed: int) -> None:
    with closing(RollingUpgrade(store, folder, seed)) as rolling:
        await rolling.run_rounds(rounds)
    print("longest waits in each restart:", *[f"{each:.2f}" for each in rolling.pauses], "s")
    assert broken(rolling.history) == []
    assert judged(rolling.history) == VALIDATORS.keys() - {"rights"}, "tenants are for tests/abuse"
    assert len(rolling.pauses) == 3 * rounds
    assert len({term for term, _ in rolling.history.chain}) > rounds, "many daemons wrote"


async def test_a_cluster_is_upgraded(postgres_url: str, tmp_path: Path) -> None:
    await upgraded(postgres_url, tmp_path, 1, seed=0)


@pytest.mark.torture
@pytest.mark.skipif(not ROUNDS, reason="one round is in `make test`; make torture has more")
@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
async def test_a_cluster_goes_back_and_forth_between_two_versions(
    postgres_url: str, tmp_path: Path, seed: int
) -> None:
    await upgraded(postgres_url, tmp_path, LONG, seed)
