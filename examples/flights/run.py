"""A run: the replay, the queries and the observer at work at once, until everything is counted and compared.

Spark's calls block, so they are made from threads; all else is trio.  The daemon is up before a run
begins and outlives it.

Always: Spark and the replay are stopped when the run ends, however it ends.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio
from pyspark.sql import SparkSession

from dataspace import DataspaceError, Record, Value, connect
from examples.flights import delays, history, queries, ruled
from examples.flights.check import Line, compared
from examples.flights.daemons import Daemons, HandOver
from examples.flights.display import Display, Progress
from examples.flights.expected import Figures, figures
from examples.flights.flights import MONTHS, read, time_of
from examples.flights.processes import Peak, Program
from examples.flights.queries import Watched

T = TypeVar("T")

_LOOK_EVERY: Final = 0.1
"""Seconds between two looks at how far everything is."""

KILLS: Final = 3
"""How often the leader is killed where others follow it: after each quarter of the replay but the last, in a
cluster at a random moment within it."""


class Failed(DataspaceError):
    """A part of the demo ended before its time; the message has its last words."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to.

    ``sent`` changes were made by the replay within ``replay_seconds``, of which Spark counted the ``rows``
    within ``seconds`` of the first turn; ``memory`` is the peak of a daemon in bytes; ``verdict`` and
    ``delays`` are about what rules derived, if the daemon holds any;
    ``hand_overs`` are the leaders that were killed;
    ``history`` has the answers from the archive, if there is one.
    """

    lines: list[Line]
    sent: int
    replay_seconds: float
    rows: int
    seconds: float
    memory: int
    verdict: ruled.Verdict | None = None
    delays: delays.Comparison | None = None
    hand_overs: Sequence[HandOver] = ()
    history: history.History | None = None

    @property
    def equal(self) -> bool:
        wrong = (self.verdict and self.verdict.wrong) or (self.history and not self.history.equal)
        late = self.delays is not None and not self.delays.equal
        return all(line.equal for line in self.lines) and not wrong and not late


class Run:
    """One run over the flights of the first ``months`` months (or of another ``file``), in ``folder``.

    With ``speed`` so many hours of flight time pass in a second, else it goes as fast as it can.  With
    ``rules``, which the daemons hold, there are travellers, and what is derived is judged.  Where one daemon
    leads and others follow, Spark and observers read from any, and the leader is killed again and again.  If
    the log is ``archived``, the daemons are stopped in the end, and the archive must give the same figures.
    """

    def __init__(
        self,
        folder: Path,
        daemons: Daemons,
        *,
        months: int = MONTHS,
        file: Path | None = None,
        speed: float | None = None,
        rules: bool = False,
        archived: bool = False,
    ) -> None:
        self._rules = rules
        self._archived = archived
        self._wanted: list[Record] = []
        self.folder = folder
        self.daemons = daemons
        self._hand_overs: list[HandOver] = []
        self._over = False
        self.progress = Progress()
        self._peak = Peak()
        self._months = months
        self._file = file
        arguments = ["--url", daemons.url, "--months", str(months)]
        arguments += ["--file", str(file)] if file else []
        arguments += ["--speed", str(speed)] if speed else []
        arguments += ["--delays"] if rules else []
        self._replay = Program("examples.flights.replay", *arguments, log=folder / "replay.log")

    async def run(self, display: Display) -> Outcome:
        """All of it; raises ``Failed`` if a part fails, and what Spark raises."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_daemon)
            expected = await _in_thread(self._expected)
            display.note("starting Spark")
            async with self._spark() as spark:
                streams = await _in_thread(self._start_queries, spark)
                await self._warm(streams)
                nursery.start_soon(self._observe)
                if self._rules:
                    started = trio.Event()
                    nursery.start_soon(partial(self._travel, started=started))
                    nursery.start_soon(ruled.watch, self.daemons.url, self.progress, self.daemons.read)
                    await started.wait()
                nursery.start_soon(self._show, display)
                sent, replay_seconds, seconds = await self._follow(streams, display)
                airborne = await self._airborne()
                for stream in streams:
                    await _in_thread(queries.stop, stream.query, self.folder)
                verdict = await ruled.judged(self.daemons.url, self.daemons.read) if self._rules else None
                late = await self._delays(spark) if self._rules else None
                found = await _in_thread(queries.figures, spark, self.daemons.sources, self.folder, airborne)
                answered = await self._from_archive(spark, expected, display)
            nursery.cancel_scope.cancel()
        display.end(self.progress)
        rows = min(stream.rows for stream in streams)
        lines = compared(expected, found)
        took = (sent, replay_seconds, rows, seconds)
        return Outcome(lines, *took, self._peak.bytes, verdict, late, self._hand_overs, answered)

    async def _delays(self, spark: SparkSession) -> delays.Comparison:
        """Returns how the windows of the rules compare with Spark's."""
        derived = await delays.derived(self.daemons.url, self.daemons.read)
        return derived.compared(await _in_thread(queries.delays, spark, self.daemons.sources))

    async def _from_archive(
        self, spark: SparkSession, expected: Figures, display: Display
    ) -> history.History | None:
        """Stops the daemons and asks the archive, if there is one."""
        if not self._archived:
            return None
        display.note("waiting until all is archived, and the log has let it go")
        kept = await history.settled(self.daemons.url)
        self._over = True
        await _in_thread(self.daemons.stop)
        display.note("the daemon is stopped; asking the archive")
        return await _in_thread(history.asked, spark, self.folder, kept, expected)

    async def _travel(self, started: trio.Event) -> None:
        await ruled.travel(self.daemons.url, self._wanted, started=started)

    def _expected(self) -> Figures:
        flights = read(self._months, self._file)
        flown = sum(flight.landed is not None for flight in flights)
        self._wanted = ruled.connections(flights)
        self.progress.changes, self.progress.rows = len(flights) + flown, 2 * flown
        return figures(flights)

    @asynccontextmanager
    async def _spark(self) -> AsyncIterator[SparkSession]:
        spark = await _in_thread(queries.session, self.folder)
        try:
            yield spark
        finally:
            with trio.CancelScope(shield=True):
                await _in_thread(queries.stop, spark, self.folder)

    def _start_queries(self, spark: SparkSession) -> list[Watched]:
        return [
            Watched(start(spark, self.daemons.sources, self.folder))
            for start in (queries.airborne, queries.kept)
        ]

    async def _warm(self, streams: list[Watched]) -> None:
        """Sends a message and waits until both queries have run a batch over it.

        An epoch without flights takes Spark through all that a batch needs, most of it for the first time.
        """
        async with connect(self.daemons.url, name="demo") as space:
            epoch = await space.send(Record("demo", "begins"))
        while min(stream.epoch for stream in streams) < epoch:
            await trio.sleep(_LOOK_EVERY)
            await _in_thread(self._look, streams)

    async def _follow(self, streams: list[Watched], display: Display) -> tuple[int, float, float]:
        """Replays until both queries have counted all; changes sent, and the seconds of both."""
        with self._replay:
            async with trio.open_nursery() as nursery:
                if len(self.daemons.all) > 1:
                    nursery.start_soon(self._kill_leaders, display)
                return await self._count(streams)

    async def _count(self, streams: list[Watched]) -> tuple[int, float, float]:
        report: dict[str, float] = {}
        began = 0.0
        while "epoch" not in report or min(stream.epoch for stream in streams) < report["epoch"]:
            await trio.sleep(_LOOK_EVERY)
            report = self._reported()
            began = began or (report and time.monotonic() - report["seconds"]) or 0.0
            await _in_thread(self._look, streams)
        return int(report["sent"]), report["seconds"], time.monotonic() - began

    async def _kill_leaders(self, display: Display) -> None:
        """Kills the leader in each quarter of the replay but the last, and lets it come back."""
        for kill in range(KILLS):
            share = (kill + (random.random() if self.daemons.in_store else 1)) / (KILLS + 1)
            while self.progress.replayed < self.progress.changes * share:  # noqa: ASYNC110
                await trio.sleep(_LOOK_EVERY)
            hand_over = await self._hand_over()
            display.note(str(hand_over))
            self._hand_overs.append(hand_over)

    async def _hand_over(self) -> HandOver:
        """Kills the leader and starts it again as soon as another one leads and takes turns."""
        async with connect(self.daemons.url, name="demo") as space:
            await space.send(Record("demo", "kills"))  # at the leader, wherever this client was before
            leads = int(str((await space.status())["process"]))
            percent = 100 * self.progress.replayed // self.progress.changes
            killed = self.daemons.kill(leads)
            began = time.monotonic()
            leader = await trio.to_thread.run_sync(self.daemons.wait_for_leader)
            led = time.monotonic() - began
            await space.send(Record("demo", "goes on"))
            taken = time.monotonic() - began
        await trio.to_thread.run_sync(self.daemons.revive)
        return HandOver(percent, killed.number, leader.number, led, taken)

    def _reported(self) -> dict[str, float]:
        """The replay's latest report, none at first; ``Failed`` if it ended before its end."""
        ended = self._replay.poll()
        said = [line for line in self._replay.said().splitlines(keepends=True) if line.endswith("}\n")]
        report: dict[str, float] = json.loads(said[-1]) if said else {}
        if ended is not None and "epoch" not in report:
            raise Failed(f"the replay ended with {ended}:\n{self._replay.said()[-2000:]}")
        if report:
            self.progress.replayed = int(report["replayed"])
            self.progress.at = time_of(int(report["at"])) if report["at"] else None
        return report

    def _look(self, streams: list[Watched]) -> None:
        for stream in streams:
            stream.look()
        self.progress.counted = min(stream.rows for stream in streams)

    async def _observe(self) -> None:
        """Keeps what Spark wrote back, as any observer of the daemon sees it."""
        async with (
            connect(self.daemons.url, name="display", read=self.daemons.read) as space,
            space.observe(queries.AIRBORNE, quiet=True) as changes,
        ):
            async for change in changes:
                _keep(self.progress.airborne, change.kind, change.captures)

    async def _airborne(self) -> dict[str, int]:
        """What stands in the daemon as written back, once."""
        standing: dict[str, int] = {}
        async with connect(self.daemons.url, name="check") as space:
            for captures in await space.matches(queries.AIRBORNE):
                _keep(standing, "+", captures)
        return standing

    async def _show(self, display: Display) -> None:
        while True:
            display.show(self.progress, time.monotonic())
            await trio.sleep(_LOOK_EVERY)

    async def _watch_daemon(self) -> None:
        """Looks at the daemons' memory until they are stopped; ``Failed`` if one ended by itself."""
        while not self._over:
            for daemon in self.daemons.living():
                if daemon.poll() is not None:
                    raise Failed(f"the daemon ended with {daemon.poll()}:\n{daemon.said()[-2000:]}")
                self.progress.memory = self._peak.look(daemon.pid)
            await trio.sleep(_LOOK_EVERY)


def _keep(airborne: dict[str, int], kind: str, captures: tuple[Value, ...]) -> None:
    """Takes in a change of ``airborne(origin, n)``; the new number comes before the old one goes."""
    match captures:
        case (str(origin), int(n)) if kind == "+":
            airborne[origin] = n
        case (str(origin), int(n)) if airborne.get(origin) == n:
            del airborne[origin]


async def _in_thread(call: Callable[..., T], *arguments: object) -> T:
    """A blocking call, left behind when the run is cancelled: Spark is stopped then, which ends it."""
    return await trio.to_thread.run_sync(partial(call, *arguments), abandon_on_cancel=True)
