"""A client streams values to the daemon as it asks for them; one that sends more has broken the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Broken, Record, Refused, RemoteSpace
from dataspace.codec import unpack
from dataspace.wire import packets as p
from index.values.values import Map, Value
from server.config.model import Limits
from server.turns import publication
from tests.server.peers import Peer, fact
from tests.server.proxies import Proxy
from tests.server.streams.inside import inside

KEY: tuple[str, ...] = ("job", "0")


def offer(stream: int = 1, **spec: Value) -> p.Offer:
    return p.Offer(stream, Map({"kind": "stage", "key": KEY, **spec}))


async def _publish(space: RemoteSpace, sequence: int = 1) -> int:
    told = await space.request(
        "publish",
        Map({"keys": (KEY,), "owner": "job", "client": "job", "sequence": sequence, "replace": False}),
    )
    assert isinstance(told, int)
    return told


@pytest.mark.slow
async def test_operations_are_staged_in_order_and_published_as_one_epoch(url: str) -> None:
    count = 20_000
    async with dataspace.connect(url) as space:
        operations = (("assert", Record("n", n, "x" * 50)) for n in range(count))
        assert await space.stage(KEY, operations) == count
        assert await space.matches("n($n, _)") == []
        epoch = await _publish(space)
        async with space.observe("n($n, _)", after=epoch - 1, upto=epoch) as told:
            (one,) = [each async for each in told.epochs()]
            assert [*one.added] == [(n,) for n in range(count)]


@pytest.mark.parametrize("limits", [Limits(offered_bytes=64 << 10)])
async def test_the_daemon_asks_for_no_more_than_its_budget(url: str) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(offer(1), offer(2))
        asked = [await peer.hear(), await peer.hear()]
        assert asked == [p.Ask(1, 1024, 65_536), p.Ask(2, 512, 32_768)]


async def test_credit_grows_as_values_are_handled(url: str) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(offer())
        first = await peer.hear()
        assert isinstance(first, p.Ask)
        operation = ("assert", Record("n", "x" * 1000))
        for n in range(0, 160, 40):
            await peer.say(p.Values(1, n, (operation,) * 40, 0))
        more = await peer.hear()
        assert isinstance(more, p.Ask) and more.bytes > first.bytes
        await peer.say(p.Done(1))
        while (last := await peer.hear()) and isinstance(last, p.Ask):
            pass
        assert last == p.Done(1)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            p.Values(1, 0, (("send", 1),) * 5000, 0),
            "limit: stream 1: 5000 values of 35008 bytes, asked for",
        ),
        (p.Values(1, 7, (("send", 1),), 0), "unexpected: stream 1: values from 7, expected 0"),
        (p.Values(2, 0, (("send", 1),), 0), "unexpected: stream 2 was never opened"),
    ],
)
async def test_what_was_not_asked_for_ends_the_session(url: str, values: p.Values, said: str) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(offer(), values)
        bye = await peer.farewell()
        assert f"{bye.code}: {bye.text}".startswith(said)


async def test_the_bytes_may_be_overdrawn_by_one_frame_only(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:  # else the first frame may be handled before the second one arrives
        await trio.sleep_forever()

    monkeypatch.setattr(publication, "stage", never)
    large = ("send", "x" * 300_000)
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(offer(), p.Values(1, 0, (large,), 0), p.Values(1, 1, (large,), 0))
        bye = await peer.farewell()
        assert bye.code == "limit" and "asked for 4096 of 262144" in bye.text


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"kind": "dance"}, "no kind 'dance' of offered stream, there is 'stage'"),
        ({"key": ()}, "key must be an array of text, got ()"),
    ],
)
async def test_an_offer_that_is_none_is_refused_and_the_session_goes_on(
    url: str, spec: dict[str, Value], said: str
) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(offer(1, **spec), p.Ping(7))
        error = await peer.hear()
        assert isinstance(error, p.Error) and error.code == "bad-request" and said in error.text
        assert await peer.hear() == p.Pong(7)


async def test_a_value_that_is_no_operation_fails_the_stream(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match="no operation"):
            await space.stage(KEY, [("perhaps", fact(1))])
        assert await space.stage(("other",), [("assert", fact(1))]) == 1


@pytest.mark.parametrize("limits", [Limits(requests=2)])
async def test_only_so_many_are_offered_at_once(url: str) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(offer(1), offer(2), offer(3))
        heard = [await peer.hear() for _ in range(3)]
        assert [type(packet) for packet in heard] == [p.Ask, p.Ask, p.Error]
        await peer.say(p.Error(1, "", "given up"), offer(4))
        assert isinstance(await peer.hear(), p.Ask), "one that is given up makes room"


async def test_a_lost_connection_fails_what_is_under_way(proxy: Proxy) -> None:
    async with dataspace.connect(proxy.url) as space:
        for_ever = iter(lambda: ("send", "x" * 1000), None)

        async def cut() -> None:
            await trio.sleep(0.1)
            proxy.cut()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            with trio.fail_after(10), pytest.raises(Broken, match="was lost"):
                await space.stage(KEY, for_ever)


async def test_values_that_came_one_by_one_are_stored_together(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet()
        each = [p.Values(1, n, (("assert", Record("n", n)),), 0) for n in range(40)]
        await wire.say(offer(1), *each, p.Done(1))
        while await wire.hear() != p.Done(1):
            pass
        statistics = daemon.hosted.leading.staging.statistics()
        assert statistics.parts < 10, "not one for each packet"
        parts: list[Any] = [unpack(part) for part in await daemon.hosted.leading.staging.staged([KEY])]
        assert [each for part in parts for each in part] == [("assert", Record("n", n)) for n in range(40)]
