"""The functions of COORDINATION.md, and programs that are made of its verbs, do what the page says."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import ExpectationFailed, Lock, Record
from tests.server.coordination import recipes

PAGE = Path(dataspace.__file__).with_name("COORDINATION.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def recipe() -> dict[str, Any]:
    """What all blocks of the page define."""
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "COORDINATION.md", "exec"), names)
    return names


def test_each_recipe_is_short() -> None:
    assert len(BLOCKS) == 4
    assert max(len(block.splitlines()) for block in BLOCKS) <= 30


async def test_another_leads_when_a_leader_is_gone(url: str) -> None:
    leaders: list[str] = []
    seen: list[tuple[str, str, int]] = []
    changed = trio.Event()

    def working(name: str) -> Callable[[Lock], Any]:
        async def work(_election: Lock) -> None:
            leaders.append(name)
            tell()
            await trio.sleep_forever()

        return work

    def note(kind: str, who: str, epoch: int) -> None:
        seen.append((kind, who, epoch))
        tell()

    def tell() -> None:
        nonlocal changed
        changed.set()
        changed = trio.Event()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recipes.follow, url, note)
        scopes: dict[str, trio.CancelScope] = {}

        async def stand(name: str) -> None:
            with trio.CancelScope() as scopes[name]:
                await recipes.lead(url, name, working(name), ttl=10)

        with trio.fail_after(30):
            for name in ("one", "two"):
                nursery.start_soon(stand, name)
                async with dataspace.connect(url) as space:
                    await space.first(f'contender("billing", "{name}", _)')
            while not (seen and leaders):  # an observer may be shown the leader before it has its answer
                await changed.wait()
            scopes["one"].cancel()
            while len(seen) < 3 or len(leaders) < 2:
                await changed.wait()
        nursery.cancel_scope.cancel()
    assert leaders == ["one", "two"]
    assert sorted((kind, who) for kind, who, _ in seen) == [("+", "one"), ("+", "two"), ("-", "one")]


async def test_a_counter_behind_a_lock_counts_each_time(url: str, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    async with dataspace.connect(url) as one, dataspace.connect(url) as two:
        async with trio.open_nursery() as nursery:
            for n in range(6):
                nursery.start_soon(recipes.add_one, (one, two)[n % 2], store)
    database = sqlite3.connect(store)
    value, token = database.execute("SELECT value, token FROM kept").fetchone()
    assert value == 6
    assert not recipes.write(database, "counter", 99, token - 1), "from a holder that was stopped"
    assert recipes.read(database, "counter", token + 1) == 6
    assert not recipes.write(database, "counter", 7, token), "after the next holder has read"
    assert recipes.write(database, "counter", 7, token + 1)
    database.close()


async def test_a_setting_has_a_value_in_every_epoch(url: str) -> None:
    told: list[dict[str, int]] = []
    await recipes.configure(url, rate=7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recipes.configured, url, told.append)
        with trio.fail_after(30):
            async with dataspace.connect(url) as space:
                await space.first('Observe(config("billing", _, _))')
            await recipes.configure(url, rate=8, limit=1)
            async with dataspace.connect(url) as space:
                assert sorted(await space.matches('config("billing", $, $)')) == [("limit", 1), ("rate", 8)]
            while {"limit": 1} not in told:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert told == [{"rate": 7}, {"rate": 8}, {"limit": 1}]


async def test_a_service_has_its_name_alone_and_leaves_with_it(url: str, recipe: dict[str, Any]) -> None:
    running = trio.Event()
    ended = trio.Event()

    async def run(_space: dataspace.RemoteSpace) -> None:
        running.set()
        await ended.wait()

    async with dataspace.connect(url) as space:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recipes.serve, recipe["register"], url, "billing", "10.0.0.1:80", run)
            with trio.fail_after(30):
                assert await recipes.find(space, "billing") == "10.0.0.1:80"
                await running.wait()
                with pytest.raises(ExpectationFailed) as caught:
                    await recipes.serve(recipe["register"], url, "billing", "10.0.0.2:80", run)
            assert caught.value.rows == [("10.0.0.1:80",)]
            ended.set()
        assert await space.matches(Record("service", "billing")) == []


async def test_a_result_outlasts_the_worker_that_left_it(url: str, recipe: dict[str, Any]) -> None:
    async with dataspace.connect(url) as space, space.observe("$fact", quiet=True) as seen:
        working = await space.assert_(Record("working", 1))
        await recipe["finish"](space, 1, working, "ok")
        *_, last = [await seen.next_epoch() for _ in range(3)]
        assert last is not None and len(last.added) == len(last.removed) == 1
    async with dataspace.connect(url) as space:
        assert await space.matches("$fact") == [(Record("result", 1, "ok"),)]
        assert await space.withdraw("result(1, _)", owner="results") == 1


async def test_a_durable_value_is_set_if_it_is_the_old_one(url: str, recipe: dict[str, Any]) -> None:
    async with dataspace.connect(url) as space:
        await space.put("config", "billing", "rate", 7, owner="operations")
    async with dataspace.connect(url) as space:
        assert await recipe["set_rate"](space, 7, 8) == 2
        with pytest.raises(ExpectationFailed) as caught:
            await recipe["set_rate"](space, 7, 9)
        assert caught.value.rows == [(8,)]
        assert await space.matches('config("billing", "rate", $)') == [(8,)]
