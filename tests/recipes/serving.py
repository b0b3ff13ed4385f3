"""Serves an ASGI application over HTTP/1.1, under asyncio: ``serving.py PATH``; prints its port.

It stands where uvicorn would, which is not among what the tests are installed with.  Each connection has one
request; the body ends with it, and an application whose browser has gone is told so, as ASGI says.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote, urlsplit

Message = MutableMapping[str, Any]


async def answer(app: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Has the application answer one request."""
    method, target, _ = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split(" ", 2)
    url = urlsplit(target)
    scope = {
        "type": "http",
        "asgi": {
            "version": "3.0",
            "spec_version": "2.3",
        },  # under 2.4 `send` raises for a browser that has gone
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(url.path),
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
    }
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        for message in asked:
            return message
        try:
            await reader.read()  # until the browser closes it
        except ConnectionError:  # with something unread
            pass
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            writer.write(b"HTTP/1.1 %d OK\r\nconnection: close\r\n" % message["status"])
            writer.writelines([b"%s: %s\r\n" % (name, value) for name, value in message["headers"]])
            writer.write(b"\r\n")
        else:
            writer.write(message["body"])

    await app(scope, receive, send)
    writer.close()


async def main(path: str) -> None:
    """Serves until it is killed."""
    app = runpy.run_path(path)["app"]
    async with app.router.lifespan_context(app):
        server = await asyncio.start_server(lambda *ends: answer(app, *ends), "127.0.0.1", 0)
        print("port", server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
