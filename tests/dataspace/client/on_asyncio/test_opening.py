"""``connect`` under asyncio: in a block, opened and closed in different tasks, and its errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Record

ALONE = """
import asyncio, gc, sys, warnings
import trio
import dataspace

def never(*_args, **_options):
    raise AssertionError("a loop of trio was started")

trio.run = trio.lowlevel.start_guest_run = never

async def main():
    async with dataspace.connect(sys.argv[1]) as space:
        assert not trio.lowlevel.in_trio_run() and not trio.lowlevel.in_trio_task()
        async with space.observe("present($who)") as seen:
            claim = await space.assert_(dataspace.Record("present", "Alice"))
            async with space.turn() as turn:
                turn.send(dataspace.Record("hello"))
            assert [(await seen.read()).who] == ["Alice"]
            await space.retract(claim)
            assert (await seen.read()).kind == "-"
        assert await space.matches("present($who)") == []
        await space.sync()
    connection = dataspace.connect(sys.argv[1])
    space = await connection.open()
    await space.sync()
    await connection.aclose()

asyncio.run(main(), debug=True)
gc.collect()
print("done")
"""


@pytest.mark.slow
def test_no_loop_of_trio_is_started_and_nothing_is_left_open(url: str) -> None:
    """In a process of its own, in asyncio's debug mode, where what is not closed is an error."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", ALONE, url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "done\n", ended.stderr
    assert "Warning" not in ended.stderr and "Exception ignored" not in ended.stderr


def test_open_and_close_may_be_in_different_tasks(url: str) -> None:
    async def main() -> None:
        connection = dataspace.connect(url)
        space = await asyncio.create_task(connection.open())
        tasks = [asyncio.create_task(space.assert_(Record("present", n))) for n in range(50)]
        await asyncio.gather(*tasks)
        assert len(await asyncio.create_task(space.matches("present($n)"))) == 50
        await asyncio.create_task(connection.aclose())
        with pytest.raises(dataspace.Closed):
            await space.sync()
        await connection.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_open_raises_what_the_block_raises() -> None:
    async def main() -> None:
        with pytest.raises(dataspace.Unreachable):
            await dataspace.connect("tcp://127.0.0.1:9").open()
        with pytest.raises(dataspace.UsageError, match="heartbeat"):
            await dataspace.connect("tcp://127.0.0.1:9", heartbeat=0).open()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_close_raises_what_has_ended_the_connection(url: str) -> None:
    async def main() -> None:
        connection = dataspace.connect(url, client="me")
        space = await connection.open()
        async with dataspace.connect(url, client="me"):
            with pytest.raises(dataspace.ProtocolError, match="superseded"):
                while True:
                    await space.sync()
        with pytest.raises(dataspace.ProtocolError, match="superseded"):
            await connection.aclose()
        await connection.aclose()

    asyncio.run(main())


def test_an_open_that_is_cancelled_leaves_nothing(url: str) -> None:
    async def main() -> None:
        for turns in range(12):
            connection = dataspace.connect(url)
            task: asyncio.Task[Any] = asyncio.create_task(connection.open())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_connection_is_opened_once(url: str) -> None:
    async def main() -> None:
        connection = dataspace.connect(url)
        await connection.open()
        with pytest.raises(dataspace.UsageError, match="opened before"):
            await connection.open()
        await connection.aclose()

    asyncio.run(main())


def test_under_trio_open_points_to_the_block() -> None:
    with pytest.raises(dataspace.UsageError, match="async with connect"):
        trio.run(dataspace.connect("tcp://127.0.0.1:9").open)


def test_another_kind_of_loop_is_refused() -> None:
    """A coroutine may be driven by anything: here by hand."""
    opening = dataspace.connect("tcp://127.0.0.1:9").__aenter__()
    with pytest.raises(dataspace.UsageError, match=r"neither trio nor asyncio runs here.*connect_blocking"):
        opening.send(None)


WITHOUT = """
import asyncio, sys
sys.modules["anyio"] = None
import dataspace

async def main():
    try:
        await dataspace.connect("tcp://127.0.0.1:9").open()
    except dataspace.UsageError as error:
        print(error)

asyncio.run(main())
"""


@pytest.mark.slow
def test_without_anyio_one_sentence_says_what_to_install() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "asyncio needs anyio here: pip install 'dataspace-server[asyncio]'\n", ended.stderr


UNDER_TRIO = """
import sys
import trio
import dataspace

async def main():
    try:
        async with dataspace.connect("tcp://127.0.0.1:9"):
            pass
    except dataspace.Unreachable:
        print(sorted({"asyncio", "anyio"} & set(sys.modules)))

trio.run(main)
"""


@pytest.mark.slow
def test_under_trio_neither_asyncio_nor_anyio_is_loaded() -> None:
    ended = subprocess.run([sys.executable, "-c", UNDER_TRIO], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "[]\n", ended.stderr
