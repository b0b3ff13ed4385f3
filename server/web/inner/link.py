"""Inner links: both ends of a connection within this process.

A request over HTTP is served by the session machine that serves every other client, over a link without a
socket.  The end of the session has the methods of ``dataspace.transport.sockets.Link``.

A session may also *pour*: it then writes to the client's own link, past the route.

Always: the bytes on their way to a route are bounded, so that a route that does not read holds its session
back as a full socket does; after ``hang_up`` nothing that the session sends is kept.
"""

from __future__ import annotations

from typing import Final

import trio

from dataspace.transport.sockets import Link

ROOM: Final = 64 << 10
"""Bytes on their way to a route, beyond which the session waits."""


class Pour:
    """What a session writes for a client: ``made`` counts its bytes, ``is_over`` says that these are all."""

    __slots__ = ("is_over", "made")

    def __init__(self) -> None:
        self.made = 0
        self.is_over = False


class InnerLink:
    """One connection; ``peer`` is the address of the client that sent the request."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._into: Link | None = None
        self._pour = Pour()
        self._poured = 0
        self._blocked_since: float | None = None
        self._in = bytearray()
        self._out = bytearray()
        self._closed = self._finished = self._hung_up = False
        self._changed = trio.Event()

    # -- the session's end ----------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """Returns some bytes, or none at the end of input; always a checkpoint."""
        await trio.lowlevel.checkpoint()
        while (data := self.receive_nowait()) is None:
            await self._wait()
        return data

    def receive_nowait(self) -> bytes | None:
        """Returns what has come already, no bytes at the end of input, or None where nothing has come."""
        if self._in:
            data = bytes(self._in)
            self._in.clear()
            return data
        return b"" if self._hung_up or self._closed else None

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Returns how many bytes were taken, perhaps 0."""
        if self._hung_up:
            return len(data)
        if self._into is not None:
            return self._send_into(self._into, data)
        taken = min(len(data), max(0, ROOM - len(self._out)))
        if taken:
            self._out += memoryview(data)[:taken]
            self._notify()
        return taken

    def _send_into(self, into: Link, data: bytes | bytearray) -> int:
        taken = into.send_nowait(data)
        self._poured += taken
        if taken == len(data) and not into.pending:
            self._blocked_since = None
            if self._pour.is_over and self._poured >= self._pour.made:
                self._notify()
        elif taken or self._blocked_since is None:
            self._blocked_since = trio.current_time()
        return taken

    @property
    def pending(self) -> bool:
        """True if bytes that were taken wait for the kernel."""
        return self._into is not None and not self._hung_up and self._into.pending

    async def wait_writable(self) -> None:
        """Returns when there is room again."""
        if self._into is not None and not self._hung_up:
            await self._into.wait_writable()
            return
        await trio.lowlevel.checkpoint()
        while len(self._out) >= ROOM and not (self._hung_up or self._closed):
            await self._wait()

    def finish(self) -> None:
        """Ends the output; input can still be read."""
        self._finished = True
        self._notify()

    def close(self) -> None:
        """Ends both directions; may be called again."""
        self._closed = True
        self.finish()

    # -- the route's end ------------------------------------------------------------------------------

    def tell(self, data: bytes) -> None:
        """Sends bytes to the session; does nothing after the end."""
        if not (self._hung_up or self._closed):
            self._in += data
            self._notify()

    async def hear(self) -> bytes:
        """Returns what the session has sent, no bytes at its end; takes nothing when cancelled."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._out and not self._finished:
            await self._wait()
        data = bytes(self._out)
        if data:
            self._out.clear()
            self._notify()
        return data

    @property
    def is_empty(self) -> bool:
        """True if nothing of the session is on its way to the route."""
        return not self._out

    def pour(self, into: Link, pour: Pour) -> None:
        """Passes what the session sends to another link from now on."""
        self._into, self._pour = into, pour

    async def wait_poured(self, stalled: float) -> None:
        """Returns once all of a pour was taken.

        Raises ``OSError`` if the client takes nothing for ``stalled`` seconds, or the session ends before.
        """
        while not (self._pour.is_over and self._poured >= self._pour.made):
            if self._finished:
                raise ConnectionError("the session has ended before all was written")
            with trio.move_on_after(stalled / 4):
                await self._wait()
            since = self._blocked_since
            if since is not None and trio.current_time() - since >= stalled:
                raise TimeoutError(f"the client has read nothing for {stalled:g} s")

    def hang_up(self) -> None:
        """Ends the connection from the side of the route; later bytes are dropped."""
        self._hung_up = True
        self._out.clear()
        self._notify()

    # -------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
