"""Whichever of three daemons over one log dies or is stopped, and whenever: no promise is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.guarantees.history import History
from tests.guarantees.validators import VALIDATORS, broken, judged
from tests.torture.successions import Succession

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROMOTIONS = 10


async def lived(directory: Path, seed: int) -> History:
    """Returns the history of ten promotions, which breaks no promise."""
    succession = Succession(directory, seed)
    history = await succession.run(PROMOTIONS)
    print(dict(succession.struck))
    assert broken(history) == []
    assert judged(history) == VALIDATORS.keys() - {"rights"}, "tenants are for tests/abuse"
    assert succession.struck.keys() == Succession.strikes().keys()
    return history


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.skipif(not ROUNDS, reason="tests/server/following has some leaders killed; make torture has 200")
async def test_ten_leaders_end_one_after_the_other(tmp_path: Path) -> None:
    history = await lived(tmp_path / "data", 1)
    accepted = {turn.at for turn in history.turns if isinstance(turn.answer, int)}
    assert accepted >= history.leaders.keys()
    assert len(history.firsts) == PROMOTIONS + 1, "no other process wrote"
    seen = [{each.process for each in view.epochs} for view in history.views.values()]
    assert any(len(processes) > 2 for processes in seen), "observers went from one process to another"
    assert all(len(session.returns) >= PROMOTIONS for session in history.graced)


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.skipif(not ROUNDS, reason="ten promotions are enough; make torture has 200")
@pytest.mark.parametrize("seed", range(2, 2 + max(1, 2 * ROUNDS // 5)))
async def test_further_leaders_end(tmp_path: Path, seed: int) -> None:
    await lived(tmp_path / "data", seed)
