"""A defect at any line of following, or of a take-over, ends no daemon and loses nothing.

Each case strikes one line of what applies the turns of a leader, or of what takes over from it: facts, groups
of facts and of a topic, rules over time, leases, sessions with grace, durable topics.  After it the same
daemon process serves: the follower shows what its leader has, and the next leader goes on with all of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import DataspaceError
from dataspace.transport.addresses import parse_listen
from index.values.values import Map, Value
from relay.store.address import StoreAddress
from server.config.model import Cluster, Config, Follow
from server.daemon import serve as serving
from server.daemon.serve import serve
from server.spaces import keeping
from tests.server.following.test_lag import patient
from tests.server.processes import DaemonProcess, running
from tests.striking import Place, Striking

pytestmark = [pytest.mark.slow]

THOROUGH: Final = os.environ.get("TORTURE_ROUNDS", "0") != "0"
SAMPLES: Final = 4
"""Without torture so many lines are struck."""
SOON: Final = 40
TOP: Final = str(Path(serving.__file__).parents[2])
TAKING_OVER: Final = (
    *(f"{TOP}/server/{each}/" for each in ("spaces", "topics", "owners", "groups")),
    *(f"{TOP}/server/daemon/{each}.py" for each in ("daemon", "followers")),
    *(f"{TOP}/relay/{each}/" for each in ("groups", "topics")),
    *(f"{TOP}/dataspace/rules/engine/{each}.py" for each in ("rebuilding", "program", "defects")),
)
"""What takes over; the other lines of rules are struck where they are rebuilt (``test_struck_times``)."""
FOLLOWING: Final = (
    f"{TOP}/relay/following/",
    *(f"{TOP}/dataspace/kernel/{each}.py" for each in ("state", "derivation", "interests")),
    f"{TOP}/server/spaces/",
    f"{TOP}/server/topics/",
    f"{TOP}/relay/groups/",
    f"{TOP}/relay/topics/",
)
FENCES: Final = ("keep", "_run")
"""Functions that are a fence, or are around one: a defect in a fence itself is none of these tests."""

RULES: Final = {
    "busy": "busy(count()) <- done($x) within 200 ms.",
    "late": "late($x) <- f($x) at $t, $t + 50 ms <= now.",
    "held": "held($x) <- (f($x)) for 40 ms.",
    "plain": "plain($x) <- f($x), not g($x).",
}


@pytest.fixture(params=["directory", "PostgreSQL"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path | StoreAddress:
    """Where the log is."""
    if request.param == "directory":
        return tmp_path / "data"
    return StoreAddress.parse(patient(request.getfixturevalue("postgres_url")))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(keeping, "PAUSES", (0.01, 0.02))
    monkeypatch.setattr(serving, "AWAY_SECONDS", 0.01)
    monkeypatch.setattr("server.groups.space.groups.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("server.groups.space.groups.SETTLE_SECONDS", 0.05)
    monkeypatch.setattr("server.owners.leases.AGAIN_SECONDS", 0.01)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Pair:
    """Two daemons of this process over one home, of which one leads at a time."""

    def __init__(self, home: Path | StoreAddress, nursery: trio.Nursery) -> None:
        self._config = Config(("tcp:127.0.0.1:0",), home, cluster=Cluster(lease=600.0))
        self._follow = Follow(home, stand_by=True) if isinstance(home, Path) else Follow()
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ended: dict[str, trio.Event] = {}

    async def start(self, *, follows: bool) -> str:
        """Starts a daemon, and returns its URL."""
        config = replace(self._config, follow=self._follow) if follows else self._config
        scope, ended = trio.CancelScope(), trio.Event()

        async def run(task_status: trio.TaskStatus[list[str]]) -> None:
            try:
                with scope:
                    await serve(config, task_status=task_status)
            finally:
                ended.set()

        (address,) = await self._nursery.start(run)
        url = parse_listen(address).url
        self._scopes[url], self._ended[url] = scope, ended
        return url

    async def end(self, url: str) -> None:
        self._scopes[url].cancel()
        await self._ended[url].wait()

    def has_ended(self, url: str) -> bool:
        return self._ended[url].is_set()


class World:
    """What tenants have in a space, and what is to hold of it whatever was struck."""

    def __init__(self) -> None:
        self.sent = 0
        self.facts: set[int] = set()
        self.items: list[int] = []

    async def begin(self, url: str) -> None:
        async with dataspace.connect(url) as space:
            async with space.turn() as turn:
                for name, text in RULES.items():
                    turn.assert_(Record("rule", name, text), owner="rules of all")
            async with space.publish("t", durable=True) as topic:
                await topic.flush()
            async with space.consume("job($id)", group="w", attempts=0):
                pass
            async with space.consume(topic="t", group="of topic", attempts=0):
                pass

    async def leave(self, url: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Adds facts, jobs and items, and stays with a job, a lease and a producer until it is cut off."""
        number = self.sent
        with suppress(DataspaceError):
            async with (
                dataspace.connect(url, grace=0.2) as space,
                space.publish("t", durable=True, name="meter", away=0.2) as topic,
                space.consume(group="w") as jobs,
            ):
                await space.hold(Record("leased", number), ttl=0.2)
                await space.assert_(Record("mine", number))
                await self.add(space)
                await topic.send(number)
                self.items.append(number)
                await topic.flush()
                await jobs.next_job()
                task_status.started()
                await trio.sleep_forever()

    async def add(self, space: dataspace.RemoteSpace) -> int:
        """Adds two facts and two jobs, and returns the epoch."""
        async with space.turn() as turn:
            for _ in range(2):
                self.sent += 1
                self.facts.add(self.sent)
                turn.assert_(Record("f", self.sent), owner="facts")
                turn.send(Record("job", self.sent))
        assert turn.epoch is not None
        return turn.epoch

    async def check(self, url: str) -> None:
        """Works on at a leader, and compares all that is there."""
        with trio.fail_after(SOON):
            await _wait_leads(url)
            async with dataspace.connect(url) as space:
                await self._resume(space)
                failed = {str(row[0]) for row in await space.matches("rule-error($name, _, _, _)")}
                assert not failed
                await self._work(space)
                await self._until_equal(space)
                told = [each.items async for each in space.completed("t")]
                assert [item for items in told for item in items] == self.items

    async def _resume(self, space: dataspace.RemoteSpace) -> None:
        for (name,) in await space.matches("rule-error($name, _, _, _)"):
            await space.request("rules", Map({"ask": "resume", "about": name}))
        for each in await _groups(space):
            if each["paused"]:
                await space.request("group-alter", Map({"group": each["group"], "what": "resume"}))

    async def _work(self, space: dataspace.RemoteSpace) -> None:
        """Does all jobs of both groups, each of which must be there once."""
        wanted = {"w": self.facts, "of topic": set(self.items)}
        for group, numbers in wanted.items():
            served = [each["group"] for each in await _groups(space)]
            if group not in served:
                continue  # it is served after the next start, and compared then
            async with space.consume(group=group, in_flight=8) as jobs:
                while len(await space.matches(f'result("{group}", $n)')) < len(numbers):
                    job = await jobs.next_job()
                    assert job is not None
                    (number,) = job.captures
                    async with space.turn(done=[job]) as turn:
                        turn.assert_(Record("result", group, number), owner="results")
            results = sorted(row[0] for row in await space.matches(f'result("{group}", $n)'))  # type: ignore[type-var]  # numbers
            assert results == sorted(numbers), group

    async def _until_equal(self, space: dataspace.RemoteSpace) -> None:
        rows = sorted((each,) for each in self.facts)
        wanted: dict[str, list[tuple[Value, ...]]] = {
            **{f"{label}($n)": list(rows) for label in ("f", "late", "held", "plain")},
            **{f"{label}($n)": [] for label in ("busy", "leased", "mine")},
        }
        found: dict[str, list[tuple[Value, ...]]] = {}
        with trio.move_on_after(SOON / 2):
            while found != wanted:
                await trio.sleep(0.01)
                found = {each: sorted(await space.matches(each)) for each in wanted}
        assert found == wanted


