"""One HTTP connection as a stream of events: h11 between a link and the tasks that make and await responses.

Always: nothing is read ahead of the request that is being answered, but up to ``AHEAD`` bytes while its
client's end is waited for; h11 gets a head only once it is whole and within its bounds, and the rest in
portions, so one step costs a few milliseconds at most; a write waits while the client does not read, and no
longer than ``stalled``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import h11
import trio

from dataspace.transport.sockets import Link
from server.web.asgi import ClientGone

AHEAD: Final = 64 << 10
"""Bytes of later requests that are taken in before their turn."""

MOST_HEADERS: Final = 128
"""Headers of a request: each costs some microseconds, however short it is."""

PORTION: Final = 4096
"""Bytes of chunks that h11 gets at a time; the head of a chunk, or the trailers, may have as many."""

EVENTS: Final = 32
"""Events, such as small chunks, after which others run."""

LINGER: Final = 1.0
"""Seconds for the last bytes to be sent and received before the socket is closed."""

_END: Final = re.compile(rb"\n\r?\n")

Event: TypeAlias = (
    h11.Request
    | h11.InformationalResponse
    | h11.Response
    | h11.Data
    | h11.EndOfMessage
    | h11.ConnectionClosed
)


class HttpStream:
    """The events of one connection; h11 knows which may come when."""

    def __init__(self, link: Link, *, header_bytes: int, stalled_seconds: float) -> None:
        self.link = link
        self.machine = _machine()
        """h11's state of one request and its response."""
        self._header_bytes = header_bytes
        self._stalled = stalled_seconds
        self._held = bytearray()
        """Received bytes that h11 has not."""
        self._portion = 0
        self._events = 0
        self.at_end = False
        """True once the client has closed its side."""

    @property
    def ahead(self) -> bytes:
        """Bytes received after the latest event."""
        return self.machine.trailing_data[0] + bytes(self._held)

    async def next_event(self) -> Event | type[h11.PAUSED]:
        """Returns the next event.

        Raises ``h11.RemoteProtocolError`` for bytes that are no HTTP, or beyond a bound.
        """
        while True:
            event = self.machine.next_event()
            if event is not h11.NEED_DATA:
                if isinstance(event, h11.Request):
                    self._portion = PORTION if holds(event.headers, b"transfer-encoding") else AHEAD
                self._events += 1
                if self._events % EVENTS:
                    await trio.lowlevel.checkpoint_if_cancelled()
                else:
                    await trio.lowlevel.checkpoint()
                return event  # type: ignore[return-value]  # NEED_DATA is the only other one
            while not (size := self._next_portion()) and not self.at_end:
                await self._take_in()
            self.machine.receive_data(bytes(self._held[:size]))
            del self._held[:size]

    def _next_portion(self) -> int:
        """Returns how many bytes h11 may have now."""
        if self.machine.their_state is not h11.IDLE:
            return min(len(self._held), self._portion)
        found = _END.search(self._held, 0, self._header_bytes)
        if found is None:
            if len(self._held) >= self._header_bytes:
                said = f"the first line and headers exceed web.header_bytes={self._header_bytes}"
                raise h11.RemoteProtocolError(said, error_status_hint=431)
            is_none = self.at_end or self._held[:1] < b"!"  # h11 says what is wrong
            return min(len(self._held), PORTION) if is_none else 0
        if (count := self._held.count(b"\n", 0, found.start())) > MOST_HEADERS:
            said = f"{count} headers, {MOST_HEADERS} are allowed"
            raise h11.RemoteProtocolError(said, error_status_hint=431)
        return found.end()

    async def wait_begun(self) -> bool:
        """Returns once a byte of the next request is there; False at the end."""
        if not self.ahead and not self.at_end:
            await self._take_in()
        return bool(self.ahead)

    async def wait_gone(self) -> None:
        """Returns when the client has closed its side; bytes that it sends before are kept for their turn."""
        while not self.at_end:
            if len(self._held) > AHEAD:
                await trio.sleep_forever()  # a client that still sends has not gone
            await self._take_in()

    async def _take_in(self) -> None:
        chunk = await self.link.receive()
        self.at_end = self.at_end or not chunk
        self._held += chunk

    def next_cycle(self) -> bool:
        """Makes ready for another request; False if there can be none on this connection."""
        if self.machine.our_state is not h11.DONE or self.machine.their_state is not h11.DONE:
            return False
        self._held[:0] = self.machine.trailing_data[0]  # h11 is to have whole heads only
        self.machine = _machine()
        return True

    async def send(self, *events: Event) -> None:
        """Sends events in one write; raises ``h11.LocalProtocolError`` for events that may not be sent now,
        and ``ClientGone``."""
        await self.write(b"".join([self.machine.send(event) or b"" for event in events]))

    async def write(self, data: bytes) -> None:
        """Returns once the kernel has taken the bytes; raises ``ClientGone``."""
        link = self.link
        try:
            sent = link.send_nowait(data) if data else 0
            while sent < len(data) or link.pending:
                with trio.move_on_after(self._stalled) as waiting:
                    await link.wait_writable()
                if waiting.cancelled_caught:
                    raise ClientGone(f"the client has read nothing for {self._stalled:g} s")
                sent += link.send_nowait(data[sent:])
        except ClientGone:
            raise
        except OSError as error:
            raise ClientGone(f"the client has closed the connection: {error}") from None
        await trio.lowlevel.checkpoint()

    async def linger(self) -> None:
        """Ends the output, and reads on for a moment: to close a socket with unread input resets it."""
        with trio.move_on_after(LINGER):
            self.link.finish()
            while not self.at_end and await self.link.receive():
                pass


def _machine() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=PORTION)


def holds(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bool:
    """True if there is a header of this name."""
    return name in dict(headers)


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Returns the value of a header that may come once; None where there is none, or several."""
    found = [value for at, value in headers if at == name]
    return found[0] if len(found) == 1 else None


def listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Returns the words of a header that is a list, in all its places."""
    words = [
        word.strip() for at, value in headers if at == name for word in value.decode("latin-1").split(",")
    ]
    return [word for word in words if word]
