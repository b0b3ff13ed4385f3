"""Successions: leaders that end one after the other under load, and the followers that lead after them.

Three daemons have one data directory: one leads, one stands by, one only follows.  Leaders are killed, ended
in order, or stopped and killed while they are; followers are killed; each of them is stopped now and then,
and goes on.  All clients have the addresses of all daemons.

Always: each strike is followed by turns that the right process has accepted; what a seed chooses does not
depend on timing, though what comes of it does.
"""

from __future__ import annotations

import logging
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import trio

from relay.log.reader import LogReader, verify
from relay.space_registers import space_registers
from tests.guarantees.clients import TOPIC, Clients
from tests.guarantees.history import History
from tests.guarantees.notes import Notes
from tests.server.processes import DaemonProcess, follower, stand_by

logger = logging.getLogger("torture")

PATTERNS: Final = ("busy($who, $n)", "borrowed($n)", "shared($k)", "said($who, $n)", "twice($k)")

SOON: Final = 60.0
"""Seconds in which a turn is accepted after a strike, and all is shown in the end."""

PASSES: Final = 100
"""Passes of the loop in which clients take in what a process has sent before its end."""

SEEN: Final = 20
"""Turns that are accepted after each strike."""

Strikes: TypeAlias = dict[str, Callable[[Any], Awaitable[None]]]
"""What befalls the daemons of a succession, by name."""


