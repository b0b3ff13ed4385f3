"""What a program does with a job: a block that settles it, more time, a fact that goes meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio

import dataspace
from dataspace import DeliveryLost, Map, Record, RemoteSpace, connect_blocking
from tests.server.groups.test_consuming import JOB, is_idle, job, take
from tests.server.proxies import Proxy


async def until(holds: Any) -> None:
    with trio.fail_after(20):
        while not holds():  # noqa: ASYNC110  # no event tells it
            await trio.sleep(0.005)


async def left(space: RemoteSpace) -> list[float | None]:
    """The seconds that are left for what is out, None for what was not taken."""
    answer: Any = await space.request("groups", Map({"group": "w", "out": True}))
    return [each[5] for each in answer[0]["deliveries"]]


async def test_a_block_settles_its_job(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", attempts=1) as jobs:
        for number in range(4):
            await space.send(job(number))
        (first,) = await take(jobs, 1)
        async with first:
            with pytest.raises(dataspace.UsageError, match="block already"):
                async with first:
                    pass
        assert first.is_settled
        (second,) = await take(jobs, 1)
        with pytest.raises(ZeroDivisionError):
            async with second:
                raise ZeroDivisionError("no")
        (third,) = await take(jobs, 1)
        async with third, space.turn(done=[third]) as turn:
            turn.assert_(Record("result", 2), owner="results")
        (fourth,) = await take(jobs, 1)
        with pytest.raises(ValueError, match="late"):
            async with fourth:
                await fourth.done()
                raise ValueError("late")  # what a program does
        assert await is_idle(jobs, space)
        assert await space.matches("dead(_, _, _, job($id, _), $why, _)") == [(1, "ZeroDivisionError: no")]
        assert await space.matches("result($)") == [(2,)]


async def test_a_block_is_cancelled_once_its_job_is_lost(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w") as jobs:
        await space.send(job(1))
        (each,) = await take(jobs, 1)
        seek = Map({"group": "w", "what": "seek", "to": None})
        with trio.fail_after(20), pytest.raises(DeliveryLost):
            async with each:
                await space.request("group-alter", seek)
                await trio.sleep_forever()
        await space.send(job(2))
        (each,) = await take(jobs, 1)
        with pytest.raises(DeliveryLost):
            async with each:
                await space.request("group-alter", seek)
                with trio.CancelScope(shield=True):
                    await until(lambda: each.lost)  # it has not noticed


async def test_a_function_runs_for_each_job_and_loses_none_to_its_errors(url: str) -> None:
    seen: list[tuple[object, int]] = []
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=2) as jobs:

        async def work(each: dataspace.Job) -> None:
            seen.append((each["id"], each.attempt))
            if each["id"] == 1 and each.attempt == 1:
                raise ValueError("once")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: jobs.run(work, tasks=2))
            for number in range(3):
                await space.send(job(number))
            await until(lambda: len(seen) == 4)
            await space.sync()
            nursery.cancel_scope.cancel()
    assert sorted(seen) == [(0, 1), (1, 1), (1, 2), (2, 1)]


@pytest.mark.parametrize("named", [True, False])
async def test_jobs_of_one_key_run_one_after_the_other(url: str, named: bool) -> None:
    said: list[tuple[str, object, object]] = []
    at_once, ended = trio.Event(), trio.Event()

    async def work(each: dataspace.Job) -> None:
        said.append(("begins", each["k"], each["n"]))
        if {(k, n) for _, k, n in said} >= {("a", 0), ("b", 0)}:
            at_once.set()
        await at_once.wait()  # two keys are worked on at once
        if each["n"] == 0:
            await trio.sleep(0.05)
        if each["n"] == 1 and each.attempt == 1:
            raise ValueError("once")
        said.append(("ends", each["k"], each["n"]))
        if sum([what == "ends" for what, *_ in said]) == 6:
            ended.set()

    async with dataspace.connect(url) as space:
        options: dict[str, Any] = {"group": "w", "in_flight": 6}
        async with space.consume("ev($k, $n)", key="k", **options):
            for k, n in [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1), ("b", 2)]:
                await space.send(Record("ev", k, n))
        pattern: dict[str, Any] = {"pattern": "ev($k, $n)", "key": "k"} if named else {}
        async with space.consume(**pattern, **options) as jobs, trio.open_nursery() as nursery:
            nursery.start_soon(lambda: jobs.run(work, tasks=6))
            with trio.fail_after(20):
                await ended.wait()
            await space.sync()
            nursery.cancel_scope.cancel()
    for key in ("a", "b"):
        order = [(what, n) for what, k, n in said if k == key]
        assert order == [
            ("begins", 0),
            ("ends", 0),
            ("begins", 1),
            ("begins", 1),
            ("ends", 1),
            ("begins", 2),
            ("ends", 2),
        ]


async def test_more_time_is_given_to_a_job_that_asks_for_it(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=2) as jobs:
        await space.send(job(1))
        await space.send(job(2))
        (each,) = await take(jobs, 1)
        before = await left(space)
        while before[0] is None:
            before = await left(space)
        assert before[1:] == [None] and before[0] <= 30
        await trio.sleep(0.05)
        (less, _) = await left(space)
        assert less is not None and less < before[0]
        await each.extend()
        (more, _) = await left(space)
        assert more is not None and more > less


async def test_a_member_is_told_that_a_fact_has_gone_which_it_has(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=3) as jobs:
        claims = [await space.assert_(job(number)) for number in range(3)]
        one, two = await take(jobs, 2)
        await until(lambda: jobs.ready == 1)
        await space.retract(claims[0])
        await space.retract(claims[2])
        await until(lambda: one.gone)
        (three,) = await take(jobs, 1)
        await until(lambda: three.gone)
        assert not two.gone
        await jobs.done(one, two, three)
        assert await is_idle(jobs, space)


async def test_a_group_begins_at_a_time(url: str) -> None:
    async with dataspace.connect(url) as space:
        for number in range(4):
            await space.send(job(number))
        async with space.consume(JOB, group="all", start=0, in_flight=9) as jobs:
            times = [each.time for each in await take(jobs, 4)]
        assert sorted(set(times)) == times
        async with space.consume(JOB, group="some", start=times[2], in_flight=9) as jobs:
            assert [each["id"] for each in await take(jobs, 2)] == [2, 3]
            assert await is_idle(jobs, space)


async def test_a_blocking_block_settles_its_job(url: str) -> None:
    await trio.to_thread.run_sync(_settle_by_blocks, url)


def _settle_by_blocks(url: str) -> None:
    with connect_blocking(url) as space, space.consume(JOB, group="w", attempts=1) as jobs:
        for number in range(5):
            space.send(job(number))
        taken = iter(jobs)
        first = next(taken)
        with first:
            with pytest.raises(dataspace.UsageError, match="block already"), first:
                pass
            assert not first.is_settled
        assert first.is_settled
        with pytest.raises(dataspace.UsageError, match="settled already"), first:
            pass
        with pytest.raises(ZeroDivisionError), next(taken):
            raise ZeroDivisionError("no")
        with next(taken) as third, space.turn(done=[third]) as turn:
            turn.assert_(Record("result", 2), owner="results")
        fourth = next(taken)
        with pytest.raises(ValueError, match="late"), fourth:
            fourth.done()
            raise ValueError("late")  # what a program does
        with pytest.raises(KeyboardInterrupt), next(taken) as fifth:
            raise KeyboardInterrupt
        assert not fifth.is_settled, "it comes again with the end of the member"
        assert space.matches("dead(_, _, _, job($id, _), $why, _)") == [(1, "ZeroDivisionError: no")]
        assert space.matches("result($)") == [(2,)]
    with connect_blocking(url) as space, space.consume(group="w") as jobs:
        with next(iter(jobs)) as again:
            assert (again["id"], again.attempt) == (4, 1)
        answer: Any = space.request("groups", Map({"group": "w"}))
        assert answer[0]["counts"]["done"] == 5, "the dead one among them"


async def test_a_blocking_block_of_a_lost_job_ends_with_that(url: str) -> None:
    await trio.to_thread.run_sync(_lose_in_blocks, url)


def _lose_in_blocks(url: str) -> None:
    with connect_blocking(url) as space, space.consume(JOB, group="w", in_flight=2) as jobs:
        space.send(job(1))
        space.send(job(2))
        taken = iter(jobs)
        with (
            pytest.raises(DeliveryLost),
            next(taken) as first,
            pytest.raises(ValueError),
            next(taken) as second,
        ):
            space.request("group-alter", Map({"group": "w", "what": "seek", "to": None}))
            while not (first.lost and second.lost):
                time.sleep(0.005)
            raise ValueError("it goes on as it is")


def count_turns(space: RemoteSpace, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that gets the number of jobs of each turn."""
    turns: list[int] = []
    submit = space._session.submit

    async def counted(actions: Any, deliveries: Any = ()) -> Any:
        turns.append(sum(len(cells) // 3 for _, cells in deliveries))
        return await submit(actions, deliveries=deliveries)

    monkeypatch.setattr(space._session, "submit", counted)
    return turns


async def test_jobs_that_are_done_in_one_moment_share_a_turn(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=40) as jobs:
        for number in range(40):
            await space.send(job(number))
        taken = await take(jobs, 40)
        turns, epochs = count_turns(space, monkeypatch), set[int]()

        async def report(each: Any) -> None:
            epochs.add(await each.done())

        async with trio.open_nursery() as nursery:
            for each in taken[:39]:
                nursery.start_soon(report, each)
        assert turns == [39] and len(epochs) == 1
        scope = trio.CancelScope()
        scope.cancel()
        with scope:
            await taken[39].done()
        assert scope.cancelled_caught and taken[39].is_settled
        with pytest.raises(dataspace.UsageError, match="settled already"):
            await taken[39].done()
    async with dataspace.connect(url) as space, space.consume(group="w") as jobs:
        assert turns == [39, 1], "a cancelled task takes nothing back"
        assert await is_idle(jobs, space)


async def test_a_lost_job_takes_no_other_with_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=9) as jobs:
        for number in range(9):
            await space.send(job(number))
        taken = await take(jobs, 9)
        for at in (2, 5):
            taken[at].token += 1 << 40  # as if another member had it, and this one did not know yet
        turns, done, lost = count_turns(space, monkeypatch), list[int](), list[int]()

        async def report(at: int) -> None:
            try:
                await taken[at].done()
                done.append(at)
            except DeliveryLost as error:
                assert error.lost == [(taken[at].epoch, taken[at].position)]
                lost.append(at)

        async with trio.open_nursery() as nursery:
            for at in range(9):
                nursery.start_soon(report, at)
        assert turns == [9, 7] and sorted(lost) == [2, 5] and len(done) == 7
        assert [each.lost for each in taken] == [at in (2, 5) for at in range(9)]


async def test_a_report_that_waits_survives_a_lost_connection(proxy: Proxy) -> None:
    url = proxy.url
    async with dataspace.connect(url, grace=30) as space, space.consume(JOB, group="w", in_flight=9) as jobs:
        for number in range(9):
            await space.send(job(number))
        taken = await take(jobs, 9)
        reports = 0

        async def report(each: Any) -> None:
            nonlocal reports
            await each.done()
            reports += 1

        async with trio.open_nursery() as nursery:
            for each in taken:
                nursery.start_soon(report, each)
            proxy.cut()
        assert reports == 9 and await is_idle(jobs, space)
