"""A lost connection loses nothing: turns take effect once, facts come back, observations go on.

The connection goes through a proxy that cuts it after so many bytes, in either direction, again and again.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.addresses import parse_url
from dataspace.wire import packets as p
from dataspace.wire.codec import pack
from dataspace.wire.frames import frame

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "4"))


class Proxy:
    """Passes bytes on between clients and a daemon; ``cuts`` are bytes after which a link is cut."""

    def __init__(self, url: str) -> None:
        self._target = parse_url(url)
        self.cuts: list[tuple[int, int]] = []
        self.links = 0
        self.url = ""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        self.url = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            task_status.started()

    async def _serve(self, client: trio.SocketStream) -> None:
        self.links += 1
        up, down = self.cuts.pop(0) if self.cuts else (1 << 40, 1 << 40)
        daemon = await trio.open_tcp_stream(self._target.host, self._target.port)
        async with client, daemon, trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, client, daemon, up, nursery.cancel_scope)
            nursery.start_soon(_pass_on, daemon, client, down, nursery.cancel_scope)


async def _pass_on(
    source: trio.SocketStream, target: trio.SocketStream, allowed: int, scope: trio.CancelScope
) -> None:
    """Passes on so many bytes, and then ends the link in both directions, in the middle of whatever it is."""
    try:
        while allowed > 0 and (data := await source.receive_some(4096)):
            await target.send_all(data[:allowed])
            allowed -= len(data)
    except trio.BrokenResourceError:
        pass
    scope.cancel()


@pytest.fixture
async def proxy(url: str, nursery: trio.Nursery) -> AsyncIterator[Proxy]:
    made = Proxy(url)
    await nursery.start(made.run)
    yield made


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
async def test_random_cuts_lose_and_repeat_nothing(url: str, proxy: Proxy, seed: int) -> None:
    """A durable writer and an observer, both through links that break at random bytes."""
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
