"""``each`` calls a function with what ``async for`` gives: over cuts, ends, errors and windows."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from dataspace.client import epoch_streams
from dataspace.client.blocking.space import BlockingObservation, BlockingTypedObservation
from dataspace.client.observations import Observation
from dataspace.client.session import uplink
from dataspace.client.typed import TypedEpochs, TypedObservation
from dataspace.errors import Closed, ProtocolError, Refused, UsageError
from dataspace.kernel.actions import MORE, SNAPSHOT
from dataspace.kernel.changes import Change, EpochChanges
from dataspace.streams.stages.protocol import Aborted, EndOfStream
from dataspace.wire import packets as p
from index.values.values import Record, Value
from tests.dataspace.client.pipes import Daemon
from tests.dataspace.client.test_observations import connected, value

Reader = Callable[[Observation, Callable[[Any], object]], Awaitable[None]]

SCRIPT: Final = (
    (value(1, "a", "b", flags=SNAPSHOT | MORE), value(1, "c", flags=SNAPSHOT)),
    (value(2),),
    (value(3, "d", removed=("a",)),),
    (Record("lost", 7, 4, 5),),
    (value(6, "e"),),
    (value(7, removed=("e",)),),
)
"""Epochs as the daemon sends them, each in one or more parts; one of them has no rows, one is a mark."""

DIRECT, BY_TASK = 1000.0, -1.0
"""Lengths of a visit: all is passed where it is decoded, or all by the task of ``each``."""


# -- the two sides ---------------------------------------------------------------------------------


async def by_each(seen: Observation, function: Callable[[Any], object]) -> None:
    await seen.each(function)


async def by_iteration(seen: Observation, function: Callable[[Any], object]) -> None:
    async for change in seen:
        function(change)


async def epochs_by_each(seen: Observation, function: Callable[[Any], object]) -> None:
    await seen.epochs().each(function)


async def epochs_by_iteration(seen: Observation, function: Callable[[Any], object]) -> None:
    async for epoch in seen.epochs():
        function(epoch)


class Case(NamedTuple):
    """What happens to an observation: cuts after so many values, and the end that the daemon makes."""

    script: Sequence[tuple[Value, ...]] = SCRIPT
    end: str = "done"
    cuts: tuple[int, ...] = ()
    window: int | None = None
    raises_at: int | None = None
    """The number of the call in which the function raises an error."""
    closes_at: int | None = None
    """The number of the call in which the function closes the observation."""


async def play(daemon: Daemon, case: Case) -> None:
    """Sends what was asked for and no more; after a cut it goes on behind the last epoch that came."""
    cuts = list(case.cuts)
    sent = 0
    while True:
        opened = await daemon.hear(p.Open)
        after = opened.spec.get("after", 0)
        left = [part for epoch in case.script if _number(epoch[-1]) > after for part in epoch]  # type: ignore[operator]  # a number
        asked, first = opened.items, 0
        while left and not (cuts and sent >= cuts[0]):
            while first >= asked:
                packet = await daemon.hear(p.Ask)
                asked = packet.items
            daemon.say(p.Values(opened.stream, first, (left.pop(0),), len(left)))
            first, sent = first + 1, sent + 1
        await trio.testing.wait_all_tasks_blocked()
        if not (cuts and sent >= cuts[0]):
            break
        cuts.pop(0)
        daemon.cut()
        await daemon.greet(epoch=9)
    if case.end == "done":
        daemon.say(p.Done(opened.stream))
    elif case.end == "refused":
        daemon.say(p.Error(opened.stream, "slow-observer", "too slow"))
    elif case.end == "dismissed":
        daemon.say(p.Bye("malformed", "no more"))
        daemon.end.close()


def _number(part: Value) -> int:
    number = part.fields[2] if isinstance(part, Record) else part[0]  # type: ignore[index]  # an epoch
    assert isinstance(number, int)
    return number


class Failure(Exception):
    """Raised by the function of a test."""


async def trace(case: Case, read: Reader) -> list[str]:
    """Returns what the function was called with, and how reading ended."""
    daemon, came = Daemon(), list[str]()
    ended: list[str] = []
    try:
        async with connected(daemon) as space:
            seen = space.observe("n($n)", window=case.window)

            def function(item: Change | EpochChanges) -> None:
                came.append(_shown(item))
                if len(came) == case.raises_at:
                    raise Failure(str(item))
                if len(came) == case.closes_at:
                    seen.close()

            seen.open()
            async with trio.open_nursery() as nursery:

                async def player() -> None:
                    try:
                        await play(daemon, case)
                    except AssertionError:  # the client has ended the stream: no further credit
                        assert ended or case.raises_at or case.closes_at

                nursery.start_soon(player)
                with trio.fail_after(60):
                    try:
                        await read(seen, function)
                        ended.append("over")
                    except (Failure, Refused, Closed, Aborted, ProtocolError) as error:
                        ended.append(repr(error))
                nursery.cancel_scope.cancel()
    except* ProtocolError:  # of the connection, which the daemon has ended
        pass
    return [*came, *ended]


def _shown(item: Change | EpochChanges) -> str:
    if isinstance(item, Change):
        return f"{item!r} {item.snapshot}"
    return f"{item!r} {[*item]} {item.first} {item.snapshot}"


async def check_same(case: Case) -> None:
    """``each`` sees exactly the events of ``async for``, passed in either of its ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uplink, "_PAUSES", (0.0,))
        for each, iteration in ((by_each, by_iteration), (epochs_by_each, epochs_by_iteration)):
            expected = await trace(case, iteration)
            for visit in (DIRECT, BY_TASK):
                patch.setattr(epoch_streams, "VISIT", visit)
                assert await trace(case, each) == expected, (case, each, visit)


