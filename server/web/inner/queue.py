"""What the session of a request sends: packets for its route, or text past the route to its client.

A route takes packets as they are, and the values of a stream in batches, which stay packed until they are
wanted: many event streams observe the same pattern, and share the text that was made of the same bytes.  A
session may also *pour*: from then on it writes text to the link of its client by itself, as the session of a
socket writes frames.

Always: values leave their streams only as the route takes them, so a route that does not read holds them
back; nothing comes after a goodbye.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import trio

from dataspace.codec import array_head, unpack_own
from dataspace.errors import Broken
from dataspace.kernel.epochs import Epoch
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.session import Framed
from index.values.values import Value
from relay.delivery.outbox import Outbox, OutStream, values_size
from server.lane import Work
from server.sessions.peer import Peer
from server.sessions.sending import SendQueue

Control: TypeAlias = Callable[[p.Packet], bytes]

_ONE: Final = b"\0"
"""Stands for a batch in the outbox, which is asked for a byte at a time."""


class EventBatch:
    """Values of a stream, packed as ``body``, which cost ``size`` bytes of credit."""

    __slots__ = ("body", "count", "size", "stream")

    def __init__(self, stream: int, count: int, body: bytes, size: int) -> None:
        self.stream = stream
        self.count = count
        self.body = body
        """The same bytes for all streams that are sent the same values."""
        self.size = size

    @property
    def values(self) -> tuple[Value, ...]:
        """The values; O(size)."""
        return decoded(self.count, self.body)


def decoded(count: int, body: bytes) -> tuple[Value, ...]:
    """Returns so many packed values."""
    values = unpack_own(array_head(count) + body)
    assert isinstance(values, tuple)  # as the daemon has packed it
    return values


class RouteQueue:
    """The packets of one session on their way to its route."""

    def __init__(self, peer: Peer) -> None:
        self._peer: Final = peer
        self._outbox: Final = Outbox(self._keep, peer.close, self._keep_batch)
        self._kept = deque[p.Packet | EventBatch]()
        self._changed = trio.Event()
        self._rearmed = trio.Event()
        """Set when ``run`` must look at its deadline again, or a link is there."""
        self._interval = self._next_beat = math.inf
        self._is_quiet = True
        self._poured: SendQueue | None = None
        self._is_closed = False
        self.parted = False
        """True once there was a goodbye, after which nothing is sent."""

    # -- the session's end ----------------------------------------------------------------------------

    @property
    def is_touched(self) -> bool:
        """True if the next flush includes this queue."""
        return self._poured is not None and self._poured.is_touched

    @property
    def sent(self) -> int:
        """Bytes that the client's socket has taken, past the route."""
        return 0 if self._poured is None else self._poured.sent

    @property
    def unheard(self) -> int:
        """The approximate bytes that wait for the client's socket, past the route."""
        return 0 if self._poured is None else self._poured.unheard

    def is_blocked(self) -> bool:
        """True if bytes wait for the client's socket, past the route."""
        return self._poured is not None and self._poured.is_blocked()

    def say(self, packet: p.Packet) -> None:
        """Passes a control packet on; does nothing after a goodbye."""
        if self._poured is not None:
            self._poured.say(packet)
        elif not self.parted:
            self._keep(packet)

    async def answer(self, number: int, value: Value, work: Work) -> None:
        """Passes on the answer to a request, as it is."""
        self.say(p.Answer(number, value))

    def accept(self, epoch: Epoch) -> None:
        """Passes on the acceptance of a turn that is on disk."""
        self.say(p.Accepted(epoch[7], (epoch[0],)))

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""
        if self._poured is not None:
            self._poured.wake(stream)
        else:
            self._outbox.wake(stream)
            self._notify()

    def part(self, code: str, text: str) -> None:
        """Passes on a goodbye, and nothing after it."""
        if self._poured is not None:
            self._poured.part(code, text)
        else:
            self.say(p.Bye(code, text))
            self._outbox.end()
        self.parted = True

    def forget(self) -> None:
        """Drops nothing: acceptances that wait are not packed, so they are no defect."""

    def beat_at(self, interval: float) -> None:
        """Passes on the progress of streams every ``interval`` seconds, and a ping if the route was idle."""
        self._interval, self._next_beat = interval, trio.current_time() + interval
        self._rearmed.set()

    def flush(self) -> None:
        """Writes what the client's socket takes, past the route."""
        if self._poured is not None:
            self._poured.flush()

    async def run(self) -> None:
        """Passes on the progress of streams in each interval, until cancelled."""
        while self._poured is None:
            with trio.move_on_at(self._next_beat):
                await self._rearmed.wait()
            self._rearmed = trio.Event()
            if self._next_beat <= trio.current_time():
                self._next_beat += self._interval
                for packet in self._peer.reached():
                    self.say(packet)
                if self._is_quiet:
                    self.say(p.Ping(0))
                self._is_quiet = True
        await self._poured.run()

    def close(self) -> None:
        """Ends the queue: packets passed on before can still be taken."""
        self._is_closed = True
        self._notify()

    # -- the route's end ------------------------------------------------------------------------------

    async def next(self) -> p.Packet | EventBatch:
        """Returns the next packet or batch; takes nothing when cancelled.

        Raises ``Broken`` where the session has ended without a goodbye.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while (found := self.next_nowait()) is None:
            if self._is_closed:
                raise Broken("the daemon ended the session")
            await self._changed.wait()
        return found

    def next_nowait(self) -> p.Packet | EventBatch | None:
        """Returns the next packet or batch, or None where there is none yet."""
        if not self._kept:
            self._outbox.fill(len(_ONE))
        if not self._kept:
            return None
        self._is_quiet = False
        return self._kept.popleft()

    def pour(self, link: Link, control: Control, framed: Framed) -> None:
        """Writes to this link from now on; the route must have taken all packets that it was passed.

        ``control`` returns the text for a packet which is no value, and ``framed`` for values.
        """
        peer = self._peer
        self._poured = SendQueue(
            link,
            control,
            over=peer.close,
            beaten=peer.reached,
            touch=peer.shared.touch,
            lose=peer.lose,
            defect=peer.defect,
            framed=framed,
        )
        self._poured.beat_at(self._interval)
        for stream in peer.streams.values():
            self._poured.wake(stream)
        self._rearmed.set()

    async def wait_poured(self, is_over: Callable[[], bool], stalled: float) -> None:
        """Returns once all of a text that is over was taken.

        Raises ``OSError`` if the client takes nothing for ``stalled`` seconds, or the session ends before.
        """
        poured = self._poured
        assert poured is not None  # since ``pour``
        sent, since = poured.sent, trio.current_time()
        while not is_over() or poured.is_blocked():
            if self._is_closed:
                raise ConnectionError("the session has ended before all was written")
            with trio.move_on_after(stalled / 4):
                await (poured.wait_drained() if is_over() else self._changed.wait())
            now = trio.current_time()
            if poured.sent != sent or not poured.is_blocked():
                sent, since = poured.sent, now
            elif now - since >= stalled:
                raise TimeoutError(f"the client has read nothing for {stalled:g} s")

    def over(self) -> None:
        """Wakes the route, since the text that is poured is over."""
        self._notify()

    # -------------------------------------------------------------------------------------------------

    def _keep(self, packet: p.Packet) -> bytes:
        self._kept.append(packet)
        self._notify()
        return b""

    def _keep_batch(self, stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
        size = values_size(stream, first, count, body, left)
        self._kept.append(EventBatch(stream, count, body, size))
        return _ONE, size

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
