"""What drives a client: commands go in, events come out, as README.md beside this file says.

A ``Driver`` is either a program in any language, or the Python client in this process.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import trio
import trio.testing

import dataspace
import server.web
from dataspace.client.connect import alone
from dataspace.errors import DataspaceError, ProtocolError, Refused
from index.values.jsons import from_json
from tests.conformance.vectors import FOLDER, plain

MODULE: Final = Path(server.web.__file__).parent / "static" / "dataspace.js"

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

    def forget(self) -> None:
        """Drops the events that nothing has asked for."""


class Events:
    """The events of a driver, by name: those of one name are in order."""

    def __init__(self) -> None:
        self._kept: defaultdict[str, deque[Event]] = defaultdict(deque)
        self._arrival = trio.Event()

    def put(self, event: Event) -> None:
        self._kept[event["of"]].append(event)
        self._arrival.set()
        self._arrival = trio.Event()

    def forget(self) -> None:
        """Drops what nothing has asked for, before the next session."""
        self._kept.clear()

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


# -- the Python client --------------------------------------------------------------------------------


class PythonClient(Events):
    """Drives the Python client, in this process."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__()
        self._nursery = nursery
        self._space: dataspace.RemoteSpace
        self._claims: dict[str, Any] = {}
        self._observations: dict[str, Any] = {}
        self._over = trio.Event()

    async def do(self, command: Command) -> None:
        """Carries out a command, in a task of its own if that waits."""
        match command:
            case {"do": "connect", "url": url, "options": options}:
                self._nursery.start_soon(self._connect, url, dict(options))
            case {"do": "turn", "as": name, "actions": actions}:
                self._nursery.start_soon(self._report, name, self._turn(actions))
            case {"do": "observe", "as": name, "pattern": pattern, "options": options}:
                seen = self._observations[name] = self._space.observe(pattern, **options)
                seen.open()
            case {"do": "read", "of": name}:
                self._nursery.start_soon(self._report, name, self._read(name))
            case {"do": "stop", "of": name}:
                self._observations[name].close()
            case {"do": "matches", "as": name, "pattern": pattern}:
                self._nursery.start_soon(self._report, name, self._matches(pattern))
            case {"do": "request", "as": name, "verb": verb, "arguments": given}:
                self._nursery.start_soon(self._report, name, self._request(verb, given))
            case {"do": "close"}:
                self._over.set()
            case _:
                raise AssertionError(f"no command {command}")
        await trio.testing.wait_all_tasks_blocked()  # what it sends goes out before that of the next one

    async def _report(self, of: str, going: Any) -> None:
        try:
            self.put({"of": of, **await going})
        except DataspaceError as error:
            self.put({"of": of, "error": code_of(error)})

    async def _connect(self, url: str, options: dict[str, Any]) -> None:
        seconds: dict[str, Any] = {
            name: options.pop(name) / 1000 for name in ("grace", "heartbeat") if name in options
        }
        settings: dict[str, Any] = {"token": "", "heartbeat": math.inf, **seconds, **options}
        try:
            async with dataspace.connect(
                url,
                **settings,
                on_connection=lambda event: self.put({"of": "connection", "change": event.change.value}),
            ) as self._space:
                self.put({"of": "connect", "done": True})
                await self._over.wait()
        except* DataspaceError as errors:  # in a group if the test ends meanwhile
            self.put({"of": "connect", "error": code_of(alone(errors))})
        else:
            self.put({"of": "close", "done": True})

    def _turn(self, actions: list[Any]) -> Any:
        draft = self._space.draft()
        for verb, *rest in actions:
            if verb == "send":
                draft.send(from_json(rest[0]))
            elif verb == "assert":
                self._claims[rest[0]] = draft.assert_(from_json(rest[1]))
            elif verb == "replace":
                self._claims[rest[0]] = draft.replace(self._claims[rest[0]], from_json(rest[1]))
            else:
                draft.retract(self._claims[rest[0]])
        return self._epoch(draft)

    async def _epoch(self, draft: Any) -> Event:
        return {"epoch": await self._space.commit(draft)}

    async def _read(self, name: str) -> Event:
        epoch = await self._observations[name].next_epoch()
        if epoch is None:
            return {"end": True}
        rows = {which: list(map(plain, getattr(epoch, which))) for which in ("added", "messages", "removed")}
        return {"changes": {"number": epoch.number, "first": epoch.first, **rows, "lost": epoch.lost}}

    async def _matches(self, pattern: str) -> Event:
        return {"rows": list(map(plain, await self._space.matches(pattern)))}

    async def _request(self, verb: str, given: Any) -> Event:
        asked = from_json(given)
        assert isinstance(asked, dataspace.Map)  # as the kit has it
        return {"answer": plain(await self._space.request(verb, asked))}


def code_of(error: BaseException) -> str:
    """Returns the code of an error, or the name of its class as a word."""
    if isinstance(error, Refused | ProtocolError):
        return error.code
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__).lower()
