"""Consuming: the members of groups that a program is, and the jobs that they get.

A group divides a stream of facts and messages among its members (``RemoteSpace.consume``).  A ``Job`` is one
of them, out to this member; it is settled once: done, given back, or dead.  After a reconnect the daemon is
told which jobs the program still has, and says which of them it keeps.

Always: a job that is not settled is given to another member in the end; a lost job is never reported as
done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from dataspace.client.reports import (
    HeldJob,
    JobReports,
    JobsMember,
    KeyOrder,
    check_open,
    check_owned,
    done_of,
    forget,
    lost,
    owners_at,
    refused,
    reported,
)
from dataspace.client.session.turns import Done
from dataspace.errors import Broken, DataspaceError, DeliveryLost, Unreachable, UsageError
from dataspace.kernel.changes import ADDED, REMOVED, time_of
from dataspace.loops.blocks import AsyncOnly
from dataspace.loops.here import loop, parking_lot
from dataspace.loops.lone import lone_nursery
from dataspace.topics.times import Time
from dataspace.wire import packets as p
from dataspace.wire.consuming import AHEAD, LONGEST_SECONDS, ConsumeOptions
from index.patterns.patterns import capture_names
from index.values.values import Map, Value, key as key_of

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession

BYTES: Final = 1 << 50
"""The credit in bytes: ``in_flight`` is the bound of a member instead."""

CLOSE_SECONDS: Final = 1.0
"""Seconds for which the end of a block waits until the daemon has taken the jobs back."""


class AnyJob(Protocol):
    """A job of either client."""

    @property
    def itself(self) -> Job:
        """The job of the asynchronous client."""


class Job(AsyncOnly, HeldJob):
    """One item that is out to this member; named captures are attributes, and ``job["name"]`` finds any.

    ``id`` is the same in every attempt: an idempotency key.  ``token`` rises with each delivery of an item.
    ``attempt`` counts from 1.  ``is_message`` is false for a fact that appeared, and for one that went, of
    which ``is_ending`` is true.  Of a topic ``epoch`` is the number of the completed epoch, ``position`` the
    index of the item there, ``topic_time`` the time of that epoch, and ``crashed`` says why a producer
    crashed that could have sent more of it; it is empty for a whole epoch.
    """

    _usage = "async with job"
    __slots__ = (
        "_jobs",
        "_names",
        "attempt",
        "captures",
        "crashed",
        "gone",
        "is_ending",
        "is_message",
        "micros",
        "topic_time",
    )

    def __init__(self, jobs: Jobs, value: Any, names: tuple[str, ...]) -> None:
        epoch, position, micros, token, attempt, kind, captures = value
        super().__init__(jobs.group, (epoch, position, token), jobs.member)
        self._jobs = jobs
        self._names = names
        self.micros: int = micros
        self.attempt: int = attempt
        self.captures: tuple[Value, ...] = captures
        self.is_ending = kind == "ending"
        self.is_message = kind not in ("fact", "ending")
        self.topic_time: Time | None = None
        self.crashed = ""
        if isinstance(kind, tuple):
            _, self.topic_time, self.crashed = kind
        self.gone = False
        """True once the fact has gone meanwhile; to report the job as done still counts."""

    @property
    def itself(self) -> Job:
        """This job."""
        return self

    async def __aenter__(self) -> Self:
        """Begins a block that is cancelled once the job is lost, and then raises ``DeliveryLost``.

        At its end the job is done, unless it is settled; if it raises an ``Exception``, the job is given
        back, with that as the reason.
        """
        if self._scope is not None:
            raise UsageError(f"{self!r} has a block already")
        check_open([self])
        self._scope = loop().scope()
        self._scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        scope, self._scope = self._scope, None
        assert scope is not None  # as the block has begun
        scope.__exit__(kind, error, trace)
        was_cancelled = scope.cancelled_caught
        await self.end_block(None if was_cancelled else error)
        return was_cancelled

    async def end_block(self, error: BaseException | None) -> None:
        """Settles the job at the end of a block, which may have raised an error, unless that is done.

        Raises ``DeliveryLost`` for a lost job, if the block raised nothing.
        """
        if self.is_settled:
            return
        if self.lost:
            if error is None:
                raise lost(self)
        elif error is None:
            await self.done()
        elif isinstance(error, Exception):
            with suppress(DeliveryLost):
                await self.again(reason=f"{type(error).__name__}: {error}")

    @property
    def id(self) -> tuple[str, int, int]:
        """The group, the epoch and the position of the item: the same in every attempt."""
        return self._jobs.group, self.epoch, self.position

    @property
    def time(self) -> datetime:
        """When the epoch was made in which the fact appeared, or the message was sent, or completed for an
        item of a topic."""
        return time_of(self.micros)

    @property
    def named(self) -> dict[str, Value]:
        """The captures by name; unnamed ones by their position among all."""
        return dict(zip(self._names, self.captures, strict=True))

    def __getitem__(self, name: str | int) -> Value:
        return self.captures[name if isinstance(name, int) else self._names.index(name)]

    def __getattr__(self, name: str) -> Value:
        try:
            return self.captures[self._names.index(name)]
        except ValueError:
            raise AttributeError(f"no capture named {name!r}, there are {', '.join(self._names)}") from None

    def __repr__(self) -> str:
        return f"<job {self.epoch}.{self.position} {', '.join(map(repr, self.captures))}>"

    async def done(self) -> int:
        """Reports the job as done, and returns once that is on disk, the epoch up to which it holds.

        Jobs that are done in one pass of the loop share a turn.  Raises ``DeliveryLost`` if another member
        has the item, or it is done already.
        """
        return await self._jobs.done(self)

    async def again(self, after: float = 0.0, *, blame: bool = True, reason: str = "") -> None:
        """Gives the job back, for any member after so many seconds (12 hours at most).

        The attempt counts as failed unless ``blame`` is false.  ``reason`` is for the dead letter that the
        last failed attempt makes.
        """
        await self._jobs.settle("again", self, after=after, blame=blame, reason=reason)

    async def dead(self, reason: str = "") -> None:
        """Makes the job a dead letter: the fact ``dead(GROUP, EPOCH, POSITION, ITEM, REASON, ATTEMPTS, TIME,
        KIND)``."""
        await self._jobs.settle("dead", self, reason=reason)

    async def cause(self) -> tuple[str, ...]:
        """Returns the owner that asserted the fact, or all that ended it, as the log has them; empty for
        messages and items of topics.  It is a request, which needs the right to inspect."""
        return await self._jobs.cause(self)

    async def extend(self) -> None:
        """Begins the deadline of the job anew."""
        await self._jobs.extend(self)


class Jobs(AsyncOnly):
    """A member of a group: ``async with`` it, and iterate over its jobs; made by ``RemoteSpace.consume``.

    The end of the block gives back the jobs that are not settled.
    """

    _usage = "async with space.consume(…) as jobs: async for job in jobs"

    def __init__(self, session: ClientSession, options: ConsumeOptions) -> None:
        self._session = session
        self._options = options
        self.group: Final = options.group
        self.ack_within = 0.0
        """Seconds in which a job must be settled, or extended."""
        self._pattern: Value = None
        self._names: tuple[str, ...] = ()
        self._stream: int | None = None
        self._inbox: deque[Job | None] = deque()
        """Jobs that the program has not taken, with None for each mark between them."""
        self.member: Final = JobsMember(session, self._wait_held)
        """What its jobs know of it."""
        self._out: Final[dict[int, Job]] = self.member.out
        """Jobs that the program has taken and not settled, by their tokens."""
        self._taken = 0
        self._is_held = False
        """True once the daemon has said which jobs this member keeps."""
        self._arrival = parking_lot()
        self._to_ask = parking_lot()
        self._is_asking = self._asker_runs = False
        self._over = False
        self._error: DataspaceError | None = None
        self._reports = JobReports(self.member, self._report)

    # -- the program's side ---------------------------------------------------------------------------

    async def __aenter__(self) -> Jobs:
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        with loop().move_on_after(CLOSE_SECONDS, shield=True):
            await self.aclose()
        self._end()

    async def open(self) -> None:
        """Joins the group, which is made if there is none; raises ``Refused`` where that cannot be."""
        if self._stream is None and not self._over:
            self._begin(())
        try:
            await self._wait_held()
        except BaseException:
            self._end()
            raise

    async def aclose(self) -> None:
        """Leaves the group; jobs that are not settled are given back."""
        stream = self._stream
        if not self._over:
            await self._reports.wait_sent()  # so that they come before the end
        if stream is not None and not self._over:
            self._over = True
            with suppress(DataspaceError):
                await self._session.end_stream(stream)
        self._end()

    def __aiter__(self) -> AsyncIterator[Job]:
        self._check_entered()
        return self

    def _check_entered(self) -> None:
        """Raises ``UsageError`` before the block has begun: nothing would ever come."""
        if self._stream is None and not self._over:
            raise UsageError(
                f"this member has not joined: write `{self._usage}`, or `await jobs.open()` first"
            )

    async def __anext__(self) -> Job:
        job = await self.next_job()
        if job is None:
            raise StopAsyncIteration
        return job

    async def next_job(self) -> Job | None:
        """Returns the next job, or None once the block has ended."""
        self._check_entered()
        while True:
            self._skip_marks()
            if self._inbox:
                break
            if self._error is not None:
                raise type(self._error)(*self._error.args)
            if self._over:
                return None
            await self._arrival.park()
        job = self._inbox.popleft()
        assert job is not None  # marks are skipped
        self._out[job.token] = job
        self._taken += 1
        self._skip_marks()
        self._ask_soon()
        return job

    @property
    def ready(self) -> int:
        """How many jobs have come that the program has not taken."""
        return sum([each is not None and not each.lost for each in self._inbox])

    async def run(self, work: Callable[[Job], Awaitable[object]], *, tasks: int = 1) -> None:
        """Runs a function for each job, at most so many at once, until the block ends.

        A job is done when the function returns, and given back when it raises an ``Exception``.  The function
        is cancelled once its job is lost.  Jobs of one key run one after the other.
        """
        self._check_entered()
        order = await self.key_order() if tasks > 1 else KeyOrder(_no_key, self._keep)
        async with lone_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(self._work, work, order)

    async def key_order(self) -> KeyOrder:
        """Returns what keeps jobs of one key in order, for a program that works on several jobs at once."""
        self._check_entered()
        if (name := self._options.key) is None:
            answer: Any = await self._session.request("groups", Map({"group": self.group}))
            name = answer[0]["options"].get("key") if answer else None
        return KeyOrder(_no_key if name is None else partial(_key_at, name), self._keep)

    async def _keep(self, job: Job) -> None:
        with suppress(DataspaceError):
            while True:
                await loop().sleep(self.ack_within / 3)
                await job.extend()

    async def _work(self, work: Callable[[Job], Awaitable[object]], order: KeyOrder) -> None:
        async for job in self:
            order.add(job)
            failure: Exception | None = None
            try:
                async with order.turn(job), job:
                    try:
                        await work(job)
                    except Exception as error:
                        failure = error
                        raise
            except Exception as error:
                if error is not failure and not isinstance(error, DeliveryLost | Unreachable):
                    raise

    async def done(self, *jobs: Job) -> int:
        """Reports several jobs as done in one turn; returns the epoch up to which that holds."""
        self._check_entered()
        if len(jobs) == 1:
            await self._wait_held()
            check_open(jobs)
            return await self._reports.done(*jobs)
        await check_owned(self._session, jobs)
        return await self._report(jobs)

    async def _report(self, jobs: Sequence[Job]) -> int:
        async def commit(deliveries: Done) -> int:
            ticket = await self._session.submit((), deliveries=deliveries)
            return await self._session.answer_to(ticket)

        return await reported(jobs, commit)

    async def deliveries(self, jobs: Iterable[Job]) -> Done:
        """Returns jobs as a turn has them that says they are done; raises ``DeliveryLost`` for lost ones."""
        jobs = list(jobs)
        await check_owned(self._session, jobs)
        return done_of(jobs)

    async def settle(
        self, verb: str, job: Job, *, after: float = 0.0, blame: bool = True, reason: str = ""
    ) -> None:
        """Gives a job back (``again``) or makes it a dead letter (``dead``)."""
        if isinstance(after, bool) or not 0 <= after <= LONGEST_SECONDS:
            raise UsageError(f"after must be 0 to {LONGEST_SECONDS:.0f} seconds, got {after!r:.60}")
        await self._wait_held()
        check_open([job])
        arguments: dict[str, Value] = {"group": self.group, "reason": reason[:500]}
        if verb == "again":
            arguments |= {"after": float(after), "blame": blame}
        job.is_settled = job.is_asked = True
        try:
            await self._settle(verb, job, arguments)
        except BaseException as error:
            refused([job], error)
            raise
        forget([job])

    async def _settle(self, verb: str, job: Job, arguments: dict[str, Value]) -> None:
        """Sends the request until it is answered; a reconnect says whether it has happened.

        A delivery that this member has kept was not settled.  A delivery that this member has not kept is
        settled, or lost: the item is given back in any case, so only a dead letter is in doubt.
        """
        unclear = False
        while True:
            era = self.member.era
            try:
                await self._session.request("settle", Map(arguments | {verb: (job.cell,)}))
                return
            except Broken:
                if not self._session.is_open:
                    raise
                unclear = True
                await self._session.patience.wait(partial(self._wait_joined, era))
            except DeliveryLost:
                if self.member.era == era:
                    raise
                await self._wait_held()
            if job.token not in self._out:
                if unclear and verb == "again":
                    return
                raise lost(job)

    async def cause(self, job: Job) -> tuple[str, ...]:
        """Returns whose fact a job is, or who ended it."""
        if job.is_message:
            return ()
        await self._wait_held()
        kind = REMOVED if job.is_ending else ADDED
        return await owners_at(self._session, self._pattern, job.epoch, kind, job.captures)

    async def extend(self, *jobs: Job) -> None:
        """Begins the deadlines of jobs anew."""
        while True:
            await self._wait_held()
            check_open(jobs)
            era, cells = self.member.era, tuple([job.cell for job in jobs])
            try:
                await self._session.request("settle", Map({"group": self.group, "extend": cells}))
                return
            except Broken:
                if not self._session.is_open:
                    raise
                await self._session.patience.wait(partial(self._wait_joined, era))
            except DeliveryLost:
                if self.member.era == era:
                    raise

    async def _wait_joined(self, era: int) -> None:
        """Waits until this has joined again, and the daemon has said which jobs it keeps."""
        while self.member.era == era and not self._over:
            await self._arrival.park()
        await self._wait_held()

    async def _wait_held(self) -> None:
        """Waits until the daemon has said which jobs this member keeps."""
        self._check_entered()
        while not self._is_held:
            if self._error is not None:
                raise type(self._error)(*self._error.args)
            if self._over:
                return
            await self._arrival.park()

    # -- the wire's side ------------------------------------------------------------------------------

    def _begin(self, holding: tuple[tuple[int, int, int], ...], number: int | None = None) -> None:
        self._is_held = False
        self.member.era += 1
        self._taken = 0
        self._inbox.clear()
        spec = replace(self._options, holding=holding).spec()
        credit = self._options.in_flight + AHEAD
        self._stream = self._session.open_stream(self, Map(spec), credit, BYTES, number)

    def _ask_soon(self) -> None:
        """Tells the daemon which jobs the program has taken, once for each pass of the loop.

        The deadline of a job begins with that packet.
        """
        if not self._inbox:
            self._ask()
        elif not self._is_asking:
            self._is_asking = True
            if self._asker_runs:
                self._to_ask.unpark_all()
            else:
                self._asker_runs = True
                self._session.start_soon(self._ask_in_passes)

    async def _ask_in_passes(self) -> None:
        while not self._over:
            self._ask()
            self._is_asking = False
            await self._to_ask.park()

    def _ask(self) -> None:
        if self._stream is not None and not self._over:
            asked = self._taken + self._options.in_flight + AHEAD
            self._session.send_on_stream(p.Ask(self._stream, asked, BYTES))

    def _skip_marks(self) -> None:
        """Passes over marks, and over jobs that were taken back before the program had them."""
        while self._inbox and ((job := self._inbox[0]) is None or job.lost):
            self._inbox.popleft()
            self._taken += 1

    def arrive(self, values: tuple[Value, ...], _first: int, _size: int, _available: int) -> None:
        """Takes a frame of deliveries and marks."""
        for value in values:
            assert isinstance(value, tuple)  # by WIRE.md
            if isinstance(value[0], str):
                self._mark(value)
                self._inbox.append(None)
            else:
                self._inbox.append(Job(self, value, self._names))
        before = self._taken
        self._skip_marks()
        if self._taken > before:
            self._ask()
        self._arrival.unpark_all()

    def _mark(self, value: Any) -> None:
        match value:
            case ("held", pattern, ack_within, kept):
                self._pattern, self._names = pattern, capture_names(pattern)
                self.ack_within = float(ack_within)
                self._held({before: after for _, _, before, after in kept})
            case ("revoked", token):
                self._lose(token)
            case ("gone", token):
                for job in [*self._out.values(), *self._inbox]:
                    if job is not None and job.token == token:
                        job.gone = True
            case ("ended",):
                self._end()

    def _held(self, kept: dict[int, int]) -> None:
        """Takes over the new tokens of the jobs that this member keeps; all others are lost."""
        for token, job in list(self._out.items()):
            del self._out[token]
            if token in kept:
                job.token = kept[token]
                self._out[job.token] = job
            elif not job.is_settled or job.is_waiting:
                job.lost = True  # of one that is being settled the answer says what has become of it
        self._is_held = True

    def _lose(self, token: int) -> None:
        job = self._out.get(token)
        if job is not None and (not job.is_settled or job.is_waiting):
            del self._out[token]
            job.lost = True
        for waiting in self._inbox:
            if waiting is not None and waiting.token == token:
                waiting.lost = True

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """Joins again on a new connection, with the jobs that the program has."""
        del resumed  # the daemon knows what the session had
        if self._over:
            return
        if moved:
            for job in self._out.values():
                job.lost = True
            self._out.clear()
        held = [
            each for each in self._out.values() if not each.is_settled or each.is_waiting or each.is_asked
        ]
        holding = tuple([job.cell for job in held])
        self._begin(holding, number)

    def know(self, total: int) -> None:
        """Ignores how many values are ready."""

    @property
    def seen(self) -> int:
        """No epoch."""
        return 0

    def reach(self, epoch: int) -> None:
        """Ignores epochs: each job has its own."""

    def finish(self) -> None:
        """Ends: the group has ended."""
        self._over = True
        self._wake()

    def fail(self, error: DataspaceError) -> None:
        """Fails: the stream has failed, or the connection has ended."""
        self._error, self._over = error, True
        for job in self._out.values():
            job.lost = True
        self._wake()

    def _wake(self) -> None:
        """Wakes whatever waits, since this has ended."""
        self._arrival.unpark_all()
        self._to_ask.unpark_all()

    def _end(self) -> None:
        if self._stream is not None and not self._over:
            self._session.drop_stream(self._stream)
        self._over = True
        for job in self._out.values():
            job.lost = not job.is_settled
        self._out.clear()
        self._wake()


def _no_key(_job: Job) -> None:
    """Returns no key."""


def _key_at(name: str, job: Job) -> Hashable:
    """Returns the capture of this name as a key."""
    return (key_of(job[name]),)  # since None is a key as well
