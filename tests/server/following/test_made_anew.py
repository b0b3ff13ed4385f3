"""A daemon that follows a directory reads the log that is in it, not the log that was there before.

The directory is removed and made anew, or another one is put in its place, while followers read on.
"""

from __future__ import annotations

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import Broken, Refused, Unreachable
from relay.store.sqlite.storage import has_tables
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


def remove(daemon: DaemonProcess) -> None:
    """Removes the directory of a daemon, which may write there meanwhile."""
    while daemon.data.exists():
        shutil.rmtree(daemon.data, ignore_errors=True)


def make_anew(daemon: DaemonProcess) -> None:
    daemon.stop()
    remove(daemon)
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


async def test_files_without_tables_are_waited_for(tmp_path: Path) -> None:
    """The leader makes the tables some time after the files."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    for name in ("log.sqlite", "topics.sqlite"):
        (data / name).touch(mode=0o600)
        assert not has_tables(data / name)
    leader, reader = DaemonProcess(data), follower(data)
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, partial(reader.start))
            await trio.sleep(1.5)  # so that it has met them
            await trio.to_thread.run_sync(leader.start)
        try:
            await fill(leader.url, "new")
            await until(reader.url, ("new",))
            assert has_tables(data / "log.sqlite")
        finally:
            reader.stop()
            leader.stop()
        assert "waiting for its leader" in reader.errors


async def test_a_stand_by_leads_the_directory_that_was_made_anew(tmp_path: Path) -> None:
    leader = DaemonProcess(tmp_path / "data")
    with running(leader), trio.fail_after(SOON):
        await fill(leader.url, "old")
        second = stand_by(leader.data)
        with running(second):
            await until(second.url, ("old",))
            second.process.send_signal(signal.SIGSTOP)  # else it would lead as soon as the leader has ended
            await trio.to_thread.run_sync(make_anew, leader)
            second.process.send_signal(signal.SIGCONT)
            await fill(leader.url, "new")
            await trio.to_thread.run_sync(leader.kill)
            await until(second.url, ("new",))
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
            await trio.to_thread.run_sync(remove, leader)
            await trio.to_thread.run_sync(leader.kill)
            await until(second.url, ("", "new"))
            await trio.to_thread.run_sync(leader.start)
            await fill(leader.url, "new")
            await until(second.url, ("new",))
