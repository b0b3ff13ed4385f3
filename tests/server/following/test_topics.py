"""A follower tells the subscriber of a durable topic the same as the leader does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Map, Record
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.topics import topic_epochs, topic_frontier
from dataspace.client.space import RemoteSpace
from dataspace.errors import Refused
from dataspace.topics import messages as forms
from dataspace.topics.messages import Batch
from dataspace.wire import packets as p
from index.values.values import Value
from relay.journal.writer import KEPT_STEPS
from tests.server.following.test_take_over import SOON
from tests.server.peers import Peer
from tests.server.processes import DaemonProcess, running, stand_by

pytestmark = pytest.mark.slow

EPOCHS = 30

Told = list[tuple[object, tuple[object, ...], str]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    daemons = DaemonProcess(tmp_path / "data"), stand_by(tmp_path / "data")
    with running(*daemons):
        yield daemons


async def known(daemon: DaemonProcess) -> None:
    """Waits until a daemon has the topic."""
    async with dataspace.connect(daemon.url, reconnect=False) as space:
        while True:
            try:
                await space.request("lookup", Map({"topic": "t"}))
                return
            except Refused as refusal:
                assert refusal.code in ("no-topic", "elsewhere", "no-leader")
                await trio.sleep(0.01)


async def told(daemon: DaemonProcess, count: int) -> Told:
    """The first epochs that a daemon tells a subscriber."""
    found: Told = []
    async with dataspace.connect(daemon.url) as space:
        async with space.subscribe("t", as_of=0, timeout=SOON) as epochs:
            async for epoch in epochs:
                found.append((epoch.time, tuple(epoch.items), epoch.crashed))
                if len(found) == count:
                    break
        assert (await space.status())["process"] == daemon.process.pid
    return found


async def publish(url: str | list[str], times: range) -> None:
    """Epochs of several calls each."""
    async with dataspace.connect(url) as space, space.publish("t", durable=True) as topic:
        for time in times:
            for n in range(3):
                await topic.send(f"{time}.{n}")
            await topic.advance(time + 1)


async def test_replay_and_live_are_what_the_leader_tells(store: tuple[DaemonProcess, DaemonProcess]) -> None:
    leader, follower = store
    with trio.fail_after(2 * SOON):
        await publish(leader.url, range(EPOCHS))
        await known(follower)
        results: dict[str, Told] = {}

        async def subscribe(name: str, daemon: DaemonProcess) -> None:
            results[name] = await told(daemon, 2 * EPOCHS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscribe, "leader", leader)
            nursery.start_soon(subscribe, "follower", follower)
            await publish(leader.url, range(EPOCHS, 2 * EPOCHS))
    assert results["leader"] == results["follower"]
    assert [time for time, _, _ in results["follower"]] == list(range(2 * EPOCHS))

    def numbers() -> list[tuple[int, object]]:
        """The epochs as Spark's tasks read them: a follower that is behind is waited for."""
        with BulkClient(leader.url) as link:
            newest = topic_frontier(link, "t")
        with BulkClient(follower.url, read="any") as link:
            found = topic_epochs(link, "t", id=newest.id, after=0, upto=newest.completed)
            return [(each.number, each.time) for each in found]

    assert await trio.to_thread.run_sync(numbers) == [(time + 1, time) for time in range(2 * EPOCHS)]


