"""Daemons over one store lead two spaces: whatever is killed, stopped or moves, no promise is broken."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace.errors import Broken, Unreachable
from tests.server.processes import DaemonProcess, command, running
from tests.server.successions import Witness, witnessed

pytestmark = [pytest.mark.slow, pytest.mark.torture]

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
FAILOVERS = 10
SOON = 60
SPACES = ("main", "a")
NAMES = ("one", "two", "three")


@pytest.fixture
def daemons(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, DaemonProcess]]:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "1s")
    found = {}
    for name in NAMES:
        path = tmp_path / f"{name}.toml"
        path.write_text(f'cluster.name = "{name}"\n[spaces.a]\n')
        found[name] = DaemonProcess(postgres_url, "--config", str(path))
    with running(*found.values()):
        yield found


class Cluster:
    """Three daemons under load, and what befalls them, chosen by a seed."""

    def __init__(self, daemons: Mapping[str, DaemonProcess], seed: int) -> None:
        self.daemons: Final = daemons
        self.random: Final = random.Random(seed)
        self.witnesses: dict[str, Witness] = {}
        self.struck: list[str] = []

    async def run(self) -> None:
        """Lets ten strikes befall the leaders of both spaces."""
        urls = [each.url for each in self.daemons.values()]
        async with (
            witnessed(urls) as self.witnesses["main"],
            witnessed(urls, space="a") as self.witnesses["a"],
        ):
            for _ in range(FAILOVERS):
                await trio.sleep(self.random.uniform(0.0, 0.3))
                space, strike = self.random.choice(SPACES), self.random.choice([*STRIKES])
                self.struck.append(f"{strike} {space}")
                await STRIKES[strike](self, space)

    async def leader(self, space: str) -> str:
        """Returns the name of the daemon that leads a space, once one does."""
        while True:
            for name, each in self.daemons.items():
                with suppress(Unreachable, Broken):
                    async with dataspace.connect(each.url, space=space) as asked:
                        if (await asked.status())["leads"]:
                            return name
            await trio.sleep(0.05)

    async def both_answered(self) -> None:
        """Returns once both spaces have taken turns."""
        for each in self.witnesses.values():
            await each.answered()

    async def kill(self, space: str) -> None:
        daemon = self.daemons[await self.leader(space)]
        await trio.to_thread.run_sync(daemon.kill)
        await self.both_answered()
        await trio.to_thread.run_sync(daemon.start)

    async def end(self, space: str) -> None:
        daemon = self.daemons[await self.leader(space)]
        assert await trio.to_thread.run_sync(daemon.stop) == 0, daemon.errors
        await self.both_answered()
        await trio.to_thread.run_sync(daemon.start)

    async def stop(self, space: str) -> None:
        daemon = self.daemons[await self.leader(space)]
        daemon.process.send_signal(signal.SIGSTOP)
        await trio.sleep(self.random.uniform(0.5, 1.5))
        daemon.process.send_signal(signal.SIGCONT)
        await self.both_answered()

    async def kill_follower(self, space: str) -> None:
        leader = await self.leader(space)
        daemon = self.daemons[self.random.choice([name for name in NAMES if name != leader])]
        await trio.to_thread.run_sync(daemon.kill)
        await trio.to_thread.run_sync(daemon.start)

    async def move(self, space: str) -> None:
        """A space moves to any daemon; whether it gets there first does not matter, once it is led."""
        successor, store = self.random.choice(NAMES), self.daemons[NAMES[0]].place
        await command("cluster", "move", space, successor, "--data", store, "--within", "20s")
        await self.both_answered()

    async def kill_while_it_moves(self, space: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.move, space)
            await trio.sleep(self.random.uniform(0.3, 1.5))  # the command has to start
            await self.kill(space)


STRIKES: Final[Mapping[str, Callable[[Cluster, str], Awaitable[None]]]] = {
    "kill": Cluster.kill,
    "end": Cluster.end,
    "stop": Cluster.stop,
    "kill a follower of": Cluster.kill_follower,
    "move": Cluster.move,
    "kill while it moves": Cluster.kill_while_it_moves,
}


@pytest.mark.skipif(not ROUNDS, reason="tests/server/cluster has some leaders killed; make torture has 200")
@pytest.mark.parametrize("seed", range(1, 1 + max(1, 2 * ROUNDS // 5)))
async def test_no_promise_is_broken_in_either_space(daemons: dict[str, DaemonProcess], seed: int) -> None:
    cluster = Cluster(daemons, seed)
    try:
        with trio.fail_after(SOON * 4):
            await cluster.run()
    finally:
        print(seed, cluster.struck)
    for space in SPACES:
        done = await command("log", "verify", "--data", daemons["one"].place, "--space", space)
        assert done.returncode == 0, done.stdout
