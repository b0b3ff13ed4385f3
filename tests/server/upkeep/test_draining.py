"""A daemon that ends says goodbye: clients come back by themselves, and it waits for what they have asked."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import ConnectionChange, ConnectionEvent, Record, Refused
from dataspace.wire import packets as p
from index.values.values import Map
from relay.store.lock import DataInUse
from server.cli.main import main
from server.config.model import Config
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from tests.server.peers import Peer, hello
from tests.server.processes import DaemonProcess

ADMIN = Key("operator", "the secret of the operator")
READER = Key("reader", "the secret of a reader!!", Rights.read(Map({"observe": True, "inspect": True})))


async def started(
    nursery: trio.Nursery,
    data: Path,
    ending: trio.Event | None = None,
    *keys: Key,
    listen: str = "tcp:127.0.0.1:0",
) -> str:
    addresses: list[str] = await nursery.start(
        partial(serve, Config((listen,), data, keys=keys), ending=ending)
    )
    return addresses[0].replace(":", "://", 1)


async def greet(peer: Peer, client: str = "~peer") -> None:
    await peer.say(hello(client))
    assert isinstance(await peer.hear(), p.Welcome)


async def test_a_daemon_that_is_to_end_says_why(tmp_path: Path) -> None:
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        url = await started(nursery, tmp_path, ending)
        async with Peer(url) as peer:
            await greet(peer)
            ending.set()
            bye = await peer.farewell()
    assert bye == p.Bye("closing", "the daemon is ending; it may be started again")


async def start_again(nursery: trio.Nursery, data: Path, url: str) -> None:
    """Starts another daemon in its place, once the first has closed its log."""
    while True:
        try:
            await started(nursery, data, listen=url.replace("://", ":"))
            return
        except DataInUse:
            await trio.sleep(0.02)


async def test_a_client_comes_back_to_the_next_daemon(tmp_path: Path) -> None:
    """By its usual pauses, with its facts, and with what the daemon said as the reason of the loss."""
    events: list[ConnectionEvent] = []
    back = trio.Event()

    def note(event: ConnectionEvent) -> None:
        events.append(event)
        if event.change is ConnectionChange.ANEW:
            back.set()

    async with trio.open_nursery() as nursery:
        url = await started(nursery, tmp_path)
        async with dataspace.connect(url, on_connection=note) as space:
            await space.assert_(Record("here", 1))
            async with dataspace.connect(url) as admin:
                answer = await admin.request("drain", Map({"within": 0, "reason": "back at ten"}))
                assert answer == Map({"sessions": 1})
            await start_again(nursery, tmp_path, url)
            await back.wait()
            assert await space.matches("here($n)") == [(1,)]
        nursery.cancel_scope.cancel()
    assert events[1].change is ConnectionChange.LOST
    assert events[1].reason == "the daemon closed it: back at ten"


async def test_facts_of_sessions_go_with_the_daemon_and_those_with_a_grace_or_of_others_stay(
    tmp_path: Path,
) -> None:
    """As UPGRADE.md says."""
    async with trio.open_nursery() as nursery:
        url = await started(nursery, tmp_path)
        async with (
            dataspace.connect(url, grace=30) as space,
            dataspace.connect(url) as plain,
            dataspace.connect(url, owner="o") as other,
        ):
            async with space.asserting(Record("fact", "grace")), plain.asserting(Record("fact", "session")):
                await other.assert_(Record("fact", "durable"))
                async with dataspace.connect(url) as admin:
                    await admin.request("drain", Map({"within": 0}))
                await start_again(nursery, tmp_path, url)
                while len(await other.matches("fact($of)")) < 3:  # noqa: ASYNC110  # the other client is at it
                    await trio.sleep(0.02)
                upto = await other.sync()
                async with other.observe("fact($of)", after=0, upto=upto) as past:
                    seen = [(change.kind, change.of) async for change in past]
        nursery.cancel_scope.cancel()
    assert [kind for kind, of in seen if of == "session"] == ["+", "-", "+"]
    assert [kind for kind, of in seen if of == "grace"] == ["+"]
    assert [kind for kind, of in seen if of == "durable"] == ["+"]


async def test_what_is_asked_is_answered_first_and_no_new_session_begins(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        url = await started(nursery, tmp_path)
        async with Peer(url) as peer, Peer(url) as idle:
            await greet(peer)
            await greet(idle, "~idle")
            wait = Map({"after": 1_000_000, "wait": 200})
            await peer.say(p.Request(1, "frontier", wait), p.Request(2, "drain", Map({"within": 60_000})))
            assert (await idle.farewell()).code == "closing"
            with pytest.raises(OSError):
                await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
            heard = await peer.rest()
    assert {each[0] for each in heard if isinstance(each, p.Answer)} == {1, 2}
    assert isinstance(heard[-1], p.Bye) and heard[-1].code == "closing"


async def test_only_an_administrator_may_end_it(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        url = await started(nursery, tmp_path, None, ADMIN, READER)
        async with dataspace.connect(url, token=READER.secret) as space:
            with pytest.raises(Refused, match="the token 'reader' does not allow to end the daemon"):
                await space.request("drain", Map({"within": 0}))
        async with dataspace.connect(url, token=ADMIN.secret) as space:
            await space.request("drain", Map({"within": 0}))


@pytest.mark.slow
def test_the_line_of_the_admin_address_says_what_is_there(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data", "--admin", "tcp:127.0.0.1:0")
    daemon.start()
    assert daemon.process.stdout is not None
    assert daemon.process.stdout.readline().startswith("dataspace: metrics and health at http://127.0.0.1:")
    daemon.stop()


def test_the_command_drains_and_the_daemon_ends_in_good_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    assert main(["drain", "--url", daemon.url, "--within", "5s"]) == 0
    assert "the daemon takes no new sessions, and ends now" in capsys.readouterr().out
    assert daemon.wait() == 0, daemon.errors
    assert main(["status", "--url", daemon.url]) == 3
