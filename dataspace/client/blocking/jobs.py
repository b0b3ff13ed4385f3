"""The jobs of a group without ``async``; see ``dataspace.client.jobs``."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dataspace.client.blocking.waiting import Blocking, Waiter, documented_by, waiting
from dataspace.client.jobs import Job, Jobs
from dataspace.client.reports import check_open
from dataspace.errors import UsageError
from dataspace.loops.blocks import BlockingOnly

if TYPE_CHECKING:
    from index.values.values import Value


class BlockingJob(BlockingOnly, Blocking[Job]):
    """One item that is out to this member; see ``Job``."""

    _usage = "with job"

    def __init__(self, job: Job, wait: Waiter) -> None:
        self._remote = job
        self._wait = wait
        self._has_block = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)

    @property
    def itself(self) -> Job:
        """The job of the asynchronous client."""
        return self._remote

    def __getitem__(self, name: str | int) -> Value:
        return self._remote[name]

    def __repr__(self) -> str:
        return repr(self._remote)

    done = waiting(Job.done)
    again = waiting(Job.again)
    dead = waiting(Job.dead)
    extend = waiting(Job.extend)
    cause = waiting(Job.cause)

    def __enter__(self) -> Self:
        """Begins a block at whose end the job is done, unless it is settled.

        If the block raises an ``Exception``, the job is given back, with that as the reason.  A thread cannot
        be cancelled: a block whose job is lost goes on to its end, and then raises ``DeliveryLost``; a long
        one looks at ``job.lost``.
        """
        if self._has_block:
            raise UsageError(f"{self!r} has a block already")
        check_open([self._remote])
        self._has_block = True
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._has_block = False
        self._wait(self._remote.end_block, error)


class BlockingJobs(BlockingOnly, Blocking[Jobs]):
    """A member of a group: iterate over its jobs; see ``Jobs``."""

    _usage = "with space.consume(…) as jobs: for job in jobs"

    def __init__(self, jobs: Jobs, wait: Waiter) -> None:
        self._remote = jobs
        self._wait = wait

    def __iter__(self) -> Iterator[BlockingJob]:
        while (job := self.next_job()) is not None:
            yield job

    @documented_by(Jobs.next_job)
    def next_job(self) -> BlockingJob | None:
        job = self._wait(self._remote.next_job)
        return None if job is None else BlockingJob(job, self._wait)

    @documented_by(Jobs.done)
    def done(self, *jobs: BlockingJob) -> int:
        return self._wait(self._remote.done, *[each.itself for each in jobs])

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._remote.group

    @property
    def ready(self) -> int:
        """How many jobs have come that the program has not taken."""
        return self._remote.ready
