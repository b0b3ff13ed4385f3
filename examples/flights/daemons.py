"""Daemons: the one that leads, and those that follow its log and stand by.

All are programs of their own over one data directory.  Clients get the addresses of all: commas are between
those of a client, bars between those of Spark, and Spark and the display read from any of them.  The leader
can be killed, as often as one likes: a stand-by leads then, and the killed daemon comes back as a follower.

Always: whatever was started here is gone when the ``with`` block ends, however it ends.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataspace import Unreachable
from examples.flights.processes import PATIENCE, Daemon

_LEADS: Final = re.compile(r"this daemon leads after ([\d.]+) s")


@dataclass(frozen=True, slots=True)
class HandOver:
    """A leader that was killed, and the next one, both by their numbers.

    ``led`` are the seconds from the kill until the next one led, ``taken`` those until it had taken a turn of
    a client that was connected before; ``percent`` of the replay was on disk at the kill.
    """

    percent: int
    killed: int
    leader: int
    led: float
    taken: float

    def __str__(self) -> str:
        killed = f"at {self.percent} % of the replay daemon {self.killed} was killed"
        led = f"daemon {self.leader} led after {self.led:.2f} s"
        return f"{killed}: {led}, a turn was taken after {self.taken:.2f} s"


class Daemons:
    """A daemon on a free port, and ``followers`` more over its log, each with the words ``more``."""

    def __init__(self, folder: Path, *more: str, followers: int = 0, inspected: bool = False) -> None:
        self.all: Final = [Daemon(folder, *more, inspected=inspected)]
        for number in range(2, 2 + followers):
            self.all.append(Daemon(folder, *more, number=number))
        self.leader = self.all[0]
        self._killed: Daemon | None = None
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for daemon in self.all:
                starting.enter_context(daemon)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def followers(self) -> Sequence[Daemon]:
        return [daemon for daemon in self.all if daemon is not self.leader]

    @property
    def url(self) -> str:
        """The addresses as a client takes them."""
        return ",".join([daemon.url for daemon in self.all])

    @property
    def sources(self) -> str:
        """The addresses as Spark takes them."""
        return "|".join([daemon.url for daemon in self.all])

    @property
    def read(self) -> str:
        """From which daemons is read."""
        return "any" if len(self.all) > 1 else "leader"

    def living(self) -> list[Daemon]:
        """The daemons that have not just been killed."""
        return [daemon for daemon in self.all if daemon is not self._killed]

    def kill_leader(self) -> None:
        """Kills the leader, without a moment to prepare for it."""
        self._killed = self.leader
        self.leader.kill()

    def wait_for_leader(self) -> None:
        """Returns once another one leads; raises ``Unreachable`` if none does."""
        end = time.monotonic() + PATIENCE
        standing_by = self.living()
        while not (leading := [each for each in standing_by if _LEADS.search(each.said())]):
            if time.monotonic() > end:
                raise Unreachable(f"no stand-by leads after {PATIENCE:g} s")
            time.sleep(0.005)
        self.leader = leading[-1]

    def revive(self) -> None:
        """Starts the killed daemon again, as a follower that stands by."""
        assert self._killed is not None, "none was killed"
        self._killed.follows = True
        self._killed.start()
        self._killed = None
