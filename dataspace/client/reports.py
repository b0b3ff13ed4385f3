"""Reports: jobs that are done in one moment share a turn; and the order in which jobs of one key are begun.

A turn costs the daemon several times what a further job in it costs.  So ``Job.done`` waits for one pass of
the loop, and while two turns of this member have no answer, and then reports with the jobs that ended
meanwhile.  A program that ends one job after the other has a turn for each.

Always: a job is reported once; if some jobs of a turn are lost, the others are reported again without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from dataspace.client.session.turns import Done
from dataspace.errors import Closed, DataspaceError, DeliveryLost, Refused, UsageError
from dataspace.loops.here import loop, parking_lot
from dataspace.loops.lone import lone_nursery
from dataspace.loops.primitives import Scope
from index.values.values import Map, Value, same

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession

UNKNOWN: Final = frozenset(["not-yours", "out-of-order"])
"""Refusals of a turn that reports jobs, which another turn may not get once the member has joined again."""

MOST: Final = 4096
"""Jobs that share a turn at most."""

TOGETHER: Final = 2
"""Turns of a member that wait for their answers."""


class JobsMember:
    """What jobs know of the member that has them: ``out`` has the jobs that are out to it, by token."""

    __slots__ = ("era", "out", "session", "wait_held")

    def __init__(self, session: ClientSession, wait_held: Callable[[], Awaitable[None]]) -> None:
        """``wait_held`` waits until the daemon has said which jobs the member keeps."""
        self.session: Final = session
        self.wait_held: Final = wait_held
        self.out: Final[dict[int, Any]] = {}
        self.era = 0
        """How often the member has joined its group: deliveries of an earlier time have other tokens."""


class HeldJob:
    """A job as far as it is to be settled, of one member."""

    __slots__ = (
        "_lost",
        "_scope",
        "epoch",
        "group",
        "is_asked",
        "is_settled",
        "is_waiting",
        "member",
        "position",
        "token",
    )

    def __init__(self, group: str, cell: tuple[int, int, int], member: JobsMember) -> None:
        self.group = group
        """The name of the group."""
        self.epoch, self.position, self.token = cell
        self.is_settled = False
        """True once the job is done, given back or dead, or that is being sent."""
        self.is_waiting = False
        """True for a settled job while that waits to be sent."""
        self.is_asked = False
        """True for a settled job while that was sent and has no answer: the daemon may not know of it."""
        self._lost = False
        self._scope: Scope | None = None
        self.member = member

    @property
    def lost(self) -> bool:
        """True once the delivery is no longer this member's."""
        return self._lost

    @lost.setter
    def lost(self, lost: bool) -> None:
        self._lost = lost
        if lost and self._scope is not None:
            self._scope.cancel()

    @property
    def cell(self) -> tuple[int, int, int]:
        """The delivery as requests name it."""
        return self.epoch, self.position, self.token

    def drop(self) -> None:
        """Notes that the job is settled or lost."""
        self.member.out.pop(self.token, None)

    @property
    def is_kept(self) -> bool:
        """True while the daemon has said last that the job is out to this member."""
        return self.token in self.member.out


class _Report:
    """The jobs of one turn, and the answer to each: an epoch, or an error."""

    __slots__ = ("answered", "answers", "jobs")

    def __init__(self) -> None:
        self.jobs: list[HeldJob] = []
        self.answers: dict[HeldJob, int | DataspaceError] = {}
        self.answered = parking_lot()

    def answer(self, jobs: Iterable[HeldJob], answer: int | DataspaceError) -> None:
        for job in jobs:
            self.answers.setdefault(job, answer)
        self.answered.unpark_all()


