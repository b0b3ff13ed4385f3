"""A stage: a daemon in a process of its own, an innocent client, and measures of what that has to bear.

The innocent asserts and observes, one round trip after the other (``Innocent.trip``).  What a round trip
costs is measured in nanoseconds that the daemon's loop was *running* meanwhile, which other programs on the
machine do not change, and in bytes that attackers were served first; wall time goes into the report alone.
The log lies in memory where there is room: while a slow disk is waited for, the loop rightly serves others.

Always: connections of attackers are read while the innocent waits, so none hides behind its socket.
"""

from __future__ import annotations

import select
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataspace.kernel.actions import ASSERT, REPLACE
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Record, Value
from tests.abuse.lines import ELSEWHERE, HERE, PATIENCE, Client, Line
from tests.abuse.oracle import Oracle, Violation
from tests.server.processes import DaemonProcess

HELD: Final = 200_000_000
"""Nanoseconds of the daemon's loop that a round trip may take: 50 ms, at a quarter of the speed."""

SHARED_MEMORY: Final = Path("/dev/shm")
ROOM: Final = 4 << 30
"""Bytes that must be free there: more than the largest attack writes."""


def _has_room() -> bool:
    return SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free >= ROOM


@dataclass(slots=True)
class Trips:
    """What round trips of the innocent took: nanoseconds on the wall and of the daemon's loop, and bytes."""

    wall: list[int] = field(default_factory=list)
    loop: list[int] = field(default_factory=list)
    served: list[int] = field(default_factory=list)

    @property
    def worst(self) -> int:
        """Nanoseconds of the loop in the worst round trip."""
        return max(self.loop, default=0)

    def row(self) -> str:
        """Returns p50, p99 and maximum on the wall, and the maximum of the loop, in milliseconds."""
        ordered = sorted(self.wall) or [0]
        at = [
            ordered[len(ordered) // 2],
            ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
            ordered[-1],
        ]
        return " ".join(f"{each / 1e6:8.1f}" for each in (*at, self.worst))


class Stage:
    """One daemon and its innocent; ``with`` starts and stops it."""

    def __init__(
        self, place: Path, *, settings: str = "", token: str = "", options: Sequence[str] = ()
    ) -> None:
        """``settings`` are the text of a configuration, ``token`` that of the innocent, ``options`` further
        words of the command line."""
        place.mkdir(parents=True, exist_ok=True)
        config = place / "config.toml"
        config.write_text(settings)
        config.chmod(0o600)
        self.oracle = Oracle()
        self._data = tempfile.TemporaryDirectory(dir=SHARED_MEMORY if _has_room() else place)
        self.daemon = DaemonProcess(Path(self._data.name, "data"), "--config", str(config), *options)
        self.token = token
        self.trips = Trips()
        self.innocent: Innocent
        self.at_first = 0
        self._lines: list[Line] = []

    def __enter__(self) -> Self:
        self.daemon.start()
        try:
            self.innocent = Innocent(self)
        except BaseException:
            self.daemon.stop()
            self._data.cleanup()
            raise
        self.trip()
        self.trips = Trips()
        self.at_first = self.memory()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for each in (*self._lines, self.innocent.client):
            each.close()
        status = self.daemon.stop()
        self._data.cleanup()
        if kind is None:
            assert status == 0 and "Traceback" not in self.daemon.errors, self.daemon.errors[-4000:]

    @property
    def port(self) -> int:
        """Where the daemon listens."""
        return self.daemon.port

    def client(
        self, who: str, *, token: str = "", identity: str = "", source: str = HERE, **features: Value
    ) -> Client:
        """Returns a connection of an attacker that has said hello."""
        name = identity or f"~{who}"
        made = Client(self.port, self.oracle, who, token, client=name, source=source, **features)
        self._lines.append(made)
        return made

    def clients(self, who: str, count: int) -> list[Client]:
        """Returns so many connections of attackers."""
        return [self.client(f"{who}{number}") for number in range(count)]

    # -- measures --------------------------------------------------------------------------------------

    def memory(self) -> int:
        """Returns the bytes of memory that the daemon has."""
        text = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) << 10

    def grown(self) -> int:
        """Returns the bytes of memory by which the daemon has grown since the stage began."""
        return self.memory() - self.at_first

    def loop(self) -> int:
        """Returns the nanoseconds for which the daemon's loop has been running so far."""
        pid = self.daemon.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])

    def wait_given_back(self, most: int) -> None:
        """Returns once the daemon has grown by no more than so many bytes; makes round trips meanwhile."""
        until = time.monotonic() + PATIENCE
        while self.grown() > most:
            self.trip()
            if time.monotonic() > until:
                raise Violation(f"the daemon keeps {self.grown() >> 20} MiB more than it had")

    def trip(self, attackers: Sequence[Line] = ()) -> None:
        """Has the innocent make one round trip while the attackers' connections are read."""
        self.innocent.trip(attackers, self.trips)

    def trips_until(self, done: Sequence[tuple[Client, int]], *, least: int = 20, most: int = 20_000) -> None:
        """Makes round trips until each of these requests has its answer, and so many at least."""
        lines = [line for line, _ in done]
        for count in range(most):
            open_ = [line for line, number in done if not line.over and not _answered(line, number)]
            if not open_ and count >= least:
                return
            self.trip(lines)
        raise Violation(f"not answered after {most} round trips of the innocent")


