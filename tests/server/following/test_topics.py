"""A subscriber of a durable topic at a follower is told what a subscriber at the leader is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from tests.server.following.test_take_over import SOON, StandBy
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

EPOCHS = 30

Told = list[tuple[object, tuple[object, ...], str]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    daemons = DaemonProcess(tmp_path / "data"), StandBy(tmp_path / "data")
    for each in daemons:
        each.start()
    yield daemons
    for each in daemons:
        if each.process.poll() is None:
            each.stop()


async def told(daemon: DaemonProcess, count: int) -> Told:
    """The first epochs that a subscriber of a daemon is told."""
    found: Told = []
    async with dataspace.connect(daemon.url) as space:
        async with space.subscribe("t", as_of=0, timeout=SOON) as epochs:
            async for epoch in epochs:
                found.append((epoch.time, tuple(epoch.items), epoch.crashed))
                if len(found) == count:
                    break
        assert (await space.status())["process"] == daemon.process.pid
    return found


async def publish(url: str | list[str], times: range) -> None:
    """Epochs of several calls each."""
    async with dataspace.connect(url) as space, space.publish("t", durable=True) as topic:
        for time in times:
            for n in range(3):
                await topic.send(f"{time}.{n}")
            await topic.advance(time + 1)


async def test_replay_and_live_are_what_the_leader_tells(store: tuple[DaemonProcess, DaemonProcess]) -> None:
    leader, follower = store
    with trio.fail_after(SOON):
        await publish(leader.url, range(EPOCHS))
        results: dict[str, Told] = {}

        async def subscribe(name: str, daemon: DaemonProcess) -> None:
            results[name] = await told(daemon, 2 * EPOCHS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscribe, "leader", leader)
            nursery.start_soon(subscribe, "follower", follower)
            await publish(leader.url, range(EPOCHS, 2 * EPOCHS))
    assert results["leader"] == results["follower"]
    assert [time for time, _, _ in results["follower"]] == list(range(2 * EPOCHS))


async def test_a_subscriber_of_the_stand_by_stays_connected_when_it_takes_over(
    store: tuple[DaemonProcess, DaemonProcess],
) -> None:
    leader, follower = store
    found: Told = []
    with trio.fail_after(SOON):
        async with (
            dataspace.connect([leader.url, follower.url]) as space,
            dataspace.connect(follower.url, reconnect=False) as watcher,
            space.publish("t", durable=True, name="p", away=60) as topic,
            watcher.subscribe("t", as_of=0, timeout=SOON) as epochs,
        ):
            for time in range(EPOCHS):
                if time == EPOCHS // 2:
                    await topic.send("before")
                    await topic.flush()
                    await trio.to_thread.run_sync(leader.kill)
                await topic.send(time)
                await topic.advance(time + 1)
            async for epoch in epochs:
                found.append((epoch.time, tuple(epoch.items), epoch.crashed))
                if epoch.time == EPOCHS - 1:
                    break
            assert (await space.status())["process"] == follower.process.pid
    expected: Told = [(time, (time,), "") for time in range(EPOCHS)]
    expected[EPOCHS // 2] = (EPOCHS // 2, ("before", EPOCHS // 2), "")
    assert found == expected
