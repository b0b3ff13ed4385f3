"""What depends on state is held while another daemon may lead, and sent once that is over, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.short import ShortClient
from dataspace.errors import DataspaceError, ExpectationFailed, Refused
from dataspace.kernel.expectations import absent
from dataspace.transport.addresses import parse_listen
from dataspace.wire.verbs import VERBS, Subject
from index.values.values import Map, Value
from server.cli.main import main
from server.cluster.directory.home import DirectoryHome
from server.config.model import Cluster, Config
from server.daemon.serve import serve
from tests.postgres.servers import Servers
from tests.server.following.test_lag import got
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SOON: Final = 30.0
LEASE: Final = 0.6
"""Seconds for which a daemon of these tests holds what it sends."""


class Doubt:
    """Whether the daemon of a test is sure."""

    is_sure = True


@pytest.fixture
def doubt(monkeypatch: pytest.MonkeyPatch) -> Doubt:
    made = Doubt()
    monkeypatch.setattr(DirectoryHome, "is_sure", lambda _: made.is_sure)
    return made


@pytest.fixture
async def place(tmp_path: Path, nursery: trio.Nursery, doubt: Doubt) -> tuple[str, str]:
    """The addresses of a daemon whose home is in doubt when a test says so: over TCP, and over HTTP."""
    config = Config(("tcp:127.0.0.1:0", "http:127.0.0.1:0"), tmp_path, cluster=Cluster(lease=LEASE))
    plain, web = await nursery.start(serve, config)
    return parse_listen(plain).url, parse_listen(web).http


ASKED: Final[dict[str, dict[str, Value]]] = {
    "owners": {"pattern": Record("fact", Record("_"))},
    "frontier": {"after": 1 << 40, "wait": 300},
    "take": {"group": "g", "pattern": Record("job", Record("_")), "wait": 300},
    "lease": {"owner": "lease:60000:x"},
}
"""The arguments of some verbs; others are refused, which depends on state as well."""


async def _request(space: dataspace.RemoteSpace, verb: str) -> None:
    with suppress(Refused):
        await space.request(verb, Map(ASKED.get(verb, {})))


async def _matches(space: dataspace.RemoteSpace, _: str) -> None:
    assert await space.matches("fact($n)") == [(1,)]


async def _refused(space: dataspace.RemoteSpace, _: str) -> None:
    with pytest.raises(ExpectationFailed):
        await space.commit(space.draft(expect=[absent("fact(_)")]))


async def _locked(space: dataspace.RemoteSpace, _: str) -> None:
    async with space.lock("door"):
        pass


Ask = Callable[[dataspace.RemoteSpace, str], Awaitable[None]]
OF_SPACES: Final = sorted(verb for verb in VERBS if VERBS[verb].subject is not Subject.DAEMON)
ASKS: Final[dict[str, Ask]] = {
    **dict.fromkeys(OF_SPACES, _request),
    "a read": _matches,
    "a refusal": _refused,
    "a lock": _locked,
}


async def test_each_answer_waits_until_the_daemon_is_sure(place: tuple[str, str], doubt: Doubt) -> None:
    """The law: each verb about a space, a read, a refused turn and a lock, all at once."""
    done: set[str] = set()

    async def ask(name: str) -> None:
        async with dataspace.connect(place[0], owner=f"by {name}") as space:
            entered.append(name)
            await asking.wait()
            await ASKS[name](space, name)
            done.add(name)

    entered: list[str] = []
    asking = trio.Event()
    with trio.fail_after(SOON):
        async with dataspace.connect(place[0]) as space:
            await space.assert_(Record("fact", 1))
            async with trio.open_nursery() as nursery:
                for name in ASKS:
                    nursery.start_soon(ask, name)
                while len(entered) < len(ASKS):  # noqa: ASYNC110  # what other tasks do
                    await trio.sleep(0.01)
                doubt.is_sure = False
                asking.set()
                await trio.sleep(0.4)  # less than a lease, and longer than each of these waits
                assert done == set()
                doubt.is_sure = True
    assert done == {*ASKS}


async def test_who_waits_for_a_lease_is_sent_away_with_nothing(place: tuple[str, str], doubt: Doubt) -> None:
    with trio.fail_after(SOON):
        async with dataspace.connect(place[0]) as writer:
            await writer.assert_(Record("fact", 1))
            async with dataspace.connect(place[0], reconnect=False) as space:
                doubt.is_sure = False
                with pytest.raises(DataspaceError, match="another daemon may lead"):
                    await space.sync()
            status, _, body = await got(place[1], "/v1/spaces/main/facts?pattern=fact(_)")
            assert status == 503 and b"another daemon may lead" in body
            doubt.is_sure = True


async def test_a_daemon_in_doubt_answers_about_itself(place: tuple[str, str], doubt: Doubt) -> None:
    doubt.is_sure = False
    with trio.fail_after(SOON):
        for words in (["status"], ["sessions"], ["index"]):
            assert await trio.to_thread.run_sync(main, [*words, "--url", place[0]]) == 0
        assert (await got(place[1], "/v1/status"))[0] == 200
        assert (await got(place[1], "/readyz?role=leader"))[0] == 503
        assert (await got(place[1], "/readyz"))[0] == 200
    doubt.is_sure = True


async def test_a_leader_whose_synchronous_standby_is_away_says_nothing_of_its_state(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot tell whether that was promoted elsewhere; it leads on, and answers once that is back."""
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "2s")
    server = servers.new().start()
    standby = server.standby(synchronous=True)
    with server.schema() as schema, trio.fail_after(SOON * 4):
        daemon = DaemonProcess(server.url(schema))
        with running(daemon):
            async with dataspace.connect(daemon.url, owner="map") as space:
                await space.assert_(Record("map", 1))
            standby.kill()
            await trio.sleep(3)
            with pytest.raises(DataspaceError):
                await trio.to_thread.run_sync(_read, daemon.url)
            assert await trio.to_thread.run_sync(main, ["status", "--url", daemon.url]) == 0
            await trio.to_thread.run_sync(standby.start)
            async with dataspace.connect(daemon.url, wait=SOON) as space:
                assert await space.matches("map($x)") == [(1,)]
        assert "has run out" not in daemon.errors, "the lease went on"


def _read(url: str) -> None:
    with ShortClient(url, timeout=1.0) as client:
        client.request("sync", {})
