"""A durable topic outlives its publishers, its subscribers' lines, and the daemon: nothing twice, no gap."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

import dataspace
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.topics import topic_acknowledge, topic_epochs, topic_frontier, topic_number
from dataspace.client.completed import CompletedEpoch, TopicFrontier
from dataspace.client.subscriptions import Subscription
from dataspace.codec import pack
from dataspace.errors import Broken, Refused
from dataspace.topics import messages as forms
from dataspace.topics.epochs import TopicEpoch
from dataspace.wire import packets as p
from index.values.values import Map
from relay.journal.reader import JournalReader
from server.config.model import Config
from server.daemon.serve import serve
from server.topics.catalogue import TopicEntry
from server.topics.durable import DurableTopics
from server.topics.following import TopicConnection
from tests.server.peers import Peer
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy


async def take(subscription: Subscription, count: int) -> list[TopicEpoch]:
    with trio.fail_after(10):
        return [await anext(subscription) for _ in range(count)]


@asynccontextmanager
async def daemon_at(path: Path) -> AsyncIterator[str]:
    """A daemon in this process, which ends in good order."""
    async with trio.open_nursery() as nursery:
        config = Config(listen=("tcp:127.0.0.1:0",), data=path)
        addresses = await nursery.start(serve, config)
        yield addresses[0]
        nursery.cancel_scope.cancel()


async def publish(url: str, values: range, **options: object) -> None:
    """Each value an epoch of its own."""
    async with dataspace.connect(url) as space, space.publish("t", durable=True, **options) as topic:  # type: ignore[arg-type]
        for value in values:
            assert isinstance(topic.time, int)
            await topic.send(value)
            await topic.advance(topic.time + 1)


async def read(url: str, **options: int) -> list[CompletedEpoch]:
    def blocking() -> list[CompletedEpoch]:
        with BulkClient(url) as link:
            known = topic_frontier(link, "t")
            asked = {"after": known.oldest - 1, "upto": known.completed, **options}
            return list(topic_epochs(link, "t", id=known.id, **asked))

    return await trio.to_thread.run_sync(blocking)


async def frontier(url: str) -> TopicFrontier:
    def blocking() -> TopicFrontier:
        with BulkClient(url) as link:
            return topic_frontier(link, "t")

    return await trio.to_thread.run_sync(blocking)


async def test_it_waits_for_the_next_publisher(url: str) -> None:
    await publish(url, range(3))
    async with dataspace.connect(url) as space, space.subscribe("t", as_of=1) as epochs:
        assert await take(epochs, 2) == [TopicEpoch(1, (1,)), TopicEpoch(2, (2,))]
        await publish(url, range(3, 5))
        assert await take(epochs, 2) == [TopicEpoch(3, (3,)), TopicEpoch(4, (4,))]


async def test_an_orderly_end_of_the_daemon_leaves_all_as_it_was(tmp_path: Path) -> None:
    async with daemon_at(tmp_path) as url:
        await publish(url, range(5))
        before = await read(url), await frontier(url)
    async with daemon_at(tmp_path) as url:
        assert (await read(url), await frontier(url)) == before
        await publish(url, range(5, 7))
        async with dataspace.connect(url) as space, space.subscribe("t", as_of=0) as epochs:
            assert [each.items for each in await take(epochs, 7)] == [(n,) for n in range(7)]


@pytest.mark.slow
async def test_publisher_and_subscriber_go_on_over_a_daemon_that_is_killed(daemon: DaemonProcess) -> None:
    with trio.fail_after(50):
        async with (
            dataspace.connect(daemon.url) as left,
            dataspace.connect(daemon.url) as right,
            left.publish("t", durable=True, away=30) as topic,
            right.subscribe("t") as epochs,
        ):
            for n in range(301):
                await topic.send(n)
                await topic.advance(n + 1)
                if n in (100, 200):
                    daemon.kill()
                    daemon.start()
            seen = [await anext(epochs) for _ in range(300)]
    assert [(each.time, each.items, each.crashed) for each in seen] == [(n, (n,), "") for n in range(300)]


async def test_a_producer_that_may_not_be_away_is_lost_with_its_connection(url: str, proxy: Proxy) -> None:
    """Whatever has brought the next connection: it is no producer of that one."""
    async with dataspace.connect(proxy.url) as space:
        with pytest.raises(Broken, match="lost with its connection"):
            async with space.publish("t", durable=True) as topic:
                proxy.cut()
                async with space.publish("other", durable=True):
                    await topic.send(1)
                    await topic.flush()


async def test_every_reader_is_given_the_same_reason_where_two_producers_crash_in_one_epoch(url: str) -> None:
    async with (
        dataspace.connect(url) as space,
        space.publish("t", durable=True) as topic,
        space.subscribe("t", as_of=0) as epochs,
    ):
        for reason in ("first", "second"):
            with pytest.raises(ZeroDivisionError):
                async with space.publish("t", durable=True) as other:
                    await other.send(reason)
                    await other.flush()
                    raise ZeroDivisionError(reason)
        await topic.advance(1)
        (live,) = await take(epochs, 1)
    (kept,) = await read(url)
    assert live == TopicEpoch(kept.time, kept.items, kept.crashed)
    assert kept.crashed == "ZeroDivisionError: first"


async def test_a_subscription_begins_where_it_was_opened_though_its_line_breaks_at_once(
    url: str, proxy: Proxy
) -> None:
    async with (
        dataspace.connect(url) as near,
        dataspace.connect(proxy.url) as far,
        near.publish("t", durable=True) as topic,
    ):
        await topic.send(0)
        await topic.advance(1)
        async with far.subscribe("t") as epochs:
            proxy.refusing = True
            proxy.cut()
            for n in range(1, 4):
                await topic.send(n)
                await topic.advance(n + 1)
            await topic.flush()
            proxy.refusing = False
            assert await take(epochs, 3) == [TopicEpoch(n, (n,)) for n in range(1, 4)]


async def test_a_line_that_breaks_loses_and_doubles_nothing(url: str, proxy: Proxy) -> None:
    async with (
        dataspace.connect(proxy.url) as far,
        dataspace.connect(url) as near,
        far.publish("t", durable=True, away=30) as topic,
        near.subscribe("t") as epochs,
    ):
        for n in range(30):
            if n % 10 == 5:
                proxy.cut()
            await topic.send(n)
            await topic.advance(n + 1)
        assert await take(epochs, 30) == [TopicEpoch(n, (n,)) for n in range(30)]
        assert far.reconnects >= 1


async def test_steps_that_wait_for_the_line_take_of_the_window_what_they_are_on_it(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a publisher that was away often sends more than the daemon takes, and is dismissed for it."""
    arrived = 0
    hear = TopicConnection.hear

    async def counted(at: TopicConnection, packet: p.Packet) -> None:
        nonlocal arrived
        arrived += at._peer.door.size
        await hear(at, packet)

    monkeypatch.setattr(TopicConnection, "hear", counted)
    async with dataspace.connect(proxy.url) as far, far.publish("t", durable=True, away=30) as topic:
        for first in (0, 1000):
            proxy.refusing = True
            proxy.cut()
            for time in range(first, first + 1000):
                await topic.advance(time + 1)
            before, arrived = topic._size, 0
            proxy.refusing = False
            await topic.flush()
            assert 10_000 < arrived <= before
            assert topic._size == 0


