"""Dataspaces of one daemon share the process alone: facts, epochs, logs, leases and rules are their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import ProtocolError, Record, Refused
from dataspace.client.bulk.client import BulkClient
from dataspace.kernel.limits import SpaceLimits
from dataspace.wire import packets as p
from index.values.values import Map
from server.config.hosted import HostedActor
from server.config.model import Config, SpaceConfig
from server.config.rules import RuleText
from server.daemon.serve import serve
from tests.server.peers import Peer, fact, hello, opening, turn

ROGUES = "tests.server.rogues"


def _config(data: Path) -> Config:
    return Config(
        listen=("tcp:127.0.0.1:0",),
        data=data,
        rules=(RuleText("here", "here($x) <- p($x)."),),
        spaces=(
            SpaceConfig("orders", data / "spaces" / "orders", rules=(RuleText("r", "there($x) <- p($x)."),)),
            SpaceConfig("small", data / "spaces" / "small", limits=SpaceLimits(facts=2)),
        ),
        actors=(HostedActor(f"{ROGUES}:echo", name="echo", space="orders"),),
    )


async def started(nursery: trio.Nursery, data: Path) -> str:
    addresses = await nursery.start(serve, _config(data))
    return str(addresses[0])


@pytest.fixture
async def url(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[str]:
    yield await started(nursery, tmp_path)


async def test_what_is_said_in_one_is_not_heard_in_another(url: str) -> None:
    with trio.fail_after(20):
        async with dataspace.connect(url) as main, dataspace.connect(url, space="orders") as orders:
            await main.assert_(Record("p", 1))
            await orders.assert_(Record("p", 2))
            assert await main.matches("p($n)") == [(1,)]
            assert await orders.matches("p($n)") == [(2,)]
            assert (await main.matches("here($n)"), await main.matches("there($n)")) == ([(1,)], [])
            assert (await orders.matches("here($n)"), await orders.matches("there($n)")) == ([], [(2,)])
            assert main.welcome is not None and orders.welcome is not None
            assert main.welcome.space != orders.welcome.space


async def test_an_actor_lives_in_the_space_that_it_names(url: str) -> None:
    with trio.fail_after(20):
        async with dataspace.connect(url, space="orders") as orders, dataspace.connect(url) as main:
            async with orders.observe("Observe(say(_))", quiet=True) as interests:
                async for _ in interests:
                    break
            async with orders.observe("echo($what)", quiet=True) as echoes:
                await orders.send(Record("say", "hello"))
                async for change in echoes:
                    assert change.captures == ("hello",)
                    break
            assert await main.matches("Observe(say(_))") == []


async def test_each_has_its_own_limits_leases_and_status(url: str) -> None:
    with trio.fail_after(20):
        async with dataspace.connect(url, space="small", lease=30.0) as small:
            await small.assert_(Record("one"))
            with pytest.raises(Refused, match=r"the limit is limits\.facts=2"):
                async with small.turn() as many:
                    many.assert_(Record("two"))
                    many.assert_(Record("three"))
            told = await small.status()
            assert (told["space"], told["leases"], told["facts"]) == ("small", 1, 1)
            assert isinstance(told["spaces"], Map) and list(told["spaces"]) == ["main", "orders", "small"]
        async with dataspace.connect(url) as main:
            assert (await main.status())["leases"] == 0


async def test_a_log_and_links_are_of_one_space(url: str) -> None:
    async with dataspace.connect(url, space="orders", owner="keeper") as orders:
        await orders.assert_(Record("q", 1))

    def read() -> tuple[list[object], list[object]]:
        found: list[list[object]] = []
        for space in ("orders", "main"):
            with BulkClient(url, space=space) as link:
                upto = link.frontier().epoch
                found.append(
                    [
                        row
                        for each in link.changes(Record("q", Record("_")), after=0, upto=upto)
                        for row in each.added
                    ]
                )
        return found[0], found[1]

    assert await trio.to_thread.run_sync(read) == ([()], [])


async def test_a_space_that_is_none_and_one_of_another_session_are_refused(url: str) -> None:
    with trio.fail_after(20):
        with pytest.raises(
            ProtocolError, match="no-space: no space named 'nowhere', there is 'main', 'orders'"
        ):
            async with dataspace.connect(url, space="nowhere"):
                pass
        async with Peer(url) as peer:
            await peer.say(hello())
            await peer.hear()
            await peer.say(turn(1, (2, "x"), space="orders"), turn(2, (2, "x"), space="nowhere"))
            first, second = await peer.hear(), await peer.hear()
            assert "this session is about space 'main'" in str(first)
            assert "no space named 'nowhere'" in str(second)


async def test_what_is_durable_comes_back_where_it_was(tmp_path: Path) -> None:
    with trio.fail_after(20):
        for expected in ([], [(1,)]):
            async with trio.open_nursery() as nursery:
                url = await started(nursery, tmp_path)
                async with dataspace.connect(url, space="orders", owner="keeper") as orders:
                    assert await orders.matches("kept($n)") == expected
                    if not expected:
                        await orders.assert_(Record("kept", 1))
                async with dataspace.connect(url) as main:
                    assert await main.matches("kept($n)") == []
                nursery.cancel_scope.cancel()
    assert (tmp_path / "spaces" / "orders").is_dir()


async def test_a_stream_without_a_space_is_about_the_session_s(nursery: trio.Nursery, tmp_path: Path) -> None:
    async with Peer(await started(nursery, tmp_path)) as peer:
        await peer.say(hello()._replace(features=Map({"space": "orders"})))
        await peer.say(
            opening(1), p.Open(2, Map({"kind": "consume", "group": "g", "pattern": fact(1)}), 1, 1)
        )
        with trio.fail_after(10):
            while not isinstance(packet := await peer.hear(), p.Values | p.Error):
                pass
        assert isinstance(packet, p.Values), packet
