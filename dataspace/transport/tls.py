"""TLS: a link whose bytes are secret.

``trio.SSLStream`` makes every write a wait, and a daemon must not wait for one observer while it tells the
others; so the state machine of the standard library runs here between two buffers, above a plain link, and
has the same verbs as that.

Always: what ``send_nowait`` took leaves in order, and ``pending`` says whether some of it has yet to; a peer
that does not speak TLS, or does not convince, is an end of input, and an ``SSLError`` for who shakes hands.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final

from dataspace.transport.sockets import CHUNK, SocketLink

logger = logging.getLogger("dataspace")

AHEAD: Final = 256 << 10
"""Secret bytes that may wait for the kernel before nothing more is taken."""


class TlsLink:
    """A link above a link; the handshake happens when something is first received."""

    __slots__ = ("_coded", "_finished", "_incoming", "_link", "_machine", "_outgoing", "_shaken", "peer")

    def __init__(
        self,
        link: SocketLink,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_name: str | None = None,
    ) -> None:
        self._link = link
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._machine = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._coded = bytearray()
        self._shaken = False
        self._finished = False
        self.peer = link.peer

    async def shake_hands(self) -> None:
        """Agrees on a secret; ``ssl.SSLError`` if that cannot be."""
        while not self._shaken:
            try:
                self._machine.do_handshake()
                self._shaken = True
            except ssl.SSLWantReadError:
                await self._send_coded()
                await self._take_in()
            except ssl.SSLError:
                self._try_to_send()  # the alert, so that the peer learns why
                raise
        await self._send_coded()

    async def receive(self) -> bytes:
        """Some bytes, or none at the end of input; always a checkpoint."""
        if self._finished:  # what still comes is not read any more, only taken
            return await self._link.receive()
        try:
            if not self._shaken:
                await self.shake_hands()
            while (data := self._read()) is None:
                await self._take_in()
        except ssl.SSLError as error:
            logger.info("TLS with %s: %s", self.peer, error.reason or error)
            return b""
        return data

    def receive_nowait(self) -> bytes | None:
        """What has come already, none at the end of input, or None where nothing has."""
        if not self._shaken:
            return None
        try:
            data = self._read()
            while data is None and (chunk := self._link.receive_nowait()) is not None:
                self._feed(chunk)
                data = self._read()
        except ssl.SSLError:
            return b""
        return data

    def _read(self) -> bytes | None:
        """What can be read of what has come, or None if there has to come more."""
        try:
            data = self._machine.read(CHUNK)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""
        finally:
            self._try_to_send()  # reading can make something to be said, such as new keys
        return data

    async def _take_in(self) -> None:
        self._feed(await self._link.receive())

    def _feed(self, chunk: bytes) -> None:
        if chunk:
            self._incoming.write(chunk)
        else:
            self._incoming.write_eof()

    def send_nowait(self, data: bytes | bytearray) -> int:
        """How many bytes were taken: all, or none; ``OSError`` if the peer is gone, or not there yet."""
        if not self._shaken:
            raise ConnectionError("nothing can be said before the handshake")
        self._flush()
        if not data or len(self._coded) >= AHEAD:
            return 0
        taken = self._machine.write(data)
        self._flush()
        return taken

    @property
    def pending(self) -> bool:
        """Whether bytes that were taken wait for the kernel."""
        return bool(self._coded)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._coded += self._outgoing.read()
        if self._coded:
            del self._coded[: self._link.send_nowait(self._coded)]

    def _try_to_send(self) -> None:
        try:
            self._flush()
        except OSError:
            pass  # whoever reads or writes next finds out

    async def _send_coded(self) -> None:
        self._try_to_send()
        while self._coded:
            await self._link.wait_writable()
            self._flush()

    async def wait_writable(self) -> None:
        """Returns when the kernel has room again."""
        await self._link.wait_writable()

    def finish(self) -> None:
        """Tells the peer that nothing more comes; it can still be heard."""
        self._finished = True
        if self._shaken:
            try:
                self._machine.unwrap()
            except (ssl.SSLError, OSError):
                pass  # its own end has not come yet, which nobody waits for
            self._try_to_send()
        if not self._coded:
            self._link.finish()

    def close(self) -> None:
        """Closes the socket and wakes whoever waits on it; may be called again."""
        self._link.close()
