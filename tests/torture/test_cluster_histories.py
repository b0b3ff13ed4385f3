"""Whichever of three daemons over one PostgreSQL dies, stops or hands over: histories break no promise."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.guarantees.validators import VALIDATORS, broken, judged
from tests.torture.cluster_successions import ClusterSuccession

pytestmark = [pytest.mark.slow, pytest.mark.torture]

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROMOTIONS = 10


@pytest.mark.skipif(not ROUNDS, reason="tests/server/cluster has some leaders killed; make torture has more")
@pytest.mark.parametrize("seed", range(1, 1 + max(1, ROUNDS // 5)))
async def test_no_promise_is_broken_by_ten_successions(postgres_url: str, tmp_path: Path, seed: int) -> None:
    with closing(ClusterSuccession(postgres_url, tmp_path, seed)) as succession:
        history = await succession.run(PROMOTIONS)
    print(seed, dict(succession.struck))
    assert broken(history) == []
    assert judged(history) == VALIDATORS.keys() - {"rights"}, "tenants are for tests/abuse"
    assert succession.struck.keys() == ClusterSuccession.strikes().keys()
    assert len({term for term, _ in history.chain}) > PROMOTIONS // 2, "many daemons wrote"