class Successions(Clients, ABC):
    """Three daemons with one log under load; ``history`` is whole after ``run``."""

    leader: DaemonProcess
    """The daemon that leads now."""

    LEADING: ClassVar[Strikes]
    """The strikes that end a leader, which a succession is; the first is struck most."""

    OTHERS: ClassVar[Strikes]
    """The strikes that do not."""

    def __init__(
        self,
        log: Path | Callable[[], LogReader],
        daemons: tuple[DaemonProcess, DaemonProcess, DaemonProcess],
        seed: int,
    ) -> None:
        super().__init__(Notes(log, self._process_at), seed)
        self._daemons: Final = daemons
        self.struck: Counter[str] = Counter()
        self.promotions = 0

    @abstractmethod
    async def begin(self) -> None:
        """Starts the daemons."""

    @abstractmethod
    async def end(self) -> None:
        """Ends the daemons in order, and checks the log."""

    @classmethod
    def strikes(cls) -> Strikes:
        """Returns all strikes; each ends once turns were accepted since then."""
        return {**cls.LEADING, **cls.OTHERS}

    def _plan(self, promotions: int) -> list[str]:
        plan = [name for name in self.LEADING for _ in range(promotions // len(self.LEADING))]
        plan += [next(iter(self.LEADING))] * (promotions - len(plan))
        plan += [name for name in self.OTHERS for _ in range(promotions // 5)]
        self.random.shuffle(plan)
        return plan

    def _process_at(self, url: str) -> str:
        return next(f"{url} {each.process.pid}" for each in self._daemons if each.url == url)

    async def run(self, promotions: int) -> History:
        """Has the leadership pass on so many times, with as many strikes between that change no leader."""
        plan = self._plan(promotions)
        await self.begin()
        async with trio.open_nursery() as nursery:
            urls = [",".join(each.url for each in order) for order in self._orders()]
            await self.add_rule(urls[0])
            for at, pattern in enumerate(PATTERNS):
                await nursery.start(self.observe, urls[at % 3], pattern)
            async with trio.open_nursery() as passing:
                passing.start_soon(self.publish, urls[0])
                passing.start_soon(self.follow, urls[1])
                for at, name in enumerate(("Alice", "Bob")):
                    passing.start_soon(self.lock, urls[at], name)
                    passing.start_soon(self.keep, urls[at + 1], ("near", "far")[at])
                await self._wait(lambda: self._followed() > 0)  # before that a publisher gives up
                async with trio.open_nursery() as writers:
                    writers.start_soon(self.write, urls[0], "Alice")
                    writers.start_soon(self.write, urls[2], "Bob")
                    for at in range(2):
                        writers.start_soon(self.glance, urls[at + 1], f"Carol{at}")
                    writers.start_soon(self.break_off, lambda: self.leader.url)
                    for number, what in enumerate(plan):
                        logger.info("%d: %s, at epoch %d", number, what, self.notes.answered)
                        await trio.sleep(self.random.uniform(0.0, 0.2))
                        await self.strikes()[what](self)
                        self.struck[what] += 1
                    self.stopping = True
                await self._wait(lambda: len(self.history.lock.grants) > promotions)
                await self._wait(lambda: all(each.returns for each in self.history.graced))
                sent = len(self.history.topics[TOPIC].sent) // 2
                await self._wait(lambda: self._followed() >= sent)
                passing.cancel_scope.cancel()
            await self._wait(lambda: self._returned() == self.promotions)
            await self.mark(urls[0])
            with trio.fail_after(SOON):
                await self.notes.wait_shown()
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(self.notes.read_topic, self.leader.url, TOPIC)
        await self.end()
        await trio.to_thread.run_sync(self.notes.read_log)
        return self.history

    def _orders(self) -> list[tuple[DaemonProcess, ...]]:
        first, second, third = self._daemons
        return [(first, second, third), (second, third, first), (third, first, second)]

    def _followed(self) -> int:
        """Returns how many epochs of the topic its subscriber was shown."""
        topic = self.history.topics.get(TOPIC)
        return len(topic.seen["far"].epochs) if topic is not None and topic.seen else 0

    def _returned(self) -> int:
        """Returns how many leases have ended."""
        return sum(len(each.removed) for each in self.history.views["borrowed($n)"].epochs)

    async def _wait(self, reached: Callable[[], bool]) -> None:
        with trio.fail_after(SOON):
            while not reached():
                await self.notes.wait_changed()


class Succession(Successions):
    """The daemons of one data directory: one leads, one stands by, one only follows."""

    def __init__(self, directory: Path, seed: int) -> None:
        daemons = DaemonProcess(directory), stand_by(directory), follower(directory)
        super().__init__(directory, daemons, seed)
        self._directory = directory
        self.leader, self.stand_by, self.follower = daemons
        self._standing_by: Final = self.stand_by.more

    async def begin(self) -> None:
        for each in self._daemons:
            await trio.to_thread.run_sync(each.start)
        self._leads()

    async def end(self) -> None:
        for each in (self.follower, self.stand_by, self.leader):
            assert await trio.to_thread.run_sync(each.stop) == 0, each.errors
        assert verify(self._directory, space_registers).damages == ()

    def _leads(self) -> None:
        """Notes which process leads now."""
        self.history.leaders[self._process_at(self.leader.url)] = self.promotions

    async def _accepts(self, daemon: DaemonProcess) -> None:
        """Returns once some turns more were accepted, and by this process."""
        process = self._process_at(daemon.url)
        turns = self.history.turns
        enough = sum(1 for turn in turns if turn.at == process) + SEEN
        await self._wait(lambda: sum(1 for turn in turns if turn.at == process) >= enough)

    # -- strikes that end a leader ----------------------------------------------------------------------

    async def kill_leader(self) -> None:
        """The leader is killed at a random instant."""
        await self._end(self.leader)
        await self._pass_on()

    async def end_leader(self) -> None:
        """The leader ends in order."""
        assert await trio.to_thread.run_sync(self.leader.stop) == 0, self.leader.errors
        await self._pass_on()

    async def kill_stopped_leader(self) -> None:
        """The leader is killed while it is stopped, and leads for as long as that."""
        self.leader.process.send_signal(signal.SIGSTOP)
        await trio.sleep(self.random.uniform(0.0, 0.5))
        await self._end(self.leader)
        await self._pass_on()

    async def _pass_on(self) -> None:
        self.promotions += 1
        self.leader, self.stand_by = self.stand_by, self.leader
        self._leads()
        await self._accepts(self.leader)
        self.stand_by.more = self._standing_by
        await trio.to_thread.run_sync(self.stand_by.start)
        await self.borrow(self.leader.url, self.promotions)

    # -- strikes that do not ------------------------------------------------------------------------------

    async def stop_leader(self) -> None:
        """The leader is stopped, and leads when it goes on."""
        await self._stop(self.leader)
        await self._accepts(self.leader)

    async def stop_follower(self) -> None:
        """A follower is stopped, and goes on."""
        await self._stop(self.random.choice((self.follower, self.stand_by)))

    async def kill_follower(self) -> None:
        """A follower is killed, and started anew."""
        daemon = self.random.choice((self.follower, self.stand_by))
        await self._end(daemon)
        await trio.to_thread.run_sync(daemon.start)

    async def _stop(self, daemon: DaemonProcess) -> None:
        daemon.process.send_signal(signal.SIGSTOP)
        await trio.sleep(self.random.uniform(0.0, 0.6))
        daemon.process.send_signal(signal.SIGCONT)

    async def _end(self, daemon: DaemonProcess) -> None:
        await trio.to_thread.run_sync(daemon.kill)
        for _ in range(PASSES):  # else an answer of this process might be noted for the next one there
            await trio.lowlevel.checkpoint()

    LEADING: ClassVar[Strikes] = {
        "a leader, killed": kill_leader,
        "a leader, ended in order": end_leader,
        "a leader, killed while it was stopped": kill_stopped_leader,
    }
    OTHERS: ClassVar[Strikes] = {
        "a leader, stopped for a while": stop_leader,
        "a follower, stopped for a while": stop_follower,
        "a follower, killed": kill_follower,
    }
