"""Kills of the daemon and stops of members lose no job, and none has two results."""

from __future__ import annotations

import os

import pytest

from tests.server.groups.kills import divide
from tests.server.processes import DaemonProcess

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))


@pytest.mark.slow
@pytest.mark.parametrize("topic", [None, "jobs"], ids=["messages", "a topic"])
async def test_each_job_has_one_result_whatever_is_killed(daemon: DaemonProcess, topic: str | None) -> None:
    counts = await divide(daemon, jobs=600, kills=2, stops=2, topic=topic)
    assert (counts.results, counts.twice, counts.missing) == (600, 0, 0), counts


@pytest.mark.slow
@pytest.mark.torture(long=True)
@pytest.mark.skipif(not ROUNDS, reason="for make torture")
async def test_thirty_kills_and_thirty_stops_do_each_item_once(daemon: DaemonProcess) -> None:
    counts = await divide(daemon, jobs=20_000, kills=30, stops=30, topic="jobs")
    assert (counts.results, counts.twice, counts.missing) == (20_000, 0, 0), counts


@pytest.mark.slow
@pytest.mark.torture(long=True)
@pytest.mark.skipif(not ROUNDS, reason="for make torture")
@pytest.mark.parametrize("seed", range(1, 1 + max(1, ROUNDS // 10)))
async def test_thirty_kills_and_thirty_stops_do_each_job_once(daemon: DaemonProcess, seed: int) -> None:
    counts = await divide(daemon, jobs=20_000, kills=30, stops=30, seed=seed)
    assert (counts.results, counts.twice, counts.missing) == (20_000, 0, 0), counts
    assert (counts.kills, counts.stops) == (30, 30)
