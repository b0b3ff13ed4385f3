"""Rolling upgrades: the daemons of a cluster end one after the other, and come back in another version.

In the first round they go from the level before the latest to the latest, in the next one back, and so on;
after the last one, which goes to the latest, the level of the store is raised.

Always: as ``cluster_successions``.  Only clients that are broken off, or lose a lock, get an error; any other
error ends the run.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final

import trio

import dataspace
from dataspace.errors import Broken, Refused, Unreachable
from tests.server.processes import DaemonProcess
from tests.torture.cluster_successions import NAMES, ClusterSuccession
from tests.torture.successions import Strikes
from tests.upgrade.older import OLDER

NEWER: Final = ("-m", "dataspace")


class RollingUpgrade(ClusterSuccession):
    """Three daemons of one store, and clients that are there all the time."""

    def __init__(self, store: str, folder: Path, seed: int) -> None:
        super().__init__(store, folder, seed)
        for each in self._daemons:
            each.program = OLDER
        self.pauses: Final[list[float]] = []
        """The longest wait of a client for an answer, in seconds, in each restart."""
        self._begun: Final = trio.Event()
        self._longest = 0.0

    async def begin(self) -> None:
        await super().begin()
        self._begun.set()

    async def end(self) -> None:
        assert await self._upgrade(), "no older daemon is left"
        await super().end()

    async def _upgrade(self) -> bool:
        """Raises the level of the store, if no daemon is older; returns whether that could be."""
        return await self._ask("upgrade")

    async def _ask(self, *words: str) -> bool:
        """Runs a command about the cluster; returns whether it has succeeded."""
        command = [sys.executable, "-m", "dataspace", "cluster", *words, "--data", self._store]
        run = partial(trio.run_process, capture_stdout=True, capture_stderr=True, check=False)
        return (await run(command)).returncode == 0

    async def run_rounds(self, rounds: int) -> None:
        """Goes through rounds, with a client that measures how long it waits."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._measure)
            await self.run(rounds)
            nursery.cancel_scope.cancel()

    async def _measure(self) -> None:
        await self._begun.wait()
        async with dataspace.connect([each.url for each in self._daemons], grace=60) as space:
            while True:
                asked = monotonic()
                await space.put("measured", "at", asked)
                self._longest = max(self._longest, monotonic() - asked)
                await trio.sleep(0.005)

    async def restart_all(self) -> None:
        """Restarts each daemon in the other version, as an operator does, who drains some before."""
        program = NEWER if self._daemons[0].program == OLDER else OLDER
        for each in self.random.sample(self._daemons, len(self._daemons)):
            self._longest, name = 0.0, NAMES[self._daemons.index(each)]
            is_drained = self.random.random() < 0.5
            if is_drained:
                assert await self._ask("drain", name)
            assert await trio.to_thread.run_sync(each.stop) == 0, each.errors
            each.program = program
            await trio.to_thread.run_sync(each.start)
            await self._up_to_date(each)
            if is_drained:
                assert await self._ask("resume", name)
            await self._accepts()
            if OLDER in [other.program for other in self._daemons]:
                assert not await self._upgrade()
            self.pauses.append(self._longest)
        await self._pass_on()

    async def _up_to_date(self, daemon: DaemonProcess) -> None:
        """Returns once a daemon leads, or has all that its leader has on disk."""
        while True:
            with suppress(Unreachable, Broken, Refused):
                async with dataspace.connect(daemon.url, timeout=5) as asked:
                    status = await asked.status()
                if status["leads"] or status["lag_epochs"] == 0:
                    return
            await trio.sleep(0.05)

    LEADING: ClassVar[Strikes] = {"all, one after the other": restart_all}
    OTHERS: ClassVar[Strikes] = {}
