"""A daemon that does not reach its store is asked again: each kind of stream, each safe request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

import dataspace
from dataspace import Record, RemoteSpace
from dataspace.errors import Refused, Unreachable
from dataspace.wire import packets as p
from dataspace.wire.verbs import VERBS, is_of_daemon, repetition
from index.values.values import Map
from tests.server.relays import Relay

pytestmark = pytest.mark.slow

SOON = 30


class Away(Relay):
    """Says of each stream and request that the store is away, as often as ``times`` says."""

    times = 0

    def _answer(self, packet: p.Packet) -> p.Packet | None:
        said = (p.STORE_AWAY, "the database is not reached")
        match packet:
            case p.Open(stream) if self.times:
                self.times -= 1
                return p.Error(stream, *said)
            case p.Request(number) if self.times:
                self.times -= 1
                return p.Denied(number, *said)
        return None


@asynccontextmanager
async def away(url: str, timeout: float | None = None) -> AsyncIterator[tuple[RemoteSpace, Away]]:
    async with trio.open_nursery() as nursery:
        relay = Away(url, "passes", url)
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, relay.serve, [listener])
        place = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
        with trio.fail_after(SOON):
            async with dataspace.connect(place, timeout=timeout) as space:
                yield space, relay
        nursery.cancel_scope.cancel()


STREAMS: list[dict[str, object]] = [
    {},
    {"quiet": True},
    {"policy": "wait"},
    {"durable": True, "after": 0},
    {"after": 0},
    {"as_of": 1},
]


@pytest.mark.parametrize("options", STREAMS, ids=str)
async def test_an_observation_goes_on(url: str, options: dict[str, object]) -> None:
    async with away(url) as (space, relay):
        await space.assert_(Record("n", 1))
        relay.times = 3
        async with space.observe("n($i)", **options) as seen:  # type: ignore[call-overload]  # of each kind
            await space.assert_(Record("n", 2))
            found = set()
            async for change in seen:
                found |= {change.captures} - {()}
                if found == {(1,), (2,)}:
                    break
        assert relay.times == 0


async def test_a_subscription_goes_on(url: str) -> None:
    async with away(url) as (space, relay), space.publish("t", durable=True) as publication:
        relay.times = 3
        async with space.subscribe("t", as_of=0) as epochs:
            await publication.finish("item", then=1)
            assert (await epochs.__anext__()).time == 0
        assert relay.times == 0


async def test_a_request_that_is_safe_is_asked_again_and_any_other_says_why(url: str) -> None:
    """The law, over all verbs: what is refused otherwise was asked again as well."""
    async with away(url) as (space, relay):
        for verb in [verb for verb in VERBS if not is_of_daemon(verb)]:  # those need no store
            relay.times, code = 2, ""
            try:
                await space.request(verb, Map({"no such argument": 1}))
            except Refused as refusal:
                code = refusal.code
            is_safe = repetition(verb, Map({})).is_safe
            assert (code == p.STORE_AWAY, relay.times) == (not is_safe, 0 if is_safe else 1), verb


async def test_a_call_waits_for_a_store_no_longer_than_its_timeout(url: str) -> None:
    async with away(url, timeout=0.5) as (space, relay):
        relay.times = 1000
        with pytest.raises(Unreachable, match=r"has not answered for 0.5 s: .*the database is not reached"):
            await space.sync()
        relay.times = 0
