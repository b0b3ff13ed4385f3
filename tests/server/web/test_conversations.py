"""The same packets get the same answers over TCP, and over both subprotocols of WebSocket."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import pytest
import trio

from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from server.config.model import Config
from server.daemon.serve import serve
from tests.server.peers import EVERYTHING, Peer, opening, turn
from tests.server.web_client import JSON, MSGPACK, WebPeer

AnyPeer: TypeAlias = Peer | WebPeer

ODD: tuple[Value, ...] = (
    None, True, 0, 1, 1.0, -0.0, 0.5, 1e300, float("inf"), -(1 << 63), (1 << 64) - 1, 1 << 80, 1 << 53, "",
    "ř\n\u2028", b"\xff\x00", datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=UTC), (1, (2.0,)), Map({"k": 1}),
    Map({"@": 1, "x": 2}), Map({1: "one", (1,): 1.0}), Record("r"), Record(Record("l"), 1.0, b"!"),
)  # fmt: skip


async def conversation(peer: AnyPeer) -> list[object]:
    """A script with every kind of packet: for each step what is heard until all kinds that it names came."""
    heard: list[object] = []

    async def step(*packets: p.Packet, until: Sequence[type[p.Packet]]) -> None:
        await peer.say(*packets)
        found: list[p.Packet] = []
        while not set(until) <= set(map(type, found)):
            packet = await peer.hear()
            assert packet is not None, found
            found.append(packet)
        heard.append(comparable(found))

    one = Record("v", capture("x"))
    await step(p.Hello(1, "~same", "same", Map({"heartbeat": 60_000, "grace": 1000})), until=[p.Welcome])
    await step(opening(1, one, items=3, quiet=False), until=[p.Values])
    facts = [(ASSERT, n, Record("v", value)) for n, value in enumerate(ODD)]
    await step(turn(1, *facts), until=[p.Values, p.Accepted])
    changes = (RETRACT, 0), (SEND, Record("v", "said")), (REPLACE, 1, 100, Record("v", 2.0))
    await step(turn(2, *changes), until=[p.Values, p.Accepted])
    await step(turn(3, (RETRACT, 0)), until=[p.Refusal])
    await step(turn(4, (RETRACT, 2)), until=[p.Accepted])  # there is no credit for its values
    await step(p.Peek(1, 4), until=[p.Available])
    await step(p.Ask(1, 100, 1 << 20), until=[p.Values])
    await step(p.Request(1, "frontier", Map({"after": 0})), until=[p.Answer])
    await step(p.Request(2, "no-such-verb", Map()), until=[p.Denied])
    await step(opening(2, EVERYTHING, after=1, upto=3), until=[p.Done])
    await step(p.Abort(1, "", True), until=[p.Done])
    await step(p.Offer(3, Map({"kind": "stage", "key": ("nightly", "0")})), until=[p.Ask])
    operations = (("assert", Record("v", 1.0)), ("send", Record("v", b"!")))
    await step(p.Values(3, 0, operations, 0), p.Done(3), until=[p.Done])
    await step(p.Request(3, "discard", Map({"key": ("nightly",)})), until=[p.Answer])
    await step(opening(4, Record("$")), until=[p.Error])
    await step(turn(1, *facts), until=[p.Accepted])  # the answer again
    await step(p.Ping(7), until=[p.Pong])
    await step(p.Bye("", ""), until=[p.Bye])
    assert await peer.hear() is None
    return heard


def comparable(heard: Sequence[p.Packet]) -> object:
    """What was heard in a step, in one order, without what differs between two daemons, and without how
    values are divided into packets."""
    values = [each for packet in heard if isinstance(packet, p.Values) for each in packet.values]
    said = [_comparable(packet) for packet in heard if not isinstance(packet, p.Values)]
    said.sort(key=lambda each: each.__class__.__name__)
    return said, [(each[0], *each[2:]) for each in values if isinstance(each, tuple)]


def _comparable(packet: p.Packet) -> p.Packet:
    """A packet without identities and secrets."""
    match packet:
        case p.Welcome():
            features = Map({at: each for at, each in packet.features.pairs() if at != "secret"})
            return packet._replace(space="", session=0, features=features)
        case p.Answer(_, Map() as value):
            return packet._replace(value=Map({at: each for at, each in value.pairs() if at != "space"}))
        case _:
            return packet


async def test_a_conversation_is_the_same_over_all_doors(
    tmp_path_factory: pytest.TempPathFactory, nursery: trio.Nursery
) -> None:
    said = []
    for door in ("tcp", MSGPACK, JSON):
        config = Config(("tcp:127.0.0.1:0", "http:127.0.0.1:0"), tmp_path_factory.mktemp("data"))
        tcp, http = await nursery.start(serve, config)
        peer = Peer(f"tcp://{tcp[4:]}") if door == "tcp" else WebPeer(int(http.rpartition(":")[2]), door)
        with trio.fail_after(20):
            async with peer:
                said.append(await conversation(peer))
    assert said[0] == said[1]
    assert [repr(each) for each in said[0]] == [
        repr(each) for each in said[2]
    ]  # 1 and 1.0 are equal to Python
