"""The session on which a follower reports to its leader, and is told how far the leader is.

A follower says again and again who it is and how far it has come.  The leader answers with the newest epoch
on disk of each space that it leads.  Where the report lists spaces, a ``Reached`` follows each of their
groups of epochs on disk; its stream is the place of the space in that list, from 1, or 0 for durable topics.

Always: a packet of this session is a reason to look at a log; spaces of a follower change by the log alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from dataspace.errors import ProtocolError, Refused
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session
from index.values.values import Map, Record, Value
from server.spaces.measures import lag_of

if TYPE_CHECKING:
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

REPORT_SECONDS: Final = 0.5
"""How often a follower reports."""

ANSWER_SECONDS: Final = 5.0
"""Seconds until an answer is overdue."""

HINTED_SECONDS: Final = 0.1
"""How often a follower looks at the log beside the hints that it gets."""


class Reports:
    """One such session, as the follower has it; ``hinted`` is called with each ``Reached``."""

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        receive: Callable[[], Awaitable[bytes | bytearray]],
        hinted: Callable[[p.Reached], None] | None = None,
    ) -> None:
        self._send = send
        self._receive = receive
        self._hinted = hinted
        self._session = Session(Role.CLIENT)
        self._heard: list[p.Packet] = []
        self.farewell = "the leader closed the connection"
        """Why the session is over."""

    async def run(self, hello: p.Hello, report: Callable[[], Map], take: Callable[[Map], None]) -> None:
        """Reports again and again, and passes each answer on; returns when the leader hangs up.

        Raises ``Refused`` where the leader does not take reports, ``ProtocolError`` for a broken protocol and
        ``trio.TooSlowError`` for an answer that is overdue.
        """
        if await self._ask(hello) is None:
            return
        number = 0
        while True:
            number += 1
            answer = await self._ask(p.Request(number, "follow", report()))
            if answer is None:
                return
            if isinstance(answer, p.Denied):
                raise Refused(answer.code, answer.text)
            if not isinstance(answer, p.Answer) or not isinstance(answer.value, Map):
                raise ProtocolError("unexpected", f"{answer!r:.200} in answer to a follower")
            take(answer.value)
            with trio.move_on_after(REPORT_SECONDS):
                if await self._hear() is None:  # only hints and a goodbye may come
                    return

    async def _ask(self, packet: p.Packet) -> p.Packet | None:
        with trio.fail_after(ANSWER_SECONDS):
            await self._send(self._session.send(packet))
            return await self._hear()

    async def _hear(self) -> p.Packet | None:
        """Returns the next packet that is no hint; None at the end."""
        while True:
            while not self._heard:
                chunk = await self._receive()
                if not chunk:
                    return None
                self._heard += self._session.feed(bytes(chunk))
            packet = self._heard.pop(0)
            if isinstance(packet, p.Bye):
                self.farewell = packet.text or self.farewell
                return None
            if isinstance(packet, p.Reached) and self._hinted is not None:
                self._hinted(packet)
            elif not isinstance(packet, p.Ping):  # the next report answers it
                return packet


def report_of(daemon: DaemonState, hints: Value) -> Map:
    """Returns the report of a daemon; ``hints`` is the name of its socket, or the spaces of its hints."""
    spaces = daemon.spaces.items()
    return Map(
        {
            "name": daemon.here.name,
            "url": daemon.here.url,
            "web": daemon.here.web,
            "hints": hints,
            "stand_by": daemon.home.stands_by,
            "epochs": Map({name: each.commits.durable for name, each in spaces}),
            "lag": Map({name: round(1000 * lag_of(each).seconds) for name, each in spaces}),
        }
    )


def take_epoch(hosted: HostedSpace, epoch: int) -> None:
    """Notes the newest epoch of a space that its leader has on disk; a later one than here is looked for."""
    hosted.leader.newest.add(epoch, trio.current_time())
    if not hosted.role.leads:
        hosted.role.commits.expect(epoch)


LagRow: TypeAlias = tuple[str, str, int]
"""A follower, a space, and the seconds by which it is behind there: 1, 2, 4, 8 and so on."""


def lag_facts(rows: Iterable[LagRow]) -> set[Record]:
    """Returns the facts of the space ``system`` about followers that are behind."""
    return {Record("follower-lag", *row) for row in rows}


def lags(value: Value) -> list[LagRow]:
    """Returns the followers of a leader that are behind, as far as a value of its answer has some."""
    found: list[LagRow] = []
    for row in value if isinstance(value, tuple) else ():
        match row:
            case (str(name), str(space), int(seconds)):
                found.append((name, space, seconds))
    return found


def numbers(value: Value) -> dict[str, int]:
    """Returns numbers by name, as far as a value has some."""
    pairs = value.pairs() if isinstance(value, Map) else ()
    return {str(name): each for name, each in pairs if isinstance(each, int)}
