"""The JavaScript client is a door and a stage for values at limits: what it says comes to others as it is,
and what others have said comes back from it; anything else is refused at the door.

Always: as ``test_limits``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import ProtocolError, UsageError
from index.values.jsons import from_json
from index.values.values import Value, key
from tests.conformance.driving import Driver, javascript, program
from tests.conformance.vectors import plain
from tests.generated.limits import limits
from tests.generated.test_resuming import World

pytestmark = pytest.mark.slow

SOON: Final = 300.0
PATTERN: Final = "v($door, $name, $value)"
Rows = dict[tuple[str, str], Value]
"""What came back, by the door and the name of the value."""


async def test_what_is_accepted_comes_back_through_the_javascript_client(tmp_path: Path) -> None:
    accepted: Rows = {}
    refused: dict[tuple[str, str], str] = {}
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery, program(*javascript()) as page:
            world = World(tmp_path, nursery)
            await world.start()
            await page.do({"do": "connect", "url": world.url, "options": {"owner": "pages"}})
            assert await page.event("connect") == {"of": "connect", "done": True}
            async with dataspace.connect(world.url, reconnect=False, heartbeat=math.inf) as space:
                for name, value in limits().items():
                    try:
                        await space.assert_(Record("v", "python", name, value), owner="people")
                    except (ProtocolError, UsageError, dataspace.Refused) as error:
                        refused["python", name] = str(error)
                    else:
                        accepted["python", name] = value
                    said = await _asserted(page, name, value)
                    if "epoch" in said:
                        accepted["page", name] = value
                    else:
                        refused["page", name] = said["text"]
                assert {name for door, name in refused if door == "page"} == {
                    name for door, name in refused if door == "python"
                }, refused
                assert refused and all(refused.values())
                found: Any = await space.matches(PATTERN)
                wrong = _compared("Python", [tuple(row) for row in found], accepted)
            await page.do({"do": "matches", "as": "state", "pattern": PATTERN})
            state = (await page.event("state"))["rows"]
            wrong += _compared("JavaScript", [tuple(map(from_json, row)) for row in state], accepted)
            await page.do({"do": "observe", "as": "log", "pattern": PATTERN, "options": {"after": 0}})
            log: list[Any] = []
            while len(log) < len(accepted):
                await page.do({"do": "read", "of": "log"})
                log += (await page.event("log"))["changes"]["added"]
            wrong += _compared("JavaScript's log", [tuple(map(from_json, row)) for row in log], accepted)
            nursery.cancel_scope.cancel()
    assert not wrong, "\n".join(wrong[:40])


async def _asserted(page: Driver, name: str, value: Value) -> Any:
    fact = plain(Record("v", "page", name, value))
    await page.do({"do": "turn", "as": "turn", "actions": [["assert", name, fact]]})
    return await page.event("turn")


def _compared(stage: str, rows: list[Any], accepted: Rows) -> list[str]:
    found = {(str(door), str(name)): value for door, name, value in rows}
    return [
        f"{stage}: {at}: {found.get(at, 'missing')!r:.100}"
        for at, value in accepted.items()
        if at not in found or key(found[at]) != key(value)
    ]
