"""Every bound of a stream, at the bound: what may be held is held, and not one value or frame more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from dataspace import streams as s
from dataspace.errors import UsageError
from tests.dataspace.streams.runs import Failure, Scripted


def _nested(number: int, inside: Callable[[], Any], **options: Any) -> Any:
    stream = s.pipe(inside(), **options)
    for _ in range(number - 1):
        stream = s.pipe(stream, inside(), **options)
    return stream


async def test_a_thousand_nested_pipes_are_as_flat_as_their_stages() -> None:
    nested = _nested(1000, lambda: s.map(lambda n: n + 1))
    stream = s.pipe(s.values([0, 1]), nested)
    assert [await stream.read(), await stream.read()] == [1000, 1001]
    stream = s.pipe(s.values([0]))
    for _ in range(1000):
        stream = s.pipe(stream)
    assert await stream.peek()
    assert await stream.read() == 0
    await stream.abort(True)


DEEP: dict[str, Callable[[Any], Any]] = {
    "map": lambda stream: s.pipe(stream, s.map(lambda n: n), fuse=False),
    "filter": lambda stream: s.pipe(stream, s.filter(lambda n: True), fuse=False),
    "flatten": lambda stream: s.pipe(stream, s.flatten()),
    "limit": lambda stream: s.pipe(stream, s.limit(1)),
    "batch": lambda stream: s.pipe(stream, s.batch(2)),
    "cat": lambda stream: s.pipe(s.cat(stream)),
    "merge": lambda stream: s.pipe(s.merge(stream)),
    "fork": lambda stream: s.fork_mirror(stream, 1)[0],
    "checked": lambda stream: s.pipe(stream, s.map(lambda n: n), checked=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ["read", "abort", "nowait", "fail"])
@pytest.mark.parametrize("name", DEEP)
async def test_as_deep_as_streams_may_be_they_work_and_deeper_they_are_refused(name: str, end: str) -> None:
    source = Scripted(1, Failure("source") if end == "fail" else None, False)
    stream: Any = s.pipe(source)
    deep = 1
    with pytest.raises(UsageError, match="frames of Python's stack"):
        while True:
            deep, stream = deep + 1, DEEP[name](stream)
    assert 20 < deep < 1000
    assert await stream.peek()
    if end in ("read", "fail"):
        await stream.read()
        with pytest.raises(Failure if end == "fail" else s.EndOfStream):
            await stream.read()
    elif end == "abort":
        await stream.abort(True)
    else:
        stream.abort_nowait(True)
    assert len(source.closed) == 1


@pytest.mark.parametrize("join", [s.cat, s.merge, s.many])
async def test_a_join_of_nothing_ends_at_once(join: Any) -> None:
    async with s.pipe(join()) as stream:
        with pytest.raises(s.EndOfStream):
            await stream.read()


@pytest.mark.parametrize("ahead", [1, 2, 3])
async def test_forks_are_apart_by_no_more_than_they_may(ahead: int) -> None:
    taken = 0

    def count(_value: int) -> None:
        nonlocal taken
        taken += 1

    fast, slow = s.fork_mirror(s.pipe(s.count(), s.through(count)), 2, ahead=ahead)
    for _ in range(ahead):
        await fast.read()
    assert taken == ahead
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fast.read)
        await trio.testing.wait_all_tasks_blocked()
        assert taken == ahead
        assert await slow.read() == 0
    assert taken == ahead + 1


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_a_pushable_holds_as_many_as_it_may(limit: int) -> None:
    source = s.pushable(limit)
    for value in range(limit):
        source.push(value)
    with pytest.raises(trio.WouldBlock):
        source.push(limit)
    assert await source.read() == 0
    source.push(limit)
    assert await source.read_some(99) == list(range(1, limit + 1))


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("stage", [s.buffer, lambda n: s.async_map(_same_later, width=n), s.parallelize])
async def test_what_works_ahead_reads_no_further_than_it_may(width: int, stage: Callable[[int], Any]) -> None:
    taken = 0

    def count(_value: int) -> None:
        nonlocal taken
        taken += 1

    async with s.pipe(s.count(), s.through(count), stage(width)) as stream:
        await trio.testing.wait_all_tasks_blocked()
        assert taken == 0, "before it is asked"
        for read in range(1, 4):
            await stream.read()
            await trio.testing.wait_all_tasks_blocked()
            assert taken == read + width


async def _same_later(value: int) -> int:
    await trio.lowlevel.checkpoint()
    return value


BOUNDED: dict[str, Callable[[Any], Any]] = {
    "buffer": s.buffer,
    "async_map": lambda n: s.async_map(_same_later, width=n),
    "parallelize": s.parallelize,
    "limit": s.limit,
    "rate_limit": s.rate_limit,
    "rate_limit in": lambda n: s.rate_limit(1, n),
    "window": s.window,
    "window of": lambda n: s.window(seconds=n),
    "batch": s.batch,
    "pushable": s.pushable,
    "forks": lambda n: s.fork_mirror(s.pipe(s.count()), n),
    "forks ahead": lambda n: s.fork_round_robin(s.pipe(s.count()), ahead=n),
    "lend": lambda n: s.lend(s.pipe(s.count()), ahead=n),
}
TIMES = ("rate_limit in", "window of")


@pytest.mark.parametrize("bound", [0, -1, 1.5, True, float("nan")])
@pytest.mark.parametrize("name", BOUNDED)
def test_a_bound_is_a_whole_number_from_1_and_a_time_is_above_0(name: str, bound: Any) -> None:
    if name in TIMES and bound > 0:
        BOUNDED[name](bound)
        return
    with pytest.raises(UsageError):
        BOUNDED[name](bound)
