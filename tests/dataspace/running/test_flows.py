"""A flow reads streams and clocks through a task, and writes into streams that others read."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from dataspace import streams as s
from dataspace.flows.flows import Flow
from dataspace.kernel.space import Space
from dataspace.running.flows import pump
from index.values.values import Record


async def test_the_values_of_streams_go_through_a_flow_into_a_stream() -> None:
    flow, out = Flow(), s.pushable()
    left = flow.stream(s.pipe(s.values([("a", 1), ("b", 2)]), s.map(lambda pair: pair)))
    left.join(flow.stream(s.values([("b", 3)])), lifetime="static").write(out)
    await pump(flow)
    assert await s.pipe(out, s.collect()).read() == [("b", (2, 3))]


async def test_changes_can_be_written_with_their_weights() -> None:
    flow, out = Flow(), s.pushable()
    total = flow.stream(s.pipe(s.values([1]))).fold(lambda: 0, lambda a, b: a + b, lifetime="static")
    total.write(out, changes=True)
    await pump(flow)
    assert await s.pipe(out, s.collect()).read() == [(1, 1)]


async def test_a_stream_that_fails_ends_the_pump_and_aborts_the_others() -> None:
    flow, ended = Flow(), list[Any]()
    flow.stream(s.pushable(on_end=ended.append)).for_each(print)
    flow.stream(s.error(ValueError("no"))).for_each(print)
    with pytest.raises(ValueError, match=r"^no$"):
        await pump(flow)
    assert len(ended) == 1


async def test_who_cancels_the_pump_leaves_no_stream_open() -> None:
    flow, ended = Flow(), list[Any]()
    source = s.pushable(on_end=ended.append)
    seen = list[int]()
    flow.stream(source).for_each(seen.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump, flow)
        source.push(1)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [1] and not ended
        nursery.cancel_scope.cancel()
    assert len(ended) == 1


async def test_an_interval_makes_turns_of_the_space_that_drives_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    space, flow = Space("main"), Flow()
    beats = flow.interval(2.5)
    beats.assert_(lambda now: Record("clock", now // 1_000_000), lifetime="tick")
    space.rules.attach("clock", flow)
    seen: list[Any] = []

    def now() -> int:
        return round(trio.current_time() * 1e6)

    def turn() -> None:
        space.advance(now())
        seen.append([value.fields[0] for value in space.index.values() if isinstance(value, Record)])

    begun = trio.current_time()
    with trio.move_on_after(11):
        await pump(flow, turn=turn, wall=now)
    assert [each[0] - int(begun) for each in seen] == [2, 5, 7, 10], "each takes the place of the one before"


async def test_a_flow_that_writes_into_a_stream_that_is_full_waits_and_loses_nothing() -> None:
    flow, out, seen = Flow(), s.pushable(5), list[Any]()
    flow.stream(s.values(range(3000))).map(lambda n: n + 1).write(out)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump, flow)
        async for value in s.pipe(out):
            seen.append(value)
            assert flow.statistics().held <= 1024
    assert seen == list(range(1, 3001))


def test_without_a_pump_what_a_full_stream_cannot_take_waits_in_the_flow() -> None:
    flow, out = Flow(), s.pushable(2)
    source = flow.source([1, 2, 3])
    source.write(out)
    flow.run_tick()
    assert flow.statistics().held == 1
    source.put(4)
    flow.run_tick()
    assert flow.statistics().held == 2


async def test_windows_end_when_the_streams_are_silent(autojump_clock: trio.testing.MockClock) -> None:
    flow, source = Flow(), s.pushable()
    seen: list[tuple[float, Any, int]] = []

    def now() -> int:
        return round(trio.current_time() * 1e6)

    begun = trio.current_time()
    windows = flow.stream(source).window(2)
    windows.each_change(
        lambda item, weight: seen.append((round(trio.current_time() - begun, 1), item, weight))
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: pump(flow, wall=now))
        source.push("a")
        await trio.sleep(1.5)
        source.push("b")
        await trio.sleep(9)
        source.end()
    assert seen == [(0.0, "a", 1), (1.5, "b", 1), (2.0, "a", -1), (3.5, "b", -1)]
