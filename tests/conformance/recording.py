"""Records sessions: sends a real daemon what the client says in a session, and notes what it answers.

Identities of spaces, secrets, times and numbers that a daemon chooses are replaced by fixed ones, and a
welcome keeps only the limits that a client needs.  So a session that is recorded again is the same text.

Always: of a packet that the client hears only the name is read; its fields are the daemon's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio
import trio.testing

from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session
from index.values.jsons import to_json
from server.config.model import Config
from server.daemon.serve import serve
from tests.conformance.packets import Json, filled, framed, shown

Step = dict[str, Json]

LIMITS: Final = ("actions_per_turn", "frame_bytes", "frame_elements", "streams")

SECONDS: Final = 20.0

NOW: Final = 1_700_000_000_000_000

CHOICES: Final[dict[str, Json]] = {
    "client": "~c0ffee",
    "lease": "lease:60000:kit-c0ffee",
    "handle-1": 1,
    "handle-2": 2,
    "handle-3": 3,
    "stream": 1,
    "items": 1024,
    "bytes": 1 << 20,
    "reason": "",
    "answer": False,
}
"""What the recorder chooses where a client may choose; a session may have other ``choices``."""

TURNS: Final = ("Turn",)
REQUESTS: Final = ("Request", "Produce")


class Recorder:
    """Plays one session to daemons, as the client."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._daemons = 0
        self._spaces: dict[str, str] = {}
        self._sessions: dict[int, int] = {}
        self._choices = dict(CHOICES)
        self._turns: dict[str, int] = {}
        """By the names that the session has for them, the numbers of turns."""
        self._requests: dict[str, int] = {}
        """The same of requests."""
        self._known: dict[str, Json] = {}
        self._port = 0
        self._session = Session(Role.CLIENT)
        self._stream: trio.SocketStream
        self._heard: list[p.Packet] = []

    async def record(self, session: dict[str, Json]) -> list[Step]:
        """Returns the steps of a session with what the daemon has answered."""
        self._choices |= session.get("choices", {})
        made: list[Step] = []
        async with trio.open_nursery() as nursery:
            await self._start(nursery)
            for step in session["steps"]:
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
                sent = self._chosen(said)
                if lost.get("lost") != "packet":
                    await self._stream.send_all(framed(sent))
                    if said[0] == "Open" and "after" in said[2]:
                        await trio.sleep(0.1)  # the past is read first: no packet says that it was
                if lost.get("lost") == "answer":
                    await self._hear("Accepted")
            case {"hears": [name, *_]}:
                return {"hears": self._lasting(await self._hear(name))}
            case {"cut": what}:
                await self._stream.aclose()
                await trio.testing.wait_all_tasks_blocked(0.05)  # the daemon has noticed
                await (self._start(nursery) if what == "space" else self._connect())
        return step

    def _chosen(self, said: Json) -> list[Json]:
        """Returns a packet of the client with what it chooses, and with what the daemon has chosen."""
        match said:
            case [kind, {"?": name}, *_] if kind in TURNS:
                numbers = self._turns
            case [kind, {"?": name}, *_] if kind in REQUESTS:
                numbers = self._requests
            case _:
                name, numbers = "", {}
        number = numbers.setdefault(name, len(numbers) + 1)
        sent = filled(said, {**self._choices, name: number})
        match sent:
            case ["Hello", *_, {"resume": _} as features]:
                features["resume"] = [self._known["session"], self._known["secret"]]
            case ["Produce", _, _, *rest]:
                sent = ["Produce", number, self._known["producer"], *rest]
        return list(sent)

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
                return ["Welcome", said[1], number, space, *said[4:6], limits, granted]
            case p.Values():
                for value in said[3]:
                    value[1] = NOW
                said[1] = {"?": "stream"}
            case p.Accepted():
                said[1] = _name(said[1], self._turns)
            case p.Refusal():
                said[1] = _name(said[1], self._turns)
                if packet.found:
                    said[3] = "…"  # later daemons have more to say
            case p.Answer() | p.Denied():
                said[1] = _name(said[1], self._requests)
                if isinstance(packet, p.Answer) and isinstance(said[2], dict) and "producer" in said[2]:
                    self._known["producer"] = said[2]["producer"]
                    said[2] = {**said[2], "producer": NUMBER, "id": NUMBER}
                if isinstance(packet, p.Denied):
                    said[3] = "…"  # later daemons have more to say
        return said


def _name(number: int, numbers: dict[str, int]) -> Json:
    """Returns what stands for the number of a turn or a request, which its client has chosen."""
    return next({"?": name} for name, each in numbers.items() if each == number)


SECRET: Final[Json] = to_json(bytes(range(16)))

NUMBER: Final = 1
"""Stands for the numbers of producers and topics, which a daemon makes of the time."""


def single(packet: p.Packet) -> list[p.Packet]:
    """Returns the packet, or one for each turn that it accepts: the disk decides how many come together."""
    if isinstance(packet, p.Accepted):
        return [p.Accepted(at, (epoch,)) for at, epoch in enumerate(packet.epochs, packet.first)]
    return [packet]
