"""An observer that hears nothing knows how far it is: a break of its line leaves nothing out."""

from __future__ import annotations

import trio

import dataspace
from dataspace import Record
from dataspace.wire import packets as p
from index.values.values import Map
from tests.server.peers import Peer, fact, opening
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy

BEAT = 0.2


async def test_what_is_sent_while_the_line_is_down_is_told_to_who_has_heard_nothing_yet(
    url: str, proxy: Proxy
) -> None:
    async with (
        dataspace.connect(url) as near,
        dataspace.connect(proxy.url) as far,
        far.observe("say($n)", snapshot=False) as heard,
    ):
        await far.sync()
        proxy.refusing = True
        proxy.cut()
        await near.send(Record("say", 1))
        proxy.refusing = False
        assert (await _next(heard)).captures == (1,)


async def test_and_while_the_daemon_is_away_too(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space, space.observe("say($n)", snapshot=False) as heard:
        await space.sync()
        daemon.kill()
        daemon.start()
        async with dataspace.connect(daemon.url) as other:
            await other.send(Record("say", 1))
        assert (await _next(heard)).captures == (1,)


async def test_once_in_a_beat_it_is_said_how_far_a_stream_is_that_had_nothing_to_tell(url: str) -> None:
    async with Peer(url) as peer, dataspace.connect(url) as space:
        await peer.say(p.Hello(p.VERSION, "~peer", "peer", Map({"heartbeat": round(BEAT * 1000)})))
        await peer.say(opening(1, fact(7)), opening(2, fact(8)), opening(3, fact(8), items=0))
        epochs = [await space.send(fact(n)) for n in (7, 8, 9)]
        told = dict[int, int]()
        with trio.fail_after(10):
            while told.get(1, 0) < epochs[-1] or told.get(2, 0) < epochs[-1]:
                packet = await peer.hear()
                if isinstance(packet, p.Reached):
                    told |= dict.fromkeys(packet.streams, packet.epoch)
                elif isinstance(packet, p.Ping):
                    await peer.say(p.Pong(packet.number))
        assert 3 not in told, "its state has not left yet"


async def _next(observation: dataspace.Observation) -> dataspace.Change:
    with trio.fail_after(10):
        return await anext(observation)
