"""Kills of the daemon and stops of members lose no job, and none has two results."""

from __future__ import annotations

import pytest

from tests.server.groups.kills import divide
from tests.server.processes import DaemonProcess


@pytest.mark.slow
async def test_each_job_has_one_result_whatever_is_killed(daemon: DaemonProcess) -> None:
    counts = await divide(daemon, jobs=600, kills=2, stops=2)
    assert (counts.results, counts.twice, counts.missing) == (600, 0, 0), counts
