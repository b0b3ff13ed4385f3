"""What alerts about a cluster go by is exposed when it happens, and only then.

What Prometheus makes of these values ``alerts_test.yml`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import pytest
import trio

from tests.ports import free_port
from tests.postgres.servers import Servers
from tests.server.monitoring.scraping import scrape
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SOON = 240
SILENCE: Final = "dataspace_cluster_store_silence_seconds"
DURABLE: Final = "dataspace_cluster_durable"
SURE: Final = "dataspace_cluster_sure"
LATE: Final = "dataspace_cluster_late_renewals_total"
LEASE: Final = 4.0
Scraped: TypeAlias = dict[str, float]


def _renewed_late(before: float, found: Scraped) -> bool:
    return found[LATE] > before and found[SILENCE] < LEASE


class Member:
    """A daemon that is scraped."""

    def __init__(self, url: str) -> None:
        self.admin = f"http://127.0.0.1:{free_port()}"
        self.daemon = DaemonProcess(url, "--admin", self.admin.removeprefix("http://"))

    async def until(self, true: Callable[[Scraped], bool]) -> Scraped:
        """Returns what is scraped once a condition holds; a daemon that takes another role answers later."""
        while True:
            with suppress(OSError):
                found = await scrape(self.admin)
                if true(found):
                    return found
            await trio.sleep(0.1)


async def test_a_store_that_is_away_is_seen_and_so_is_a_lease_that_was_nearly_lost(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", f"{LEASE:g}s")
    server = servers.new().start()
    with server.schema() as schema, trio.fail_after(SOON):
        leader, follower = Member(server.url(schema)), Member(server.url(schema))
        with running(leader.daemon, follower.daemon):
            before = {}
            for each in (leader, follower):
                found = await each.until(lambda found: found["dataspace_cluster_members"] == 2)
                assert found[SURE] == 1
                before[each] = found[LATE]
            await trio.to_thread.run_sync(server.pause)
            # by then its lease has run out, and the leader's as well, which ends its role
            await follower.until(lambda found: found[SILENCE] > LEASE)
            await trio.to_thread.run_sync(server.resume)
            for each, late in before.items():
                await each.until(partial(_renewed_late, late))


async def test_a_synchronous_standby_that_is_not_there_is_seen_and_so_is_a_leader_that_is_not_sure(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "2s")
    server = servers.new().start()
    with server.schema() as schema, trio.fail_after(SOON):
        leader, follower = Member(server.url(schema)), Member(server.url(schema))
        with running(leader.daemon, follower.daemon):
            for each in (leader, follower):
                found = await each.until(lambda found: found["dataspace_cluster_members"] == 2)
                assert (found[DURABLE], found[SURE]) == (0, 1), "there is none"
            standby = await trio.to_thread.run_sync(lambda: server.standby(synchronous=True))
            for each in (leader, follower):
                assert (await each.until(lambda found: found[DURABLE] == 1))[SURE] == 1
            await trio.to_thread.run_sync(standby.kill)
            await leader.until(lambda found: (found[DURABLE], found[SURE]) == (0, 0))
            assert (await follower.until(lambda found: found[DURABLE] == 0))[SURE] == 1, "it leads nothing"
            await trio.to_thread.run_sync(standby.start)
            await leader.until(lambda found: (found[DURABLE], found[SURE]) == (1, 1))
