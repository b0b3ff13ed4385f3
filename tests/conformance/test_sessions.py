"""The sessions of the kit are what a daemon says, and the clients in Python and JavaScript follow them.

``REWRITE=1`` writes what daemons say into the file anew; read what has changed before you commit it.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from tests.conformance.driving import (
    RUNTIMES,
    Driver,
    PythonClient,
    elsewhere,
    javascript,
    on_asyncio,
    program,
)
from tests.conformance.playing import Play
from tests.conformance.recording import Recorder
from tests.conformance.vectors import FOLDER

FILE: Final = FOLDER / "sessions.json"


def kept() -> dict[str, Any]:
    """Returns the recorded sessions, by name."""
    sessions: dict[str, Any] = json.loads(FILE.read_text())
    return sessions


@pytest.mark.slow
async def test_the_sessions_are_what_a_daemon_says(tmp_path: Path) -> None:
    sessions = []
    for name, session in kept().items():
        steps = await Recorder(tmp_path / name).record(session) if session["recorded"] else session["steps"]
        lines = ",\n".join(map(json.dumps, steps))
        head = json.dumps({**session, "steps": []})
        sessions.append(f"{json.dumps(name)}: {head[:-2]}\n{lines}\n]}}")
    text = "{\n" + ",\n".join(sessions) + "\n}\n"
    if os.environ.get("REWRITE"):
        FILE.write_text(text)
    assert FILE.read_text() == text, "REWRITE=1 writes it anew"


@asynccontextmanager
async def python() -> AsyncIterator[Driver]:
    """The Python client, as the kit drives it."""
    async with trio.open_nursery() as nursery:
        yield PythonClient(nursery)
        nursery.cancel_scope.cancel()


async def follow(driver: Driver, name: str) -> None:
    """Plays a session to a client."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        await Play(driver, listener).play(kept()[name]["steps"])


NAMES: Final = list(kept())


@pytest.mark.parametrize("name", NAMES)
async def test_python_follows(name: str) -> None:
    async with python() as driver:
        await follow(driver, name)


async def follow_all(*command: str) -> None:
    """Plays all sessions to a driver, one after the other."""
    async with program(*command) as driver:
        for name in NAMES:
            try:
                await follow(driver, name)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


@pytest.mark.slow
async def test_python_on_asyncio_follows_all() -> None:
    await follow_all(*on_asyncio())


@pytest.mark.slow
async def test_javascript_follows_all() -> None:
    await follow_all(*javascript())


@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_javascript_elsewhere_follows_all(runtime: str) -> None:
    await follow_all(*elsewhere(runtime, "javascript.mjs"))
