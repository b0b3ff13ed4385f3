"""What a group does with n jobs costs n, of one key or of n, in whatever order a client names them.

The jobs of a space with a real log come, are handed out, and end in each way that a job can; a restart takes
up those that are undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Final, TypeAlias

import pytest
import trio

from dataspace.kernel.actions import ASSERT, SEND
from dataspace.kernel.changes import Epoch
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from index.values.values import Record
from relay.groups.members import GroupMember, JobDelivery
from relay.groups.state import Item
from server.groups.space.definitions import joined
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.reading import read_behind
from tests.costs.counting import Cost, compared, cost, judge
from tests.relay.groups.test_core import core, item
from tests.relay.store.memory import in_memory
from tests.server.groups.spaces import BareSpace

N: Final = 24
PLENTY: Final = 10_000
SESSION: Final = "session 1"
JOB: Final = parse_pattern("job($key, $id)")
PLACE: Final = Path("space")


class Jobs:
    """A group ``w`` with one member that has all jobs."""

    def __init__(self) -> None:
        self.bare = BareSpace(PLACE)
        self.groups = self.bare.groups
        self.has: dict[int, JobDelivery] = {}
        self.group: WorkGroup
        self.written: list[tuple[Epoch, int]] = []

    async def join(self, *, keyed: bool, holding: Sequence[tuple[int, int, int]] = ()) -> None:
        key = "key" if keyed else None
        self.group = await joined(self.groups, ConsumeOptions("w", JOB, key=key, attempts=3))
        while not self.group.state.is_live:
            await trio.lowlevel.checkpoint()
        self.bare.leading.commits.on_epoch = lambda epoch, size: self.written.append((epoch, size))
        self.enter(holding)

    def enter(self, holding: Sequence[tuple[int, int, int]] = ()) -> None:
        def give(_group: WorkGroup, delivery: JobDelivery) -> None:
            self.has[delivery.token] = delivery

        member = StreamMember((SESSION, 1), PLENTY, "me", give, lambda _mark: None)
        self.groups.join(self.group, member, SESSION, holding)
        self.has.update(member.out)
        self.deliver()

    def deliver(self) -> None:
        """Hands out all that is ready, in as many steps as that takes."""
        self.groups.deliver()
        while self.groups.is_touched(self.group):
            self.groups.deliver()

    async def come(self, turns: Sequence[Sequence[Record]]) -> Cost:
        """Sends jobs, and returns what that costs without the wait for the disk."""

        def send() -> None:
            for values in turns:
                self.bare.commit("boss", [(SEND, value) for value in values])

        def feed() -> None:
            for epoch, size in self.written:
                self.groups.feeding.feed(epoch, size)
            for _ in self.groups.feeding.steps():
                pass
            self.deliver()

        sent = cost(send)
        await self.bare.commits.wait_durable(self.bare.space.epoch)
        fed = cost(feed)
        self.written.clear()
        return sent.more(fed)

    def settle(self, some: Sequence[JobDelivery], *, in_turn: bool) -> None:
        """Reports jobs as done, by a request or with a turn."""
        flat = tuple(chain.from_iterable([(*each.item.at, each.token) for each in some]))
        settled = self.groups.judge([("w", flat)], "me")
        notes = self.groups.notes(settled)
        if in_turn:
            handle = self.bare.space.fresh_handle("results")
            self.bare.commit("results", [(ASSERT, handle, Record("result", flat))], notes=notes)
        else:
            for note in notes:
                self.bare.queue_note(note)
        self.groups.settled(settled)


End: TypeAlias = Callable[[Jobs, list[JobDelivery]], None]


def _done(jobs: Jobs, given: list[JobDelivery]) -> None:
    jobs.settle(given, in_turn=False)


def _each_done(jobs: Jobs, given: list[JobDelivery]) -> None:
    for each in sorted(given, key=lambda delivery: delivery.token):
        jobs.settle([each], in_turn=False)


def _done_in_a_turn(jobs: Jobs, given: list[JobDelivery]) -> None:
    jobs.settle(given, in_turn=True)


def _each_done_in_a_turn(jobs: Jobs, given: list[JobDelivery]) -> None:
    for each in sorted(given, key=lambda delivery: delivery.token):
        jobs.settle([each], in_turn=True)


def _again(jobs: Jobs, given: list[JobDelivery]) -> None:
    for each in given:
        if each.token in jobs.group.core.out:
            jobs.groups.fail(jobs.group, each, reason="no")
    jobs.deliver()


def _dead(jobs: Jobs, given: list[JobDelivery]) -> None:
    for each in given:
        if each.token in jobs.group.core.out:
            jobs.groups.bury(jobs.group, each, "no")
    jobs.deliver()


def _extended(jobs: Jobs, given: list[JobDelivery]) -> None:
    for each in given:
        jobs.groups.took(jobs.group, each)


def _expired(jobs: Jobs, given: list[JobDelivery]) -> None:
    for each in given:
        jobs.groups.took(jobs.group, each)
    for each in given:
        each.deadline = 0.0
    while jobs.group.core.taken:
        jobs.groups.tick()


def _session_ended(jobs: Jobs, given: list[JobDelivery]) -> None:
    for each in given:
        jobs.groups.took(jobs.group, each)
    jobs.groups.session_ended(SESSION, blame=True)


def _back(jobs: Jobs, given: list[JobDelivery]) -> None:
    jobs.enter([(*each.item.at, each.token) for each in given])


ENDS: Final[dict[str, End]] = {
    "done": _done,
    "each done": _each_done,
    "done in a turn": _done_in_a_turn,
    "each done in a turn": _each_done_in_a_turn,
    "again": _again,
    "dead": _dead,
    "extended": _extended,
    "expired": _expired,
    "the session ended": _session_ended,
    "the member is back": _back,
}

ORDERS: Final[dict[str, Callable[[list[JobDelivery]], list[JobDelivery]]]] = {
    "forward": lambda given: given,
    "backward": lambda given: given[::-1],
    "inside out": lambda given: [*given[1::2], *given[::2][::-1]],
}

KEYS: Final[dict[str, Callable[[int], int]]] = {
    "without keys": lambda number: number,
    "of one key": lambda _number: 0,
    "of a few keys": lambda number: number % 3,
    "of n keys": lambda number: number,
}


async def _lived(end: str, order: str, keys: str, count: int) -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    jobs, keyed = Jobs(), keys != "without keys"
    sent = [Record("job", KEYS[keys](number), number) for number in range(count)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jobs.bare.commits.run)
        nursery.start_soon(read_behind, jobs.groups)
        await jobs.join(keyed=keyed)
        costs["jobs come in one turn"] = await jobs.come([sent])
        given = ORDERS[order](list(jobs.has.values()))
        assert len(given) == count
        with compared(Item, JobDelivery, GroupMember):  # what searches of lists and queues do is done in C
            costs[end] = cost(lambda: ENDS[end](jobs, given))
        costs["jobs come in n turns"] = await jobs.come([[each] for each in sent])
        nursery.cancel_scope.cancel()
    jobs.bare.own_log.close()
    costs["a restart"] = cost(lambda: Jobs().bare.own_log.close())
    return costs


def _life(end: str, order: str, keys: str, count: int) -> dict[str, Cost]:
    with in_memory():
        return trio.run(_lived, end, order, keys, count)


@pytest.mark.slow
@pytest.mark.parametrize(("end", "keys"), list(product(ENDS, KEYS)))
def test_jobs_cost_as_many_as_they_are(end: str, keys: str) -> None:
    for order in ORDERS:
        judge(partial(_life, end, order, keys), N)


def _members(count: int) -> dict[str, Cost]:
    """As many members as jobs: a core alone."""
    group = core()
    members = [GroupMember(number, 1) for number in range(count)]

    def come() -> None:
        for each in members:
            group.join(each)

    costs = {"members come": cost(come)}
    for number in range(count):
        group.take(item(number))
    given = list(group.assign())
    cells = [(each.item.at, each.token) for each in given]
    with compared(Item, JobDelivery, GroupMember):
        costs["jobs are judged"] = cost(lambda: group.judge(cells, None))
        costs["jobs are done"] = cost(lambda: group.done([at for at, _ in cells]))
        costs["members go"] = cost(lambda: [group.leave(each, blame=False) for each in members])
    return costs


def test_members_cost_as_many_as_they_are() -> None:
    judge(_members, N)
