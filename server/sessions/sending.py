"""SendQueue: what one connection says, on its way to the kernel.

Nearly all is handed over at once, when the daemon flushes those that have something to say; what the kernel
does not take waits here, and a task hands it over when there is room again.  Where nothing else is said, a
sign of life is.  Apart from the connection because it need not know what is said, or why.

Always: nothing is taken out of the streams while bytes wait for the kernel; turns that were accepted in a row
share one packet, which goes before whatever is said after it; after a goodbye nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import trio

from dataspace.faults import reach
from dataspace.kernel.epochs import Epoch
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.heartbeat import Heartbeat
from dataspace.wire.session import Session
from relay.delivery.outbox import Outbox, OutStream

BURST: Final = 256 << 10
"""Bytes that one connection may have handed out but not yet to the kernel, before its streams wait."""


class SendQueue:
    """The sending half of a connection.

    ``over`` is told of each stream that has ended by itself, ``beaten`` is asked once in each interval of the
    heartbeat for what there is to say of the streams, ``touch`` hears when there is something to flush,
    ``lose`` when the kernel says that the peer is gone, and ``defect`` of an exception that nobody foresaw.
    """

    def __init__(
        self,
        link: Link,
        session: Session,
        *,
        over: Callable[[OutStream], None],
        beaten: Callable[[], Iterable[p.Packet]],
        touch: Callable[[SendQueue], None],
        lose: Callable[[], None],
        defect: Callable[[], None],
    ) -> None:
        self._link = link
        self._session = session
        self._outbox: Final = Outbox(session.send, over)
        self._beaten = beaten
        self._touch = touch
        self._lose = lose
        self._defect = defect
        self.sent = 0
        """Bytes that the kernel has taken."""
        self.beat = Heartbeat()
        self._next_beat = math.inf
        self._unsent = bytearray()
        self._accepted: list[int] = []
        self._accepted_first = 0
        self._dirty = False
        self._drained = trio.Event()
        self._writable = trio.Event()

    # -- what is said ---------------------------------------------------------------------------------

    def say(self, packet: p.Packet) -> None:
        """Queues a control packet for the next flush; after a goodbye there is nobody to hear it."""
        if not self._session.parted:
            self._say_accepted()
            self._outbox.say(packet)
            self.touch()

    def accept(self, epoch: Epoch) -> None:
        """A turn of the peer is on disk; turns in a row share one packet."""
        if self._accepted and epoch.sequence != self._accepted_first + len(self._accepted):
            self._say_accepted()
        if not self._accepted:
            self._accepted_first = epoch.sequence
        self._accepted.append(epoch.number)
        self.touch()

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""
        self._outbox.wake(stream)
        self.touch()

    def part(self, code: str, text: str) -> None:
        """Says goodbye, after which nothing is said."""
        self.say(p.Bye(code, text))
        self._outbox.end()

    def forget(self) -> None:
        """Leaves out the turns that were accepted and not said to be: to say so may be what fails."""
        self._accepted = []

    def touch(self) -> None:
        """Has the next flush come by here."""
        if not self._dirty:
            self._dirty = True
            self._touch(self)

    def _say_accepted(self) -> None:
        if self._accepted and not self._session.parted:
            reach("turn-accepted")
            self._outbox.say(p.Accepted(self._accepted_first, tuple(self._accepted)))
            self._accepted = []

    # -- to the kernel --------------------------------------------------------------------------------

    @property
    def unheard(self) -> int:
        """Bytes of answers that the peer has not taken, about."""
        return len(self._unsent) + self._outbox.control_bytes + 9 * len(self._accepted)

    def is_blocked(self) -> bool:
        """Whether something waits for the kernel."""
        return bool(self._unsent) or self._link.pending

    async def wait_drained(self) -> None:
        """Returns when the kernel has taken all that waited for it."""
        self._drained = trio.Event()
        await self._drained.wait()

    def beat_at(self, interval: float) -> None:
        """Has something said at least every so many seconds, and expects as much of the peer."""
        now = trio.current_time()
        self.beat, self._next_beat = Heartbeat(interval, now=now), now + interval
        self._writable.set()  # the task reckons anew

    def flush(self) -> None:
        """Hands to the kernel what it takes; the task has the rest."""
        self._dirty = False
        if self.is_blocked():
            return
        try:
            self._say_accepted()
            while data := self._outbox.fill(BURST):
                sent = self._link.send_nowait(data)
                self._note_sent(sent)
                if sent < len(data):
                    self._unsent += memoryview(data)[sent:]
                if self.is_blocked():
                    self._writable.set()
                    return
        except OSError:
            self._lose()
        except Exception:  # noqa: BLE001  # a fence around a session: whoever flushes is somebody else, perhaps the log
            self._defect()

    async def run(self) -> None:
        """Writes what the kernel would not take at once, and a sign of life when nothing else was said."""
        try:
            while True:
                with trio.move_on_at(min(self.beat.due, self._next_beat)):
                    await self._writable.wait()
                self._writable = trio.Event()
                while self.is_blocked():
                    await self._link.wait_writable()
                    sent = self._link.send_nowait(self._unsent)
                    self._note_sent(sent)
                    del self._unsent[:sent]
                self._drained.set()
                self._keep_alive()
                self.flush()
        except OSError:
            self._lose()

    def _keep_alive(self) -> None:
        """Says in each interval how far the streams are, and anything where nothing else was said."""
        now = trio.current_time()
        if self._next_beat <= now:
            self._next_beat = now + self.beat.interval
            for each in self._beaten():
                self.say(each)
        if self.beat.due <= now:
            self.beat.said(now)
            self.say(p.Ping(0))

    def _note_sent(self, size: int) -> None:
        if size:
            self.sent += size
            self.beat.said(trio.current_time())
