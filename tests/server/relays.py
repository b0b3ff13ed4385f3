"""A server that speaks the wire before a daemon, as one that follows it does: it serves reads and refuses the
rest with an address.

Reads are answered by the daemon itself, over a connection of their own, so that the client gets real packets.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal
from weakref import WeakKeyDictionary

import trio

from dataspace.codec import unpack
from dataspace.transport.addresses import parse_url
from dataspace.wire import packets as p
from dataspace.wire.session import encode
from index.values.values import Map

Way = Literal["hello", "asked", "welcomed", "passes"]
"""Where it sends a client away: at its hello, unless the client only reads; when it asks for something that
only a leader does; right after its welcome; never."""

READS: Final = frozenset(["frontier", "status", "sync", "lookup", "topic-frontier", "topic-epochs", "stats"])
"""The verbs of requests that a follower answers."""


class Relay:
    """Passes packets on between clients and the daemon at ``target``, and sends clients on to ``url``."""

    def __init__(self, target: str, way: Way, url: str, code: str = "elsewhere") -> None:
        self.target = target
        self.way = way
        self.said = (code, "this daemon follows another one", url)
        self.hellos: list[p.Hello] = []
        """The hello of each connection."""
        self.refused = 0
        self.here = ""
        """Its own address."""
        self.late = 0
        """How many epochs its welcome is behind the daemon."""
        self.stale = 0
        """How many turns of the client its welcome does not have."""
        self.deaf = False
        """While true, nothing of the daemon reaches the client."""
        self.newest: int | None = None
        """The newest epoch that it admits to have, if it is one behind."""
        self.away = 0
        """How often it says instead that it does not reach its store."""
        self.opened: list[int | None] = []
        """What that was when each stream was opened."""
        self._links: set[trio.SocketStream] = set()

    async def send_away(self, code: str, url: str) -> None:
        """Says goodbye to all clients."""
        for link in list(self._links):
            await _say(link, p.Bye(code, "another daemon leads", url))
            with contextlib.suppress(OSError):  # its client has left meanwhile
                link.socket.shutdown(socket.SHUT_RDWR)

    async def serve(self, client: trio.SocketStream) -> None:
        """Serves one client."""
        frames = _Frames(client)
        try:
            async with client:
                first = await frames.next()
                hello = p.read(unpack(first[4:])) if first is not None else None
                if not isinstance(hello, p.Hello):
                    return
                self.hellos.append(hello)
                if self.way == "hello" and hello.features.get("read") is not True:
                    self.refused += 1
                    await _say(client, p.Bye(*self.said))
                    return
                where = parse_url(self.target)
                async with await trio.open_tcp_stream(where.host, where.port) as above:
                    features = Map({k: v for k, v in hello.features.pairs() if k not in ("grace", "resume")})
                    if self.way == "passes":
                        features = hello.features
                    await _say(above, hello._replace(features=features))
                    self._links.add(client)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._down, above, client, nursery.cancel_scope)
                        while (frame := await frames.next()) is not None:
                            packet = p.read(unpack(frame[4:]))
                            answer = await self._behind(packet) or self._answer(packet)
                            self.opened += [self.newest] * isinstance(packet, p.Open)
                            if answer is None:
                                await _send(above, frame)
                            else:
                                self.refused += 1
                                await _say(client, answer)
                        nursery.cancel_scope.cancel()
        finally:
            self._links.discard(client)

    async def _down(
        self, above: trio.SocketStream, client: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        frames = _Frames(above)
        while (frame := await frames.next()) is not None:
            packet = p.read(unpack(frame[4:])) if frame[5] == 33 else None  # the number of a welcome
            if self.deaf:
                continue
            if isinstance(packet, p.Welcome) and self.stale:
                await _say(client, packet._replace(sequence=max(0, packet.sequence - self.stale)))
            elif isinstance(packet, p.Welcome) and (self.late or self.newest is not None):
                epoch = max(0, packet.epoch - self.late)
                known = epoch if self.newest is None else min(epoch, self.newest)
                await _say(client, packet._replace(epoch=known))
            else:
                await _send(client, frame)
            if self.way == "welcomed":
                self.refused += 1
                await _say(client, p.Bye(*self.said))
                break
        scope.cancel()

    def _has_at_most(self, epoch: int) -> bool:
        return self.newest is not None and self.newest <= epoch

    async def _behind(self, packet: p.Packet) -> p.Packet | None:
        match packet:
            case p.Request(number, "frontier", arguments) if self.newest is not None:
                if self.away:
                    self.away -= 1
                    return p.Denied(number, p.STORE_AWAY, "the database is not reached")
                after, wait = arguments.get("after", -1), arguments.get("wait", 0)
                assert isinstance(after, int) and isinstance(wait, int)
                with trio.move_on_after(wait / 1000):
                    while self._has_at_most(after):  # noqa: ASYNC110  # a test sets a plain number
                        await trio.sleep(0.01)
                if (newest := self.newest) is not None:
                    return p.Answer(number, Map({"epoch": newest, "oldest": 0, "space": "", "gaps": ()}))
        return None

    def _answer(self, packet: p.Packet) -> p.Packet | None:
        if self.way == "passes":
            return None
        code, text, url = self.said
        match packet:
            case p.Turn(sequence):
                return p.Refusal(sequence, code, text, url=url)
            case p.Request(number, verb) if verb not in READS:
                return p.Denied(number, code, text, url=url)
            case p.Open(stream, spec) if spec.get("quiet") is not True:
                return p.Error(stream, code, text, url)
            case p.Offer(stream):
                return p.Error(stream, code, text, url)
            case _:
                return None


async def _say(stream: trio.SocketStream, packet: p.Packet) -> None:
    await _send(stream, encode(packet))


_locks: WeakKeyDictionary[trio.SocketStream, trio.Lock] = WeakKeyDictionary()


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    """Sends whole packets, which tasks of both directions do."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async with _locks.setdefault(stream, trio.Lock()):
            await stream.send_all(data)


class _Frames:
    """The whole frames of a connection, their lengths included."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._held = bytearray()

    async def next(self) -> bytes | None:
        """Returns the next frame, or None at the end."""
        held = self._held
        while len(held) < 4 or len(held) < 4 + int.from_bytes(held[:4], "big"):
            try:
                chunk = await self._stream.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if not chunk:
                return None
            held += chunk
        size = 4 + int.from_bytes(held[:4], "big")
        frame = bytes(held[:size])
        del held[:size]
        return frame


@asynccontextmanager
async def relay(target: str, way: Way, url: str = "", code: str = "elsewhere") -> AsyncIterator[Relay]:
    """A relay on a port of its own; without a ``url`` it sends clients to its target."""
    made = Relay(target, way, url or target, code)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        made.here = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, made.serve, [listener])
        yield made
        nursery.cancel_scope.cancel()
