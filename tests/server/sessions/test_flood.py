"""A peer that abuses credit, numbers or sheer count holds a bounded amount of memory, and nobody else up."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import RemoteSpace as Space
from dataspace.kernel.actions import ASSERT
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.patterns.patterns import capture
from index.values.values import Map, Record
from server.config.model import Limits
from tests.server.peers import PLENTY, Peer, fact, hello, opening, turn
from tests.server.processes import DaemonProcess

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
        heard = [await peer.hear() for _ in range(2)]
        assert {type(packet) for packet in heard} == {p.Pong, p.Values}, "in whichever order they were read"
    assert (await bystander.status())["waiting_bytes"] == 0


@pytest.mark.parametrize("limits", [Limits(streams=50)])
async def test_streams_of_topics_count_like_others(url: str, bystander: Space) -> None:
    async with bystander.publish("t"), Peer(url) as peer:
        await peer.greet()
        spec = Map({"kind": "topic", "topic": "t"})
        await peer.say(opening(1), *[p.Open(n, spec, 1, 1) for n in range(2, 101)], p.Ping(1))
        heard: list[p.Packet] = []
        while not heard or heard[-1] != p.Pong(1):
            packet = await peer.hear()
            assert packet is not None
            heard.append(packet)
        errors = {packet.text for packet in heard if isinstance(packet, p.Error)}
        assert errors == {"50 streams, the limit is limits.streams=50"}
        assert (await bystander.status())["streams"] == 50


@pytest.mark.parametrize("limits", [Limits(all_streams=10)])
async def test_the_streams_of_all_connections_are_bounded_and_given_back(url: str, bystander: Space) -> None:
    async def greedy(peer: Peer) -> int:
        """How many of ten streams it gets."""
        await peer.greet(f"~{id(peer)}")
        await peer.say(*[opening(n) for n in range(1, 11)])
        heard = [await peer.hear() for _ in range(10)]
        return sum(isinstance(packet, p.Values) for packet in heard)

    async with Peer(url) as first:
        assert await greedy(first) == 10
        async with Peer(url) as second:
            assert await greedy(second) == 0
            await first.say(*[p.Abort(n, "", True) for n in (1, 2, 3, 3)])
            assert [await first.hear() for _ in range(4)] == [p.Done(n) for n in (1, 2, 3, 3)]
            await second.say(*[opening(n) for n in range(11, 16)])
            kinds = [type(await second.hear()) for _ in range(5)]
            assert sorted(kind.__name__ for kind in kinds) == ["Error"] * 2 + ["Values"] * 3
    while (await bystander.status())["sessions"] != 1:
        await trio.lowlevel.checkpoint()
    assert (await bystander.status())["streams"] == 0


async def test_an_abort_is_confirmed_however_often_it_comes(url: str, bystander: Space) -> None:
    """Of an open stream, of one that has been aborted, and of one that has failed."""
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(opening(1), opening(2, space="nowhere"))
        assert {type(await peer.hear()) for _ in range(2)} == {p.Values, p.Error}
        await peer.say(
            *[p.Abort(number, "", True) for number in (1, 1, 2, 1)], p.Abort(1, "", False), p.Ping(1)
        )
        assert [await peer.hear() for _ in range(5)] == [
            p.Done(1),
            p.Done(1),
            p.Done(2),
            p.Done(1),
            p.Pong(1),
        ]
        await peer.say(p.Ask(1, PLENTY, PLENTY), p.Peek(1, 1), p.Ping(2))
        assert await peer.hear() == p.Pong(2), "what is over stays over"


async def test_streams_by_the_ten_thousand_hold_what_the_limit_allows_and_nobody_up(tmp_path: Path) -> None:
    """Others have their turn in between, not when all that one peer has said was heard."""
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    order: list[str] = []
    try:
        async with dataspace.connect(daemon.url) as bystander, Peer(daemon.url) as peer:
            before = int(str((await bystander.status())["memory_bytes"]))
            await peer.greet()
            refused, many = trio.Event(), 20_000

            async def hear() -> None:
                while not isinstance(packet := await peer.hear(), p.Pong):
                    if isinstance(packet, p.Error):
                        refused.set()
                order.append("all refused")

            async def go_on() -> None:
                await refused.wait()
                for n in range(3):
                    await bystander.send(fact(n))
                order.append("served")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(hear)
                nursery.start_soon(go_on)
                await peer.say(*[opening(n, Record("n", n, capture())) for n in range(1, many)], p.Ping(1))
            told = await bystander.status()
            assert told["streams"] == Limits().streams
            assert int(str(told["memory_bytes"])) - before < Limits().streams * (16 << 10)
    finally:
        daemon.stop()
    assert order == ["served", "all refused"]


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
            await peer.say(turn(1, (ASSERT, 1, fact(n))))
            await peer.hear()
    told = await bystander.status()
    while told["sessions"] != 1:
        told = await bystander.status()
    assert told["sessions_waiting"] == 10
    assert len(await bystander.matches("fact($)")) == 10
