"""TLS: a link whose bytes are encrypted.

With ``trio.SSLStream`` every write may wait, and a daemon must not wait for one observer while it sends to
the others; so the state machine of the standard library runs here between two buffers, above a plain link,
and has the same methods.

Always: bytes taken by ``send_nowait`` leave in order, and ``pending`` is true while some are buffered; a peer
that does not use TLS, or whose certificate is not accepted, is an end of input, and an ``SSLError`` for the
side that started the handshake.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final

from dataspace.transport.sockets import CHUNK, Link, SocketLink

logger = logging.getLogger("dataspace")

PLAIN: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
"""Reasons that OpenSSL gives for a peer that does not use TLS; to these it sends no alert itself."""

ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"
"""A fatal alert of TLS, "protocol version"."""

AHEAD: Final = 256 << 10
"""Encrypted bytes that may wait for the kernel before no more is taken."""


class TlsLink:
    """An encrypted link above a link; the handshake happens when data is first received."""

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

    @property
    def encryption(self) -> str:
        """The version of TLS, such as ``TLSv1.3``; empty before the handshake."""
        return self._machine.version() or "" if self._shaken else ""

    async def shake_hands(self) -> None:
        """Completes the handshake; raises ``ssl.SSLError`` if that fails."""
        while not self._shaken:
            try:
                self._machine.do_handshake()
                self._shaken = True
            except ssl.SSLWantReadError:
                await self._send_coded()
                await self._take_in()
            except ssl.SSLError as error:
                if self._machine.server_side and error.reason in PLAIN:
                    self._coded += ALERT
                self._try_to_send()  # the alert, which gives the peer the reason
                raise
        await self._send_coded()

    async def receive(self) -> bytes:
        """Returns some bytes, or none at the end of input; always a checkpoint."""
        if self._finished:  # what still comes is taken and dropped
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
        """Returns what has come already, no bytes at the end of input, or None where nothing has come."""
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
        """Returns decrypted bytes of the received ones, or None if more must come first."""
        try:
            data = self._machine.read(CHUNK)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""
        finally:
            self._try_to_send()  # reading can produce output, such as new keys
        return data

    async def _take_in(self) -> None:
        self._feed(await self._link.receive())

    def _feed(self, chunk: bytes) -> None:
        if chunk:
            self._incoming.write(chunk)
        else:
            self._incoming.write_eof()

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Returns how many bytes were taken: all, or 0; raises ``OSError`` if the peer has closed, or is not
        there yet."""
        if not self._shaken:
            raise ConnectionError("nothing can be sent before the handshake")
        self._flush()
        if not data or len(self._coded) >= AHEAD:
            return 0
        taken = self._machine.write(data)
        self._flush()
        return taken

    @property
    def pending(self) -> bool:
        """True if bytes that were taken wait for the kernel."""
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
            pass  # the next read or write detects it

    async def _send_coded(self) -> None:
        self._try_to_send()
        while self._coded:
            await self._link.wait_writable()
            self._flush()

    async def wait_writable(self) -> None:
        """Returns when the kernel has buffer space again."""
        await self._link.wait_writable()

    def finish(self) -> None:
        """Ends the output; input can still be read."""
        self._finished = True
        if self._shaken:
            try:
                self._machine.unwrap()
            except (ssl.SSLError, OSError):
                pass  # the peer's end has not come yet, and is not needed
            self._try_to_send()
        if not self._coded:
            self._link.finish()

    def close(self) -> None:
        """Closes the socket and wakes every task that waits for it; may be called again."""
        self._link.close()


def encryption_of(link: Link) -> str:
    """Returns the version of TLS of a link, such as ``TLSv1.3``; empty without it."""
    return link.encryption if isinstance(link, TlsLink) else ""
