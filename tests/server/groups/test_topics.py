"""The items of a durable topic are divided among members, over real sockets and a real disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import DeliveryLost, Map, Record, Refused, RemoteSpace, UsageError
from dataspace.transport.tokens import narrow
from relay.log.retention import Retention
from server.config.model import Config
from server.config.rights import Key
from server.daemon.serve import serve
from tests.server.groups.test_consuming import is_idle, take
from tests.server.groups.test_defining import alter, status
from tests.server.processes import DaemonProcess

BOSS = "the secret of the boss"


async def publish(space: RemoteSpace, *epochs: list[Any], topic: str = "t", **options: Any) -> None:
    """Sends epochs, each a list of items, to a durable topic."""
    async with space.publish(topic, durable=True, **options) as publication:
        for items in epochs:
            assert isinstance(publication.time, int)
            for item in items:
                await publication.send(item)
            await publication.advance(publication.time + 1)


def items_of(jobs: list[dataspace.Job]) -> list[Any]:
    return [job["item"] for job in jobs]


async def test_items_are_divided_and_done_over_a_restart(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url, grace=20) as space:
        await publish(space, ["before"])
        async with space.consume(topic="t", group="w", in_flight=3) as jobs:
            await publish(space, ["a", "b"], ["c", "d"])
            taken = await take(jobs, 3)
            assert items_of(taken) == ["a", "b", "c"]
            assert [(job.epoch, job.position, job.topic_time, job.crashed) for job in taken] == [
                (2, 0, 1, ""),
                (2, 1, 1, ""),
                (3, 0, 2, ""),
            ]
            await taken[0].done()
            daemon.kill()
            daemon.start()
            async with space.turn(done=[taken[1]]) as turn:
                turn.assert_(Record("result", "b"), owner="results")
            (last,) = await take(jobs, 1)
            assert last["item"] == "d"
            await taken[2].again(after=0, reason="later")
            (again,) = await take(jobs, 1)
            assert (again.id, again.attempt, again.is_message) == (taken[2].id, 2, True)
            with pytest.raises(UsageError):
                await taken[2].done()
            await again.done()
            await last.done()
            assert await is_idle(jobs, space)
        daemon.kill()
        daemon.start()
        async with space.consume(group="w", in_flight=3) as jobs:
            assert await is_idle(jobs, space)
            await publish(space, ["e"])
            assert items_of(await take(jobs, 1)) == ["e"]


async def test_where_a_group_begins(url: str) -> None:
    async with dataspace.connect(url) as space:
        await publish(space, ["one"], ["two"])
        await trio.sleep(0.01)
        middle = datetime.now(UTC)
        await trio.sleep(0.01)
        await publish(space, ["three"])
        starts: list[tuple[Any, list[str]]] = [
            ("now", []),
            (0, ["one", "two", "three"]),
            (1, ["one", "two", "three"]),
            (3, ["three"]),
            (4, []),
            (middle, ["three"]),
            (middle - timedelta(days=1), ["one", "two", "three"]),
            (middle + timedelta(days=1), []),
        ]
        for number, (start, expected) in enumerate(starts):
            name = f"w{number}"
            async with space.consume(topic="t", group=name, start=start, in_flight=9) as jobs:
                assert items_of(await take(jobs, len(expected))) == expected, start
                assert await is_idle(jobs, space), start
        await publish(space, ["four"])
        for number, (start, expected) in enumerate(starts):
            async with space.consume(group=f"w{number}", in_flight=9) as jobs:
                assert items_of(await take(jobs, len(expected) + 1)) == [*expected, "four"], start


async def test_what_has_no_meaning_is_refused(url: str) -> None:
    async with dataspace.connect(url) as space:
        await publish(space, ["one"])
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"topic": "none"}, "no-topic"),
            ({"topic": "t", "start": 3}, "epoch-ahead"),
            ({"topic": "t", "key": "id"}, "key='id' is no capture"),
            ({"topic": "t", "pattern": "job($id)", "key": "who"}, "key='who' is no capture"),
        ]
        async with space.publish("memory", retain=1000):
            wrong.append(({"topic": "memory"}, "not-durable.*only a durable topic"))
            for options, reason in wrong:
                with pytest.raises(Refused, match=reason):
                    async with space.consume(group="w", **options):
                        pass
        with pytest.raises(UsageError, match="a topic has none"):
            space.consume(topic="t", group="w", start="held")
        with pytest.raises(UsageError, match="name of a topic"):
            space.consume(topic="", group="w")
        async with space.consume(topic="t", group="w"), space.consume("job($id)", group="p"):
            others: list[tuple[dict[str, Any], str]] = [
                ({"topic": "u", "group": "w"}, "group-differs.*divides topic 't', not topic 'u'"),
                ({"topic": "t", "group": "p"}, "group-differs.*facts and messages of the space"),
                ({"pattern": "$item", "group": "w"}, "group-differs.*state topic='t'"),
                ({"topic": "t", "pattern": "job($)", "group": "w"}, r"group-differs.*divides \$item"),
            ]
            for options, reason in others:
                with pytest.raises(Refused, match=reason):
                    async with space.consume(**options):
                        pass
            async with space.consume(topic="t", group="w"), space.consume(group="w"):
                pass
            async with space.consume("$item", topic="t", group="w"):
                pass
        assert await space.matches("Observe($)") == [], "no interest is announced"


async def test_a_pattern_passes_items_over_and_its_captures_are_keys(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        await publish(space, [Record("no", 0)])
        options: dict[str, Any] = {"topic": "t", "group": "w", "key": "who", "in_flight": 2}
        async with (
            space.consume("job($who, $id)", **options) as one,
            other.consume(group="w", in_flight=2) as two,
        ):
            job = [Record("job", who, number) for number, who in enumerate("aabb")]
            await publish(space, [Record("no", 0), job[0], job[1]], [{"no": 1}, 7, job[2], job[3]])
            first, second = await take(one, 2), await take(two, 2)
            assert [(each.named, each.epoch, each.position) for each in first + second] == [
                ({"who": "a", "id": 0}, 2, 1),
                ({"who": "a", "id": 1}, 2, 2),
                ({"who": "b", "id": 2}, 3, 2),
                ({"who": "b", "id": 3}, 3, 3),
            ]
            with pytest.raises(Refused, match="out-of-order"):
                await first[1].done()
            await one.done(*first)
            await two.done(*second)
            assert await is_idle(one, space)


async def test_items_of_a_crashed_epoch_say_so_also_as_dead_letters(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        await publish(space, ["whole"])
        async with space.consume(topic="t", group="w", start=1, in_flight=5) as jobs:
            with pytest.raises(ZeroDivisionError):
                async with space.publish("t", durable=True) as publication:
                    await publication.send("half")
                    raise ZeroDivisionError
            whole, half = await take(jobs, 2)
            assert (whole.crashed, half["item"]) == ("", "half")
            assert "ZeroDivisionError" in half.crashed, half.crashed
            crashed = half.crashed
            await half.dead("not whole")
            ((kind,),) = await space.matches('dead("w", 2, 0, "half", "not whole", 0, _, $)')
            assert kind == ("item", 1, crashed)
            await whole.done()
            daemon.kill()
            daemon.start()
            await space.send("back")
            assert await alter(space, "retry") == 1
            (again,) = await take(jobs, 1)
            assert (again.id, again.crashed, again.topic_time, again["item"]) == (half.id, crashed, 1, "half")
            assert (await status(space))["dead"] == 0
            await again.done()


async def test_a_group_is_paused_moved_and_deleted(url: str) -> None:
    async with dataspace.connect(url) as space:
        await publish(space, ["a"], ["b"], ["c"])
        async with space.consume(topic="t", group="w", start=1, in_flight=9) as jobs:
            (first, *_) = await take(jobs, 3)
            assert (await status(space))["behind"] == 0
            assert [each[-1] for each in (await _out(space))] == ["a", "b", "c"]
            await alter(space, "pause")
            assert await alter(space, "seek", to=2) == 1
            with pytest.raises(DeliveryLost):
                await first.done()
            await publish(space, ["d"])
            assert await is_idle(jobs, space)
            await alter(space, "resume")
            taken = await take(jobs, 3)
            assert items_of(taken) == ["b", "c", "d"]
            await taken[0].done()
            assert await alter(space, "seek") == 4
            assert await is_idle(jobs, space)
            await publish(space, ["e"])
            assert items_of(await take(jobs, 1)) == ["e"]
            for place, code in ((6 + 1, "epoch-ahead"),):
                with pytest.raises(Refused, match=code):
                    await alter(space, "seek", to=place)
            await alter(space, "delete")
            assert await jobs.next_job() is None
        async with space.consume(topic="t", group="w", start=5) as jobs:
            assert items_of(await take(jobs, 1)) == ["e"]


async def _out(space: RemoteSpace) -> Any:
    answer: Any = await space.request("groups", Map({"group": "w", "out": True}))
    return answer[0]["deliveries"]


async def test_a_group_outlasts_its_topic_and_takes_no_later_one(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        await publish(space, ["a", "b"], ["c"])
        async with space.consume(topic="t", group="w", start=1, in_flight=1) as jobs:
            (first,) = await take(jobs, 1)
            await space.end_topic("t")
            await first.done()
            await publish(space, ["other"])
            (second,) = await take(jobs, 1)
            assert second["item"] == "b"
            with pytest.raises(Refused, match=r"no-topic.*has ended.*delete the group"):
                await alter(space, "seek", to=1)
            with pytest.raises(Refused, match=r"group-differs.*has ended"):
                async with space.consume(topic="t", group="w"):
                    pass
            assert (await status(space))["topic_ended"] is True
        daemon.kill()
        daemon.start()
        async with space.consume(group="w", in_flight=5) as jobs:
            rest = await take(jobs, 2)
            assert items_of(rest) == ["b", "c"], "what was undone is kept without the topic"
            await jobs.done(*rest)
            assert await is_idle(jobs, space)
            await alter(space, "delete")
        async with space.consume(topic="t", group="w", start=1) as jobs:
            assert items_of(await take(jobs, 1)) == ["other"]


@pytest.mark.slow
async def test_a_large_epoch_is_read_in_parts_and_each_item_comes_once(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        async with (
            space.publish("t", durable=True, partitions=2) as left,
            space.publish("t", durable=True, partitions=2, partition=1) as right,
        ):
            for number in range(40):
                await (left if number % 3 else right).send(f"{number}.".ljust(100_000, "x"))
        async with space.consume(topic="t", group="w", start=1, in_flight=8) as jobs:
            expected = sorted(range(40), key=lambda number: (number % 3 == 0, number))
            seen: list[int] = []
            for _ in range(3):
                taken = await take(jobs, 5)
                await jobs.done(*taken)
                seen += [int(str(job["item"]).split(".")[0]) for job in taken]
                daemon.kill()
                daemon.start()
            while len(seen) < 40:
                (job,) = await take(jobs, 1)
                assert (job.epoch, job.position) == (1, len(seen))
                await job.done()
                seen.append(int(str(job["item"]).split(".")[0]))
            assert seen == expected
            assert await is_idle(jobs, space)


async def test_rights_are_those_to_the_topic_and_to_the_group(tmp_path: Path, nursery: trio.Nursery) -> None:
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", keys=(Key("boss", BOSS),))
    (url,) = await nursery.start(serve, config)
    listed: list[tuple[dict[str, Any], str]] = [
        ({"groups": ("w",)}, "subscribe topic 't'"),
        ({"groups": ("w",), "observe": True, "topics": Map({"publish": ("t",)})}, "subscribe topic 't'"),
        ({"topics": ("t",), "observe": True}, "consume from group 'w'"),
        ({"topics": ("t",), "groups": ("w",)}, ""),
    ]
    async with dataspace.connect(url, token=BOSS) as boss:
        await publish(boss, ["a"])
        for rights, reason in listed:
            async with dataspace.connect(url, token=narrow(BOSS, Map(rights))) as space:
                if not reason:
                    async with space.consume(topic="t", group="w", start=1) as jobs:
                        (job,) = await take(jobs, 1)
                        await job.done()
                    assert len(await _groups(space)) == 1
                    await alter(space, "seek", to=1)
                    assert await space.request("take", Map({"group": "w", "topic": "t"}))
                    continue
                with pytest.raises(Refused, match=reason):
                    async with space.consume(topic="t", group="w"):
                        pass
                with pytest.raises(Refused, match=reason):
                    await space.request("take", Map({"group": "w", "topic": "t"}))
        for rights, reason in listed[:3]:  # of a group that there is
            async with dataspace.connect(url, token=narrow(BOSS, Map(rights))) as space:
                for arguments in ({}, {"topic": "t"}):
                    with pytest.raises(Refused, match=reason):
                        await space.request("take", Map({"group": "w", **arguments}))
                with pytest.raises(Refused, match=reason):
                    await alter(space, "pause")
                if "topics" not in rights:
                    assert await _groups(space) == ()


async def _groups(space: RemoteSpace) -> Any:
    return await space.request("groups", Map({}))


async def test_the_blocking_client_divides_a_topic(url: str) -> None:
    def work() -> list[Any]:
        with (
            dataspace.connect_blocking(url) as space,
            space.consume(topic="t", group="w", start=1, in_flight=3) as jobs,
        ):
            taken = [next(iter(jobs)) for _ in range(3)]
            with space.turn(done=taken) as turn:
                turn.assert_(Record("result", len(taken)), owner="results")
            return [(job["item"], job.topic_time, job.crashed) for job in taken]

    async with dataspace.connect(url) as space:
        await publish(space, ["a", "b"], ["c"])
        assert await trio.to_thread.run_sync(work) == [("a", 0, ""), ("b", 0, ""), ("c", 1, "")]
        assert await space.matches("result($)") == [(3,)]


async def serving(path: Path, nursery: trio.Nursery, retention: Retention) -> str:
    config = Config(("tcp:127.0.0.1:0",), path, retention=retention)
    (url,) = await nursery.start(serve, config)
    assert isinstance(url, str)
    return url


async def test_a_topic_keeps_what_a_group_has_not_read(tmp_path: Path, nursery: trio.Nursery) -> None:
    url = await serving(tmp_path / "data", nursery, Retention())
    async with dataspace.connect(url) as space:
        async with space.publish("t", durable=True, retain=100_000) as publication:
            await publication.advance(1)
        async with space.consume(topic="t", group="w", in_flight=40) as jobs:
            await alter(space, "alter", options=Map({"window": 10}))
            body = "x" * 50_000
            await publish(space, *[[[number, body]] for number in range(60)])
            assert await _oldest(space) == 1, "an unread epoch was deleted"
            for number in range(60):
                (job,) = await take(jobs, 1)
                assert job["item"][0] == number  # type: ignore[index]  # a sequence
                await job.done()
            await publish(space, [["last", body]])
            with trio.fail_after(20):
                while await _oldest(space) == 1:
                    await publish(space, [["more", body]])
            assert not await space.matches("group_lost($, $, $, $)")


async def test_what_a_topic_could_not_keep_is_said_to_be_lost(tmp_path: Path, nursery: trio.Nursery) -> None:
    url = await serving(tmp_path / "data", nursery, Retention(reader_size=200_000))
    async with dataspace.connect(url) as space:
        await publish(space, ["first"], retain=100_000)
        async with space.consume(topic="t", group="w", in_flight=1) as jobs:
            await alter(space, "alter", options=Map({"window": 2}))
            body = "x" * 50_000
            await publish(space, *[[[number, body]] for number in range(40)])
            seen: list[int] = []
            while (seen or [0])[-1] < 39:
                (job,) = await take(jobs, 1)
                await job.done()
                seen.append(job["item"][0])  # type: ignore[index, arg-type]  # a sequence
            said: list[Any] = await space.matches('group_lost("w", $, $, _)')
            lost = {epoch - 2 for first, last in said for epoch in range(first, last + 1)}
            assert lost and lost | set(seen) == set(range(40)) and not lost & set(seen)


async def _oldest(space: RemoteSpace) -> Any:
    answer: Any = await space.request("topic-frontier", Map({"topic": "t"}))
    return answer["oldest"]


@pytest.mark.slow
async def test_the_next_leader_goes_on_with_the_topic(
    successors: tuple[DaemonProcess, DaemonProcess],
) -> None:
    first, second = successors
    with trio.fail_after(60):
        both = f"{first.url},{second.url}"
        async with dataspace.connect(both, grace=20) as space:
            await publish(space, ["first"])
            async with space.consume(topic="t", group="w", in_flight=2) as jobs:
                await publish(space, [0, 1, 2], [3, 4])
                taken = await take(jobs, 2)
                await taken[0].done()
                await trio.to_thread.run_sync(first.kill)
                async with space.turn(done=[taken[1]]) as turn:
                    turn.assert_(Record("result", 1), owner="results")
                seen = [0, 1]
                for _ in range(3):
                    with trio.fail_after(30):
                        job = await jobs.next_job()
                    assert job is not None
                    seen.append(job["item"])  # type: ignore[arg-type]  # a number
                    await job.done()
                assert seen == [0, 1, 2, 3, 4]
                await publish(space, [5])
                assert items_of(await take(jobs, 1)) == [5]
