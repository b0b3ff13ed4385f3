"""The Promistream draft, every MUST and SHOULD in its order; where we depart, the test says so."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from dataspace import streams as s
from dataspace.errors import UsageError
from dataspace.streams.pipes.pipes import NOTHING, BoundStage
from tests.dataspace.streams.runs import Failure, Naive, Scripted


async def ends(stream: Any, count: int = 2) -> list[str]:
    """How so many reads end."""
    seen = []
    for _ in range(count):
        try:
            seen.append(repr(await stream.read()))
        except Exception as error:  # noqa: BLE001  # whatever it is, the test looks at it
            seen.append(repr(error))
    return seen


# -- stream API ---------------------------------------------------------------------------------------


async def test_whether_something_is_a_stream_is_told_by_its_shape_alone() -> None:
    assert await s.pipe(s.values([1, 2]), Naive(), s.collect()).read() == [1, 2]


@pytest.mark.parametrize(
    "member", ["promistream_version", "description", "read", "peek", "abort", "abort_nowait"]
)
def test_what_lacks_a_member_is_no_stream(member: str) -> None:
    shape = {name: getattr(Naive, name) for name in ("description", "read", "peek", "abort", "abort_nowait")}
    shape["promistream_version"] = 0
    del shape[member]
    with pytest.raises(UsageError, match=f"stage 1 is no stream, it has no {member}"):
        s.pipe(s.values([1]), type("Odd", (), shape)(), s.collect())


def test_the_version_is_0() -> None:
    class Later(Naive):
        promistream_version = 1

    assert s.values([]).promistream_version == 0
    with pytest.raises(UsageError, match=r"stage 1 \(naive\) is of version 1, there is 0"):
        s.pipe(s.values([1]), Later())


def test_the_description_is_a_few_words() -> None:
    made = s.pipe(s.values([1]), s.map(str), s.take(3), s.collect())
    assert made.description == "values → map(str) → take(3) → collect"


# -- read ---------------------------------------------------------------------------------------------


async def test_a_read_may_be_made_while_another_is_in_flight() -> None:
    source = s.pushable()
    stream = s.pipe(source, s.map(lambda n: n * 2))
    seen: list[int] = []

    async def reader() -> None:
        seen.append(await stream.read())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        for n in range(5):
            source.push(n)
    assert seen == [0, 2, 4, 6, 8]


async def test_a_read_always_settles_with_a_value_an_error_or_a_mark_and_filters_go_on_reading() -> None:
    stream = s.pipe(s.count(9), s.filter(lambda n: n == 7))
    assert await ends(stream, 3) == ["7", "EndOfStream()", "EndOfStream()"]


async def test_resources_are_given_back_at_the_first_mark_only() -> None:
    told: list[Any] = []
    stream = s.pipe(s.values([1]), s.through(None, told.append))
    assert await ends(stream, 4) == ["1", "EndOfStream()", "EndOfStream()", "EndOfStream()"]
    assert told == [None]


async def test_errors_that_are_no_marks_are_passed_downstream_as_they_are() -> None:
    error = Failure("source")
    stream = s.pipe(s.error(error), s.map(str), s.filter(str), s.flatten())
    with pytest.raises(Failure) as caught:
        await stream.read()
    assert caught.value is error


# -- ends ---------------------------------------------------------------------------------------------


async def test_the_three_ends_of_a_stream() -> None:
    assert await ends(s.pipe(s.empty())) == ["EndOfStream()", "EndOfStream()"]
    stopped = s.pipe(s.count())
    await stopped.abort(True)
    assert await ends(stopped) == ["Aborted(True)", "Aborted(True)"]
    failed = s.pipe(s.count())
    await failed.abort(Failure("outside"))
    assert await ends(failed) == ["Aborted(Failure('outside'))", "Aborted(Failure('outside'))"]


async def test_marks_are_new_each_time_so_that_tracebacks_do_not_grow() -> None:
    stream = s.pipe(s.error(Failure("once")))
    with pytest.raises(Failure):
        await stream.read()
    marks = []
    for _ in range(3):
        with pytest.raises(s.Aborted) as caught:
            await stream.read()
        marks.append(caught.value)
    assert len({id(mark) for mark in marks}) == 3
    assert all(isinstance(mark.__cause__, Failure) for mark in marks)


# -- order --------------------------------------------------------------------------------------------


async def test_values_marks_and_errors_come_in_the_order_of_the_reads() -> None:
    def fails(n: int) -> int:
        if n == 2:
            raise Failure("at 2")
        return n

    source = s.pushable()
    stream = s.pipe(source, s.map(lambda n: n), s.map(fails), fuse=False)
    seen: list[str] = []

    async def reader() -> None:
        seen.extend(await ends(stream, 1))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        for n in range(3):
            source.push(n)
    assert seen == ["0", "1", "Failure('at 2')", *["Aborted(Failure('at 2'))"] * 2]


async def test_what_cannot_be_read_twice_at_once_is_queued_for() -> None:
    inside = 0

    class Single(Naive):
        async def read(self, source: Any) -> Any:
            nonlocal inside
            inside += 1
            assert inside == 1
            value = await source.read()
            await trio.lowlevel.checkpoint()
            inside -= 1
            return value

    stream = s.pipe(s.count(9), Single(), s.sequentialize())
    seen: list[int] = []

    async def reader() -> None:
        seen.append(await stream.read())

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(reader)
    assert sorted(seen) == list(range(10))


# -- sources ------------------------------------------------------------------------------------------


async def test_a_source_is_read_without_a_source() -> None:
    assert await s.values([7]).read() == 7


async def test_an_aborted_source_answers_with_marks() -> None:
    source = s.values([1, 2])
    assert await source.read() == 1
    await source.abort(True)
    assert await ends(source) == ["Aborted(True)", "Aborted(True)"]


# -- sinks --------------------------------------------------------------------------------------------


async def test_a_sink_must_abort_upstream_with_an_error_that_it_meets() -> None:
    class Failing(Naive):
        async def read(self, source: Any) -> Any:
            raise Failure("by shape alone")

    source = Scripted(3, None, False)
    with pytest.raises(Failure):
        await s.pipe(source, Failing(), s.collect()).read()
    assert [repr(reason) for reason in source.closed] == ["Failure('by shape alone')"]


async def test_a_sink_must_raise_the_error_of_an_abort_once_and_the_mark_from_then_on() -> None:
    stream = s.pipe(s.pushable(), s.collect())

    async def abort() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await stream.abort(Failure("outside"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort)
        seen = await ends(stream, 3)
    assert seen == ["Failure('outside')", *["Aborted(Failure('outside'))"] * 2]

    unread = s.pipe(s.values([1]), s.collect())
    await unread.abort(Failure("before the first read"))
    assert (await ends(unread, 2))[0] == "Failure('before the first read')"

    source = s.pushable()
    await source.abort(Failure("upstream"))
    assert await ends(s.pipe(source, s.collect()), 3) == [
        "Failure('upstream')",
        "Aborted(Failure('upstream'))",
        "Aborted(Failure('upstream'))",
    ]


async def test_a_sink_should_pass_on_an_abort_that_was_wanted() -> None:
    source = s.pushable()
    source.abort_nowait(True)
    assert await ends(s.pipe(source, s.collect())) == ["Aborted(True)", "Aborted(True)"]


async def test_the_first_read_of_a_sink_must_give_a_value_or_an_error_and_later_ones_may_give_the_end() -> (
    None
):
    assert await ends(s.pipe(s.empty(), s.drain())) == ["0", "EndOfStream()"]
    assert await ends(s.pipe(s.empty(), s.collect())) == ["[]", "EndOfStream()"]
    assert (await ends(s.pipe(s.empty(), s.reduce(max)), 1))[0].startswith("ValueError")


# -- buffers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "told"),
    [(None, "EndOfStream()"), (s.Aborted(True), "Aborted(True)"), (Failure("late"), "Failure('late')")],
)
async def test_what_is_buffered_comes_before_a_mark_from_upstream(end: Exception | None, told: str) -> None:
    async with s.pipe(Scripted(2, end, True), s.buffer(5)) as stream:
        assert await ends(stream, 3) == ["0", "1", told]
    stream = s.pipe(Scripted(2, end, False), s.map(lambda n: [n, n]), s.flatten())
    assert await ends(stream, 5) == ["0", "0", "1", "1", told]


async def test_an_abort_from_downstream_drops_what_is_buffered() -> None:
    """The draft lets a stage choose; the pull-stream laws want no value after an abort."""
    stream = s.pipe(s.values([[1, 2, 3]]), s.flatten())
    assert await stream.read() == 1
    await stream.abort(True)
    assert await ends(stream, 1) == ["Aborted(True)"]


async def test_a_buffer_that_drains_drops_the_rest_when_it_is_aborted() -> None:
    source = s.pushable()
    source.push([1, 2, 3])
    source.end()
    async with s.pipe(source, s.flatten(), s.buffer(8)) as stream:
        assert await stream.read() == 1
        await trio.testing.wait_all_tasks_blocked()  # the buffer has met the end
        await stream.abort(True)
        assert await ends(stream, 1) == ["EndOfStream()"]


# -- peek ---------------------------------------------------------------------------------------------


async def test_each_true_of_peek_must_reserve_an_item() -> None:
    stream = s.pipe(s.values([1, 2]), s.map(str))
    assert [await stream.peek() for _ in range(4)] == [True, True, False, False]
    assert await ends(stream, 3) == ["'1'", "'2'", "EndOfStream()"]


async def test_a_read_takes_a_reservation_up() -> None:
    stream = s.pipe(s.count())
    assert await stream.peek()
    assert await stream.read() == 0
    assert await stream.peek()
    assert await stream.read() == 1


async def test_peek_must_not_start_work_on_a_value() -> None:
    worked: list[int] = []
    stream = s.pipe(s.values([1, 2]), s.map(worked.append))
    assert await stream.peek()
    assert await stream.peek()
    assert worked == []


async def test_peek_waits_for_a_live_source_and_is_false_at_its_end() -> None:
    source = s.pushable()
    stream = s.pipe(source, s.map(str))
    answers: list[bool] = []

    async def peek() -> None:
        answers.append(await stream.peek())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peek)
        nursery.start_soon(peek)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        source.push(1)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [True]
        source.end()
    assert answers == [True, False]
    assert await ends(stream, 2) == ["'1'", "EndOfStream()"]


async def test_peek_never_raises_and_the_error_comes_with_the_read() -> None:
    stream = s.pipe(Scripted(0, Failure("source"), True), s.map(str))
    assert not await stream.peek()
    assert await ends(stream, 2) == ["Failure('source')", "Aborted(Failure('source'))"]
    await stream.abort(True)
    assert not await stream.peek()


async def test_a_reservation_is_given_back_by_a_reader_who_goes_away() -> None:
    source = s.pushable()
    stream: s.Pipe[int] = s.pipe(source, s.filter(lambda n: True))
    source.push(1)
    assert await stream.peek()
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()
        await stream.read()
    assert await stream.read() == 1
    source.push(2)
    with trio.fail_after(60):
        assert await stream.peek()


async def test_take_promises_no_more_than_it_will_give() -> None:
    stream = s.pipe(s.count(), s.take(2))
    assert [await stream.peek() for _ in range(4)] == [True, True, False, False]


async def test_parallelize_has_no_more_reads_in_flight_than_there_are_items() -> None:
    source = s.pushable()
    in_flight = most = 0

    class Slow(Naive):
        async def read(self, source: Any) -> Any:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            try:
                value = await source.read()
                await trio.testing.wait_all_tasks_blocked()
                return value
            finally:
                in_flight -= 1

    for n in range(4):
        source.push(n)
    async with s.pipe(source, Slow(), s.parallelize()) as stream:
        assert [await stream.read() for _ in range(4)] == [0, 1, 2, 3]
        await trio.testing.wait_all_tasks_blocked()
        assert in_flight == 0, "a read was begun that no item was there for"
        source.end()
        assert await ends(stream, 1) == ["EndOfStream()"]
    assert most > 1


# -- abort --------------------------------------------------------------------------------------------


async def test_an_abort_reaches_the_source_with_its_reason() -> None:
    source = Scripted(3, None, False)
    error = Failure("why")
    await s.pipe(source, s.map(str), Naive(), s.filter(str)).abort(error)
    assert source.closed == [error]


@pytest.mark.parametrize("reason", [False, None, "because", Failure])
async def test_a_reason_is_true_or_an_exception(reason: Any) -> None:
    stream = s.pipe(s.values([1]))
    with pytest.raises(UsageError, match="True or an exception"):
        await stream.abort(reason)
    with pytest.raises(UsageError, match="True or an exception"):
        stream.abort_nowait(reason)
    assert await stream.read() == 1


async def test_aborting_twice_is_answered_and_the_first_reason_stays() -> None:
    source = Scripted(3, None, False)
    stream = s.pipe(source, s.map(str))
    await stream.abort(Failure("first"))
    await stream.abort(Failure("second"))
    assert await ends(stream, 1) == ["Aborted(Failure('first'))"]
    assert len(source.closed) == 1


async def test_a_failing_stage_fails_upstream_before_it_answers_and_the_sinks_abort_is_absorbed() -> None:
    events: list[str] = []

    class Noted(Scripted):
        def _close(self, reason: object) -> None:
            events.append(f"source closed for {reason!r}")

    def fails(value: int) -> int:
        raise Failure("stage")

    checked = s.check(Noted(3, None, False), calm=True)
    with pytest.raises(Failure):
        await s.pipe(checked, s.map(fails), s.map(str), s.collect(), fuse=False).read()
    assert events == ["source closed for Failure('stage')"]


async def test_what_a_teardown_raises_comes_from_the_abort_and_the_others_are_torn_down() -> None:
    class Bad(Scripted):
        def _close(self, reason: object) -> None:
            raise OSError("disk")

    told: list[Any] = []
    stream = s.pipe(Bad(3, None, False), s.map(str), s.through(None, told.append))
    with pytest.raises(OSError, match="disk"):
        await stream.abort(True)
    assert told == [True]
    assert await ends(stream, 1) == ["Aborted(True)"]


async def test_a_link_is_all_that_a_stage_needs_to_be_read() -> None:
    """A pipe is a convenience: stages can be read with any source of the right shape."""
    link: BoundStage[int] = BoundStage(s.values([1, 2]), NOTHING)
    assert await s.map(str).read(link) == "1"
