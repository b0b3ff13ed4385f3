"""A cluster whose daemons reach their database through PgBouncer in transaction mode keeps all promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.address import StoreAddress
from relay.store.errors import LogFailed
from relay.store.postgres.database import Database
from server.cli.main import main
from tests.postgres.pooler import pooled
from tests.postgres.servers import NAME, Server, Servers
from tests.relay.store.postgres.leaders import Leader, numbers, write
from tests.server.cluster.test_failover import LEASE, SOON, leader_of
from tests.server.processes import DaemonProcess, running
from tests.server.successions import witnessed

pytestmark = pytest.mark.slow

FAILOVERS = 4


@pytest.fixture
def server(servers: Servers) -> Iterator[Server]:
    with pooled(servers.new().start()) as made:
        yield made


async def test_leaders_are_killed_one_after_the_other(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the store is backed up, and verified, through the pooler too."""
    monkeypatch.setenv(LEASE, "1s")
    with server.schema() as schema, trio.fail_after(SOON * 3):
        daemons = [DaemonProcess(server.url(schema)) for _ in range(3)]
        with running(*daemons):
            async with witnessed([each.url for each in daemons]) as witness:
                for _ in range(FAILOVERS):
                    await witness.answered()
                    leader = await leader_of(daemons)
                    await trio.to_thread.run_sync(leader.kill)
                    await witness.answered()
                    await trio.to_thread.run_sync(leader.start)
            words = ["backup", str(tmp_path / "backup"), "--data", server.url(schema)]
            assert await trio.to_thread.run_sync(main, words) == 0
        assert await trio.to_thread.run_sync(main, ["log", "verify", "--data", server.url(schema)]) == 0


async def test_the_server_behind_it_is_killed_and_comes_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "1s")
    with server.schema() as schema, trio.fail_after(SOON * 3):
        daemons = [DaemonProcess(server.url(schema)) for _ in range(2)]
        with running(*daemons):
            async with witnessed([each.url for each in daemons]) as witness:
                for _ in range(2):
                    await witness.answered()
                    await trio.to_thread.run_sync(server.restart)
                    await witness.answered()


def test_no_connection_of_the_server_is_changed(server: Server) -> None:
    """Else a writer would get one on which commits do not wait for the standby."""
    with server.schema() as schema:
        leader = Leader(server.url(schema))
        log = leader.log()
        for number in range(1, 30):  # prepared statements would be made from the fifth on
            write(log, number)
            leader.member.renew()
            with leader.database.connect() as connection:
                assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert leader.database.is_pooled and numbers(log) == [*range(1, 30)]
        leader.close()


def test_a_role_whose_commits_are_weaker_is_refused(server: Server) -> None:
    with server.schema() as schema, server.connect(superuser=True) as beside:
        beside.execute(f"ALTER ROLE {NAME} SET synchronous_commit = local".encode())
        beside.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dataspace'")
        database = Database(StoreAddress.parse(server.url(schema)))
        with pytest.raises(LogFailed, match="through a pooler, where synchronous_commit is local"):
            database.connect(writes=True)
        database.close()


async def test_without_a_pooler_there_is_none(postgres_url: str) -> None:
    database = Database(StoreAddress.parse(postgres_url))
    database.prepare()
    assert not database.is_pooled
    database.close()
