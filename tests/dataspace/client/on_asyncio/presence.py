"""A web page that shows who is there now: with Starlette, one connection for all its pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

import dataspace
from dataspace import Record, RemoteSpace

PAGE = """<!doctype html><title>Who is there?</title><ul></ul><script>
const list = document.querySelector("ul"), socket = new WebSocket("ws://" + location.host + "/presence");
socket.onopen = () => socket.send(prompt("Your name?"));
socket.onmessage = ({data}) => {
  const {kind, who} = JSON.parse(data);
  if (kind === "+") list.append(Object.assign(document.createElement("li"), {textContent: who}));
  else [...list.children].find(item => item.textContent === who)?.remove();
};
</script>"""


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with dataspace.connect(name="presence page", grace=10) as space:
        yield {"space": space}


async def page(request: Request) -> HTMLResponse:
    return HTMLResponse(PAGE)


async def presence(socket: WebSocket) -> None:
    await socket.accept()
    name = await socket.receive_text()
    space: RemoteSpace = socket.state.space
    async with space.asserting(Record("present", name)), space.observe("present($who)") as changes:

        async def show() -> None:
            async for change in changes:
                await socket.send_json({"kind": change.kind, "who": change.who})

        showing = asyncio.create_task(show())
        try:
            async for _ in socket.iter_text():  # until the page is closed
                pass
        finally:
            showing.cancel()


routes = [Route("/", page), WebSocketRoute("/presence", presence)]
app = Starlette(routes=routes, lifespan=lifespan)
