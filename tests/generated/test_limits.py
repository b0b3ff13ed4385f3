"""What a door accepts comes back from each stage that it passes; anything else is refused at the door.

Each value of ``limits.py`` goes in by each door that takes values, and is looked for in each place where it
can be read: live, in the log, in columns, in answers, over HTTP, as text and as JSON, after a restart, and in
a log that was compacted, which has it in a snapshot alone.

Always: a refusal is one of the value, and leaves the connection and its session as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.client import BulkClient
from dataspace.codec import MAX_DEPTH, pack, unpack
from dataspace.errors import ProtocolError, UsageError
from index.patterns.text import parse, parse_pattern, unparse
from index.values.jsons import from_json, to_json
from index.values.values import Map, Value, key
from server.cli.main import main
from tests.generated.limits import limits
from tests.generated.test_resuming import World
from tests.server.web.routes.callers import ask, with_query

pytestmark = pytest.mark.slow

SOON: Final = 900.0
PATTERN: Final = "v($door, $name, $value)"
Rows = dict[tuple[str, str], Value]
"""What came back, by the door and the name of the value."""


# -- doors -------------------------------------------------------------------------------------------


class Doors:
    """A client of each kind."""

    def __init__(self, world: World, space: dataspace.RemoteSpace) -> None:
        self.world = world
        self.space = space
        self._sequence = 0

    async def turn(self, name: str, value: Value) -> None:
        await self.space.assert_(Record("v", "turn", name, value), owner="people")

    async def message(self, name: str, value: Value) -> None:
        await self.space.send(Record("v", "message", name, value))

    async def put(self, name: str, value: Value) -> None:
        await self.space.put(Record("v", "put", name, value), owner="people")

    async def stage(self, name: str, value: Value) -> None:
        self._sequence += 1
        staged = ("assert", Record("v", "stage", name, value))
        await self.space.stage((name,), [staged])
        stated = {"keys": ((name,),), "client": "~s", "sequence": self._sequence, "owner": "people"}
        await self.space.request("publish", Map(stated))

    async def http(self, name: str, value: Value) -> None:
        fact = to_json(Record("v", "http", name, value))
        body = {"owner": "people", "actions": [{"assert": fact}]}
        answer = await trio.to_thread.run_sync(self._post, "/v1/spaces/main/turns", body)
        if answer.status != 200:
            raise UsageError(f"{answer.problem()}")

    def _post(self, path: str, body: object) -> Any:
        with closing(self.world.http()) as connection:
            return ask(connection, "POST", path, body)

    def get(self, path: str) -> Any:
        """Returns the answer to a request for a page."""
        with closing(self.world.http()) as connection:
            return ask(connection, "GET", path)

    async def group(self) -> Any:
        """Returns what is known of the group."""
        answer: Any = await self.space.request("groups", Map({"group": "all"}))
        return answer[0]

    async def item(self, name: str, value: Value) -> None:
        async with self.space.publish("items", durable=True, retain=1 << 28) as publication:
            begun = publication.time
            assert isinstance(begun, int)
            await publication.finish(Record("v", "item", name, value), then=begun + 1)


DOORS: Final = ("turn", "message", "put", "stage", "http", "item")
OF_FACTS: Final = ("turn", "put", "stage", "http")


# -- stages ------------------------------------------------------------------------------------------


async def _state(doors: Doors) -> Rows:
    return _rows(await doors.space.matches(PATTERN))


async def _replay(doors: Doors) -> Rows:
    upto, found = await doors.space.sync(), list[Any]()
    async with doors.space.observe(PATTERN, after=0, upto=upto, quiet=True, policy="wait") as changes:
        async for change in changes:
            found.append(change.captures)
    return _rows(found)


async def _columns(doors: Doors) -> Rows:
    def read() -> list[Any]:
        with BulkClient(doors.world.url) as link:
            blocks = link.columns(parse_pattern(PATTERN), after=0, upto=link.frontier().epoch)
            return [row for each in blocks for row in zip(*each.columns, strict=True)]

    return _rows(await trio.to_thread.run_sync(read))


async def _query(doors: Doors) -> Rows:
    return _rows([*await doors.space.query(PATTERN)])


async def _derived(doors: Doors) -> Rows:
    """A rule has each value in a fact of its own."""
    text = "derived($door, $name, $value) <- v($door, $name, $value)."
    async with doors.space.asserting(Record("rule", "copy", text)):
        return _rows(await doors.space.matches("derived($door, $name, $value)"))


async def _jobs(doors: Doors) -> Rows:
    """The group has had all facts and messages since it was made."""
    found, count = [], int(str((await doors.group())["undone"]))
    async with doors.space.consume(PATTERN, group="all", in_flight=1000) as jobs:
        for _ in range(count):
            job = await jobs.next_job()
            assert job is not None
            found.append((job["door"], job["name"], job["value"]))
    return _rows(found)


async def _owners(doors: Doors) -> Rows:
    """What the largest facts leave of an answer; each fact is asked for alone."""
    found = []
    for door, name in await _state(doors):
        pattern = parse_pattern(f"v({unparse(door)}, {unparse(name)}, _)")
        answer: Any = await doors.space.request("owners", Map({"pattern": pattern}))
        found += [each["fact"].fields for each in answer]
    return _rows(found)


async def _facts_over_http(doors: Doors) -> Rows:
    return await _over_http(doors, "facts", lambda said: said["rows"])


async def _log_over_http(doors: Doors) -> Rows:
    return await _over_http(
        doors, "log", lambda said: [*said.get("added", ()), *said.get("messages", ())], lines=True
    )


async def _over_http(
    doors: Doors, route: str, rows: Callable[[Any], list[Any]], *, lines: bool = False
) -> Rows:
    path = with_query(f"/v1/spaces/main/{route}", pattern=PATTERN)
    answer = await trio.to_thread.run_sync(doors.get, path)
    assert answer.status == 200, answer.body[:300]
    said = [json.loads(line) for line in answer.body.splitlines()] if lines else [json.loads(answer.body)]
    found = [row for each in said for row in rows(each)]
    return _rows([tuple(from_json(row[at]) for at in ("door", "name", "value")) for row in found])


async def _items(doors: Doors) -> Rows:
    epochs = [each async for each in doors.space.completed("items")]
    return _rows([item.fields for each in epochs for item in each.items if isinstance(item, Record)])


STAGES: Final[dict[str, tuple[Callable[[Doors], Awaitable[Rows]], tuple[str, ...]]]] = {
    "state": (_state, OF_FACTS),
    "replay": (_replay, (*OF_FACTS, "message")),
    "columns": (_columns, (*OF_FACTS, "message")),
    "query": (_query, OF_FACTS),
    "rule": (_derived, OF_FACTS),
    "group": (_jobs, (*OF_FACTS, "message")),
    "owners": (_owners, OF_FACTS),
    "facts over HTTP": (_facts_over_http, OF_FACTS),
    "log over HTTP": (_log_over_http, (*OF_FACTS, "message")),
    "topic": (_items, ("item",)),
}


def _rows(found: list[Any]) -> Rows:
    return {(str(door), str(name)): value for door, name, value in found}


async def test_what_is_accepted_comes_back_from_each_stage(tmp_path: Path) -> None:
    accepted: Rows = {}
    refused: dict[tuple[str, str], str] = {}
    wrong: list[str] = []
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            world = World(tmp_path, nursery)
            await world.start()
            async with dataspace.connect(world.url, reconnect=False, heartbeat=math.inf) as space:
                doors = Doors(world, space)
                async with space.consume(PATTERN, group="all"):
                    pass
                for at, (name, value) in enumerate(limits().items()):
                    for door in DOORS if "levels" in name else ("turn", DOORS[1 + at % (len(DOORS) - 1)]):
                        try:
                            await getattr(doors, door)(name, value)
                        except (ProtocolError, UsageError, dataspace.Refused) as error:
                            refused[door, name] = str(error)
                        else:
                            accepted[door, name] = value
                for stage, (read, of) in STAGES.items():
                    try:
                        found = await read(doors)
                    except (ProtocolError, UsageError, dataspace.Refused) as error:
                        wrong.append(f"{stage}: {error!r:.300}")
                    else:
                        wrong += _compared(stage, found, accepted, of)
            await world.stop()
            await world.start()
            wrong += await _after(world, "restart", accepted)
            await world.stop()
            compacting = ["log", "compact", "--data", str(world.data)]
            assert await trio.to_thread.run_sync(main, compacting) == 0
            await world.start()
            wrong += await _after(world, "compaction", accepted)
            nursery.cancel_scope.cancel()
    assert not wrong, "\n".join(wrong[:40])
    for door in DOORS:
        assert {at for at in accepted if at[0] == door} and {at for at in refused if at[0] == door}, door


async def _after(world: World, what: str, accepted: Rows) -> list[str]:
    async with dataspace.connect(world.url) as space:
        return _compared(what, await _state(Doors(world, space)), accepted, OF_FACTS)


def _compared(stage: str, found: Rows, accepted: Rows, of: tuple[str, ...]) -> list[str]:
    wrong = []
    for at, value in accepted.items():
        if at[0] in of and (at not in found or key(found[at]) != key(value)):
            wrong.append(f"{stage}: {at}: {found.get(at, 'missing')!r:.100}")
    return wrong


@pytest.mark.parametrize("name", limits())
def test_a_value_survives_the_codec_and_has_one_form_as_text_and_as_json(name: str) -> None:
    value = limits()[name]
    try:
        unpack(packed := pack(value))
    except (ProtocolError, UsageError) as error:
        assert f"of {MAX_DEPTH + 1} levels" in name and f"deeper than {MAX_DEPTH}" in str(error)
        return
    for there in (unpack(packed), parse(unparse(value)), from_json(json.loads(json.dumps(to_json(value))))):
        assert key(there) == key(value)
