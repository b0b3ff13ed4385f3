"""Whichever lines between daemons, their database and their clients are cut: no turn is lost, and none twice.

Each machine has a network namespace of its own; a cut line loses what it carries, and nobody is told.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from tests.postgres.servers import NAME, Server, Servers
from tests.server.cluster.test_failover import LEASE, SOON, leader_of, leads
from tests.server.cluster.test_faults import LONG, leads_or_knows, shown
from tests.server.namespaces import Network, refusal
from tests.server.processes import DaemonProcess
from tests.server.successions import Witness, witnessed

pytestmark = pytest.mark.slow

MACHINES = ("clients", "database", "one", "two", "three")
DAEMONS = MACHINES[2:]
HEARTBEAT = 1.0
"""Seconds; a client gives a connection up that was silent for two of them."""


@pytest.fixture
def network() -> Iterator[Network]:
    """Five machines; the test itself is on that of the clients."""
    if words := refusal():
        pytest.skip(words)
    made = Network(*MACHINES)
    try:
        with made.at("clients"):
            yield made
    finally:
        made.end()


@pytest.fixture
def server(network: Network, servers: Servers) -> Server:
    """A database on its machine; the test itself reaches it by a Unix socket."""
    made = servers.new(listen_addresses=network.hosts["database"])
    with open(made.data / "pg_hba.conf", "a") as rules:
        rules.write("host all all 10.213.0.0/16 trust\n")
    return network.run("database", made.start)


async def test_work_in_threads_is_done_where_the_test_is(network: Network) -> None:
    """Threads are kept for later work; they stay on the machine on which they were started."""
    on_clients = await trio.to_thread.run_sync(_machine)
    assert on_clients == _machine()
    with network.at("one"):
        assert await trio.to_thread.run_sync(_machine) == _machine() != on_clients
    assert await trio.to_thread.run_sync(_machine) == on_clients


def _machine() -> str:
    """The network namespace of the present thread."""
    return os.readlink("/proc/thread-self/ns/net")


class Cluster:
    """Three daemons, the first of which leads, and the lines between all machines."""

    def __init__(self, network: Network, daemons: dict[str, DaemonProcess]) -> None:
        self.daemons = daemons
        self.urls = [each.url for each in daemons.values()]
        self._network = network

    async def cut(self, one: str, *others: str, back: bool = True) -> None:
        await trio.to_thread.run_sync(partial(self._network.cut, one, *others, back=back))

    async def mend(self, one: str, *others: str) -> None:
        await trio.to_thread.run_sync(self._network.mend, one, *others)


@asynccontextmanager
async def cluster(network: Network, server: Server) -> AsyncIterator[Cluster]:
    with server.schema() as schema:
        url = f"postgresql://{NAME}@{network.hosts['database']}:{server.port}/{NAME}?schema={schema}"
        daemons = {name: DaemonProcess(url, host=network.hosts[name]) for name in DAEMONS}
        try:
            for name, each in daemons.items():
                await trio.to_thread.run_sync(partial(network.run, name, each.start))
            yield Cluster(network, daemons)
        finally:
            with trio.CancelScope(shield=True):
                for each in daemons.values():
                    if hasattr(each, "process"):
                        await trio.to_thread.run_sync(each.stop)


async def test_a_leader_that_is_cut_off_for_less_than_its_lease_leads_on(
    network: Network, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the other daemons, which follow it by the database; or from the answers of the database.

    Then it may write again what is there already.
    """
    monkeypatch.setenv(LEASE, LONG)
    with trio.fail_after(SOON * 3):
        async with cluster(network, server) as made, witnessed(made.urls, heartbeat=HEARTBEAT) as witness:
            async with dataspace.connect(made.urls[0], owner="map") as space:
                await witness.answered()
                await made.cut("one", "two", "three")
                await space.assert_(Record("map", 1))
                for name in ("two", "three"):
                    await shown(made.daemons[name], 1)
                await witness.answered()
                await made.mend("one", "two", "three")
                await space.assert_(Record("map", 2))
                for name in ("two", "three"):
                    await shown(made.daemons[name], 1, 2)
            for _ in range(2):
                await witness.answered()
                await made.cut("one", "database", back=False)
                await trio.sleep(0.5)
                await made.mend("one", "database")
            await witness.answered()
            assert await leads(made.daemons["one"])


