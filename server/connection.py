"""A connection: one peer's bytes become turns, streams and answers.

Two tasks serve it.  One reads, lets the session machine cut packets, and acts on each at once, so that
turns of one client are committed in the order in which they were sent.  The other writes what the kernel
would not take at once.  Everything the peer owns hangs on the connection's owner name and is retracted in
one turn when it ends, however it ends.

Always: a peer's rubbish ends this connection with a ``Bye`` that says why, and nothing else; the reader
stops reading while the peer does not take its answers, or while the disk is behind.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session, State
from relay.faults import reach
from relay.streams import Outbox, OutStream
from server.clients import Client
from server.observing import Observing
from server.requests import answer

if TYPE_CHECKING:
    from dataspace.epochs import Epoch
    from dataspace.links import SocketLink
    from server.daemon import Daemon

BUNDLE: Final = 64
"""Packets of one peer that are acted on before others have a turn."""

BURST: Final = 256 << 10
"""Bytes that one connection may have handed out but not yet to the kernel, before its streams wait."""


class Connection:
    """One accepted peer."""

    def __init__(self, daemon: Daemon, link: SocketLink, number: int) -> None:
        self.daemon = daemon
        self.link = link
        self.number = number
        self.owner = f"session:{daemon.incarnation}.{number}"
        self.name = ""
        self.since = trio.current_time()
        self.client: Client | None = None
        self.cancel = trio.CancelScope()
        self.received = 0
        self.sent = 0
        self.turns = 0
        self.streams: dict[int, OutStream] = {}
        limits = daemon.config.limits
        self.session: Final = Session(
            Role.SERVER, max_frame=limits.frame_bytes, max_elements=limits.frame_elements
        )
        self.outbox: Final = Outbox(self.session.send, self._over)
        self.observing: Final = Observing(self)
        self.nursery: trio.Nursery
        self._unsent = bytearray()
        self._drained = trio.Event()
        self._writable = trio.Event()
        self._accepted: list[int] = []
        self._accepted_first = 0
        self._dirty = False
        self.gone = False

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serves the peer until it leaves, breaks the protocol, or is cancelled."""
        reason = "the peer closed the connection"
        try:
            with self.cancel:
                async with trio.open_nursery() as self.nursery:
                    self.nursery.start_soon(self._write)
                    try:
                        await self._read()
                    except ProtocolError as error:
                        reason = str(error)
                        self.part(error.code, error.text)
                    await self._linger()
                    self.nursery.cancel_scope.cancel()
            if self.cancel.cancelled_caught:
                reason = "the daemon ended it"
        finally:
            self._leave(reason)

    async def _read(self) -> None:
        limits = self.daemon.config.limits
        with trio.move_on_after(limits.hello_seconds) as patience:
            while True:
                chunk = await self.link.receive()
                if not chunk:
                    return
                self.received += len(chunk)
                await self._act_on(chunk)
                self.daemon.flush()
                if self.session.state is State.ENDED:
                    return
                patience.deadline = self._deadline(patience.deadline)
                await self._wait_room()
        self.daemon.flush()
        if self.session.state is State.FRESH:
            raise ProtocolError("timeout", f"no hello within {limits.hello_seconds} s")
        raise ProtocolError("timeout", f"a frame took longer than {limits.frame_seconds} s")

    async def _act_on(self, chunk: bytes) -> None:
        """Acts on the packets of a chunk; a chunk full of them lets others be told, and run, in between."""
        for count, packet in enumerate(self.session.feed(chunk), 1):
            if self.session.parted:
                return
            await self._act(packet)
            if count % BUNDLE == 0:
                self.daemon.flush()
                await trio.lowlevel.checkpoint()

    def _deadline(self, before: float) -> float:
        """When the peer must have finished what it has begun: absolute, not for each byte."""
        if self.session.state is State.FRESH:
            return before
        if not self.session.held:
            return math.inf
        if before == math.inf:
            return trio.current_time() + self.daemon.config.limits.frame_seconds
        return before

    async def _wait_room(self) -> None:
        """Reads no further while the disk is behind or the peer does not take what it is told."""
        await self.daemon.commits.wait_room()
        if len(self._unsent) > self.daemon.config.limits.unsent_bytes:
            with trio.move_on_after(self.daemon.config.limits.stalled_seconds) as patience:
                self._drained = trio.Event()
                await self._drained.wait()
            if patience.cancelled_caught:
                raise ProtocolError("stalled", f"{len(self._unsent)} bytes were not taken")

    def part(self, code: str, text: str) -> None:
        """Says goodbye; the connection closes once that has left."""
        self.say(p.Bye(code, text[:4000]))
        self.daemon.flush()

    async def _linger(self) -> None:
        """Gives the last words a moment to leave."""
        self.daemon.flush()
        with trio.move_on_after(1.0):
            while self._unsent:
                self._drained = trio.Event()
                await self._drained.wait()

    def _leave(self, reason: str) -> None:
        self.gone = True
        self.link.close()
        self.observing.end()
        self.daemon.left(self, reason)

    # -- what the peer says ---------------------------------------------------------------------------

    async def _act(self, packet: p.Packet) -> None:
        match packet:
            case p.Turn():
                await self._turn(packet)
            case p.Ask(stream, items, size):
                opened = self.streams.get(stream)
                if opened is not None:
                    opened.ask(items, size)
                    self.wake(opened)
            case p.Open():
                self._open(packet)
            case p.Abort(stream, _reason, wants_answer):
                self._abort(stream, wants_answer=wants_answer)
            case p.Request():
                await answer(self, packet)
            case p.Ping(number):
                self.say(p.Pong(number))
            case p.Hello():
                self._greet(packet)
            case p.Bye():
                self.part("", "")
            case _:
                pass  # a pong needs no answer

    def _greet(self, hello: p.Hello) -> None:
        if hello.version != p.VERSION:
            raise ProtocolError("version", f"version {hello.version}, this daemon speaks {p.VERSION}")
        if not hello.client:
            raise ProtocolError("malformed", "Hello.client must not be empty: turns are numbered by it")
        self.name = hello.name
        self.client = self.daemon.greeted(self, hello.client)
        self.session.allow_frames(self.daemon.config.limits.frame_bytes)
        self.say(
            p.Welcome(
                p.VERSION,
                self.number,
                self.daemon.identity,
                self.daemon.space.epoch,
                self.client.sequence,
                self.daemon.limits_map(),
            )
        )

    async def _turn(self, turn: p.Turn) -> None:
        client = self.client
        assert client is not None  # the session machine lets nothing pass before hello
        if turn.sequence <= client.sequence:
            self.nursery.start_soon(self._accept_again, turn.sequence)
            return
        owner = f"durable:{turn.owner}" if turn.owner else self.owner
        try:
            self.daemon.check_space(turn.space)
            self.daemon.commit(owner, turn.actions, client, turn.sequence, self._accept)
        except Refused as refusal:
            self.say(p.Refusal(turn.sequence, refusal.code, refusal.text[:4000]))
            return
        reach("turn-committed")
        self.turns += 1

    def _accept(self, epoch: Epoch) -> None:
        """A turn of this connection is on disk; turns in a row share one packet."""
        if self._accepted and epoch.sequence != self._accepted_first + len(self._accepted):
            self._say_accepted()
        if not self._accepted:
            self._accepted_first = epoch.sequence
        self._accepted.append(epoch.number)
        self.touch()

    def _say_accepted(self) -> None:
        if self._accepted and not self.session.parted:
            reach("turn-accepted")
            self.outbox.say(p.Accepted(self._accepted_first, tuple(self._accepted)))
            self._accepted = []

    async def _accept_again(self, sequence: int) -> None:
        """Answers a turn that was applied before with its old epoch, once that is on disk."""
        assert self.client is not None  # as in _turn
        epoch = self.client.epoch_of(sequence)
        if epoch is None:
            epoch = await self.daemon.find_turn(self.client.name, sequence)
        if epoch is None:
            self.say(p.Refusal(sequence, "old-sequence", f"turn {sequence} is not known any more"))
        else:
            await self.daemon.commits.wait_durable(epoch)
            self.say(p.Accepted(sequence, (epoch,)))
        self.daemon.flush()

    # -- streams --------------------------------------------------------------------------------------

    def _open(self, packet: p.Open) -> None:
        stream = OutStream(packet.stream, packet.items, packet.bytes)
        self.streams[packet.stream] = stream
        try:
            self.observing.open(stream, packet.spec)
        except (Refused, UsageError) as error:
            self.fail(stream, getattr(error, "code", "bad-request"), getattr(error, "text", str(error)))

    def fail(self, stream: OutStream, code: str, text: str) -> None:
        """Ends a stream with an error."""
        if not stream.ended:
            stream.ended = True
            self.say(p.Error(stream.number, code, text[:4000]))
            self._over(stream)

    def _abort(self, number: int, *, wants_answer: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            stream.ended = True
            self._over(stream)
        if wants_answer:
            self.say(p.Done(number))

    def _over(self, stream: OutStream) -> None:
        self.streams.pop(stream.number, None)
        self.observing.close(stream)

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""
        self.outbox.wake(stream)
        self.touch()

    # -- writing --------------------------------------------------------------------------------------

    def say(self, packet: p.Packet) -> None:
        """Queues a control packet for the next flush; after a goodbye there is nobody to hear it."""
        if not self.session.parted:
            self._say_accepted()
            self.outbox.say(packet)
            self.touch()

    def touch(self) -> None:
        """Has the next flush come by here."""
        if not self._dirty:
            self._dirty = True
            self.daemon.dirty.append(self)

    def flush(self) -> None:
        """Hands to the kernel what it takes; the writer task has the rest."""
        self._dirty = False
        if self._unsent:
            return
        try:
            self._say_accepted()
            while True:
                data = self.outbox.fill(BURST)
                if not data:
                    return
                sent = self.link.send_nowait(data)
                self.sent += sent
                if sent < len(data):
                    self._unsent += memoryview(data)[sent:]
                    self._writable.set()
                    return
        except OSError:
            self.cancel.cancel()

    async def _write(self) -> None:
        try:
            while True:
                await self._writable.wait()
                self._writable = trio.Event()
                while self._unsent:
                    await self.link.wait_writable()
                    sent = self.link.send_nowait(self._unsent)
                    self.sent += sent
                    del self._unsent[:sent]
                self._drained.set()
                self.flush()
        except OSError:
            self.cancel.cancel()
