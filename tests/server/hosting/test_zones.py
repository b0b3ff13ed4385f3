"""A daemon notes which release of the zones of time its rules were carried out with, and says where a start
or a take-over has another one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio
import tzdata

import dataspace
from dataspace import Map, Record
from dataspace.rules.language.zones import VERSION
from index.values.values import Value
from server.cli.once.status import _rules_line
from tests.server.processes import DaemonProcess, running, stand_by

LOCAL = 'local($id, hour($t, "Europe/Zurich")) <- task($id, $t).'
NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)


def other_release(folder: Path) -> str:
    """Makes a package of another release, in which clocks in Zurich show what they show in Tokyo."""
    whole = Path(tzdata.__file__).parent
    shutil.copytree(whole, folder / "tzdata")
    made = folder / "tzdata/__init__.py"
    made.write_text(made.read_text(encoding="utf-8").replace(VERSION, "1999z"), encoding="utf-8")
    shutil.copy(whole / "zoneinfo/Asia/Tokyo", folder / "tzdata/zoneinfo/Europe/Zurich")
    return str(folder)


async def _status(space: dataspace.RemoteSpace) -> Mapping[Value, Value]:
    status = await space.request("status", Map())
    assert isinstance(status, Map)
    return dict(status.pairs())


@pytest.mark.slow
async def test_a_start_with_another_release_says_so_and_derives_by_it(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    async with dataspace.connect(daemon.url, owner="map") as space:
        assert (await _status(space))["zones"] == "", "no rule reads any"
        await space.assert_(Record("rule", "local", LOCAL))
        await space.assert_(Record("task", 1, NOON))
        assert await space.matches("local($id, $h)") == [(1, 13)]
        status = await _status(space)
        assert (status["zones"], status["zones_before"]) == (VERSION, "")
    await trio.to_thread.run_sync(daemon.kill)
    for environment, before, hour in (
        ({}, "", 13),
        ({"PYTHONPATH": other_release(tmp_path / "other")}, VERSION, 21),
        ({}, "1999z", 13),
    ):
        daemon.environment = environment
        daemon.start()
        async with dataspace.connect(daemon.url, owner="map") as space:
            status = await _status(space)
            assert (status["zones"] == VERSION) == (hour == 13) and status["zones_before"] == before
            assert await space.matches("local($id, $h)") == [(1, hour)]
            line = _rules_line(dict(status))
            assert (f"(of {before} before)" in line) == bool(before) and "zones of" in line
        await trio.to_thread.run_sync(daemon.stop)


@pytest.mark.slow
async def test_a_take_over_with_another_release_says_so(daemon: DaemonProcess, tmp_path: Path) -> None:
    other = stand_by(daemon.data)
    other.environment = {"PYTHONPATH": other_release(tmp_path / "other")}
    async with dataspace.connect(daemon.url, owner="map") as space:
        await space.assert_(Record("rule", "local", LOCAL))
        await space.assert_(Record("task", 1, NOON))
        await space.sync()
    with running(other):
        async with dataspace.connect(other.url) as space:
            assert await space.matches("local($id, $h)") == [(1, 13)], "as the leader derives"
        await trio.to_thread.run_sync(daemon.kill)
        async with dataspace.connect(other.url, owner="map") as space:
            await space.assert_(Record("task", 2, NOON))  # which waits for a leader
            status = await _status(space)
            assert (status["zones"], status["zones_before"]) == ("1999z", VERSION)
            assert sorted(await space.matches("local($id, $h)")) == [(1, 21), (2, 21)]
