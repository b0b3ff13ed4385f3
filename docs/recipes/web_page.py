"""A web page that shows who is looking at it, in any number of web processes.

uvicorn web_page:app     # with Starlette; FastAPI takes the same functions
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route

import dataspace
from dataspace import Record

PAGE = """<!doctype html><title>Who is there?</title><ul></ul><script>
const source = new EventSource("/presence?who=" + encodeURIComponent(prompt("Your name?")));
source.onmessage = ({data}) => document.querySelector("ul").replaceChildren(
  ...JSON.parse(data).map(who => Object.assign(document.createElement("li"), {textContent: who})));
</script>"""


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with dataspace.connect(name="web page", grace=1, heartbeat=1) as app.state.space:
        yield


async def page(request: Request) -> HTMLResponse:
    return HTMLResponse(PAGE)


async def presence(request: Request) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        space, there = request.app.state.space, set[object]()
        async with space.asserting(Record("viewer", request.query_params["who"])):
            async with space.observe("viewer($who)") as changes:
                async for epoch in changes.epochs():
                    there = (there - {who for (who,) in epoch.removed}) | {who for (who,) in epoch.added}
                    yield f"data: {json.dumps(sorted(map(str, there)))}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


app = Starlette(routes=[Route("/", page), Route("/presence", presence)], lifespan=lifespan)
