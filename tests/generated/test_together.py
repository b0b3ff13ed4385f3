"""Any two features of the product act in one space of one program, life or matrix.

Programs and lives are drawn, and counted by what is in them: other tests carry them out.  The crowd, which
has all features at once, is carried out here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import trio

from tests.generated import clients, programs
from tests.generated.crowd import SOON, Crowd
from tests.generated.features import FEATURES, Pair, Together, of_clients, of_life, of_program
from tests.simulation.occurrences import Kind
from tests.simulation.plan import SPACES, draw

LEAST: Final = 0.95
"""The share of pairs that must come together."""
ALONE: Final[dict[Pair, str]] = {}
"""Pairs that no door has, with the reason."""


def drawn() -> Together:
    """Returns what drawn programs and lives, and the matrices, bring together."""
    together = Together()
    for seed in range(100):
        together.add("kernel", of_program(programs.draw(seed)))
    for seed in range(300):
        together.add("daemon", of_clients(clients.draw(seed)))
    for seed, kind in [(seed, kind) for seed in range(150) for kind in Kind]:
        plan = draw(seed, kind)
        for space in SPACES:
            together.add("lives", of_life(plan, space))
    together.add_matrices()
    return together


@pytest.mark.slow
async def test_any_two_features_act_in_one_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("zstandard", reason="the extra `archive` is not installed")
    crowd, together = Crowd(tmp_path), drawn()
    alone = len(together.missing)
    with trio.fail_after(SOON):
        await trio.to_thread.run_sync(crowd.first.start)
        await trio.to_thread.run_sync(crowd.second.start)
        async with crowd.clients():
            await crowd.act()
            await crowd.judge()
            await crowd.follow()
            await crowd.drain()
            await crowd.act()
            await crowd.judge()
            await crowd.forget()
            await crowd.archive()
            await crowd.restart()
            await crowd.act()
            await crowd.judge()
        await trio.to_thread.run_sync(crowd.second.stop)
    assert crowd.acted == FEATURES.keys(), crowd.acted ^ FEATURES.keys()
    together.add("crowd", crowd.acted)
    with capsys.disabled():
        print(f"\n{together}; without the crowd {len(together.met) - alone}")
    missing = together.missing
    assert set(missing) == ALONE.keys(), set(missing) ^ ALONE.keys()
    assert len(missing) <= (1 - LEAST) * len(together.met)
