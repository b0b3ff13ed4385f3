"""A welcome lists what the daemon understands, and the daemon understands what it lists and nothing else."""

from __future__ import annotations

import pytest
import trio

import dataspace
from dataspace.codec import pack
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from index.values.values import Map, Value
from tests.server.peers import Peer, fact, hello, turn


async def _spoken(peer: Peer) -> Map:
    await peer.say(hello()._replace(features=Map({"spoken": True})))
    welcome = await peer.hear()
    assert isinstance(welcome, p.Welcome)
    spoken = welcome.features["spoken"]
    assert isinstance(spoken, Map)
    return spoken


def _names(spoken: Map, name: str) -> tuple[str, ...]:
    listed = spoken[name]
    assert isinstance(listed, tuple)
    return tuple([str(each) for each in listed])


async def test_every_verb_that_is_listed_is_known_and_others_are_not(url: str) -> None:
    async with Peer(url) as peer:
        listed = _names(await _spoken(peer), "verbs")
        for verb in (*listed, "no-such-verb"):
            await peer.say(p.Request(1, verb, Map()))
            heard = await peer.hear()
            assert isinstance(heard, p.Answer | p.Denied)
            unknown = isinstance(heard, p.Denied) and heard.code == "unknown-verb"
            assert unknown == (verb not in listed), heard


@pytest.mark.parametrize("kind", ["observe", "columns", "topic"])
async def test_every_option_of_a_kind_that_is_listed_is_known_and_others_are_not(url: str, kind: str) -> None:
    async with Peer(url) as peer:
        spoken = await _spoken(peer)
        kinds = spoken["kinds"]
        assert isinstance(kinds, Map)
        listed = kinds[kind]
        assert isinstance(listed, tuple)
        for number, option in enumerate((*listed, "no-such-option"), 1):
            spec: dict[Value, Value] = {"kind": kind, option: kind if option == "kind" else b"no such thing"}
            await peer.say(p.Open(number, Map(spec), 1, 1))
            heard = await peer.hear()
            unknown = isinstance(heard, p.Error) and "no option" in heard.text
            assert unknown == (option not in listed), heard


async def test_every_packet_that_is_listed_is_known(url: str) -> None:
    async with Peer(url) as peer:
        spoken = await _spoken(peer)
    client = {number for number, (kind, _) in p.TABLE.items() if number < 33} | {36, 37, 38, 41}
    assert spoken["packets"] == tuple(sorted(client))
    assert spoken["versions"] == p.VERSIONS


async def test_a_later_client_is_served(url: str) -> None:
    """Its packets have fields, and its hello has features, that this daemon does not know."""
    async with Peer(url) as peer:
        later = Map({"later": True, "heartbeat": 1000})
        await peer.shout(frame(pack((1, 1, "~later", "later", later, "a field"))))
        welcome = await peer.hear()
        assert isinstance(welcome, p.Welcome)
        assert list(welcome.features) == ["heartbeat"], "nothing that was not asked for"
        await peer.shout(frame(pack((*_packed(turn(1, (2, fact(1)))), (), (), "", (), Map({"priority": 1})))))
        with trio.fail_after(10):
            while not isinstance(heard := await peer.hear(), p.Accepted):
                assert isinstance(heard, p.Ping)


def _packed(packet: p.Packet) -> tuple[Value, ...]:
    return p.written(packet)


async def test_a_client_of_another_version_learns_which_are_spoken(url: str) -> None:
    async with Peer(url) as peer:
        await peer.say(hello(version=9))
        assert await peer.farewell() == p.Bye("version", "spoken 1 to 1, got 9")
    async with dataspace.connect(url) as space:
        await space.sync()
