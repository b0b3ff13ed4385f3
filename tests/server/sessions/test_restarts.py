"""A restart of the daemon is invisible to clients with grace: nothing of theirs goes or comes twice."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
import trio

import dataspace
from dataspace import ConnectionChange, Record
from dataspace.client.bulk.client import BulkClient
from index.patterns.text import parse_pattern
from index.values.values import Value
from tests.server.processes import DaemonProcess

pytestmark = [pytest.mark.slow, pytest.mark.torture]

GRACE: Final = 60.0
PATIENCE: Final = 40.0
"""Seconds in which a client has heard what it has said."""
CLIENTS: Final = 4
ROUNDS: Final = 10 if "TORTURE_ROUNDS" in os.environ else 3

Seen = list[tuple[str, tuple[Value, ...]]]


class Kept:
    """A client with grace: a fact that stays, an interest, and messages one after another."""

    def __init__(self, url: str, number: int) -> None:
        self.url = url
        self.number = number
        self.changes: list[ConnectionChange] = []
        self.told = 0
        self.heard: Seen = []

    async def run(
        self, until: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with dataspace.connect(
            self.url, grace=GRACE, on_connection=lambda event: self.changes.append(event.change)
        ) as space:
            await space.assert_(Record("here", self.number))
            async with space.observe(f"told({self.number}, $n)", durable=True) as heard:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_take, heard, self.heard)
                    while not until.is_set():
                        await space.send(Record("told", self.number, self.told))
                        self.told += 1
                        if self.told == 1:  # an observation of which nothing has come begins anew elsewhere
                            await _until(lambda: bool(self.heard))
                            task_status.started()
                    with trio.move_on_after(PATIENCE):
                        await _until(lambda: len(self.heard) >= self.told)
                    heard_of = [n for _, (n,) in self.heard]
                    assert heard_of == [*range(self.told)], f"{self.number} of {self.changes}"
                    nursery.cancel_scope.cancel()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # several tasks see to it
        await trio.sleep(0.01)


def _has_told(client: Kept, most: int) -> bool:
    return client.told >= most


async def _take(seen: dataspace.Observation, into: Seen) -> None:
    async for change in seen:
        into.append((change.kind, change.captures))


async def _watch(url: str, pattern: str, into: Seen, grace: float) -> None:
    async with dataspace.connect(url, grace=grace) as space:
        await _take(space.observe(pattern, quiet=True, durable=True), into)


async def _restart(daemon: DaemonProcess, how: str) -> None:
    if how == "kill":
        await trio.to_thread.run_sync(daemon.kill)
    else:
        assert await trio.to_thread.run_sync(daemon.stop) == 0
    await trio.to_thread.run_sync(daemon.start)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_nothing_blinks_under_load(how: str, tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    await trio.to_thread.run_sync(daemon.start)
    clients = [Kept(daemon.url, number) for number in range(CLIENTS)]
    over, random = trio.Event(), Random(how)
    watched: dict[tuple[str, float], Seen] = {
        (pattern, grace): [] for pattern in ("here($n)", "Observe($p)") for grace in (0.0, GRACE)
    }
    with trio.fail_after(120):
        async with trio.open_nursery() as watching:
            async with trio.open_nursery() as nursery:
                for each in clients:
                    await nursery.start(each.run, over)
                for (pattern, grace), seen in watched.items():
                    watching.start_soon(_watch, daemon.url, pattern, seen, grace)
                for _ in range(ROUNDS):
                    await trio.sleep(random.uniform(0.1, 0.5))
                    await _restart(daemon, how)
                    for each in clients:
                        await _until(partial(_has_told, each, each.told + 3))
                over.set()
            await _until(lambda: all(len(seen) >= 2 * CLIENTS for seen in watched.values()))
            watching.cancel_scope.cancel()
    for seen in watched.values():
        assert [kind for kind, _ in seen] == ["+"] * CLIENTS + ["-"] * CLIENTS
        assert set(Counter(captures for _, captures in seen).values()) == {2}
    for each in clients:
        assert each.heard == [("!", (n,)) for n in range(each.told)]
        assert set(each.changes[1:]) == {ConnectionChange.LOST, ConnectionChange.RESUMED}
    _check_log(daemon.url, clients)
    assert daemon.stop() == 0


def _check_log(url: str, clients: list[Kept]) -> None:
    """Each turn is in the log once, and what sessions held changed when they came and when they left."""
    with BulkClient(url) as link:
        newest = link.frontier().epoch
        said = [
            row
            for part in link.changes(parse_pattern("told($who, $n)"), after=0, upto=newest)
            for row in part.messages
        ]
        held = [
            (len(part.added), len(part.removed))
            for part in link.changes(parse_pattern("here($n)"), after=0, upto=newest)
        ]
    assert sorted(said) == [(each.number, n) for each in clients for n in range(each.told)]
    assert [part[0] for part in held if part[0]] == [1] * CLIENTS, "they came one by one"
    assert sum(part[1] for part in held[CLIENTS:]) == CLIENTS, "and went in the end, some together"
