"""The send queue of one connection: packets and frames on their way to the operating system.

Nearly everything is written at once, when the daemon flushes the queues that have something; bytes that the
socket does not take wait here, until the door of the connection finds it writable again.  A ping is sent when
nothing else was for the interval of the heartbeat.

Always: nothing is taken out of the streams while bytes wait for the socket; accepted turns with consecutive
numbers share one packet, which goes before any packet queued later; nothing is sent after a goodbye.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import trio

from dataspace.faults import reach
from dataspace.kernel.changes import Epoch
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.answers import answering, is_long
from dataspace.wire.session import Framed, Heartbeat
from index.values.values import Value
from relay.delivery.outbox import Outbox, OutStream
from server.lane import Work

BURST: Final = 64 << 10
"""Bytes that one flush takes from the streams of a connection, about: to pack them takes some milliseconds,
and sockets of this machine may take a hundred times as much at once."""

REWRITTEN_BURST: Final = BURST // 4
"""The same where values are not written as they lie: events take about four times as long."""


class SendQueue:
    """The sending half of a connection.

    Calls ``over`` with each stream that has ended by itself, ``beaten`` once in each interval of the
    heartbeat for packets about the streams, ``touch`` when there is something to flush, ``lose`` when the
    connection is lost, and ``defect`` while an unexpected exception is handled.  ``rouse`` is called when
    ``write`` has something to do once the socket is writable, or when ``due`` has changed; without it, the
    task ``run`` does both.  Nothing is sent while ``holds`` returns True, except a goodbye.
    """

    def __init__(
        self,
        link: Link,
        encode: Callable[[p.Packet], bytes],
        *,
        over: Callable[[OutStream], None],
        beaten: Callable[[], Iterable[p.Packet]],
        touch: Callable[[SendQueue], None],
        lose: Callable[[], None],
        defect: Callable[[], None],
        holds: Callable[[], bool],
        rouse: Callable[[], None] | None = None,
        framed: Framed | None = None,
    ) -> None:
        """``encode`` writes a control packet; ``framed`` the values of streams, where not as frames."""
        self._link = link
        self.parted = False
        """True once there was a goodbye, after which nothing is sent."""
        self._outbox: Final = Outbox(encode, over, framed)
        self._is_framed: Final = framed is None
        self._burst: Final = BURST if framed is None else REWRITTEN_BURST
        self._beaten = beaten
        self._touch = touch
        self._lose = lose
        self._defect = defect
        self._holds: Final = holds
        self.sent = 0
        """Bytes that the socket has taken."""
        self.is_broken = False
        """True once the socket takes nothing any more."""
        self.beat = Heartbeat()
        self._next_beat = math.inf
        self._unsent = bytearray()
        self._accepted: list[int] = []
        self._accepted_first = 0
        self.is_touched = False
        """True if the next flush includes this queue."""
        self._drained: trio.Event | None = None
        self._writable = None if rouse is not None else trio.Event()
        self._rouse = self.wake_writer if rouse is None else rouse
        self._now: Final = trio.lowlevel.current_clock().current_time
        """Returns the time as trio has it, in one call: each write asks for it."""

    # -- queueing --------------------------------------------------------------------------------------

    def say(self, packet: p.Packet) -> None:
        """Queues a control packet for the next flush; does nothing after a goodbye."""
        if not self.parted:
            self._say_accepted()
            self._outbox.say(packet)
            self.touch()

    async def answer(self, number: int, value: Value, work: Work) -> None:
        """Queues the answer to a request; a long one is packed in steps of the lane."""
        if not self._is_framed or not is_long(value):
            self.say(p.Answer(number, value))
            return
        data = await work.do(answering(number, value))
        if not self.parted:
            self._say_accepted()
            self._outbox.say_encoded(data)
            self.touch()

    def accept(self, epoch: Epoch) -> None:
        """Queues the acceptance of a turn that is on disk; turns in a row share one packet."""
        accepted, sequence = self._accepted, epoch[7]
        if accepted and sequence != self._accepted_first + len(accepted):
            self._say_accepted()
            accepted = self._accepted
        if not accepted:
            self._accepted_first = sequence
            self.touch()
        accepted.append(epoch[0])

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""
        self._outbox.wake(stream)
        if not self.is_touched:
            self.touch()

    def part(self, code: str, text: str, url: str = "") -> None:
        """Queues a goodbye, and accepts nothing after it; held packets are dropped."""
        if self._holds():
            self._accepted = []
            self._outbox.drop()
        self.say(p.Bye(code, text, url))
        self.parted = True
        self._outbox.end()

    def forget(self) -> None:
        """Drops the acceptances that are not sent yet: it may be these that cannot be sent."""
        self._accepted = []

    def touch(self) -> None:
        """Includes this queue in the next flush."""
        if not self.is_touched:
            self.is_touched = True
            self._touch(self)

    def wake_writer(self) -> None:
        """Wakes the task that writes, for bytes that wait in the link, such as a pong of its protocol."""
        if self._writable is not None:
            self._writable.set()

    def _say_accepted(self) -> None:
        if self._accepted and not self.parted:
            reach("turn-accepted")
            self._outbox.say(p.Accepted(self._accepted_first, tuple(self._accepted)))
            self._accepted = []

    # -- to the socket --------------------------------------------------------------------------------

    @property
    def unheard(self) -> int:
        """Bytes of answers that the peer has not received, about."""
        return len(self._unsent) + self._outbox.control_bytes + 9 * len(self._accepted)

    def is_blocked(self) -> bool:
        """True if bytes wait for the socket."""
        return bool(self._unsent) or self._link.pending

    @property
    def has_more(self) -> bool:
        """True if bytes or streams wait for the socket."""
        return self.is_blocked() or not self._outbox.is_empty

    async def wait_drained(self) -> None:
        """Returns when the socket has taken all bytes that waited."""
        if self._drained is None:
            self._drained = trio.Event()
        await self._drained.wait()

    def beat_at(self, interval: float) -> None:
        """Sends something at least every ``interval`` seconds, and expects the same of the peer."""
        now = trio.current_time()
        self.beat, self._next_beat = Heartbeat(interval, now=now), now + interval
        self._rouse()  # the deadline is computed again

    def flush(self) -> None:
        """Writes what the socket takes; the rest is written once it is writable again."""
        self.is_touched = False
        link = self._link
        if self._unsent or link.pending:  # as ``is_blocked``, for each write
            return
        if not self.parted and self._holds():
            return
        try:
            if self._accepted:
                self._say_accepted()
            if data := self._outbox.fill(self._burst):
                sent = link.send_nowait(data)
                self._note_sent(sent)
                is_left = sent < len(data)
                if is_left:
                    self._unsent += memoryview(data)[sent:]
                if is_left or not self._outbox.is_empty or link.pending:  # else all that was ready is sent
                    self._rouse()
        except OSError:
            self._break()
        except Exception:  # noqa: BLE001  # a fence around a session: the caller that flushes may be the log
            self._defect()

    async def run(self) -> None:
        """Writes what the socket did not take at once, and pings when nothing else was sent."""
        try:
            while True:
                assert self._writable is not None  # as there is no door that is roused
                with trio.move_on_at(self.due):
                    await self._writable.wait()
                self._writable = trio.Event()
                while self.is_blocked():
                    await self._link.wait_writable()
                    self._send_unsent()
                self._go_on()
        except OSError:
            self._break()

    def write(self) -> None:
        """Writes what waited for the socket, and then what is due or ready, as far as the socket takes it.

        Called by the door where ``rouse`` is: when the socket is writable, and at ``due``.
        """
        try:
            self._send_unsent()
            if not self.is_blocked():
                self._go_on()
        except OSError:
            self._break()
        except Exception:  # noqa: BLE001  # a fence around a session
            self._defect()

    @property
    def due(self) -> float:
        """When something is to be sent if nothing else was, on trio's clock."""
        return min(self.beat.due, self._next_beat)

    def _break(self) -> None:
        self.is_broken = True
        self._lose()

    def _send_unsent(self) -> None:
        if self.is_blocked():
            sent = self._link.send_nowait(self._unsent)
            self._note_sent(sent)
            del self._unsent[:sent]

    def _go_on(self) -> None:
        """Sends what is due or ready, as no bytes wait any more."""
        if self._drained is not None:
            self._drained.set()
            self._drained = None
        self._keep_alive()
        self.flush()

    def _keep_alive(self) -> None:
        """Sends in each interval how far the streams are, and a ping if nothing else was sent."""
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
            self.beat.said(self._now())
