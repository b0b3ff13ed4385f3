"""A daemon without room on its disk says so, takes on nothing durable, serves the rest, and goes on later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.client import BulkClient
from dataspace.errors import Refused
from index.patterns.text import parse_pattern
from tests.server.hosting.rooms import FileLimit, Room, SmallDisk
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


@pytest.fixture(params=[SmallDisk, FileLimit])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    """A place that can be without room."""
    made: Room = request.param(tmp_path / "small")
    yield made
    made.end()


async def _wait_full(space: dataspace.RemoteSpace, *, full: bool) -> None:
    while (await space.status())["disk_full"] is not full:  # noqa: ASYNC110  # asked as anybody would
        await trio.sleep(0.02)


async def _wait_topics(space: dataspace.RemoteSpace) -> None:
    """The journal of topics looks for itself whether there is room again, perhaps later than the log."""
    while True:
        try:
            async with space.publish("u", durable=True):
                return
        except Refused as refusal:
            assert refusal.code == "disk-full"
            await trio.sleep(0.02)


async def test_a_full_disk_and_its_end(room: Room) -> None:
    daemon = DaemonProcess(room.data)
    daemon.start()
    try:
        with trio.fail_after(60):
            await _live_through(daemon, room)
    finally:
        assert daemon.stop() == 0
    assert f"{room.said}; durable turns are refused until there is free space" in daemon.errors
    assert f"{room.said}; steps of durable topics are refused until there is free space" in daemon.errors
    assert "the log: there is free space on the disk again" in daemon.errors
    assert "the journal of topics: there is free space on the disk again" in daemon.errors
    daemon.start()
    with BulkClient(daemon.url) as link:
        told = list(link.changes(parse_pattern("kept($n)"), after=0, upto=link.frontier().epoch))
        assert [row for each in told for row in each.added] == [(1,), (2,), (3,)], (
            "numbers 4 and 5 were refused"
        )
        assert [row for each in told for row in each.removed] == [(1,)]
    async with dataspace.connect(daemon.url) as space:
        assert [each.items async for each in space.completed("t")] == [(1,), (LARGE,), (3,)]
    daemon.stop()


LARGE = b"x" * 200_000
"""An item that meets the end of the disk, whatever little room is left."""


async def _live_through(daemon: DaemonProcess, room: Room) -> None:
    async with (
        dataspace.connect(daemon.url, owner="me") as space,
        space.observe("kept($n)") as watched,
        space.publish("t", durable=True) as topic,
    ):
        await watched.next_epoch()
        await _kept(space, 1)
        await topic.send(1)
        await topic.advance(1)
        await topic.flush()
        await trio.to_thread.run_sync(_stage, daemon.url)
        await trio.to_thread.run_sync(room.take, daemon)
        await topic.send(LARGE)
        await topic.advance(2)
        waiting = space.draft()
        waiting.assert_(Record("kept", 2), handle=2)
        waiting.assert_(Record("large", b"x" * 900_000), handle=99)
        ticket = await space.submit(waiting)  # it is the one that meets the end of the disk
        await _wait_full(space, full=True)
        with pytest.raises(Refused, match=rf"disk-full.*{room.said}"):
            await _kept(space, 4)
        assert await space.matches("kept($n)") == [(1,), (2,)], "what is in memory is served"
        await trio.to_thread.run_sync(_refuses, daemon.url)
        with pytest.raises(Refused, match=r"disk-full.*durable topics take nothing"):
            async with space.publish("u", durable=True):
                pass
        gone = space.draft()
        gone.retract(1)
        retraction = await space.submit(gone)
        while await space.matches("kept($n)") != [(2,)]:  # noqa: ASYNC110  # as above
            await trio.sleep(0.02)
        room.give_back(daemon)
        await ticket.wait()
        await retraction.wait()
        await _wait_full(space, full=False)
        await _kept(space, 3)
        await _wait_topics(space)
        await topic.send(3)
        await topic.advance(3)
        await topic.flush()


def _stage(url: str) -> None:
    with BulkClient(url) as link:
        link.stage(("before",), [("assert", "never")])


def _refuses(url: str) -> None:
    """The log is read up to there; nothing is staged."""
    with BulkClient(url) as link:
        past = list(link.changes(parse_pattern("kept($n)"), after=0, upto=link.frontier().epoch))
        assert [row for each in past for row in each.added] == [(1,)]
        with pytest.raises(Refused, match="disk-full"):
            link.stage(("k",), [("assert", "x" * 500_000)])
        link.discard(("before",))
        with pytest.raises(Refused, match="not-staged"):  # although there is no room even to delete it
            link.publish([("before",)], client="c", sequence=1, owner="o")


async def _kept(space: dataspace.RemoteSpace, number: int) -> None:
    draft = space.draft()
    draft.assert_(Record("kept", number), handle=number)
    await (await space.submit(draft)).wait()
