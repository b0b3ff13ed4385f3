"""A defect at any line of the tasks that end sessions, leases and producers, read topics or archive, ends
nothing else: what was due is done soon after, and the archive and subscribers get everything."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace.errors import DataspaceError
from dataspace.transport.addresses import parse_listen
from server.archiving import keeper
from server.config.model import Archiving, Config
from server.daemon.serve import serve
from tests.server.following.test_faults import SAMPLES, SOON, TOP, World, chosen, impatient
from tests.server.proxies import Proxy
from tests.striking import Striking

pytestmark = pytest.mark.slow

__all__ = ["impatient"]

SOURCES: Final = (
    *(f"{TOP}/server/{each}/" for each in ("archiving", "topics")),
    f"{TOP}/server/owners/leases.py",
    *(
        f"{TOP}/server/spaces/{each}.py"
        for each in ("sessions", "endings", "groups/topics", "groups/reading")
    ),
)
FENCES: Final = ("DurableTopics.run", "ArchiveKeeper.run")
"""Functions that only begin tasks."""


async def _read(url: str, wanted: list[int]) -> None:
    """Reads a topic from its beginning, as a subscriber that connects again, until it has had all items."""
    found: list[object] = []
    while found[: len(wanted)] != wanted:
        found = []
        with suppress(DataspaceError):
            async with dataspace.connect(url, timeout=5) as space, space.subscribe("t", as_of=0) as epochs:
                async for epoch in epochs:
                    found += epoch.items
                    if len(found) >= len(wanted):
                        break
        await trio.sleep(0.002)


async def _live(world: World, url: str, proxy: Proxy, striking: Striking) -> None:
    """Cuts off a client with all that it has, and has its time end, with one line of that struck."""
    proxy.refusing = False
    async with trio.open_nursery() as nursery:
        await nursery.start(world.leave, proxy.url)
        striking.begin()
        proxy.refusing = True
        proxy.cut()
        with trio.fail_after(SOON):
            await _read(url, world.items)
        await trio.sleep(0.3)  # the times of the lease, the session and the producer end, of 0.2 s
        striking.end()
        nursery.cancel_scope.cancel()
    await world.check(url)


async def _wait_archived(url: str) -> None:
    """Waits until all epochs, of the space and of its topics, are in the archive."""
    async with dataspace.connect(url) as space:
        while True:
            archive = (await space.status())["archive"]
            assert not isinstance(archive, str)
            if not archive["behind_epochs"] and not archive["topics_behind_epochs"]:  # type: ignore[index, call-overload]  # a map
                return
            await trio.sleep(0.02)


@pytest.mark.torture(long=True)
async def test_a_defect_at_any_line_of_a_task_for_tenants_ends_nothing_else(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zstandard", reason="the extra `archive` is not installed")
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(keeper, "PAUSES", (0.02, 0.1))
    archive = Archiving(tmp_path / "archive", seconds=0.1)
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", archive=archive)
    (address,) = await nursery.start(serve, config)
    url, world = parse_listen(address).url, World()
    proxy = Proxy(url)
    await nursery.start(proxy.run)
    await world.begin(url)
    seen = Striking(None, SOURCES, FENCES)
    await _live(world, url, proxy, seen)
    struck = 0
    for place in chosen(seen.places, 2):
        striking = Striking(place, SOURCES, FENCES)
        await _live(world, url, proxy, striking)
        struck += striking.has_struck
    assert struck > SAMPLES // 2
    with trio.fail_after(SOON):
        await _wait_archived(url)
