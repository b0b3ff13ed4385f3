"""A group goes on at the next leader: members keep their jobs, and each job is done once."""

from __future__ import annotations

import pytest
import trio

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


async def _next(jobs: dataspace.Jobs) -> dataspace.Job:
    job = await jobs.next_job()
    assert job is not None  # nothing ends the group
    return job
