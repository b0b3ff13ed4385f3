"""The end of a connection: its goodbye and last bytes are sent, and the socket is closed so that they arrive.

To close a socket with unread input resets the connection, and the reset overtakes what was sent before it.

Always: ends within ``LINGER`` seconds, whatever the peer does.
"""

from __future__ import annotations

from typing import Final

import trio

from dataspace.errors import DataspaceError
from dataspace.transport.sockets import Link
from relay.store.errors import LogFailed
from server.sessions.sending import SendQueue

LINGER: Final = 1.0
"""Seconds for the last bytes to be sent and received before the socket is closed."""


def goodbye_of(error: DataspaceError) -> str:
    """Returns the code of the goodbye; after a disk that failed the daemon ends, and peers may come back."""
    return "closing" if isinstance(error, LogFailed) else "internal"


async def linger(link: Link, sending: SendQueue, *, at_end: bool, parted: bool) -> None:
    """Returns once the socket can be closed: the queue was sent, and nothing can reset the connection.

    ``at_end`` says that the input has ended, and ``parted`` that the peer has sent a goodbye, after which it
    sends nothing; then there is nothing to wait for, unless bytes wait for the socket.  Else input that still
    arrives is read and discarded, until the peer closes as well.
    """
    if not sending.is_blocked() and (at_end or (parted and not link.receive_nowait())):
        link.finish()
        return
    with trio.move_on_after(LINGER):
        while sending.is_blocked():
            await sending.wait_drained()
        link.finish()
        while await link.receive():
            pass