# -- the grid and the law --------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 0, 1, 3])
@pytest.mark.parametrize("cuts", [(), (1,), (2,), (5,), (1, 5)])
@pytest.mark.parametrize("end", ["done", "refused", "dismissed"])
async def test_each_sees_what_iteration_sees(end: str, cuts: tuple[int, ...], window: int | None) -> None:
    for at, closes in itertools.chain(
        itertools.product((None, 1, 2, 3, 5, 8), (False,)), itertools.product((1, 2, 4), (True,))
    ):
        await check_same(
            Case(
                end=end,
                cuts=cuts,
                window=window,
                raises_at=None if closes else at,
                closes_at=at if closes else None,
            )
        )


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[Value, ...]]:
    """Some epochs, each of some parts."""
    script: list[tuple[Value, ...]] = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        flags = SNAPSHOT if number == 1 else 0
        if number > 1 and draw(st.integers(0, 5)) == 0:
            script.append((Record("lost", draw(st.integers(1, 9)), number, number),))
            continue
        parts = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
        script.append(
            tuple(
                value(
                    number,
                    *[f"{number}.{part}.{row}" for row in range(rows)],
                    flags=flags | (MORE if part < len(parts) - 1 else 0),
                )
                for part, rows in enumerate(parts)
            )
        )
    return script


@given(
    script=scripts(),
    end=st.sampled_from(["done", "refused", "dismissed"]),
    cuts=st.lists(st.integers(1, 9), max_size=2, unique=True).map(sorted),
    window=st.sampled_from([None, 0, 1, 2, 5]),
    raises_at=st.none() | st.integers(1, 12),
)
def test_so_it_does_with_any_epochs(
    script: list[tuple[Value, ...]], end: str, cuts: list[int], window: int | None, raises_at: int | None
) -> None:
    trio.run(check_same, Case(script, end, tuple(cuts), window, raises_at))


# -- one at a time ---------------------------------------------------------------------------------


