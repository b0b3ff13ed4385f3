"""What is known to have gone wrong elsewhere does not go wrong here.

Each fault was seen in pull-stream 3.7.0 or a module around it (see the Decisions in STREAMS.md).
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from dataspace import streams as s
from tests.dataspace.streams.runs import Failure, Run, Scripted
from tests.dataspace.streams.test_promistream import ends


@pytest.mark.parametrize("schedule", ["aax", "aaxx", "aaax", "aaix", "aaxa"])
@pytest.mark.parametrize("overtakes", [False, True])
async def test_take_sends_no_second_abort_upstream(schedule: str, overtakes: bool) -> None:
    """52 of 4 608 runs of the paper's grid: an asynchronous source and an abort that overtakes."""
    source = s.check(Scripted(3, None, True), calm=True)
    run = Run([source, s.take(1)])
    await run.play(schedule, overtakes=overtakes)
    assert source.violations == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: s.values([1, 2, 3]),
        lambda: s.once(1),
        lambda: s.count(),
        lambda: s.infinite(),
        lambda: s.keys({"a": 1}),
    ],
)
@pytest.mark.parametrize("nowait", [False, True])
async def test_no_value_comes_after_a_termination(make: Any, nowait: bool) -> None:
    """values, once, count and infinite went on after an abort; an indication made five of seven crash."""
    stream = s.pipe(make())
    if nowait:
        stream.abort_nowait()
    else:
        await stream.abort()
    assert await ends(stream, 3) == ["Aborted(True)"] * 3


async def test_no_value_comes_after_a_function_has_failed() -> None:
    """map went on to ask upstream after its function had thrown."""

    def fails_once(value: int) -> int:
        if value == 1:
            raise Failure("once")
        return value

    stream = s.pipe(s.values([0, 1, 2]), s.map(fails_once))
    assert await ends(stream, 3) == ["0", "Failure('once')", "Aborted(Failure('once'))"]


async def test_concurrent_asks_are_not_lost() -> None:
    """pushable kept the last callback only."""
    source = s.pushable()
    seen: list[int] = []

    async def reader() -> None:
        seen.append(await source.read())

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(reader)
            await trio.testing.wait_all_tasks_blocked()
            for n in range(3):
                source.push(n)
    assert seen == [0, 1, 2]


async def test_merge_swallows_no_error() -> None:
    left = s.pipe(s.values([1, 4]))
    other = Scripted(9, None, False)
    bad = s.pipe(s.cat(s.pipe(s.values([2, 3])), s.pipe(s.error(Failure("right")))))
    stream = s.pipe(s.merge(left, bad, s.pipe(other)))
    seen = await ends(stream, 8)
    assert "Failure('right')" in seen
    assert [repr(reason) for reason in other.closed] == ["Failure('right')"]
    assert await ends(left, 1) == ["Aborted(Failure('right'))"]


async def test_merge_drops_no_equal_key() -> None:
    left = s.pipe(s.values([("a", 1), ("a", 2), ("a", 3)]))
    right = s.pipe(s.values([("b", 1), ("b", 2), ("b", 2)]))
    merged = await s.pipe(s.merge(left, right, key=lambda pair: pair[1]), s.collect()).read()
    assert merged == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 2), ("a", 3)]


async def test_empty_remembers_the_error_it_was_failed_with() -> None:
    stream = s.pipe(s.empty())
    await stream.abort(Failure("x"))
    assert await ends(stream) == ["Aborted(Failure('x'))"] * 2


async def test_take_0_ends_and_count_0_counts_0() -> None:
    assert await s.pipe(s.values([1, 2]), s.take(0), s.collect()).read() == []
    assert await s.pipe(s.count(0), s.collect()).read() == [0]


async def test_once_gives_nothing_as_well_as_something() -> None:
    assert await s.pipe(s.once(None), s.collect()).read() == [None]


async def test_unique_keeps_types_apart() -> None:
    """Keys were texts: 1 and "1" clashed, and so did all objects."""
    things = [1, "1", 1.0, True, b"1", (1,), ("1",), 1, None, None]
    assert await s.pipe(s.values(things), s.unique(), s.collect()).read() == [*things[:7], None]


async def test_an_asynchronous_map_reads_no_further_than_it_was_told() -> None:
    """paramap read the whole source ahead unless told otherwise."""
    read: list[int] = []

    async def same(value: int) -> int:
        return value

    async with s.pipe(s.count(), s.through(read.append), s.async_map(same), s.take(1)) as stream:
        assert await ends(stream) == ["0", "EndOfStream()"]
    assert read == [0]


async def test_a_failing_asynchronous_map_fails_its_source() -> None:
    async def fails(value: int) -> int:
        raise Failure("mapper")

    source = Scripted(3, None, True)
    async with s.pipe(source, s.async_map(fails, width=4)) as stream:
        assert await ends(stream) == ["Failure('mapper')", "Aborted(Failure('mapper'))"]
        assert [repr(reason) for reason in source.closed] == ["Failure('mapper')"]


async def test_drain_ended_from_within_aborts_once() -> None:
    """drain.abort() inside its function sent two aborts."""
    source = s.check(Scripted(9, None, True), calm=True)
    assert await s.pipe(source, s.drain(lambda n: n < 2)).read() == 3
    assert source.statistics().requests == 4, "three reads and one abort"


async def test_defer_keeps_every_request_until_it_is_resolved() -> None:
    """pull-defer kept one ask and one abort."""
    source = s.defer()
    seen: list[int] = []

    async def reader() -> None:
        seen.append(await source.read())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        source.resolve(s.pipe(s.count()))
    assert seen == [0, 1, 2]


async def test_filter_answers_in_order_when_an_abort_overtakes() -> None:
    """filter answered the abort before the older ask, and asked upstream after aborting."""
    source = s.check(Scripted(5, None, True), calm=True)
    run = Run([source, s.filter(lambda n: n > 3)])
    await run.play("aax", overtakes=True)
    assert [number for number, _, _ in run.answers] == [0, 1, 2]
