"""Each space of a store is led by itself, by any of its daemons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.observations import Observation
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SOON = 60
LEASE = "DATASPACE_SERVE_CLUSTER_LEASE"
SPACES = ("main", "a", "b", "c", "d")


@pytest.fixture
def spread(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[DaemonProcess]]:
    """Three daemons with five spaces; the first one leads them all."""
    monkeypatch.setenv(LEASE, "1s")
    path = tmp_path / "daemon.toml"
    path.write_text("".join(f"[spaces.{name}]\n" for name in SPACES[1:]))
    found = [DaemonProcess(postgres_url, "--config", str(path)) for _ in range(3)]
    with running(*found):
        yield found


async def test_others_lead_the_spaces_of_a_leader_that_ends_and_nothing_blinks(
    spread: list[DaemonProcess],
) -> None:
    first, *others = spread
    urls = [each.url for each in spread]
    with trio.fail_after(SOON):
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            writers = {
                name: await enter(dataspace.connect(urls, space=name, name=name, grace=60)) for name in SPACES
            }
            seen = dict[str, Observation]()
            for name, writer in writers.items():
                await writer.assert_(Record("here", name))
                assert (await writer.status())["process"] == first.process.pid
                watcher = await enter(dataspace.connect(others[0].url, space=name))
                seen[name] = await enter(watcher.observe("here($x)", quiet=True))
                assert await added(seen[name]) == [(name,)]
            await trio.to_thread.run_sync(first.kill)
            for name, writer in writers.items():
                await writer.assert_(Record("here", f"{name} again"))
                assert await added(seen[name]) == [(f"{name} again",)]
            leaders = {name: (await writer.status())["process"] for name, writer in writers.items()}
            assert set(leaders.values()) <= {each.process.pid for each in others}
            await trio.to_thread.run_sync(first.start)
            for name in SPACES:
                async with dataspace.connect(first.url, space=name, owner="map") as writer:
                    await writer.assert_(Record("there", 1))  # is sent on to the leader of that space
                    assert (await writer.status())["process"] == leaders[name]


async def added(seen: Observation) -> list[tuple[object, ...]]:
    """Returns the captures of the next facts that come; none has gone before."""
    while True:
        epoch = await seen.next_epoch()
        assert epoch is not None and not epoch.removed
        if epoch.added:  # else a follower was a moment behind when the observation began
            return [*epoch.added]
