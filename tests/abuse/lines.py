"""Lines: raw connections that send anything, and have the oracle look at all that comes back.

Sockets do not block: a daemon stops to read from a peer that does not read, so both directions go on at
once.

Always: every byte that is received is searched, and every packet judged, before anything else sees it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from typing import Final, Self, TypeVar

from dataspace.client.epochs.assembling import Assembler
from dataspace.errors import ProtocolError
from dataspace.kernel.changes import EpochChanges
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session, encode
from index.values.values import Map, Value
from tests.abuse.oracle import LONGEST, Oracle, Violation

PATIENCE: Final = 60.0
"""Seconds without a byte after which a daemon counts as hung; a run never comes near."""

HERE: Final = "127.0.0.1"
ELSEWHERE: Final = "127.0.0.2"
"""Two addresses of this machine, which are two principals in a daemon without tokens."""

BARRIER: Final = 1 << 40
"""Pings that end a bundle are numbered from here on."""

Kind = TypeVar("Kind", bound=tuple[object, ...])


class Line:
    """One connection of one tenant; ``over`` once the daemon has ended it."""

    def __init__(self, port: int, oracle: Oracle, who: str, *, source: str = HERE) -> None:
        """``source`` is the address of this machine to connect from."""
        self.who = who
        self.over = False
        self.deaf = False
        """True once what comes is only counted and searched, not decoded: for floods."""
        self.heard: list[p.Packet] = []
        self._oracle = oracle
        self._machine = Session(Role.CLIENT, max_frame=64 << 20, max_elements=64 << 20)
        self._tail = b""
        self._barrier = BARRIER
        self._socket = socket.create_connection((HERE, port), PATIENCE, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor, to wait for it."""
        return self._socket.fileno()

    def close(self, *, reset: bool = False) -> None:
        """Ends the connection without a goodbye; with ``reset`` as a crash of the machine would."""
        if reset and not self.over:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
        self.over = True

    def finish(self) -> None:
        """Says that no more comes, and returns once the daemon has ended the connection."""
        if not self.over:
            with contextlib.suppress(OSError):  # it has ended it already
                self._socket.shutdown(socket.SHUT_WR)
        while not self.over:
            self.wait()

    def send(self, text: bytes) -> None:
        """Sends bytes, and receives what comes meanwhile; stops where the daemon has ended the connection."""
        rest = memoryview(text)
        while len(rest) and not self.over:
            readable, writable, _ = select.select([self], [self], [], PATIENCE)
            if not readable and not writable:
                raise Violation(f"{self.who}: the daemon neither reads nor sends for {PATIENCE:g} s")
            if readable:
                self.receive()
            if writable and not self.over:
                try:
                    rest = rest[self._socket.send(rest) :]
                except (BrokenPipeError, ConnectionResetError):
                    self.receive()  # what was sent before that can still be read

    def say(self, *packets: p.Packet) -> None:
        """Sends packets, in whatever order."""
        self.send(b"".join(map(encode, packets)))

    def drain(self) -> None:
        """Receives what is there, without waiting."""
        while not self.over and select.select([self], [], [], 0)[0]:
            self.receive()

    def settle(self) -> None:
        """Returns once the daemon has acted on all that was sent, or has ended the connection."""
        self._barrier += 1
        pong = p.Pong(self._barrier)
        self.say(p.Ping(self._barrier))
        while not self.over and pong not in self.heard:
            self.wait()
        self.heard = [each for each in self.heard if each != pong]

    def wait(self) -> None:
        """Waits until something was received."""
        if not select.select([self], [], [], PATIENCE)[0]:
            raise Violation(f"{self.who}: no answer within {PATIENCE:g} s")
        self.receive()

    def expect(self, kind: type[Kind], fits: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """Returns the first packet of a kind that fits, and removes it from those heard.

        Raises ``Violation`` if the connection ends before it came.
        """
        while True:
            for at, packet in enumerate(self.heard):
                if isinstance(packet, kind) and fits(packet):
                    del self.heard[at]
                    return packet
            if self.over:
                raise Violation(
                    f"{self.who}: the connection ended without {kind.__name__}: {self.heard[-3:]}"
                )
            self.wait()

    def receive(self) -> None:
        """Receives what is there; there must be something, or the end."""
        try:
            chunk = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            self.close()
            return
        self._oracle.search(self.who, self._tail + chunk)
        self._tail = (self._tail + chunk)[-LONGEST:]
        if self.deaf:
            return
        try:
            for packet in self._machine.feed(chunk):
                self._oracle.judge(self.who, packet)
                self.heard.append(packet)
        except ProtocolError as error:
            raise Violation(f"{self.who} received what is no packet: {error}") from None


class Client(Line):
    """A line with good manners: it says hello, numbers its turns and requests, and waits for answers."""

    def __init__(
        self,
        port: int,
        oracle: Oracle,
        who: str,
        token: str,
        *,
        client: str,
        source: str = HERE,
        **features: Value,
    ) -> None:
        super().__init__(port, oracle, who, source=source)
        self.identity = client
        self.number = 0
        self.stream = 0
        self._assemblers: dict[int, Assembler] = {}
        named = {"token": token, **features} if token else features
        self.say(p.Hello(p.VERSION, client, who, Map(named)))
        try:
            self.welcome = self.expect(p.Welcome)
        except Violation:
            self.close()
            raise
        self.sequence = self.welcome.sequence

    def turn(self, *actions: tuple[Value, ...], owner: str = "", space: str = "main") -> int:
        """Commits a turn and returns its epoch; raises ``Violation`` if it is refused."""
        self.sequence += 1
        self.say(p.Turn(self.sequence, space, owner, actions))
        while True:
            for packet in self.heard:
                if isinstance(packet, p.Refusal) and packet.sequence == self.sequence:
                    raise Violation(f"{self.who}: a turn of its own was refused: {packet}")
            accepted = self._accepted(self.sequence)
            if accepted is not None:
                return accepted
            self._wait_on()

    def _accepted(self, sequence: int) -> int | None:
        for at, packet in enumerate(self.heard):
            if isinstance(packet, p.Accepted) and 0 <= sequence - packet.first < len(packet.epochs):
                del self.heard[at]
                return packet.epochs[sequence - packet.first]
        return None

    def _wait_on(self) -> None:
        if self.over:
            raise Violation(f"{self.who}: the daemon ended its connection: {self.heard[-3:]}")
        self.wait()

    def request(self, verb: str, **arguments: Value) -> Value:
        """Returns the answer to a request; raises ``Violation`` if it is denied."""
        answer = self.asked(verb, **arguments)
        if isinstance(answer, p.Denied):
            raise Violation(f"{self.who}: {verb} of its own was denied: {answer}")
        return answer.value

    def asked(self, verb: str, **arguments: Value) -> p.Answer | p.Denied:
        """Returns the answer to a request, or its denial."""
        self.number += 1
        self.say(p.Request(self.number, verb, Map(arguments)))
        return self.answer(self.number)

    def answer(self, number: int) -> p.Answer | p.Denied:
        """Waits for the answer to a request, or its denial."""
        while True:
            for at, packet in enumerate(self.heard):
                if isinstance(packet, p.Answer | p.Denied) and packet.number == number:
                    del self.heard[at]
                    return packet
            self._wait_on()

    def open(self, spec: dict[str, Value]) -> int:
        """Opens a stream with plenty of credit; returns its number."""
        self.stream += 1
        self.say(p.Open(self.stream, Map(spec), 1 << 60, 1 << 60))
        return self.stream

    def told(self, stream: int) -> list[EpochChanges]:
        """Returns the whole epochs that an observation was told since the last time."""
        assembler = self._assemblers.setdefault(stream, Assembler(()))
        epochs = map(assembler.feed, self.taken(stream))
        return [epoch for epoch in epochs if epoch is not None]

    def taken(self, stream: int) -> list[Value]:
        """Returns the values of a stream that have come since the last time; fails with the stream."""
        values: list[Value] = []
        rest: list[p.Packet] = []
        for packet in self.heard:
            if isinstance(packet, p.Values) and packet.stream == stream:
                values.extend(packet.values)
            elif isinstance(packet, p.Error | p.Done) and packet.stream == stream:
                raise Violation(f"{self.who}: its stream has ended: {packet}")
            else:
                rest.append(packet)
        self.heard = rest
        return values
