"""The lag of a named reader is what it has not acknowledged, in changes and in seconds."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Map, Record
from relay.log.log import Log
from server.monitoring import lags
from tests.relay.log.histories import append, epoch
from tests.server.monitoring.conftest import Served
from tests.server.monitoring.test_metrics import scraped_until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lags, "PAUSE", 0.02)


async def test_a_reader_is_behind_by_what_it_has_not_acknowledged(served: Served) -> None:
    async with (
        dataspace.connect(served.url) as space,
        dataspace.connect(served.url, space="system") as system,
    ):
        for n in range(3):
            async with space.turn() as turn:
                turn.assert_(Record("on", n))
                turn.assert_(Record("at", n))
        await space.request("acknowledge", Map({"reader": "spark", "epoch": 1}))
        found = await scraped_until(served.admin, 'dataspace_reader_lag_changes_max{space="main"}', 4)
        assert found['dataspace_reader_lag_max_seconds{space="main"}'] > 0
        async with system.observe("reader($name, $space, $epoch, $changes, _)") as readers:
            with trio.fail_after(20):
                async for change in readers:
                    if change.kind == "+" and change["epoch"] == 1:
                        assert (change["name"], change["space"], change["changes"]) == ("spark", "main", 4)
                        await space.request("acknowledge", Map({"reader": "spark", "epoch": 3}))
                    elif change.kind == "+":
                        assert (change["epoch"], change["changes"]) == (3, 0)
                        break
        await space.request("acknowledge", Map({"reader": "spark", "forget": True}))
        await scraped_until(served.admin, 'dataspace_readers{space="main"}', 0)
        with trio.fail_after(20):
            async with system.observe("reader($name, _, _, _, _)", snapshot=True) as readers:
                while await system.matches("reader(_, _, _, _, _)"):
                    await readers.next_epoch()


def test_what_is_behind_an_epoch_is_counted_from_segments() -> None:
    epochs = [epoch(number, *[Record("p", number, at) for at in range(number)]) for number in range(1, 6)]
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder))
        append(log, *epochs)
        for at in range(log.last + 1):
            later = [each for each in epochs if each.number > at]
            changes = sum(len(each.added) + len(each.messages) + len(each.removed) for each in later)
            assert log.behind(at) == (changes, later[0].time if later else 0)
        log.close()
