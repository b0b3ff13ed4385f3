"""A daemon ends when it is asked to, whatever the actors do that it hosts."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from server.daemon.command import UNFINISHED
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


def _started(tmp_path: Path, actor: str, stop: str) -> DaemonProcess:
    config = tmp_path / "config.toml"
    config.write_text(f'stop = "{stop}"\n[[actors]]\nrun = "tests.server.rogues:{actor}"\n')
    daemon = DaemonProcess(tmp_path / "data", "--config", str(config))
    daemon.start()
    return daemon


async def _prepare(url: str, sign: str, *messages: Record) -> None:
    """Asserts a fact that is to stay, and sends messages once the actor is there."""
    with trio.move_on_after(30) as scope:
        async with dataspace.connect(url, owner="name") as space:
            await space.assert_(Record("kept"))
            async with space.observe(sign) as actor:
                await anext(actor)
            draft = space.draft()
            for message in messages:
                draft.send(message)
            space.submit_nowait(draft.actions)
            await trio.sleep(0.5)
            scope.cancel()  # the daemon may be too busy to say goodbye


async def _kept(url: str) -> bool:
    async with dataspace.connect(url) as space:
        return await space.matches("kept()") == [()]


def _ended_in_any_case(daemon: DaemonProcess, *said: str) -> None:
    assert daemon.stop() == UNFINISHED
    for each in "has not stopped within", *said:
        assert each in daemon.errors
    daemon.start()
    assert trio.run(_kept, daemon.url), "what was acknowledged is there"
    assert daemon.stop() == 0, daemon.errors


def test_an_actor_whose_task_does_not_end_is_named_and_left_behind(tmp_path: Path) -> None:
    daemon = _started(tmp_path, "clinging", "3s")
    trio.run(_prepare, daemon.url, "clinging(_)")
    daemon.more = ()  # the next one hosts nobody
    _ended_in_any_case(daemon, "do not end: tests.server.rogues:clinging")


def test_an_actor_that_does_not_yield_does_not_keep_it(tmp_path: Path) -> None:
    daemon = _started(tmp_path, "hog", "1s")
    trio.run(_prepare, daemon.url, "Observe(hog(_))", Record("hog", 1000.0))
    daemon.more = ()  # as above
    _ended_in_any_case(daemon)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    daemon = _started(tmp_path, "clinging", "1h")
    trio.run(_prepare, daemon.url, "clinging(_)")
    while daemon.process.poll() is None:
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    assert daemon.wait() == -signal.SIGTERM
