"""A network in memory: sockets that delay, split, stop and lose what is sent, as their seed says.

It takes the place of the kernel's sockets alone: the product's own listeners and links run above it.  Each
connection is two *pipes*.  What is written waits in flight until a task of the network moves some of it to
the other end; connections overtake each other, the bytes of one do not.

Always: a pipe delivers a prefix of what was written to it, in order; after a reset it delivers nothing more.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import trio
from trio.lowlevel import ParkingLot

from tests.simulation.hosts import Host, here
from tests.simulation.occurrences import Occurrence

UNREACHED: Final = 10.0
"""Seconds until an attempt to connect fails that nobody answers."""

Trace = Callable[..., None]
Count = Callable[[Occurrence], None]


@dataclass(frozen=True, slots=True)
class Weather:
    """How a network is: seconds of delay, how often a write or a delivery is split, bytes in a buffer."""

    delay: float = 0.002
    split: float = 0.2
    buffer: int = 16_384


class Pipe:
    """One direction of a connection."""

    def __init__(self, line: Line, name: str, random: Random) -> None:
        self._line = line
        self._random = random
        self.name = name
        self.flight = bytearray()
        self.inbox = bytearray()
        self.capacity = max(256, round(line.weather.buffer * random.uniform(0.1, 1)))
        self.is_finished = False
        """The writer has ended."""
        self.is_at_end = False
        """The reader has been told so."""
        self.is_abandoned = False
        """The reader has closed its socket."""
        self._written_at = 0
        """The place, among the writes of all connections, of the first that is in flight."""
        self._mute = 0
        self._spoken = ParkingLot()
        self._is_moving = False
        self.readable = ParkingLot()
        self.writable = ParkingLot()

    @property
    def room(self) -> int:
        """Bytes that can be written now."""
        return self.capacity - len(self.flight) - len(self.inbox)

    def take(self, data: bytes | bytearray | memoryview) -> int:
        """Takes some of what is written, and moves it to the other end in time."""
        size = min(len(data), self.room)
        if size > 1 and self._random.random() < self._line.weather.split:
            size = self._random.randint(1, size)
        network = self._line.network
        network.writes += 1
        if not self.flight:
            self._written_at = network.writes
        self.flight += data[:size]
        self.move()
        return size

    def finish(self) -> None:
        """Nothing more will be written."""
        self.is_finished = True
        self.move()

    def move(self) -> None:
        """Has a task move what is in flight."""
        if not self._is_moving and (self.flight or self.is_finished != self.is_at_end):
            self._is_moving = True
            self._line.network.nursery.start_soon(self._move)

    def mute(self) -> None:
        """Delivers nothing until ``speak``."""
        self._mute += 1

    def speak(self) -> None:
        """Delivers again."""
        self._mute -= 1
        self._spoken.unpark_all()

    def _delay(self) -> float:
        # Some delays are alike, so that deliveries of several connections come in one instant.
        some = self._random.random()
        return (
            0.0
            if some < 0.2
            else self._line.weather.delay * (1 if some < 0.6 else self._random.expovariate(1))
        )

    async def _move(self) -> None:
        while self._has_some():
            delay = self._delay()
            if delay:
                self._line.network.count(Occurrence.DELAYED)
            await trio.sleep(delay)
            while self._mute and self._has_some():
                await self._spoken.park()
            if self.is_abandoned:
                self._line.reset("the reader has gone")
            if self.flight:
                self._line.network.before_delivery(self._line)
            if self._has_some():
                self._deliver()
        self._is_moving = False

    def _has_some(self) -> bool:
        return not self._line.is_reset and (bool(self.flight) or self.is_finished != self.is_at_end)

    def _deliver(self) -> None:
        if self.flight:
            size = len(self.flight)
            if size > 1 and self._random.random() < self._line.weather.split:
                size = self._random.randint(1, size)
                self._line.network.count(Occurrence.SPLIT)
            self._line.network.note_order(self._written_at)
            self.inbox += self.flight[:size]
            self._line.network.trace("bytes", self.name, bytes(self.flight[:size]))
            del self.flight[:size]
        else:
            self.is_at_end = True
            self._line.network.trace("end", self.name)
        self.wake()

    def wake(self) -> None:
        """Wakes all tasks that wait for either end."""
        self.readable.unpark_all()
        self.writable.unpark_all()
        self._spoken.unpark_all()


class Line:
    """A connection of two hosts."""

    def __init__(self, network: Network, number: int, near: Host, far: Host, random: Random) -> None:
        self.network = network
        self.weather = network.weather
        self.hosts = near, far
        self.name = f"{near.name}-{far.name}#{number}"
        self.is_reset = self.is_silent = False
        self.up = Pipe(self, f"{self.name}>", random)
        self.down = Pipe(self, f"{self.name}<", random)

    def reset(self, why: str) -> None:
        """Loses what is in flight, both ways; what has arrived can still be read."""
        if not self.is_reset:
            self.is_reset = True
            self.network.trace("reset", self.name, why)
            for pipe in (self.up, self.down):
                pipe.flight.clear()
                pipe.wake()

    def fall_silent(self) -> None:
        """One of its hosts has lost its power: nothing passes, and nobody says so."""
        if not self.is_silent:
            self.is_silent = True
            self.network.count(Occurrence.SILENT)
            for pipe in (self.up, self.down):
                pipe.mute()


class Socket:
    """One end of a connection, with the methods of a socket that does not block."""

    family: Final = socket.AF_INET

    def __init__(self, line: Line, host: Host, incoming: Pipe, outgoing: Pipe, peer: tuple[str, int]) -> None:
        self._line = line
        self._host = host
        self._incoming = incoming
        self._outgoing = outgoing
        self._peer = peer
        self._is_closed = False
        self._is_closing = False
        host.at_death.append(self._host_died)

    def _host_died(self, power: bool) -> None:
        if power:
            self._line.fall_silent()
        else:
            self._leave()
        self._is_closed = True

    @property
    def far(self) -> Host:
        """The host at the other end, for the end that has connected."""
        return self._line.hosts[1]

    def setblocking(self, _flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *_option: int) -> None:
        """It has none."""

    def getpeername(self) -> tuple[str, int]:
        """Returns the address of the other end."""
        return self._peer

    def fileno(self) -> int:
        """Returns a number below 0 for a closed socket, as sockets do."""
        return -1 if self._is_closed else 1

    def recv(self, most: int) -> bytes:
        """Returns some bytes; raises as sockets do where there are none."""
        self._check()
        if self._incoming.inbox:
            data = bytes(self._incoming.inbox[:most])
            del self._incoming.inbox[:most]
            self._incoming.writable.unpark_all()
            return data
        if self._line.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if self._incoming.is_at_end:
            return b""
        raise BlockingIOError

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Returns how many bytes were taken; raises as sockets do where none are."""
        if self._host.is_dead:
            return len(data)  # which goes nowhere
        self._check()
        if self._line.is_reset or self._outgoing.is_finished:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        if self._line.is_silent and self._line.network.answers(self._line, self._host):
            self._line.reset("the other end has started again")
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        if not data:
            return 0
        if self._outgoing.room <= 0:
            self._line.network.count(Occurrence.BLOCKED)
            raise BlockingIOError
        return self._outgoing.take(data)

    def shutdown(self, _how: int) -> None:
        """Ends the output."""
        self._check()
        if self._line.is_reset:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        self._outgoing.finish()

    def close(self) -> None:
        """Ends both directions; the other end is reset where bytes were not read."""
        if not self._is_closed and not self._host.is_dead:
            self._leave()
        self._is_closed = True

    def _leave(self) -> None:
        self._incoming.is_abandoned = True
        if self._incoming.inbox:
            self._line.reset("closed with bytes that were not read")
        self._outgoing.finish()
        self._incoming.wake()

    def _check(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "Bad file descriptor")

    # -- what trio does for real sockets --------------------------------------------------------------

    async def wait_readable(self) -> None:
        """Returns when ``recv`` would return or raise."""
        pipe = self._incoming
        await self._wait(lambda: bool(pipe.inbox or pipe.is_at_end), pipe.readable)

    async def wait_writable(self) -> None:
        """Returns when ``send`` would return or raise."""
        await self._wait(lambda: self._outgoing.room > 0, self._outgoing.writable)

    async def _wait(self, ready: Callable[[], bool], lot: ParkingLot) -> None:
        await trio.lowlevel.checkpoint()
        while self._host.is_dead or not (
            self._is_closing or self._is_closed or self._line.is_reset or ready()
        ):
            await lot.park()  # that of a dead host until it is cancelled
        if self._is_closing or self._is_closed:
            raise trio.ClosedResourceError("another task closed this socket")

    def notify_closing(self) -> None:
        """Wakes all tasks that wait for it."""
        self._is_closing = True
        for pipe in (self._incoming, self._outgoing):
            pipe.wake()


