"""The code of the guide's chapter on asyncio runs as it stands, and so does a page of Starlette."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import dataspace
from dataspace import Record

GUIDE = (Path(dataspace.__file__).parent / "guide" / "python.md").read_text(encoding="utf-8")
CHAPTER = GUIDE.split("\n## Under asyncio\n")[1].split("\n## ")[0]
PROGRAM, *CELLS = re.findall(r"```python\n(.*?)```", CHAPTER, re.DOTALL)

Scope = dict[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


@pytest.fixture
def default(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a daemon that ``connect()`` finds by itself."""
    monkeypatch.setenv("DATASPACE_URL", url.replace("tcp:", "tcp://", 1))
    return url


def test_the_program_prints_what_the_guide_shows(default: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PROGRAM, "python.md", "exec"), {})
    shown = re.findall(r"^    (.*)\n", CHAPTER.split(PROGRAM)[1].split("`task.cancel()`")[0], re.MULTILINE)
    said = capsys.readouterr().out.splitlines()
    assert [re.sub(r"<\d+ ", "<N ", line) for line in said] == [
        re.sub(r"<\d+ ", "<N ", line) for line in shown
    ]


def test_the_cells_of_a_notebook_run_in_tasks_of_their_own(default: str) -> None:
    names: dict[str, Any] = {"dataspace": dataspace, "Record": Record}

    async def main() -> None:
        for at, cell in enumerate(CELLS):
            code = compile(cell, "python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            made = eval(code, names)
            if inspect.iscoroutine(made):
                await asyncio.create_task(made)
            if at == 1:
                assert await names["space"].matches("present($who)") == [("Bob",)]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


class Browser:
    """A page that is open: a WebSocket to an ASGI application."""

    def __init__(self) -> None:
        self.to_app: asyncio.Queue[Any] = asyncio.Queue()
        self.from_app: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(self) -> tuple[str, str]:
        """Returns the next change that the page shows."""
        message = await self.from_app.get()
        said = json.loads(message["text"])
        return said["kind"], said["who"]


@asynccontextmanager
async def served(app: App) -> AsyncIterator[Scope]:
    """Starts and stops an application as a server does; gives what its requests share."""
    to_app, from_app = asyncio.Queue[Any](), asyncio.Queue[Any]()
    state: Scope = {}
    scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}
    running = asyncio.ensure_future(app(scope, to_app.get, from_app.put))
    to_app.put_nowait({"type": "lifespan.startup"})
    assert await from_app.get() == {"type": "lifespan.startup.complete"}
    yield state
    to_app.put_nowait({"type": "lifespan.shutdown"})
    assert await from_app.get() == {"type": "lifespan.shutdown.complete"}
    await running


@asynccontextmanager
async def opened(app: App, state: Scope, name: str) -> AsyncIterator[Browser]:
    """A page that somebody of this name has open."""
    browser = Browser()
    scope: Scope = {"type": "websocket", "path": "/presence", "headers": [], "query_string": b""}
    scope |= {"state": dict(state), "asgi": {"version": "3.0"}, "scheme": "ws", "subprotocols": []}
    running = asyncio.ensure_future(app(scope, browser.to_app.get, browser.from_app.put))
    browser.to_app.put_nowait({"type": "websocket.connect"})
    assert (await browser.from_app.get())["type"] == "websocket.accept"
    browser.to_app.put_nowait({"type": "websocket.receive", "text": name})
    yield browser
    browser.to_app.put_nowait({"type": "websocket.disconnect", "code": 1001})
    await running


def test_the_page_shows_who_is_there_now(default: str) -> None:
    pytest.importorskip("starlette")
    app: App = import_module("tests.dataspace.client.on_asyncio.presence").app

    async def main() -> None:
        async with asyncio.timeout(30), served(app) as state, opened(app, state, "Alice") as first:
            assert await first.hear() == ("+", "Alice")
            async with opened(app, state, "Bob") as second:
                assert {await second.hear(), await second.hear()} == {("+", "Alice"), ("+", "Bob")}
                assert await first.hear() == ("+", "Bob")
            assert await first.hear() == ("-", "Bob")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
