"""Whatever befalls the database of a cluster, no acknowledged turn is lost, and each turn happens once."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import Refused
from relay.store.address import StoreAddress
from relay.store.postgres.database import Database
from relay.store.postgres.members import Membership, Profile, SpaceTerms
from server.cli.main import main
from tests.postgres.servers import NAME, Server, Servers, address
from tests.server.cluster.test_failover import LEASE, SOON, leader_of, leads
from tests.server.hosting.rooms import SmallDisk
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy
from tests.server.successions import witnessed

pytestmark = pytest.mark.slow

LONG = "10m"
"""A lease that lasts longer than a test."""


@asynccontextmanager
async def started(*daemons: DaemonProcess, together: bool = False) -> AsyncIterator[None]:
    """Starts daemons one after the other, or all at one moment, from threads; ends them in order."""
    try:
        async with trio.open_nursery() as nursery:
            for each in daemons:
                if together:
                    nursery.start_soon(trio.to_thread.run_sync, partial(each.start))
                else:
                    await trio.to_thread.run_sync(each.start)
        yield
    finally:
        with trio.CancelScope(shield=True):
            for each in daemons:
                if hasattr(each, "process"):
                    await trio.to_thread.run_sync(each.stop)


async def shown(daemon: DaemonProcess, *facts: int) -> None:
    """Waits until a daemon serves these facts by itself."""
    async with dataspace.connect(daemon.url, read="any") as reader:
        while sorted(await reader.matches("map($x)")) != [(each,) for each in facts]:  # noqa: ASYNC110  # of another process
            await trio.sleep(0.01)


# -- the connection of one daemon ---------------------------------------------------------------------


class Line:
    """The connection between one daemon and a database: cut, or dead without a word."""

    def __init__(self, server: Server, way: str) -> None:
        self.proxy = Proxy(f"tcp://{server.host}:{server.port}")
        self._server = server
        self._way = way

    def url(self, schema: str) -> str:
        port = self.proxy.url.rpartition(":")[2]
        return self._server.url(schema).replace(f":{self._server.port}/", f":{port}/")

    def end(self) -> None:
        if self._way == "cut":
            self.proxy.refusing = True
            self.proxy.cut()
        else:
            self.proxy.hold("up")
            self.proxy.hold("down")

    def mend(self) -> None:
        if self._way == "cut":
            self.proxy.refusing = False
        else:
            self.proxy.open("up")
            self.proxy.open("down")


@asynccontextmanager
async def pair(servers: Servers, way: str) -> AsyncIterator[tuple[Line, DaemonProcess, DaemonProcess]]:
    """Two daemons over a server; the first one leads, at the end of a line."""
    server = servers.new(tcp=True).start()
    line = Line(server, way)
    with server.schema() as schema:
        async with trio.open_nursery() as lines:
            await lines.start(line.proxy.run)
            first, second = DaemonProcess(line.url(schema)), DaemonProcess(server.url(schema))
            async with started(first, second):
                yield line, first, second
            lines.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["cut", "silent"])
async def test_a_leader_without_its_database_for_less_than_its_lease_goes_on(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """And answers meanwhile, also when clients read from its log what is not in memory."""
    monkeypatch.setenv(LEASE, LONG)
    read: list[object] = []
    with trio.fail_after(SOON * 2):
        async with (
            pair(servers, way) as (line, first, second),
            witnessed([first.url, second.url]) as witness,
            dataspace.connect([first.url, second.url], owner="map") as space,
            dataspace.connect(first.url) as reader,
            trio.open_nursery() as nursery,
        ):
            await space.assert_(Record("map", 1))
            newest = await space.sync()

            async def look_back(net: bool, durable: bool) -> None:
                observe = partial(reader.observe, "map($x)", quiet=True, after=0, upto=newest)
                with suppress(Refused):  # store-away, where the line was cut
                    async with observe(net=net, durable=durable) as past:
                        read.extend([change.captures async for change in past if change.captures])

            await witness.answered()
            line.end()
            for net in (False, True):
                for durable in (False, True):
                    nursery.start_soon(look_back, net, durable)
            draft = space.draft()
            draft.assert_(Record("map", 2))
            waiting = await space.submit(draft)
            await shown(second, 1)
            await trio.sleep(0.5)
            assert not waiting.done and read == [], "it is not on disk, and that is not read"
            assert (await reader.status())["process"] == first.process.pid
            line.mend()
            await waiting.wait()
            await witness.answered()
            assert (await space.status())["process"] == first.process.pid
        assert way == "cut" or read == [(1,)] * 4


@pytest.mark.parametrize("way", ["cut", pytest.param("silent", marks=pytest.mark.torture(long=True))])
async def test_a_leader_without_its_database_for_longer_than_its_lease_follows(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv(LEASE, "1s")
    with trio.fail_after(SOON * 2):
        async with (
            pair(servers, way) as (line, first, second),
            witnessed([first.url, second.url]) as witness,
        ):
            await witness.answered()
            line.end()
            await leader_of([second])
            await witness.answered()
            line.mend()
            await leads_or_knows(first)
            await witness.answered()


async def leads_or_knows(daemon: DaemonProcess) -> None:
    """Waits until a daemon listens again, and leads or knows its leader."""
    while not await leads(daemon):
        try:
            async with dataspace.connect(daemon.url, read="any") as reader:
                if (await reader.status())["leader"]:
                    return
        except dataspace.Unreachable:  # it steps down just now
            pass
        await trio.sleep(0.05)


# -- daemons that begin -------------------------------------------------------------------------------


async def test_of_daemons_that_start_at_one_moment_on_an_empty_store_one_leads(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, LONG)
    daemons = [DaemonProcess(postgres_url) for _ in range(3)]
    with trio.fail_after(SOON * 2):
        async with started(*daemons, together=True):
            assert sum([await leads(each) for each in daemons]) == 1
            for n, each in enumerate(daemons):  # wherever a client comes first
                async with dataspace.connect(each.url, owner="map") as space:
                    await space.assert_(Record("map", n))
                    assert sorted(await space.matches("map($n)")) == [(m,) for m in range(n + 1)]


async def test_a_space_whose_first_leader_has_made_no_log_is_led_by_the_next_daemon(
    postgres_url: str,
) -> None:
    with closing(Database(StoreAddress.parse(postgres_url))) as database:
        database.prepare()
        member, terms = Membership(database, Profile("first"), 3.0), SpaceTerms(database)
        space = terms.space("main")
        member.join()
        assert terms.take_space(space, terms.standing(space), member.nonce) is not None
        terms.close()
        member.close()  # it is killed
    daemon = DaemonProcess(postgres_url)
    with trio.fail_after(SOON):
        async with started(daemon), dataspace.connect(daemon.url) as client:
            await client.assert_(Record("there", 1))


async def test_daemons_that_should_be_alike_and_are_not_are_told_of(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one name, and with different limits: both work, and warn."""
    monkeypatch.setenv(LEASE, LONG)
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_NAME", "twin")
    first = DaemonProcess(postgres_url)

    async def members(*daemons: DaemonProcess) -> str:
        """Returns what the command prints once it has the addresses of daemons."""
        while True:
            await trio.to_thread.run_sync(partial(main, ["cluster", "status", "--data", postgres_url]))
            said = capsys.readouterr().out
            if all(each.url in said for each in daemons):
                return said
            await trio.sleep(0.05)

    with trio.fail_after(SOON * 2):
        async with started(first):
            assert "settings" not in await members(first)
            monkeypatch.setenv("DATASPACE_SERVE_LIMITS_REQUESTS", "7")
            second = DaemonProcess(postgres_url)
            async with started(second):
                said = await members(first, second)
                assert said.count("daemon twin ") == 2 and said.count(", settings ") == 2
                async with dataspace.connect(second.url, owner="map") as space:
                    await space.assert_(Record("map", 1))
                    assert (await space.status())["process"] == first.process.pid
    assert f"the daemon at {first.url} is named twin too" in second.errors
    assert f"the settings of the daemon at {first.url} differ from those of twin" in second.errors