class Listening:
    """A listening socket."""

    family: Final = socket.AF_INET

    def __init__(self, network: Network, port: int, host: Host) -> None:
        self.host = host
        self._network = network
        self._port = port
        self._waiting: deque[Socket] = deque()
        self._lot = ParkingLot()
        self._is_closed = False
        network.listening[port] = self
        host.at_death.append(lambda _power: self.close())

    def offer(self, end: Socket) -> None:
        """A connection for the next ``accept``."""
        self._waiting.append(end)
        self._lot.unpark_all()

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """Returns a connection; raises as sockets do where there is none."""
        if self._is_closed:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if not self._waiting:
            raise BlockingIOError
        end = self._waiting.popleft()
        return end, end.getpeername()

    async def wait_readable(self) -> None:
        """Returns when there is a connection."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._is_closed:
                raise trio.ClosedResourceError("another task closed this socket")
            await self._lot.park()

    def notify_closing(self) -> None:
        """Wakes the task that waits for a connection."""

    def close(self) -> None:
        """Refuses connections from now on."""
        self._is_closed = True
        if self._network.listening.get(self._port) is self:
            del self._network.listening[self._port]
        while self._waiting and not self.host.is_dead:
            self._waiting.popleft().close()
        self._lot.unpark_all()


class Network:
    """All connections, and those who listen."""

    def __init__(
        self, weather: Weather, seed: str, nursery: trio.Nursery, trace: Trace, count: Count
    ) -> None:
        self.weather = weather
        self.count = count
        self.writes = 0
        self._delivered = 0
        self.nursery = nursery
        self.trace = trace
        self.listening: dict[int, Listening] = {}
        self.lines: list[Line] = []
        self.barred: dict[frozenset[str], int] = {}
        """Pairs of hosts between which nothing passes; how often each is barred."""
        self.before_delivery: Callable[[Line], None] = lambda _line: None
        """Called before some bytes reach one end of a connection; it may end a host there."""
        self._admitted = ParkingLot()
        self._seed = seed
        self._numbers: dict[str, int] = {}

    def of(self, name: str) -> list[Line]:
        """Returns the connections that a host has now."""
        self.lines = [line for line in self.lines if not line.is_reset]
        return [line for line in self.lines if line.hosts[0].name == name]

    def bar(self, pair: frozenset[str]) -> Callable[[], None]:
        """Lets nothing pass between two hosts, and nobody says so; returns what ends that."""
        self.barred[pair] = self.barred.get(pair, 0) + 1
        pipes = [
            pipe
            for line in self.lines
            if {each.name for each in line.hosts} == pair
            for pipe in (line.up, line.down)
        ]
        for each in pipes:
            each.mute()

        def admit() -> None:
            self.barred[pair] -= 1
            for each in pipes:
                each.speak()
            self._admitted.unpark_all()

        return admit

    async def _pass(self, near: Host, port: int) -> None:
        """Returns once a host reaches a port; ``OSError`` if that takes too long."""
        with trio.move_on_after(UNREACHED):
            while self._is_barred(near, port):
                await self._admitted.park()
            return
        self.trace("unreached", near.name)
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    def _is_barred(self, near: Host, port: int) -> bool:
        far = self.listening.get(port)
        return far is not None and bool(self.barred.get(frozenset([near.name, far.host.name])))

    def note_order(self, written_at: int) -> None:
        """Notes a delivery of what was written at this place among all writes."""
        if written_at < self._delivered:
            self.count(Occurrence.OVERTAKEN)
        self._delivered = max(self._delivered, written_at)

    def answers(self, line: Line, host: Host) -> bool:
        """Returns True if the machine at the other end runs again, after its power failed."""
        other = next(each for each in line.hosts if each is not host)
        return other.is_dead and any(each.host.name == other.name for each in self.listening.values())

    async def connect(self, _host: str, port: int) -> Socket:
        """Returns this end of a new connection; raises ``OSError`` where nobody listens."""
        near = here()
        assert near is not None  # clients are on hosts
        number = self._numbers[near.name] = self._numbers.get(near.name, 0) + 1
        random = Random(f"{self._seed} {near.name} {number}")
        await trio.sleep(self.weather.delay * random.choice((0, 1, random.expovariate(1))))
        await self._pass(near, port)
        listening = self.listening.get(port)
        if listening is None:
            self.trace("refused", near.name)
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        line = Line(self, number, near, listening.host, random)
        self.lines.append(line)
        self.trace("connected", line.name)
        places = list(self._numbers)  # each host has an address of its own: it is another principal
        address = (f"127.0.{places.index(near.name) // 250}.{places.index(near.name) % 250 + 2}", 40_000)
        listening.offer(Socket(line, listening.host, line.up, line.down, address))
        return Socket(line, near, line.down, line.up, ("127.0.0.1", port))
