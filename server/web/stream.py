"""One HTTP connection as a stream of events: h11 between a link and those who make and await responses.

Always: nothing is read ahead of the request that is being answered, but up to ``AHEAD`` bytes while its
client's end is waited for; a write waits while the client does not read, and no longer than ``stalled``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import h11
import trio

from dataspace.transport.sockets import Link
from server.web.asgi import ClientGone

AHEAD: Final = 64 << 10
"""Bytes of later requests that are taken in before their turn."""

LINGER: Final = 1.0
"""Seconds for the last bytes to be sent and received before the socket is closed."""

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
        self.machine: Final = h11.Connection(h11.SERVER, max_incomplete_event_size=header_bytes)
        self._stalled = stalled_seconds
        self.at_end = False
        """True once the client has closed its side."""

    async def next_event(self) -> Event | type[h11.PAUSED]:
        """Returns the next event; raises ``h11.RemoteProtocolError`` for what is no HTTP."""
        while True:
            event = self.machine.next_event()
            if event is not h11.NEED_DATA:
                await trio.lowlevel.checkpoint_if_cancelled()
                return event  # type: ignore[return-value]  # NEED_DATA is the only other one
            await self._take_in()

    async def wait_begun(self) -> bool:
        """Returns once a byte of the next request is there; False at the end."""
        if not self.machine.trailing_data[0] and not self.at_end:
            await self._take_in()
        return bool(self.machine.trailing_data[0])

    async def wait_gone(self) -> None:
        """Returns when the client has closed its side; what it sends before is kept for its turn."""
        while not self.at_end:
            if len(self.machine.trailing_data[0]) > AHEAD:
                await trio.sleep_forever()  # a client that still sends has not gone
            await self._take_in()

    async def _take_in(self) -> None:
        chunk = await self.link.receive()
        if not self.at_end:
            self.at_end = not chunk
            self.machine.receive_data(chunk)

    def next_cycle(self) -> bool:
        """Makes ready for another request; False if there can be none on this connection."""
        if self.machine.our_state is not h11.DONE or self.machine.their_state is not h11.DONE:
            return False
        self.machine.start_next_cycle()
        return True

    async def send(self, *events: Event) -> None:
        """Sends events in one write; raises ``h11.LocalProtocolError`` for what may not be sent now, and
        ``ClientGone``."""
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
