"""What the daemon would end a session for is refused before it is sent, and the session goes on."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import trio

import dataspace
from dataspace import ConnectionChange, Record, Refused, RemoteSpace, UsageError
from dataspace.client.bulk.client import BulkClient
from dataspace.codec import MAX_DEPTH
from dataspace.wire.outgoing import CLIENT_DEPTH
from index.values.values import Map, Value
from server.config.model import Limits
from tests.server.proxies import Proxy
from tests.server.sessions.test_connection_events import Events

Use = Callable[[RemoteSpace, Value], object]
DEPTHS = range(CLIENT_DEPTH - 12, MAX_DEPTH + 12)


def nested(levels: int, *, record: bool = True) -> Value:
    value: Value = "x"
    for _ in range(levels):
        value = Record("p", value) if record else (value,)
    return value


async def _observe(space: RemoteSpace, value: Value) -> None:
    await space.matches(Record("p", value))


async def _request(space: RemoteSpace, value: Value) -> None:
    try:
        await space.request("rules", Map({"ask": "why", "about": value, "form": "text"}))
    except Refused as refusal:
        if refusal.code != "bad-request":
            raise


async def _stage(space: RemoteSpace, value: Value) -> None:
    await space.stage(("key",), [("assert", value)])


async def _key(space: RemoteSpace, value: Value) -> None:
    try:
        await space.stage(("key", value), [])  # type: ignore[arg-type]  # on purpose
    except Refused as refusal:
        if refusal.code != "bad-request":
            raise


async def _publish(space: RemoteSpace, value: Value) -> None:
    async with space.publish("topic") as publication:
        await publication.send(value)


USES = [_observe, _request, _stage, _key, _publish]


@pytest.mark.slow
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("record", [True, False])
async def test_what_nests_too_deeply_is_refused_and_nothing_else(use: Use, record: bool, url: str) -> None:
    refused = []
    async with dataspace.connect(url) as space:
        for levels in DEPTHS:
            try:
                await use(space, nested(levels, record=record))  # type: ignore[misc]  # awaitable
            except (Refused, UsageError) as refusal:  # the latter for what no program packs
                assert re.search("limit: .* nested deeper|nested deeper than 64", str(refusal)), refusal
                refused.append(levels)
        await space.sync()
        assert space.reconnects == 0
    assert refused and refused == list(range(refused[0], DEPTHS[-1] + 1)), "from one depth on, all"


@pytest.mark.parametrize("limits", [Limits(frame_bytes=1 << 16)])
@pytest.mark.parametrize("use", USES)
async def test_what_is_too_large_is_refused_and_nothing_else(use: Use, url: str) -> None:
    async with dataspace.connect(url) as space:
        await use(space, "x" * 1000)  # type: ignore[misc]  # awaitable
        with pytest.raises(Refused, match=r"limits\.frame_bytes"):
            await use(space, "x" * 70_000)  # type: ignore[misc]  # awaitable
        await space.sync()
        assert space.reconnects == 0


@pytest.mark.parametrize("limits", [Limits(frame_elements=1 << 10)])
@pytest.mark.parametrize("use", [_observe, _request, _stage])
async def test_what_has_too_many_elements_is_refused_and_nothing_else(use: Use, url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match="elements"):
            await use(space, tuple(range(2000)))  # type: ignore[misc]  # awaitable
        await space.sync()
        assert space.reconnects == 0


async def test_a_bulk_client_refuses_the_same(url: str) -> None:
    def read() -> None:
        with BulkClient(url) as link:
            for levels in DEPTHS[len(DEPTHS) // 2 :]:
                with pytest.raises((Refused, UsageError), match="nested deeper"):
                    list(link.changes(nested(levels), upto=1))
                with pytest.raises((Refused, UsageError), match="nested deeper"):
                    link.request("status", {"about": nested(levels)})
            assert link.frontier().epoch >= 0

    await trio.to_thread.run_sync(read)


async def test_a_stream_that_was_opened_while_the_connection_was_lost_fails_alone(proxy: Proxy) -> None:
    events = Events()
    async with dataspace.connect(proxy.url, on_connection=events) as space:
        good = space.observe("a($n)", quiet=True)
        await good.next_epoch()
        proxy.refusing = True
        proxy.cut()
        while (await events.take()).change is not ConnectionChange.LOST:
            pass
        bad = space.observe(Record("p", nested(60)), quiet=True)
        bad.open()
        proxy.refusing = False
        with trio.fail_after(10), pytest.raises(Refused, match="limit"):
            await bad.next_epoch()
        await space.assert_(Record("a", 1))
        assert [await anext(aiter(good))][0].captures == (1,)
        assert space.reconnects == 1
