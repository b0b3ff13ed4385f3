"""What drives a client: commands go in, events come out, as README.md beside this file says.

A ``Driver`` is either a program in any language, or the Python client in this process.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import trio
import trio.testing

from server import web
from tests.conformance.python_verbs import PythonVerbs
from tests.conformance.vectors import FOLDER

MODULE: Final = Path(web.__file__).parent / "static" / "dataspace.js"

Command = dict[str, Any]
Event = dict[str, Any]

SECONDS: Final = 20.0
"""After which an event that does not come is a failure."""


class Driver(Protocol):
    """Carries out commands with one client, and has the events that they lead to."""

    async def do(self, command: Command) -> None:
        """Carries out a command; does not wait for what comes of it."""

    async def event(self, of: str) -> Event:
        """Returns the next event of this name."""

    async def forget(self) -> None:
        """Begins the next session: drops the events of those before, also of clients that are still there."""


class Events:
    """The events of a driver, by name: those of one name are in order."""

    def __init__(self) -> None:
        self._kept: defaultdict[str, deque[Event]] = defaultdict(deque)
        self._arrival = trio.Event()

    def put(self, event: Event) -> None:
        self._kept[event["of"]].append(event)
        self._arrival.set()
        self._arrival = trio.Event()

    async def event(self, of: str) -> Event:
        """Returns the next event of this name."""
        with trio.move_on_after(SECONDS):
            while not self._kept[of]:
                await self._arrival.wait()
            return self._kept[of].popleft()
        raise AssertionError(f"no event of {of!r}, there are {dict(self._kept)}")


# -- a program in any language ------------------------------------------------------------------------


class Program(Events):
    """A driver in a process of its own."""

    def __init__(self, process: trio.Process) -> None:
        super().__init__()
        self._process = process

    async def forget(self) -> None:
        await self.do({"do": "forget"})
        await self.event("forget")
        self._kept.clear()

    async def do(self, command: Command) -> None:
        assert self._process.stdin is not None  # a pipe
        await self._process.stdin.send_all(json.dumps(command).encode() + b"\n")

    async def listen(self) -> None:
        """Takes its events until it ends."""
        assert self._process.stdout is not None  # a pipe
        held = b""
        async for chunk in self._process.stdout:
            *lines, held = (held + chunk).split(b"\n")
            for line in lines:
                self.put(json.loads(line))


@asynccontextmanager
async def program(*command: str) -> AsyncIterator[Program]:
    """Runs a driver for as long as the block; what it prints on stderr fails the test."""
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        driver = Program(process)
        said: list[bytes] = []

        async def errors() -> None:
            assert process.stderr is not None  # a pipe
            async for chunk in process.stderr:
                said.append(bytes(chunk))

        nursery.start_soon(driver.listen)
        nursery.start_soon(errors)
        try:
            yield driver
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            nursery.cancel_scope.cancel()
    assert _worth(b"".join(said).decode()) == ""


def _worth(said: str) -> str:
    """Returns what a program said on stderr, but for Node's notice that a WebSocket is new to it."""
    return re.sub(r"\(node:\d+\) ExperimentalWarning: WebSocket.*\n.*\n", "", said)


def node() -> str:
    """Returns the path of Node; the test is skipped where there is none."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no `node` on the PATH to run the JavaScript client with")
    return found


def javascript() -> tuple[str, ...]:
    """Returns the command of the JavaScript client's driver; Node 20 has WebSocket behind a flag alone."""
    return (node(), "--experimental-websocket", str(FOLDER / "drivers" / "javascript.mjs"), str(MODULE))


RUNTIMES: Final = {
    "deno": ("deno", "run", "--allow-all", "--no-prompt"),
    "bun": ("bun",),
}
"""What else runs the JavaScript client, if it is on the PATH."""


def elsewhere(runtime: str, program: str) -> tuple[str, ...]:
    """Returns the command of one of the kit's JavaScript programs in another runtime than Node; the test is
    skipped where that is not on the PATH."""
    if shutil.which(runtime) is None:
        pytest.skip(f"there is no `{runtime}` on the PATH to run the JavaScript client with")
    return (*RUNTIMES[runtime], str(FOLDER / "drivers" / program), str(MODULE))


# -- the Python client --------------------------------------------------------------------------------


class PythonClient(Events):
    """Drives the Python client under trio, in this process."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__()
        self._nursery = nursery
        self._verbs = PythonVerbs(self.put)

    async def forget(self) -> None:
        self._verbs.end()
        self._kept.clear()
        self._verbs = PythonVerbs(self.put)

    async def do(self, command: Command) -> None:
        """Carries out a command, in a task of its own if that waits."""
        going = self._verbs.begin(command, trio.Event)
        if going is not None:
            self._nursery.start_soon(self._verbs.report, command, going)
        await trio.testing.wait_all_tasks_blocked()  # what it sends goes out before that of the next one


def on_asyncio() -> tuple[str, ...]:
    """Returns the command of the driver of the Python client under asyncio."""
    return (sys.executable, "-m", "tests.conformance.drivers.on_asyncio")
