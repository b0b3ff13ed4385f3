"""A machine: what several daemons on it share beside the network and the disk.

Locks of directories, which a process loses with its end; the socket of a leader in its directory, in whose
place it listens on a port of the simulated network.

Always: a process that is stopped keeps its locks, and one that is dead has none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, TypeAlias
from unittest.mock import patch

from relay.journal.journal import Journal
from relay.journal.reader import JournalReader
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.store.lock import DataInUse
from relay.store.staging import Staging
from server.cluster.directory import home as directory
from server.spaces.roles import Followed
from server.spaces.space import HostedSpace
from server.topics.durable import Recovered
from server.topics.part import DaemonTopics
from tests.relay.store.memory import MemoryChains, MemoryStaged
from tests.simulation.hosts import Host, here

FOLLOWERS_PORT: Final = 1
"""Where a daemon listens in place of a socket in its directory."""

Led: TypeAlias = Callable[[str, int, int, bool], None]


class Machine:
    """The locks of one machine."""

    def __init__(self) -> None:
        self.holders: Final[dict[Path, Host]] = {}
        """By directory, the process that holds it."""

    def free(self, directory: Path, host: Host) -> None:
        """Frees a directory if a process holds it."""
        if self.holders.get(directory) is host:
            del self.holders[directory]


class Lock:
    """In place of ``locked``."""

    def __init__(self, machine: Machine, directory: Path) -> None:
        self._machine = machine
        self._directory = directory

    def __enter__(self) -> None:
        machine, directory, host = self._machine, self._directory, _present()
        if directory in machine.holders or host.is_dead:
            raise DataInUse(f"{directory} is in use")
        directory.mkdir(parents=True, exist_ok=True)
        machine.holders[directory] = host
        host.at_death.append(lambda _power: machine.free(directory, host))
        for path, memory in MemoryChains.memories.items():
            if path.parent == directory:
                memory.crash()  # whatever failed did so for the process before

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._machine.free(self._directory, _present())


def _present() -> Host:
    host = here()
    assert host is not None  # all work is of a host
    return host


@contextlib.contextmanager
def one_machine(machine: Machine, led: Led) -> Iterator[None]:
    """Has daemons meet each other on a machine.

    ``led`` is called when one begins to lead, with the space, the term and the first epoch of that, and
    whether it has followed before.
    """

    def locked(place: Path) -> Lock:
        return Lock(machine, place)

    really_lead, really_open = HostedSpace._begin_leading, DaemonTopics.open

    def lead(
        self: HostedSpace, log: Log, staging: Staging, before: Followed | None, unsaved: int = 0
    ) -> None:
        led(self.name, log.term, log.next_epoch, before is not None)
        really_lead(self, log, staging, before, unsaved)
        data = self.settings.data
        assert isinstance(data, Path)
        (data / LogReader.FILE).touch()  # followers look for it

    def open_topics(self: DaemonTopics, journal: Journal, found: Recovered) -> None:
        really_open(self, journal, found)
        (directory.directory_of(self._daemon.config) / JournalReader.FILE).touch()

    with (
        patch.object(directory, "locked", locked),
        patch.object(directory, "SqliteStaged", MemoryStaged),
        patch.object(directory, "has_tables", Path.exists),  # the tables are in memory, the file is empty
        patch.object(HostedSpace, "_begin_leading", lead),
        patch.object(DaemonTopics, "open", open_topics),
    ):
        yield
