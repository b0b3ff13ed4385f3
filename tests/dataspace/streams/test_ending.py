"""However an end comes, and however it is cut short, every stage closes and nothing that was held is lost."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from dataspace import streams as s
from dataspace.errors import Closed, UsageError
from dataspace.kernel.space import Space
from dataspace.streams.stages.base import Base
from relay.log.log import Log
from tests.dataspace.streams.runs import Failure, Naive, Scripted
from tests.dataspace.streams.test_promistream import ends


class Slow(Scripted):
    """A source whose end takes its time, until it is indicated."""

    async def _teardown(self, reason: object) -> None:
        await trio.sleep_forever()


async def cut_short(stream: Any, reason: Any = True) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.abort, reason)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


# -- an abort that is cut short -----------------------------------------------------------------------

BEHIND: dict[str, Callable[[], list[Any]]] = {
    "map": lambda: [s.map(str)],
    "filter": lambda: [s.filter(str)],
    "take": lambda: [s.take(2)],
    "flatten": lambda: [s.flatten()],
    "window": lambda: [s.window(2)],
    "limit": lambda: [s.limit(1)],
    "by shape alone": lambda: [Naive()],
    "collect": lambda: [s.collect()],
}


@pytest.mark.parametrize("name", BEHIND)
async def test_stages_behind_a_slow_one_close_when_the_abort_iscut_short(name: str) -> None:
    source, told = Slow(3, None, False), list[Any]()
    stages = [source, s.through(None, told.append), *BEHIND[name]()]
    error = Failure("why")
    await cut_short(s.pipe(*stages, fuse=False), error)
    assert source.closed == [error]
    assert told == [error]
    assert all(stage._closed for stage in stages if isinstance(stage, Base))


async def test_the_receiver_behind_a_slow_stage_is_not_left_for_ever() -> None:
    send, receive = trio.open_memory_channel[int](1)
    stream = s.pipe(Slow(3, None, False), s.to_channel(send))
    await cut_short(stream)
    with trio.fail_after(60), pytest.raises(trio.EndOfChannel):
        await receive.receive()
    receive.close()


async def test_a_block_whose_abort_takes_too_long_closes_every_stage(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told: list[Any] = []
    async with s.pipe(Slow(3, None, False), s.through(None, told.append), abort_timeout=0.1) as stream:
        await stream.read()
    assert told == [True]


@pytest.mark.parametrize("join", [s.cat, s.converge, s.merge, s.many])
async def test_inputs_behind_a_slow_one_close_when_the_abort_iscut_short(join: Any) -> None:
    sources = [Slow(3, None, False) for _ in range(3)]
    await cut_short(s.pipe(join(*map(s.pipe, sources))))
    assert [source.closed for source in sources] == [[True]] * 3


@pytest.mark.parametrize("join", [s.cat, s.converge, s.merge])
async def test_an_input_that_failed_while_the_reader_went_away_fails_the_next_read(join: Any) -> None:
    error = Failure("input")
    stream = s.pipe(join(s.pipe(s.error(error)), s.pipe(Slow(3, None, False))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.read)
        await trio.testing.wait_all_tasks_blocked()  # it aborts the other input, which is slow
        nursery.cancel_scope.cancel()
    assert await ends(stream, 2) == ["Failure('input')", "Aborted(Failure('input'))"]


async def test_a_stage_by_shape_alone_that_waits_first_is_indicated_when_the_abort_iscut_short() -> None:
    class Waits(Naive):
        async def abort(self, reason: Any, source: Any) -> None:
            await trio.sleep_forever()

    source = Scripted(3, None, False)
    await cut_short(s.pipe(source, Waits(), s.map(str)))
    assert source.closed == [True]


async def test_the_last_fork_that_leaves_ends_a_slow_stream_that_iscut_short() -> None:
    class Waits(Naive):
        async def abort(self, reason: Any, source: Any) -> None:
            await trio.sleep_forever()

    source = Scripted(3, None, False)
    (fork,) = s.fork_mirror(s.pipe(source, Waits()), 1)
    await cut_short(fork)
    assert source.closed == [True]


async def test_a_pair_whose_sink_ends_before_it_is_read_ends_the_other_side() -> None:
    sink, source = s.pair()
    stream = s.pipe(s.values([1]), sink)
    async with trio.open_nursery() as nursery:
        seen: list[str] = []

        async def read() -> None:
            seen.extend(await ends(source, 1))

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            await stream.abort(True)
    assert seen == ["Aborted(True)"]


# -- a reader that goes away below a stage that answers out of order -----------------------------------


class Unordered(Naive):
    """Answers as values come to those who wait last, against the protocol's default (it is documented)."""

    def __init__(self) -> None:
        self.waiting: list[tuple[trio.Event, list[Any]]] = []

    async def read(self, source: Any) -> Any:
        woken, values = trio.Event(), list[Any]()
        self.waiting.append((woken, values))
        await woken.wait()
        if isinstance(values[0], Exception):
            raise values[0]
        return values[0]

    def answer(self, at: int, value: Any) -> None:
        woken, values = self.waiting[at]
        values.append(value)
        woken.set()

    async def peek(self, source: Any) -> bool:
        return False

    async def abort(self, reason: Any, source: Any) -> None:
        for woken, values in self.waiting:
            if not values:
                values.append(s.Aborted(reason))
                woken.set()


