"""A daemon with a full disk says so, takes on nothing durable, serves the rest, and goes on with new room.

On a file system of a few mebibytes, made for the test, where there is the right to make one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.blocking_link import Link
from dataspace.errors import Refused
from index.text import parse_pattern
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight mebibytes."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no right to mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def _fill(balloon: Path) -> None:
    """Takes all the room that is left."""
    with balloon.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass


async def _wait_full(space: dataspace.RemoteSpace, *, full: bool) -> None:
    while (await space.status())["disk_full"] is not full:  # noqa: ASYNC110  # asked as anybody would
        await trio.sleep(0.02)


async def test_a_full_disk_and_its_end(small: Path) -> None:
    daemon = DaemonProcess(small / "data")
    daemon.start()
    try:
        with trio.fail_after(60):
            await _live_through(daemon, small / "balloon")
    finally:
        assert daemon.stop() == 0
    assert "the disk is full; nothing durable is taken on until there is room" in daemon.errors
    assert "there is room on the disk again" in daemon.errors
    daemon.start()
    with Link(daemon.url) as link:
        told = list(link.changes(parse_pattern("kept($n)"), after=0, upto=link.frontier().epoch))
        assert [row for each in told for row in each.added] == [(1,), (2,), (3,)], (
            "numbers 4 and 5 were refused"
        )
        assert [row for each in told for row in each.removed] == [(1,)]
    daemon.stop()


async def _live_through(daemon: DaemonProcess, balloon: Path) -> None:
    async with dataspace.connect(daemon.url, owner="me") as space, space.observe("kept($n)") as watched:
        await watched.next_epoch()
        await _kept(space, 1)
        await trio.to_thread.run_sync(_fill, balloon)
        waiting = space.draft()
        waiting.assert_(Record("kept", 2), handle=2)
        waiting.assert_(Record("large", b"x" * 900_000), handle=99)
        ticket = await space.submit(waiting)  # it is the one that meets the end of the disk
        await _wait_full(space, full=True)
        with pytest.raises(Refused, match=r"disk-full.*the disk is full"):
            await _kept(space, 4)
        assert await space.matches("kept($n)") == [(1,), (2,)], "what is in memory is served"
        with Link(daemon.url) as link:
            past = list(link.changes(parse_pattern("kept($n)"), after=0, upto=link.frontier().epoch))
            assert [row for each in past for row in each.added] == [(1,)], "and the log up to there"
            with pytest.raises(Refused, match="disk-full"):
                link.stage(("k",), [("assert", "x" * 500_000)])
        gone = space.draft()
        gone.retract(1)
        retraction = await space.submit(gone)
        while await space.matches("kept($n)") != [(2,)]:  # noqa: ASYNC110  # as above
            await trio.sleep(0.02)
        await trio.Path(balloon).unlink()
        await ticket.wait()
        await retraction.wait()
        await _wait_full(space, full=False)
        await _kept(space, 3)


async def _kept(space: dataspace.RemoteSpace, number: int) -> None:
    draft = space.draft()
    draft.assert_(Record("kept", number), handle=number)
    await (await space.submit(draft)).wait()
