"""Topics are led with ``main``; a client of a space that another daemon leads uses them all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.session.events import ConnectionChange
from dataspace.errors import Broken, Refused, Unreachable
from dataspace.wire.packets import TOPICS_ELSEWHERE
from index.values.values import Map
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SOON = 240
LEASE = "DATASPACE_SERVE_CLUSTER_LEASE"


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DaemonProcess]]:
    """``one`` leads ``main``, and ``two`` the space ``b``, once it has it."""
    monkeypatch.setenv(LEASE, "8s")
    found = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'cluster.name = "{name}"\n[spaces.b]\nprefer = "two"\n')
        found.append(DaemonProcess(postgres_url, "--config", str(path)))
    with running(*found):
        yield found


async def led_apart(pair: list[DaemonProcess]) -> None:
    """Returns once the two spaces have two leaders."""
    one = pair[0]
    while True:
        with suppress(Broken, Unreachable):
            async with dataspace.connect(one.url, space="system", read="leader") as system:
                rows = await system.matches("leader($space, $name, _, _, _)")
            said = {tuple(each) for each in rows} == {("main", "one"), ("b", "two")}
            if said and await leads(one, "main") and await leads(pair[1], "b"):
                return  # what is said of a leader may come before it leads
        await trio.sleep(0.05)


async def leads(daemon: DaemonProcess, space: str) -> bool:
    """True if a daemon leads a space itself."""
    async with dataspace.connect(daemon.url, space=space, read="leader") as asked:
        told = await asked.status()
    return told["leads"] is True and told["process"] == daemon.process.pid


async def leader(space: dataspace.RemoteSpace) -> object:
    return (await space.status())["process"]


async def test_where_no_daemon_answers_a_first_use_of_a_topic_raises_that(pair: list[DaemonProcess]) -> None:
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with dataspace.connect(pair[1].url, space="b") as b:
            for each in pair:
                each.kill()
            for _ in range(2):
                with pytest.raises((Broken, Unreachable)):
                    async with b.subscribe("t"):
                        pass
                with pytest.raises((Broken, Unreachable)):
                    async with b.publish("t"):
                        pass


@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "durable"])
async def test_a_session_of_another_space_publishes_and_subscribes_and_stays(
    pair: list[DaemonProcess], durable: bool
) -> None:
    one, two = pair
    lost: list[object] = []
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with (
            dataspace.connect(two.url, space="b", on_connection=lambda event: lost.append(event.change)) as b,
            dataspace.connect(one.url) as main,
        ):
            await b.assert_(Record("here", 1))
            async with b.publish("t", durable=durable) as topic:
                async with b.subscribe("t") as seen, main.subscribe("t") as beside:
                    await topic.send(Record("item", 1))
                    await topic.advance(1)
                    for each in (seen, beside):
                        epoch = await each.next_epoch()
                        assert epoch is not None and epoch.items == (Record("item", 1),), "it is one topic"
            if durable:
                assert [each.items async for each in b.completed("t")] == [(Record("item", 1),)]
                await b.end_topic("t")
            await b.assert_(Record("here", 2))
            assert await leader(b) == two.process.pid and await leader(main) == one.process.pid
            assert lost == [ConnectionChange.CONNECTED], "the session has not moved"


async def test_topics_of_a_session_outlive_a_failover_of_their_leader(pair: list[DaemonProcess]) -> None:
    one, two = pair
    urls = [each.url for each in pair]
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with (
            dataspace.connect(urls, space="b") as b,
            b.publish("t", durable=True, name="meter", away=120) as topic,
            b.subscribe("t") as seen,
        ):
            for number in range(3):
                await topic.send(Record("item", number))
                await topic.advance(number + 1)
                epoch = await seen.next_epoch()
                assert epoch is not None and epoch.items == (Record("item", number),)
                if number == 1:
                    await trio.to_thread.run_sync(one.kill)
            await b.assert_(Record("here", 1))
            assert await leader(b) == two.process.pid


async def test_a_session_that_cannot_go_for_topics_learns_where_they_are(pair: list[DaemonProcess]) -> None:
    """As a client of JavaScript has it; its turns go on."""
    one, two = pair
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with dataspace.connect(two.url, space="b") as b:
            for verb, topic in (("join", "t"), ("lookup", "t"), ("end-topic", "t")):
                with pytest.raises(Refused) as refused:
                    await b.request(verb, Map({"topic": topic}))
                assert (refused.value.code, refused.value.url) == (TOPICS_ELSEWHERE, one.url)
            await b.assert_(Record("here", 1))
            assert await leader(b) == two.process.pid


def test_blocking_clients_and_those_under_asyncio_do_the_same(pair: list[DaemonProcess]) -> None:
    two = pair[1]
    trio.run(led_apart, pair)
    asyncio.run(under_asyncio(two.url))
    with dataspace.connect_blocking(two.url, space="b", timeout=SOON) as b:
        with b.publish("t", retain=1 << 16) as topic:
            topic.send(Record("item", 1))
            topic.advance(1)
            with b.subscribe("t", as_of=0) as seen:
                assert next(iter(seen)).items == (Record("item", 1),)
        b.assert_(Record("here", 1))


async def under_asyncio(url: str) -> None:
    async with (
        dataspace.connect(url, space="b", timeout=SOON) as b,
        b.publish("u", retain=1 << 16) as topic,
    ):
        await topic.send(Record("item", 1))
        await topic.advance(1)
        async with b.subscribe("u", as_of=0) as seen:
            epoch = await seen.next_epoch()
        assert epoch is not None and epoch.items == (Record("item", 1),)
        await b.assert_(Record("here", 1))


async def test_with_one_daemon_topics_need_no_further_connection(tmp_path: Path) -> None:
    path = tmp_path / "daemon.toml"
    path.write_text("[spaces.b]\n")
    daemon = DaemonProcess(tmp_path / "data", "--config", str(path))
    with running(daemon), trio.fail_after(SOON):
        async with dataspace.connect(daemon.url, space="b") as b, b.publish("t") as topic:
            await topic.send(1)
            assert (await b.status())["sessions"] == 1
