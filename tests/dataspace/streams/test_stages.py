"""Each stage does what its name says, and says so where it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from dataspace import streams as s
from dataspace.errors import Closed, UsageError
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.kernel.space import Space
from index.patterns.text import parse_pattern
from index.values.values import Record
from relay.log.log import Log
from tests.dataspace.streams.runs import Failure, Scripted
from tests.dataspace.streams.test_promistream import ends
from tests.relay.log.histories import append


async def made(*stages: Any) -> Any:
    """All values that come out of some stages, by single reads and by reads of some: they must agree."""
    return await s.pipe(*stages, s.collect()).read()


async def test_sources_of_values_at_hand() -> None:
    assert await made(s.values({"a": 1, "b": 2})) == [1, 2]
    assert await made(s.keys({"a": 1, "b": 2})) == ["a", "b"]
    assert await made(s.keys("xyz")) == [0, 1, 2]
    assert await made(s.count(3)) == [0, 1, 2, 3]
    assert await made(s.infinite(lambda: 7), s.take(3)) == [7, 7, 7]
    assert await made(s.from_iterable(n * n for n in range(4))) == [0, 1, 4, 9]


async def test_an_iterable_that_raises_gives_what_came_before_and_then_the_error() -> None:
    def numbers() -> Any:
        yield 1
        yield 2
        raise Failure("iterable")

    assert await ends(s.pipe(s.from_iterable(numbers())), 4) == [
        "1",
        "2",
        "Failure('iterable')",
        "Aborted(Failure('iterable'))",
    ]
    stream = s.pipe(s.from_iterable(numbers()), s.through(), s.batch(9))
    seen = await ends(stream, 9)
    assert seen.count("Failure('iterable')") == 1
    assert seen[-1] == "Aborted(Failure('iterable'))"
    assert "".join(seen).startswith(("[1][2]F", "[1, 2]F"))


async def test_take_by_test_with_and_without_the_last() -> None:
    assert await made(s.count(), s.take(lambda n: n < 3)) == [0, 1, 2]
    assert await made(s.count(), s.take(lambda n: n < 3, last=True)) == [0, 1, 2, 3]


async def test_flatten_opens_lists_mappings_and_streams_and_leaves_texts_alone() -> None:
    inner = s.pipe(s.count(1))
    things = [[1, 2], {"a": 3}, (), "text", b"bytes", inner, range(2), 4]
    assert await made(s.values(things), s.flatten()) == [1, 2, 3, "text", b"bytes", 0, 1, 0, 1, 4]


async def test_an_abort_ends_the_stream_that_is_being_flattened_and_the_outer_one() -> None:
    inner, outer = Scripted(9, None, True), Scripted(9, None, True)
    stream = s.pipe(outer, s.map(lambda _: s.pipe(inner)), s.flatten())
    assert await stream.read() == 0
    await stream.abort(True)
    assert [inner.closed, outer.closed] == [[True], [True]]


async def test_windows_by_count_and_by_time(autojump_clock: trio.testing.MockClock) -> None:
    assert await made(s.count(6), s.window(3)) == [(0, 1, 2), (3, 4, 5), (6,)]
    source = s.pushable()
    stream = s.pipe(source, s.window(3, seconds=1.0))

    async def feed() -> None:
        for pause in (0.0, 0.4, 0.4, 0.4, 0.9, 0.3):
            await trio.sleep(pause)
            source.push(trio.current_time())
        source.end()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        assert [len(group) async for group in stream] == [3, 2, 1]


async def test_a_batch_is_what_is_at_hand() -> None:
    source = s.pushable()
    stream = s.pipe(source, s.batch(3))
    for n in range(5):
        source.push(n)
    assert await stream.read() == [0, 1, 2]
    assert await stream.read() == [3, 4]


async def test_limit_lets_so_many_reads_through() -> None:
    inside = most = 0

    async def work(value: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await trio.sleep(0.001)
        inside -= 1
        return value

    seen: list[int] = []

    async def reader(stream: Any) -> None:
        seen.append(await stream.read())

    async with s.pipe(s.count(), s.async_map(work), s.limit(2)) as stream:
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(reader, stream)
    assert (seen, most) == (list(range(6)), 2)


async def test_rate_limit_waits_before_it_asks(autojump_clock: trio.testing.MockClock) -> None:
    start = trio.current_time()
    asked: list[float] = []
    stream = s.pipe(
        s.count(6), s.through(lambda _: asked.append(trio.current_time() - start)), s.rate_limit(3, 10)
    )
    assert await s.pipe(stream, s.drain()).read() == 7
    assert [round(at) for at in asked] == [0, 0, 0, 10, 10, 10, 20]


async def test_pushable_is_bounded_if_told_so_and_says_how_it_ended() -> None:
    told: list[Any] = []
    source = s.pushable(2, on_end=told.append)
    source.push(1)
    source.push(2)
    with pytest.raises(trio.WouldBlock):
        source.push(3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.send, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert await source.read() == 1
    source.end(Failure("pushed"))
    with pytest.raises(Closed):
        source.push(4)
    assert await ends(source, 4) == ["2", "3", "Failure('pushed')", "Aborted(Failure('pushed'))"]
    assert [repr(reason) for reason in told] == ["Failure('pushed')"]


async def test_a_pair_is_a_sink_and_a_source() -> None:
    sink, source = s.pair()
    upper, lower = s.pipe(s.count(), s.map(str), sink), s.pipe(source, s.take(3), s.collect())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upper.read)
        assert await lower.read() == ["0", "1", "2"]


async def test_defer_is_told_later_and_keeps_its_end() -> None:
    source = s.defer()
    await source.abort(Failure("early"))
    other = Scripted(3, None, False)
    stream = s.pipe(other)
    source.resolve(stream)
    assert [repr(reason) for reason in other.closed] == ["Failure('early')"]
    with pytest.raises(UsageError, match="resolved already"):
        source.resolve(stream)


async def test_sinks() -> None:
    assert await s.pipe(s.count(4), s.reduce(max)).read() == 4
    assert await s.pipe(s.values("abc"), s.concat()).read() == "abc"
    assert await s.pipe(s.values([b"a", b"b"]), s.concat()).read() == b"ab"
    assert await s.pipe(s.empty(), s.concat(b"")).read() == b""
    assert await s.pipe(s.count(), s.find(lambda n: n > 4)).read() == 5
    assert await s.pipe(s.count(3), s.find(lambda n: n > 4)).read() is None
    told: list[Any] = []
    assert await s.pipe(s.count(3), s.on_end(told.append)).read() == 4
    assert told == [None]


async def test_log_writes_each_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert await s.pipe(s.values(["a", 1]), s.log("seen: ")).read() == 2
    assert [record.getMessage() for record in caplog.records] == ["seen: 'a'", "seen: 1"]


# -- files and channels -------------------------------------------------------------------------------


async def test_lines_of_a_file_and_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = [f"line {n} – ü" for n in range(20_000)]
    assert await s.pipe(s.values(lines), s.to_file(path, sync=True)).read() == 20_000
    assert await made(s.file_lines(path)) == lines
    assert await s.pipe(s.values([{"a": [1, None]}]), s.to_file(path, append=True)).read() == 1
    assert (await made(s.file_lines(path)))[-1] == '{"a": [1, null]}'


async def test_a_full_disk_fails_the_stream() -> None:
    source = Scripted(3, None, False)
    with pytest.raises(OSError, match="No space left"):
        await s.pipe(source, s.map(str), s.to_file("/dev/full")).read()
    assert [type(reason) for reason in source.closed] == [OSError]


async def test_a_file_that_is_not_there_is_an_error_of_the_stream(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await made(s.file_lines(tmp_path / "nowhere"))


async def test_channels_at_both_ends() -> None:
    out, source = trio.open_memory_channel[int](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(s.pipe(s.count(9), s.to_channel(out)).read)
        assert await made(s.from_channel(source)) == list(range(10))


async def test_a_sink_into_a_channel_that_is_cancelled_sends_what_it_had_taken() -> None:
    out, source = trio.open_memory_channel[int](0)
    stream = s.pipe(s.count(2), s.to_channel(out))
    with trio.move_on_after(0.01):
        await stream.read()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.read)
        assert await made(s.from_channel(source)) == [0, 1, 2]


async def test_a_receiver_that_is_gone_fails_the_stream() -> None:
    out, source = trio.open_memory_channel[int](0)
    source.close()
    with pytest.raises(trio.BrokenResourceError):
        await s.pipe(s.count(), s.to_channel(out)).read()


# -- dataspaces and logs ------------------------------------------------------------------------------


def fact(number: int) -> Record:
    return Record("reading", "d", number)


async def test_an_observation_in_this_process_gives_whole_epochs_the_state_first() -> None:
    space = Space("test")
    space.commit("me", [(ASSERT, 1, fact(1))], 10)
    stream = s.pipe(s.observation(space, "reading($device, $n)"))
    space.commit("me", [(ASSERT, 2, fact(2)), (RETRACT, 1), (SEND, fact(9))], 20)
    state, epoch = await stream.read(), await stream.read()
    assert (state.snapshot, [change.n for change in state]) == (True, [1])
    assert [(change.kind, change.n) for change in epoch] == [("+", 2), ("!", 9), ("-", 1)]
    assert epoch.number == 2
    seen: list[Any] = []

    async def reader() -> None:
        seen.append((await stream.read()).number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        space.commit("me", [(ASSERT, 3, fact(3))], 30)
    assert seen == [3]
    await stream.abort(True)
    assert space.statistics().observers == 0


async def test_the_log_is_a_source(log: Log) -> None:
    space = Space("test")
    append(log, *[space.commit("me", [(ASSERT, n, fact(n)), (SEND, fact(-n))], n) for n in range(1, 200)])
    stream = s.pipe(
        s.logged(log, "reading(_, $n)"), s.flatten(), s.map(lambda change: (change.kind, change.n))
    )
    expected = [(kind, n * sign) for n in range(1, 200) for kind, sign in (("+", 1), ("!", -1))]
    assert await made(stream) == expected
    some = s.logged(log, parse_pattern("reading(_, $n)"), after=10, upto=12)
    assert [epoch.number for epoch in await made(some)] == [11, 12]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    opened = Log.open(tmp_path)
    yield opened
    opened.close()


def test_a_change_is_written_as_a_line_of_json() -> None:
    space = Space("test")

    async def main() -> str:
        stream = s.pipe(s.observation(space, "reading($device, $)", snapshot=False))
        space.commit("me", [(ASSERT, 1, fact(1))], 1_000_000)
        return s.line_of(await stream.read())

    assert json.loads(trio.run(main)) == {
        "epoch": 1,
        "time": "1970-01-01T00:00:01Z",
        "change": "+",
        "captures": {"device": "d", "1": 1},
    }


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([], "at least one stage"),
        ([s.values], r"stage 0 is no stream, it has no promistream_version.*call it"),
        ([s.map(str), s.values([1])], r"stage 1 \(values\) is a source, which can only be first"),
        ([s.collect(), s.map(str)], r"stage 0 \(collect\) is a sink, which can only be last"),
        ([s.map(str), 7], "stage 1 is no stream, it has no promistream_version: 7"),
        ([s.map(str) for _ in range(300)], "300 stages.*would take 1200 frames.*, and 800 fit"),
    ],
)
def test_what_is_wrong_with_a_pipe_is_said_when_it_is_put_together(stages: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        s.pipe(*stages, fuse=False)


def test_a_stage_is_in_one_pipe_until_it_is_released() -> None:
    stage = s.map(str)
    first = s.pipe(s.values([1]), stage)
    with pytest.raises(UsageError, match=r"map\(str\) is in a pipe already"):
        s.pipe(s.values([2]), stage)
    first.release()
    s.pipe(s.values([2]), stage)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: s.take(-1),
        lambda: s.take(1.5),  # type: ignore[arg-type]  # that is the point
        lambda: s.window(),
        lambda: s.batch(0),
        lambda: s.buffer(0),
        lambda: s.limit(0),
        lambda: s.rate_limit(0),
        lambda: s.parallelize(0),
        lambda: s.fork_mirror(s.pipe(s.count()), 0),
        lambda: s.lend(s.pipe(s.count()), ahead=0),
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        wrong()


async def test_a_pipe_of_throughs_is_a_through() -> None:
    doubled: Any = s.pipe(s.map(lambda n: n * 2), s.filter(lambda n: n > 2))
    assert await made(s.values([1, 2, 3]), doubled, s.map(str)) == ["4", "6"]


async def test_fusing_changes_neither_values_nor_errors() -> None:
    def fails(n: int) -> int:
        if n == 8:
            raise Failure("late")
        return n

    for fuse in (False, True):
        stream = s.pipe(
            s.count(), s.map(lambda n: n + 1), s.filter(lambda n: n % 2 == 0), s.map(fails), fuse=fuse
        )
        assert await ends(stream, 5) == ["2", "4", "6", "Failure('late')", "Aborted(Failure('late'))"]
        assert len(stream.statistics().stages) == (2 if fuse else 4)
