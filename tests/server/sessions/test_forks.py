"""A client in a forked child says at once that it is the parent's; the parent's connection goes on."""

from __future__ import annotations

import json
import sys
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record

PROGRAM: Final = """
import json, os, sys
import dataspace
from dataspace import Record

def said(call):
    try:
        return call() and "ok"
    except dataspace.UsageError as error:
        return str(error)

with dataspace.connect_blocking(sys.argv[1]) as space:
    space.assert_(Record("present", "parent"))
    changes = space.observe("present($who)")
    with space.publish("news") as news, space.consume("job($id)", group="w") as jobs:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            calls = [space.sync, lambda: space.matches("x($n)"), lambda: next(iter(changes)),
                     lambda: news.send(1), lambda: next(iter(jobs)),
                     lambda: space.turn().__enter__() and space.sync()]
            told = [said(each) for each in calls]
            space.close()
            with dataspace.connect_blocking(sys.argv[1]) as own:
                told.append(own.matches("present($who)"))
            os.write(write, json.dumps(told).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            told = answer.read()
        os.waitpid(child, 0)
        space.sync()
        print(told)
"""


async def test_a_forked_child_is_told_to_connect_again(url: str) -> None:
    with trio.fail_after(40):
        done = await trio.run_process([sys.executable, "-c", PROGRAM, url], capture_stdout=True)
    *refused, rows = json.loads(done.stdout)
    assert all("after a fork, connect again in the child" in each for each in refused) and len(refused) == 6
    assert rows == [["parent"]]  # whose session is not disturbed


ASYNC: Final = """
import asyncio, os, sys
from concurrent.futures import ThreadPoolExecutor
import trio
import dataspace
from dataspace import Record

_, url, run = sys.argv
changes = []

async def main():
    options = dict(on_connection=lambda event: changes.append(event.change.name), heartbeat=1)
    async with dataspace.connect(url, **options) as space, space.observe("said($n)") as seen:
        await space.assert_(Record("present", "parent"))
        child = os.fork()
        if not child:
            again = (lambda: trio.run(space.sync)) if run == "trio" else (lambda: asyncio.run(space.sync()))
            try:
                ThreadPoolExecutor().submit(again).result()
            except dataspace.UsageError as error:
                os._exit(0 if "after a fork, connect again in the child" in str(error) else 1)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        await space.send(Record("said", 1))
        assert (await anext(seen)).captures == (1,)
        assert changes == ["CONNECTED"], changes

trio.run(main) if run == "trio" else asyncio.run(main())
"""


@pytest.mark.parametrize("run", ["trio", "asyncio"])
async def test_a_forked_child_leaves_the_connection_of_a_loop_alone(url: str, run: str) -> None:
    """It uses the client in a loop of its own: neither trio nor asyncio can go on with the parent's there."""
    with trio.fail_after(40):
        command = [sys.executable, "-c", ASYNC, url, run]
        done = await trio.run_process(command, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


BULK: Final = """
import os, sys
import dataspace
from dataspace.bulk import BulkClient
from dataspace.text import parse_pattern

with BulkClient(sys.argv[1]) as link:
    rows = link.changes(parse_pattern("p($n)"), as_of=0, upto=link.frontier().epoch)
    child = os.fork()
    if not child:
        try:
            link.frontier()
        except dataspace.UsageError as error:
            link.close()
            os._exit(0 if "after a fork, connect again in the child" in str(error) else 1)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    list(rows)
    link.frontier()
"""


async def test_a_forked_child_leaves_a_link_of_bulk_reads_alone(url: str) -> None:
    with trio.fail_after(40):
        command = [sys.executable, "-c", BULK, url]
        done = await trio.run_process(command, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


async def test_a_publication_crashes_and_holds_times_without_async(url: str) -> None:
    def publish() -> None:
        with dataspace.connect_blocking(url) as space, space.publish("news") as publication:
            later = publication.hold(3)
            publication.send("a")
            publication.release()
            assert [publication.time, later.time] == [None, 3]
            later.downgrade(4)
            publication.send("b", at=4)
            later.release()
            assert [later.time] == [None]
            publication.flush()
        with dataspace.connect_blocking(url) as space, space.publish("news", time=9) as publication:
            publication.send("c")
            publication.crash("no more")

    async with dataspace.connect(url) as space, space.publish("news", time=0) as keeps:
        async with space.subscribe("news", atomic=False) as epochs:
            await trio.to_thread.run_sync(publish)
            await keeps.send("last", at=10)
            await keeps.advance(11)
            seen = [await epochs.next_epoch() for _ in range(4)]
        told = [(each.time, each.items, bool(each.crashed)) for each in seen if each is not None]
        assert told == [(0, ("a",), False), (4, ("b",), False), (9, ("c",), True), (10, ("last",), False)]
        await space.assert_(Record("done"))
