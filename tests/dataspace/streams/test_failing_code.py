"""Whatever the code that a stage calls raises or returns, the stream never looks as if all were well.

The class law: each kind of exception in each callback of each stage.  An error comes as it is; an exception
that would pass for an end comes as an error; one that no stage catches leaves the stream ended, not complete;
a coroutine that nobody awaits is refused.  Afterwards everything is closed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing

from dataspace import streams as s
from dataspace.errors import UsageError
from dataspace.streams.stages.base import Base
from tests.dataspace.streams.runs import Failure, Scripted

Callback = Callable[..., Any]


def _iterator(fn: Callback) -> Iterator[int]:
    yield 0
    fn(1)
    yield 1


async def _asynchronous(fn: Callback) -> AsyncIterator[int]:
    yield 0
    fn(1)
    yield 1


class _Reader:
    """An asynchronous iterator that is no generator: what it raises is not changed by Python."""

    def __init__(self, fn: Callback) -> None:
        self._fn = fn

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> int:
        self._fn(0)
        return 0


class _Steps:
    """The same without ``async``."""

    def __init__(self, fn: Callback) -> None:
        self._fn = fn

    def __iter__(self) -> _Steps:
        return self

    def __next__(self) -> int:
        self._fn(0)
        return 0


class _Sourced(s.Source[int]):
    def __init__(self, fn: Callback) -> None:
        super().__init__("sourced")
        self._fn = fn

    async def _fetch(self) -> None:
        self._fn(0)
        self._held.append(0)


class _Flushed(s.Transform[int, int]):
    def __init__(self, fn: Callback) -> None:
        super().__init__("flushed")
        self._fn = fn

    def _feed(self, value: int) -> None:
        self._held.append(value)

    def _flush(self) -> None:
        self._fn(0)


class _Sunk(s.Sink[int, int]):
    def __init__(self, fn: Callback, where: str) -> None:
        super().__init__("sunk")
        self._fn = fn
        self._where = where

    def _take(self, values: Any) -> None:
        if self._where == "take":
            self._fn(0)

    async def _conclude(self) -> None:
        if self._where == "conclude":
            self._fn(0)

    def _result(self) -> int:
        if self._where == "result":
            self._fn(0)
        return 0


async def _awaited(fn: Callback, value: int) -> int:
    await trio.lowlevel.checkpoint()
    fn(value)
    return value


def _merged(source: Scripted, fn: Callback) -> list[Any]:
    return [s.merge(s.pipe(source), s.pipe(s.values([1, 2])), key=fn)]


SYNCHRONOUS: Final[dict[str, Callable[[Scripted, Callback], list[Any]]]] = {
    "map": lambda source, fn: [source, s.map(fn)],
    "maps that are fused": lambda source, fn: [source, s.map(fn), s.map(lambda n: n)],
    "filter": lambda source, fn: [source, s.filter(fn)],
    "filter_not": lambda source, fn: [source, s.filter_not(fn)],
    "filter after map": lambda source, fn: [source, s.map(lambda n: n), s.filter(fn)],
    "through": lambda source, fn: [source, s.through(fn)],
    "through at the end": lambda source, fn: [source, s.through(None, fn)],
    "unique": lambda source, fn: [source, s.unique(fn)],
    "non_unique": lambda source, fn: [source, s.non_unique(fn)],
    "take": lambda source, fn: [source, s.take(fn)],
    "take the last": lambda source, fn: [source, s.take(fn, last=True)],
    "merge": _merged,
    "infinite": lambda source, fn: [s.infinite(functools.partial(fn, 0))],
    "drain": lambda source, fn: [source, s.drain(fn)],
    "reduce": lambda source, fn: [source, s.reduce(fn, 0)],
    "find": lambda source, fn: [source, s.find(fn)],
    "on_end": lambda source, fn: [source, s.on_end(fn)],
}
"""Stages that are given a function to call, and the function."""

PLAIN: Final[dict[str, Callable[[Scripted, Callback], list[Any]]]] = {
    "a generator": lambda source, fn: [s.values(_iterator(fn))],
    "an iterator": lambda source, fn: [s.from_iterable(_Steps(fn))],
    "keys of an iterator": lambda source, fn: [s.keys(_Steps(fn))],
    "an asynchronous generator": lambda source, fn: [s.from_async_iterable(_asynchronous(fn))],
    "an asynchronous iterator": lambda source, fn: [s.from_async_iterable(_Reader(fn))],
    "async_map": lambda source, fn: [source, s.async_map(functools.partial(_awaited, fn))],
    "async_map ahead": lambda source, fn: [source, s.async_map(functools.partial(_awaited, fn), width=2)],
    "a fetch": lambda source, fn: [_Sourced(fn)],
    "a flush": lambda source, fn: [source, _Flushed(fn)],
    "a sink that takes": lambda source, fn: [source, _Sunk(fn, "take")],
    "a sink that concludes": lambda source, fn: [source, _Sunk(fn, "conclude")],
    "a sink's result": lambda source, fn: [source, _Sunk(fn, "result")],
    "flatten": lambda source, fn: [source, s.map(lambda _: _iterator(fn)), s.flatten()],
    "what a buffer reads": lambda source, fn: [source, s.map(fn), s.buffer(2)],
    "what parallelize reads": lambda source, fn: [source, s.map(fn), s.parallelize(2)],
    "what many read": lambda source, fn: [s.many(s.pipe(source, s.map(fn)), s.pipe(s.count(3)))],
    "what is forked": lambda source, fn: [s.fork_mirror(s.pipe(source, s.map(fn)), 1)[0]],
    "what is deferred": lambda source, fn: [_resolved(s.pipe(source, s.map(fn)))],
}
"""The other places in which code of an application runs."""

EVERY: Final = {**SYNCHRONOUS, **PLAIN}

LEGITIMATE: Final = {
    ("a fetch", s.EndOfStream),  # this is how a source ends
    ("a fetch", s.Aborted),
    ("an iterator", StopIteration),
    ("keys of an iterator", StopIteration),
    ("an asynchronous iterator", StopAsyncIteration),
    ("an asynchronous iterator", s.Aborted),  # it may be a stream
    ("an asynchronous generator", s.Aborted),
}
"""Where an exception is what it says."""


ELSEWHERE: Final = {"to_file", "pushable"}
"""Stages whose functions have tests of their own below."""


def test_every_stage_that_is_given_a_function_is_in_these_tables() -> None:
    """A stage that is added without one would slip through the law."""
    given = {
        name
        for name in s.__all__
        if inspect.isfunction(made := getattr(s, name)) or (inspect.isclass(made) and issubclass(made, Base))
        if any("Callable" in str(each.annotation) for each in inspect.signature(made).parameters.values())
        if name not in ("MapThrough",)  # a base class for stages; map is one
    }
    assert given - ELSEWHERE <= EVERY.keys()
    assert {"map", "take", "async_map"} <= given


def _resolved(stream: Any) -> Any:
    deferred = s.defer()
    deferred.resolve(stream)
    return deferred


def _raises(error: BaseException) -> Callback:
    def fn(*_values: object) -> Any:
        raise error

    return fn


async def _read_to_the_end(stream: Any, width: int = 1) -> list[BaseException]:
    """The exceptions of the reads from the first one on, until the same mark comes twice."""
    met: list[BaseException] = []
    for _ in range(60):
        try:
            await (stream.read_some(3) if width > 1 else stream.read())
        except (Exception, KeyboardInterrupt, GeneratorExit) as error:  # noqa: BLE001  # the test looks at it
            met.append(error)
            if len(met) == 3:
                return met
    return met


async def _run(stages: list[Any], width: int = 1) -> tuple[list[BaseException], BaseException | None]:
    """The exceptions of the reads of a pipe in its block, and that of the block."""
    met: list[BaseException] = []
    try:
        with trio.fail_after(30):
            async with s.pipe(*stages) as stream:
                stages[:] = stream._stages  # after fusion
                met = await _read_to_the_end(stream, width)
    except BaseExceptionGroup as group:
        return met, group
    except (Exception, KeyboardInterrupt, GeneratorExit) as error:  # noqa: BLE001  # as above
        return met, error
    return met, None


def _open_stages(stages: list[Any]) -> list[Any]:
    return [stage for stage in stages if isinstance(stage, Base) and stage._end is None]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", EVERY)
async def test_an_error_comes_as_it_is_and_then_as_a_mark(name: str, width: int) -> None:
    error = Failure(name)
    source = Scripted(3, None, False)
    stages = EVERY[name](source, _raises(error))
    met, _ = await _run(stages, width)
    assert met[0] is error
    assert all(isinstance(mark, s.Aborted) and mark.reason is error for mark in met[1:])
    assert _open_stages(stages) == []
    assert len(source.closed) <= 1


@pytest.mark.parametrize("kind", [s.EndOfStream, s.Aborted, StopIteration, StopAsyncIteration])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", EVERY)
async def test_what_would_pass_for_an_end_comes_as_an_error(
    name: str, width: int, kind: type[Exception]
) -> None:
    if (name, kind) in LEGITIMATE:
        pytest.skip("that is what it means there")
    stages = EVERY[name](Scripted(3, None, False), _raises(kind()))
    met, _ = await _run(stages, width)
    assert isinstance(met[0], UsageError | RuntimeError), "the end of the stream, or none"
    assert isinstance(met[0].__cause__, kind)
    assert all(isinstance(mark, s.Aborted) and mark.reason is met[0] for mark in met[1:])
    assert _open_stages(stages) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", EVERY)
async def test_what_no_stage_catches_leaves_the_stream_aborted_and_closed(
    name: str, width: int, kind: type[BaseException]
) -> None:
    source = Scripted(3, None, False)
    stages = EVERY[name](source, _raises(kind()))
    met, left = await _run(stages, width)
    told = [*met, *([left] if left is not None else [])]
    assert any(_holds(error, kind) for error in told)
    assert not any(isinstance(error, s.EndOfStream) for error in told), "it looks complete"
    assert _open_stages(stages) == []
    assert len(source.closed) == int(source in stages or source._end is not None)


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(inner, kind) for inner in error.exceptions)
    return isinstance(error, kind)


async def test_what_a_task_of_a_stage_is_left_by_comes_out_of_the_block_as_it_is() -> None:
    interrupt = KeyboardInterrupt()
    for stage in (s.async_map(functools.partial(_awaited, _raises(interrupt))), s.buffer(1)):
        told: list[Any] = []
        with pytest.raises(KeyboardInterrupt) as caught:
            async with s.pipe(s.count(), s.through(_raises(interrupt), told.append), stage) as stream:
                await stream.read()
        assert caught.value is interrupt
        assert told == [True]


# -- asynchronous functions ---------------------------------------------------------------------------


async def _async(*_values: object) -> bool:
    raise AssertionError("never run")


async def _async_many(*_values: object) -> AsyncIterator[int]:
    yield 0


class _Called:
    async def __call__(self, *_values: object) -> bool:
        return True


@pytest.mark.parametrize("fn", [_async, functools.partial(_async, 1), _Called(), _async_many])
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_an_asynchronous_function_is_refused_where_the_stage_is_made(name: str, fn: Any) -> None:
    if name == "infinite":
        with pytest.raises(UsageError, match="does not await it"):
            s.infinite(fn)
        return
    with pytest.raises(UsageError, match="does not await it"):
        SYNCHRONOUS[name](Scripted(3, None, False), fn)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", SYNCHRONOUS)
async def test_a_coroutine_that_comes_back_fails_the_stream(name: str, width: int) -> None:
    stages = SYNCHRONOUS[name](Scripted(3, None, False), lambda *values: _async(*values))
    met, _ = await _run(stages, width)
    assert isinstance(met[0], UsageError)
    assert "returns a coroutine" in str(met[0])
    assert _open_stages(stages) == []


async def test_every_coroutine_of_a_portion_is_refused_and_what_came_before_is_given() -> None:
    stream = s.pipe(s.values(range(5)), s.map(lambda n: _async() if n > 1 else n))
    assert await stream.read() == 0
    assert await stream.read_some(4) == [1]
    with pytest.raises(UsageError, match="returns a coroutine"):
        await stream.read()


def test_other_functions_that_are_called_are_looked_at_as_well(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"to_file.*does not await it"):
        s.to_file(tmp_path / "x", encode=_async)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pushable calls its function and does not await it"):
        s.pushable(on_end=_async)
    with pytest.raises(UsageError, match=r"through.*does not await it"):
        s.through(None, _async)
    with pytest.raises(UsageError, match="map needs a function, got 'name'"):
        s.map("name")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="async_map needs a function, got 3"):
        s.async_map(3)  # type: ignore[arg-type]


async def test_async_map_of_a_function_that_is_not_asynchronous_says_so() -> None:
    stages = [s.values([1]), s.async_map(lambda n: n)]
    met, _ = await _run(stages)
    assert "awaits what its function returns, and that was 1; use map" in str(met[0])


# -- ends that are given as reasons -------------------------------------------------------------------


async def test_a_mark_is_no_error_to_end_with() -> None:
    with pytest.raises(UsageError, match="needs an error"):
        s.error(s.EndOfStream())
    with pytest.raises(UsageError, match="ends with None or an error"):
        s.pushable().end(s.EndOfStream())


async def test_a_sink_that_is_aborted_with_a_mark_does_not_look_complete() -> None:
    stream = s.pipe(s.pushable(), s.collect())
    await stream.abort(s.EndOfStream())
    with pytest.raises(s.Aborted):
        await stream.read()


# -- teardown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Failure("teardown"), s.EndOfStream(), KeyboardInterrupt()])
@pytest.mark.parametrize("nowait", [False, True])
async def test_a_teardown_that_raises_keeps_no_other_stage_open(error: BaseException, nowait: bool) -> None:
    source, told = Scripted(3, None, False), list[Any]()
    stages: list[Any] = [
        source,
        s.through(None, told.append),
        s.through(None, _raises(error)),
        s.through(None, told.append),
    ]
    stream = s.pipe(*stages)
    with pytest.raises((Failure, UsageError, KeyboardInterrupt)):
        if nowait:
            stream.abort_nowait(True)
        else:
            await stream.abort(True)
    assert source.closed == [True]
    assert told == [True, True]


@pytest.mark.parametrize("nowait", [False, True])
async def test_an_input_whose_teardown_raises_keeps_no_other_input_open(nowait: bool) -> None:
    sources = [Scripted(3, None, False) for _ in range(3)]
    inputs = [s.pipe(source, s.through(None, _raises(Failure("teardown")))) for source in sources]
    stream = s.pipe(s.cat(*inputs))
    with pytest.raises((Failure, ExceptionGroup)):
        if nowait:
            stream.abort_nowait(True)
        else:
            await stream.abort(True)
    assert [source.closed for source in sources] == [[True]] * 3


async def test_an_asynchronous_iterator_that_cannot_close_fails_the_abort_and_not_the_block() -> None:
    async def items() -> AsyncIterator[int]:
        try:
            yield 0
            yield 1
        finally:
            raise Failure("closing")

    async with s.pipe(s.from_async_iterable(items())) as stream:
        assert await stream.read() == 0
        with pytest.raises(Failure, match="closing"):
            await stream.abort(True)


async def test_a_merge_whose_key_fails_ends_every_input() -> None:
    sources = [Scripted(3, None, False), Scripted(3, None, False)]
    stream = s.pipe(s.merge(*map(s.pipe, sources), key=_raises(Failure("key"))))
    with pytest.raises(Failure, match="key"):
        await stream.read()
    assert [len(source.closed) for source in sources] == [1, 1]
