"""Kills a daemon under load again and again, and its clients, and their links; then counts what was struck.

    python -m tests.torture --kills 200 --seed 1

Daemons die at random instants and at every named point of the sources in turn; clients that hold facts die;
links are cut at random bytes all the while.  It ends with a history, which the validators of
``tests/guarantees`` judge, and a table of what was struck how often; it fails if a named point was never hit.

Always: the daemon that follows a dead one starts on what that left; what a seed chooses does not depend on
timing, though what comes of it does.
"""

from __future__ import annotations

import logging
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import trio

from dataspace import Record
from relay.log.reader import verify
from relay.space_registers import space_registers
from tests import warm
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy
from tests.torture.load import TOPIC, Load
from tests.torture.points import named_points

logger = logging.getLogger("torture")

RANDOM = "at a random instant"
CLIENT = "a client that holds facts"
LINK = "a link, at a random byte"

FLAGS = ("--keep-unread",)
"""So that old epochs go, all the while, once the observers have them."""

PATIENCE = 30.0
"""Seconds in which a named point must be reached."""


class Torture:
    """One data directory and all that happens to it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.daemon = DaemonProcess(directory, *FLAGS)
        self.random = random.Random(seed)
        self.seed = seed
        self.struck: Counter[str] = Counter(dict.fromkeys((RANDOM, *named_points(), CLIENT, LINK), 0))

    async def run(self, kills: int, clients: int, each_point: int = 1) -> Load:
        """So many kills of the daemon, each named point at least ``each_point`` times among them."""
        plan = [point for point in named_points() for _ in range(each_point)]
        plan += [RANDOM] * max(0, kills - len(plan)) + [CLIENT] * clients
        self.random.shuffle(plan)
        self.daemon.start()
        proxy = Proxy(self.daemon.url)
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            load = Load(self.daemon.url, proxy, self.seed, self.daemon.data)
            await load.weigh()
            await nursery.start(load.observe, proxy.url)
            for name, url in (("near", load.url), ("far", proxy.url)):
                nursery.start_soon(load.write, name, url)
            for task in (load.publish, load.stage, load.follow):
                nursery.start_soon(task, proxy.url)
            nursery.start_soon(load.acknowledge)
            with trio.fail_after(60):
                await load.everybody()
            cutting = trio.CancelScope()
            nursery.start_soon(load.cut, cutting)
            proxy.cut()
            for number, what in enumerate(plan):
                await self._strike(what, load, number)
            cutting.cancel()  # who is behind must get there
            with trio.move_on_after(120) as patience:
                await load.settle()
            assert not patience.cancelled_caught, f"not everything came to an end: {load.left()}"
            self.struck[LINK] = proxy.links - 1
            await trio.to_thread.run_sync(load.notes.read_topic, self.daemon.url, TOPIC)
            await trio.to_thread.run_sync(load.notes.read_log)
            nursery.cancel_scope.cancel()
        assert self.daemon.stop() == 0
        load.notes.read_log()
        assert verify(self.daemon.data, space_registers).damages == ()
        return load

    async def _strike(self, what: str, load: Load, number: int) -> None:
        logger.info("%d: %s; so far %s", number, what, load.statistics())
        if what == CLIENT:
            await self._kill_client(load, number)
        elif what == RANDOM:
            await trio.sleep(self.random.uniform(0.0, 0.3))
            await trio.to_thread.run_sync(self.daemon.kill)
            await trio.to_thread.run_sync(self.daemon.start)
        else:
            await self._kill_at(what, load)
        self.struck[what] += 1

    async def _kill_at(self, point: str, load: Load) -> None:
        """A daemon that kills itself at a named point, perhaps before it listens."""
        count = 1 if point.startswith(("snapshot", "trim")) else self.random.randint(1, 9)
        await trio.to_thread.run_sync(self.daemon.stop)
        try:
            await trio.to_thread.run_sync(lambda: self.daemon.start(fault=f"{point}:{count}"))
        except AssertionError as died:
            assert f"fault reached: {point}" in str(died), f"not at {point}: {died}"
        else:
            if point.startswith("snapshot"):
                with trio.move_on_after(PATIENCE):
                    await load.wait_for_news()
                self.daemon.process.send_signal(signal.SIGTERM)  # a good end writes one, if there is news
            with trio.move_on_after(PATIENCE):
                await trio.to_thread.run_sync(self.daemon.wait, abandon_on_cancel=True)
            assert f"fault reached: {point}" in self.daemon.errors, (
                f"{point} was not reached; {load.left()}: {self.daemon.errors[-800:]}"
            )
        await trio.to_thread.run_sync(self.daemon.start)

    async def _kill_client(self, load: Load, key: int) -> None:
        """A client that holds two facts, which come, and go when it is killed."""
        facts = [f'present({key}, "Alice")', f'present({key}, "Bob")']
        ended = frozenset(Record("present", key, who) for who in ("Alice", "Bob"))
        with tempfile.TemporaryFile("w+") as said:
            holder = await trio.to_thread.run_sync(
                lambda: warm.Popen(
                    [sys.executable, "-m", "dataspace", "assert", "--url", load.url, *facts], stderr=said
                )
            )
            try:
                with trio.move_on_after(60) as patience:
                    await load.wait_for(key, 1)
                    await trio.sleep(self.random.uniform(0.0, 0.1))
                status = holder.poll()
            finally:
                holder.kill()
                await trio.to_thread.run_sync(holder.wait)
            said.seek(0)
            assert not patience.cancelled_caught, (
                f"its facts were not seen; its end {status}: {said.read()!r}; {load.left()}"
            )
        with trio.move_on_after(60) as patience:
            await load.wait_for(key, 2)
        assert not patience.cancelled_caught, f"its end was not seen; {load.left()}"
        load.notes.history.ended.append(ended)

    def table(self) -> str:
        """What was struck, and how often."""
        return "\n".join(f"{what:<28} {count:>6}" for what, count in self.struck.items())

    def check(self) -> None:
        """Fails for what was never struck."""
        never = [what for what, count in self.struck.items() if not count]
        assert not never, f"never struck: {', '.join(never)}"