# -- the database's own replication -------------------------------------------------------------------


async def test_while_the_synchronous_standby_is_away_nothing_is_acknowledged_and_observers_are_served(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, LONG)
    server = servers.new().start()
    standby = server.standby(synchronous=True)
    with server.schema() as schema, trio.fail_after(SOON * 2):
        daemons = [DaemonProcess(server.url(schema)) for _ in range(2)]
        async with started(*daemons):
            async with dataspace.connect([each.url for each in daemons], owner="map") as space:
                await space.assert_(Record("map", 1))
                standby.kill()
                draft = space.draft()
                draft.assert_(Record("map", 2))
                waiting = await space.submit(draft)
                await trio.to_thread.run_sync(server.wait_for_waiting)
                await shown(daemons[1], 1)
                assert not waiting.done
                await trio.to_thread.run_sync(standby.start)
                await waiting.wait()
                assert sorted(await space.matches("map($x)")) == [(1,), (2,)]


async def test_a_leader_above_lost_commits_ends_and_comes_back_by_consent_alone(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An asynchronous standby that lacks acknowledged turns is promoted."""
    monkeypatch.setenv(LEASE, LONG)
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_STATE", str(tmp_path))
    server = servers.new().start()
    standby = server.standby(synchronous=False)
    with server.schema() as schema, trio.fail_after(SOON * 2):
        place = address([server, standby], schema)
        daemon = DaemonProcess(place)
        async with started(daemon):
            async with dataspace.connect(daemon.url, owner="map") as space:
                await space.assert_(Record("map", 1))
                await trio.to_thread.run_sync(server.wait_until_followed, standby)
                standby.kill()
                await space.assert_(Record("map", 2))
                lost = await space.sync()
            await trio.to_thread.run_sync(server.kill)
            await trio.to_thread.run_sync(standby.start)
            await trio.to_thread.run_sync(standby.promote)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(provoke, daemon.url)
                assert await trio.to_thread.run_sync(daemon.wait) == 1
                nursery.cancel_scope.cancel()
            assert "lacks segments that it had acknowledged" in daemon.errors
        refused = DaemonProcess(place)
        with pytest.raises(AssertionError, match="did not start"):
            await trio.to_thread.run_sync(refused.start)
        assert "epochs up to 2 were acknowledged, but its last is 1" in refused.errors
        accepting = DaemonProcess(place, "--accept-damage")
        async with started(accepting):
            async with dataspace.connect(accepting.url, owner="map") as space:
                assert await space.matches("map($x)") == [(1,)]
                await space.assert_(Record("map", 3))
                assert await space.sync() > lost, "no number is given out again"
        await trio.to_thread.run_sync(server.start)  # its schema is deleted with it


async def provoke(url: str) -> None:
    """Sends a turn, which does not happen."""
    with suppress(dataspace.DataspaceError):  # the daemon has ended before
        async with dataspace.connect(url, owner="else") as space:
            await space.assert_(Record("never", 1))


# -- its disk -----------------------------------------------------------------------------------------


@pytest.fixture
def small(servers: Servers) -> Iterator[tuple[Server, SmallDisk]]:
    """A server whose tables are on a disk of a few mebibytes, where there is the right to make one."""
    server = servers.new().start()
    disk = SmallDisk(server.folder / "small")
    try:
        disk.data.mkdir()
        shutil.chown(disk.data, server.data.stat().st_uid, server.data.stat().st_gid)
        with server.connect(superuser=True) as connection:
            for each in (
                f"CREATE TABLESPACE small LOCATION '{disk.data}'",
                f"GRANT CREATE ON TABLESPACE small TO {NAME}",
                f"ALTER ROLE {NAME} SET default_tablespace = small",
            ):
                connection.execute(each.encode())
        yield server, disk
        server.kill()
    finally:
        disk.end()


async def test_a_full_disk_of_the_database_refuses_durable_turns_until_there_is_room(
    small: tuple[Server, SmallDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, LONG)
    server, disk = small

    async def wait_full(*, full: bool) -> None:
        while (await space.status())["disk_full"] is not full:  # noqa: ASYNC110  # of another process
            await trio.sleep(0.02)

    with server.schema() as schema, trio.fail_after(SOON * 2):
        daemon = DaemonProcess(server.url(schema))
        async with started(daemon):
            async with dataspace.connect(daemon.url, owner="me") as space:
                await space.assert_(Record("kept", 1))
                await trio.to_thread.run_sync(disk.take)
                draft = space.draft()
                draft.assert_(Record("kept", 2))
                draft.assert_(Record("large", b"x" * 900_000))
                ticket = await space.submit(draft)
                await wait_full(full=True)
                with pytest.raises(Refused, match="disk-full"):
                    await space.assert_(Record("kept", 4))
                assert not ticket.done
                disk.give_back()
                await ticket.wait()
                await wait_full(full=False)
                await space.assert_(Record("kept", 3))
                assert sorted(await space.matches("kept($n)")) == [(1,), (2,), (3,)]
    assert "durable turns are refused until there is free space" in daemon.errors
