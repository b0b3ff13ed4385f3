"""Followers that are killed or stopped hold up nothing; one that is far behind catches up, or begins anew."""

from __future__ import annotations

import signal
from functools import partial

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from server.cli.main import main
from tests.server.cluster.test_failover import LEASE, SOON
from tests.server.cluster.test_faults import LONG, shown, started
from tests.server.processes import DaemonProcess
from tests.server.successions import witnessed

pytestmark = pytest.mark.slow


async def test_followers_that_are_killed_or_stopped_hold_up_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their observers miss nothing."""
    monkeypatch.setenv(LEASE, LONG)
    leader, *followers = (DaemonProcess(postgres_url) for _ in range(3))
    first, second = followers
    with trio.fail_after(SOON * 3):
        async with started(leader, first, second):
            async with witnessed([leader.url], [each.url for each in followers]) as witness:
                for _ in range(2):
                    await witness.answered()
                    await trio.to_thread.run_sync(first.kill)
                    await witness.answered()
                    await trio.to_thread.run_sync(partial(first.start))
                    second.process.send_signal(signal.SIGSTOP)
                    await witness.answered()
                    second.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("trimmed", [False, True], ids=["its epochs are there", "its epochs are gone"])
async def test_a_follower_far_behind_catches_up_and_its_observers_see_the_difference(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, trimmed: bool
) -> None:
    monkeypatch.setenv(LEASE, LONG)
    leader, follower = DaemonProcess(postgres_url), DaemonProcess(postgres_url)
    held: set[object] = set()

    async def observe(reader: dataspace.RemoteSpace) -> None:
        async with reader.observe("map($n)", quiet=True) as changes:
            async for change in changes:
                if change.captures:
                    (number,) = change.captures
                    assert (number in held) is (change.kind == "-"), "each comes and goes in turns"
                    (held.add if change.kind == "+" else held.discard)(number)

    async def seen(*numbers: int) -> None:
        while held != {*numbers}:  # noqa: ASYNC110  # what another task sees
            await trio.sleep(0.01)

    with trio.fail_after(SOON * 3):
        async with (
            started(leader, follower),
            dataspace.connect(follower.url, read="leader") as reader,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(observe, reader)
            async with dataspace.connect(leader.url, owner="map") as space:
                claims = [await space.assert_(Record("map", n)) for n in range(10)]
                await seen(*range(10))
                follower.process.send_signal(signal.SIGSTOP)
                try:
                    for claim in claims[:5]:
                        await space.retract(claim)
                    for n in range(10, 15):
                        await space.assert_(Record("map", n))
                    if trimmed:
                        await trio.to_thread.run_sync(leader.stop)
                        words = ["log", "compact", "--data", postgres_url, "--keep-bytes", "1"]
                        assert await trio.to_thread.run_sync(main, words) == 0
                        await trio.to_thread.run_sync(partial(leader.start))
                    await space.assert_(Record("map", 15))
                finally:
                    follower.process.send_signal(signal.SIGCONT)
                await shown(follower, *range(5, 16))
                await seen(*range(5, 16))
                await space.assert_(Record("map", 16))
                await seen(*range(5, 17))
            nursery.cancel_scope.cancel()
    assert ("was trimmed beyond epoch 10" in follower.errors) is trimmed
