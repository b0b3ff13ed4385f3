"""A lock has one holder, and a store sees its tokens in order, whatever is stopped, killed or cut."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from tests.model.locks import LockHistory, lock_violations
from tests.server.coordination import worker
from tests.server.coordination.histories import Store, read_notes
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy, Way

TTL: Final = 0.4
WORKERS: Final = 3
ROUNDS: Final = 20
"""Faults in the short form, one a round."""

LONG_ROUNDS: Final = 100
"""Faults in each history of the long form; ``TORTURE_ROUNDS`` says how many histories."""

AT_ONCE: Final = 5


class Crew:
    """Workers in processes of their own, each behind a proxy, and what disturbs them."""

    def __init__(self, daemon: DaemonProcess, folder: Path, chance: random.Random) -> None:
        self.daemon = daemon
        self.folder = folder
        self.chance = chance
        self.proxies: list[Proxy] = []
        self.started = 0
        self.workers: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, at: int) -> None:
        self.started += 1
        name = f"worker-{self.started}"
        words = [worker.__file__, self.proxies[at].url, name, str(self.folder), str(TTL)]
        path = os.pathsep.join(sys.path)
        process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
        )
        self.workers[at : at + 1] = [(name, process)]

    async def disturb(self, fault: str) -> None:
        at = self.chance.randrange(WORKERS)
        process, proxy = self.workers[at][1], self.proxies[at]
        pause = TTL * self.chance.choice((0.3, 0.9, 1.5))
        match fault:
            case "stop":
                process.send_signal(signal.SIGSTOP)
                await trio.sleep(pause)
                process.send_signal(signal.SIGCONT)
            case "cut":
                proxy.cut()
            case "silence":
                proxy.silent = True
                await trio.sleep(pause)
                proxy.silent = False
                proxy.cut()
            case "up" | "down":
                await self._hold(proxy, fault, pause)
            case "kill":
                process.kill()
                process.communicate()
                self.start(at)
            case _:
                self.daemon.kill()
                await trio.sleep(pause / 3)
                await trio.to_thread.run_sync(self.daemon.start)
        await trio.sleep(TTL * 0.3)

    async def _hold(self, proxy: Proxy, way: Way, pause: float) -> None:
        """Lets one direction be dead; then all that was held arrives late, or is lost with its link."""
        proxy.hold(way)
        await trio.sleep(pause)
        if self.chance.random() < 0.5:
            proxy.cut()
        proxy.open(way)

    def end(self) -> None:
        for _, process in self.workers:
            process.send_signal(signal.SIGCONT)
            process.communicate()


@asynccontextmanager
async def crew(folder: Path, seed: int) -> AsyncIterator[Crew]:
    daemon = DaemonProcess(folder / "data")
    await trio.to_thread.run_sync(daemon.start)
    try:
        async with trio.open_nursery() as nursery:
            made = Crew(daemon, folder, random.Random(seed))
            made.proxies = [Proxy(daemon.url) for _ in range(WORKERS)]
            for at, proxy in enumerate(made.proxies):
                await nursery.start(proxy.run)
                made.start(at)
            try:
                yield made
            finally:
                made.end()
                nursery.cancel_scope.cancel()
    finally:
        daemon.stop()


async def recorded(crew: Crew) -> LockHistory:
    """All that has happened."""
    history = LockHistory(writes=Store(crew.folder / "store").writes())
    read_notes(crew.folder.glob("*.notes"), history)
    async with dataspace.connect(crew.daemon.url) as space:
        upto = await space.sync()
        async with space.observe(
            'lock("store", $who, $term)', after=0, upto=upto, quiet=True, durable=True
        ) as past:
            async for epoch in past.epochs():
                history.facts.append((epoch.number, list(epoch.added), list(epoch.removed)))
    return history


async def play(folder: Path, seed: int, faults: list[str]) -> LockHistory:
    async with crew(folder, seed) as made:
        for fault in faults:
            await made.disturb(fault)
        async with dataspace.connect(made.daemon.url, name="last") as space:
            with trio.fail_after(60):  # far beyond what it takes: once the faults end the lock is free again
                async with space.elect("store", "last"):
                    pass
        made.end()
        return await recorded(made)


def judge(history: LockHistory) -> None:
    assert lock_violations(history) == []
    tokens = {each.token for each in history.writes if each.accepted}
    assert len(tokens) > 10 and len({each.client for each in history.grants}) >= WORKERS


@pytest.mark.slow
async def test_a_lock_has_one_holder_whatever_is_stopped_killed_or_cut(tmp_path: Path) -> None:
    faults = (
        ["stop"] * 6 + ["cut"] * 3 + ["silence"] * 2 + ["up"] * 3 + ["down"] * 3 + ["kill"] * 2 + ["restart"]
    )
    assert len(faults) == ROUNDS
    random.Random(1).shuffle(faults)
    judge(await play(tmp_path, 1, faults))


@pytest.mark.torture
@pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="a hundred faults each, for make torture")
@pytest.mark.parametrize("first", range(0, int(os.environ.get("TORTURE_ROUNDS", "1")), AT_ONCE))
async def test_a_lock_has_one_holder_for_long(tmp_path: Path, first: int) -> None:
    """Several crews at once, each with a daemon, a seed and a history of its own: mostly they wait."""
    last = min(first + AT_ONCE, int(os.environ["TORTURE_ROUNDS"]))
    async with trio.open_nursery() as nursery:
        for seed in range(first, last):
            (tmp_path / str(seed)).mkdir()
            nursery.start_soon(_long, tmp_path / str(seed), seed)


async def _long(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = (
        ["stop"] * 6
        + ["cut"] * 3
        + ["silence"] * 3
        + ["up"] * 3
        + ["down"] * 3
        + ["kill"] * 2
        + ["restart"] * 2
    )
    judge(await play(folder, seed, [chance.choice(kinds) for _ in range(LONG_ROUNDS)]))