async def test_a_subscriber_of_the_stand_by_stays_connected_when_it_takes_over(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follower = store
    found: Told = []
    with trio.fail_after(2 * SOON):
        async with (
            dataspace.connect([leader.url, follower.url]) as space,
            dataspace.connect(follower.url, reconnect=False) as watcher,
            space.publish("t", durable=True, name="p", away=60) as topic,
        ):
            await known(follower)
            async with watcher.subscribe("t", as_of=0) as epochs:
                for time in range(EPOCHS):
                    if time == EPOCHS // 2:
                        await topic.send("before")
                        await topic.flush()
                        await trio.to_thread.run_sync(leader.kill)
                    await topic.send(time)
                    await topic.advance(time + 1)
                async for epoch in epochs:
                    found.append((epoch.time, tuple(epoch.items), epoch.crashed))
                    if epoch.time == EPOCHS - 1:
                        break
            assert (await space.status())["process"] == follower.process.pid
    expected: Told = [(time, (time,), "") for time in range(EPOCHS)]
    expected[EPOCHS // 2] = (EPOCHS // 2, ("before", EPOCHS // 2), "")
    assert found == expected


async def until(daemon: DaemonProcess, url: str) -> None:
    """Waits until a daemon sends clients to a leader."""
    code = ""
    async with dataspace.connect(daemon.url, reconnect=False) as space:
        while code != "elsewhere":
            with pytest.raises(Refused) as refused:
                await space.assert_(Record("x"))
            code = refused.value.code
    assert refused.value.url == url


async def test_all_that_changes_a_topic_is_sent_to_the_leader(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follower = store
    with trio.fail_after(2 * SOON):
        await publish(leader.url, range(2))
        await known(follower)
        await until(follower, leader.url)
        async with (
            dataspace.connect(leader.url) as space,
            space.publish("in memory", retain=1 << 20) as topic,
            dataspace.connect(follower.url, reconnect=False) as here,
        ):
            await topic.send(1)
            found = await here.request("lookup", Map({"topic": "t"}))
            assert isinstance(found, Map) and found["durable"] is True
            asked: list[tuple[str, dict[str, Value]]] = [
                ("join", {"topic": "t", "durable": True}),
                ("join", {"topic": "new", "durable": True}),
                ("end-topic", {"topic": "t"}),
                ("topic-acknowledge", {"topic": "t", "id": found["id"], "reader": "r", "number": 1}),
                ("lookup", {"topic": "in memory"}),
                ("topic-frontier", {"topic": "in memory"}),
                ("topic-epochs", {"topic": "t", "id": 1, "after": 0, "upto": 1}),
            ]
            for verb, arguments in asked:
                with pytest.raises(Refused) as refused:
                    await here.request(verb, Map(arguments))
                assert (refused.value.code, refused.value.url) == ("elsewhere", leader.url), verb
            with pytest.raises(Refused, match="elsewhere"):
                async with here.subscribe("in memory"):
                    pass
        async with dataspace.connect(follower.url) as space:  # which goes where it is sent
            async with space.publish("t", durable=True) as topic:
                await topic.send("there")
            assert (await space.status())["process"] == leader.process.pid


async def test_a_subscriber_that_retention_overtakes_gets_an_error_and_never_a_gap(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    """Nothing waits for it: not the publisher, and no other subscriber."""
    leader, follower = store
    item = b"x" * (1 << 20)
    with trio.fail_after(2 * SOON):
        async with (
            dataspace.connect(leader.url) as space,
            space.publish("t", durable=True, retain=2 << 20) as topic,
            Peer(follower.url) as peer,
            dataspace.connect(follower.url) as reader,
        ):
            await known(follower)
            live = reader.subscribe("t")
            await live.open()
            await peer.greet()
            for stream, as_of in ((1, ()), (2, (0,))):
                spec: dict[str, Value] = {"kind": "topic", "topic": "t", "policy": "wait"}
                await peer.say(p.Open(stream, Map(spec | ({"as_of": as_of} if as_of else {})), 1, 1))
            for time in range(EPOCHS):
                await topic.send(item)
                await topic.advance(time + 1)
                epoch = await live.next_epoch()
                assert epoch is not None and epoch.time == time
            for stream in (1, 2):
                await peer.say(p.Ask(stream, 1 << 40, 1 << 40))
            times: dict[int, list[object]] = {1: [], 2: []}
            codes: dict[int, str] = {}
            while len(codes) < 2:
                match await peer.hear():
                    case p.Values(stream, _, values, _):
                        batches = [forms.message_of(value) for value in values]
                        times[stream] += [each.time for each in batches if isinstance(each, Batch)]
                    case p.Error(stream, code):
                        codes[stream] = code
        assert codes == {1: "epoch-gone", 2: "epoch-gone"}
        for seen in times.values():
            assert 0 < len(seen) < EPOCHS and seen == list(range(len(seen)))


async def test_a_follower_that_retention_overtakes_ends_its_subscriptions_and_goes_on(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follower = store
    with trio.fail_after(2 * SOON):
        async with (
            dataspace.connect(leader.url) as space,
            space.publish("t", durable=True, retain=200_000) as topic,
            dataspace.connect(follower.url) as reader,
        ):
            await known(follower)
            epochs = reader.subscribe("t")
            await epochs.open()
            follower.process.send_signal(signal.SIGSTOP)
            for time in range(EPOCHS):
                await topic.send(b"x" * 100_000)
                await topic.advance(time + 1)
            while (await figure(space, "oldest")) < 3:  # noqa: ASYNC110  # it happens in the daemon
                await trio.sleep(0.05)
            follower.process.send_signal(signal.SIGCONT)
            with pytest.raises(Refused, match="epoch-gone"):
                await epochs.next_epoch()
            last = await figure(space, "completed")  # from there on nothing can overtake it again
            while (await figure(reader, "completed")) < last:  # noqa: ASYNC110  # it happens in the daemon
                await trio.sleep(0.05)
            async with reader.subscribe("t", as_of=EPOCHS) as later:
                await topic.send("more")
                await topic.advance(EPOCHS + 1)
                epoch = await later.next_epoch()
                assert epoch is not None and (epoch.time, epoch.items) == (EPOCHS, ("more",))


async def figure(space: RemoteSpace, name: str) -> int:
    """The ``oldest`` epoch that is retained, or how many are ``completed``."""
    known = await space.request("topic-frontier", Map({"topic": "t"}))
    assert isinstance(known, Map)
    found = known[name]
    assert isinstance(found, int)
    return found


async def test_readers_of_any_daemon_are_told_all_of_it_whichever_ends(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follower = store
    urls = [follower.url, leader.url]
    with trio.fail_after(2 * SOON):
        async with (
            dataspace.connect(urls) as space,
            space.publish("t", durable=True, name="p", away=60) as topic,
            dataspace.connect(urls, read="any") as one,
            dataspace.connect(urls, read="any") as other,
            one.subscribe("t") as some,
            other.subscribe("t") as more,
        ):
            for time in range(EPOCHS):
                await topic.send(time)
                await topic.advance(time + 1)
                for epochs in (some, more):
                    epoch = await epochs.next_epoch()
                    assert epoch is not None and (epoch.time, epoch.items) == (time, (time,))
                if time % 10 == 5:
                    await trio.to_thread.run_sync(follower.kill)
                    await trio.to_thread.run_sync(follower.start)
            assert [each.number async for each in one.completed("t", after=0)] == list(range(1, EPOCHS + 1))


async def test_a_subscriber_goes_on_where_only_steps_have_gone_that_are_of_no_epoch(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follower = store
    with trio.fail_after(2 * SOON):
        async with (
            dataspace.connect(leader.url) as space,
            space.publish("t", durable=True) as topic,
            dataspace.connect(follower.url, read="any") as reader,
        ):
            await known(follower)
            async with reader.subscribe("t", as_of=0) as epochs:
                follower.process.send_signal(signal.SIGSTOP)
                for time in range(1, KEPT_STEPS + 100):
                    await topic.advance(time)
                    if time % 100 == 0:  # so that there are several segments
                        await topic.flush()
                await topic.flush()
                follower.process.send_signal(signal.SIGCONT)
                await topic.send("first")
                await topic.advance(KEPT_STEPS + 100)
                assert (await anext(epochs)).items == ("first",)
