"""Clocks that are wrong by an hour, of daemons or of a promoted database, cost nothing and stop nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.address import StoreAddress
from server.cluster.database.reading import reading
from tests.postgres.servers import Servers, address
from tests.server.clocks import HOUR, wrong_clock
from tests.server.cluster.test_failover import LEASE, SOON, leader_of
from tests.server.processes import DaemonProcess, running
from tests.server.successions import Witness, witnessed

pytestmark = pytest.mark.slow


def times_of(url: str) -> list[float]:
    """Returns the times of all epochs of a store, in seconds."""
    with reading(StoreAddress.parse(url), "main") as (log, _):
        return [each.time / 1e6 for each in log.read(0)]


async def succeeded(daemons: Sequence[DaemonProcess], witness: Witness) -> None:
    """Kills the leader, waits until another one has taken turns, and starts it again."""
    leader = await leader_of(daemons)
    await trio.to_thread.run_sync(leader.kill)
    await witness.answered()
    await trio.to_thread.run_sync(leader.start)


async def test_daemons_whose_clocks_are_wrong_take_over_and_keep_time(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is an hour ahead, one an hour behind; the epochs have the time of the database."""
    monkeypatch.setenv(LEASE, "1s")
    daemons = [DaemonProcess(postgres_url) for _ in range(3)]
    for each, wrong in zip(daemons, (HOUR, -HOUR, 0), strict=True):
        each.environment = wrong_clock(tmp_path, wrong)
    began = time.time()
    with running(*daemons), trio.fail_after(SOON * 3):
        async with witnessed([each.url for each in daemons]) as witness:
            await witness.answered()
            for _ in range(3):
                await succeeded(daemons, witness)
    found = times_of(postgres_url)
    assert found == sorted(found)
    assert began - HOUR / 2 < found[0] and found[-1] < time.time() + HOUR / 2
    said = "".join([each.errors for each in daemons])
    assert "the clock of the database is -3" in said and "the clock of the database is 3" in said


@pytest.mark.parametrize("wrong", [-HOUR, HOUR], ids=["behind", "ahead"])
async def test_leases_end_in_a_promoted_database_whose_clock_is_wrong(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    """An hour behind, by its clock each earlier lease lasts for an hour; an hour ahead, each has ended."""
    monkeypatch.setenv(LEASE, "1s")
    server = servers.new().start()
    standby = await trio.to_thread.run_sync(lambda: server.standby(synchronous=True))
    standby.environment = wrong_clock(servers.place, wrong)
    await trio.to_thread.run_sync(standby.restart)
    await trio.to_thread.run_sync(server.wait_for_standby, standby.name)
    with standby.connect(superuser=True) as connection:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        assert row is not None and abs(row[0] - time.time()) > HOUR / 2
    place = address([server, standby], "test")
    daemons = [DaemonProcess(place) for _ in range(2)]
    with running(*daemons), trio.fail_after(SOON * 3):
        async with witnessed([each.url for each in daemons]) as witness:
            await witness.answered()
            await trio.to_thread.run_sync(server.kill)
            await trio.to_thread.run_sync(standby.promote)
            await witness.answered()
            await succeeded(daemons, witness)
    found = times_of(place)
    assert found == sorted(found)