async def _groups(space: dataspace.RemoteSpace) -> list[Map]:
    answer = await space.request("groups", Map())
    assert isinstance(answer, tuple)
    return [each for each in answer if isinstance(each, Map)]


async def _wait_leads(url: str) -> None:
    """Waits until a daemon leads, which may begin its role anew before that."""
    while True:
        with suppress(DataspaceError):
            async with dataspace.connect(url, timeout=5) as space:
                while not (await space.status())["leads"]:  # noqa: ASYNC110  # asked as anybody would
                    await trio.sleep(0.005)
                return
        await trio.sleep(0.005)


def chosen(places: dict[Place, None], at: int = 0) -> list[Place]:
    """Returns the lines to strike: with torture all, else some."""
    found = list(places)
    return found if THOROUGH else found[at :: max(1, len(found) // SAMPLES)]


# -- taking over ------------------------------------------------------------------------------------------


async def _take_over(pair: Pair, world: World, monkeypatch: pytest.MonkeyPatch, striking: Striking) -> None:
    """Has a daemon take over, with one line of that struck, and checks what it leads."""
    leader = await pair.start(follows=False)
    follower = await pair.start(follows=True)
    promote = serving._promote

    async def struck(*args: object) -> None:
        striking.begin()
        await promote(*args)  # type: ignore[arg-type]  # as it was called

    with monkeypatch.context() as patched:
        patched.setattr(serving, "_promote", struck)
        async with trio.open_nursery() as nursery:
            await nursery.start(world.leave, leader)
            await pair.end(leader)
            nursery.cancel_scope.cancel()
        with trio.fail_after(SOON):
            await _wait_leads(follower)
        striking.end()
        assert not pair.has_ended(follower)
        await world.check(follower)
    await pair.end(follower)


@pytest.mark.torture
async def test_a_defect_at_any_line_of_a_take_over_loses_nothing(
    home: Path | StoreAddress, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, world = Pair(home, nursery), World()
    first = await pair.start(follows=False)
    await world.begin(first)
    await pair.end(first)
    seen = Striking(None, TAKING_OVER, FENCES)
    await _take_over(pair, world, monkeypatch, seen)
    struck = 0
    for place in chosen(seen.places, 3 if isinstance(home, Path) else 7):
        striking = Striking(place, TAKING_OVER, FENCES)
        await _take_over(pair, world, monkeypatch, striking)
        struck += striking.has_struck
    assert struck > SAMPLES // 2


# -- following --------------------------------------------------------------------------------------------


async def _show(world: World, leader: str, follower: str, striking: Striking) -> None:
    """Has a follower apply turns, jobs that are done, and steps of a topic, with one line of that struck."""
    async with dataspace.connect(leader) as space, space.publish("t", durable=True) as topic:
        striking.begin()
        await world.add(space)
        await topic.send(len(world.items))
        world.items.append(len(world.items))
        await topic.flush()
        async with space.consume(group="w", in_flight=2) as jobs:
            for _ in range(2):
                job = await jobs.next_job()
                assert job is not None
                async with space.turn(done=[job]) as turn:
                    turn.assert_(Record("result", "w", job.captures[0]), owner="results")
    wanted = sorted(world.facts), sorted(world.facts), sorted(world.facts), world.items
    found: object = None
    with trio.move_on_after(SOON):
        while found != wanted:
            await trio.sleep(0.002)
            with suppress(DataspaceError):
                async with dataspace.connect(follower, timeout=5, read="any") as near:
                    labels = "f($n)", "late($n)", 'result("w", $n)'
                    facts = [sorted(row[0] for row in await near.matches(each)) for each in labels]  # type: ignore[type-var]  # numbers
                    told = [item async for each in near.completed("t") for item in each.items]
                    found = (*facts, told)
    striking.end()
    assert found == wanted, striking.place


@pytest.mark.torture
async def test_a_defect_at_any_line_of_following_shows_what_the_leader_has(
    home: Path | StoreAddress, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "10m")
    leader, world = DaemonProcess(home.text if isinstance(home, StoreAddress) else home), World()
    with running(leader):
        await world.begin(leader.url)
        pair = Pair(home, nursery)
        follower = await pair.start(follows=True)
        seen = Striking(None, FOLLOWING, FENCES)
        for _ in range(2):
            await _show(world, leader.url, follower, seen)
        struck = 0
        for place in chosen(seen.places, 2):
            striking = Striking(place, FOLLOWING, FENCES)
            await _show(world, leader.url, follower, striking)
            assert not pair.has_ended(follower), place
            struck += striking.has_struck
        assert struck > SAMPLES // 2
        await pair.end(follower)
        await world.check(leader.url)
