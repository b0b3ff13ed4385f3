"""Clients of a daemon and its follower, in processes of their own: writes go to one, reads to the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.client.bulk.short import ShortClient
from dataspace.errors import Refused
from dataspace.kernel.actions import SEND
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Record
from tests.server.peers import Peer, fact, turn
from tests.server.processes import DaemonProcess, follower, running

pytestmark = pytest.mark.slow
SOON = 60
FACTS = Record("fact", capture("n"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    daemons = DaemonProcess(tmp_path / "data"), follower(tmp_path / "data")
    with running(*daemons):
        yield daemons


async def test_a_client_of_a_follower_writes_at_the_leader_and_reads_what_it_wrote(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follows = store
    with trio.fail_after(SOON):
        async with dataspace.connect(follows.url, wait=10) as space:
            await space.assert_(fact(0))
        for urls in ([follows.url], [follows.url, leader.url], [leader.url, follows.url]):
            async with dataspace.connect(urls, read="any", grace=5, wait=10) as space:
                for n in range(1, 50):
                    await space.put(fact(n), by="fact(_)")
                    assert await space.matches("fact($n)") == [(n,)]
                assert list(await space.query("fact($n)")) == [(49,)]
                async with space.observe("fact($n)") as loud, space.lock("l"):
                    assert await loud.next_epoch() is not None


async def test_short_clients_read_at_the_follower_and_write_at_the_leader(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    _, follows = store

    def use() -> int:
        with ShortClient(follows.url) as writer:
            writer.stage(("k",), [("assert", fact(1))])
            epoch = writer.publish([("k",)], client="c", sequence=1, owner="it")
        with ShortClient(follows.url, read="any") as reader:
            assert reader.frontier(epoch - 1, 10).epoch >= epoch
            assert [*reader.state(FACTS).added] == [(1,)]
        return epoch

    assert await trio.to_thread.run_sync(use) > 0


async def test_operations_are_staged_at_the_leader(store: tuple[DaemonProcess, DaemonProcess]) -> None:
    leader, follows = store
    with trio.fail_after(SOON):
        async with dataspace.connect(follows.url) as space:
            assert await space.stage(("none",), []) == 0
        async with dataspace.connect(follows.url) as space:
            assert await space.stage(("k",), [("assert", fact(n)) for n in range(1000)]) == 1000
        async with dataspace.connect(leader.url) as space:
            await space.request(
                "publish", Map({"keys": (("k",),), "client": "c", "sequence": 1, "owner": "it"})
            )
            assert len(await space.matches("fact($n)")) == 1000


async def test_without_a_leader_a_writer_waits_and_readers_are_served(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follows = store
    urls = [follows.url, leader.url]
    with trio.fail_after(SOON):
        async with dataspace.connect(urls, read="any", wait=10) as space:
            await space.put(fact(1), by="fact(_)", owner="it")
            async with trio.open_nursery() as nursery:
                await trio.to_thread.run_sync(leader.kill)
                written: list[int] = []

                async def write() -> None:
                    written.append(await space.put(fact(2), by="fact(_)", owner="it"))

                nursery.start_soon(write)
                await trio.sleep(0.3)
                assert not written

                def look() -> list[tuple[object, ...]]:
                    with ShortClient(follows.url, read="any") as reader:
                        return list(reader.state(FACTS).added)

                assert await trio.to_thread.run_sync(look) == [(1,)]
                await trio.to_thread.run_sync(leader.start)
            assert await space.matches("fact($n)") == [(2,)]


async def test_a_client_that_does_not_reconnect_is_told_where_the_leader_is(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follows = store
    with trio.fail_after(SOON):
        async with dataspace.connect(follows.url, reconnect=False) as space:
            code = "no-leader"
            while code == "no-leader":  # until the follower knows it
                with pytest.raises(Refused) as sent:
                    await space.assert_(fact(1))
                code = sent.value.code
            assert (code, sent.value.url) == ("elsewhere", leader.url)


async def test_a_follower_judges_no_turn(store: tuple[DaemonProcess, DaemonProcess]) -> None:
    """What it has may be old: the leader may hold what a turn expects, and what it has not."""
    leader, follows = store
    with trio.fail_after(SOON):
        async with dataspace.connect(leader.url) as space, Peer(follows.url) as wire:
            epoch = await space.send(fact(1))
            await wire.greet()
            await wire.say(p.Request(1, "frontier", Map({"after": epoch - 1, "wait": 10_000})))
            assert isinstance(await wire.hear(), p.Answer)
            await wire.say(turn(1, (SEND, fact(1)))._replace(expected=((1, fact(9), ((),)),)))
            refusal = await wire.hear()
            assert isinstance(refusal, p.Refusal) and refusal.code in ("elsewhere", "no-leader"), refusal
