"""A machine: what several daemons on it share beside the network and the disk.

Locks of directories, which a process loses with its end; the socket of a leader in its directory, in whose
place it listens on a port of the simulated network; datagrams, which arrive in the instant in which they are
sent, unless there are too many.

Always: a process that is stopped keeps its locks, and one that is dead has none.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self, TypeAlias
from unittest.mock import patch

import trio

from relay.journal.journal import Journal
from relay.journal.reader import JournalReader
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.store.staging import Staging
from server.cluster.directory import followers, home as directory
from server.cluster.directory.lock import DataInUse
from server.spaces.roles import Followed
from server.spaces.space import HostedSpace
from server.topics.durable import Recovered
from server.topics.part import DaemonTopics
from tests.relay.store.memory import MemoryChains, MemoryStaged
from tests.simulation.hosts import Host, here
from tests.simulation.network import Count, Network, Socket
from tests.simulation.occurrences import Occurrence

FOLLOWERS_PORT: Final = 1
"""Where a daemon listens in place of a socket in its directory."""

MOST_WAITING: Final = 10
"""Datagrams that wait in a socket, as with Linux."""

Led: TypeAlias = Callable[[str, int, int, bool], None]


class Machine:
    """The locks and the sockets for datagrams of one machine."""

    def __init__(self, count: Count) -> None:
        self.count: Final = count
        self.holders: Final[dict[Path, Host]] = {}
        """By directory, the process that holds it."""
        self.boxes: Final[dict[str, Mailbox]] = {}

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


class Mailbox:
    """A socket for datagrams, as trio has them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._place = ""
        self._waiting = 0
        self._lot = trio.lowlevel.ParkingLot()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._machine.boxes.get(self._place) is self:
            del self._machine.boxes[self._place]

    async def bind(self, place: str) -> None:
        """Takes what is sent there, until the process ends."""
        await trio.lowlevel.checkpoint()
        self._place = place
        self._machine.boxes[place] = self
        _present().at_death.append(lambda _power: self._close())

    def put(self) -> bool:
        """Takes a datagram; False if there is no room."""
        if self._waiting == MOST_WAITING:
            return False
        self._waiting += 1
        self._lot.unpark()
        return True

    async def recv(self, _most: int) -> bytes:
        """Returns the next datagram."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            await self._lot.park()
        self._waiting -= 1
        return b""


class _Sender:
    """A socket from which datagrams are sent."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def sendto(self, data: bytes, place: str) -> int:
        """Sends one; raises as sockets do."""
        box = self._machine.boxes.get(place)
        if _present().is_dead:
            return len(data)  # which goes nowhere
        if box is None:
            raise ConnectionRefusedError
        if not box.put():
            self._machine.count(Occurrence.UNHEARD)
            raise BlockingIOError
        return len(data)

    def close(self) -> None:
        """Sends nothing more."""


class Stream:
    """A stream of trio over a socket of the simulated network."""

    def __init__(self, end: Socket) -> None:
        self._end = end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.notify_closing()
        self._end.close()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()

    async def send_all(self, data: bytes | bytearray) -> None:
        """Sends all of it."""
        await trio.lowlevel.checkpoint()
        left = bytearray(data)
        while left:
            try:
                del left[: self._end.send(left)]
            except BlockingIOError:
                await self._end.wait_writable()
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def receive_some(self) -> bytes:
        """Returns some bytes, none at the end."""
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self._end.recv(1 << 16)
            except BlockingIOError:
                await self._end.wait_readable()
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error


def _present() -> Host:
    host = here()
    assert host is not None  # all work is of a host
    return host


@contextlib.contextmanager
def one_machine(machine: Machine, network: Callable[[], Network], led: Led) -> Iterator[None]:
    """Has daemons meet each other on a machine.

    ``led`` is called when one begins to lead, with the space, the term and the first epoch of that, and
    whether it has followed before.
    """

    async def open_unix_socket(_place: str) -> Stream:
        return Stream(await network().connect("", FOLLOWERS_PORT))

    def locked(place: Path) -> Lock:
        return Lock(machine, place)

    really_lead, really_open = HostedSpace._begin_leading, DaemonTopics.open

    def lead(self: HostedSpace, log: Log, staging: Staging, before: Followed | None) -> None:
        led(self.name, log.term, log.next_epoch, before is not None)
        really_lead(self, log, staging, before)
        data = self.settings.data
        assert isinstance(data, Path)
        (data / LogReader.FILE).touch()  # followers look for it

    def open_topics(self: DaemonTopics, journal: Journal, found: Recovered) -> None:
        really_open(self, journal, found)
        (directory.directory_of(self._daemon.config) / JournalReader.FILE).touch()

    sockets: Any = SimpleNamespace(
        socket=lambda *_: _Sender(machine),
        AF_UNIX=socket.AF_UNIX,
        SOCK_DGRAM=socket.SOCK_DGRAM,
        SOCK_NONBLOCK=socket.SOCK_NONBLOCK,
    )
    with (
        patch.object(directory, "locked", locked),
        patch.object(followers, "socket", sockets),
        patch.object(trio.socket, "socket", lambda *_: Mailbox(machine)),
        patch.object(trio, "open_unix_socket", open_unix_socket),
        patch.object(directory, "SqliteStaged", MemoryStaged),
        patch.object(directory, "has_tables", Path.exists),  # the tables are in memory, the file is empty
        patch.object(HostedSpace, "_begin_leading", lead),
        patch.object(DaemonTopics, "open", open_topics),
    ):
        yield
