"""A task that raises is begun again after a pause, which is a short one where it went well for long."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from server.spaces.keeping import DAEMON, keep


async def test_a_task_that_went_well_is_begun_again_soon(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[float] = []

    async def fail() -> None:
        began.append(trio.current_time())
        if len(began) == 5:
            return
        await trio.sleep(61.0 if len(began) == 4 else 1.0)
        raise ZeroDivisionError

    await keep(DAEMON, "tasks", fail)
    assert [round(after - before) for before, after in pairwise(began)] == [2, 3, 5, 62]
