"""While the disk is full each verb of groups is answered at once: it is done, or refused and done later.

The grid is each verb that clients have, in Python and over HTTP.  Once there is room the same call is done;
then no job is lost, and none is done twice, also after the next start.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import Refused
from index.values.values import Map, Value
from tests.ports import free_port
from tests.server.daemon.test_full_disk import _wait_full
from tests.server.hosting.rooms import FileLimit, Room, SmallDisk
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

SOON: Final = 60
AT_ONCE: Final = 15
"""Seconds in which a call is answered, on a busy machine."""


@pytest.fixture(params=[SmallDisk, FileLimit])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    made: Room = request.param(tmp_path / "small")
    yield made
    made.end()


class World:
    """A group ``w`` with jobs that are out, and groups that are changed."""

    def __init__(self, space: dataspace.RemoteSpace, jobs: dataspace.Jobs, web: str) -> None:
        self.space = space
        self._jobs = jobs
        self._web = web
        self.done: set[Value] = set()
        self.dead: set[Value] = set()
        self._taken: dict[str, dataspace.Job] = {}
        self._delivery: dict[str, tuple[str, Value]] = {}

    async def prepare(self) -> None:
        """Takes a job for each verb that settles one, before the disk is full."""
        for name in (*BY_JOB, "retract"):
            job = await self._jobs.next_job()
            assert job is not None
            self._taken[name] = job
        answer = await self._post("groups/w/take", {"most": len(BY_DELIVERY), "wait": 5})
        listed = answer["jobs"]
        assert isinstance(listed, list)
        for name, each in zip(BY_DELIVERY, listed, strict=True):
            self._delivery[name] = each["delivery"], each["captures"]["id"]
        await self.space.assert_(Record("kept", 1))
        self.claim = await self.space.assert_(Record("gone", 1))

    # -- calls in Python ------------------------------------------------------------------------------

    async def consume_new(self) -> None:
        async with self.space.consume("other($x)", group="new"):
            pass

    async def consume_divided(self) -> None:
        async with self.space.consume(topic="t", group="of topic"):
            pass

    async def take_new(self) -> None:
        pattern = Record("third", Record("_"))
        await self.space.request("take", Map({"group": "third", "pattern": pattern, "wait": 0}))

    async def alter(self, what: str, **more: Value) -> None:
        await self.space.request("group-alter", Map({"group": "changed", "what": what, **more}))

    async def report(self) -> None:
        await self._taken["report"].done()
        self.done.add(self._taken["report"]["id"])

    async def turn(self) -> None:
        job = self._taken["turn"]
        async with self.space.turn(done=[job]) as turn:
            turn.assert_(Record("result", job["id"]), owner="results")
        self.done.add(job["id"])

    async def turn_alone(self) -> None:
        async with self.space.turn(done=[self._taken["turn_alone"]]):
            pass
        self.done.add(self._taken["turn_alone"]["id"])

    async def turn_that_retracts(self) -> None:
        job = self._taken["retract"]
        async with self.space.turn(done=[job]) as turn:
            turn.retract(self.claim)
        self.done.add(job["id"])

    async def give_up(self) -> None:
        await self._taken["give_up"].dead("why")
        self.dead.add(self._taken["give_up"]["id"])

    async def give_back(self) -> None:
        if (job := self._taken.pop("give_back", None)) is not None:
            await job.again(after=0.2)

    async def extend(self) -> None:
        await self._taken["extend"].extend()

    # -- calls over HTTP ------------------------------------------------------------------------------

    async def _post(self, path: str, said: dict[str, object]) -> dict[str, object]:
        def asked() -> dict[str, object]:
            request = urllib.request.Request(
                f"{self._web}/v1/spaces/main/{path}",
                json.dumps(said).encode(),
                {"content-type": "application/json"},
                method="POST",
            )
            try:
                with urllib.request.urlopen(request, timeout=AT_ONCE) as answer:
                    found: dict[str, object] = json.loads(answer.read())
                    return found
            except urllib.error.HTTPError as error:
                problem = json.loads(error.read())
                raise Refused(str(problem["code"]), str(problem)) from None

        return await trio.to_thread.run_sync(asked)

    async def post_take_new(self) -> None:
        await self._post("groups/fourth/take", {"pattern": "fourth($x)", "most": 1, "wait": 0})

    async def post_done(self) -> None:
        delivery, number = self._delivery["post_done"]
        await self._post("groups/w/done", {"deliveries": [delivery]})
        self.done.add(number)

    async def post_again(self) -> None:
        if "post_again" in self._delivery:
            delivery, _ = self._delivery.pop("post_again")
            await self._post("groups/w/again", {"deliveries": [delivery], "after": 1})

    async def post_turn(self) -> None:
        delivery, number = self._delivery["post_turn"]
        actions = [{"assert": {"result": [number]}}]
        said: dict[str, object] = {"owner": "results", "actions": actions, "done": {"w": [delivery]}}
        await self._post("turns", said)
        self.done.add(number)


BY_JOB: Final = ("report", "turn", "turn_alone", "give_up", "give_back", "extend")
BY_DELIVERY: Final = ("post_done", "post_again", "post_turn")
DONE_ANYWAY: Final = ("give_back", "extend", "post_again")
"""What needs no room: a job that is given back is out to nobody, as after a restart."""

Call = Callable[[World], Awaitable[None]]
CALLS: Final[dict[str, Call]] = {
    **{name: getattr(World, name) for name in (*BY_JOB, *BY_DELIVERY)},
    "turn_that_retracts": World.turn_that_retracts,
    "consume_new": World.consume_new,
    "consume_divided": World.consume_divided,
    "take_new": World.take_new,
    "post_take_new": World.post_take_new,
    "alter": lambda world: world.alter("alter", options=Map({"attempts": 3})),
    "pause": lambda world: world.alter("pause"),
    "resume": lambda world: world.alter("resume"),
    "retry": lambda world: world.alter("retry"),
    "seek": lambda world: world.alter("seek"),
    "delete": lambda world: world.alter("delete"),
}


async def _fill(daemon: DaemonProcess, room: Room, space: dataspace.RemoteSpace) -> None:
    await trio.to_thread.run_sync(room.take, daemon)
    draft = space.draft()
    draft.assert_(Record("large", b"x" * 900_000))
    await space.submit(draft)  # it is the one that meets the end of the disk
    await _wait_full(space, full=True)


async def _work(space: dataspace.RemoteSpace, wanted: set[Value]) -> list[Value]:
    """Does what is left, and returns it in order."""
    found = list[Value]()
    async with space.consume(group="w", in_flight=8) as jobs:
        while len(found) < len(wanted):
            job = await jobs.next_job()
            assert job is not None
            found.append(job["id"])
            await job.done()
        with trio.move_on_after(0.5):
            job = await jobs.next_job()
            raise AssertionError(f"{job!r} is out once more")
    return found


async def test_each_verb_is_answered_while_the_disk_is_full(room: Room) -> None:
    web = f"http://127.0.0.1:{free_port()}"
    daemon = DaemonProcess(room.data, "--listen", web.replace("http://", "http:"))
    daemon.start()
    sent: set[Value] = set(range(16))
    with trio.fail_after(3 * SOON):
        async with dataspace.connect(daemon.url, owner="me") as space:
            async with space.publish("t", durable=True) as topic:
                await topic.flush()
            async with space.consume("changing($x)", group="changed"):
                pass
            async with (
                space.consume("job($id)", group="w", in_flight=len(BY_JOB) + 1, ack_within=600) as jobs,
                space.turn() as turn,
            ):
                for number in sent:
                    turn.send(Record("job", number))
            async with space.consume(group="w", in_flight=len(BY_JOB) + 1) as jobs:
                world = World(space, jobs, web)
                await world.prepare()
                await _fill(daemon, room, space)
                for name, call in CALLS.items():
                    with trio.fail_after(AT_ONCE):
                        if name in DONE_ANYWAY:
                            await call(world)
                            continue
                        with pytest.raises(Refused) as refused:
                            await call(world)
                        assert refused.value.code == "disk-full", name
                room.give_back(daemon)
                await _wait_full(space, full=False)
                for call in CALLS.values():
                    with trio.fail_after(AT_ONCE):
                        await call(world)
            assert await space.matches("gone($n)") == []
        assert daemon.stop() == 0, daemon.errors
        daemon.start()
        async with dataspace.connect(daemon.url) as space:
            left = sent - world.done - world.dead
            found = await _work(space, left)
            assert len(found) == len(left) and set(found) == left
            dead = {row[0] for row in await space.matches('dead("w", _, _, job($id), _, _, _, _)')}
            assert dead == world.dead
            names = {each["group"] for each in await _groups(space)}
            assert names == {"w", "new", "of topic", "third", "fourth"}
    daemon.stop()
    assert "Traceback" not in daemon.errors


async def _groups(space: dataspace.RemoteSpace) -> list[Map]:
    answer = await space.request("groups", Map())
    assert isinstance(answer, tuple)
    return [each for each in answer if isinstance(each, Map)]
