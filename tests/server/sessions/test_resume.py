"""A lost connection loses nothing: turns take effect once, facts come back, observations go on.

The connection goes through a proxy that cuts it after so many bytes, in either direction, again and again.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.session import uplink
from dataspace.client.session.uplink import open_link
from dataspace.codec import pack
from dataspace.errors import Broken
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from server.config.model import Limits
from tests.server.peers import Peer
from tests.server.proxies import Proxy

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "2"))


async def test_a_turn_whose_acceptance_was_lost_is_in_effect_once(url: str, proxy: Proxy) -> None:
    """The link passes the turn on, and is cut before a byte of the answer comes back."""
    async with dataspace.connect(url) as witness, witness.observe("say($n)", snapshot=False) as heard:
        heard.open()
        await witness.sync()
        proxy.cuts = [(1 << 40, _welcome_bytes(witness) + 3)]
        async with dataspace.connect(proxy.url, client="me") as space:
            epoch = await space.send(Record("say", 1))
            assert space.reconnects == 1
            assert (await anext(heard)).epoch == epoch
            await space.send(Record("say", 2))
        assert (await anext(heard)).captures == (2,)


@pytest.mark.parametrize("limits", [Limits(strangers=2, hello_seconds=0.5)])
async def test_who_finds_no_room_when_it_comes_back_tries_again(url: str, proxy: Proxy) -> None:
    """As when a daemon is started again, and all its clients come at once."""
    async with dataspace.connect(url) as near, dataspace.connect(proxy.url) as far:
        await far.assert_(Record("there", 1))
        async with Peer(url), Peer(url), near.observe("there($n)") as there:
            assert (await anext(there)).kind == "+"
            proxy.cut()
            with trio.fail_after(20):
                assert [(await anext(there)).kind for _ in range(2)] == ["-", "+"]
                async with Peer(url), Peer(url), dataspace.connect(proxy.url) as late:
                    assert await late.matches("there($n)") == [(1,)]
        assert far.reconnects == 1 and proxy.links > 4


async def _until_none(space: dataspace.RemoteSpace, pattern: str) -> None:
    """Returns when nothing matches any more."""
    left = 0
    async with space.observe(pattern, quiet=True) as observation:
        async for epoch in observation.epochs():
            left += len(epoch.added) - len(epoch.removed)
            if not left:
                return


def _welcome_bytes(space: dataspace.RemoteSpace) -> int:
    """How long a welcome is: the next one is as long."""
    assert space.welcome is not None
    return len(frame(pack((p.NUMBERS[p.Welcome], *space.welcome))))


async def test_the_facts_of_a_session_come_back_under_their_handles(url: str, proxy: Proxy) -> None:
    async with dataspace.connect(url) as witness:
        proxy.cuts = [(400, 1 << 40), (700, 1 << 40)]
        async with dataspace.connect(proxy.url) as space:
            claims = [await space.assert_(Record("present", n)) for n in range(30)]
            assert space.reconnects == 2
            assert await witness.matches("present($n)") == [(n,) for n in range(30)]
            for claim in claims[::2]:
                await space.retract(claim)
            assert sorted(await witness.matches("present($n)")) == [(n,) for n in range(1, 30, 2)]
        await _until_none(witness, "present($n)")


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_random_cuts_lose_and_repeat_nothing(
    url: str, proxy: Proxy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A durable writer and an observer, both through links that break at random bytes."""
    monkeypatch.setattr(uplink, "_PAUSES", (0.0, 0.05))  # links that break one after the other are paused for
    chance = random.Random(seed)
    proxy.cuts = [(chance.randint(200, 3000), chance.randint(350, 3000)) for _ in range(24)]
    turns = 150
    seen: list[int] = []
    state: set[int] = set()

    async def follow(started: trio.Event) -> None:
        async with dataspace.connect(proxy.url) as space, space.observe("count($n)", quiet=True) as observed:
            async for epoch in observed.epochs():
                started.set()
                for row in epoch.added:
                    assert row[0] not in state
                    state.add(row[0])  # type: ignore[arg-type]  # a number
                for row in epoch.removed:
                    state.remove(row[0])  # type: ignore[arg-type]  # as above
                if turns - 1 in state:
                    return

    with trio.fail_after(60):
        async with dataspace.connect(url) as witness:
            async with witness.observe("counted($n)", snapshot=False, quiet=True) as heard:
                heard.open()
                await witness.sync()
                async with trio.open_nursery() as nursery:
                    started = trio.Event()
                    nursery.start_soon(follow, started)
                    await started.wait()
                    async with dataspace.connect(proxy.url, owner="the counter") as space:
                        tickets = []
                        for number in range(turns):
                            draft = space.draft()
                            if number:
                                draft.retract(number)
                            draft.assert_(Record("count", number), handle=number + 1)
                            draft.send(Record("counted", number))
                            tickets.append(await space.submit(draft))
                            if number % 5 == 0:
                                await tickets[-1].wait()
                        epochs = [await ticket.wait() for ticket in tickets]
                while len(seen) < turns:
                    change = await anext(heard)
                    assert change.epoch == epochs[len(seen)]
                    seen.append(change.n)  # type: ignore[arg-type]  # a number
                assert seen == list(range(turns))
                assert await witness.matches("count($n)") == [(turns - 1,)]
    assert state == {turns - 1}
    assert proxy.links > 4, "the links must have been cut"


