"""Records sessions: a real daemon is asked, with the packets of a script, for what the client hears.

What differs from one daemon and moment to the next is written in one form: the identity of a
space, secrets, times.  Of the limits in a welcome only those stay that a client needs.  So a session that
is recorded again is the same text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session
from index.values.jsons import to_json
from server.config.model import Config
from server.daemon.serve import serve
from tests.conformance.packets import Json, filled, framed, shown
from tests.conformance.scripts import NOW, Script, Step

LIMITS: Final = ("actions_per_turn", "frame_bytes", "frame_elements", "streams")

SECONDS: Final = 20.0


class Recorder:
    """Plays one script to daemons, as the client."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._daemons = 0
        self._spaces: dict[str, str] = {}
        self._sessions: dict[int, int] = {}
        self._samples: dict[str, Json] = {}
        self._known: dict[str, Json] = {}
        self._welcome: list[Json] = []
        self._port = 0
        self._session = Session(Role.CLIENT)
        self._stream: trio.SocketStream
        self._heard: list[p.Packet] = []

    async def record(self, script: Script) -> list[Step]:
        """Returns the steps with what the daemon has answered."""
        made: list[Step] = []
        async with trio.open_nursery() as nursery:
            await self._start(nursery)
            for step in script.steps:
                made.append(await self._step(nursery, step))
            await self._stream.aclose()
            nursery.cancel_scope.cancel()
        return made

    async def _start(self, nursery: trio.Nursery) -> None:
        self._daemons += 1
        config = Config(("tcp:127.0.0.1:0",), self._data / f"{self._daemons}")
        (address,) = await nursery.start(serve, config)
        self._port = int(address.rpartition(":")[2])
        await self._connect()

    async def _connect(self) -> None:
        self._session = Session(Role.CLIENT)
        self._heard = []
        self._stream = await trio.open_tcp_stream("127.0.0.1", self._port)

    async def _step(self, nursery: trio.Nursery, step: Step) -> Step:
        match step:
            case {"says": said, **lost}:
                sent = self._told(said)
                if lost.get("lost") != "packet":
                    await self._say(sent)
                if lost.get("lost") == "answer":
                    await self._hear("Accepted")
                return {"says": without_samples(self._shown_known(said)), **lost}
            case {"hears": [name]}:
                return {"hears": self._lasting(await self._hear(name))}
            case {"cut": what}:
                await self._stream.aclose()
                await trio.testing.wait_all_tasks_blocked(0.05)  # the daemon has noticed
                await (self._start(nursery) if what == "space" else self._connect())
        return step

    def _told(self, said: Json) -> list[Json]:
        """Returns a packet of the client with what it chooses, and with what the daemon has said."""
        for each in walk(said):
            if "?" in each:
                self._samples.setdefault(each["?"], each.get("sample"))
        return list(replaced(filled(said, self._samples), self._known))

    def _shown_known(self, said: Json) -> Json:
        session = {"session": self._welcome[2], "secret": SECRET} if self._welcome else {}
        return replaced(said, {**session, "producer": NUMBER})

    async def _say(self, said: list[Json]) -> None:
        await self._stream.send_all(framed(said))

    async def _hear(self, name: str) -> p.Packet:
        with trio.fail_after(SECONDS):
            while True:
                for at, packet in enumerate(self._heard):
                    if type(packet).__name__ == name:
                        return self._heard.pop(at)
                chunk = await self._stream.receive_some()
                assert chunk, f"the daemon closed the connection before a {name}, it said {self._heard}"
                for packet in self._session.feed(bytes(chunk)):
                    self._heard += single(packet)

    def _lasting(self, packet: p.Packet) -> list[Json]:
        """Returns a packet in the form that is the same each time."""
        said = shown(packet)
        match packet:
            case p.Welcome():
                space = self._spaces.setdefault(packet.space, f"space-{len(self._spaces) + 1}")
                granted = dict(said[7])
                self._sessions.setdefault(said[2], len(self._sessions) + 1)
                self._known = {"session": said[2], "secret": granted.get("secret")}
                if "secret" in granted:
                    granted["secret"] = SECRET
                limits = {name: said[6][name] for name in LIMITS}
                number = self._sessions[said[2]]
                self._welcome = ["Welcome", said[1], number, space, *said[4:6], limits, granted]
                return self._welcome
            case p.Values():
                for value in said[3]:
                    value[1] = NOW
                said[1] = {"?": "stream"}
            case p.Accepted():
                said[1] = self._free_turn(said[1])
            case p.Refusal():
                said[1] = self._free_turn(said[1])
            case p.Unmet():
                said[1], said[3] = self._free_turn(said[1]), "…"  # later daemons have more to say
            case p.Answer() | p.Denied():
                said[1] = next({"?": at} for at in REQUESTS if self._samples.get(at) == said[1])
                if isinstance(packet, p.Answer) and isinstance(said[2], dict) and "producer" in said[2]:
                    self._known["producer"] = said[2]["producer"]
                    said[2] = {**said[2], "producer": NUMBER, "id": NUMBER}
                if isinstance(packet, p.Denied):
                    said[3] = "…"  # later daemons have more to say
        return said

    def _free_turn(self, number: int) -> Json:
        """Returns what stands for the number of a turn, which its client has chosen."""
        turns = [name for name in self._samples if name not in NO_TURNS and self._samples[name] == number]
        return {"?": turns[-1]}


SECRET: Final[Json] = to_json(bytes(range(16)))

NUMBER: Final = 1
"""Stands for the numbers of producers and topics, which a daemon makes of the time."""

REQUESTS: Final = ("one", "two", "three", "four")
"""The names of requests that are answered; a session with turns as well gives those other numbers."""

NO_TURNS: Final = (
    "client",
    "handle-1",
    "handle-2",
    "handle-3",
    "stream",
    "items",
    "bytes",
    "reason",
    "answer",
)


def single(packet: p.Packet) -> list[p.Packet]:
    """Returns the packet, or one for each turn that it accepts: the disk decides how many come together."""
    if isinstance(packet, p.Accepted):
        return [p.Accepted(at, (epoch,)) for at, epoch in enumerate(packet.epochs, packet.first)]
    return [packet]


def walk(said: Json) -> list[dict[str, Json]]:
    """Returns the objects in what is said, at any depth."""
    if isinstance(said, dict):
        return [said, *[found for each in said.values() for found in walk(each)]]
    return [found for each in said for found in walk(each)] if isinstance(said, list) else []


def replaced(said: Json, known: dict[str, Json]) -> Json:
    """Returns what is said with what the daemon has said."""
    match said:
        case {"known": name}:
            return known[name]
        case dict():
            return {at: replaced(each, known) for at, each in said.items()}
        case list():
            return [replaced(each, known) for each in said]
        case _:
            return said


def without_samples(said: Any) -> Any:
    """Returns what is said without what the recorder chose."""
    match said:
        case {"?": name}:
            return {"?": name}
        case dict():
            return {at: without_samples(each) for at, each in said.items()}
        case list():
            return [without_samples(each) for each in said]
        case _:
            return said


def made(script: Script) -> list[Step]:
    """Returns the steps of a script that is not recorded, as the kit has them."""
    return [without_samples(step) for step in script.steps]
