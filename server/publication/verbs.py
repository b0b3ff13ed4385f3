"""Requests of bulk writers (stage, prepare, discard, publish), and the streams that they offer."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain
from typing import Final

import trio

from dataspace.errors import ProtocolError, Refused
from dataspace.kernel.expectations import are_expectations
from dataspace.wire import packets as p
from dataspace.wire.arguments import key, number, text, texts
from dataspace.wire.windows import ReceiveBudget, ReceiveWindow
from index.values.values import Map, Value
from server.publication.publish import prepare, publish, stage, stage_packed
from server.sessions.peer import Peer

TOGETHER: Final = 64 << 10
"""Bytes of waiting values that are stored in one step, about."""


class InStream:
    """One offered stream: the credit, the values that came, and the values that are not handled yet."""

    __slots__ = ("arrived", "asked", "came", "came_size", "complete", "key", "number", "waiting", "window")

    def __init__(self, number: int, key: tuple[str, ...], window: ReceiveWindow) -> None:
        self.number = number
        self.key = key
        self.window = window
        self.asked = window.open()
        self.came = self.came_size = 0
        self.waiting: deque[tuple[tuple[Value, ...], int]] = deque()
        self.complete = False
        self.arrived = trio.Event()

    def arrive(self, values: tuple[Value, ...], first: int, size: int) -> None:
        """Queues the values of a frame; raises ``ProtocolError`` for one beyond the credit."""
        if first != self.came:
            raise ProtocolError(
                "unexpected", f"stream {self.number}: values from {first}, expected {self.came}"
            )
        items, limit = self.asked
        if self.came + len(values) > items or self.came_size >= limit:
            came = f"{self.came + len(values)} values of {self.came_size + size} bytes"
            raise ProtocolError("limit", f"stream {self.number}: {came}, asked for {items} of {limit}")
        self.came += len(values)
        self.came_size += size
        self.window.arrive(len(values), size)
        self.waiting.append((values, size))
        self.arrived.set()

    def finish(self) -> None:
        """Notes that the client has sent all values."""
        self.complete = True
        self.arrived.set()


class Offers:
    """The streams that one connection offers.

    The same protocol as an observation with the roles exchanged: the client offers a stream, the daemon
    requests as much as it has capacity for, and the values come in order.  The kind of the stream decides
    their use; there is ``stage``, whose values are operations to be stored on disk under a key until they are
    published.

    Always: the credit of a connection is its budget, divided among its streams; a client that exceeds its
    credit has broken the protocol; ``Done`` means that all of it is on disk.
    """

    def __init__(self, peer: Peer, *, most: int, size: int) -> None:
        """At most ``most`` streams at a time, which share a budget of ``size`` bytes."""
        self._peer = peer
        self._most = most
        self._streams: dict[int, InStream] = {}
        self._budget: Final = ReceiveBudget(size)

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, offer: p.Offer) -> None:
        """Begins to pull a stream, or answers with an error."""
        try:
            stream = InStream(offer.stream, self._key(offer.spec), self._window())
        except Refused as refusal:
            self._peer.say(p.Error(offer.stream, refusal.code, refusal.text[:4000]))
            return
        self._streams[offer.stream] = stream
        self._peer.say(p.Ask(offer.stream, *stream.asked))
        self._peer.start(self._pull, stream)

    def arrive(self, packet: p.Values, size: int) -> None:
        """Queues values; discards values of a stream that has failed meanwhile."""
        stream = self._streams.get(packet.stream)
        if stream is not None:
            stream.arrive(packet.values, packet.first, size)

    def finish(self, number: int) -> None:
        """Notes that the client has sent all values of a stream."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.finish()

    def drop(self, number: int) -> None:
        """Notes that the client has aborted a stream: handled values stay as they are."""
        if self._streams.pop(number, None) is not None:
            self._budget.leave()

    def _window(self) -> ReceiveWindow:
        if len(self._streams) >= self._most:
            raise Refused(
                "limit", f"{len(self._streams)} offered streams, the limit is limits.requests={self._most}"
            )
        self._budget.join()
        return ReceiveWindow(self._budget)

    def _key(self, spec: Map) -> tuple[str, ...]:
        if spec.get("kind") != "stage":
            raise Refused(
                "bad-request", f"no kind {spec.get('kind')!r:.60} of offered stream, there is 'stage'"
            )
        return texts(spec, "key")

    async def _pull(self, stream: InStream) -> None:
        """Handles values and grants credit for more."""
        try:
            while self._streams.get(stream.number) is stream:
                if stream.waiting:
                    await self._handle(stream)
                elif stream.complete:
                    self._peer.say(p.Done(stream.number))
                    self.drop(stream.number)
                else:
                    stream.arrived = trio.Event()
                    await stream.arrived.wait()
                self._peer.hosted.flush()
        except (Refused, ProtocolError) as refusal:
            self.drop(stream.number)
            self._peer.say(p.Error(stream.number, refusal.code, refusal.text[:4000]))
            self._peer.hosted.flush()

    async def _handle(self, stream: InStream) -> None:
        values, size = stream.waiting.popleft()
        if stream.waiting:  # a client may send each value in a packet of its own
            some = [values]
            while stream.waiting and size < TOGETHER:
                more, length = stream.waiting.popleft()
                some.append(more)
                size += length
            values = tuple(chain.from_iterable(some))
        await stage(self._peer.hosted, stream.key, values, self._peer.bearer, self._peer.account)
        stream.window.take(len(values), size)
        asked = stream.window.ask()
        if asked is not None:
            stream.asked = asked
            self._peer.say(p.Ask(stream.number, *asked))


