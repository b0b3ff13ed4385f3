"""Streams over the wire keep the protocol of streams: the checker watches those of a daemon and a client.

Whatever a source in this process must do, an observation of a daemon does: through the same checker, in pipes
with the same stages, with reads that overlap, withdrawn, aborted and failed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from operator import add
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

import dataspace
from dataspace import Broken, Record, Refused, RemoteSpace, streams as s
from dataspace.kernel.actions import SEND
from dataspace.kernel.changes import EpochChanges
from dataspace.kernel.space import Space
from dataspace.streams.pipes.pipes import NOTHING, BoundStage
from server.config.model import Config
from server.daemon.serve import serve
from tests.server.proxies import Proxy

WINDOWS = [None, 0, 1, 3]


@pytest.fixture
async def url(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[str]:
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path / "data")
    addresses = await nursery.start(serve, config)
    yield addresses[0]


@pytest.fixture
async def proxy(url: str, nursery: trio.Nursery) -> AsyncIterator[Proxy]:
    made = Proxy(url)
    await nursery.start(made.run)
    yield made


@pytest.fixture
async def space(url: str) -> AsyncIterator[RemoteSpace]:
    async with dataspace.connect(url) as connected:
        yield connected


async def tell(space: RemoteSpace, count: int) -> int:
    """So many messages, an epoch each; the last epoch."""
    for n in range(count):
        draft = space.draft()
        draft.send(Record("n", n))
        await space.submit(draft)
    return await space.sync()


def number(epoch: EpochChanges) -> Any:
    return epoch.messages[0][0]


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_whole_pipe_runs_checked_from_the_daemon_to_a_sink(
    space: RemoteSpace, window: int | None
) -> None:
    last = await tell(space, 50)
    source = space.observe("n($n)", after=0, upto=last, window=window)
    stages: list[Any] = [s.map(lambda change: change.n), s.map(lambda n: n + 1), s.reduce(add, 0)]
    assert await s.pipe(source, *stages, checked=True).read() == 1275


async def test_epochs_are_a_source_as_well_and_parallel_stages_may_follow(space: RemoteSpace) -> None:
    last = await tell(space, 20)

    async def slow(epoch: EpochChanges) -> Any:
        await trio.lowlevel.checkpoint()
        return number(epoch)

    stages = (s.async_map(slow, width=4), s.parallelize(4), s.collect())
    source = space.observe("n($n)", after=0, upto=last).epochs()
    assert await s.pipe(source, *stages, checked=True).read() == list(range(20))


async def test_an_observation_goes_to_a_file_and_ends_with_its_reader(
    space: RemoteSpace, tmp_path: Path
) -> None:
    last = await tell(space, 3)
    path = tmp_path / "changes"
    source = space.observe("n($n)", after=0, upto=last)
    assert await s.pipe(source, s.to_file(path), checked=True).read() == 3
    assert [json.loads(line)["captures"] for line in path.read_text().splitlines()] == [
        {"n": n} for n in range(3)
    ]


async def test_who_leaves_a_block_has_seen_the_interest_go(space: RemoteSpace) -> None:
    await space.assert_(Record("n", 0))
    async with s.pipe(space.observe("n($n)"), checked=True) as stream:
        assert (await stream.read()).n == 0
        assert await space.matches("Observe($pattern)") != []
    assert await space.matches("Observe($pattern)") == []


@pytest.mark.parametrize("window", WINDOWS)
async def test_reads_that_overlap_are_answered_in_their_order(space: RemoteSpace, window: int | None) -> None:
    checker = s.check(space.observe("n($n)", snapshot=False, window=window).epochs())
    link = BoundStage[EpochChanges](checker, NOTHING)
    answers: list[tuple[int, Any]] = []

    async def read(at: int) -> None:
        answers.append((at, number(await link.read())))

    async with trio.open_nursery() as nursery:
        for at in range(10):
            nursery.start_soon(read, at)
            await trio.testing.wait_all_tasks_blocked()
        await tell(space, 10)
    assert answers == [(at, at) for at in range(10)]
    await link.abort()
    checker.check_over()


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_read_that_is_given_up_loses_nothing(space: RemoteSpace, window: int | None) -> None:
    checker = s.check(space.observe("n($n)", snapshot=False, window=window))
    link = BoundStage[Any](checker, NOTHING)
    for _ in range(3):
        with trio.move_on_after(0.01) as patience:
            await link.read()
        assert patience.cancelled_caught
    await tell(space, 20)
    seen: list[Any] = []
    while len(seen) < 20:
        with trio.move_on_after(0.0005):
            seen.append((await link.read()).n)
    assert seen == list(range(20))
    await link.abort()
    assert checker.statistics().withdrawn >= 3
    checker.check_over()


async def _abort(link: BoundStage[Any]) -> None:
    await link.abort()


async def _indicate(link: BoundStage[Any]) -> None:
    link.abort_nowait()


@pytest.mark.parametrize("end", [_abort, _indicate])
@pytest.mark.parametrize("window", WINDOWS)
async def test_an_abort_answers_the_reads_that_hang_first(
    space: RemoteSpace, window: int | None, end: Callable[[BoundStage[Any]], Awaitable[None]]
) -> None:
    checker = s.check(space.observe("n($n)", snapshot=False, window=window))
    link = BoundStage[Any](checker, NOTHING)
    answered: list[str] = []

    async def read(at: int) -> None:
        with pytest.raises(s.Aborted) as mark:
            await link.read()
        answered.append(f"{at} {mark.value.reason}")

    async with trio.open_nursery() as nursery:
        for at in range(3):
            nursery.start_soon(read, at)
            await trio.testing.wait_all_tasks_blocked()
        await end(link)
        answered.append("ended")
    hung = ["0 True", "1 True", "2 True"]
    assert [each for each in answered if each != "ended"] == hung
    assert end is _indicate or answered == [*hung, "ended"]
    assert await link.peek() is False
    with pytest.raises(s.Aborted):
        await link.read()
    await link.abort()
    checker.check_over()


async def test_a_stage_that_raises_fails_the_stream_at_the_daemon(space: RemoteSpace) -> None:
    last = await tell(space, 3)

    def fail(_change: object) -> None:
        raise ValueError("no")

    async with s.pipe(space.observe("n($n)", after=0, upto=last), s.map(fail), checked=True) as stream:
        with pytest.raises(ValueError, match="no"):
            await stream.read()
        with pytest.raises(s.Aborted) as later:
            await stream.read()
        assert isinstance(later.value.reason, ValueError)
    assert (await space.status())["streams"] == 0


async def test_an_error_of_the_daemon_is_raised_once_and_then_a_mark(space: RemoteSpace) -> None:
    checker = s.check(space.observe("n($n)", as_of=1 << 40))
    link = BoundStage[Any](checker, NOTHING)
    with pytest.raises(Refused, match="epoch 1099511627776 is wanted"):
        await link.read()
    for _ in range(2):
        with pytest.raises(s.Aborted) as later:
            await link.read()
        assert isinstance(later.value.reason, Refused)
    assert await link.peek() is False
    checker.check_over()


async def test_a_lost_link_drains_what_came_and_then_fails(proxy: Proxy, url: str) -> None:
    async with (
        dataspace.connect(url) as writer,
        dataspace.connect(proxy.url, reconnect=False) as space,
    ):
        checker = s.check(space.observe("n($n)", snapshot=False))
        async with s.pipe(checker) as stream:
            space_synced = await stream_opened(space, stream)
            assert space_synced
            await tell(writer, 10)
            await space.sync()
            proxy.cut()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert [(await stream.read()).n for _ in range(10)] == list(range(10))
            with pytest.raises(Broken, match="was lost"):
                await stream.read()
            with pytest.raises(s.Aborted):
                await stream.read()
        checker.check_over()


async def test_a_space_in_this_process_keeps_the_same_protocol() -> None:
    """The daemon's own waiting room, which a connection empties by hand, as a source."""
    space = Space("main")
    checker = s.check(s.observation(space, "n($n)", snapshot=False))
    link = BoundStage[EpochChanges](checker, NOTHING)
    for n in range(5):
        space.commit("me", [(SEND, Record("n", n))], n)
    assert await link.peek()
    assert [number(await link.read()) for _ in range(5)] == list(range(5))
    answered: list[str] = []

    async def hang(at: int) -> None:
        with pytest.raises(s.Aborted):
            await link.read()
        answered.append(str(at))

    async with trio.open_nursery() as nursery:
        for at in range(3):
            nursery.start_soon(hang, at)
            await trio.testing.wait_all_tasks_blocked()
        await link.abort()
        answered.append("aborted")
    assert answered == ["0", "1", "2", "aborted"]
    assert await link.peek() is False
    checker.check_over()


async def stream_opened(space: RemoteSpace, stream: Any) -> bool:
    """Has a stream opened without reading a value."""
    with trio.move_on_after(0.01) as patience:
        await stream.read()
    await space.sync()
    return patience.cancelled_caught
