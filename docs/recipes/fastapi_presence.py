"""A FastAPI application whose page shows who is looking at it, live over WebSocket, from any process of it.

pip install fastapi 'uvicorn[standard]' 'dataspace-server[asyncio]'
uvicorn fastapi_presence:app
"""

import asyncio
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, WebSocket, WebSocketDisconnect, responses

import dataspace

PAGE = """<!doctype html><title>Who is there?</title><link rel=icon href=data:,><pre id=there></pre><script>
const socket = new WebSocket("/presence?who=" + encodeURIComponent(prompt("Your name?")));
socket.onmessage = ({data}) => there.textContent = data;
socket.onclose = () => there.textContent = "connection lost: load this page again";</script>"""


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with dataspace.connect(name="presence", grace=1, heartbeat=1) as app.state.space:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page() -> responses.HTMLResponse:
    return responses.HTMLResponse(PAGE)


@app.websocket("/presence")
async def presence(socket: WebSocket, who: str) -> None:
    await socket.accept()
    async with asyncio.TaskGroup() as tasks:
        showing = tasks.create_task(show(socket, who))
        await socket.receive()  # the page says nothing: this is its end
        showing.cancel()


async def show(socket: WebSocket, who: str) -> None:
    space, there = app.state.space, set[object]()
    async with space.asserting(dataspace.Record("viewer", who)), space.observe("viewer($who)") as changes:
        async for epoch in changes.epochs():
            there = (there - {who for (who,) in epoch.removed}) | {who for (who,) in epoch.added}
            with suppress(WebSocketDisconnect):  # it has been closed in this moment
                await socket.send_text("\n".join(sorted(map(str, there))))