class JobReports:
    """The jobs of one member that are done; ``wait_held`` waits until the daemon knows the member."""

    def __init__(
        self,
        member: JobsMember,
        report: Callable[[Sequence[Any]], Awaitable[int]],
    ) -> None:
        """``report`` reports jobs in one turn, whether or not they are taken for settled."""
        self._session = member.session
        self._wait_held = member.wait_held
        self._report = report
        self._next: deque[_Report] = deque()
        self._senders = 0
        self._sent = parking_lot()

    async def wait_sent(self) -> None:
        """Returns when no report waits to be sent."""
        while self._next:
            await self._sent.park()

    async def done(self, job: HeldJob) -> int:
        """Reports a job that is open; returns the epoch up to which that holds, or raises its refusal.

        A task that is cancelled here does not take the report back.
        """
        if not self._next or len(self._next[-1].jobs) == MOST:
            self._next.append(_Report())
            if self._senders < TOGETHER:
                self._session.start_soon(self._send_all)
                self._senders += 1
        report = self._next[-1]
        report.jobs.append(job)
        job.is_settled = job.is_waiting = True
        while job not in report.answers:
            await report.answered.park()
        answer = report.answers[job]
        if isinstance(answer, DataspaceError):
            raise type(answer)(*answer.args)
        return answer

    async def _send_all(self) -> None:
        try:
            await loop().checkpoint()
            while self._next:
                report = self._next.popleft()
                self._sent.unpark_all()
                await self._send(report)
        finally:
            self._senders -= 1
            while self._next and not self._senders:
                _close(self._next.popleft())

    async def _send(self, report: _Report) -> None:
        try:
            left: Sequence[HeldJob] = report.jobs
            while left:
                left = await self._send_some(report, left)
        except DataspaceError as error:
            refused(report.jobs, error)
            report.answer(report.jobs, error)
        finally:
            _close(report)

    async def _send_some(self, report: _Report, jobs: Sequence[HeldJob]) -> Sequence[HeldJob]:
        """Reports jobs in one turn; returns the jobs to be reported again, as others of them are lost."""
        await self._wait_held()
        for job in jobs:
            job.is_waiting = False
            if job.lost:
                report.answer([job], lost(job))
        held = [job for job in jobs if not job.lost]
        if not held:
            return ()
        try:
            epoch = await self._report(held)
        except DeliveryLost:
            left = [job for job in held if not job.lost]
            if len(left) == len(held):
                raise
            for job in held:
                if job.lost:
                    report.answer([job], lost(job))
                else:
                    job.is_settled = job.is_waiting = True
            return left
        report.answer(held, epoch)
        return ()


def _close(report: _Report) -> None:
    """Answers what has no answer yet, since no answer can come any more."""
    for job in report.jobs:
        job.is_waiting = False
    report.answer(report.jobs, Closed("the connection has ended"))


async def check_owned(session: ClientSession, jobs: Sequence[HeldJob]) -> None:
    """Raises ``UsageError`` for a settled job or one of another session, ``DeliveryLost`` for a lost job."""
    for job in jobs:
        if job.member.session is not session:
            raise UsageError(f"{job!r} came over another connection, or is of another space")
        await job.member.wait_held()
    check_open(jobs)


async def reported(jobs: Sequence[HeldJob], commit: Callable[[Done], Awaitable[int]]) -> int:
    """Commits a turn by which jobs are done; returns its epoch, or raises the refusal of the turn.

    A turn may be refused because a reconnect has given the deliveries new tokens, or because the daemon has
    not read the items yet.  Nothing has happened then, and the daemon says next which jobs this member keeps:
    if it keeps them all, the turn is committed with the new tokens.
    """
    while True:
        for job in jobs:
            await job.member.wait_held()
        for job in jobs:
            if job.lost:
                raise lost(job)
        eras = _eras(jobs)
        try:
            epoch = await commit(done_of(jobs))
        except BaseException as error:
            if not (isinstance(error, Refused) and error.code in UNKNOWN and eras != _eras(jobs)):
                refused(jobs, error)
                raise
        else:
            forget(jobs)
            return epoch
        for job in jobs:
            await job.member.wait_held()
        for job in jobs:
            job.is_settled = job.is_asked = False
            job.lost = job.lost or not job.is_kept