@pytest.mark.parametrize("then", ["flush", "send", "leave"])
async def test_a_refusal_is_raised_though_the_line_breaks_before_the_next_call(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Else what follows the refused step is sent as if that had been taken (life 72223)."""
    full = False

    def check_room(_: DurableTopics) -> None:
        if full:
            raise Refused("disk-full", "durable topics take nothing: the disk is full")

    monkeypatch.setattr(DurableTopics, "check_room", check_room)
    async with dataspace.connect(proxy.url) as far, dataspace.connect(url) as near:
        with pytest.raises(Refused, match="disk-full"):
            async with far.publish("t", durable=True, name="me", away=30) as topic:
                await topic.send(1)
                await topic.flush()
                full = True
                await topic.send(2)
                while not topic._unanswered[-1].is_settled:  # noqa: ASYNC110  no event tells
                    await trio.sleep(0.001)
                full = False
                topic._say((forms.FINISH, 0, pack((3,)), ((0, -1), (5, 1))))  # as if it had been sent with it
                while not all(each.is_settled for each in topic._unanswered):  # noqa: ASYNC110  as above
                    await trio.sleep(0.001)
                proxy.cut()
                while not far.reconnects:  # noqa: ASYNC110  as above
                    await trio.sleep(0.001)
                await frontier(url)
                if then == "flush":
                    await topic.flush()
                elif then == "send":
                    await topic.send(4)
        async with far.publish("t", durable=True, name="me", away=30) as again:
            assert again.time == 0, "it goes on from where the daemon has it"
            await again.finish(2, 3, then=5)
            await again.flush()
            assert [each.items async for each in near.completed("t")] == [(1, 2, 3)]


async def test_a_publisher_that_does_not_come_back_has_crashed(url: str, proxy: Proxy) -> None:
    async with dataspace.connect(url) as near, dataspace.connect(proxy.url) as far:
        with pytest.raises(Refused, match="has crashed"):
            async with far.publish("t", durable=True, away=0.2) as topic, near.subscribe("t") as epochs:
                await topic.send("half")
                await topic.flush()
                proxy.refusing = True
                proxy.cut()
                (epoch,) = await take(epochs, 1)
                assert (epoch.items, epoch.crashed) == (("half",), "it did not come back within 0.2 s")
                proxy.refusing = False
                await topic.send("other half")
                await topic.flush()


async def test_another_process_takes_up_what_a_name_held(tmp_path: Path) -> None:
    async with daemon_at(tmp_path) as url, Peer(url) as peer:
        await peer.greet("~meter")
        asked = Map({"topic": "t", "durable": True, "name": "meter", "away": 60_000})
        await peer.say(p.Request(1, "join", asked))
        answer = await peer.hear()
        assert isinstance(answer, p.Answer) and isinstance(answer.value, Map)
        held = (forms.CHANGE, ((0, -1), (4, +1), (7, +1)))
        await peer.say(p.Produce(2, answer.value["producer"], (held, (forms.SEND, 4, pack(("a",))))))  # type: ignore[arg-type]
        assert await peer.hear() == p.Answer(2, None)
        peer.reset()
    async with (
        daemon_at(tmp_path) as url,
        dataspace.connect(url) as space,
        space.subscribe("t", as_of=4) as got,
    ):
        async with space.publish("t", durable=True, name="meter", away=60) as topic:
            assert (topic.time, [each.time for each in topic.capabilities]) == (4, [7])
            await topic.send("b")
            await topic.release()
            assert await take(got, 1) == [TopicEpoch(4, ("a", "b"))]
            await topic.capabilities[0].release()


async def test_a_successor_is_told_what_was_sent_of_epochs_that_are_open(tmp_path: Path) -> None:
    options: dict[str, Any] = {"durable": True, "name": "meter", "away": 60}
    async with daemon_at(tmp_path) as url, dataspace.connect(url) as space, dataspace.connect(url) as other:
        with pytest.raises(Refused, match="no-producer"):
            async with space.publish("t", **options) as topic:
                assert topic.sent == {}
                await topic.finish("whole", then=5)
                await topic.send("a", "b")
                await topic.send("c")
                await topic.send("d", at=9)
                await topic.flush()
                async with other.publish("t", **options) as taken:
                    assert (taken.time, taken.sent) == (5, {5: 2, 9: 1})
                    await topic.send("too late")
    async with daemon_at(tmp_path) as url:
        found = [(each.time, each.items) for each in await read(url)]
        assert found == [(0, ("whole",)), (5, ("a", "b", "c")), (9, ("d",))]


@pytest.mark.slow
async def test_successors_that_finish_epochs_repeat_and_miss_none(url: str, proxy: Proxy) -> None:
    """Each is cut off at any moment, with steps unanswered, and knows nothing of the one before."""
    random, last, starts = Random(5), 200, 0

    async def publish_the_rest() -> None:
        async with (
            dataspace.connect(proxy.url, reconnect=False) as space,
            space.publish("t", durable=True, name="meter", away=60) as topic,
        ):
            while (time := topic.time) != last:
                assert isinstance(time, int)
                await topic.finish(time, f"{time}", then=time + 1)

    with trio.fail_after(60):
        while True:
            proxy.cuts.append((random.randrange(300, 3_000), random.randrange(500, 1_000)))
            starts += 1
            try:
                await publish_the_rest()
                break
            except (Broken, OSError):
                pass  # as a process that was killed
    assert starts > 3
    found = await read(url)
    assert [(each.time, each.items) for each in found] == [(n, (n, f"{n}")) for n in range(last)]


async def test_completed_epochs_are_the_same_each_time(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with (
            space.publish("t", durable=True, partitions=2, dimensions=2) as left,
            space.publish("t", durable=True, partitions=2, dimensions=2, partition=1) as right,
        ):
            await left.send("a", at=(0, 1))
            await right.send("b", "c", at=(1, 0))
            await right.send("d", at=(0, 1))
            await left.advance((1, 1))
            await right.advance((1, 1))
        (first, second) = await read(url)
        assert (first, second) == (
            CompletedEpoch(1, (0, 1), ("a", "d")),
            CompletedEpoch(2, (1, 0), ("b", "c")),
        )
        assert await read(url, after=1) == [second]
        with pytest.raises(Refused, match="still to come, the newest is 2"):
            await read(url, upto=3)


async def test_a_place_can_be_found_by_time_and_waited_for(url: str, nursery: trio.Nursery) -> None:
    await publish(url, range(5), time=10)

    def blocking() -> tuple[list[int], int]:
        with BulkClient(url) as link:
            known = topic_frontier(link, "t")
            found = [topic_number(link, "t", id=known.id, time=time) for time in (0, 10, 12, 99)]
            started.set()
            return found, topic_frontier(link, "t", after=known.completed, timeout=10).completed

    import threading

    started = threading.Event()

    async def later() -> None:
        await trio.to_thread.run_sync(started.wait)
        await publish(url, range(1))

    nursery.start_soon(later)
    with trio.fail_after(10):
        assert await trio.to_thread.run_sync(blocking) == ([0, 0, 2, 5], 6)


async def test_what_is_beyond_its_bytes_goes_and_is_refused(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.publish("t", durable=True, retain=20_000) as topic:
            for n in range(100):
                await topic.send(b"x" * 1000)
                await topic.advance(n + 1)
        known = await frontier(url)
        assert known.completed == 100
        while known.oldest <= 75 or known != await frontier(url):  # what goes goes behind the acknowledgement
            await trio.sleep(0.05)
            known = await frontier(url)
        assert known.oldest <= 95
        assert [each.number for each in await read(url)] == list(range(known.oldest, 101))
        with pytest.raises(Refused, match=f"the oldest is {known.oldest}"):
            await read(url, after=1)
        with pytest.raises(Refused, match="time 1 is gone"):
            async with space.subscribe("t", as_of=1) as epochs:
                await take(epochs, 1)
        async with space.subscribe("t", as_of=known.oldest - 1) as epochs:
            assert [each.time for each in await take(epochs, 3)] == [known.oldest + n - 1 for n in range(3)]


@pytest.mark.slow
async def test_what_is_left_of_a_long_past_can_be_had_after_a_restart(tmp_path: Path) -> None:
    """Of a past with places to begin at, of which the oldest have gone, and nothing of it is in memory."""
    async with daemon_at(tmp_path) as url, dataspace.connect(url) as space:
        async with space.publish("t", durable=True, retain=50_000) as topic:
            for n in range(600):
                await topic.send(b"x" * 200)
                await topic.advance(n + 1)
                if n == 300:
                    await topic.flush()
    async with daemon_at(tmp_path) as url, dataspace.connect(url) as space:
        known = await frontier(url)
        assert known.completed == 600 and known.oldest > 256
        async with space.subscribe("t", as_of=known.oldest - 1) as epochs:
            assert [each.time for each in await take(epochs, 3)] == [known.oldest + n - 1 for n in range(3)]


async def test_a_large_epoch_is_read_in_pieces(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with (
            space.publish("t", durable=True, partitions=2) as left,
            space.publish("t", durable=True, partitions=2, partition=1) as right,
        ):
            for n in range(40):
                await left.send(("left", n, b"x" * 60_000))
                await right.send(("right", n, b"x" * 60_000))
        (epoch,) = await read(url)
        assert [item[:2] for item in epoch.items if isinstance(item, tuple)] == [
            (side, n) for side in ("left", "right") for n in range(40)
        ]


async def test_a_reader_by_name_holds_back_what_age_would_let_go(tmp_path: Path) -> None:
    async with daemon_at(tmp_path) as url:
        await publish(url, range(5), age=0.001)
        known = await frontier(url)

        def acknowledge(number: int) -> None:
            with BulkClient(url) as link:
                topic_acknowledge(link, "report", "t", id=known.id, number=number)

        await trio.to_thread.run_sync(acknowledge, 2)
        with trio.fail_after(20):
            while (await frontier(url)).oldest < 3:  # noqa: ASYNC110  # it happens in the daemon
                await trio.sleep(0.1)
        assert [each.number for each in await read(url)] == [3, 4, 5]


async def test_a_subscriber_that_leaves_while_the_past_is_read_is_no_subscriber_afterwards(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread reads the past, and is waited for to its end."""
    await publish(url, range(3))
    reading, going, read_past = trio.Event(), threading.Event(), DurableTopics.read_past
    token, counts = trio.lowlevel.current_trio_token(), list[object]()

    def beginning(self: JournalReader, *of: int) -> int:
        token.run_sync_soon(reading.set)
        assert going.wait(10)
        return begin(self, *of)

    async def noted(self: DurableTopics, entry: TopicEntry, *more: Any) -> None:
        counts.append(entry.topic.statistics())
        try:
            await read_past(self, entry, *more)
        finally:
            counts.append(entry.topic.statistics())
            ended.set()

    begin, ended = JournalReader.beginning, trio.Event()
    monkeypatch.setattr(JournalReader, "beginning", beginning)
    monkeypatch.setattr(DurableTopics, "read_past", noted)
    with trio.fail_after(20):
        async with Peer(url) as peer:
            await peer.greet()
            await peer.say(p.Open(1, Map({"kind": "topic", "topic": "t", "as_of": (0,)}), 9, 1 << 20))
            await reading.wait()
            await peer.say(p.Abort(1, "", True))
            while not isinstance(await peer.hear(), p.Done):
                pass
            going.set()
            await ended.wait()
    assert counts[0] == counts[1]


async def test_it_ends_when_told_by_its_maker_or_once_nobody_publishes(url: str) -> None:
    async with dataspace.connect(url) as maker, dataspace.connect(url) as other:
        async with maker.publish("t", durable=True) as topic, other.subscribe("t") as epochs:
            await topic.send("x")
            await topic.flush()
            with pytest.raises(Refused, match="belongs to session"):
                await other.end_topic("t")
        await other.end_topic("t")
        with trio.fail_after(10):
            assert [each.items async for each in epochs] == [("x",)]
        with pytest.raises(Refused, match="no topic named 't'"):
            await frontier(url)
        await publish(url, range(1))
        assert (await frontier(url)).completed == 1


async def test_a_topic_in_memory_has_no_numbers(url: str) -> None:
    async with dataspace.connect(url) as space, space.publish("t"):
        with pytest.raises(Refused, match="is not durable"):
            await frontier(url)
        with pytest.raises(Refused, match="is not durable"):
            async with space.publish("t", durable=True):
                pass


async def test_the_client_reads_by_number_too(url: str) -> None:
    await publish(url, range(4))
    async with dataspace.connect(url) as space:
        assert [each.items async for each in space.completed("t", after=1, upto=3)] == [(1,), (2,)]
        assert [each.number async for each in space.completed("t")] == [1, 2, 3, 4]
        with pytest.raises(Refused, match="still to come"):
            assert not [each async for each in space.completed("t", upto=9)]