async def test_a_leader_that_is_cut_off_for_longer_is_succeeded(
    network: Network, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the database, both ways or its answers, although all others reach it; or from everything.

    Of some turns the outcome is not known.
    """
    monkeypatch.setenv(LEASE, "2s")
    with trio.fail_after(SOON * 5):
        async with cluster(network, server) as made, witnessed(made.urls, heartbeat=HEARTBEAT) as witness:
            for back, everything in ((True, False), (False, False), (True, True)):
                await witness.answered()
                leader = await name_of_leader(made)
                lines = [name for name in MACHINES if name != leader] if everything else ["database"]
                await made.cut(leader, *lines, back=back)
                await leader_of([each for name, each in made.daemons.items() if name != leader])
                await witness.answered()
                await made.mend(leader, *lines)
                await leads_or_knows(made.daemons[leader])
            await witness.answered()


async def test_clients_cut_off_from_a_daemon_go_to_another_or_wait(
    network: Network, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observer misses nothing and is shown nothing twice; writers wait for the leader or its successor.

    Other daemons send them to the leader, whom they do not reach; readers are served meanwhile.
    """
    monkeypatch.setenv(LEASE, LONG)
    with trio.fail_after(SOON * 5):
        async with cluster(network, server) as made, witnessed(made.urls, heartbeat=HEARTBEAT) as witness:
            await readers_go_elsewhere(made, witness)
            await writers_wait(made, witness)


async def readers_go_elsewhere(made: Cluster, witness: Witness) -> None:
    places = [made.urls[1], made.urls[2]]
    ticks: list[object] = []

    async def observe(reader: dataspace.RemoteSpace) -> None:
        async with reader.observe("tick($n)", quiet=True, after=0, durable=True) as log:
            async for change in log:
                ticks.extend(change.captures)

    async def seen() -> None:
        """Waits until the observer has what has been acknowledged by now."""
        newest = witness.acknowledged
        while len(ticks) < newest:  # noqa: ASYNC110  # what another task counts
            await trio.sleep(0.01)

    async with (
        dataspace.connect(places, read="leader", heartbeat=HEARTBEAT) as reader,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(observe, reader)
        for _ in range(2):
            await witness.answered()
            await seen()
            place = await place_of(reader, made)
            await made.cut("clients", place)
            await witness.answered()
            await seen()
            assert await place_of(reader, made) != place
            await made.mend("clients", place)
        nursery.cancel_scope.cancel()
    assert ticks == list(range(len(ticks)))


async def writers_wait(made: Cluster, witness: Witness) -> None:
    async with dataspace.connect(made.urls[0], owner="map") as space:
        await space.assert_(Record("map", 1))
    await witness.answered()
    await made.cut("clients", "one")
    await shown(made.daemons["two"], 1)
    await trio.sleep(3 * HEARTBEAT)
    before = witness.acknowledged
    await shown(made.daemons["three"], 1)
    assert witness.acknowledged == before, "only the leader takes turns"
    await made.mend("clients", "one")
    await witness.answered()
    await made.cut("clients", "one")
    await trio.to_thread.run_sync(made.daemons["one"].stop)
    await witness.answered()


async def name_of_leader(made: Cluster) -> str:
    leader = await leader_of([*made.daemons.values()])
    return next(name for name, each in made.daemons.items() if each is leader)


async def place_of(reader: dataspace.RemoteSpace, made: Cluster) -> str:
    """Returns the name of the daemon that serves a client."""
    process = (await reader.status())["process"]
    return next(name for name, each in made.daemons.items() if each.process.pid == process)
