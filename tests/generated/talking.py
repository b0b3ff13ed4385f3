"""A conversation with a daemon in which each packet is said that may be, and packets with wrong fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from dataspace.codec import pack
from dataspace.errors import ProtocolError
from dataspace.topics import messages as forms
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from dataspace.wire.packets import NUMBERS, TABLE
from dataspace.wire.session import Role, Session
from index.values.values import Map, Record, Value
from tests.generated.tables import ACCEPTED, Table
from tests.generated.test_verbs import JOB, JUNK, ONE, SECRET, Guest, World
from tests.model.space import ASSERT, RETRACT
from tests.server.peers import packed
from tests.server.streams.inside import Wire

SEEN: Final = Map({"kind": "observe", "pattern": JOB, "quiet": True})
LATER: Final = Map({"kind": "observe", "pattern": JOB, "quiet": True, "snapshot": False})
STAGE: Final = Map({"kind": "stage", "key": ("offered",)})
WELCOME: Final = p.Welcome(p.VERSION, 1, "main", 0, 0, Map(), Map())


def heard_by(role: Role, kind: type[p.Packet]) -> str:
    """Returns the entry of a packet that a side takes."""
    return f"{'client' if role is Role.CLIENT else 'daemon'} hears {kind.__name__}"


class Talk:
    """A conversation in which each packet is said that may be."""

    def __init__(self, wire: Wire, table: Table) -> None:
        self._wire = wire
        self._table = table
        self._unanswered: list[type[p.Packet]] = []

    async def say(self, *packets: p.Packet) -> None:
        """Says packets, which are accepted if a ping behind them is answered."""
        self._unanswered += map(type, packets)
        await self._wire.say(*packets)

    async def hear(self, kind: type[p.Packet]) -> Any:
        """Returns the next packet of a kind; each that comes is accepted by the session of a client."""
        while True:
            heard = await self._wire.hear()
            assert heard is not None and not (isinstance(heard, p.Bye) and kind is not p.Bye), heard
            self._table.note(heard_by(Role.CLIENT, type(heard)), ACCEPTED)
            if isinstance(heard, p.Pong | p.Bye):
                for each in self._unanswered:
                    self._table.note(heard_by(Role.SERVER, each), ACCEPTED)
                self._unanswered.clear()
            if isinstance(heard, kind):
                return heard

    async def greet(self, client: str, **features: Value) -> None:
        """Says hello with these features, and hears the welcome."""
        await self.say(p.Hello(p.VERSION, client, "", Map({"token": SECRET, **features})))
        await self.hear(p.Welcome)

    async def all_kinds(self) -> None:
        """Says one packet of each kind, and hears what follows."""
        await self.greet("~talk")
        await self.say(p.Turn(1, "main", "", ((ASSERT, 1, Record("job", 9)),)))
        await self.hear(p.Accepted)
        await self.say(p.Turn(2, "main", "", ((RETRACT, 7),)))
        await self.hear(p.Refusal)
        await self.say(p.Request(1, "nonsense", Map()), p.Open(1, SEEN, 0, 0), p.Peek(1, 1))
        await self.hear(p.Denied)
        await self.hear(p.Available)
        await self.say(p.Ask(1, 100, 1 << 20))
        await self.hear(p.Values)
        await self.say(p.Abort(1, "", True))
        await self.hear(p.Done)
        await self.say(p.Open(2, Map({"kind": "nonsense"}), 0, 0), p.Open(3, LATER, 0, 0))
        await self.hear(p.Error)
        await self.hear(p.Reached)
        await self.say(p.Offer(4, STAGE))
        await self.hear(p.Ask)
        await self.say(p.Available(4, 1), p.Values(4, 0, ONE, 0), p.Done(4))
        await self.hear(p.Done)
        await self.say(p.Offer(5, STAGE), p.Error(5, "x", "it failed"))
        await self.say(p.Request(2, "join", Map({"topic": "talk"})))
        made = (await self.hear(p.Answer)).value
        finished = (forms.FINISH, 0, pack(()), ((0, -1), (1, 1)))
        await self.say(p.Produce(3, made["producer"], (finished,)))
        await self.hear(p.Answer)
        await self.say(p.Pong(0), p.Ping(1))
        await self.hear(p.Pong)
        await self.say(p.Bye("", ""))
        await self.hear(p.Bye)


async def is_refused_by_daemon(there: World, kind: type[p.Packet]) -> bool:
    """True if each field of a packet is refused where it is of another kind."""
    for broken in _broken(kind):
        if kind is p.Hello:
            guest = Guest(there.made.connect(trusted=False))
        else:
            guest = await Guest.arrive(there.made, "~broken", token=SECRET)
        guest.wire.link.send_nowait(broken)
        heard = await guest.wire.hear()
        if not isinstance(heard, p.Bye) or heard.code != "malformed":
            return False
    return True


def is_refused_by_client(kind: type[p.Packet]) -> bool:
    """The same of the session of a client."""
    for broken in _broken(kind):
        session = Session(Role.CLIENT)
        before = b"" if kind is p.Welcome else packed(WELCOME)
        with pytest.raises(ProtocolError) as caught:
            list(session.feed(before + broken))
        if caught.value.code != "malformed":
            return False
    return True


def _passes(check: Callable[[Value], bool], value: Value) -> bool:
    try:
        return check(value)
    except ProtocolError:
        return False


def _broken(kind: type[p.Packet]) -> Iterator[bytes]:
    """Yields packets of a kind as they are written, each with one field that none of its values may be."""
    checks = TABLE[NUMBERS[kind]][1]
    right = [next(value for value in (1, (), *JUNK) if _passes(check, value)) for check in checks]
    for at, check in enumerate(checks):
        for value in [value for value in JUNK if not _passes(check, value)][:1]:
            yield frame(pack((NUMBERS[kind], *right[:at], value, *right[at + 1 :])))