@pytest.fixture(params=[DIRECT, BY_TASK], ids=["direct", "by_task"])
def visit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a visit may be."""
    monkeypatch.setattr(epoch_streams, "VISIT", request.param)
    return float(request.param)


async def test_credit_follows_the_return_of_the_function(visit: float) -> None:
    """While it runs, nothing more was asked for than the window beyond the epochs before."""
    daemon, asked = Daemon(), list[tuple[int, int]]()
    async with connected(daemon) as space:
        seen, calls = space.observe("n($n)", window=4), list[int]()
        total = 4

        def function(epoch: EpochChanges) -> None:
            nonlocal total
            while not daemon.heard_nothing():
                packet = daemon._heard.pop(0)
                assert isinstance(packet, p.Ask)
                total = packet.items
            assert total <= len(calls) + 4
            calls.append(epoch.number)
            asked.append((epoch.number, total))

        seen.open()
        opened = await daemon.hear(p.Open)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seen.epochs().each, function)
            for first in range(0, 12, 2):
                daemon.say(p.Values(opened.stream, first, (value(first + 1), value(first + 2)), 0))
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert calls == [*range(1, 13)]
        assert asked[-1][1] > 10, "more was asked for"


async def test_the_function_runs_where_epochs_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon()
    monkeypatch.setattr(epoch_streams, "VISIT", DIRECT)  # a slow machine would have the rest in a task
    async with connected(daemon) as space, trio.open_nursery() as nursery:
        seen, tasks = space.observe("n($n)"), set[object]()
        seen.open()
        opened = await daemon.hear(p.Open)
        nursery.start_soon(seen.each, lambda _change: tasks.add(trio.lowlevel.current_task().name))
        await trio.testing.wait_all_tasks_blocked()
        daemon.say(p.Values(opened.stream, 0, (value(1, "a", flags=SNAPSHOT), value(2, "b")), 0))
        await trio.testing.wait_all_tasks_blocked()
        assert tasks and not any("each" in str(name) for name in tasks)
        nursery.cancel_scope.cancel()


async def test_a_long_visit_lets_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is slow for each change of a large epoch cannot hold up the heartbeat."""
    daemon = Daemon()
    monkeypatch.setattr(epoch_streams, "VISIT", BY_TASK)
    async with connected(daemon) as space, trio.open_nursery() as nursery:
        seen, came, ticks = space.observe("n($n)"), list[int](), list[int]()

        async def tick() -> None:
            while True:
                await trio.lowlevel.checkpoint()
                ticks.append(len(came))

        seen.open()
        opened = await daemon.hear(p.Open)
        nursery.start_soon(seen.each, lambda change: came.append(change.n))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(tick)
        daemon.say(p.Values(opened.stream, 0, (value(1, *range(50), flags=SNAPSHOT),), 0))
        while len(came) < 50:
            await trio.lowlevel.checkpoint()
        assert came == [*range(50)]
        assert len({at for at in ticks if 0 < at < 50}) > 20
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
async def test_a_cancelled_each_leaves_the_rest_to_the_next_reader(calls: int, visit: float) -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen, came = space.observe("n($n)", window=8), list[Value]()
        seen.open()
        opened = await daemon.hear(p.Open)
        with trio.CancelScope() as scope:

            def function(change: Change) -> None:
                came.append(change.n)
                if len(came) == calls:
                    scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(seen.each, function)
                await trio.testing.wait_all_tasks_blocked()
                daemon.say(p.Values(opened.stream, 0, (value(1, "a", "b", "c", flags=SNAPSHOT),), 0))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        daemon.say(p.Values(opened.stream, 1, (value(2, "d"),), 0))
        daemon.say(p.Done(opened.stream))
        async for change in seen:
            came.append(change.n)
        assert came == ["a", "b", "c", "d"]


async def test_what_was_read_before_is_not_passed_again(visit: float) -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen, came = space.observe("n($n)"), list[Value]()
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(1, "a", "b", flags=SNAPSHOT), value(2, "c")), 0))
        assert (await anext(seen)).n == "a"
        daemon.say(p.Done(opened.stream))
        await seen.each(lambda change: came.append(change.n))
        assert came == ["b", "c"]
        await seen.each(lambda change: came.append(change.n))
        with pytest.raises(EndOfStream):
            await seen.read()


async def test_a_second_reader_waits_for_its_turn(visit: float) -> None:
    """As each of two readers does: it is answered after the first, and so gets the end."""
    daemon = Daemon()
    async with connected(daemon) as space:
        seen, came, late = space.observe("n($n)"), list[Value](), list[object]()
        seen.open()
        opened = await daemon.hear(p.Open)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seen.each, lambda change: came.append(change.n))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(by_iteration, seen, late.append)
            nursery.start_soon(epochs_by_iteration, seen, late.append)
            nursery.start_soon(seen.each, late.append)
            await trio.testing.wait_all_tasks_blocked()
            daemon.say(p.Values(opened.stream, 0, (value(1, "a", flags=SNAPSHOT), value(2, "b")), 0))
            daemon.say(p.Done(opened.stream))
        assert came == ["a", "b"] and not late


