"""Daemons over one store in PostgreSQL: one leads, and when it ends, stops or is cut off another one does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import Unreachable
from dataspace.kernel.actions import SEND
from dataspace.wire import packets as p
from tests.postgres.servers import Servers
from tests.server.peers import Peer, fact, turn
from tests.server.processes import DaemonProcess, running
from tests.server.successions import witnessed

pytestmark = pytest.mark.slow

SOON = 60
FAILOVERS = 10 if "TORTURE_ROUNDS" in os.environ else 3
LEASE = "DATASPACE_SERVE_CLUSTER_LEASE"


@pytest.fixture
def daemons(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DaemonProcess]]:
    """Three daemons with leases of a second; the first one leads."""
    monkeypatch.setenv(LEASE, "1s")
    found = [DaemonProcess(postgres_url) for _ in range(3)]
    with running(*found):
        yield found


@pytest.fixture
def patient(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DaemonProcess]]:
    """Two daemons with leases that last longer than a test."""
    monkeypatch.setenv(LEASE, "10m")
    found = [DaemonProcess(postgres_url) for _ in range(2)]
    with running(*found):
        yield found


async def leads(daemon: DaemonProcess) -> bool:
    """True if a daemon says so; one that steps down listens again in a moment."""
    with suppress(Unreachable):
        async with dataspace.connect(daemon.url, read="leader") as space:
            return bool((await space.status())["leads"])
    return False


async def leader_of(daemons: Sequence[DaemonProcess]) -> DaemonProcess:
    """Returns the daemon that leads, once one does."""
    while True:
        for each in daemons:
            if await leads(each):
                return each
        await trio.sleep(0.05)


@pytest.mark.torture
async def test_leaders_of_a_store_are_killed_one_after_the_other(daemons: list[DaemonProcess]) -> None:
    urls = [each.url for each in daemons]
    with trio.fail_after(SOON * 3):
        async with witnessed(urls) as witness:
            for _ in range(FAILOVERS):
                await trio.sleep(0.05)
                leader = await leader_of(daemons)
                await trio.to_thread.run_sync(leader.kill)
                await witness.answered()
                await trio.to_thread.run_sync(leader.start)


async def test_a_stopped_leader_leads_no_longer_when_it_wakes(daemons: list[DaemonProcess]) -> None:
    first, *others = daemons
    urls = [each.url for each in daemons]
    with trio.fail_after(SOON):
        async with dataspace.connect(urls, owner="map") as space:
            await space.assert_(Record("here", 1))
        first.process.send_signal(signal.SIGSTOP)
        second = await leader_of(others)
        async with dataspace.connect([each.url for each in others], owner="map") as space:
            await space.assert_(Record("here", 2))
        first.process.send_signal(signal.SIGCONT)
        async with dataspace.connect(urls, owner="map") as space:
            await space.assert_(Record("here", 3))
            assert sorted(await space.matches("here($x)")) == [(1,), (2,), (3,)]
            assert (await space.status())["process"] == second.process.pid
        while await leads(first):  # noqa: ASYNC110  # of another process
            await trio.sleep(0.05)
        assert (await leader_of(daemons)) is second


async def test_an_orderly_end_hands_over_before_the_lease_ends(patient: list[DaemonProcess]) -> None:
    first, second = patient
    with trio.fail_after(SOON):
        async with dataspace.connect([each.url for each in patient], owner="map", grace=60) as space:
            await space.assert_(Record("here", 1))
            await trio.to_thread.run_sync(first.stop)
            await space.assert_(Record("here", 2))
            assert (await space.status())["process"] == second.process.pid
            assert sorted(await space.matches("here($x)")) == [(1,), (2,)]


async def test_a_follower_names_the_leader(patient: list[DaemonProcess]) -> None:
    first, second = patient
    with trio.fail_after(SOON):
        async with dataspace.connect(second.url, read="leader") as reader:
            while not (status := await reader.status())["leader"]:  # noqa: ASYNC110  # of another process
                await trio.sleep(0.05)
            assert status["leader"] == first.url
        async with dataspace.connect(second.url, owner="map") as space:  # is sent on
            await space.assert_(Record("here", 1))
            assert (await space.status())["process"] == first.process.pid


async def test_a_daemon_that_was_started_again_within_its_lease_sends_nobody_to_itself(
    patient: list[DaemonProcess],
) -> None:
    first = patient[0]
    with trio.fail_after(SOON):
        await trio.to_thread.run_sync(first.kill)
        await trio.to_thread.run_sync(first.start)
        async with Peer(first.url) as peer:
            await peer.greet("~client")
            for number in range(1, 6):  # it has looked who leads by then
                await peer.say(turn(number, (SEND, fact(number))))
                refusal = await peer.hear()
                assert isinstance(refusal, p.Refusal)
                assert (refusal.code, refusal.url) == ("no-leader", "")
                await trio.sleep(0.2)


@pytest.mark.parametrize("point", ["database-before-write", "database-after-write"])
async def test_a_leader_that_is_killed_at_a_write_has_happened_or_not(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Its turns are there once at the next leader, acknowledged or not."""
    monkeypatch.setenv(LEASE, "1s")
    first, second = daemons = DaemonProcess(postgres_url), DaemonProcess(postgres_url)
    first.start(fault=f"{point}:40")
    with running(second), trio.fail_after(SOON):
        sent: list[int] = []
        async with dataspace.connect([each.url for each in daemons], name="writer", grace=60) as writer:
            for n in range(100):
                await writer.send(Record("tick", n))
                sent.append(n)
            assert (await writer.status())["process"] == second.process.pid
        first.wait()
        assert f"fault reached: {point}" in first.errors
        assert await ticks_of(second) == sent


