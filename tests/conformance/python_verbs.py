"""The commands of the kit in the verbs of the Python client, under whatever loop runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import dataspace
from dataspace import absent, exactly, unchanged
from dataspace.errors import DataspaceError, ExpectationFailed, ProtocolError, Refused
from dataspace.loops.lone import alone
from index.values.jsons import from_json
from tests.conformance.vectors import plain

Going = Coroutine[Any, Any, dict[str, Any]]


class Signal(Protocol):
    """An event of trio or of asyncio."""

    def set(self) -> Any:
        """Wakes what waits for it."""

    async def wait(self) -> Any:
        """Waits until it is set."""


class PythonVerbs:
    """Carries out commands; ``put`` takes the events."""

    def __init__(self, put: Callable[[dict[str, Any]], None]) -> None:
        self._put = put
        self._space: dataspace.RemoteSpace
        self._claims: dict[str, Any] = {}
        self._observations: dict[str, Any] = {}
        self._subscriptions: dict[str, Any] = {}
        self._publications: dict[str, tuple[Any, Signal]] = {}
        self._over: Signal

    def begin(self, command: dict[str, Any], signal: Callable[[], Signal]) -> Going | None:
        """Does what of a command does not wait, and returns what is to be run as a task, if anything."""
        match command:
            case {"do": "connect", "url": url, "options": options}:
                self._over = signal()
                return self._connect(url, dict(options))
            case {"do": "turn", "actions": actions}:
                expects = list(map(expectation, command.get("expects", ())))
                return self._turn(actions, expects, command.get("traceparent", ""))
            case {"do": "observe", "as": name, "pattern": pattern, "options": options}:
                timed = {"pace": options["pace"] / 1000} if "pace" in options else {}
                seen = self._observations[name] = self._space.observe(pattern, **{**options, **timed})
                seen.open()
                return None
            case {"do": "read", "of": name}:
                return self._read(name)
            case {"do": "stop", "of": name}:
                self._observations[name].close()
                return None
            case {"do": "matches", "pattern": pattern}:
                return self._matches(pattern)
            case {"do": "request", "verb": verb, "arguments": given}:
                return self._request(verb, given)
            case {"do": "subscribe", "as": name, "topic": topic, "options": options}:
                return self._subscribe(name, topic, options)
            case {"do": "epoch", "of": name}:
                return self._topic_epoch(name)
            case {"do": "publish", "as": name, "topic": topic, "options": options}:
                return self._publish(name, topic, options, signal())
            case {"do": "step", "of": name, "step": ["close"]}:
                self._publications[name][1].set()  # and its task leaves, and says so
                return None
            case {"do": "step", "of": name, "step": [verb, *arguments]}:
                return self._produce(self._publications[name][0], verb, *arguments)
            case {"do": "close"}:
                self._over.set()
                return None
            case _:
                raise AssertionError(f"no command {command}")

    def end(self) -> None:
        """Puts no more events: what its client still does is of no session."""
        self._put = lambda _event: None

    async def report(self, command: dict[str, Any], going: Going) -> None:
        """Runs what a command has begun, and puts the event that it leads to."""
        of = command.get("as") or command.get("of") or command["do"]
        try:
            self._put({"of": of, **await going})
        except* DataspaceError as errors:  # in a group if the test ends meanwhile
            error = alone(errors)
            found = {"found": plain(error.found)} if isinstance(error, ExpectationFailed) else {}
            self._put({"of": of, "error": code_of(error), **found})

    async def _connect(self, url: str, options: dict[str, Any]) -> dict[str, Any]:
        seconds: dict[str, Any] = {
            name: options.pop(name) / 1000 for name in ("grace", "heartbeat", "lease") if name in options
        }
        settings: dict[str, Any] = {"token": "", "heartbeat": math.inf, **seconds, **options}
        async with dataspace.connect(
            url,
            **settings,
            on_connection=lambda event: self._put({"of": "connection", "change": event.change.value}),
        ) as self._space:
            self._put({"of": "connect", "done": True})
            await self._over.wait()
        return {"of": "close", "done": True}

    def _turn(self, actions: list[Any], expect: list[Any], traceparent: str) -> Going:
        draft = self._space.draft(expect=expect)
        draft.traceparent = traceparent
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

    async def _epoch(self, draft: Any) -> dict[str, Any]:
        return {"epoch": await self._space.commit(draft)}

    async def _read(self, name: str) -> dict[str, Any]:
        epoch = await self._observations[name].next_epoch()
        if epoch is None:
            return {"end": True}
        rows = {which: list(map(plain, getattr(epoch, which))) for which in ("added", "messages", "removed")}
        return {"changes": {"number": epoch.number, "first": epoch.first, **rows, "lost": epoch.lost}}

    async def _matches(self, pattern: str) -> dict[str, Any]:
        return {"rows": list(map(plain, await self._space.matches(pattern)))}

    async def _subscribe(self, name: str, topic: str, options: dict[str, Any]) -> dict[str, Any]:
        made = self._subscriptions[name] = self._space.subscribe(topic, **options)
        await made.open()
        return {"partitions": list(made.partitions)}

    async def _topic_epoch(self, name: str) -> dict[str, Any]:
        epoch = await self._subscriptions[name].next_epoch()
        if epoch is None:
            return {"end": True}
        return {"time": plain(epoch.time), "items": plain(epoch.items), "crashed": epoch.crashed}

    async def _publish(self, name: str, topic: str, options: dict[str, Any], over: Signal) -> dict[str, Any]:
        async with self._space.publish(topic, **options) as publication:
            self._publications[name] = publication, over
            self._put({"of": name, "time": plain(publication.time)})
            await over.wait()
        return {"of": name, "done": "close"}

    async def _produce(self, publication: Any, verb: str, *arguments: Any) -> dict[str, Any]:
        if verb == "send":
            await publication.send(*map(from_json, arguments[0]))
        elif verb == "finish":
            await publication.finish(*map(from_json, arguments[0]), then=arguments[1])
        else:
            await publication.advance(arguments[0])
        return {"done": verb}

    async def _request(self, verb: str, given: Any) -> dict[str, Any]:
        asked = from_json(given)
        assert isinstance(asked, dataspace.Map)  # as the kit has it
        return {"answer": plain(await self._space.request(verb, asked))}


def expectation(said: list[Any]) -> Any:
    """Returns an expectation that a command names."""
    kind, pattern, *rest = said
    if kind == "absent":
        return absent(pattern)
    if kind == "exactly":
        return exactly(pattern, [tuple(map(from_json, row)) for row in rest[0]])
    return unchanged(pattern, since=rest[0])


def code_of(error: BaseException) -> str:
    """Returns the code of an error, or the name of its class as a word."""
    if isinstance(error, Refused | ProtocolError):
        return error.code
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__).lower()
