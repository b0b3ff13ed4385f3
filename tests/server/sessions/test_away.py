"""While the daemon is away: what waits for it, for how long, and what does not wait."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio
import trio.lowlevel

import dataspace
from dataspace import ConnectionChange, Record, RemoteSpace, Unreachable, UsageError
from dataspace.bulk import BulkClient
from server.config.model import Config
from server.daemon.serve import serve
from tests.ports import free_port
from tests.server.proxies import Proxy


class Events:
    """What a client hears of its connection."""

    def __init__(self, space: RemoteSpace) -> None:
        self._heard = {change: trio.Event() for change in ConnectionChange}
        space.on_connection = lambda event: self._heard[event.change].set()

    async def wait(self, change: ConnectionChange) -> None:
        with trio.fail_after(10):
            await self._heard[change].wait()


async def _go_away(proxy: Proxy, space: RemoteSpace) -> Events:
    events = Events(space)
    proxy.refusing = True
    proxy.cut()
    await events.wait(ConnectionChange.LOST)
    return events


async def test_the_end_of_asserting_and_of_the_connection_does_not_wait(proxy: Proxy) -> None:
    """An end that waited took 11 s: one for the claim, ten for the answers."""
    with trio.fail_after(8):
        async with dataspace.connect(proxy.url) as space:
            async with space.asserting(Record("present", "Alice")):
                await _go_away(proxy, space)
            assert space.in_flight == 1


async def test_the_end_of_the_connection_does_not_wait_for_an_end_that_is_cut_off(proxy: Proxy) -> None:
    """The connection is lost after the claim's end was sent, and before its answer."""
    with trio.fail_after(8):
        async with trio.open_nursery() as nursery, dataspace.connect(proxy.url) as space:
            async with space.asserting(Record("present", "Alice")):
                proxy.hold("down")
                nursery.start_soon(_go_away, proxy, space)


async def test_the_fact_of_a_block_that_ended_meanwhile_is_gone_after_the_return(
    url: str, proxy: Proxy
) -> None:
    async with dataspace.connect(url) as witness, dataspace.connect(proxy.url, grace=20) as space:
        async with space.asserting(Record("present", "Alice")):
            await space.assert_(Record("present", "Bob"))
            await _go_away(proxy, space)
        proxy.refusing = False
        await space.sync()
        assert await witness.matches("present($who)") == [("Bob",)]


async def test_a_turn_that_was_not_sent_is_dropped_when_patience_ends(url: str, proxy: Proxy) -> None:
    async with (
        dataspace.connect(url) as witness,
        dataspace.connect(proxy.url, grace=20, timeout=0.2) as space,
    ):
        await space.assert_(Record("present", "Alice"))
        events = await _go_away(proxy, space)
        with pytest.raises(
            Unreachable, match=r"has been away for 0.2 s: the turn was not sent, and will not be"
        ):
            await space.assert_(Record("present", "Bob"))
        assert space.in_flight == 0
        proxy.refusing = False
        await events.wait(ConnectionChange.RESUMED)
        await space.assert_(Record("present", "Carol"))
        assert sorted(await witness.matches("present($who)")) == [("Alice",), ("Carol",)]


async def test_a_turn_that_was_sent_is_said_to_be_unknown_and_happens_once(url: str, proxy: Proxy) -> None:
    async with (
        dataspace.connect(url) as witness,
        dataspace.connect(proxy.url, grace=20, timeout=0.2) as space,
    ):
        proxy.hold("up")
        failed = trio.Event()

        async def say() -> None:
            with pytest.raises(Unreachable, match="may have taken effect"):
                await space.assert_(Record("present", "Bob"))
            failed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(say)
            while not space.in_flight:
                await trio.lowlevel.checkpoint()
            events = await _go_away(proxy, space)
            with trio.fail_after(10):
                await failed.wait()
        proxy.open("up")
        proxy.refusing = False
        await events.wait(ConnectionChange.RESUMED)
        await space.sync()
        assert space.in_flight == 0
        assert await witness.matches("present($who)") == [("Bob",)]


@pytest.mark.parametrize("verb", ["sync", "matches", "query", "status", "request", "put", "withdraw", "send"])
async def test_every_verb_that_waits_for_an_answer_is_limited(proxy: Proxy, verb: str) -> None:
    verbs = {
        "sync": lambda space: space.sync(),
        "matches": lambda space: space.matches("a($x)"),
        "query": lambda space: space.query("a($x)"),
        "status": lambda space: space.status(),
        "request": lambda space: space.request("status", dataspace.Map()),
        "put": lambda space: space.put("a", "k", 1, owner="ops"),
        "withdraw": lambda space: space.withdraw("a(_)", owner="ops"),
        "send": lambda space: space.send(Record("a", 1)),
    }
    async with dataspace.connect(proxy.url, timeout=0.05) as space:
        await _go_away(proxy, space)
        with trio.fail_after(10), pytest.raises(Unreachable, match=r"away for 0.05 s"):
            await verbs[verb](space)


async def test_a_daemon_that_starts_later_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    listen = f"tcp:127.0.0.1:{port}"
    attempts = trio.Event()
    async with trio.open_nursery() as nursery:

        async def start() -> None:
            await attempts.wait()  # the daemon starts while the client tries
            await nursery.start(serve, Config(listen=(listen,), data=tmp_path))

        nursery.start_soon(start)
        with pytest.raises(Unreachable):
            async with dataspace.connect(f"tcp://127.0.0.1:{port}"):
                pass  # without wait nothing is tried again
        attempts.set()
        with trio.fail_after(30):
            async with dataspace.connect(f"tcp://127.0.0.1:{port}", wait=30) as space:
                await space.sync()
        nursery.cancel_scope.cancel()


async def test_the_bulk_client_waits_for_a_daemon_as_well(tmp_path: Path) -> None:
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    with pytest.raises(Unreachable):
        BulkClient(url)
    async with trio.open_nursery() as nursery:
        found: list[int] = []

        def ask() -> None:
            with BulkClient(url, wait=30) as client:
                found.append(client.frontier().epoch)

        async with trio.open_nursery() as asking:
            asking.start_soon(trio.to_thread.run_sync, ask)
            await nursery.start(serve, Config(listen=(f"tcp:127.0.0.1:{port}",), data=tmp_path))
        assert found == [0]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wait", [-1, math.inf, math.nan])
async def test_a_wait_that_makes_no_sense_is_refused(wait: float) -> None:
    with pytest.raises(UsageError, match="wait is in seconds"):
        async with dataspace.connect("tcp://127.0.0.1:1", wait=wait):
            pass


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
async def test_a_timeout_that_makes_no_sense_is_refused(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout is in seconds"):
        async with dataspace.connect("tcp://127.0.0.1:1", timeout=timeout):
            pass
