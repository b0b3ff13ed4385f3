"""Groups are facts of the space system, and metrics without their names."""

from __future__ import annotations

import pytest
import trio

import dataspace
from dataspace import Map, Record
from server.groups import figures
from tests.server.monitoring.conftest import Served
from tests.server.monitoring.scraping import get
from tests.server.monitoring.test_metrics import scraped_until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "PAUSE", 0.02)


async def test_a_group_and_its_members_are_facts_and_figures(served: Served) -> None:
    async with (
        dataspace.connect(served.url) as space,
        dataspace.connect(served.url, space="system") as system,
        space.consume("job($id)", group="chosen", in_flight=2, attempts=1) as jobs,
    ):
        for number in range(4):
            await space.send(Record("job", number))
        first = await jobs.next_job()
        assert first is not None
        await first.again(reason="no")
        second = await jobs.next_job()
        assert second is not None
        await second.done()
        third = await jobs.next_job()
        assert third is not None
        pattern = 'group("main", "chosen", 1, 2, 2, 1, $oldest, $behind)'
        assert await system.first(pattern, timeout=20) == (third.time, 0)
        (session,) = await system.first('group-member("main", "chosen", $session, 2)', timeout=20)
        assert (session,) in await system.matches('session($session, "main", _, _)')
        found = await scraped_until(served.admin, 'dataspace_group_out{space="main"}', 2)
        assert found['dataspace_groups{space="main"}'] == found['dataspace_group_members{space="main"}'] == 1
        assert found['dataspace_group_undone{space="main"}'] == 2
        assert found['dataspace_group_dead{space="main"}'] == 1
        assert found['dataspace_group_oldest_max_seconds{space="main"}'] > 0
        counted = {
            event: found[f'dataspace_group_deliveries_total{{event="{event}",space="main"}}']
            for event in ("delivered", "done", "again", "dead", "expired")
        }
        # a dead letter is done as well
        assert counted == {"delivered": 4, "done": 2, "again": 1, "dead": 1, "expired": 0}
        assert "chosen" not in (await get(served.admin, "/metrics")).text
        await space.request("group-alter", Map({"group": "chosen", "what": "pause"}))
        await scraped_until(served.admin, 'dataspace_groups_paused{space="main"}', 1)
        assert await system.first('group-paused("main", "chosen", $why)', timeout=20) == ("paused",)
        await space.request("group-alter", Map({"group": "chosen", "what": "delete"}))
        found = await scraped_until(served.admin, 'dataspace_groups{space="main"}', 0)
        assert found['dataspace_group_deliveries_total{event="delivered",space="main"}'] == 4
        with trio.fail_after(20):
            async with system.observe("group(_, $name, _, _, _, _, _, _)", snapshot=True) as seen:
                while await system.matches("group(_, $name, _, _, _, _, _, _)"):
                    await seen.next_epoch()
