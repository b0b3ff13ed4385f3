"""The door of groups: carries out a program on ``GroupCore``, and on a plain list of jobs.

The list says who may get a job, in which order, as which attempt and from when on, who may report it as done,
and what a start has to know.  After each operation nobody with room may wait for a job that he may get.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dataspace.errors import Refused
from index.values.values import Record, Value
from relay.groups.core import Cell, GroupCore
from relay.groups.members import LONGEST_BACKOFF, GroupMember, GroupOptions, JobDelivery
from relay.groups.state import AGAIN, DONE, UNDONE, At, GroupState, GroupStates, Item, done_fields
from tests.generated.jobs import (
    Again,
    Begin,
    Come,
    Done,
    Fall,
    Go,
    HandOut,
    Hear,
    Join,
    Keep,
    Leave,
    Operation,
    Options,
    Pass,
    Program,
    Read,
    Retry,
    Save,
    Start,
)

NAME: Final = "g"
BACKOFF: Final = 0.1
"""Seconds until a job comes again that has failed once."""


class Difference(Exception):
    """The group did what the list does not."""


@dataclass(eq=False)
class Job:
    """One item as the list has it; what ends a fact is an ending, which is handed out as a message is."""

    at: At
    value: Record
    is_message: bool
    is_ending: bool = False
    place: int = 0
    """Its place among those of its key: that in the log, until it was a dead letter."""
    is_read: bool = False
    is_open: bool = True
    is_dead: bool = False
    is_past: bool = False
    """True of a fact that came again before this was handed out."""
    attempts: int = 0
    due: int = 0
    noted: tuple[int, int] = (0, 0)
    """The last two as the log has them."""
    token: int = 0
    holder: str = ""
    """Who has it, by this token, or had it last since the start."""
    is_out: bool = False
    is_begun: bool = False

    @property
    def key(self) -> Value:
        return self.value.fields[0]

    @property
    def level(self) -> int:
        level = self.value.fields[1]
        assert isinstance(level, int)
        return level

    def item(self) -> Item:
        """Returns the item as it is read."""
        return Item(self.at, 0, self.value, is_message=self.is_message, is_ending=self.is_ending)


@dataclass(eq=False)
class Member:
    """Who takes jobs; ``is_alone`` while it may wait for a job in its last attempt, or has one."""

    member: GroupMember
    in_flight: int
    is_alone: bool = False
    is_silent: bool = False


class GroupRun:
    """A group and the list, side by side."""

    def __init__(self) -> None:
        self.options = Options()
        self.jobs: dict[At, Job] = {}
        self.members: dict[str, Member] = {}
        self.wall = 1_000_000
        self.term = 1
        self.rows: list[Job] = []
        """What the log has, of which a group has read the first ``read`` ones."""
        self.read = 0
        self.epoch = self.begun = self.deleted = 0
        """The newest epoch, that of the last start, and that up to which the log is deleted."""
        self.held: set[Value] = set()
        self.notes: list[tuple[str, Any]] = []
        self.former: list[tuple[Job, int]] = []
        """Deliveries so far."""
        self.latest: dict[Value, Job] = {}
        """The item of each fact that was entered last."""
        self.newest = 0
        self.places = 0
        self.given: list[float] = []
        """When jobs were handed out since the start, in seconds."""
        self.states = GroupStates()
        self.states[NAME] = GroupState(NAME)
        self.saved = self.states.rows()
        self.core = self._made()

    def _made(self) -> GroupCore:
        wanted = self.options
        options = GroupOptions(
            key="key" if wanted.is_keyed else None,
            attempts=wanted.attempts,
            most_out=wanted.most_out,
            rate=wanted.rate,
            exclusive=wanted.exclusive,
            backoffs=wanted.backoffs,
        )
        key_at: Callable[[Any], Hashable] | None = (lambda value: value.fields[0]) if options.key else None
        level_at: Callable[[Any], int] | None = (lambda value: value.fields[1]) if wanted.levels else None
        return GroupCore(
            self.states[NAME],
            term=self.term,
            options=options,
            holds=lambda value: value in self.held,
            key_at=key_at,
            level_at=level_at,
            handed_before=lambda at: at[0] <= self.begun,
        )

    def carry_out(self, operation: Operation) -> None:
        """Does one operation on both; raises ``Difference``."""
        match operation:
            case Options():
                self.options = operation
                self.core.close()
                self.core = self._made()
            case Come(rows, keeps_up):
                self._come(rows)
                if keeps_up:
                    self._read(len(self.rows))
            case Go(key, number):
                self._go(_fact(key, number))
            case Fall(name, is_gone):
                self._fall(name, is_gone)
            case Hear(name):
                self._hear(name)
            case Read(count):
                self._read(count)
            case Join(name, in_flight):
                self._join(name, in_flight)
            case Leave(name, is_ended):
                self._leave(name, is_ended)
            case HandOut():
                self._hand_out()
            case Begin(name):
                self._begin(name)
            case Done(name, cells):
                self._done(name, [self._cell(name, *each) for each in cells])
            case Again(name, place, after, blame):
                self._again(name, place, after, blame)
            case Retry():
                self._retry()
            case Pass(seconds):
                self.wall += round(seconds * 1_000_000)
            case Save():
                self._save()
            case Start():
                self._start()
            case Keep(name, place):
                self._keep(name, place)
        self._pass_over()
        if self.core.gone:
            self._note(DONE, done_fields(NAME, self.core.gone))
            self.core.gone = []

    # -- rows -------------------------------------------------------------------------------------------

    def _come(self, rows: Sequence[tuple[str, int, bool]]) -> None:
        self.epoch += 1
        for position, (key, number, is_message) in enumerate(rows):
            value = _fact(key, number)
            if not is_message:
                if value in self.held:
                    continue
                self.held.add(value)
            job = Job((self.epoch, position), value, is_message)
            self.jobs[job.at] = job
            self.rows.append(job)

    def _go(self, fact: Record) -> None:
        if fact in self.held:
            self.held.discard(fact)
            if self.options.endings:
                self.epoch += 1
                job = Job((self.epoch, 0), fact, is_message=True, is_ending=True)
                self.jobs[job.at] = job
                self.rows.append(job)

    def _read(self, count: int) -> None:
        for job in self.rows[self.read : self.read + count]:
            if job.at[0] <= self.deleted:
                raise Difference(f"{job.at} was not read, and the log is deleted up to {self.deleted}")
            self.read += 1
            self.core.take(job.item())
            if not job.is_read:
                job.is_read = True
                if job.is_open:
                    self._enter(job)

    def _enter(self, job: Job) -> None:
        self.places += 1
        job.place, job.is_past = self.places, False
        if not job.is_message:
            earlier = self.latest.get(job.value)
            if earlier is not None and earlier.is_open and not earlier.is_out:
                earlier.is_past = True
            self.latest[job.value] = job

    def _pass_over(self) -> None:
        """Facts that have gone before they are handed out are passed over."""
        for at in self.core.gone:
            job = self.jobs[at]
            if job.is_open and not (job.is_past or (not job.is_message and job.value not in self.held)):
                raise Difference(f"{at} is passed over, and is there")
            self._close(job)

    def _close(self, job: Job) -> None:
        job.is_open = False
        self._take_back(job)
        if self.latest.get(job.value) is job:
            del self.latest[job.value]

    def _take_back(self, job: Job) -> None:
        job.is_out = job.is_begun = False
        member = self.members.get(job.holder)
        if member is not None and not self._out(job.holder):
            member.is_alone = False

    # -- members ----------------------------------------------------------------------------------------

    def _out(self, name: str) -> list[Job]:
        """Returns what a member has, in the order of handing out."""
        mine = [each for each in self.jobs.values() if each.is_out and each.holder == name]
        return sorted(mine, key=lambda each: each.token)

    def _join(self, name: str, in_flight: int) -> None:
        member = GroupMember(name, in_flight, name)
        self.core.join(member)
        before = self.members.get(name)
        self.members[name] = Member(member, in_flight, before is not None and before.is_alone)

    def _fall(self, name: str, is_gone: bool) -> None:
        if name in self.members:
            self.members[name].is_silent = True
            member = self.members[name].member
            member.is_ending, member.is_quiet = member.is_ending or is_gone, True

    def _hear(self, name: str) -> None:
        if name in self.members and not self.members[name].member.is_ending:
            self.members[name].is_silent = False
            self.core.heard(self.members[name].member)

    def _leave(self, name: str, is_ended: bool) -> None:
        member = self.members.pop(name, None)
        if member is None:
            return
        mine = self._out(name)
        begun = [each.token for each in mine if each.is_begun]
        may = {*begun, *[each.token for each in mine if not each.is_begun][:1]} if is_ended else set()
        failed = self.core.leave(member.member, blame=is_ended)
        if not {each.token for each in failed} <= may:
            said = f"{[each.item.at for each in failed]} have failed with {name}"
            raise Difference(f"{said}, which had begun {[each.at for each in mine if each.is_begun]}")
        for job in mine:
            if job.token not in self.core.out:
                self._take_back(job)
        for each in failed:
            if each.token in self.core.out:
                self._fail(each, 0.0, blame=True)
        if missing := [at for at in begun if is_ended and at not in {each.token for each in failed}]:
            raise Difference(f"{missing} were begun by {name}, and have not failed")

    def _begin(self, name: str) -> None:
        job = next((each for each in self._out(name) if not each.is_begun), None)
        if job is not None:
            job.is_begun = True
            delivery = self.core.out[job.token]
            delivery.deadline = 1.0
            self.core.taken[job.token] = delivery

    # -- handing out ------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        is_over = False
        while not is_over:  # what was behind another of its key may be due as well
            is_over = True
            self._come_due()
            for delivery in self.core.assign(self._now):
                is_over = False
                self._pass_over()
                self._check(delivery, "handed out")
                self._have_wait()
        self._pass_over()
        self._check_nobody_waits()

    def _check(self, delivery: JobDelivery, what: str) -> None:
        job, name = self.jobs[delivery.item.at], str(delivery.member.holder)
        member, said = self.members[name], f"{job.at} is {what} to {name}"
        if what == "handed out":
            if not self._may_get(job, name):
                raise Difference(f"{said}, {self._why(job, name)}")
            if len(self._out(name)) >= member.in_flight:
                raise Difference(f"{said}, which has no room")
            if why := self._bound(name):
                raise Difference(f"{said}, {why}")
            if self._is_alone(name) or (self._is_last(job) and self._out(name)):
                raise Difference(
                    f"{said} beside {[each.at for each in self._out(name)]}, one in its last attempt"
                )
            first = [each for each in self._open() if self._rank(each) < self._rank(job)]
            first = [each for each in first if self._may_get(each, name)]
            first = [each for each in first if not each.due and not self._is_last(each)]
            if first and not self._is_last(job):
                raise Difference(f"{said} before {first[0].at}, which comes first")
            self.given.append(self._now)
        if delivery.attempt != job.attempts + 1:
            raise Difference(f"{said} as attempt {delivery.attempt}, it has failed {job.attempts} times")
        if delivery.token <= self.newest:
            raise Difference(f"{said} by token {delivery.token}, after {self.newest}")
        self.newest = job.token = delivery.token
        job.holder, job.is_out, job.is_begun, job.due = name, True, False, 0
        self.former.append((job, job.token))
        if self._is_last(job):
            member.is_alone = True

    @property
    def _now(self) -> float:
        return self.wall / 1_000_000

    def _others_have_some(self, name: str) -> bool:
        return any(each.is_out and each.holder != name for each in self.jobs.values())

    def _rank(self, job: Job) -> tuple[int, At]:
        """The order of jobs; each sixteenth hand-out gets the oldest of all."""
        if not self.options.levels or len(self.given) % 16 == 15:
            return 0, job.at
        mine = [each for each in self._of_key(job) if not each.is_out] if self.options.is_keyed else [job]
        return -max((each.level for each in mine), default=job.level), job.at

    def _bound(self, name: str) -> str:
        """Says why the group as a whole gives nothing more to a member; empty if it may."""
        options, counts = self.options, {each: len(self._out(each)) for each in self.members}
        total = sum(each.is_out for each in self.jobs.values())
        standing = [each for each, member in self.members.items() if not member.is_silent]
        if name not in standing:
            return "which is silent"
        if options.exclusive and (name != standing[0] or total > counts[name]):
            return "which is not the one"
        if options.most_out:
            left = options.most_out - (total - sum(counts[each] for each in standing))
            rounds, more = _dealt([self.members[each].in_flight for each in standing], max(0, left))
            beyond = sum(counts[each] > rounds for each in standing)
            if total >= options.most_out:
                return f"and {total} are out"
            if counts[name] > rounds or (counts[name] == rounds and beyond >= more):
                return f"which has {counts[name]}, and its share is {rounds}"
        burst = max(1.0, options.rate / 10)
        for place, at in enumerate(self.given if options.rate else ()):
            if len(self.given) - place + 1 > burst + options.rate * (self._now - at) + 1e-6:
                return f"after {len(self.given) - place} others within {self._now - at:.3f} s"
        return ""

    def _open(self) -> Iterator[Job]:
        """Yields what is to be done, as far as it is read."""
        return (each for each in self.jobs.values() if each.is_open and each.is_read)

    def _of_key(self, job: Job) -> list[Job]:
        """Returns what is to be done of a job's key, in order."""
        mine = [each for each in self._open() if each.key == job.key]
        return sorted(mine, key=lambda each: each.place)

    def _is_next(self, job: Job, name: str) -> bool:
        """True if nothing of its key comes before it, but what the member has."""
        if not self.options.is_keyed:
            return True
        of_key = self._of_key(job)
        before = of_key[: of_key.index(job)]
        return all(each.is_out for each in before) and {each.holder for each in of_key if each.is_out} <= {
            name
        }

    def _is_last(self, job: Job) -> bool:
        return 0 < self.options.attempts <= job.attempts + 1 and job.attempts > 0

    def _is_alone(self, name: str) -> bool:
        return any(self._is_last(each) for each in self._out(name))

    def _may_get(self, job: Job, name: str) -> bool:
        """True if a member may get a job, where it has room."""
        return not self._why(job, name)

    def _why(self, job: Job, name: str) -> str:
        """Says why a member may not get a job; empty if it may."""
        if not (job.is_open and job.is_read):
            return "which is not to be done"
        if job.is_out:
            return f"and {job.holder} has it"
        if job.due > self.wall:
            return f"which waits until {job.due} µs"
        if not job.is_message and (job.is_past or job.value not in self.held):
            return "whose fact has gone"
        return (
            "" if self._is_next(job, name) else "which others of its key are before, or with another member"
        )

    def _come_due(self) -> None:
        self.core.come_due(self.wall)
        while self.core.to_read:
            item = self.core.to_read.popleft()
            if item.is_parked and self.core.state.undone.get(item.at) is item and item.at[0] <= self.deleted:
                raise Difference(f"{item.at} is parked, and the log is deleted up to {self.deleted}")
            self.core.unpark(item, self.jobs[item.at].item())
        self._pass_over()
        for job in self._open():
            before = self._of_key(job) if self.options.is_keyed else []
            is_first = all(each.is_out for each in before[: before.index(job)]) if before else True
            if job.due <= self.wall and is_first:
                job.due = 0
        self._have_wait()

    def _have_wait(self) -> None:
        """A member that has jobs may have to end them first, where one in its last attempt is ready."""
        last = [each for each in self._open() if self._is_last(each)]
        for name, member in self.members.items():
            if last and self._out(name) and any(self._may_get(each, name) for each in last):
                member.is_alone = True

    def _check_nobody_waits(self) -> None:
        """Nobody with room waits for a job that he may get, unless he may have to be alone."""
        for name, member in self.members.items():
            out = self._out(name)
            mine = [each for each in self._open() if self._may_get(each, name)]
            mine = [each for each in mine if not (out and self._is_last(each))]
            if mine and len(out) < member.in_flight and not (member.is_alone or self._bound(name)):
                raise Difference(f"{name} waits, and may get {mine[0].at}")

    def _keep(self, name: str, place: int) -> None:
        if name not in self.members or not self.former:
            return
        job, token = self.former[-1 - place % len(self.former)]
        may = (
            job.is_open and job.is_read and not job.is_out
            and token < self.term << 32 and self._is_next(job, name)
            and not (self.options.exclusive and self._others_have_some(name))
        )  # fmt: skip
        item = self.core.state.undone.get(job.at)
        may = (
            may and item is not None and not item.is_parked
        )  # it was given back, and cannot be left with him
        delivery = self.core.adopt(job.at, token, self.members[name].member)
        if (delivery is not None) != may:
            raise Difference(f"{name} {'may' if may else 'may not'} keep {job.at} by token {token}")
        if delivery is not None:
            self._check(delivery, "left")

    # -- ends of deliveries -----------------------------------------------------------------------------

    def _cell(self, name: str, kind: str, place: int) -> Cell:
        """Returns a delivery of some kind, by its place; an item ahead where there is none."""
        if kind == "former" and self.former:
            job, token = self.former[-1 - place % len(self.former)]
            return job.at, token
        some = self._out(name) if kind == "mine" else [each for each in self.jobs.values() if each.is_out]
        if kind == "ahead" or not some:
            return (self.epoch + 1, 0), self.newest - place
        job = some[place % len(some)]
        return job.at, job.token

    def _done(self, name: str, cells: list[Cell]) -> None:
        expected: object = self._judged(name, cells)
        try:
            said: object = sorted(set(self.core.judge(cells, name)))
        except Refused as refused:
            said = refused.code
        if said != expected:
            raise Difference(
                f"{name} reports {cells}, which is answered with {said}, the list says {expected}"
            )
        if said == []:
            items = [at for at, _ in cells]
            self.core.done(items)
            self._note(DONE, done_fields(NAME, items))
            for at in items:
                self._close(self.jobs[at])

    def _judged(self, name: str, cells: list[Cell]) -> object:
        if len({at for at, _ in cells}) < len(cells):
            return "bad-request"
        lost = sorted({at for at, token in cells if not self._may_be_done(name, at, token)})
        if lost or not self.options.is_keyed:
            return lost
        jobs = [self.jobs[at] for at, _ in cells]
        for job in jobs:
            of_key = self._of_key(job)
            if not job.is_read or not set(of_key[: of_key.index(job)]) <= set(jobs):
                return "out-of-order"
        return []

    def _may_be_done(self, name: str, at: At, token: int) -> bool:
        job = self.jobs.get(at)
        if job is None or not job.is_open:
            return False
        if job.token:  # as it was handed out last, since the start
            return (job.token, job.holder) == (token, name)
        return token < self.term << 32 and at[0] <= self.begun

    def _again(self, name: str, place: int, after: float, blame: bool) -> None:
        if mine := self._out(name):
            self._fail(self.core.out[mine[place % len(mine)].token], after, blame=blame)

    def _fail(self, delivery: JobDelivery, after: float, *, blame: bool) -> None:
        job = self.jobs[delivery.item.at]
        if blame:
            job.attempts += 1
            after = max(after, self._wait(job.attempts))
        due = self.core.fails(delivery, self.wall, after=after, blame=blame)
        is_dead = blame and 0 < self.options.attempts <= job.attempts
        if (due is None) != is_dead:
            raise Difference(f"{job.at} is {'' if is_dead else 'not '}dead after {job.attempts} attempts")
        if due is None:
            note = done_fields(NAME, [job.at])
            self._note(DONE, note)
            self.states.apply(DONE, note)
            self.core.finished(delivery.item)
            job.is_dead = True
            self._close(job)
            return
        job.due = self.wall + round(after * 1_000_000) if after else 0
        if due != job.due:
            raise Difference(f"{job.at} waits until {due} µs after attempt {job.attempts}, not {job.due}")
        of_key = self._of_key(job) if self.options.is_keyed else [job]
        later = [each for each in of_key if each.is_out and each.place > job.place]
        revoked = self.core.give_back(delivery, due=due)
        if {each.item.at for each in revoked} != {each.at for each in later}:
            raise Difference(
                f"{[each.at for each in later]} are after {job.at}, and are not given back with it"
            )
        for each in (job, *later):
            self._take_back(each)
        if self.options.parks and self.core.may_park(delivery.item, self.wall):
            self.core.park(delivery.item)
        if blame or due:
            job.noted = job.attempts, due
            self._note(AGAIN, (NAME, *job.at, job.attempts, due))

    def _wait(self, attempts: int) -> float:
        if waits := self.options.backoffs:
            return waits[-1] if attempts > len(waits) else waits[attempts - 1]
        return min(BACKOFF * 2.0 ** (attempts - 1), LONGEST_BACKOFF)

    def _retry(self) -> None:
        dead = [each for each in self.jobs.values() if each.is_dead and each.is_read]
        items = [each.item() for each in dead]
        note = (NAME, *[each.packed() for each in items])
        self._note(UNDONE, note)
        self.states.apply(UNDONE, note)
        for job in dead:
            job.is_dead, job.is_open, job.attempts, job.due, job.noted = False, True, 0, 0, (0, 0)
            job.token, job.holder = 0, ""  # a delivery from before its death counts no more
            item = self.core.state.undone.get(job.at)
            if item is None:
                raise Difference(f"{job.at} is a dead letter no more, and is not undone")
            item.stays = True
            self.core.enter(item)
            self._enter(job)

    # -- the log ----------------------------------------------------------------------------------------

    def _note(self, kind: str, fields: Any) -> None:
        self.notes.append((kind, fields))

    def _save(self) -> None:
        if self.core.gone:
            self._note(DONE, done_fields(NAME, self.core.gone))
            self.core.gone = []
        self.saved = self.states.rows()
        for _, rows in self.saved:
            self.states.saved(rows)
        self.notes = []
        for job in self.jobs.values():
            if job.is_read:
                job.noted = job.attempts, job.due
        needed = self.states.needs_after()
        self.deleted = self.epoch if needed is None else max(self.deleted, needed)

    def _start(self) -> None:
        self.core.close()
        self.given = []
        self.members, self.term, self.begun = {}, self.term + 1, self.epoch
        self.latest, self.newest = {}, self.term << 32
        self.states = GroupStates()
        saved = [(kind, fields) for kind, rows in self.saved for fields in rows]
        for kind, fields in [*saved, *self.notes]:
            self.states.apply(kind, fields)
        state = self.states[NAME]
        self.read = sum(each.at <= state.read for each in self.rows)
        for job in self.jobs.values():
            job.is_out = job.is_begun = False
            job.token, job.holder, (job.attempts, job.due) = 0, "", job.noted
            is_undone = job.at in state.undone
            job.is_read = job.at <= state.read or is_undone
            if job.is_read and is_undone != job.is_open:
                raise Difference(f"{job.at} is {'not ' * (not is_undone)}undone after a start")
        for job in sorted(self._open(), key=lambda each: each.at):
            self._enter(job)
        self.core = self._made()


def failure(program: Program) -> str | None:
    """Returns what is wrong, after the number of the operation; None if nothing is."""
    run = GroupRun()
    for number, operation in enumerate(program):
        try:
            run.carry_out(operation)
        except Exception as error:  # noqa: BLE001  # whatever the group raises is a difference
            return f"{number}: {error if isinstance(error, Difference) else repr(error)}"
    return None


def _dealt(wanted: list[int], most: int) -> tuple[int, int]:
    """Deals one by one, in rounds, to those who want more: how many rounds were whole, and how many got
    one in the last."""
    rounds = 0
    while most and (want := sum(each > rounds for each in wanted)):
        if want > most:
            return rounds, most
        rounds, most = rounds + 1, most - want
    return rounds, 0


def _fact(key: str, number: int) -> Record:
    return Record("job", key, number)
