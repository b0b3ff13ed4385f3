"""A daemon that is to end leaves first: no space waits for its last client, and none is given to it."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from dataspace.client.space import RemoteSpace
from dataspace.errors import Broken, DataspaceError
from index.values.values import Map, Value
from relay.store.address import StoreAddress
from relay.store.postgres.database import Database
from relay.store.postgres.members import SpaceTerms
from server.cli.main import main
from server.cluster.database.reading import seen
from tests.server.cluster.test_failover import LEASE
from tests.server.processes import STARTING, DaemonProcess, running, stand_by

pytestmark = pytest.mark.slow

SOON = 60
WITHIN = "50s"
"""What a drain gives its clients: longer than each of these tests waits for another leader."""

BUSY: dict[str, tuple[str, dict[str, Value]]] = {
    "a long poll": ("lookup", {"topic": "not there", "wait": 60_000}),
    "a job": ("take", {"group": "workers", "pattern": Record("job", Record("_")), "wait": 60_000}),
    "an epoch": ("frontier", {"after": 1 << 40, "wait": 60_000}),
}


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    path = tmp_path / "daemon.toml"
    path.write_text("[spaces.two]\n[spaces.three]\n[spaces.four]\n")
    return path


def drain(daemon: DaemonProcess) -> int:
    return main(["drain", "--within", WITHIN, "--url", daemon.url])


@asynccontextmanager
async def busy(
    daemon: DaemonProcess, verb: str, asked: dict[str, Value], space: str = "main"
) -> AsyncIterator[None]:
    """Has a client wait for an answer of this daemon for as long as the block runs."""

    async def wait(session: RemoteSpace) -> None:
        with suppress(DataspaceError):
            await session.request(verb, Map(asked))
        await trio.sleep_forever()

    async with (
        trio.open_nursery() as nursery,
        dataspace.connect(daemon.url, space=space, reconnect=False) as one,
    ):
        nursery.start_soon(wait, one)
        await trio.sleep(0.2)
        yield
        nursery.cancel_scope.cancel()


async def leader_within(daemons: list[DaemonProcess], space: str = "main") -> DaemonProcess:
    while True:
        for each in daemons:
            with suppress(DataspaceError):
                async with dataspace.connect(each.url, space=space) as asking:
                    if (await asking.status())["leads"]:
                        return each
        await trio.sleep(0.05)


@pytest.mark.parametrize("kind", BUSY)
async def test_a_drained_leader_does_not_lead_on_for_a_busy_client(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv(LEASE, "10m")
    first, second = DaemonProcess(postgres_url), DaemonProcess(postgres_url)
    with running(first, second), trio.fail_after(SOON / 2):
        async with busy(first, *BUSY[kind]):
            assert await trio.to_thread.run_sync(drain, first) == 0
            assert await leader_within([second]) is second
        assert await trio.to_thread.run_sync(first.wait) == 0


async def test_a_drained_member_hands_over_serves_its_busy_clients_and_is_given_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, spaces: Path
) -> None:
    """It leads a space at first, which its leader spared; others would follow, one each second."""
    monkeypatch.setenv(LEASE, "10m")
    monkeypatch.setenv("SPREADS_EVERY", "1")
    words = ("--config", str(spaces))
    first, second = [DaemonProcess(postgres_url, *words, program=STARTING) for _ in range(2)]
    with running(first), trio.fail_after(SOON):
        second.start()
        spared = await spared_by(first)
        async with busy(second, *BUSY["an epoch"]):
            assert await trio.to_thread.run_sync(drain, second) == 0
            assert await leader_within([first], spared) is first
            await trio.sleep(2)
            store = await trio.to_thread.run_sync(seen, StoreAddress.parse(postgres_url))
            members, led = store.members, store.spaces
            assert [each.url for each in members if each.left > 0 and each.url] == [first.url]
            assert {each.url for each in led} == {first.url}
            assert second.process.poll() is None, "it serves the client that waits"
        assert await trio.to_thread.run_sync(second.wait) == 0


async def spared_by(leader: DaemonProcess) -> str:
    """Returns a space that this daemon does not lead any more, once there is one."""
    while True:
        for space in ("two", "three", "four"):
            with suppress(Broken):  # the space moves just then
                async with dataspace.connect(leader.url, space=space) as asking:
                    if not (await asking.status())["leads"]:
                        return space
        await trio.sleep(0.05)


async def test_the_candidate_of_a_move_that_is_drained_holds_up_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, spaces: Path
) -> None:
    """Spaces are free that are meant for a daemon which has left: others take them at once."""
    monkeypatch.setenv(LEASE, "10m")
    words = ("--config", str(spaces))
    first, second, third = (DaemonProcess(postgres_url, *words) for _ in range(3))
    for name, each in zip("abc", (first, second, third), strict=True):
        each.environment["DATASPACE_SERVE_CLUSTER_NAME"] = name
    with running(first, second, third), trio.fail_after(SOON):
        async with busy(second, *BUSY["an epoch"]):
            assert await trio.to_thread.run_sync(drain, second) == 0
            with closing(Database(StoreAddress.parse(postgres_url))) as database:
                with closing(SpaceTerms(database)) as terms:
                    for space in ("main", "two", "three", "four"):
                        terms.want(terms.space(space), "b")
            assert await trio.to_thread.run_sync(drain, first) == 0
            assert await leader_within([third]) is third
        assert await trio.to_thread.run_sync(first.wait) == 0
        assert await trio.to_thread.run_sync(second.wait) == 0


async def test_two_that_are_drained_at_once_both_end(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "10m")
    daemons = [DaemonProcess(postgres_url) for _ in range(3)]
    with running(*daemons), trio.fail_after(SOON):
        async with busy(daemons[0], *BUSY["an epoch"]):
            async with trio.open_nursery() as nursery:
                for each in daemons[:2]:
                    nursery.start_soon(trio.to_thread.run_sync, drain, each)
            assert await leader_within([daemons[2]]) is daemons[2]
        for each in daemons[:2]:
            assert await trio.to_thread.run_sync(each.wait) == 0


async def test_a_drain_during_a_take_over_gives_back_what_was_taken(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "1s")
    first, second, third = (DaemonProcess(postgres_url) for _ in range(3))
    with running(first, second, third), trio.fail_after(SOON):
        await trio.to_thread.run_sync(first.kill)
        assert await trio.to_thread.run_sync(drain, second) == 0
        assert await leader_within([third]) is third
        assert await trio.to_thread.run_sync(second.wait) == 0


async def test_a_drained_leader_of_a_directory_gives_way_to_a_stand_by(tmp_path: Path) -> None:
    leader, waiting = DaemonProcess(tmp_path), stand_by(tmp_path)
    with running(leader, waiting), trio.fail_after(SOON / 2):
        async with dataspace.connect(leader.url) as asking:
            while not (await asking.status())["followers"]:  # noqa: ASYNC110  # of another process
                await trio.sleep(0.05)
        async with busy(leader, *BUSY["a job"]):
            assert await trio.to_thread.run_sync(drain, leader) == 0
            assert await leader_within([waiting]) is waiting
        assert await trio.to_thread.run_sync(leader.wait) == 0


async def test_without_another_daemon_busy_clients_have_their_time(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "10m")
    only = DaemonProcess(postgres_url)
    with running(only), trio.fail_after(SOON):
        async with busy(only, *BUSY["a job"]):
            assert await trio.to_thread.run_sync(drain, only) == 0
            await trio.sleep(3)
            assert only.process.poll() is None
        assert await trio.to_thread.run_sync(only.wait) == 0


async def test_a_leader_that_is_told_to_end_when_its_lease_is_over_ends_in_order(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped meanwhile, so that both reach it at one moment."""
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "1s")
    leader, other = DaemonProcess(postgres_url), DaemonProcess(postgres_url)
    with running(leader, other), trio.fail_after(SOON):
        leader.process.send_signal(signal.SIGSTOP)
        async with dataspace.connect([leader.url, other.url], owner="o") as space:
            await space.assert_(Record("led", "by the other"))
        leader.process.send_signal(signal.SIGTERM)
        leader.process.send_signal(signal.SIGCONT)
        assert await trio.to_thread.run_sync(leader.wait) == 0, leader.errors
        assert "Traceback" not in leader.errors
