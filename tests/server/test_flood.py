"""A peer that abuses credit, numbers or sheer count holds a bounded amount of memory, and nobody else up."""

from __future__ import annotations

import pytest

from dataspace import RemoteSpace as Space
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.patterns import capture
from index.values import Record
from server.config import Limits
from tests.server.peers import PLENTY, Peer, fact, hello, opening, turn

pytestmark = pytest.mark.slow

MOST = (1 << 63) - 1


async def test_a_flood_of_asks_is_one_credit(url: str, bystander: Space) -> None:
    """Up, down, repeated, as high as numbers go: totals make them all the same."""
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(opening(1, items=1, size=1))
        assert isinstance(await peer.hear(), p.Values)
        for _ in range(20):
            await peer.say(*[p.Ask(1, (at * 7919) % 5, MOST) for at in range(1000)])
        await peer.say(p.Ask(1, MOST, MOST), p.Ask(1, 0, 0), p.Ping(1))
        assert await peer.hear() == p.Pong(1)
        await bystander.send("hello")
        told = await peer.hear()
        assert isinstance(told, p.Values) and told.first == 1


@pytest.mark.parametrize("limits", [Limits(streams=50)])
async def test_streams_beyond_the_limit_fail_and_leave_nothing(url: str, bystander: Space) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(*[opening(n, Record("n", n, capture()), quiet=False) for n in range(1, 201)])
        heard = [await peer.hear() for _ in range(200)]
        failed = [packet for packet in heard if isinstance(packet, p.Error)]
        assert len(failed) == 150 and {packet.code for packet in failed} == {"limit"}
        assert len(await bystander.matches("Observe(n($))")) == 50
        await peer.say(*[p.Abort(n, "", False) for n in range(1, 51)], opening(201, quiet=False), p.Ping(1))
        assert [type(packet) for packet in (await peer.hear(), await peer.hear())] == [p.Pong, p.Values]
    assert (await bystander.status())["waiting_bytes"] == 0


@pytest.mark.parametrize("limits", [Limits(waiting_bytes=1 << 20)])
async def test_many_streams_that_take_nothing_share_what_may_wait(url: str, bystander: Space) -> None:
    """Each might keep 16 MiB by itself."""
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(*[opening(n, Record("n", capture(f"p{n}")), items=1) for n in range(1, 33)])
        for _ in range(32):
            assert isinstance(await peer.hear(), p.Values)
        for start in range(0, 400, 20):
            async with bystander.turn() as draft:
                for n in range(start, start + 20):
                    draft.assert_(Record("n", f"{n} {'x' * 500}"))
        waiting = (await bystander.status())["waiting_bytes"]
        assert isinstance(waiting, int) and 0 < waiting < 3 << 20
        await peer.say(*[p.Ask(n, PLENTY, PLENTY) for n in range(1, 33)])
        left = 32 * 400
        while left:
            values = await peer.hear()
            assert isinstance(values, p.Values)
            left -= sum([len(value[3]) for value in values.values])  # type: ignore[misc,index,arg-type]  # by WIRE.md
    assert (await bystander.status())["waiting_bytes"] == 0


@pytest.mark.parametrize("limits", [Limits(waiting_sessions=10)])
async def test_sessions_that_are_left_behind_are_bounded(url: str, bystander: Space) -> None:
    for n in range(30):
        async with Peer(url) as peer:
            await peer.say(hello(f"~flood {n}")._replace(features=Wanted(grace=60.0).packed()))
            await peer.hear()
            await peer.say(turn(1, (p.ASSERT, 1, fact(n))))
            await peer.hear()
    told = await bystander.status()
    while told["sessions"] != 1:
        told = await bystander.status()
    assert told["sessions_waiting"] == 10
    assert len(await bystander.matches("fact($)")) == 10