async def test_a_second_connection_of_the_same_client_replaces_the_first(url: str) -> None:
    async with dataspace.connect(url) as witness:
        with pytest.raises(dataspace.ProtocolError, match="superseded"):
            async with dataspace.connect(url, client="me") as first:
                await first.assert_(Record("from", "first"))
                async with dataspace.connect(url, client="me") as second:
                    assert second.sequence == 1
                    await second.assert_(Record("from", "second"))
                    assert await witness.matches("from($which)") == [("second",)]
                    await first.send("too late")
        await _until_none(witness, "from($which)")


async def test_whoever_is_replaced_is_told_by_whom(url: str) -> None:
    """Whatever it is doing: nothing at all, asking, observing, asserting."""
    said = r"superseded: another connection, named 'second', has come as the same client 'X'"

    async def nothing(space: dataspace.RemoteSpace) -> None:
        await trio.sleep_forever()

    async def ask(space: dataspace.RemoteSpace) -> None:
        while True:
            await space.sync()

    async def observe(space: dataspace.RemoteSpace) -> None:
        async with space.observe("none($)") as changes:
            await anext(changes)

    async def assert_(space: dataspace.RemoteSpace) -> None:
        while True:
            await space.assert_(Record("here"))

    async def work(
        busy: Callable[[dataspace.RemoteSpace], Awaitable[None]], task_status: trio.TaskStatus[None]
    ) -> None:
        with pytest.raises(dataspace.ProtocolError, match=said):
            async with dataspace.connect(url, owner="X", client="X", name="first") as space:
                task_status.started()
                await busy(space)

    for busy in (nothing, ask, observe, assert_):
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                await nursery.start(work, busy)
                async with dataspace.connect(url, owner="X", client="X", name="second") as space:
                    await space.sync()


async def test_a_blocking_client_that_is_replaced_is_told_so_by_whatever_it_asks_next(url: str) -> None:
    def work() -> None:
        with (
            dataspace.connect_blocking(url, owner="X", client="X", name="first") as first,
            dataspace.connect_blocking(url, owner="X", client="X", name="second") as second,
        ):
            second.sync()
            said = r"superseded: another connection, named 'second', has come"
            for ask in (first.sync, lambda: first.assert_(Record("here")), lambda: first.matches("none($)")):
                with pytest.raises(dataspace.ProtocolError, match=said):
                    ask()

    await trio.to_thread.run_sync(work)


async def test_a_daemon_that_dies_before_it_is_said_hello_to_is_a_connection_that_broke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its kernel has accepted for it, and has sent a reset by the time of the hello."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        async def open_late(*args: Any, **more: Any) -> Any:
            link = await open_link(*args, **more)
            accepted, _ = listener.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            return link

        monkeypatch.setattr(uplink, "open_link", open_late)
        with pytest.raises(Broken, match="lost before the hello"):
            async with dataspace.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}"):
                raise AssertionError("nobody is there")
