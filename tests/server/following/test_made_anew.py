"""A daemon that follows a directory reads the log that is in it, not the log that was there before.

The directory is removed and made anew, or another one is put in its place, while followers read on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import Broken, Refused, Unreachable
from tests.server.processes import DaemonProcess, follower, running, stand_by

pytestmark = pytest.mark.slow

SOON = 90


async def fill(url: str, what: str) -> None:
    """Asserts as many facts in as many epochs for each ``what``, so that the numbers are the same."""
    async with dataspace.connect(url, owner="o") as space:
        for n in range(10):
            await space.assert_(Record("p", f"{what}{n}"))


async def first_of(url: str) -> str:
    """What the facts at a daemon begin with; empty where it does not answer, or has no facts."""
    try:
        async with dataspace.connect(url, read="any", reconnect=False, timeout=5) as space:
            rows = await space.matches("p($x)")
    except (Broken, Refused, Unreachable):
        return ""
    return min([str(x)[:3] for (x,) in rows], default="")


async def until(url: str, beginnings: tuple[str, ...]) -> None:
    """Waits until the facts at a daemon have one of these beginnings."""
    while await first_of(url) not in beginnings:  # noqa: ASYNC110  # of another process
        await trio.sleep(0.05)


def make_anew(daemon: DaemonProcess) -> None:
    daemon.stop()
    shutil.rmtree(daemon.data)
    daemon.start()


async def test_a_follower_reads_on_in_the_directory_that_was_made_anew(tmp_path: Path) -> None:
    leader = DaemonProcess(tmp_path / "data")
    with running(leader), trio.fail_after(SOON):
        await fill(leader.url, "old")
        reader = follower(leader.data)
        with running(reader):
            async with (
                dataspace.connect(reader.url, read="any") as space,
                space.observe("p($x)", quiet=True) as seen,
            ):
                shown = {str(x) for (x,) in (await anext(aiter(seen.epochs()))).added}
                assert len(shown) == 10
                await trio.to_thread.run_sync(make_anew, leader)
                await fill(leader.url, "new")
                while shown != {f"new{n}" for n in range(10)}:
                    epoch = await seen.next_epoch()
                    assert epoch is not None
                    shown -= {str(x) for (x,) in epoch.removed}
                    shown |= {str(x) for (x,) in epoch.added}


async def test_a_stand_by_leads_the_directory_that_was_made_anew(tmp_path: Path) -> None:
    leader = DaemonProcess(tmp_path / "data")
    with running(leader), trio.fail_after(SOON):
        await fill(leader.url, "old")
        second = stand_by(leader.data)
        with running(second):
            await until(second.url, ("old",))
            await trio.to_thread.run_sync(make_anew, leader)
            await fill(leader.url, "new")
            await trio.to_thread.run_sync(leader.kill)
            async with dataspace.connect(second.url, owner="o") as space:
                await space.assert_(Record("p", "new"))
                assert len(await space.matches("p($x)")) == 11, "the ten of the new log, and this one"


async def test_a_stand_by_does_not_lead_a_log_that_was_removed(tmp_path: Path) -> None:
    leader = DaemonProcess(tmp_path / "data")
    with running(leader), trio.fail_after(SOON):
        await fill(leader.url, "old")
        second = stand_by(leader.data)
        with running(second):
            await until(second.url, ("old",))
            await trio.to_thread.run_sync(shutil.rmtree, leader.data)
            await trio.to_thread.run_sync(leader.kill)
            await until(second.url, ("", "new"))
            await trio.to_thread.run_sync(leader.start)
            await fill(leader.url, "new")
            await until(second.url, ("new",))
