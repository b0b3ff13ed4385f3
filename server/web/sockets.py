"""A WebSocket as a link, above a plain socket or TLS.

The session machine above cuts messages and writes them, so the bytes pass through as they are.  The link has
what the protocol itself says: it answers pings, and closes with a closing frame.

Always: what the kernel has not taken of a frame is kept here, and goes before whatever else is to be sent.
"""

from __future__ import annotations

from typing import Final

import trio

from dataspace.transport.sockets import Link
from server.web.messages import PONG, MessageCutter, closing, message


class WebSocketLink:
    """The bytes of a WebSocket; ``ahead`` are the bytes that came after its request."""

    def __init__(self, link: Link, kind: int, ahead: bytes) -> None:
        self._link = link
        self._ahead = ahead
        self.peer = link.peer
        self.cutter: Final = MessageCutter(kind, self._answer)
        """Cuts what is received; it belongs to the session machine."""
        self._out = bytearray()
        self._pong = b""
        self._is_finished = False

    async def receive(self) -> bytes:
        """Returns some bytes, or none once the client has closed; always a checkpoint."""
        if self._ahead or self.cutter.is_closed:
            await trio.lowlevel.checkpoint_if_cancelled()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return self.receive_nowait() or b""
        data = await self._link.receive()
        return self._noted(data) if self._is_finished else data

    def receive_nowait(self) -> bytes | None:
        """Returns what has come already, no bytes once the client has closed, or None where nothing has."""
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        if self.cutter.is_closed:
            return b""
        found = self._link.receive_nowait()
        return self._noted(found) if found and self._is_finished else found

    def _noted(self, data: bytes) -> bytes:
        """Looks for the closing frame, where nothing else reads what comes."""
        for _ in self.cutter.feed(data):
            pass
        return b"" if self.cutter.is_closed else data

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Returns how many bytes were taken: all, or 0; raises ``OSError`` if the peer has closed."""
        if self._out or self._pong:
            self._flush()
            if self._out:
                return 0
        if not data:
            self._link.send_nowait(data)  # what waits below, where that is TLS
        elif not self._is_finished:
            self._pass_on(data)
        return len(data)

    def _pass_on(self, data: bytes | bytearray) -> None:
        sent = self._link.send_nowait(data)
        if sent < len(data):
            self._out += memoryview(data)[sent:]

    def _flush(self) -> None:
        if self._out:
            del self._out[: self._link.send_nowait(self._out)]
        if self._pong and not self._out:
            pong, self._pong = self._pong, b""
            self._pass_on(pong)

    def _answer(self, payload: bytes) -> None:
        """Answers a ping; of several that wait for the kernel the latest counts."""
        if not self._is_finished:
            self._pong = message(PONG, payload)
            try:
                self._flush()
            except OSError:
                pass  # the next read or write detects it

    @property
    def pending(self) -> bool:
        """True if bytes that were taken wait for the kernel."""
        return bool(self._out or self._pong) or self._link.pending

    async def wait_writable(self) -> None:
        """Returns when the kernel has buffer space again."""
        await self._link.wait_writable()

    def finish(self) -> None:
        """Sends the closing frame; input can still be read, up to the client's closing frame."""
        if self._is_finished:
            return
        self._pong = b""
        try:
            self._flush()
            if not self._out:
                self._pass_on(closing(self.cutter.code))
        except OSError:
            pass  # the connection is lost already
        self._is_finished = True

    def close(self) -> None:
        """Closes the socket and wakes every task that waits for it; may be called again."""
        self.finish()
        self._link.close()
