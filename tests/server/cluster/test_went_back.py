"""A store that went back is reported by each daemon that has seen more, and never continued silently."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import Refused
from dataspace.topics.times import Order
from relay.journal.rows import Noted, Write
from relay.store.address import StoreAddress
from relay.store.errors import LogAway, LogDamaged
from relay.topics.steps import Completed, Step, StepLog
from relay.topics.topic import Topic
from server.cluster.database.store import StoreHome
from server.config.model import Cluster, Config
from server.daemon.serve import serve
from tests.postgres.servers import Servers, address, connect, patient
from tests.relay.journal.test_journal import kept
from tests.relay.log.histories import append, epoch, flight
from tests.server.processes import DaemonProcess

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

LOST = "DELETE FROM segments WHERE segment > 2"


@pytest.fixture
def config(postgres_url: str, tmp_path: Path) -> Config:
    """The configuration of a daemon with a state directory."""
    return Config(data=StoreAddress.parse(patient(postgres_url)), cluster=Cluster(state=tmp_path / "state"))


def home_of(config: Config, before: StoreHome | None = None) -> StoreHome:
    """Returns the home of a daemon that has joined, and leads its spaces if no other does."""
    assert isinstance(config.data, StoreAddress)
    made = StoreHome(config, config.data, before)
    made._join()
    return made


def ended(*homes: StoreHome) -> None:
    for each in homes:
        each._leave()
        each._database.close()


def three_epochs(home: StoreHome) -> None:
    """Leads, writes three segments, and leads no longer."""
    assert home._take_free(["main"])
    log = home.open_log("main", accept_damage=False)
    for number in (1, 2, 3):
        append(log, epoch(number, flight(number)))
    log._tables.abandon()


TABLES = ("meta", "segments", "topics")


def topics_written(home: StoreHome, url: str) -> None:
    """Leads, writes a topic of which some steps are gone afterwards, and leads no longer."""
    assert home._take_free(["main"])
    journal, writes = home.open_journal(accept_damage=False), list[Write]()

    def note(step_log: StepLog, step: Step, completed: Sequence[Completed]) -> None:
        writes.append(Noted(step_log.slot, step, tuple(completed), step_log.completed, step.position))

    step_log = StepLog(Topic("t", Order(0), 1, lasting=True), 1, 1, 1 << 20, note)
    journal.write([kept(step_log)])
    step_log.join(1)
    journal.write(writes)
    with connect(url) as beside:
        for table in TABLES:
            beside.execute(f"CREATE TABLE kept_{table} AS TABLE {table}".encode())
    writes.clear()
    step_log.send(1, 0, b"\x91\x01")
    journal.write(writes)
    journal._tables.abandon()


def lose_steps(url: str) -> None:
    with connect(url) as beside, beside.transaction():
        for table in TABLES:
            beside.execute(f"DELETE FROM {table}; INSERT INTO {table} TABLE kept_{table}".encode())


def lose(url: str) -> None:
    with connect(url) as beside:
        beside.execute(LOST.encode())


@pytest.mark.parametrize("remembers", ["by its state directory", "in its memory"])
def test_a_leader_remembers_what_it_wrote(config: Config, postgres_url: str, remembers: str) -> None:
    first = home_of(config)
    three_epochs(first)
    lose(postgres_url)
    ended(first)
    second = home_of(config, first if remembers == "in its memory" else None)
    assert second._take_free(["main"])
    with pytest.raises(LogDamaged, match="epochs up to 3 were acknowledged, but its last is 2"):
        second.open_log("main", accept_damage=False)
    log = second.open_log("main", accept_damage=True)
    assert log.next_epoch > 3 and log.lost(3)
    log.close()
    ended(second)


def test_a_follower_remembers_what_it_read(config: Config, postgres_url: str) -> None:
    leader, follower = home_of(Config(data=config.data)), home_of(config)
    three_epochs(leader)
    with ExitStack() as held:
        log = follower.follow_log("main", held)
        assert [each.last for each in log.tail(0)] == [1, 2, 3]
        log.close()
        lose(postgres_url)
        for again in (home_of(config, follower), home_of(config)):
            with pytest.raises(LogDamaged, match="epochs up to 3 were acknowledged, but its last is 2"):
                again.follow_log("main", held)
            ended(again)
    ended(leader, follower)


@pytest.mark.parametrize("remembers", ["by its state directory", "in its memory"])
@pytest.mark.parametrize("leads", [True, False], ids=["leads again", "follows"])
def test_steps_of_topics_are_remembered(
    config: Config, postgres_url: str, remembers: str, leads: bool
) -> None:
    """Also by a leader of which another takes over, so that it follows."""
    first = home_of(config)
    topics_written(first, postgres_url)
    lose_steps(postgres_url)
    ended(first)
    second = home_of(config, first if remembers == "in its memory" else None)
    with pytest.raises(LogDamaged, match="2 steps of topics were acknowledged, it holds 1"):
        if leads:
            assert second._take_free(["main"])
            second.open_journal(accept_damage=False)
        second.follow_journal()
    ended(second)


def test_a_follower_remembers_how_many_steps_of_topics_it_saw(config: Config, postgres_url: str) -> None:
    leader, follower = home_of(Config(data=config.data)), home_of(config)
    topics_written(leader, postgres_url)
    assert follower.follow_journal().heads()[0] == 2
    lose_steps(postgres_url)
    for again in (home_of(config, follower), home_of(config)):
        with pytest.raises(LogDamaged, match="2 steps of topics were acknowledged, it holds 1"):
            again.follow_journal()
        ended(again)
    ended(leader, follower)


def test_a_store_that_lacks_a_space_that_was_there_is_away(config: Config, postgres_url: str) -> None:
    """As after a failover soon after the first daemon has made it."""
    home = home_of(config)
    with connect(postgres_url) as beside:
        beside.execute("DELETE FROM terms; DELETE FROM spaces")
    with pytest.raises(LogAway, match="space 'main' was there, and is gone"):
        home._take_free(["main"])
    ended(home)
    again = home_of(config, home)
    assert again._take_free(["main"]) == ["main"]
    ended(again)


async def test_a_leader_that_loses_turns_and_its_term_does_not_go_on(postgres_url: str) -> None:
    """It would follow, and lead again, without a memory of what it wrote."""
    config = Config(
        ("tcp:127.0.0.1:0",), StoreAddress.parse(patient(postgres_url)), cluster=Cluster(lease=60.0)
    )
    failures: list[BaseException] = []

    async def run(*, task_status: trio.TaskStatus[list[str]]) -> None:
        try:
            await serve(config, task_status=task_status)
        except LogDamaged as damaged:
            failures.append(damaged)
            nursery.cancel_scope.cancel()

    with trio.fail_after(180):
        async with trio.open_nursery() as nursery:
            (url,) = await nursery.start(run)
            async with dataspace.connect(url, owner="map") as space:
                for n in range(3):
                    await space.assert_(Record("here", n))
                with connect(postgres_url) as beside, beside.transaction():
                    beside.execute("DELETE FROM segments WHERE segment > 1")
                    beside.execute("UPDATE terms SET nonce = NULL")
                await space.assert_(Record("here", 3))
    assert "were acknowledged, but its last is" in str(failures[0])


@pytest.mark.slow
async def test_a_failover_that_lost_turns_is_reported_by_all(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asynchronous standby is promoted; with a state directory none starts before that is accepted."""
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "10m")
    server = servers.new().start()
    standby = await trio.to_thread.run_sync(lambda: server.standby(synchronous=False))
    url = address([server, standby], "test")
    daemons = []
    for name in ("a", "b"):
        monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_STATE", str(tmp_path / name))
        daemons.append(DaemonProcess(url))
        daemons[-1].start()
    leader, follower = daemons
    with trio.fail_after(300):
        async with dataspace.connect(leader.url, owner="map") as space:
            await space.assert_(Record("here", 1))
            await trio.to_thread.run_sync(server.wait_until_followed, standby)
            await trio.to_thread.run_sync(standby.kill)
            await space.assert_(Record("here", 2))
            lost = await space.sync()
        async with dataspace.connect(follower.url, read="leader") as reader:
            while await reader.sync() < lost:  # noqa: ASYNC110  # of another process
                await trio.sleep(0.02)
        await trio.to_thread.run_sync(server.kill)
        await trio.to_thread.run_sync(standby.start)
        await trio.to_thread.run_sync(standby.promote)
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                async with dataspace.connect(leader.url, owner="map") as space:
                    await space.assert_(Record("here", 3))

            nursery.start_soon(write)
            assert await trio.to_thread.run_sync(follower.wait) == 1
            assert await trio.to_thread.run_sync(leader.wait) == 1
            nursery.cancel_scope.cancel()
        assert "which was read before, is gone or another one" in follower.errors
        assert "lacks segments that it had acknowledged" in leader.errors
        monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "1s")
        for name, each in zip(("a", "b"), daemons, strict=True):
            monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_STATE", str(tmp_path / name))
            with pytest.raises(AssertionError, match=r"epochs up to \d+ were acknowledged"):
                await trio.to_thread.run_sync(each.start)
        accepting = DaemonProcess(url, "--accept-damage")
        await trio.to_thread.run_sync(accepting.start)
        async with dataspace.connect(accepting.url, owner="map") as space:
            assert await space.matches("here($n)") == [(1,)]
            await space.assert_(Record("here", 4))
            with pytest.raises(Refused) as refusal:
                async with space.observe("here($n)", after=lost, durable=True) as log:
                    async for _ in log:
                        pass
            assert refusal.value.code == "epoch-gone"
        assert await trio.to_thread.run_sync(accepting.stop) == 0
