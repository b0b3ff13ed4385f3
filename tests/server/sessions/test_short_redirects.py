"""A client without an event loop finds the daemon that serves it among several, and goes where it is sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
import trio

from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.short import ShortClient
from dataspace.errors import Broken, ProtocolError, Unreachable, UsageError
from dataspace.kernel.actions import SEND
from index.patterns.patterns import capture
from index.values.values import Record
from tests.server.peers import fact
from tests.server.relays import relay

DOWN = "tcp://127.0.0.1:9"
FACTS = Record("fact", capture("n"))
SOON = 30
T = TypeVar("T")


async def there(work: Callable[[], T]) -> T:
    with trio.fail_after(SOON):
        return await trio.to_thread.run_sync(work)


def commits(*urls: str) -> int:
    with ShortClient(urls) as space:
        return space.commit([(SEND, fact(1))])


def publishes(*urls: str) -> int:
    with BulkClient(urls) as link:
        link.stage(("k",), [("assert", fact(1))])
        return link.publish([("k",)], client="c", sequence=1, owner="it")


def looks(*urls: str) -> int:
    with ShortClient(urls, read="any") as space:
        return len(space.state(FACTS).added)


@pytest.mark.parametrize("work", [commits, publishes])
@pytest.mark.parametrize("first", ["down", "sends", "loops", "itself"])
async def test_writes_reach_the_daemon_that_leads(url: str, work: Callable[..., int], first: str) -> None:
    async with relay(url, "hello") as follower, relay(url, "hello") as other:
        if first == "itself":
            follower.said = ("elsewhere", "", follower.here)
        if first == "loops":
            follower.said, other.said = ("elsewhere", "", other.here), ("elsewhere", "", follower.here)
        urls = {
            "down": [DOWN, url],
            "sends": [follower.here],
            "loops": [follower.here, other.here, url],
            "itself": [follower.here, url],
        }[first]
        assert await there(partial(work, *urls)) > 0
        assert len(follower.hellos) <= 4


async def test_reads_are_served_by_a_follower(url: str) -> None:
    async with relay(url, "hello") as follower:
        await there(partial(publishes, url))
        assert await there(partial(looks, follower.here)) == 1
        assert len(follower.hellos) == 1 and not follower.refused


async def test_any_address_is_read_from(url: str) -> None:
    async with relay(url, "hello") as one, relay(url, "hello") as two:
        for _ in range(40):
            await there(partial(looks, one.here, two.here, DOWN))
        assert len(one.hellos) > 5 and len(two.hellos) > 5


@pytest.mark.parametrize("code", ["elsewhere", "no-leader"])
async def test_no_leader_is_waited_for_and_then_named(
    url: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataspace.client.bulk.client.LEADER_SECONDS", 0.5)
    async with relay(url, "hello", code=code) as follower:
        follower.said = (code, "nobody leads", "")
        with pytest.raises(ProtocolError, match="nobody leads"):
            await there(partial(commits, follower.here))
        assert 2 <= len(follower.hellos) <= 8
        async with trio.open_nursery() as nursery:
            nursery.start_soon(there, partial(commits, follower.here))
            await trio.sleep(0.2)
            follower.way = "passes"


async def test_the_error_names_all_addresses() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9 .*127\.0\.0\.1:11 "):
        await there(partial(commits, DOWN, "tcp://127.0.0.1:11"))


@pytest.mark.parametrize("work", [commits, publishes])
async def test_a_daemon_that_refuses_later_sends_the_client_on(url: str, work: Callable[..., int]) -> None:
    async with relay(url, "asked") as follower:
        assert await there(partial(work, follower.here)) > 0
        assert follower.refused == len(follower.hellos) == 1


@pytest.mark.parametrize("work", [commits, publishes])
async def test_daemons_that_send_to_one_another_are_given_up(url: str, work: Callable[..., int]) -> None:
    async with relay(url, "asked") as one, relay(url, "asked") as two:
        one.said, two.said = ("elsewhere", "", two.here), ("elsewhere", "", one.here)
        with pytest.raises(Broken, match="elsewhere"):
            await there(partial(work, one.here))
        assert len(one.hellos) + len(two.hellos) <= 5


def test_where_to_read_is_one_of_two() -> None:
    with pytest.raises(UsageError, match="leader, any"):
        BulkClient(DOWN, read="followers")
