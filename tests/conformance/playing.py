"""Plays a session of the kit to a client: the daemon is the recorded one, and what the client says is judged.

A client may say more than the session has: requests for more values (``Ask``), ``Peek``, and pings and their
answers.  Its credit is never exceeded.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import trio

from dataspace.codec import unpack
from dataspace.wire import packets as p
from tests.conformance.driving import Driver
from tests.conformance.packets import Json, filled, framed, shown

SECONDS: Final = 20.0

USUAL: Final[dict[str, Json]] = {
    "kind": "observe",
    "space": "main",
    "snapshot": True,
    "policy": "conflate",
    "pace": 0,
    **dict.fromkeys(("durable", "quiet", "net", "progress"), False),
}
"""What an ``Open`` means where it does not say it."""

USUAL_TOPIC: Final[dict[str, Json]] = {"space": "main", "policy": "fail"}
"""The same of a topic."""


class Play:
    """One session with one client."""

    def __init__(self, driver: Driver, listener: trio.SocketListener) -> None:
        self._driver = driver
        self._listener = listener
        self._port = listener.socket.getsockname()[1]
        self._stream: trio.SocketStream | None = None
        self._held = b""
        self._said: list[p.Packet] = []
        self._chosen: dict[str, Json] = {}
        self._credit: defaultdict[int, int] = defaultdict(int)
        self._sent: defaultdict[int, int] = defaultdict(int)
        self._pings = 1000

    async def play(self, steps: list[dict[str, Json]]) -> None:
        """Carries out the steps; raises ``AssertionError`` at the first that the client does not follow."""
        await self._driver.forget()
        try:
            for at, step in enumerate(steps):
                await self._carry_out(at, step)
        finally:
            if self._stream is not None:
                await trio.aclose_forcefully(self._stream)

    async def _carry_out(self, at: int, step: dict[str, Json]) -> None:
        try:
            with trio.fail_after(SECONDS):
                await self._step(step)
        except AssertionError as error:
            raise AssertionError(f"step {at}, {step}: {error}") from error
        except trio.TooSlowError:
            raise AssertionError(f"step {at}, {step}: nothing came, or too little") from None

    async def _step(self, step: dict[str, Json]) -> None:
        match step:
            case {"do": command}:
                url = {"url": f"tcp://127.0.0.1:{self._port}"} if command["do"] == "connect" else {}
                await self._driver.do({**command, **url})
            case {"says": said}:
                heard = shown(await self._hear(said[0]))
                self._agree(said, heard, [])
            case {"hears": said}:
                await self._send(filled(said, self._chosen))
            case {"gives": event}:
                got = await self._driver.event(event["of"])
                self._holds(event, got)
            case {"cut": "by the client"}:
                await self._wait_closed()
            case {"cut": _}:
                assert self._stream is not None  # connected
                await self._stream.aclose()
                self._stream = None
            case {"credit": [stream, most]}:
                await self._bounded(filled(stream, self._chosen), most)
            case _:
                raise AssertionError("no such step")

    # -- what the client says ---------------------------------------------------------------------------

    async def _hear(self, wanted: str) -> p.Packet:
        """Returns the next packet; of those that a client may say at any time only a wanted one."""
        while True:
            while not self._said:
                await self._receive()
            packet = self._said.pop(0)
            match packet:
                case p.Ping(number) if wanted != "Ping":
                    await self._send(["Pong", number])
                case p.Ask(stream, items, _):
                    self._credit[stream] = max(self._credit[stream], items)
                case p.Pong() if wanted == "Pong":
                    return packet
                case p.Pong() | p.Peek():
                    pass
                case p.Open(stream, _, items, _):
                    self._credit[stream], self._sent[stream] = items, 0
                    return packet
                case p.Abort(stream, _, True):
                    await self._send(["Done", stream])
                    return packet
                case _:
                    return packet

    async def _receive(self) -> None:
        if self._stream is None:
            self._stream = await self._listener.accept()
            self._held = b""
        chunk = await self._stream.receive_some()
        assert chunk, "the client closed the connection"
        self._held += chunk
        while len(self._held) >= 4 and len(self._held) >= 4 + (size := int.from_bytes(self._held[:4], "big")):
            self._said.append(p.read(unpack(self._held[4 : 4 + size])))
            self._held = self._held[4 + size :]

    async def _wait_closed(self) -> None:
        """Says nothing until the client has closed the connection."""
        assert self._stream is not None  # connected
        while await self._stream.receive_some():
            pass
        await self._stream.aclose()
        self._stream = None
        self._said.clear()

    def _agree(self, said: Json, heard: Json, path: list[object]) -> None:
        """Holds what the client has said against the session; notes what it has chosen."""
        where = f"at {path}: {heard}, expected {said}"
        match said:
            case {"?": name}:
                assert self._chosen.setdefault(name, heard) == heard or name in CHANGING, where
                self._chosen[name] = heard
            case dict():
                assert isinstance(heard, dict), where
                if path == [4]:  # what the client would like, of which a session names what matters
                    heard = {at: heard[at] for at in heard if at in said or at == "resume"}
                if path == [2] and "pattern" in said:
                    said, heard = {**USUAL, **said}, {**USUAL, **heard}
                if path == [2] and "topic" in said and "kind" in said:
                    said, heard = {**USUAL_TOPIC, **said}, {**USUAL_TOPIC, **heard}
                assert said.keys() == heard.keys(), where
                for at in said:
                    self._agree(said[at], heard[at], [*path, at])
            case list():
                assert isinstance(heard, list) and len(said) == len(heard), where
                for at, each in enumerate(said):
                    self._agree(each, heard[at], [*path, at])
            case _:
                assert type(said) is type(heard) and said == heard, where

    # -- what it hears ----------------------------------------------------------------------------------

    async def _send(self, said: list[Json]) -> None:
        if said[0] == "Values":
            _, stream, _, values, _ = said
            self._sent[stream] += len(values)
            while self._sent[stream] > self._credit[stream]:
                await self._ask()
        assert self._stream is not None  # connected
        await self._stream.send_all(framed(said))

    async def _ask(self) -> None:
        """Waits until the client has requested more."""
        while not self._said:
            await self._receive()
        packet = self._said.pop(0)
        assert isinstance(packet, p.Ask | p.Peek | p.Ping | p.Pong), f"it must request more, it says {packet}"
        if isinstance(packet, p.Ask):
            self._credit[packet.stream] = max(self._credit[packet.stream], packet.items)

    async def _bounded(self, stream: int, most: int) -> None:
        """Holds the credit of a stream, once everything that the client had to say has come."""
        self._pings += 1
        await self._send(["Ping", self._pings])
        answer = await self._hear("Pong")
        assert answer == p.Pong(self._pings), answer
        assert self._sent[stream] <= self._credit[stream] <= most, (
            f"it requested {self._credit[stream]} values"
        )

    def _holds(self, event: dict[str, Json], got: dict[str, Any]) -> None:
        """Holds an event against what the session says of it."""
        for name, expected in event.items():
            if name == "changes":
                assert name in got, got
                for part, rows in expected.items():
                    assert got[name][part] == rows, f"{part}: {got[name]}"
            else:
                assert got.get(name) == expected, got


CHANGING: Final = ("items", "bytes", "reason", "answer")
"""What a client may choose anew each time."""
