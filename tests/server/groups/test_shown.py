"""What a group shows of its members: principals only to bearers that may inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from index.patterns.patterns import capture
from index.values.values import Map, Record
from server.config.model import Config
from server.config.rights import Key, Rights
from server.daemon.serve import serve

BOSS, GUEST = "a-secret-of-the-boss", "a-secret-of-the-guest"


@pytest.mark.parametrize("inspects", [False, True])
async def test_principals_are_shown_to_those_who_may_inspect(
    tmp_path: Path, nursery: trio.Nursery, inspects: bool
) -> None:
    rights = Rights.read(Map({"observe": ("job(_)",), "inspect": inspects}))
    keys = (Key("boss", BOSS), Key("guest", GUEST, rights))
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path, keys=keys)
    (url,) = await nursery.start(serve, config)
    with trio.fail_after(20):
        async with dataspace.connect(url, token=BOSS) as boss, dataspace.connect(url, token=GUEST) as guest:
            taking = {"group": "w", "pattern": Record("job", capture("n"))}
            await boss.request("take", Map(taking))
            await boss.send(Record("job", 1))
            await boss.request("take", Map({**taking, "wait": 10_000}))
            answer: Any = await guest.request("groups", Map({"out": True}))
            (found,) = answer[0]["deliveries"]
            number = found[4].split()[1]
            assert found[4] == f"request {number}" + " of token:boss" * inspects and number[0].isdecimal()
            assert ("boss" in repr(answer)) == inspects
