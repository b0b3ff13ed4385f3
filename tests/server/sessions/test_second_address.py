"""A daemon that is killed and started at another address, over the same directory: its clients go there, with
their turns, facts and observations.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.client.bulk.client import BulkClient
from tests.server.peers import fact
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow
SOON = 60
ROUNDS = 2


class Daemons:
    """Two addresses, and the one process that serves at either."""

    def __init__(self, data: Path) -> None:
        self.two = [DaemonProcess(data), DaemonProcess(data)]
        for each in self.two:  # so that both have a port
            each.start()
            each.stop()
        self.at = 0
        self.two[0].start()

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.two]

    def move(self) -> None:
        self.two[self.at].kill()
        self.at = 1 - self.at
        self.two[self.at].start()

    def stop(self) -> None:
        self.two[self.at].stop()


@pytest.mark.parametrize(("grace", "read"), [(0.0, "leader"), (30.0, "any")])
async def test_turns_facts_and_observations_go_on_at_the_other_address(
    tmp_path: Path, grace: float, read: str
) -> None:
    daemons = Daemons(tmp_path / "data")
    try:
        with trio.fail_after(SOON):
            async with (
                dataspace.connect(daemons.urls, grace=grace, read=read, owner="it") as space,
                dataspace.connect(",".join(daemons.urls), name="session") as other,
                trio.open_nursery() as nursery,
            ):
                seen: list[object] = []
                last = 40 * ROUNDS

                async def watch() -> None:
                    async with space.observe("fact($n)", quiet=True, durable=True, policy="wait") as facts:
                        async for epoch in facts.epochs():
                            seen.extend(n for (n,) in epoch.added)
                            if last in seen:
                                return

                nursery.start_soon(watch)
                held = await other.assert_("here")
                epochs: list[int] = []

                async def write(n: int) -> None:
                    draft = space.draft()
                    draft.assert_(fact(n))
                    epochs.append(await space.commit(draft))

                async with trio.open_nursery() as writers:
                    for n in range(1, last + 1):
                        writers.start_soon(write, n)
                        if n % 40 == 20:
                            await trio.to_thread.run_sync(daemons.move)
                        await trio.sleep(0.002)
                assert len(set(epochs)) == last, "a turn happened twice, or two have one epoch"
                assert sorted(await space.matches("fact($n)")) == [(n,) for n in range(1, last + 1)]
                assert await other.matches('"here"') == [()] and held.epoch is not None
        assert sorted(seen, key=str) == sorted(range(1, last + 1), key=str), "lost, or twice"
    finally:
        daemons.stop()


def test_short_connections_and_blocking_ones_find_the_daemon(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path / "data")
    try:
        with dataspace.connect_blocking(daemons.urls, owner="it") as space:
            for n in range(ROUNDS):
                space.assert_(fact(n))
                with BulkClient(daemons.urls) as link:
                    assert link.frontier().epoch > 0
                daemons.move()
                with BulkClient(",".join(daemons.urls), read="any") as link:
                    assert link.frontier().epoch > 0
            assert len(space.matches("fact($n)")) == ROUNDS
    finally:
        daemons.stop()