@pytest.mark.parametrize(
    "error", [Failure("no"), KeyboardInterrupt("no"), StopIteration("no"), EndOfStream()]
)
async def test_an_exception_of_the_function_ends_the_observation(error: BaseException, visit: float) -> None:
    """It is raised by ``each`` alone; what would pass for an end is an error."""
    daemon = Daemon()

    def function(_change: Change) -> None:
        raise error

    async with connected(daemon) as space:
        seen = space.observe("n($n)")
        seen.open()
        opened = await daemon.hear(p.Open)
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                passes = isinstance(error, Failure | KeyboardInterrupt)
                with pytest.raises(type(error) if passes else UsageError, match=r"no|EndOfStream"):
                    await seen.each(function)
                with pytest.raises(Aborted):
                    await seen.read()
                with pytest.raises(Aborted):
                    await seen.each(function)

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            daemon.say(p.Values(opened.stream, 0, (value(1, "a", flags=SNAPSHOT), value(2, "b")), 0))
            assert (await daemon.hear(p.Abort)).stream == opened.stream
        assert space.reconnects == 0, "the connection goes on"


async def test_an_observation_closed_elsewhere_ends_each(visit: float) -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen, came = space.observe("n($n)"), list[Value]()
        seen.open()
        opened = await daemon.hear(p.Open)
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                with pytest.raises(Aborted):
                    await seen.each(lambda change: came.append(change.n))

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(seen.aclose)
            assert (await daemon.hear(p.Abort)).answer
            daemon.say(p.Values(opened.stream, 0, (value(1, "a", flags=SNAPSHOT),), 0))
            daemon.say(p.Done(opened.stream))
        assert not came


class Awaited:
    """Called like a function, and awaited."""

    async def __call__(self, _item: object) -> None:
        """Does nothing."""


async def asynchronous(_item: object) -> None:
    """Does nothing."""


@pytest.mark.parametrize("wrong", [asynchronous, Awaited(), 5])
async def test_an_asynchronous_function_is_refused(wrong: Any) -> None:
    """The observation is as it was."""
    daemon = Daemon()
    async with connected(daemon) as space:
        for row in (None, Row):
            seen: Any = space.observe("n($n)") if row is None else space.observe("n($n)", row=row)
            for each in (seen.each, seen.epochs().each):
                with pytest.raises(UsageError, match=r"each (calls its|needs a) function"):
                    await each(wrong)
        assert daemon.heard_nothing()


async def test_a_coroutine_that_a_function_returns_is_refused() -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)")
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(1, "a", flags=SNAPSHOT),), 0))
        with pytest.raises(UsageError, match=r"returns a coroutine.*use async for instead"):
            await seen.each(lambda change: asynchronous(change))


class Row(NamedTuple):
    """A row of the tests."""

    n: str


async def test_rows_of_a_class_are_passed(visit: float) -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        came: list[Row] = []

        async def read(seen: TypedObservation[Row], epochs: bool) -> None:
            if epochs:
                await seen.epochs().each(lambda epoch: came.extend(epoch.added))
            else:
                await seen.each(lambda change: came.append(change.row))

        for count, epochs in enumerate((False, True), 1):
            seen = space.observe("n($n)", row=Row)
            seen.open()
            opened = await daemon.hear(p.Open)
            daemon.say(p.Values(opened.stream, 0, (value(1, "a", flags=SNAPSHOT), value(2, 5)), 0))
            with pytest.raises(UsageError, match="'n' is 5"):
                await read(seen, epochs)
            assert came == [Row("a")] * count
            assert (await daemon.hear(p.Abort)).stream == opened.stream


def test_every_form_of_an_observation_has_it() -> None:
    for form in (Observation, TypedObservation, TypedEpochs, BlockingObservation, BlockingTypedObservation):
        assert callable(form.each), form