async def _stage(peer: Peer, arguments: Map) -> Value:
    """Stores operations under a key until they are published or discarded."""
    rows = arguments.get("rows")
    if isinstance(rows, bytes):
        return await stage_packed(peer.hosted, texts(arguments, "key"), rows, peer.bearer, peer.account)
    operations = arguments.get("operations")
    if not isinstance(operations, tuple):
        raise Refused("bad-request", "operations must be an array")
    await stage(peer.hosted, texts(arguments, "key"), operations, peer.bearer, peer.account)
    return len(operations)


async def _prepare(peer: Peer, arguments: Map) -> Value:
    """Reads operations ahead of their publication; may be left out."""
    rows = arguments.get("rows")
    if not isinstance(rows, bytes):
        raise Refused("bad-request", "rows must be binary")
    return await prepare(peer.hosted, rows, peer.bearer)


async def _discard(peer: Peer, arguments: Map) -> Value:
    """Deletes what is staged under keys with this beginning, and may close one for good."""
    close = texts(arguments, "close") if "close" in arguments else None
    await peer.hosted.staging.discard(texts(arguments, "key"), close=close, by=peer.bearer.holder)
    return None


async def _publish(peer: Peer, arguments: Map) -> Value:
    """Commits everything staged under some keys as one turn; returns its epoch once on disk."""
    keys = arguments.get("keys")
    if not isinstance(keys, tuple):
        raise Refused("bad-request", "keys must be an array of keys, or of binary in place of one")
    owner, client = text(arguments, "owner"), text(arguments, "client")
    name = peer.bearer.owner(owner)  # before anything else: a sink asks so for its rights, without a number
    peer.bearer.publisher(client, name, peer.hosted.clients)
    return await publish(
        peer.hosted,
        [each if isinstance(each, bytes) else key(each) for each in keys],
        bearer=peer.bearer,
        owner=owner,
        client=client,
        sequence=number(arguments, "sequence"),
        replace=arguments.get("replace") is True,
        by=arguments.get("by"),
        expect=_expected(arguments),
        exclusive=arguments.get("exclusive") is True,
        discard=texts(arguments, "discard") if "discard" in arguments else None,
        close=texts(arguments, "close") if "close" in arguments else None,
        account=peer.account,
        origin=peer.own.client.origin,
    )


def _expected(arguments: Map) -> tuple[Value, ...]:
    """Returns the expectations of a publication."""
    expected = arguments.get("expect", ())
    if not isinstance(expected, tuple) or not are_expectations(expected):
        raise Refused("bad-request", f"expect must be an array of expectations, got {expected!r:.60}")
    return expected


VERBS: Final[Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]] = {
    "stage": _stage,
    "prepare": _prepare,
    "discard": _discard,
    "publish": _publish,
}