def _answered(line: Line, number: int) -> bool:
    return any(
        (isinstance(each, p.Answer | p.Denied) and each.number == number)
        or (isinstance(each, p.Refusal) and each.sequence == number)
        or (isinstance(each, p.Accepted) and 0 <= number - each.first < len(each.epochs))
        for each in line.heard
    )


class Innocent:
    """A client that replaces a fact and observes it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.client = Client(
            stage.port, stage.oracle, "innocent", stage.token, client="~innocent", source=ELSEWHERE
        )
        self._number = 0
        self.client.turn((ASSERT, 0, Record("innocent", 0)))
        self._stream = self.client.open({"pattern": Record("innocent", capture("n")), "quiet": True})

    def trip(self, attackers: Iterable[Line], trips: Trips) -> None:
        """Replaces the fact; returns once that is accepted and observed."""
        client, stage, self._number = self.client, self._stage, self._number + 1
        client.sequence += 1
        action = (REPLACE, self._number - 1, self._number, Record("innocent", self._number))
        before, loop, served = time.perf_counter_ns(), stage.loop(), stage.oracle.received
        client.say(p.Turn(client.sequence, "main", "", (action,)))
        lines = [each for each in attackers if not each.over]
        while not self._done():
            _pump([client, *lines])
            lines = [each for each in lines if not each.over]
        trips.wall.append(time.perf_counter_ns() - before)
        trips.loop.append(stage.loop() - loop)
        trips.served.append(stage.oracle.received - served)
        client.heard.clear()

    def _done(self) -> bool:
        if self.client.over:
            raise Violation(f"the daemon has ended the innocent's connection: {self.client.heard[-3:]}")
        accepted = seen = False
        for each in self.client.heard:
            accepted |= isinstance(each, p.Accepted) and each.first == self.client.sequence
            seen |= isinstance(each, p.Values) and any(
                (self._number,) in value[3]  # type: ignore[index,operator]  # an epoch, as WIRE.md has it
                for value in each.values
            )
            if isinstance(each, p.Refusal):
                raise Violation(f"the innocent was refused: {each}")
        return accepted and seen


def _pump(lines: Sequence[Line]) -> None:
    """Waits until something has come for one of some connections, and receives it."""
    readable = select.select(lines, [], [], 120.0)[0]
    if not readable:
        raise Violation("the daemon has sent nothing for two minutes")
    for each in readable:
        each.receive()
