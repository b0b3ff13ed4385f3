"""Daemons: the one that leads, and those that follow its log and stand by.

All are programs of their own over one data directory, or over one store in PostgreSQL.  Clients get the
addresses of all: commas are between those of a client, bars between those of Spark, and Spark and the display
read from any of them.  The leader can be killed, as often as one likes: a stand-by leads then, and the killed
daemon comes back as a follower.

Always: whatever was started here is gone when the ``with`` block ends, however it ends.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataspace import Unreachable
from examples.flights.processes import PATIENCE, Daemon

_LEADS: Final = re.compile(r"the leader has ended, this daemon leads ")


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
    """A daemon on a free port, and ``followers`` more over its log, each with the words ``more`` and
    the variables of ``environment``.

    Their log is in ``store``, if that is the address of one, else in a directory.
    """

    def __init__(
        self,
        folder: Path,
        *more: str,
        followers: int = 0,
        store: str = "",
        inspected: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.all: Final = [Daemon(folder, *more, store=store, inspected=inspected)]
        for number in range(2, 2 + followers):
            self.all.append(Daemon(folder, *more, store=store, number=number))
        for each in self.all:
            each.environment.update(environment or {})
        self.in_store: Final = bool(store)
        self._killed: Daemon | None = None
        self._led: dict[Daemon, int] = {}
        """How often each other daemon had begun to lead when the last leader was killed."""
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
        self.stop()

    def stop(self) -> None:
        """Stops all that run."""
        self._running.close()

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

    def kill(self, pid: int) -> Daemon:
        """Kills the daemon of a process, which leads, without a moment to prepare for it; returns it."""
        killed = self._killed = next(daemon for daemon in self.all if daemon.pid == pid)
        self._led = {daemon: _times_led(daemon) for daemon in self.living()}
        killed.kill()
        return killed

    def wait_for_leader(self) -> Daemon:
        """Returns the next daemon that leads, once it does; raises ``Unreachable`` if none does."""
        end = time.monotonic() + PATIENCE
        while not (leading := [each for each, before in self._led.items() if _times_led(each) > before]):
            if time.monotonic() > end:
                raise Unreachable(f"no stand-by leads after {PATIENCE:g} s")
            time.sleep(0.005)
        return leading[0]

    def revive(self) -> None:
        """Starts the killed daemon again, as a follower that stands by."""
        assert self._killed is not None, "none was killed"
        self._killed.follows = True
        self._killed.start()
        self._killed = None


def _times_led(daemon: Daemon) -> int:
    """Returns how often a daemon has begun to lead after another one, since it was started."""
    return len(_LEADS.findall(daemon.said()))
