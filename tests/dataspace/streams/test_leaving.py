"""Whoever stops waiting loses nothing, and every way of leaving a pipe ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trio.testing

from dataspace import streams as s
from dataspace.errors import UsageError
from tests.dataspace.streams.runs import Failure, Scripted
from tests.dataspace.streams.test_promistream import ends


async def _slowly(value: int) -> int:
    await trio.sleep(0.002)
    return value


async def _feed(source: Any, number: int) -> None:
    for value in range(number):
        await trio.sleep(0.0015)
        source.push(value)
    source.end()


STAGES: dict[str, Callable[[], list[Any]]] = {
    "none": list,
    "map": lambda: [s.map(lambda n: n)],
    "filter": lambda: [s.filter(lambda n: True)],
    "flatten": lambda: [s.map(lambda n: [n]), s.flatten()],
    "async_map": lambda: [s.async_map(_slowly)],
    "async_map ahead": lambda: [s.async_map(_slowly, width=3)],
    "parallelize": lambda: [s.async_map(_slowly), s.parallelize(3)],
    "buffer": lambda: [s.buffer(2)],
    "rate_limit": lambda: [s.rate_limit(3, 0.005)],
    "window": lambda: [s.window(1), s.flatten()],
    "batch": lambda: [s.batch(2), s.flatten()],
    "sequentialize": lambda: [s.sequentialize()],
}


@pytest.mark.parametrize("name", STAGES)
async def test_reads_that_time_out_lose_no_value(name: str, autojump_clock: trio.testing.MockClock) -> None:
    source = s.pushable()
    seen: list[int] = []
    timeouts = 0
    async with s.pipe(source, *STAGES[name]()) as stream:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_feed, source, 40)
            while True:
                with trio.move_on_after(0.001) as scope:
                    try:
                        seen.append(await stream.read())
                    except s.EndOfStream:
                        break
                timeouts += scope.cancelled_caught
    assert seen == list(range(40))
    assert timeouts > 10, "nothing timed out, so nothing was shown"


@pytest.mark.parametrize("name", ["map", "filter", "async_map ahead", "parallelize", "buffer"])
async def test_many_readers_that_time_out_lose_no_value(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    source = s.pushable()
    seen: list[int] = []

    async def reader(stream: Any, seconds: float) -> None:
        while True:
            with trio.move_on_after(seconds):
                try:
                    seen.append(await stream.read())
                except s.EndOfStream:
                    return

    with trio.fail_after(60):
        async with s.pipe(source, *STAGES[name]()) as stream:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, source, 40)
                for seconds in (0.001, 0.0013, 0.0017):
                    nursery.start_soon(reader, stream, seconds)
    assert seen == list(range(40)), "lost, doubled or out of order"


async def test_a_sink_that_is_cancelled_goes_on_with_what_it_had() -> None:
    source = s.pushable()
    stream = s.pipe(source, s.collect())
    source.push(1)
    with trio.move_on_after(0.01):
        await stream.read()
    source.push(2)
    source.end()
    assert await stream.read() == [1, 2]


# -- leaving a block ----------------------------------------------------------------------------------


async def test_leaving_by_break_aborts_and_waits() -> None:
    source = Scripted(9, None, True)
    async with s.pipe(source, s.async_map(_slowly, width=2)) as stream:
        async for _ in stream:
            break
    assert source.closed == [True]
    assert await ends(stream, 1) == ["Aborted(True)"]


async def test_leaving_by_an_exception_fails_the_stream_and_the_exception_comes_bare() -> None:
    source = Scripted(9, None, True)
    error = Failure("in the block")
    with pytest.raises(Failure) as caught:
        async with s.pipe(source, s.async_map(_slowly, width=2)) as stream:
            await stream.read()
            raise error
    assert caught.value is error
    assert source.closed == [error]


async def test_leaving_by_cancellation_indicates_and_does_not_wait() -> None:
    source = Scripted(9, None, True)
    with trio.move_on_after(0.01) as scope:
        async with s.pipe(source, s.async_map(_slowly, width=2)) as stream:
            await stream.read()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert source.closed == [True]


async def test_a_teardown_that_takes_too_long_is_passed_over(autojump_clock: trio.testing.MockClock) -> None:
    class Slow(Scripted):
        async def _teardown(self, reason: object) -> None:
            await trio.sleep(100)

    source = Slow(9, None, False)
    start = trio.current_time()
    async with s.pipe(source, s.map(str), abort_timeout=2.0) as stream:
        assert await stream.read() == "0"
    assert trio.current_time() - start == pytest.approx(2.0)
    assert source.closed == [True]


async def test_the_end_of_a_block_leaves_no_task_behind() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    for _ in range(3):
        async with s.pipe(s.count(), s.async_map(_slowly, width=4), s.buffer(3), s.parallelize(2)) as stream:
            assert [await stream.read() for _ in range(3)] == [0, 1, 2]
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_stages_with_tasks_are_read_in_a_block_and_a_whole_pipe_has_its_own() -> None:
    stream = s.pipe(s.count(), s.buffer(2))
    with pytest.raises(UsageError, match=r"buffer\(2\) works in tasks of its own: read it in `async with"):
        await stream.read()
    assert await s.pipe(s.values([1, 2]), s.async_map(_slowly, width=2), s.collect()).read() == [1, 2]


async def test_a_pipe_is_a_receive_channel() -> None:
    stream: trio.abc.ReceiveChannel[int] = s.pipe(s.values([1, 2, 3]))
    assert await stream.receive() == 1
    assert [value async for value in stream] == [2, 3]
    with pytest.raises(trio.EndOfChannel):
        await stream.receive()
    await stream.aclose()
    other = s.pipe(s.values([1]))
    await other.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await other.receive()


async def test_reads_let_other_tasks_run() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await s.pipe(s.count(9_999), s.drain()).read()
        by_sink, turns = turns, 0
        await s.pipe(s.once(range(10_000)), s.flatten(), s.drain(lambda _: True)).read()
        nursery.cancel_scope.cancel()
    assert by_sink >= 10_000 // 128
    assert turns >= 10_000 // 128


# -- asynchronous iterables ---------------------------------------------------------------------------


async def test_an_asynchronous_generator_survives_reads_that_time_out_and_is_closed_in_the_end() -> None:
    closed = False

    async def numbers() -> AsyncIterator[int]:
        nonlocal closed
        try:
            for n in range(5):
                await trio.sleep(0.003)
                yield n
        finally:
            closed = True

    seen: list[int] = []
    async with s.pipe(s.from_async_iterable(numbers())) as stream:
        while len(seen) < 3:
            with trio.move_on_after(0.002):
                seen.append(await stream.read())
        assert not closed
    assert seen == [0, 1, 2]
    assert closed
