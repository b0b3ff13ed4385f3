"""What a group may do beyond sharing: limits of what is out, waits, endings, priorities, and a look at it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map, Record, Refused, RemoteSpace
from tests.server.groups.test_consuming import JOB, is_idle, job, number_of, take
from tests.server.groups.test_defining import alter, status
from tests.server.processes import DaemonProcess


async def fill(space: RemoteSpace, *numbers: int) -> None:
    for number in numbers:
        await space.send(job(number))
    await space.sync()


async def test_no_more_is_out_than_most_out_and_each_member_has_its_share(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        async with space.consume(JOB, group="w", in_flight=10, most_out=4) as jobs:
            await fill(space, *range(8))
            first = await take(jobs, 4)
            assert await is_idle(jobs, space)
            async with other.consume(group="w", in_flight=10, most_out=4) as late:
                for each in first[:2]:
                    await each.done()
                assert [number_of(each) for each in await take(late, 2)] == [4, 5]
                assert await is_idle(jobs, space), "two each"
                await alter(space, "alter", options=Map({"most_out": 6}))
                assert number_of((await take(late, 1))[0]) in (6, 7)
                assert number_of((await take(jobs, 1))[0]) in (6, 7)


async def test_one_member_of_an_exclusive_group_has_jobs_and_the_next_takes_over(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        async with space.consume(JOB, group="w", in_flight=2, exclusive=True) as jobs:
            async with other.consume(group="w", in_flight=2) as standing_by:
                await fill(space, 0, 1, 2, 3)
                first = await take(jobs, 2)
                assert await is_idle(standing_by, space)
                await first[0].done()
                (third,) = await take(jobs, 1)
                assert number_of(third) == 2
                await jobs.aclose()
                assert [number_of(each) for each in await take(standing_by, 2)] == [1, 2]


async def test_an_exclusive_member_whose_connection_is_lost_keeps_the_group_for_its_grace(
    daemon: DaemonProcess,
) -> None:
    async with dataspace.connect(daemon.url) as space, dataspace.connect(daemon.url) as other:
        async with other.consume(JOB, group="w", exclusive=True) as second:
            await second.aclose()
        async with dataspace.connect(daemon.url, grace=1) as one:
            async with one.consume(group="w") as first, other.consume(group="w") as second:
                await fill(space, 0, 1)
                (each,) = await take(first, 1)
                await each.done()
                (each,) = await take(first, 1)
                assert await is_idle(second, space)
                daemon.kill()
                daemon.start()
                await each.done()
                await fill(space, 2)
                got = {number_of(job) for job in await _either(first, second)}
                assert got == {2}


async def _either(*members: dataspace.Jobs) -> list[dataspace.Job]:
    found: list[dataspace.Job] = []

    async def one(jobs: dataspace.Jobs) -> None:
        found.extend(await take(jobs, 1))
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for each in members:
            nursery.start_soon(one, each)
    return found


async def test_a_list_of_waits_is_kept_and_jobs_that_wait_do_not_fill_the_window(
    daemon: DaemonProcess,
) -> None:
    waits = (3600.0, 7200)
    async with dataspace.connect(daemon.url) as space:
        async with space.consume(JOB, group="w", in_flight=3, backoff=waits, attempts=0) as jobs:
            await alter(space, "alter", options=Map({"window": 4}))
            claim = await space.assert_(job(100))
            await fill(space, *range(11))
            for _ in range(4):
                for each in await take(jobs, 3):
                    await each.again()
            await fill(space, 11)
            (each,) = await take(jobs, 1)
            assert number_of(each) == 11, "twelve wait, and the window is four"
            await each.done()
            seen: Any = await space.peek("w")
            assert (seen["undone"], seen["postponed"]) == (12, 12)
            assert [row["state"] for row in seen["jobs"]] == ["postponed"] * 12
            parked = [row for row in seen["jobs"] if row["captures"] is None]
            assert len(parked) >= 9
            await space.sync()
        daemon.kill()
        daemon.start()
        async with space.consume(group="w", in_flight=20, backoff=waits) as jobs:
            assert ((await status(space))["undone"], await is_idle(jobs, space)) == (12, True)
            await space.retract(claim)


@pytest.mark.slow
async def test_parked_jobs_come_again_with_their_values(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.consume(JOB, group="w", in_flight=30, backoff=[10.5], attempts=0) as jobs:
            await alter(space, "alter", options=Map({"window": 2}))
            claims = [await space.assert_(job(number)) for number in range(3)]
            await fill(space, *range(3, 12))
            seen: list[int] = []
            while len(seen) < 12:
                (each,) = await take(jobs, 1)
                seen.append(number_of(each))
                await each.again()
            peeked: Any = await space.peek("w")
            assert sum(row["captures"] is None for row in peeked["jobs"]) >= 10
            await space.retract(claims[1])
            await space.retract(claims[2])
            claims[2] = await space.assert_(job(2))
            again: list[tuple[int, Any, bool]] = []
            with trio.fail_after(20):
                await trio.sleep(5)  # nothing comes in the first ten
                for _ in range(11):
                    (each,) = await take(jobs, 1)
                    again.append((number_of(each), each["what"], each.is_message))
                    await each.done()
            expected = [(n, f"work {n}", n > 2) for n in range(12) if n != 1]
            assert sorted(again) == expected
            assert await is_idle(jobs, space)
            assert (await status(space))["undone"] == 0


async def test_a_rate_hands_out_one_and_then_the_next_in_its_time(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.consume(JOB, group="w", in_flight=10, rate=0.01) as jobs:
            await fill(space, *range(3))
            await take(jobs, 1)
            assert await is_idle(jobs, space), "the next one in a hundred seconds"
            await alter(space, "alter", options=Map({"rate": 5}))
            assert [number_of(each) for each in await take(jobs, 2)] == [1, 2], "one, and one 0.2 s later"


async def test_endings_are_jobs_of_their_key(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        with pytest.raises(Refused, match="endings need a key"):
            async with space.consume(JOB, group="w", kinds="+-!"):
                pass
        async with space.consume(JOB, group="w", key="id", kinds="+-!", in_flight=9) as jobs:
            claim = await space.assert_(job(1), owner="o")
            (came,) = await take(jobs, 1)
            await space.retract(claim)
            (went,) = await take(jobs, 1)
            assert [(each.is_ending, each.is_message) for each in (came, went)] == [
                (False, False),
                (True, False),
            ]
            assert came.gone and not went.gone
            assert (await came.cause(), await went.cause()) == (("durable:o",), ("durable:o",))
            assert (went.named, went.position) == (came.named, 0)
        await space.sync()
        daemon.kill()
        daemon.start()
        async with space.consume(group="w", in_flight=9, kinds="+-!") as jobs:
            (again,) = await take(jobs, 1)
            assert (again.id, again.is_ending) == (went.id, True), "the fact has gone, and its end is left"
            await again.dead("why")
            assert await space.matches("dead(_, _, _, job($id, _), _, _, _, $kind)") == [(1, "ending")]
            await alter(space, "retry")
            (again,) = await take(jobs, 1)
            assert (again.id, again.is_ending) == (went.id, True)


async def test_a_group_that_is_behind_reads_endings_from_the_log_in_their_places(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.consume(JOB, group="w", key="id", kinds="-!", start=1):
            pass
        async with space.consume(JOB, group="v", key="id", kinds="-", start=1):
            pass
        claims = [await space.assert_(job(number)) for number in range(3)]
        async with space.turn() as turn:
            turn.send(job(7))
            turn.assert_(job(8))
            for claim in claims:
                turn.retract(claim)
        await space.sync()
        live = [each async for each in _first(space, "w", 4)]
        assert [(position, ending) for _, position, ending in live] == [
            (1, False),
            (2, True),
            (3, True),
            (4, True),
        ]
        for what in ("w", "v"):
            await space.request("group-alter", Map({"group": what, "what": "seek", "to": 1}))
        assert [each async for each in _first(space, "w", 4)] == live
        assert [each async for each in _first(space, "v", 3)] == live[1:]


async def _first(space: RemoteSpace, group: str, count: int) -> Any:
    async with space.consume(group=group, in_flight=10) as jobs:
        for each in await take(jobs, count):
            yield (number_of(each), each.position, each.is_ending)


async def test_jobs_of_a_higher_level_come_first_and_one_of_sixteen_is_the_oldest(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.consume("task($id, $level)", group="w", priority="level") as jobs:
            await alter(space, "pause")
            levels = [0, 1, 99, -3, *[2] * 20, "x"]
            for number, level in enumerate(levels):
                await space.send(Record("task", number, level))
            await space.sync()
            await alter(space, "resume")
            order = []
            for _ in levels:
                (each,) = await take(jobs, 1)
                order.append(each["id"])
                await each.done()
        assert order[:15] == [2, *range(4, 18)]
        assert order[15:] == [0, *range(18, 24), 1, 3, 24]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"most_out": -1}, "most_out must be 0 to"),
        ({"rate": True}, "rate must be 0 to"),
        ({"backoff": ()}, "backoff must be 0 to"),
        ({"backoff": (1, 50_000)}, "backoff must be 0 to"),
        ({"kinds": "-+"}, "kinds must be one or more"),
        ({"kinds": ""}, "kinds must be one or more"),
        ({"kinds": "!", "start": "held"}, "leaves facts out"),
        ({"kinds": "+", "topic": "t"}, "a topic has neither"),
        ({"exclusive": 1}, "exclusive must be true or false"),
    ],
    ids=str,
)
async def test_options_without_a_meaning_are_refused(url: str, options: dict[str, Any], why: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(dataspace.UsageError, match=why):
            space.consume(JOB, group="w", **options)


async def test_a_member_with_other_options_is_refused(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match="priority='none' is no capture"):
            async with space.consume(JOB, group="w", priority="none"):
                pass
        async with space.consume(JOB, group="w", backoff=[1, 5], most_out=3, rate=9):
            for other in (
                {"backoff": 1},
                {"backoff": [1]},
                {"most_out": 4},
                {"rate": 1},
                {"exclusive": True},
            ):
                with pytest.raises(Refused, match="group-differs"):
                    async with space.consume(group="w", **other):
                        pass
            async with space.consume(group="w", backoff=(1.0, 5.0), most_out=3, exclusive=False):
                pass
            await alter(space, "alter", options=Map({"backoff": 2, "rate": 0, "exclusive": True}))
            options = (await status(space))["options"]
            assert (options["backoff"], "backoffs" in options, "rate" in options) == (2.0, False, False)
            for wrong in ({"backoff": "1"}, {"exclusive": 1}, {"kinds": "+"}, {"rate": -1}):
                with pytest.raises(Refused, match="bad-request"):
                    await alter(space, "alter", options=Map(wrong))