async def ticks_of(daemon: DaemonProcess) -> list[object]:
    """Returns the numbers of all ticks, in order."""
    async with dataspace.connect(daemon.url) as space:
        newest = await space.sync()
        async with space.observe("tick($n)", after=0, upto=newest, durable=True) as log:
            return [change.captures[0] async for change in log if change.captures]


@pytest.mark.torture
@pytest.mark.parametrize("way", ["killed", "stopped"])
@pytest.mark.parametrize("lease", ["1m", "1s"])
async def test_turns_wait_for_a_database_that_is_away_and_happen_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, lease: str, way: str
) -> None:
    """It is killed and started again, or stopped and woken, within the lease or beyond it."""
    monkeypatch.setenv(LEASE, lease)
    server = servers.new().start()
    sent: list[int] = []

    async def heard(count: int) -> None:
        while len(sent) < count:  # noqa: ASYNC110  # what another task counts
            await trio.sleep(0.01)

    with server.schema() as schema, trio.fail_after(SOON * 2):
        daemon = DaemonProcess(server.url(schema))
        with running(daemon):
            async with (
                dataspace.connect(daemon.url, name="writer", grace=60) as writer,
                trio.open_nursery() as nursery,
            ):
                await writer.assert_(Record("here", "writer"))

                async def write() -> None:
                    for n in range(1_000_000):
                        await writer.send(Record("tick", n))
                        sent.append(n)

                nursery.start_soon(write)
                for _ in range(2 if "TORTURE_ROUNDS" in os.environ else 1):
                    await heard(len(sent) + 20)
                    if way == "killed":
                        await trio.to_thread.run_sync(server.kill)
                        before = len(sent)
                        await trio.to_thread.run_sync(server.start)
                    else:
                        server.pause()
                        before = len(sent)
                        await trio.sleep(2)
                        server.resume()
                    await heard(before + 20)
                nursery.cancel_scope.cancel()
            ticks = await ticks_of(daemon)
    assert ticks == list(range(len(ticks))) and set(sent) <= {*ticks}


async def test_a_daemon_ends_although_its_database_is_stopped(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower and the leader, in good order."""
    monkeypatch.setenv(LEASE, "1s")
    server = servers.new().start()
    with server.schema() as schema:
        daemons = [DaemonProcess(server.url(schema)) for _ in range(2)]
        with running(*daemons):
            server.pause()
            try:
                for each in reversed(daemons):
                    assert await trio.to_thread.run_sync(each.stop) == 0
            finally:
                server.resume()
