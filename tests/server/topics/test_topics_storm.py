"""Producers and subscribers come, go and are cut off at random, and no epoch is seen by half."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.errors import DataspaceError, Refused
from dataspace.topics.epochs import TopicEpoch
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy

pytestmark = pytest.mark.slow

PARTITIONS = 3


class Storm:
    """Who publishes and follows one topic, and what came of it."""

    def __init__(self, url: str, proxy: Proxy, seed: int, retain: int) -> None:
        self.url = url
        self.proxy = proxy
        self.random = random.Random(seed)
        self.retain = retain
        self.taken: dict[int, set[tuple[int, int]]] = {}
        """What the daemon has taken for certain, by time."""
        self.seen: list[list[TopicEpoch]] = []
        self.crashes = 0
        self.over = False

    async def publish(self, partition: int) -> None:
        """One producer after another in a partition, each through a line that is cut now and then."""
        n = 0
        while not self.over:
            try:
                async with self.topic(self.proxy.url, partition) as topic:
                    for _ in range(self.random.randrange(3, 30)):
                        assert isinstance(topic.time, int)
                        at = topic.time + self.random.randrange(3)
                        n += 1
                        await topic.send((partition, n), at=at)
                        await topic.flush()
                        self.taken.setdefault(at, set()).add((partition, n))
                        await topic.advance(topic.time + self.random.randrange(2))
                        await trio.lowlevel.checkpoint()
            except DataspaceError:
                self.crashes += 1

    @asynccontextmanager
    async def topic(self, url: str, partition: int) -> AsyncIterator[dataspace.Publication]:
        async with (
            dataspace.connect(url, heartbeat=1) as space,
            space.publish("t", partition=partition, partitions=PARTITIONS, retain=self.retain) as topic,
        ):
            yield topic

    async def follow(self) -> None:
        """One subscription after another, through the same bad lines."""
        while not self.over:
            seen: list[TopicEpoch] = []
            self.seen.append(seen)
            try:
                async with (
                    dataspace.connect(self.proxy.url, heartbeat=1) as space,
                    space.subscribe("t", timeout=1) as epochs,
                ):
                    for _ in range(self.random.randrange(5, 40)):
                        with trio.move_on_after(0.3):
                            epoch = await epochs.next_epoch()
                            if epoch is None:
                                break
                            seen.append(epoch)
            except DataspaceError:
                pass

    async def cut(self) -> None:
        while not self.over:
            await trio.sleep(self.random.uniform(0.1, 0.4))
            self.proxy.cut()

    async def run(self, seconds: float) -> None:
        # somebody who stays, so that the topic does
        async with self.topic(self.url, 0) as anchor, trio.open_nursery() as nursery:
            for partition in range(PARTITIONS):
                nursery.start_soon(self.publish, partition)
            for _ in range(3):
                nursery.start_soon(self.follow)
            nursery.start_soon(self.cut)
            end = trio.current_time() + seconds
            while trio.current_time() < end or not (self.crashes and any(self.seen)):
                await trio.sleep(0.02)
                await anchor.advance(max([anchor.time or 0, *(time - 2 for time in self.taken)]))
            self.over = True
            nursery.cancel_scope.deadline = trio.current_time() + 3


@pytest.mark.parametrize("retain", [0, 1 << 20])
@pytest.mark.parametrize("seed", range(int(os.environ.get("TORTURE_ROUNDS", "1"))))
async def test_every_epoch_that_is_seen_is_whole(url: str, proxy: Proxy, seed: int, retain: int) -> None:
    storm = Storm(url, proxy, seed, retain)
    with trio.fail_after(60):
        await storm.run(3)
    epochs = [epoch for seen in storm.seen for epoch in seen]
    assert epochs and storm.crashes
    for epoch in epochs:
        items = [item for item in epoch.items if isinstance(item, tuple)]
        assert len(set(items)) == len(items), f"{epoch.time}: told twice"
        assert isinstance(epoch.time, int)
        assert storm.taken.get(epoch.time, set()) <= set(items), f"{epoch.time}: by half"
    whole: dict[object, frozenset[object]] = {}
    for epoch in epochs:
        assert whole.setdefault(epoch.time, frozenset(epoch.items)) == frozenset(epoch.items), epoch.time
    for seen in storm.seen:
        assert [epoch.time for epoch in seen] == sorted({epoch.time for epoch in seen})


async def test_a_daemon_that_is_killed_takes_its_topics_along_and_says_so(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path)
    daemon.start()
    async with dataspace.connect(daemon.url) as space:
        with pytest.raises(DataspaceError):
            async with space.publish("t", retain=1000) as topic, space.subscribe("t") as epochs:
                await topic.send("x")
                await topic.flush()
                daemon.kill()
                daemon.start()
                with pytest.raises(Refused, match="no topic named 't'"), trio.fail_after(20):
                    await epochs.next_epoch()
                await topic.send("y")
                await topic.flush()
        async with space.publish("t") as topic, space.subscribe("t") as epochs:
            await topic.send("z")
            await topic.advance(1)
            with trio.fail_after(10):
                assert await epochs.next_epoch() == TopicEpoch(0, ("z",))
    daemon.stop()
