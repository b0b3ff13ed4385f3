"""The loads of ``fairness`` that speak HTTP: each does what can be done before, says "ready", waits, and does
the rest."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Final, Protocol

import trio

BODY: Final = 1_300_000
"""Empty objects in a body, of 3.9 MB."""

FRAGMENTS: Final = 4_000
"""Empty fragments of a message."""

CONNECTING: Final = 50
"""Observers that connect at once."""


class WebSize(Protocol):
    """How large the loads are."""

    @property
    def bodies(self) -> int:
        """Bodies from each of two connections."""

    @property
    def fragmented(self) -> int:
        """Connections that send ten messages of fragments each."""

    @property
    def events(self) -> int:
        """Observers as event streams."""

    @property
    def changes(self) -> int:
        """Changes that they see, ten in a second."""


async def bodies(url: str, size: WebSize, report: Connection) -> None:
    sent = _post("turns", b'{"owner":"bench","actions":[' + b"{}," * BODY + b"{}]}")
    await _turn_to_go(report)

    async def post() -> None:
        for _ in range(size.bodies):
            await _send(await _connected(url), sent)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(post)
        nursery.start_soon(post)
    report.send("done")


async def fragments(url: str, size: WebSize, report: Connection) -> None:
    upgrade = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    key = "Sec-WebSocket-Protocol: dataspace.1.msgpack\r\n"
    key += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    mask = b"\x80\0\0\0\0"
    message = b"\x02" + mask + (b"\x00" + mask) * FRAGMENTS + b"\x80" + mask
    await _turn_to_go(report)
    for _ in range(size.fragmented):
        stream = await _connected(url)
        await stream.send_all((upgrade + key).encode())
        assert b" 101 " in bytes(await stream.receive_some(65536))[:20]
        await _send(stream, message * 10)
    report.send("done")


async def events(url: str, size: WebSize, report: Connection) -> None:
    path = "/v1/spaces/main/observe?pattern=ticking(%24n)&quiet=true"
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    ready = 0

    async def observe() -> None:
        nonlocal ready
        async with await _connected(url) as stream:
            await stream.send_all(request)
            assert b" 200 " in bytes(await stream.receive_some(65536))[:20]
            ready += 1
            while await stream.receive_some(1 << 20):
                pass

    async with trio.open_nursery() as nursery:
        for n in range(size.events):
            nursery.start_soon(observe)
            while ready < n - CONNECTING:  # noqa: ASYNC110  # each adds itself
                await trio.sleep(0.01)
        while ready < size.events:  # noqa: ASYNC110  # as above
            await trio.sleep(0.01)
        await _turn_to_go(report)
        for _ in range(size.changes):
            body = b'{"messages":[{"@":"ticking","fields":[1]}]}'
            await _send(await _connected(url), _post("messages", body))
            await trio.sleep(0.1)
        report.send("done")
        await trio.sleep_forever()


async def _turn_to_go(report: Connection) -> None:
    report.send("ready")
    await trio.to_thread.run_sync(report.recv)


async def _connected(url: str) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))


def _post(what: str, body: bytes) -> bytes:
    head = f"POST /v1/spaces/main/{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    """Sends bytes, reads the beginning of the answer, and closes."""
    async with stream:
        try:
            await stream.send_all(data)
            await stream.receive_some(65536)
        except trio.BrokenResourceError:
            pass  # it was refused before all of it was sent
