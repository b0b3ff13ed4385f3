"""A group goes on at the next leader: members keep their jobs, and each job is done once."""

from __future__ import annotations

import signal

import pytest
import trio
import trio.testing

import dataspace
from dataspace import Record
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


async def test_members_keep_their_jobs_at_the_next_leader(
    successors: tuple[DaemonProcess, DaemonProcess],
) -> None:
    first, second = successors
    with trio.fail_after(60):
        both = f"{first.url},{second.url}"
        async with dataspace.connect(both, grace=20) as space, dataspace.connect(both, grace=20) as other:
            async with (
                space.consume("job($id)", group="w", in_flight=2) as one,
                other.consume(group="w", in_flight=2) as two,
            ):
                for number in range(8):
                    await space.send(Record("job", number))
                taken = [await _next(jobs) for jobs in (one, one, two, two)]
                await taken[0].done()
                await trio.to_thread.run_sync(first.kill)
                done = [job["id"] for job in taken]
                for job in taken[1:]:
                    async with (space if job in taken[:2] else other).turn(done=[job]) as turn:
                        turn.assert_(Record("result", job["id"]), owner="results")
                while len(done) < 8:
                    for jobs, client in ((one, space), (two, other)):
                        with trio.move_on_after(0.2):
                            job = await _next(jobs)
                            async with client.turn(done=[job]) as turn:
                                turn.assert_(Record("result", job["id"]), owner="results")
                            done.append(job["id"])
                assert sorted(map(repr, done)) == sorted(map(repr, range(8)))
                results = [row[0] for row in await space.matches("result($)")]
                assert sorted(map(repr, results)) == sorted(
                    repr(each) for each in done if each != taken[0]["id"]
                )


async def test_a_turn_waits_for_a_group_that_the_next_leader_still_reads(
    successors: tuple[DaemonProcess, DaemonProcess],
) -> None:
    """The item of the turn is behind so many others that the group has not read it when the turn comes."""
    first, second = successors
    count = 4_000
    with trio.fail_after(90):
        async with (
            dataspace.connect(f"{first.url},{second.url}", grace=30) as space,
            space.consume("job($id)", group="w", key="id", in_flight=count + 1) as jobs,
        ):
            async with space.turn() as turn:
                for number in range(count + 1):
                    turn.send(Record("job", number))
            *taken, last = [await _next(jobs) for _ in range(count + 1)]
            await jobs.done(*taken)
            async with trio.open_nursery() as nursery:
                first.process.send_signal(signal.SIGSTOP)
                nursery.start_soon(_reports, space, last)
                await trio.testing.wait_all_tasks_blocked(0.1)
                await trio.to_thread.run_sync(first.kill)
            assert await space.matches("result($)") == [(1,)]


async def _reports(space: dataspace.RemoteSpace, job: dataspace.Job) -> None:
    async with space.turn(done=[job]) as turn:
        turn.assert_(Record("result", 1), owner="results")


async def _next(jobs: dataspace.Jobs) -> dataspace.Job:
    job = await jobs.next_job()
    assert job is not None  # nothing ends the group
    return job
