"""With ``show = "durable"`` no client sees what a crash loses, in whichever way it looks; else it is seen.

A real daemon is killed while a write to its disk is held, so what was committed then is in memory only.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Record, absent
from dataspace.errors import Broken, Closed, ExpectationFailed, Refused
from index.patterns.text import parse_pattern
from index.values.values import Map
from relay.log.reader import LogReader
from tests.server.processes import DaemonProcess

HOLDING = Path(__file__).with_name("holding.py")
QUIET = 0.3
"""Seconds in which nothing comes that waits for the disk."""

Way = Callable[[dataspace.RemoteSpace], Awaitable[set[object]]]


async def _observed(space: dataspace.RemoteSpace) -> set[object]:
    async with space.observe("n($n)", quiet=True) as seen:
        state = await seen.next_epoch()
        assert state is not None
        return {row[0] for row in state.added}


async def _resumed(space: dataspace.RemoteSpace) -> set[object]:
    async with space.observe("n($n)", quiet=True, after=0, progress=True) as seen:
        found: set[object] = set()
        while 2 not in found:
            epoch = await seen.next_epoch()
            assert epoch is not None
            found |= {row[0] for row in epoch.added}
        return found


async def _matched(space: dataspace.RemoteSpace) -> set[object]:
    return {row[0] for row in await space.matches("n($n)")}


async def _queried(space: dataspace.RemoteSpace) -> set[object]:
    rows: Any = await space.query("n($n)")
    return {row[0] for row in rows}


async def _owned(space: dataspace.RemoteSpace) -> set[object]:
    found: Any = await space.request("owners", Map({"pattern": parse_pattern("n($n)")}))
    return {each["fact"].fields[0] for each in found}


async def _refused(space: dataspace.RemoteSpace) -> set[object]:
    try:
        async with space.turn(expect=[absent("n(2)")]) as draft:
            draft.send(Record("unexpected"))
    except ExpectationFailed as failed:
        assert failed.code == "expectation"
        return {2}
    raise AssertionError("it holds in memory only")


async def _told_of_a_handle(space: dataspace.RemoteSpace) -> set[object]:
    draft = space.draft()
    draft.assert_(Record("n", 3), handle=2, owner="counter")
    try:
        await space.commit(draft)
    except Refused as refused:
        assert refused.code == "handle-in-use"
        return {2}
    raise AssertionError("the handle is in use in memory only")


WAYS: tuple[Way, ...] = (
    _observed,
    _resumed,
    _matched,
    _queried,
    _owned,
    _refused,
    _told_of_a_handle,
)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    monkeypatch.setenv("HELD", str(tmp_path / "hold"))
    process = DaemonProcess(tmp_path / "data", program=(str(HOLDING),))
    yield process
    if process.process.poll() is None:
        process.kill()


async def _look(daemon: DaemonProcess, hold: Path, seen: set[object]) -> tuple[Map, set[str]]:
    """Commits while the disk is held, and looks at it in every way; returns the status, and the ways that
    showed something.  The daemon is dead then."""
    showing: set[str] = set()

    async def watch(*, task_status: trio.TaskStatus[None]) -> None:
        async with dataspace.connect(daemon.url, reconnect=False) as space:
            async with space.observe("n($n)", quiet=True) as watched:
                task_status.started()
                async for change in watched:
                    seen.add(change.captures[0])
                    if change.captures[0] == 2:
                        showing.add("watch")

    async def look(way: Way) -> None:
        async with dataspace.connect(daemon.url, reconnect=False) as space:
            found = await way(space)
            seen.update(found)
            showing.add(way.__name__)

    async with trio.open_nursery() as nursery:
        with suppress(Broken, Closed):
            async with dataspace.connect(daemon.url, owner="counter", reconnect=False) as space:
                async with space.turn() as draft:
                    draft.assert_(Record("n", 1), handle=1)
                await nursery.start(_guarded, watch)
                await _until(lambda: 1 in seen)
                hold.touch()  # noqa: ASYNC240  # at once
                draft = space.draft()
                draft.assert_(Record("n", 2), handle=2)
                await space.submit(draft)
                await _until(hold.with_suffix(".now").exists)
                for way in WAYS:
                    nursery.start_soon(_guarded, look, way)
                await trio.sleep(QUIET)
                status = await space.status()
                daemon.process.send_signal(signal.SIGKILL)
    return status, showing


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # of another process
        await trio.sleep(0.01)


async def _guarded(function: Any, *args: Any, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    """Calls a client's function until its connection breaks."""
    with suppress(Broken, Closed):
        if args:
            await function(*args)
        else:
            await function(task_status=task_status)


def _logged(data: Path) -> set[object]:
    with closing(LogReader.open(data)) as log:
        return {fact.fields[0] for epoch in log.read(0) for fact in epoch.added if fact.label == "n"}  # type: ignore[union-attr]  # records


@pytest.mark.slow
@pytest.mark.parametrize("show", ["durable", "committed"])
def test_what_a_crash_loses_was_seen_by_nobody(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, show: str
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_SHOW", show)
    daemon.start()
    seen = set[object]()
    status, showing = trio.run(_look, daemon, tmp_path / "hold", seen)
    daemon.wait()
    assert status["show"] == show
    assert (status["epoch"], status["durable_epoch"]) == (2, 1)
    assert _logged(tmp_path / "data") == {1}, "the rest is lost"
    if show == "durable":
        assert seen == {1}
        assert not showing
    else:
        assert seen == {1, 2}, "what this test is about can be seen"
        assert showing == {"watch", *[each.__name__ for each in WAYS]}


@pytest.mark.slow
def test_what_waits_for_the_disk_is_shown_when_it_is_there(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        hold = tmp_path / "hold"
        async with dataspace.connect(daemon.url, owner="counter") as space, trio.open_nursery() as nursery:
            async with space.observe("n($n)", quiet=True) as watched:
                state = await watched.next_epoch()
                assert state is not None and not state.added
                hold.touch()  # at once
                draft = space.draft()
                draft.assert_(Record("n", 2), handle=2)
                await space.submit(draft)
                await _until(hold.with_suffix(".now").exists)
                found: dict[str, set[object]] = {}

                async def look(way: Way) -> None:
                    async with dataspace.connect(daemon.url) as other:
                        found[way.__name__] = await way(other)

                for way in WAYS:
                    nursery.start_soon(look, way)
                await trio.sleep(QUIET)
                assert not found
                hold.unlink()
                epoch = await watched.next_epoch()
                assert epoch is not None and [*epoch.added] == [(2,)]
        assert found == {each.__name__: {2} for each in WAYS}

    monkeypatch.setenv("DATASPACE_SERVE_SHOW", "durable")
    daemon.start()
    trio.run(run)
    assert daemon.stop() == 0