def _eras(jobs: Sequence[HeldJob]) -> list[int]:
    return [job.member.era for job in jobs]


def done_of(jobs: Iterable[HeldJob]) -> Done:
    """Returns jobs as a turn has them that reports them, and takes them for settled."""
    groups: dict[str, list[int]] = {}
    for job in jobs:
        groups.setdefault(job.group, []).extend(job.cell)
        job.is_settled = job.is_asked = True
    return tuple([(group, tuple(cells)) for group, cells in groups.items()])


def check_open(jobs: Iterable[HeldJob]) -> None:
    """Raises ``DeliveryLost`` for a lost job, ``UsageError`` for a settled job."""
    for job in jobs:
        if job.lost:
            raise lost(job)
        if job.is_settled:
            raise UsageError(f"{job!r} is settled already")


def lost(job: HeldJob) -> DeliveryLost:
    """Returns the error of a job that is no longer this member's."""
    named = Map({"group": job.group, "lost": ((job.epoch, job.position),)})
    return DeliveryLost("not-yours", f"{job!r} is no longer this member's", named)


def refused(jobs: Iterable[HeldJob], error: BaseException) -> None:
    """Notes that nothing has happened to jobs; a refusal says which of them are lost."""
    named = error.lost if isinstance(error, DeliveryLost) else []
    for job in jobs:
        job.is_asked = False
        if (job.epoch, job.position) in named:
            job.lost = True
            job.drop()
        elif isinstance(error, Refused):
            job.is_settled = False


def forget(jobs: Iterable[HeldJob]) -> None:
    """Notes that jobs are settled."""
    for job in jobs:
        job.is_asked = False
        job.drop()


class KeyOrder:
    """The jobs that a program has taken, by key, in order: each is begun once the one before it has ended.

    ``key_at`` returns the key of a job, None for a job without a key, which never waits.  ``keep`` begins the
    deadline of a job that waits anew, until it is cancelled.  Every job must be added as soon as it is taken.
    """

    def __init__(self, key_at: Callable[[Any], Hashable], keep: Callable[[Any], Awaitable[None]]) -> None:
        self._key_at = key_at
        self._keep = keep
        self._taken: dict[Hashable, deque[HeldJob]] = {}
        self._ended = parking_lot()

    def add(self, job: HeldJob) -> None:
        """Adds a job behind all others of its key."""
        if (at := self._key_at(job)) is not None:
            self._taken.setdefault(at, deque()).append(job)

    @asynccontextmanager
    async def turn(self, job: HeldJob) -> AsyncIterator[None]:
        """A block for the work on a job, which is settled there; begins once all before it of its key ended.

        Raises ``DeliveryLost`` for a job that was lost meanwhile.
        """
        if (at := self._key_at(job)) is None:
            yield
            return
        taken = self._taken[at]
        try:
            if taken[0] is not job:
                await self._wait(job, taken)
            check_open([job])
            yield
        finally:
            taken.remove(job)
            if not taken:
                del self._taken[at]
            self._ended.unpark_all()

    async def _wait(self, job: HeldJob, taken: deque[HeldJob]) -> None:
        async with lone_nursery() as nursery:
            nursery.start_soon(self._keep, job)
            while taken[0] is not job:
                await self._ended.park()
            nursery.cancel_scope.cancel()
        await loop().checkpoint()  # the end of the one before may have lost this one


async def owners_at(
    session: ClientSession, pattern: Value, epoch: int, kind: str, captures: tuple[Value, ...]
) -> tuple[str, ...]:
    """Returns the owners whose claims began, or ended, facts with these captures in an epoch."""
    asked = {"pattern": pattern, "after": epoch - 1, "upto": epoch, "most": MOST}
    answer: Any = await session.request("who", Map(asked))
    changes = [each for each in answer["changes"] if each["change"] == kind]
    owners = [each["owners"] for each in changes if same(each["captures"], captures)]
    return tuple(dict.fromkeys(name for names in owners for name in names))
