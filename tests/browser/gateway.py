"""A listener for one page: it serves the client and the kit, and carries packets to a player over TCP.

A page cannot open TCP, and the player of the kit speaks nothing else.  ``/ws/PORT`` is a WebSocket whose
messages go to that port of this machine as frames, and whose frames come back as messages.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dataspace.codec import pack
from server.web.messages import BINARY, PONG, MessageCutter, message
from tests.conformance.driving import MODULE
from tests.conformance.vectors import FOLDER

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_REQUEST: Final = re.compile(rb"GET (\S+) HTTP/1.1\r\n")
_KEY: Final = re.compile(rb"(?i)\r\nsec-websocket-key: *(\S+)\r\n")
_KINDS: Final = {".js": "text/javascript", ".mjs": "text/javascript", ".json": "application/json"}


async def serve(task_status: trio.TaskStatus[str]) -> None:
    """Serves until cancelled; its address is the answer to ``start``."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, _connected, listeners))
        task_status.started(f"http://127.0.0.1:{port}")


async def _connected(stream: trio.SocketStream) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        more = await stream.receive_some()
        if not more:
            return
        head += more
    asked = _REQUEST.match(head)
    assert asked is not None, head
    path = asked[1].decode()
    key = _KEY.search(head)
    try:
        if key is not None:
            await _carry(stream, key[1], int(path.rpartition("/")[2]))
        else:
            await stream.send_all(_file(path))
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        pass  # the page, or the player, has closed


def _file(path: str) -> bytes:
    folders = {"static": MODULE.parent, "drivers": FOLDER / "drivers", "kit": FOLDER}
    _, folder, *name = [*path.split("/"), "", ""][:4]
    file = folders.get(folder, FOLDER) / (name[0] if name else "")
    if path == "/":
        kind, body = "text/html", b"<!doctype html><title>kit</title><link rel=icon href=data:,>"
    else:
        kind, body = _KINDS.get(Path(path).suffix, "text/plain"), file.read_bytes()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


FOR_PAGES: Final = pack("tcp://127.0.0.1:9"), pack("ws://127.0.0.1:9")
"""Where a session sends clients, and what a daemon names to pages, which have WebSockets alone."""


async def _carry(stream: trio.SocketStream, key: bytes, port: int) -> None:
    """Makes a WebSocket of a connection, and passes packets on until one side closes."""
    lines = (
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()}",
        "Sec-WebSocket-Protocol: dataspace.1.msgpack",
    )
    await stream.send_all("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    async with await trio.open_tcp_stream("127.0.0.1", port) as player, trio.open_nursery() as nursery:

        async def to_player() -> None:
            pongs: list[bytes] = []
            cutter = MessageCutter(BINARY, pongs.append, limit=1 << 26)
            async for data in stream:
                for packet in cutter.feed(bytes(data)):
                    await player.send_all(len(packet).to_bytes(4, "big") + packet)
                for payload in pongs:
                    await stream.send_all(message(PONG, payload))
                pongs.clear()
                assert cutter.refusal is None, cutter.refusal
                if cutter.is_closed:
                    break
            nursery.cancel_scope.cancel()

        async def to_page() -> None:
            held = b""
            async for data in player:
                held += data
                while len(held) >= 4 and len(held) >= 4 + (size := int.from_bytes(held[:4], "big")):
                    packet = held[4 : 4 + size].replace(*FOR_PAGES)
                    await stream.send_all(message(BINARY, packet))
                    held = held[4 + size :]
            nursery.cancel_scope.cancel()

        nursery.start_soon(to_player)
        nursery.start_soon(to_page)
    await stream.aclose()
