"""Whatever dies, at any instant or named point: no promise is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.guarantees.validators import broken, judged
from tests.torture.points import named_points
from tests.torture.torture import Torture

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))

JUDGED = {
    *("ownership", "session_ends", "whole_turns", "once", "durability", "order", "observation", "spaces"),
    *("outcome", "topics"),
}


@pytest.mark.slow
@pytest.mark.torture
async def test_no_promise_is_broken_and_every_named_point_is_struck(tmp_path: Path) -> None:
    torture = Torture(tmp_path / "data", seed=ROUNDS + 1)
    load = await torture.run(len(named_points()) + 1 + 4 * ROUNDS, clients=1 + ROUNDS // 4)
    print(torture.table())
    torture.check()
    assert broken(load.notes.history) == []
    assert judged(load.notes.history) == JUDGED


def test_the_points_are_those_in_the_sources() -> None:
    points = named_points()
    assert len(set(points)) == len(points), "a name stands for one point"
    assert {"log-before-write", "topics-after-write", "publish-after-commit"} <= set(points)
