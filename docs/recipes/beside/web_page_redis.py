"""The page with Redis and FastAPI: a key for each viewer, set again and read again each second.

uvicorn web_page_redis:app
"""

import asyncio
import json
import uuid
from contextlib import asynccontextmanager

import redis.asyncio as redis
from fastapi import FastAPI
from fastapi.responses import HTMLResponse, StreamingResponse

PAGE = """<!doctype html><title>Who is there?</title><ul></ul><script>
const source = new EventSource("/presence?who=" + encodeURIComponent(prompt("Your name?")));
source.onmessage = ({data}) => document.querySelector("ul").replaceChildren(
  ...JSON.parse(data).map(who => Object.assign(document.createElement("li"), {textContent: who})));
</script>"""


@asynccontextmanager
async def lifespan(app):
    app.state.server = redis.Redis(decode_responses=True)
    yield
    await app.state.server.aclose()


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page():
    return HTMLResponse(PAGE)


async def beat(server, key, who):
    while True:
        try:
            if await server.set(key, who, px=3000, get=True) is None:
                await server.publish("viewers", key)
        except redis.ConnectionError:
            pass
        await asyncio.sleep(1)


@app.get("/presence")
async def presence(who: str):
    async def events():
        server, there = app.state.server, None
        key = f"viewer:{uuid.uuid4().hex}"
        beating = asyncio.create_task(beat(server, key, who))
        changes = server.pubsub(ignore_subscribe_messages=True)
        try:
            await changes.subscribe("viewers")
            while True:
                keys = [each async for each in server.scan_iter("viewer:*")]
                now = sorted({each for each in (await server.mget(keys) if keys else []) if each})
                if now != there:
                    there = now
                    yield f"data: {json.dumps(now)}\n\n"
                await changes.get_message(timeout=1)
        finally:
            beating.cancel()
            await changes.aclose()
            await server.delete(key)
            await server.publish("viewers", key)

    return StreamingResponse(events(), media_type="text/event-stream")
