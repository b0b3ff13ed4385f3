"""Topics over real sockets: epochs arrive whole, whoever publishes, crashes, lags or comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

import dataspace
from dataspace.codec import pack
from dataspace.errors import Broken, Refused, UsageError
from dataspace.topics import messages as forms
from dataspace.topics.epochs import TopicEpoch, TopicEvent
from dataspace.topics.messages import Batch, Crash, Frontier, Snapshot, message_of
from dataspace.wire import packets as p
from index.values.values import Map, Record, Value
from tests.server.peers import Peer
from tests.server.proxies import Proxy


async def take(subscription: dataspace.Subscription, count: int) -> list[TopicEpoch]:
    with trio.fail_after(10):
        return [await anext(subscription) for _ in range(count)]


async def test_epochs_arrive_whole_from_two_producers(url: str) -> None:
    async with dataspace.connect(url) as a, dataspace.connect(url) as b, dataspace.connect(url) as c:
        async with (
            a.publish("t", partitions=2) as one,
            b.publish("t", partition=1, partitions=2) as two,
            c.subscribe("t") as epochs,
        ):
            await one.send("a", 1)
            await two.send(Record("b", 2), at=1)
            await one.advance(2)
            await two.send("c")
            await two.advance(2)
            assert await take(epochs, 2) == [
                TopicEpoch(0, ("a", 1, "c")),
                TopicEpoch(1, (Record("b", 2),)),
            ]
            await one.send("late", at=5)
            await one.leave()
            await two.leave()
            with trio.fail_after(10):
                assert [each async for each in epochs] == [TopicEpoch(5, ("late",))]


async def test_an_epoch_that_had_begun_is_not_seen(url: str) -> None:
    async with dataspace.connect(url) as space, space.publish("t") as topic:
        await topic.send("begun", at=1)
        await topic.flush()
        async with space.subscribe("t") as epochs, space.subscribe("t", atomic=False) as torn:
            await topic.send("missed", at=0)
            await topic.send("missed", at=1)
            await topic.send("seen", at=2)
            await topic.advance(3)
            assert await take(epochs, 1) == [TopicEpoch(2, ("seen",))]
            assert [each.time for each in await take(torn, 3)] == [0, 1, 2]


async def test_tuples_are_times_under_the_product_order(url: str) -> None:
    async with dataspace.connect(url) as space, space.publish("t", dimensions=2) as topic:
        async with space.subscribe("t") as epochs:
            left, right = await topic.hold((0, 2)), await topic.hold((2, 0))
            await topic.send("a", at=(0, 0))
            await topic.release()
            await topic.send("left", at=(1, 2))
            await topic.send("right", at=(2, 1))
            await right.release()
            assert await take(epochs, 2) == [TopicEpoch((0, 0), ("a",)), TopicEpoch((2, 1), ("right",))]
            with pytest.raises(UsageError, match="no capability for time"):
                await topic.send("over", at=(2, 0))
            await left.downgrade((2, 2))
            assert await take(epochs, 1) == [TopicEpoch((1, 2), ("left",))]


async def test_a_block_that_fails_has_crashed_and_the_group_goes_on(url: str) -> None:
    async with dataspace.connect(url) as space, space.publish("t", partitions=2) as stays:
        async with space.subscribe("t") as epochs:
            with pytest.raises(ZeroDivisionError):
                async with space.publish("t", partition=1, partitions=2) as fails:
                    await fails.send("half")
                    raise ZeroDivisionError("oops")
            await stays.send("other half")
            await stays.advance(1)
            (epoch,) = await take(epochs, 1)
            assert (epoch.items, epoch.crashed) == (("other half", "half"), "ZeroDivisionError: oops")


async def test_a_producer_that_vanishes_is_reported(url: str) -> None:
    async with dataspace.connect(url) as space, space.publish("t", partitions=2) as stays:
        async with space.subscribe("t") as epochs, Peer(url) as peer:
            producer = await joined(peer, partition=1)
            await peer.say(p.Produce(2, producer, ((forms.SEND, 4, pack(("half",))),)))
            assert await peer.hear() == p.Answer(2, None)
            peer.reset()
            await stays.advance(7)
            with trio.fail_after(10):
                events = [event async for event in upto_frontier(epochs, 7)]
            assert [(e.partition, e.since, e.epochs) for e in events if isinstance(e, Crash)] == [
                (1, (0,), (4,))
            ]


async def upto_frontier(subscription: dataspace.Subscription, time: int) -> AsyncIterator[TopicEvent]:
    async for event in subscription.events():
        yield event
        if event == Frontier((time,)):
            return


async def joined(peer: Peer, **more: int) -> int:
    await peer.greet("~producer")
    await peer.say(p.Request(1, "join", Map({"topic": "t", "partitions": 2, **more})))
    answer = await peer.hear()
    assert isinstance(answer, p.Answer) and isinstance(answer.value, Map)
    number = answer.value["producer"]
    assert isinstance(number, int)
    return number


async def test_nobody_speaks_for_a_producer_of_another(url: str) -> None:
    async with dataspace.connect(url) as owner, owner.publish("t", partitions=2) as topic:
        async with Peer(url) as thief:
            mine = await joined(thief)
            await thief.say(p.Produce(2, mine - 1, ((forms.SEND, 0, pack(())),)))
            denied = await thief.hear()
            assert isinstance(denied, p.Denied) and denied.code == "no-producer"
            await thief.say(p.Request(3, "end-topic", Map({"topic": "t"})))
            denied = await thief.hear()
            assert isinstance(denied, p.Denied) and denied.code == "not-owner"
        await topic.send("still here")
        await topic.flush()


LASTS: tuple[tuple[Value, ...], ...] = ((forms.LEAVE,), (forms.CRASH, "on purpose"))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("last", LASTS)
@pytest.mark.parametrize("after", [*LASTS, (forms.SEND, 0, pack(())), (forms.CHANGE, ((0, 1),))])
async def test_a_step_after_the_last_one_is_refused_and_the_session_goes_on(
    url: str, last: tuple[Value, ...], after: tuple[Value, ...], durable: bool
) -> None:
    async with Peer(url) as peer:
        number = await joined(peer, durable=durable)
        await peer.say(p.Produce(2, number, (last, after)), p.Ping(1))
        denied, pong = await peer.hear(), await peer.hear()
        assert isinstance(denied, p.Denied) and denied.code == "no-producer"
        assert pong == p.Pong(1)


@pytest.mark.parametrize(
    "step",
    [
        (),
        (9,),
        (forms.SEND, 0, b"\xc1"),
        (forms.SEND, "x", b"\x90"),
        (forms.CHANGE, 3),
        (forms.CHANGE, ((0,),)),
        7,
    ],
    ids=repr,
)
async def test_rubbish_ends_nobody_else(
    url: str, bystander: dataspace.RemoteSpace, step: dataspace.Value
) -> None:
    async with (
        bystander.publish("t", partitions=2) as topic,
        bystander.subscribe("t", partitions=[0]) as epochs,
    ):
        async with Peer(url) as peer:
            producer = await joined(peer, partition=1)
            await peer.say(p.Produce(2, producer, (step,)))
            answer = await peer.hear()
            assert isinstance(answer, p.Denied | p.Bye), answer
        await topic.send("x")
        await topic.advance(1)
        assert await take(epochs, 1) == [TopicEpoch(0, ("x",))]


@pytest.mark.parametrize(
    "changes", [None, (), (None,), ((0,),), ((0, "1"),), ((0, True),), (("0", 1),)], ids=repr
)
async def test_changes_that_are_none_are_refused_and_the_session_goes_on(url: str, changes: Value) -> None:
    async with Peer(url) as peer:
        producer = await joined(peer)
        for number, step in (2, (forms.CHANGE, changes)), (3, (forms.FINISH, 0, pack(()), changes)):
            await peer.say(p.Produce(number, producer, (step,)))
            answer = await peer.hear()
            if changes != ():  # which changes nothing
                assert isinstance(answer, p.Denied) and answer.code == "bad-request", answer
        await peer.say(p.Produce(4, producer, ((forms.LEAVE,),)))
        assert isinstance(await peer.hear(), p.Answer)


@pytest.mark.parametrize(
    "items", [pack(7), pack("text"), pack(Map({"a": 1})), pack(Record("r")), b"", b"\xc1", b"\x91"], ids=repr
)
async def test_items_that_no_subscriber_could_read_are_refused_and_the_session_goes_on(
    url: str, bystander: dataspace.RemoteSpace, items: bytes
) -> None:
    async with (
        bystander.publish("t", partitions=2) as topic,
        bystander.subscribe("t") as epochs,
        Peer(url) as peer,
    ):
        producer = await joined(peer, partition=1)
        await peer.say(p.Produce(2, producer, ((forms.SEND, 0, items),)))
        denied = await peer.hear()
        assert isinstance(denied, p.Denied) and denied.code == "bad-request", denied
        await peer.say(p.Produce(3, producer, ((forms.SEND, 0, pack(("good",))), (forms.LEAVE,))))
        assert isinstance(await peer.hear(), p.Answer)
        await topic.advance(1)
        assert await take(epochs, 1) == [TopicEpoch(0, ("good",))]


@pytest.mark.slow
async def test_items_beyond_a_frame_are_refused_and_the_publication_goes_on(url: str) -> None:
    async with (
        dataspace.connect(url) as space,
        space.publish("t") as topic,
        space.subscribe("t") as epochs,
    ):
        with pytest.raises(Refused, match=r"limit: items of 167772\d\d bytes, .* limits.frame_bytes"):
            await topic.send(b"x" * (1 << 24))
        await topic.send("small")
        await topic.advance(1)
        assert await take(epochs, 1) == [TopicEpoch(0, ("small",))]
        assert await space.matches("nothing($x)") == [], "the session is the same"


@pytest.mark.parametrize("options", [{}, {"durable": True}], ids=repr)
async def test_a_publication_that_has_released_all_ends_in_good_order(
    url: str, options: dict[str, object]
) -> None:
    async with dataspace.connect(url) as space:
        async with space.publish("t", **options) as topic, space.subscribe("t") as epochs:  # type: ignore[arg-type]
            later = await topic.hold(3)
            await topic.send("x")
            await topic.release()
            await topic.send("y", at=3)
            await later.release()
            await later.release()
            assert await take(epochs, 2) == [TopicEpoch(0, ("x",)), TopicEpoch(3, ("y",))]
        async with space.publish("t", **options) as topic:  # type: ignore[arg-type]
            pass
        async with dataspace.connect(url, space="system") as system:
            assert await system.matches("publication($t, _, _, _)") == []


async def test_a_publication_to_a_topic_that_was_ended_under_it_is_told_so(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match="topic 't' has ended"):
            async with space.publish("t") as topic:
                await topic.send("x")
                await topic.flush()
                await space.end_topic("t")


async def test_a_lookup_waits_for_the_topic_until_its_deadline(url: str, nursery: trio.Nursery) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match="no topic named 't'"):
            async with space.subscribe("t", timeout=0.05):
                pass
        got: list[TopicEpoch] = []

        async def follow() -> None:
            async with space.subscribe("t", timeout=10) as epochs:
                started.set()
                got.extend([each async for each in epochs])

        started = trio.Event()
        async with trio.open_nursery() as inner:
            inner.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked(0.01)
            async with space.publish("t") as topic:
                await started.wait()
                await space.status()
                await topic.send("x")
        assert got == [TopicEpoch(0, ("x",))]


async def test_a_topic_of_another_shape_is_refused(url: str) -> None:
    async with dataspace.connect(url) as space, space.publish("t", partitions=2):
        with pytest.raises(Refused, match="'t' has 2 partitions and 0 dimensions, asked for were 3 and 1"):
            async with space.publish("t", partitions=3, dimensions=1):
                pass
        with pytest.raises(Refused, match="partition 7, there are 0 to 1"):
            async with space.publish("t", partition=7, partitions=2):
                pass


async def test_the_catalogue_can_be_observed(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url, space="system") as system:
        assert await system.matches("topic($name, _, $partitions, $dimensions)") == []
        async with system.observe("topic($name)") as topics:
            assert list(await topics.next_epoch() or ()) == []
            async with space.publish("t", dimensions=3):
                assert (await anext(topics)).captures == ("t",)
                async with space.subscribe("t") as epochs:
                    assert await system.matches("topic($name, _, $partitions, $dimensions)") == [("t", 1, 3)]
                    assert (
                        len(await system.matches("publication($name, $partition, $producer, $session)")) == 1
                    )
                    assert await system.matches("subscription($name, $partition)") == [("t", 0)]
                    assert epochs.frontier == () or epochs.frontier == ((0, 0, 0),)
            change = await anext(topics)
            assert (change.kind, change.captures) == ("-", ("t",))
        assert await system.matches("topic($name, _, _, _)") == []
        assert await system.matches("publication($name, _, _, _)") == []
        with pytest.raises(Refused, match="can only be observed"):
            await system.assert_(Record("topic", "fake"))


async def test_a_subscription_whose_line_breaks_misses_nothing_that_is_retained(
    url: str, proxy: Proxy
) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(proxy.url) as far:
        async with space.publish("t", retain=1 << 20) as topic, far.subscribe("t") as epochs:
            with trio.fail_after(10):
                events = epochs.events()
                assert await anext(events) == Frontier((0,))  # it is there before the epoch has begun
                await topic.send("first half")
                await topic.flush()
                while getattr(await anext(events), "items", ()) != ("first half",):
                    pass
            proxy.cut()
            await topic.send("second half")
            await topic.advance(1)
            await topic.send("next")
            await topic.advance(2)
            with trio.fail_after(10):
                later = [event async for event in upto_frontier(epochs, 2)]
            assert [e.items for e in later if isinstance(e, Batch)] == [("second half",), ("next",)]
            assert far.reconnects >= 1


async def test_without_retention_a_broken_line_ends_the_subscription(url: str, proxy: Proxy) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(proxy.url) as far:
        async with space.publish("t"), far.subscribe("t") as epochs:
            with trio.fail_after(10):
                await anext(epochs.events())
            proxy.cut()
            with pytest.raises(Broken, match="what topic 't' sent since"), trio.fail_after(10):
                await anext(epochs)


async def test_a_publication_whose_line_breaks_has_crashed(url: str, proxy: Proxy) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(proxy.url) as far:
        with pytest.raises(Broken):
            async with far.publish("t") as topic, space.subscribe("t") as epochs:
                await topic.send("x")
                await topic.flush()
                proxy.cut()
                (epoch,) = await take(epochs, 1)
                assert (epoch.items == ("x",) and "lost" in epoch.crashed) or "closed" in epoch.crashed
                await topic.send("y")
                await topic.flush()


async def test_what_was_is_told_to_those_who_ask_for_it(url: str) -> None:
    async with dataspace.connect(url) as space, space.publish("t", retain=1 << 20) as topic:
        for time in range(5):
            await topic.send(time)
            await topic.advance(time + 1)
        await topic.flush()
        async with space.subscribe("t", as_of=2, up_to=4) as epochs:
            with trio.fail_after(10):
                assert [each.time async for each in epochs] == [2, 3]


@pytest.mark.slow
async def test_a_slow_subscriber_fails_and_the_others_go_on(url: str) -> None:
    async with dataspace.connect(url) as space, Peer(url) as slow:
        async with space.publish("t") as topic, space.subscribe("t") as epochs:
            await slow.greet("~slow")
            await slow.say(p.Open(1, Map({"kind": "topic", "topic": "t"}), 1, 1))
            for time in range(40):
                await topic.send(b"x" * (1 << 19))
                await topic.advance(time + 1)
                await take(epochs, 1)
            heard = await slow.hear()
            while not isinstance(heard, p.Error):
                heard = await slow.hear()
            assert heard.code == "slow-subscriber"


@pytest.mark.slow
async def test_a_subscriber_that_reads_as_fast_as_it_can_is_not_too_slow(url: str) -> None:
    """Publishers wait for one that keeps reading, whatever its policy, and it sees all of it."""
    publishers, count, batch = 16, 30, b"x" * 250_000  # seven times what may wait
    async with dataspace.connect(url) as near, trio.open_nursery() as nursery:

        async def publish(partition: int) -> None:
            async with (
                dataspace.connect(url) as far,
                far.publish("t", partition=partition, partitions=publishers) as topic,
            ):
                joined.append(partition)
                await ready.wait()
                for time in range(count):
                    await topic.send(batch, at=time)
                await topic.advance(count)

        joined: list[int] = []
        ready = trio.Event()
        for partition in range(publishers):
            nursery.start_soon(publish, partition)
        async with near.subscribe("t", timeout=10) as epochs:
            while len(joined) < publishers:
                await near.sync()
            ready.set()
            with trio.fail_after(60):
                assert [len(each.items) async for each in epochs] == [publishers] * count


async def test_publishers_wait_for_a_subscriber_who_asked_for_that(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        async with space.publish("t") as topic, Peer(url) as slow:
            await slow.greet("~slow")
            await slow.say(p.Open(1, Map({"kind": "topic", "topic": "t", "policy": "wait"}), 1, 1))
            await slow.hear()
            sent = 0
            for _ in range(100):
                with trio.move_on_after(1) as patience:
                    await topic.send(b"x" * (1 << 19))
                if patience.cancelled_caught:
                    break
                sent += 1
            assert 28 < sent < 40
            await other.sync()  # nobody else waits
            await slow.say(p.Ask(1, 1 << 30, 1 << 40))
            with trio.fail_after(10):
                await topic.flush()


async def test_one_capability_that_is_held_back_fills_a_subscriber_only_so_far(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.publish("t") as topic, space.subscribe("t", open_bytes=120_000) as epochs:
            for time in range(1, 10):  # as much as it may hold, again and again
                await topic.send(b"x" * 50_000, at=time)
                await topic.advance(time)
            assert len(await take(epochs, 8)) == 8
            later = await topic.hold(100)
            for time in range(10, 15):
                await topic.send(b"x" * 50_000, at=time)
            with pytest.raises(Refused, match=r"limit: . epochs with .* open_bytes=120000: .* \(9,\) back"):
                await take(epochs, 1)
            with pytest.raises(Refused, match="open_bytes"):  # as often as it is asked
                await take(epochs, 1)
            await later.release()


async def test_epochs_that_are_open_are_bounded_for_readers_of_events_too(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.publish("t") as topic, space.subscribe("t", open_bytes=128 * 50) as epochs:
            for time in range(1, 60):
                await topic.send(time, at=time)
            seen = 0
            with (
                trio.fail_after(10),
                pytest.raises(Refused, match=r"5. epochs are open, the limit is open_bytes=6400"),
            ):
                async for _ in epochs.events():
                    seen += 1
            assert seen <= 51


async def test_scripts_can_do_it_without_async(url: str) -> None:
    def script() -> list[TopicEpoch]:
        with (
            dataspace.connect_blocking(url) as space,
            space.publish("t") as topic,
            space.subscribe("t") as epochs,
        ):
            topic.send("a", "b")
            topic.send("c", at=1)
            topic.advance(2)
            seen = [next(epochs), next(epochs)]
            assert topic.time == 2
            with pytest.raises(KeyError), space.publish("t", time=2) as fails:
                fails.send("half")
                raise KeyError("oops")
            topic.advance(3)
            return [*seen, next(epochs)]

    with trio.fail_after(20):
        seen = await trio.to_thread.run_sync(script)
    assert seen == [
        TopicEpoch(0, ("a", "b")),
        TopicEpoch(1, ("c",)),
        TopicEpoch(2, ("half",), "KeyError: 'oops'"),
    ]


async def test_the_detail_of_a_topic_has_its_frontiers_and_who_is_there(url: str) -> None:
    async with dataspace.connect(url) as a, dataspace.connect(url) as b:
        async with (
            a.publish("t", partitions=2) as one,
            a.publish("d", durable=True, name="writer", away=1) as kept,
            b.subscribe("t") as epochs,
        ):
            await one.send("a", 1)
            await one.advance(3)
            await one.flush()
            await take(epochs, 0)
            told: Any = await b.request("lookup", Map({"topic": "t", "detail": True}))
            assert (told["producers"], told["subscriptions"]) == (1, 1)
            first, second = told["frontiers"]
            assert (first["partition"], first["lower"], first["upper"], first["batches"]) == (
                0,
                (3,),
                (0,),
                1,
            )
            assert (second["partition"], second["upper"], second["producers"]) == (1, (), 0)
            (producer,) = told["producing"]
            assert (producer["partition"], producer["holds"]) == (0, (3,))
            assert "completed" not in told and told["full"] is False
            await kept.send("x")
            await kept.advance(1)
            await kept.flush()
            told = await b.request("lookup", Map({"topic": "d", "detail": True}))
            assert (told["completed"], told["oldest"]) == (1, 1)
            assert told["producing"][0]["name"] == "writer"
            told = await b.request("lookup", Map({"topic": "t"}))
            assert "frontiers" not in told


@pytest.mark.slow
async def test_a_packet_of_many_steps_lets_others_in_between(url: str) -> None:
    steps = 20_000
    async with Peer(url) as peer, Peer(url) as other:
        producer, lowers = await joined(peer, partitions=1), [0]
        await other.greet("~other")
        await peer.say(
            p.Produce(2, producer, tuple((forms.CHANGE, ((at, -1), (at + 1, 1))) for at in range(steps)))
        )
        while not 0 < lowers[-1] < steps:
            assert lowers[-1] == 0, "nothing was answered before the last step"
            await other.say(p.Open(len(lowers), Map({"kind": "topic", "topic": "t"}), 1, 1 << 20))
            answer = await other.hear()
            assert isinstance(answer, p.Values), answer
            (snapshot,) = map(message_of, answer.values)
            assert isinstance(snapshot, Snapshot) and isinstance(snapshot.lower[0], int), snapshot
            lowers.append(snapshot.lower[0])
            await other.say(p.Abort(len(lowers) - 1, "", False))
        assert await peer.hear() == p.Answer(2, None)
