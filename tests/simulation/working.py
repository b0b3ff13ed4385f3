"""Working: members of a group that divides what writers say; each job leaves a fact in the turn that does it.

A *worker* has a durable owner.  It takes jobs, does most of them, gives some back, forgets some, and may
vanish with what it has.  In the end all jobs must be done, each once.

Always: as ``actors``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import trio

import dataspace
from dataspace import Record
from dataspace.client.reports import forget, refused
from dataspace.errors import Broken, DataspaceError, DeliveryLost, Refused
from dataspace.kernel.changes import Epoch
from index.patterns.text import parse_pattern
from relay.groups.core import TERM_BITS
from relay.log.notes import Note
from tests.guarantees.groups import entries_of
from tests.model.groups import At, GroupHistory, Report, Told, broken_groups, done_in, items_of, left
from tests.model.patterns import match
from tests.simulation.actors import CLOCKS, OF_THE_DISK, Actor
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import MAIN, SECONDS
from tests.simulation.world import GivenBack, World

GROUP: Final = "work"
PATTERNS: Final = ("said($who, $n)", "said($who, $n)", "busy($who, $n)")
"""What a group divides in a life: messages, or facts, of which most go before they are done."""
ACK_WITHIN: Final = 1.5
BACKOFF: Final = 0.1
"""Seconds until a job comes again that has failed once, unless a group says otherwise: GROUPS.md."""
SLACK: Final = 0.01
"""Seconds by which the clocks of two machines differ that nobody has set."""
FAITHFUL: Final = SECONDS + 2.0
"""From when on workers do each job at once: a clock that stands still makes all that is put off later."""
GRACE: Final = 2.0
"""Seconds for which half of the workers keep their jobs while their lines are cut."""
CUTS: Final = 0.1
"""How often such a worker loses its line while it has a job."""
FAILS: Final = 0.4
"""How often a worker fails where jobs may become dead letters."""

GOES_ON: Final = (*OF_THE_DISK, "epoch-lost", "no-group", "not-applied", "closing")
"""Codes after which a worker joins again."""


async def work(actor: Actor) -> None:
    """Takes jobs until the life ends."""
    pattern, key, attempts = _options(actor.world)
    further = further_options(actor.world)
    habits = _Habits.of(actor, can_bury=attempts > 0)
    grace: dict[str, Any] = {"grace": GRACE} if habits.is_graced else {}
    async with actor.connected(owner=f"worker{actor.part.rank}", **grace) as space:
        while True:
            in_flight = actor.random.choice((1, 1, 3, 8))
            try:
                async with space.consume(
                    pattern,
                    group=GROUP,
                    key=key,
                    in_flight=in_flight,
                    ack_within=ACK_WITHIN,
                    attempts=attempts,
                    **further,
                ) as jobs:
                    await _narrow(actor, space)
                    async for job in jobs:
                        await _take(actor, space, jobs, job, habits)
            except Refused as refusal:
                if refusal.code not in GOES_ON:
                    raise
            await trio.sleep(0.1)


async def _narrow(actor: Actor, space: dataspace.RemoteSpace) -> None:
    """Has the group of some lives take few undone items into memory, so that it falls behind."""
    if window := actor.world.random("window").choice((0, 0, 2, 5)):
        options = dataspace.Map({"window": window})
        alter = dataspace.Map({"group": GROUP, "what": "alter", "options": options})
        await space.request("group-alter", alter)


async def cheat(actor: Actor) -> None:
    """Reports jobs that others have or had, or that nobody has yet; gives them back, and buries them.

    All of it must be refused; after a restart the daemon does not know whose a job was.
    """
    world, random = actor.world, actor.random
    async with actor.connected(owner="cheat") as space:
        while True:
            await trio.sleep(random.choice((0.02, 0.1, 0.5)))
            at, token = _guessed(world, random)
            verb = random.choice(("done", "done", "done", "again", "dead"))
            world.trace("cheats", verb, *at, token)
            try:
                if verb == "done":
                    await _report_falsely(actor, space, at, token)
                else:
                    said = dataspace.Map({"group": GROUP, verb: ((*at, token),)})
                    await space.request("settle", said)
                    world.accuse(f"a client without jobs may say {verb} of {at} with token {token}")
            except (Broken, DataspaceError) as error:
                if isinstance(error, Refused) and error.code in ("not-yours", "out-of-order", "bad-request"):
                    world.count(Occurrence.CHEATED)


def _guessed(world: World, random: Random) -> tuple[At, int]:
    """Returns an item and a token: of a job of another's, mostly of one that is not done; or what may come
    next."""
    told = world.told[GROUP]
    if not told:
        return (world.last[MAIN], 0), 1
    done = {at for report in world.reports[GROUP] for at, _ in report.items}
    undone = [each for each in told if each.at not in done]
    one = random.choice(undone if undone and random.random() < 0.8 else told)
    newest = max(each.token for each in told)
    match random.randrange(4):
        case 0:
            return (world.last[MAIN], random.randrange(2)), newest + random.randint(1, 3)
        case 1:
            return one.at, newest + random.randint(0, 3)
    return one.at, one.token


async def _report_falsely(actor: Actor, space: dataspace.RemoteSpace, at: At, token: int) -> None:
    draft = space.draft()
    draft.assert_(Record("worked", *at))
    count = actor.random.choice((1, 1, 2))
    draft.deliveries = ((GROUP, (*at, token) * count),)
    ticket = await space.submit(draft)
    is_refused = is_taken = False
    try:
        await actor.note("owner:cheat", ticket)
        await ticket.wait()
        is_taken = True
    except Refused:
        is_refused = True
        raise
    finally:
        if not is_refused:  # it was taken, or nobody knows
            actor.world.reports[GROUP].append(Report(actor.host.name, ((at, token),) * count, is_taken))


class _Habits(NamedTuple):
    """What a worker does that others do not, by random numbers of its own."""

    random: Random
    is_graced: bool
    """Its session has a grace, and its line is cut while it has jobs."""
    fails: bool
    """It often fails, so that there are dead letters."""

    @classmethod
    def of(cls, actor: Actor, *, can_bury: bool) -> _Habits:
        random = actor.world.random(f"habits of {actor.host.name}")
        return cls(random, random.random() < 0.5, can_bury)

    async def indulge(self, actor: Actor, job: dataspace.Job) -> bool:
        """Does what it is used to, once a job is taken; returns True if the job is given back."""
        if self.is_graced and self.random.random() < CUTS:
            for line in actor.world.network.of(actor.host.name):
                line.reset("cut at a job")
        if self.fails and self.random.random() < FAILS:
            await give_back(actor, GROUP, job, after=0.0, blame=True)
            return True
        return False


async def _take(
    actor: Actor, space: dataspace.RemoteSpace, jobs: dataspace.Jobs, job: dataspace.Job, habits: _Habits
) -> None:
    world, random = actor.world, actor.random
    note_told(actor, GROUP, job)
    await trio.sleep(random.choice((0.0, 0.0, 0.02, 0.2)))
    chance = random.random() if trio.current_time() < FAITHFUL else 1.0
    if chance < 1.0 and await habits.indulge(actor, job):
        return
    if chance < 0.03 and actor.part.rank:
        await actor.vanish()
    if chance < 0.1:
        world.count(Occurrence.FORGOTTEN)  # until its time is over
    elif chance < 0.2:
        await give_back(actor, GROUP, job, after=random.choice((0.0, 0.3)), blame=random.random() < 0.5)
    elif chance < 0.25:
        await trio.sleep(ACK_WITHIN + 0.2)  # somebody else may have it by now
        await report(actor, space, jobs, job, "worked")
    else:
        if 0.9 < chance < 1.0:
            await _report_twice(actor, space, job)
        await report(actor, space, jobs, job, "worked")


async def _report_twice(actor: Actor, space: dataspace.RemoteSpace, job: dataspace.Job) -> None:
    """Reports a job twice in one turn, which is refused."""
    draft = space.draft()
    draft.assert_(Record("worked", job.epoch, job.position))
    draft.deliveries = ((GROUP, job.cell * 2),)
    with contextlib.suppress(DataspaceError, Broken):
        ticket = await space.submit(draft)
        await actor.note(f"owner:worker{actor.part.rank}", ticket)
        await ticket.wait()


def note_told(actor: Actor, group: str, job: dataspace.Job) -> None:
    """Notes that a member of a group has taken a job."""
    at = job.epoch, job.position
    told = Told(at, job.token, actor.host.name, job.captures, job.attempt)
    actor.world.told[group].append(told)
    actor.world.taken.setdefault((group, job.token), trio.current_time())
    actor.world.trace("job", actor.host.name, *at, job.token)


async def give_back(actor: Actor, group: str, job: dataspace.Job, *, after: float, blame: bool) -> None:
    """Gives a job back, unless it is lost; notes that if a daemon has said so, and no line broke."""
    era = job.member.era
    wait = max(after, _wait(actor.world, group, job.attempt)) if blame else after
    told = Told((job.epoch, job.position), job.token, attempt=job.attempt + blame)
    given = GivenBack(told, trio.current_time() + wait)
    try:
        await job.again(after, blame=blame)
        if job.member.era == era:
            actor.world.given_back[group].append(given)
    except (DeliveryLost, Broken):
        pass  # it comes again in any case
    except Refused as refusal:
        if refusal.code not in GOES_ON:
            raise


async def report(
    actor: Actor, space: dataspace.RemoteSpace, jobs: dataspace.Jobs, job: dataspace.Job, label: str
) -> None:
    """Reports a job as done in a turn that asserts a fact with this label."""
    after = actor.world.last[actor.part.space]
    draft = space.draft()
    draft.assert_(Record(label, job.epoch, job.position))
    try:
        draft.deliveries = await jobs.deliveries([job])
        note_told(actor, jobs.group, job)  # with another token, where it was kept in a restart
        ticket = await space.submit(draft)
        await actor.note(f"owner:{actor.part.kind}{actor.part.rank}", ticket, after)
        await ticket.wait()
    except DataspaceError as error:
        refused([job], error)
        if isinstance(error, DeliveryLost):
            actor.world.count(Occurrence.LATE)
        elif not (isinstance(error, Refused) and error.code in (*GOES_ON, "out-of-order")):
            raise
    else:
        forget([job])
        cells = [((epoch, position), token) for _, (epoch, position, token) in draft.deliveries]
        actor.world.reports[jobs.group].append(Report(actor.host.name, tuple(cells), is_taken=True))
        actor.world.count(Occurrence.JOB)


async def finish(actor: Actor, group: str = GROUP) -> None:
    """Waits until no job is left, and that is on disk."""
    async with actor.connected(owner="finisher") as space:
        was_idle = False
        while True:
            try:
                answer: Any = await space.request("groups", dataspace.Map({"group": group}))
                is_idle = answer[0]["undone"] == answer[0]["behind"] == 0
                if is_idle and answer[0]["dead"]:
                    await space.request("group-alter", dataspace.Map({"group": group, "what": "retry"}))
                    is_idle = False
                if is_idle and was_idle:
                    return
                await space.sync()
                was_idle = is_idle
            except (Broken, Refused) as error:
                was_idle = False
                if isinstance(error, Refused) and error.code not in GOES_ON:
                    raise
            await trio.sleep(0.1)


def misdone(world: World) -> Iterator[str]:
    """Yields what is wrong with the jobs of a life, by the entries of its log."""
    pattern, key, attempts = _options(world)
    history = GroupHistory(
        partial(match, parse_pattern(pattern)),
        entries_of(world.entries, GROUP),
        handed_out(world.told[GROUP]),
        (lambda value: value.fields[0]) if key else None,  # type: ignore[union-attr]  # a record
        world.reports[GROUP],
        kinds=further_options(world).get("kinds", "+!"),
        is_whole=world.starts == 1,
    )
    yield from misreported(history, world.entries, GROUP, "worked")
    yield from misgiven(world, GROUP, items_of(history).revived)
    if beyond := [each for each in history.told if 0 < attempts < each.attempt]:
        yield f"handed out after {attempts} attempts: {beyond}"


def handed_out(told: Sequence[Told]) -> list[Told]:
    """Returns what was handed out: what a member has kept over a start has another token, and was not."""
    first: dict[object, int] = {}
    for each in told:
        first.setdefault((each.at, each.member, each.attempt), each.token)
    return [
        each
        for each in told
        if each.token >> TERM_BITS == first[each.at, each.member, each.attempt] >> TERM_BITS
    ]


def misgiven(world: World, group: str, revived: Collection[At] = ()) -> Iterator[str]:
    """Yields jobs that came again before their time, or as an earlier attempt than they were.

    A clock that is set, and a daemon that is started again, may have them come sooner.
    """
    if any(fault.kind in CLOCKS for fault in world.plan.faults):
        return
    for given, due in world.given_back[group]:  # with the attempt that it comes again as
        later = [each for each in world.told[group] if each.at == given.at and each.token > given.token]
        following = min(later, key=lambda each: each.token, default=None)
        if (
            following is None
            or given.at in revived
            or following.token >> TERM_BITS != given.token >> TERM_BITS
        ):
            continue
        if following.attempt < given.attempt:
            yield f"{following} came as attempt {following.attempt} after attempt {given.attempt}"
        if (taken := world.taken[group, following.token]) < due - SLACK:
            yield f"{following} came at {taken:.3f} s, and was put off until {due:.3f} s"


def misreported(
    history: GroupHistory, entries: Sequence[Epoch | Note], group: str, label: str
) -> Iterator[str]:
    """Yields what is wrong with a group whose members assert a fact with this label for each item."""
    yield from broken_groups(history)
    facts = [
        fact
        for entry in entries
        if isinstance(entry, Epoch)
        for fact in entry.added
        if isinstance(fact, Record)
    ]
    results = [fact.fields[:2] for fact in facts if fact.label == label]
    dead = {fact.fields[1:3] for fact in facts if (fact.label, *fact.fields[:1]) == ("dead", group)}
    if len(set(results)) < len(results):
        yield "an item has two results"
    done = set(done_in(history))
    told = set(results) | dead
    if odd := (told - done) | (done - told - items_of(history).gone.keys()):
        yield f"items with a result or done, and not both: {odd}"
    if lost := left(history):
        yield f"items that nobody has done: {lost}"


def _options(world: World) -> tuple[str, str | None, int]:
    """Returns what the group of a life divides, by which key, and how often an item may fail."""
    random = world.random("key")
    key = random.choice((None, "who"))
    return random.choice(PATTERNS), key, random.choice((0, 0, 2))


def further_options(world: World) -> dict[str, Any]:
    """Returns the options of the group of a life that most groups do not have."""
    random, (_, key, _) = world.random("further options"), _options(world)
    options: dict[str, Any] = {
        "most_out": random.choice((None, None, 1, 2, 5)),
        "exclusive": random.choice((None, None, None, True)),
        "backoff": random.choice((None, None, (0.1, 0.5), (0.3,), (0.2, 12.0))),
        "rate": random.choice((None, None, None, 20.0, 200.0)),
        "priority": random.choice((None, None, "n")),
        "kinds": random.choice(("+-!", "-", None, None)) if key else None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _wait(world: World, group: str, attempts: int) -> float:
    """Returns how long a job waits after so many failed attempts."""
    if group == GROUP and (waits := further_options(world).get("backoff")) is not None:
        return float(waits[min(attempts, len(waits)) - 1])
    return float(BACKOFF * 2.0 ** (attempts - 1))
