"""The output of one connection: streams on their way out, in which frames and how much now?

An ``OutStream`` is one opened stream of a connection: its credit, what it has used of it, and the observation
behind it.  An ``Outbox`` holds everything that one connection has yet to send: control packets first, then
the streams in turn, one frame each, so that a full stream cannot starve the others.

Credit is a total of items and bytes since the stream was opened.  A frame is filled while there is credit
for another item and any credit in bytes at all; the last value may overdraw the bytes, so that a large
value cannot get stuck.  What a frame costs in bytes is the length of its body, which both sides know.

Always: no more items leave than were asked for; ``Done`` and ``Error`` need no credit, and nothing leaves
a stream after them; there is no credit for a connection as a whole.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Final

import trio

from dataspace.codec import array_head
from dataspace.wire.frames import HEAD
from dataspace.wire.packets import NUMBERS, Available, Done, Error, Packet, Values
from dataspace.wire.session import Framed
from relay.delivery.memory import LEAST
from relay.delivery.packed import Backlog

FRAME_ITEMS: Final = 512
FRAME_BYTES: Final = 32 << 10
"""Bytes of one stream's values in a frame before it is the next stream's turn."""

REWRITTEN_BYTES: Final = FRAME_BYTES // 8
"""The same where values are not sent as they lie: a row may have three bytes, and takes a microsecond."""

AHEAD_BYTES: Final = LEAST
"""What a replay reads for a stream beyond its credit, so that a peek or an end can be answered."""

READ_AHEAD_BYTES: Final = 512 << 10
"""Bytes that a replay reads ahead for a stream at most, whatever its credit: sixteen frames."""

FILL_SECONDS: Final = 0.001
"""Seconds after which one connection has packed enough for one write."""

LARGE: Final = 8 << 10
"""Bytes that are filled without a look at the clock."""

_NUMBER: Final = struct.Struct(">BQ")


_SMALL: Final = [bytes((number,)) for number in range(128)]
_ARRAYS: Final = [array_head(count) for count in range(FRAME_ITEMS + 1)]
_HEAD: Final = b"\x95" + _SMALL[NUMBERS[Values]]


def values_frame(stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
    """Returns a frame of values, and the size of its body.

    The numbers in it are written here and not by the codec, whose calls would be most of a small frame.
    """
    head = _SMALL[stream] if stream < 128 else _NUMBER.pack(0xCF, stream)
    since = _SMALL[first] if first < 128 else _NUMBER.pack(0xCF, first)
    array, tail = _ARRAYS[count], _SMALL[left] if left < 128 else _NUMBER.pack(0xCF, left)
    size = len(_HEAD) + len(head) + len(since) + len(array) + len(body) + len(tail)
    return b"".join((size.to_bytes(HEAD, "big"), _HEAD, head, since, array, body, tail)), size


def values_size(stream: int, first: int, count: int, body: bytes, left: int) -> int:
    """Returns the length of that packet; O(1)."""
    numbers = [1 if each < 128 else 9 for each in (stream, first, left)]
    return len(_HEAD) + sum(numbers) + len(_ARRAYS[count]) + len(body)


@lru_cache(maxsize=256)
def one_of(number: int) -> int:
    """Returns the same number, as one object for all streams that have it: few different ones are in use."""
    return number


class OutStream:
    """One opened stream: credit in totals, an observation, and perhaps an end."""

    __slots__ = (
        "bytes",
        "complete",
        "ended",
        "items",
        "number",
        "backlog",
        "pattern_bytes",
        "peeked",
        "reached",
        "replayed",
        "sent_bytes",
        "sent_items",
        "_taken",
    )

    def __init__(self, number: int, items: int, size: int) -> None:
        self.number = number
        self.items = one_of(items)
        self.bytes = one_of(size)
        self.sent_items = 0
        self.sent_bytes = 0
        self.peeked = -1
        """Total of values that a peek waits for; below 0 if there is no peek."""
        self.reached = self.replayed = 0
        """The epoch to which the peer was last said to know all, and to which the log was read for it."""
        self.backlog: Backlog | None = None
        self.pattern_bytes = 0
        """What its pattern counts as in the quota of its principal."""
        self.complete = False
        self.ended = False
        self._taken: trio.Event | None = None

    async def wait_taken(self) -> None:
        """Returns when values have left the stream since this was called."""
        if self._taken is None:
            self._taken = trio.Event()
        await self._taken.wait()

    @property
    def sated(self) -> bool:
        """True if as much waits already as the credit allows, and more than ``AHEAD_BYTES`` beyond that.

        Also true from ``READ_AHEAD_BYTES`` on, since credit does not say that the peer reads.
        """
        waiting = self.backlog
        if waiting is None or waiting.used < AHEAD_BYTES:
            return False
        if waiting.used >= READ_AHEAD_BYTES:
            return True
        return self.items <= self.sent_items + len(waiting) or self.bytes <= self.sent_bytes + waiting.used

    def ask(self, items: int, size: int) -> None:
        """Raises the credit to these totals; lower ones are ignored."""
        self.items = max(self.items, items)
        self.bytes = max(self.bytes, size)

    def next_frame(
        self, framed: Framed = values_frame, most: int = FRAME_BYTES
    ) -> tuple[bytes, int, int] | None:
        """Returns one frame of values that the credit allows, how many are in it, and how many are left.

        After about ``most`` bytes the frame ends.

        Only the head and the end of the frame are of this stream: many streams may share the body.
        ``framed`` writes it.
        """
        waiting = self.backlog
        items, size = self.items - self.sent_items, self.bytes - self.sent_bytes
        if waiting is None or self.ended or items <= 0 or size <= 0:
            return None
        if items > FRAME_ITEMS:
            items = FRAME_ITEMS
        count, body = waiting.take_packed(items, size if size < most else most)
        if not count:
            return None
        if self._taken is not None:
            self._taken.set()
            self._taken = None
        left = len(waiting)
        frame, size = framed(self.number, self.sent_items, count, body, left)
        self.sent_items += count
        self.sent_bytes += size
        return frame, count, left

    def answer_peek(self) -> Packet | None:
        """Returns the answer to a peek, once as many values as it is about were sent or are ready."""
        known = self.sent_items + (0 if self.backlog is None else len(self.backlog))
        if self.peeked < 0:
            return None
        if known < self.peeked:
            if self.backlog is not None:
                self.backlog.take_packed(0, 0)  # so that the next value wakes the stream, credit or not
            return None
        self.peeked = -1
        return Available(self.number, known)

    def ending(self) -> Packet | None:
        """Returns the packet that ends the stream, once it has failed or all of a complete one has left."""
        waiting = self.backlog
        if waiting is not None and waiting.failure is not None:
            return Error(self.number, waiting.failure.code, waiting.failure.text)
        if self.complete and (waiting is None or not len(waiting)):
            return Done(self.number)
        return None


class Outbox:
    """Everything that one connection has yet to send.

    ``encode`` turns a control packet into bytes, and ``framed`` values of a stream; ``over`` is called with a
    stream that has ended by itself.
    """

    __slots__ = (
        "_control",
        "_encode",
        "_ended",
        "_framed",
        "_most",
        "_over",
        "_ready",
        "_ready_set",
        "control_bytes",
    )

    def __init__(
        self,
        encode: Callable[[Packet], bytes],
        over: Callable[[OutStream], None],
        framed: Framed | None = None,
    ) -> None:
        self._encode = encode
        self._framed: Final = framed or values_frame
        self._most: Final = FRAME_BYTES if framed is None else REWRITTEN_BYTES
        self._over = over
        self._control: list[bytes] = []
        self.control_bytes = 0
        """Bytes of control packets that wait; bounded by the reader of the requests that they answer."""
        self._ended = False
        self._ready: deque[OutStream] = deque()
        self._ready_set: set[OutStream] = set()

    def say(self, packet: Packet) -> None:
        """Queues a control packet; it goes before any values."""
        self.say_encoded(self._encode(packet))

    def say_encoded(self, data: bytes) -> None:
        """Does the same for a packet that is bytes already."""
        self._control.append(data)
        self.control_bytes += len(data)

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream may have something to send."""
        if stream not in self._ready_set and not self._ended:
            self._ready_set.add(stream)
            self._ready.append(stream)

    def forget(self, stream: OutStream) -> None:
        """Ends a stream from below: nothing more leaves it."""
        stream.ended = True

    @property
    def is_empty(self) -> bool:
        """True if no stream has anything to send, unless it is woken."""
        return not self._ready

    def end(self) -> None:
        """Ends all streams: only the control packets that wait are still sent."""
        self._ended = True
        self._ready.clear()
        self._ready_set.clear()

    def drop(self) -> None:
        """Drops the control packets that wait."""
        self._control.clear()
        self.control_bytes = 0

    def fill(self, budget: int) -> bytes:
        """Returns the bytes to send now: all control packets, then values up to about ``budget`` bytes.

        Ends sooner if the values take long to pack, as a state does; ``is_empty`` is False then.
        """
        pieces, self._control = self._control, []
        size, self.control_bytes = self.control_bytes, 0
        ready, framed, most = self._ready, self._framed, self._most
        until = perf_counter() + FILL_SECONDS
        while ready and size < budget:
            stream = ready.popleft()
            got = stream.next_frame(framed, most)
            if got is not None:
                pieces.append(got[0])
                size += len(got[0])
                if size > LARGE and perf_counter() > until:
                    size = budget
                if got[2] or stream.complete or stream.peeked >= 0:
                    ready.append(stream)
                else:  # it is woken again
                    self._ready_set.discard(stream)
                continue
            self._ready_set.discard(stream)
            known = stream.answer_peek() if stream.peeked >= 0 and not stream.ended else None
            if known is not None:
                pieces.append(self._encode(known))
            end = None if stream.ended else stream.ending()
            if end is not None:
                stream.ended = True
                pieces.append(self._encode(end))
                self._over(stream)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