ABREAST: dict[str, Callable[[], Any]] = {
    "map": lambda: s.map(lambda n: n),
    "through": lambda: s.through(),
    "limit": lambda: s.limit(5),
}


@pytest.mark.parametrize("name", ABREAST)
async def test_a_reader_below_an_unordered_stage_can_time_out_and_its_value_waits(name: str) -> None:
    unordered = Unordered()
    stream = s.pipe(s.count(), unordered, ABREAST[name]())
    seen: list[Any] = []

    async def read(scope: trio.CancelScope) -> None:
        with scope:
            seen.append(await stream.read())

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, first)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(read, second)
        await trio.testing.wait_all_tasks_blocked()
        unordered.answer(1, "second")
        await trio.testing.wait_all_tasks_blocked()
        second.cancel()  # it has its answer, and waits for the first
        await trio.testing.wait_all_tasks_blocked()
        assert second.cancelled_caught
        unordered.answer(0, "first")
    assert seen == ["first"]
    assert await stream.peek()
    with trio.fail_after(60):
        assert await stream.read() == "second"
    assert len(unordered.waiting) == 2, "upstream was asked while a value was at hand"


@pytest.mark.parametrize("name", ABREAST)
async def test_answers_that_were_left_behind_come_in_the_order_of_their_requests(name: str) -> None:
    unordered = Unordered()
    stream = s.pipe(s.count(), unordered, ABREAST[name]())
    seen: list[str] = []
    scopes = [trio.CancelScope() for _ in range(5)]

    async def read(at: int) -> None:
        with scopes[at]:
            seen.extend(await ends(stream, 1))

    async with trio.open_nursery() as nursery:
        for at in range(5):
            nursery.start_soon(read, at)
            await trio.testing.wait_all_tasks_blocked()
        for at in (3, 1, 2):
            unordered.answer(at, Failure("third") if at == 3 else at)
        await trio.testing.wait_all_tasks_blocked()
        for at in (3, 1):
            scopes[at].cancel()
        await trio.testing.wait_all_tasks_blocked()
        unordered.answer(0, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == ["0", "1"]
        unordered.answer(4, 4)
    assert seen == ["0", "1", "2"]
    assert await ends(stream, 2) == ["Failure('third')", "Aborted(Failure('third'))"]


async def test_an_abort_drops_what_was_left_behind() -> None:
    unordered = Unordered()
    stream = s.pipe(s.count(), unordered, s.map(str))
    scopes = [trio.CancelScope(), trio.CancelScope()]

    async def read(scope: trio.CancelScope) -> None:
        with scope:
            await ends(stream, 1)

    async with trio.open_nursery() as nursery:
        for scope in scopes:
            nursery.start_soon(read, scope)
            await trio.testing.wait_all_tasks_blocked()
        unordered.answer(1, 1)
        await trio.testing.wait_all_tasks_blocked()
        scopes[1].cancel()
        await trio.testing.wait_all_tasks_blocked()
        await stream.abort(True)
    assert not await stream.peek()
    assert await ends(stream, 1) == ["Aborted(True)"]


# -- what is held is closed when abort returns -----------------------------------------------------------


def _numbers(told: list[str]) -> Iterator[int]:
    try:
        yield from range(9)
    finally:
        told.append("closed")


ITERATED: dict[str, Callable[[list[str]], list[Any]]] = {
    "values": lambda told: [s.values(_numbers(told))],
    "from_iterable": lambda told: [s.from_iterable(_numbers(told))],
    "keys": lambda told: [s.keys(_numbers(told))],
    "flatten": lambda told: [s.once(_numbers(told)), s.flatten()],
    "cat": lambda told: [s.cat(s.pipe(s.values(_numbers(told))))],
}


@pytest.mark.parametrize("name", ITERATED)
@pytest.mark.parametrize("nowait", [False, True])
async def test_an_iterator_is_closed_when_abort_returns(name: str, nowait: bool) -> None:
    told: list[str] = []
    stages = ITERATED[name](told)  # which hold the iterator, so that nothing else closes it
    stream = s.pipe(*stages)
    assert await stream.read() == 0
    gc.disable()
    try:
        if nowait:
            stream.abort_nowait(True)
        else:
            await stream.abort(True)
        assert told == ["closed"]
    finally:
        gc.enable()


async def test_an_iterator_is_closed_when_a_later_stage_has_enough_or_fails() -> None:
    sinks: list[list[Any]] = [[s.take(1), s.drain()], [s.find(lambda n: n == 0)], [s.drain(lambda n: False)]]
    for stages in sinks:
        told: list[str] = []
        await s.pipe(s.values(_numbers(told)), *stages).read()
        assert told == ["closed"]


@pytest.mark.parametrize("width", [1, 5])
async def test_an_iterator_that_ends_its_own_stream_is_closed_and_gives_nothing_more(width: int) -> None:
    told: list[str] = []
    stream: s.Pipe[int]

    def numbers() -> Iterator[int]:
        try:
            yield 0
            stream.abort_nowait(True)
            yield 1
            yield 2
        finally:
            told.append("closed")

    stream = s.pipe(s.values(numbers()))
    assert await stream.read() == 0
    with pytest.raises(s.Aborted):
        await stream.read_some(width)
    assert told == ["closed"]
    assert await ends(stream, 1) == ["Aborted(True)"]


async def test_an_asynchronous_generator_is_closed_when_abort_returns() -> None:
    closed = False

    async def numbers() -> AsyncIterator[int]:
        nonlocal closed
        try:
            yield 0
            yield 1
        finally:
            await trio.lowlevel.checkpoint()
            closed = True

    async with s.pipe(s.from_async_iterable(numbers())) as stream:
        assert await stream.read() == 0
        await stream.abort(True)
        assert closed


async def test_a_channel_is_closed_at_every_end() -> None:
    send, receive = trio.open_memory_channel[int](1)
    send.close()
    assert await ends(s.pipe(s.from_channel(receive)), 1) == ["EndOfStream()"]
    with pytest.raises(trio.ClosedResourceError):
        receive.receive_nowait()


async def test_a_file_that_is_being_opened_when_the_stream_ends_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    source = s.file_lines(path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends, source, 1)
        while not source._threads.busy:
            await trio.lowlevel.checkpoint()
        await source.abort(True)
        assert source._file is not None
        assert source._file.closed


async def test_a_file_is_not_closed_under_the_hands_of_a_write(tmp_path: Path) -> None:
    source = s.pushable()
    sink = s.to_file(tmp_path / "lines")
    stream = s.pipe(source, sink)
    source.push("one")
    async with trio.open_nursery() as nursery:
        seen: list[str] = []

        async def read() -> None:
            seen.extend(await ends(stream, 1))

        nursery.start_soon(read)
        while not sink._threads.busy:
            await trio.lowlevel.checkpoint()
        await stream.abort(True)
        assert sink._file is not None
        assert sink._file.closed
    assert seen == ["Aborted(True)"]
    assert (tmp_path / "lines").read_text() == "one\n"


async def test_the_log_is_left_when_the_stream_that_reads_it_ends(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    Space("test")
    source = s.logged(log, "x($)")
    epochs: Any = source._epochs  # type: ignore[attr-defined]  # the source of a log has it
    await source.abort(True)
    assert epochs.gi_frame is None
    log.close()


# -- groups that are open ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "told"),
    [(None, "EndOfStream()"), (s.Aborted(True), "Aborted(True)"), (Failure("late"), "Failure('late')")],
)
async def test_a_window_gives_its_open_group_before_any_end_from_upstream(
    end: Exception | None, told: str
) -> None:
    stream = s.pipe(Scripted(3, end, False), s.window(2))
    assert await ends(stream, 3) == ["(0, 1)", "(2,)", told]


async def test_a_window_gives_its_open_group_before_the_error_of_a_stage() -> None:
    def fails(n: int) -> int:
        if n == 2:
            raise Failure("stage")
        return n

    stream = s.pipe(s.count(), s.map(fails), s.window(5))
    assert await ends(stream, 2) == ["(0, 1)", "Failure('stage')"]


# -- the cause of an error is kept --------------------------------------------------------------------------


async def test_an_error_keeps_its_own_cause_on_its_way_down() -> None:
    def fails(_value: object) -> None:
        raise Failure("stage") from KeyError("cause")

    stream = s.pipe(s.count(), s.map(fails), s.map(str), s.limit(2), s.filter(str), fuse=False)
    with pytest.raises(Failure) as caught:
        await stream.read()
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(s.Aborted) as again:
        await stream.read()
    assert again.value.__cause__ is caught.value


async def test_a_pushable_that_ends_tells_the_senders_that_wait() -> None:
    endings: list[Callable[[Any], None]] = [
        lambda source: source.end(),
        lambda source: source.abort_nowait(True),
    ]
    for end in endings:
        source = s.pushable(1)
        source.push(0)
        refused = 0

        async def send(value: int, source: Any = source) -> None:
            nonlocal refused
            try:
                await source.send(value)
            except Closed:
                refused += 1

        async with trio.open_nursery() as nursery:
            for value in range(3):
                nursery.start_soon(send, value)
            await trio.testing.wait_all_tasks_blocked()
            end(source)
        assert refused == 3


async def test_a_pushable_is_held_to_its_kind_of_end() -> None:
    with pytest.raises(UsageError, match="at least one value, limit 0"):
        s.pushable(0)
