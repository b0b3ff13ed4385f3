"""A stream of work is divided among the members of a group, over real sockets and a real log."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import DeliveryLost, Record, Refused
from tests.server.processes import DaemonProcess

JOB = "job($id, $what)"


def job(number: int) -> Record:
    return Record("job", number, f"work {number}")


def number_of(job: dataspace.Job) -> int:
    number = job["id"]
    assert isinstance(number, int)
    return number


async def take(jobs: dataspace.Jobs, count: int) -> list[dataspace.Job]:
    taken = []
    with trio.fail_after(10):
        for _ in range(count):
            each = await jobs.next_job()
            assert each is not None
            taken.append(each)
    return taken


async def is_idle(jobs: dataspace.Jobs, space: dataspace.RemoteSpace) -> bool:
    """True if nothing is out to a member once everything before is on disk."""
    await space.sync()
    with trio.move_on_after(0.05):
        await jobs.next_job()
        return False
    return True


async def test_each_job_goes_to_one_member_and_is_done_once(url: str) -> None:
    seen: list[int] = []
    async with dataspace.connect(url) as boss, dataspace.connect(url) as one, dataspace.connect(url) as two:
        async with one.consume(JOB, group="w") as first, two.consume(group="w", in_flight=3) as second:
            async with trio.open_nursery() as nursery:

                async def work(jobs: dataspace.Jobs) -> None:
                    async for each in jobs:
                        seen.append(number_of(each))
                        await each.done()

                nursery.start_soon(work, first)
                nursery.start_soon(work, second)
                for number in range(20):
                    await (boss.send if number % 2 else boss.assert_)(job(number))
                with trio.fail_after(10):
                    while len(seen) < 20:  # noqa: ASYNC110  # the members do not say so
                        await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
    assert sorted(seen) == list(range(20))


async def test_a_turn_does_a_job_and_its_result_together(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w") as jobs:
        await space.send(job(1))
        (each,) = await take(jobs, 1)
        assert (each.id[0], each.named, each.attempt, each.is_message) == (
            "w",
            {"id": 1, "what": "work 1"},
            1,
            True,
        )
        async with space.turn(done=[each]) as turn:
            turn.assert_(Record("result", each["id"]), owner="results")
        assert await space.matches("result($)") == [(1,)]
        with pytest.raises(dataspace.UsageError, match="settled already"):
            await each.done()


async def test_a_job_of_another_member_refuses_the_whole_turn(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as late:
        async with late.consume(JOB, group="w", ack_within=0.2) as slow:
            await space.send(job(1))
            (old,) = await take(slow, 1)
            async with space.consume(group="w") as jobs:
                (new,) = await take(jobs, 1)
                assert (new.attempt, new.id, new.token > old.token) == (2, old.id, True)
                old.lost = False  # as if the mark had not come yet
                with pytest.raises(DeliveryLost):
                    async with late.turn(done=[old]) as turn:
                        turn.assert_(Record("result", 1), owner="results")
                assert old.lost
                await new.done()
        assert await space.matches("result($)") == []


async def test_a_late_job_counts_while_nobody_else_has_it(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", ack_within=0.05) as jobs:
        await space.send(job(1))
        (each,) = await take(jobs, 1)
        with trio.fail_after(10):
            while not each.lost:  # noqa: ASYNC110  # no event tells it
                await trio.sleep(0.01)
        each.lost = False
        await each.done()
        assert await is_idle(jobs, space)


async def test_what_is_given_back_comes_again_and_dies_in_the_end(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", attempts=3) as jobs:
        await space.send(job(1))
        for attempt in (1, 2, 3):
            (each,) = await take(jobs, 1)
            assert each.attempt == attempt
            await each.again(blame=False)
            (each,) = await take(jobs, 1)
            assert each.attempt == attempt
            await each.again(reason="no luck")
        assert await space.first("dead($group, _, _, $item, $reason, $n)", timeout=10) == (
            "w",
            job(1),
            "no luck",
            3,
        )
        assert await is_idle(jobs, space)


async def test_a_fact_that_has_gone_is_passed_over(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w") as jobs:
        claims = [await space.assert_(job(number)) for number in range(3)]
        (first,) = await take(jobs, 1)
        await space.retract(claims[1])
        await first.done()
        (each,) = await take(jobs, 1)
        assert each["id"] == 2


async def test_a_group_begins_with_what_holds_or_at_an_epoch(url: str) -> None:
    async with dataspace.connect(url) as space:
        claims = [await space.assert_(job(number)) for number in range(4)]
        await space.retract(claims[0])
        epoch = claims[2].epoch
        assert epoch is not None
        async with space.consume(JOB, group="held", start="held", in_flight=9) as jobs:
            assert sorted(map(number_of, await take(jobs, 3))) == [1, 2, 3]
        async with space.consume(JOB, group="since", start=epoch, in_flight=9) as jobs:
            assert [each["id"] for each in await take(jobs, 2)] == [2, 3]
        async with space.consume(JOB, group="now", in_flight=9) as jobs:
            assert await is_idle(jobs, space)
        with pytest.raises(Refused, match="epoch 9999 is still to come"):
            async with space.consume(JOB, group="later", start=9999):
                pass


async def test_a_group_is_joined_with_its_own_definition_only(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match="no-group"):
            async with space.consume(group="w"):
                pass
        async with space.consume(JOB, group="w", key="id"), space.consume(group="w"):
            with pytest.raises(Refused, match="group-differs"):
                async with space.consume("other($id)", group="w"):
                    pass
            with pytest.raises(Refused, match="group-differs"):
                async with space.consume(JOB, group="w", key="what"):
                    pass
        assert [row[0] for row in await space.matches("group($name, _, _)")] == ["w"]


async def test_jobs_of_one_key_are_done_in_order(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        async with (
            space.consume("step($who, $n)", group="w", key="who", in_flight=2) as one,
            other.consume(group="w", in_flight=2) as two,
        ):
            for n in range(3):
                await space.send(Record("step", "a", n))
            taken = await take(one, 2)
            assert [each["n"] for each in taken] == [0, 1]
            assert await is_idle(two, space)
            with pytest.raises(Refused, match="out-of-order"):
                await taken[1].done()
            await one.done(*taken)
            (last,) = await take(one if one._inbox else two, 1)
            assert last["n"] == 2


async def test_a_group_goes_on_after_a_restart(daemon: DaemonProcess, tmp_path: Path) -> None:
    async with dataspace.connect(daemon.url) as space:
        async with space.consume(JOB, group="w", in_flight=5, attempts=9) as jobs:
            for number in range(5):
                await space.send(job(number))
            taken = await take(jobs, 5)
            await taken[1].done()
            await taken[2].again(reason="once")
            await space.sync()
            daemon.kill()
            daemon.start()
            await space.send(job(5))
            with trio.fail_after(10):
                await taken[0].done()
            assert not (taken[3].lost or taken[4].lost)
            await jobs.done(taken[3], taken[4])
            rest = await take(jobs, 2)
            assert [(each["id"], each.attempt) for each in rest] == [(2, 2), (5, 1)]
            await jobs.done(*rest)
            assert await is_idle(jobs, space)
