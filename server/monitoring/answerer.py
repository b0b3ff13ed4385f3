"""The admin address: a socket on which the pages of an operator are answered.

Always: a peer has a few seconds in all and a place among a few, so one that is slow, or many, cost little;
what goes wrong with one ends nothing else.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import trio

from server.monitoring.http import BadRequest, read_head, response

logger = logging.getLogger("dataspace")

SECONDS: Final = 10.0
"""Seconds that a peer has, from its connection to the last byte of the answer."""

PLACES: Final = 32
"""Peers that are answered at once; further ones are closed."""

CHUNK: Final = 4096
LINGER_SECONDS: Final = 1.0
"""Seconds in which what a peer still sends is taken, so that its system does not drop the answer."""

Answerer = Callable[[str, Iterable[tuple[str, str]]], Awaitable[tuple[int, list[tuple[str, str]], bytes]]]


async def answer_on(listening: socket.socket, answer: Answerer) -> None:
    """Answers each peer of a listening socket, until cancelled."""
    places = trio.CapacityLimiter(PLACES)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))

    async def serve(stream: trio.SocketStream) -> None:
        try:
            places.acquire_nowait()
        except trio.WouldBlock:
            await trio.aclose_forcefully(stream)
            return
        try:
            with trio.move_on_after(SECONDS):
                await _serve(stream, answer)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has gone
        except Exception:  # a fence around one request: a defect in it ends nothing else
            logger.exception("a request to the admin address failed: this is a defect, please report it")
        finally:
            places.release()
            await trio.aclose_forcefully(stream)

    await trio.serve_listeners(serve, [listener])


async def _serve(stream: trio.SocketStream, answer: Answerer) -> None:
    data = b""
    try:
        while (head := read_head(data)) is None:
            chunk = await stream.receive_some(CHUNK)
            if not chunk:
                return
            data += chunk
        said = response(*await answer(head.path, head.headers))
    except BadRequest as refusal:
        said = response(refusal.status, [("Content-Type", "text/plain")], f"{refusal}\n".encode())
    await stream.send_all(said)
    await stream.send_eof()
    with trio.move_on_after(LINGER_SECONDS):
        while await stream.receive_some(CHUNK):
            pass
