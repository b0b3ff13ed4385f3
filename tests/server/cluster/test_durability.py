"""A store says what it promises of acknowledged turns, what it takes, and what time it is."""

from __future__ import annotations

import json
from time import time_ns

import pytest
import trio
from hypothesis import given, strategies as st

import dataspace
from dataspace import Record
from relay.store.address import StoreAddress
from server.cli.main import main
from server.cluster.database import lease
from server.cluster.database.lease import corrected
from server.config.model import Cluster, Config
from server.daemon.serve import serve
from tests.postgres.servers import Servers, patient
from tests.server.processes import DaemonProcess, running

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.errors import LogFailed
from relay.store.postgres.database import Database
from relay.store.postgres.durability import Durability
from relay.store.postgres.sizes import store_sizes
from server.cluster.database.reading import reading
from tests.relay.store.postgres.leaders import leaders, numbers, write

LOSES = "a failover of the database may lose acknowledged turns: it has no synchronous standby"
KEEPS = "a synchronous standby has all acknowledged turns"
WAITS = "turns wait: no synchronous standby of the database is connected"
HOUR = 3600 * 1_000_000


@pytest.mark.parametrize(
    ("durability", "words", "holds"),
    [
        (Durability("on", "", 0), LOSES, False),
        (Durability("on", " ", 2), LOSES, False),
        (Durability("on", "b", 0), WAITS, False),
        (Durability("on", "ANY 1 (b, c)", 1), KEEPS, True),
        (
            Durability("off", "b", 1),
            "fsync is off: a crash of the database's machine may lose or damage acknowledged turns",
            False,
        ),
    ],
)
def test_a_promise_has_words(durability: Durability, words: str, *, holds: bool) -> None:
    assert (durability.words, durability.holds) == (words, holds)


@pytest.mark.slow
async def test_status_and_log_say_what_a_failover_may_lose(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "1m")
    server = servers.new().start()
    with server.schema() as schema:
        daemon = DaemonProcess(server.url(schema))
        with running(daemon), trio.fail_after(300):
            async with dataspace.connect(daemon.url) as space:
                assert (await space.status())["durability"] == LOSES
            assert said(capsys, server.url(schema)) == LOSES
        assert f"durability of the store: {LOSES}" in daemon.errors
        standby = await trio.to_thread.run_sync(lambda: server.standby(synchronous=True))
        with running(daemon), trio.fail_after(300):
            assert await trio.to_thread.run_sync(main, ["status", "--url", daemon.url]) == 0
            assert KEEPS in capsys.readouterr().out
            assert said(capsys, server.url(schema)) == KEEPS
            await trio.to_thread.run_sync(standby.kill)
            while said(capsys, server.url(schema)) != WAITS:  # noqa: ASYNC110  # until the server notices
                await trio.sleep(0.05)
            await trio.to_thread.run_sync(server.wait_for_standby, "")


def said(capsys: pytest.CaptureFixture[str], url: str) -> str:
    """Returns what ``cluster status`` says of the durability."""
    main(["cluster", "status", "--data", url])
    plain = capsys.readouterr().out.splitlines()[-1].removeprefix("durability: ")
    main(["cluster", "status", "--data", url, "--json"])
    assert json.loads(capsys.readouterr().out)["durability"] in (plain, WAITS)
    return plain


@pytest.mark.slow
def test_a_database_without_fsync_is_refused(servers: Servers, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers.new(fsync="off").start()
    with server.schema() as schema:
        with pytest.raises(LogFailed, match="has fsync = off"):
            Database(StoreAddress.parse(patient(server.url(schema)))).prepare()
        assert main(["serve", "--listen", "tcp:127.0.0.1:0", "--data", server.url(schema)]) == 1
        assert "has fsync = off" in capsys.readouterr().err


@pytest.mark.slow
def test_a_database_that_loses_fsync_is_written_no_more(servers: Servers) -> None:
    server = servers.new().start()
    with server.schema() as schema, leaders(server.url(schema)) as (one, _):
        log = one.log()
        write(log, 1)
        server.settings["fsync"] = "off"
        server.restart()
        for _ in range(2):
            with pytest.raises(LogFailed, match="has fsync = off"):
                write(log, 2)
        assert numbers(log) == [1], "it can be read"


# -- what it takes ----------------------------------------------------------------------------------


def test_the_bytes_of_each_space_are_counted(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _):
        log = one.log()
        assert store_sizes(one.database, "", "main") == {"main": {"log": 0, "staged": 0}}
        write(log, 1)
        write(log, 2, 3)
        assert store_sizes(one.database, "", "main") == {"main": {"log": log.size(), "staged": 0}}
        assert log.size() > 0
        one.space_of("")
        assert store_sizes(one.database, "", "main")["main"]["topics"] == 0


@pytest.mark.slow
async def test_status_has_the_bytes_of_a_store(postgres_url: str) -> None:
    daemon = DaemonProcess(postgres_url)
    with running(daemon), trio.fail_after(180):
        async with dataspace.connect(daemon.url, owner="map") as space:
            await space.assert_(Record("here", 1))
            while not (await space.status())["disk_bytes"]:  # noqa: ASYNC110  # of another process
                await trio.sleep(0.05)


# -- what time it is --------------------------------------------------------------------------------

TIMES = st.integers(0, 10**6)


@given(
    ahead=st.integers(-(10**6), 10**6), asked=TIMES, way=TIMES, back=TIMES, truth=st.integers(-(10**9), 10**9)
)
def test_a_correction_is_at_most_as_wrong_as_an_answer_took(
    ahead: int, asked: int, way: int, back: int, truth: int
) -> None:
    answered = asked + way + back
    found = corrected(ahead, asked, answered, asked + way + truth)
    assert truth - back <= found <= truth + way
    if truth - back <= ahead <= truth + way:
        assert found == ahead, "nothing shows that it is wrong"
    assert corrected(found, asked, answered, asked + way + truth) == found


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
async def test_epochs_have_the_time_of_the_database(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, wrong: int
) -> None:
    """Although the clock of the leader is wrong by an hour."""
    monkeypatch.setattr(lease, "wall", lambda: time_ns() // 1000 + wrong)
    address = StoreAddress.parse(patient(postgres_url))
    config = Config(("tcp:127.0.0.1:0",), address, cluster=Cluster(lease=60.0))
    before = time_ns() // 1000
    (url,) = await nursery.start(serve, config)
    async with dataspace.connect(url, owner="map") as space:
        await space.assert_(Record("here", 1))
    with reading(address, "main") as (log, _):
        times = [epoch.time for epoch in log.read(0)]
    nursery.cancel_scope.cancel()
    assert times and all(abs(time - before) < HOUR // 2 for time in times)
