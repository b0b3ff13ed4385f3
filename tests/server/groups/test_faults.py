"""An exception at any line of the work for groups stops one group at most; memory and log agree after it.

Each case does one operation over a real log, struck at one line of the groups.  Then the tasks of groups
still run, another group goes on as if nothing had happened, and the struck group goes on once it is resumed,
or after the next start: no job is lost, and none is done twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dataspace.errors import DataspaceError, Refused
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.steps import at_once
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from index.values.values import Record, Value
from relay.groups.members import JobDelivery
from server.groups.space import groups as groups_module
from server.groups.space.dead import retrying
from server.groups.space.definitions import alter, delete, joined, seek
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.reading import read_behind
from server.spaces import keeping
from server.spaces.keeping import keep
from tests.server.groups.spaces import BareSpace
from tests.striking import GROUPS, strike

THOROUGH = os.environ.get("TORTURE_ROUNDS", "0") != "0"
STRIDE = 1 if THOROUGH else 61
"""Without torture each operation is struck at some lines only."""


class Member(StreamMember):
    """A member that keeps what is out to it."""

    def __init__(self, number: int) -> None:
        self.has: dict[int, JobDelivery] = {}
        super().__init__(("session", number), 4, "me", self._give, self._mark)

    def _give(self, _group: WorkGroup, delivery: JobDelivery) -> None:
        self.has[delivery.token] = delivery

    def _mark(self, value: Value) -> None:
        if isinstance(value, tuple) and value[0] == "revoked":
            self.has.pop(value[1], None)  # type: ignore[arg-type]  # a token
        elif isinstance(value, tuple) and value[0] == "held":
            self.has.clear()


class World:
    """A space with the groups ``a`` and ``b``, one member of each, and jobs in every state."""

    def __init__(self, directory: Path, *, leads: bool = True) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.bare = BareSpace(directory, leads=leads)
        self.groups = self.bare.groups
        self.members: dict[str, Member] = {}
        self.sent: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """Runs the tasks of the space, and none of them may end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.bare.commits.run)
            nursery.start_soon(keep, "main", "groups", self.groups.run)
            nursery.start_soon(keep, "main", "readers of groups", read_behind, self.groups)
            yield
            assert len(nursery.child_tasks) == 3
            nursery.cancel_scope.cancel()

    async def begin(self) -> None:
        for name in ("a", "b"):
            await self.join(name)
            await self.send(name, 0, 6)
            await self.until(lambda name=name: len(self.members[name].has) == 4)  # type: ignore[misc]
            first, second, third, _ = self.has(name)
            self.done(name, [first])
            self.groups.bury(self.group(name), second, "no")
            self.groups.took(self.group(name), third)
            del self.members[name].has[second.token]
        await self.bare.commits.wait_durable(self.bare.space.epoch)

    # -- what members do ------------------------------------------------------------------------------

    def group(self, name: str) -> WorkGroup:
        return self.groups.find(name)

    def has(self, name: str) -> list[JobDelivery]:
        return sorted(self.members[name].has.values(), key=lambda each: each.token)

    async def join(self, name: str) -> None:
        options = ConsumeOptions(name, parse_pattern(f"{name}($id)"), attempts=3)
        group = await joined(self.groups, options)
        self.members[name] = member = Member(len(self.members))
        self.groups.join(group, member, f"session of {name}", ())
        self.groups.deliver()

    async def send(self, name: str, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.sent[name].add(number)
            if number % 2:
                self.bare.commit(f"boss of {name}", [(ASSERT, number, Record(name, number))])
            else:
                self.bare.commit(f"boss of {name}", [(SEND, Record(name, number))])
        await self.bare.commits.wait_durable(self.bare.space.epoch)
        await trio.lowlevel.checkpoint()

    def done(self, name: str, some: list[JobDelivery]) -> None:
        groups, owner = self.groups, f"results of {name}"
        flat = tuple([part for each in some for part in (*each.item.at, each.token)])
        settled = groups.judge([(name, flat)], "me")
        actions: list[Action] = []
        for each in some:
            handle = self.bare.space.fresh_handle(owner) + len(actions)
            actions.append((ASSERT, handle, Record("result", name, number_of(each.item.value))))
        self.bare.commit(owner, actions, notes=groups.notes(settled))
        for each in some:
            self.members[name].has.pop(each.token, None)
        groups.settled(settled)

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(60):
            while not holds():
                self.bare.now += 1_000_000
                self.groups.wake()
                await trio.sleep(0.001)

    # -- what must hold -------------------------------------------------------------------------------

    def results(self, name: str) -> list[int]:
        claims = self.bare.space.claims(f"results of {name}").values()
        return sorted(number_of(Record(name, each.fields[1])) for each in claims if isinstance(each, Record))

    def dead(self, name: str) -> set[int]:
        claims = self.bare.space.claims(f"group:{name}").values()
        return {
            number_of(each.fields[3]) for each in claims if isinstance(each, Record) and each.label == "dead"
        }

    def undone(self, name: str) -> set[int]:
        if name not in self.groups.by_name:
            return set()
        return {number_of(each.value) for each in self.group(name).state.undone.values()}

    async def work(self, name: str) -> None:
        """Resumes a group, and works until nothing of it is undone."""
        group = self.group(name)
        if group.options.paused:
            await alter(self.groups, group, lambda options: replace(options, paused=""))
        member = self.members.get(name)
        if member is None or group.core.members.get(member.holder) is not member:
            await self.join(name)

        def is_done() -> bool:
            self.groups.heard(group, self.members[name])
            if some := self.has(name):
                with suppress(Refused):  # an earlier delivery may have been revoked
                    self.done(name, some[:1])
            return group.state.is_live and not group.state.undone

        await self.until(is_done)

    async def check(self, name: str, *, all_of: bool = True) -> None:
        """Works on, and compares with the log in a later life, which has one job more to do."""
        await self.work(name)
        results = self.results(name)
        assert len(results) == len(set(results)), "a job was done twice"
        if all_of:
            assert set(results) | self.dead(name) == self.sent[name], "a job was lost"

    async def agree(self) -> None:
        """Has a later life find the same jobs undone as there are in memory."""
        await self.bare.commits.wait_durable(self.bare.space.epoch)
        with suppress(DataspaceError):
            await self.send("a", 100, 2)
        await self.until(lambda: all(g.state.is_live for g in self.groups.by_name.values()))
        later = World(Path(shutil.copytree(self.directory, f"{self.directory}-later", dirs_exist_ok=True)))
        async with later.alive():
            assert not later.groups.failed
            assert later.groups.by_name.keys() == self.groups.by_name.keys()
            await later.until(lambda: all(g.state.is_live for g in later.groups.by_name.values()))
            for name in self.groups.by_name:
                assert later.undone(name) == self.undone(name), name
                assert later.group(name).options == self.group(name).options
                assert later.dead(name) == self.dead(name)
                assert later.group(name).dead == self.group(name).dead == len(self.dead(name))


def number_of(value: Value) -> int:
    assert isinstance(value, Record)
    number = value.fields[0]
    assert isinstance(number, int)
    return number


async def _define(world: World) -> None:
    await world.join("c")


async def _redefine(world: World) -> None:
    await alter(world.groups, world.group("a"), lambda options: replace(options, ack_within=77.0))


async def _feed(world: World) -> None:
    await world.send("a", 10, 3)


async def _settle(world: World) -> None:
    world.done("a", world.has("a")[:2])


async def _expire(world: World) -> None:
    for each in list(world.group("a").core.taken.values()):
        each.deadline = 0.0
    world.groups.tick()


async def _again(world: World) -> None:
    for each in world.has("a"):
        world.groups.fail(world.group("a"), each, reason="no")
        world.members["a"].has.pop(each.token, None)
    world.groups.deliver()


async def _bury(world: World) -> None:
    each = world.has("a")[0]
    world.groups.bury(world.group("a"), each, "no")
    world.members["a"].has.pop(each.token, None)


async def _retry(world: World) -> None:
    at_once(retrying(world.groups, world.group("a"), lambda _value: ()))


async def _leave(world: World) -> None:
    world.groups.session_ended("session of a", blame=True)


async def _come_back(world: World) -> None:
    member = Member(0)
    kept = [(*each.item.at, each.token) for each in world.has("a")[:2]]
    world.members["a"] = member
    world.groups.join(world.group("a"), member, "session of a", kept)
    member.has.update(member.out)
    world.groups.deliver()


async def _go(world: World) -> None:
    claims = world.bare.space.claims("boss of a")
    world.bare.commit("boss of a", [(RETRACT, handle) for handle in list(claims)])
    await world.bare.commits.wait_durable(world.bare.space.epoch)
    world.groups.tick()


async def _fall_behind(world: World) -> None:
    world.groups.fall_behind(world.group("a"), (world.bare.space.epoch + 1, 0))
    world.groups.behind.set()
    await world.send("a", 10, 3)


async def _seek(world: World) -> None:
    await seek(world.groups, world.group("a"), None)


async def _delete(world: World) -> None:
    await delete(world.groups, "a")


OPERATIONS: dict[str, Callable[[World], Awaitable[None]]] = {
    each.__name__.removeprefix("_"): each
    for each in (
        *(_define, _redefine, _feed, _settle, _expire, _again, _bury, _retry, _leave),
        *(_come_back, _go, _fall_behind, _seek, _delete),
    )
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "RETRY_SECONDS", 0.005)
    monkeypatch.setattr(keeping, "PAUSES", (0.005, 0.005))


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_error_at_any_line_stops_one_group_at_most(tmp_path: Path, name: str) -> None:
    at = 1 + 5 * len(name) % STRIDE
    while await _strike(tmp_path / str(at), OPERATIONS[name], at):
        at += STRIDE
    assert at > 20


async def _strike(directory: Path, operation: Callable[[World], Awaitable[None]], at: int) -> bool:
    """Does an operation that is struck at a line; returns False if it is too short for that."""
    world = World(directory)
    async with world.alive():
        await world.begin()
        with strike(at, ZeroDivisionError, GROUPS) as left:
            try:
                await operation(world)
                for _ in range(3):  # what the tasks do of it
                    await trio.sleep(0.001)
            except (ZeroDivisionError, Refused):  # the session of this request ends, or is told so
                if operation is _come_back:
                    world.groups.session_ended("session of a", blame=False)
        await world.check("b")
        for group in list(world.groups.by_name):
            await world.check(group, all_of=operation not in (_seek, _delete, _go))
        if operation is _define:
            if "c" in world.groups.failed:
                await delete(world.groups, "c")
            if "c" not in world.groups.by_name:
                await world.join("c")
            await world.send("c", 0, 2)
            await world.check("c")
        await world.agree()
    shutil.rmtree(directory)
    shutil.rmtree(f"{directory}-later")
    return left() <= 0


@pytest.mark.slow
@pytest.mark.torture
async def test_an_error_at_any_line_of_a_start_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    world = World(tmp_path / "first")
    async with world.alive():
        await world.begin()
        await world.bare.commits.wait_durable(world.bare.space.epoch)
    at, has_struck = 5, True  # no line is struck of the constructor of the states, which has no data
    while has_struck:
        directory = Path(shutil.copytree(world.directory, tmp_path / str(at)))
        later = World(directory, leads=False)
        with strike(at, ZeroDivisionError, GROUPS, but=("SpaceGroups.lead",)) as left:  # which is the fence
            later.bare.begin()
        has_struck = left() <= 0
        assert len(later.groups.failed) <= 1
        if later.groups.failed:  # it is served after the next start
            later = World(Path(shutil.copytree(directory, tmp_path / f"{at}-again")))
        later.sent = {name: set(numbers) for name, numbers in world.sent.items()}
        async with later.alive():
            await later.until(lambda later=later: len(later.groups.by_name) == 2)  # type: ignore[misc]
            await later.check("a")
            await later.check("b")
            await later.agree()
        shutil.rmtree(directory)
        at += STRIDE
    assert at > 20
