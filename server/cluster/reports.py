"""The connection on which a follower reports to its leader, and is told how far the leader is.

A follower says again and again who it is and how far it has come.  The leader answers with the newest epoch
on disk of each space that it leads.  A *hint*, which is a ``Reached``, follows each group of epochs on disk
of the spaces that the report lists; its stream is the place of the space there, from 1, or 0 for durable
topics.  A hint without a stream says that another daemon may lead a space by now.

Always: a packet of this session is a reason to look at a log; spaces of a follower change by the log alone; a
hint that is lost costs a pause and nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from dataspace.client.session.uplink import send_whole
from dataspace.errors import DataspaceError, ProtocolError, Refused
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN
from dataspace.wire.session import Role, Session
from index.values.values import Map, Record, Value
from server.sessions.peer import PEERS
from server.spaces.measures import lag_of

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from relay.following.polling import Polled
    from server.sessions.state import DaemonState

REPORT_SECONDS: Final = 0.5
"""How often a follower reports."""

ANSWER_SECONDS: Final = 5.0
"""Seconds until an answer is overdue."""

CLOSED: Final = "the leader closed the connection"


class LeaderConnection(ABC):
    """The connection to one leader, made again whenever it is lost, for as long as that leads.

    Who leads, and where, is for the home: it derives a class with the address, and with what answers and
    losses mean there.
    """

    def __init__(
        self,
        daemon: DaemonState,
        spaces: Sequence[str],
        *,
        pause_seconds: float,
        poll_seconds: float,
        hinted_seconds: float,
    ) -> None:
        """``spaces`` are what is followed there.  The next attempt to connect is after ``pause_seconds``;
        their logs are looked at every ``poll_seconds`` while no hints come, or ``hinted_seconds``."""
        self._daemon = daemon
        self._spaces = spaces
        self._pause_seconds = pause_seconds
        self._poll_seconds = poll_seconds
        self._hinted_seconds = hinted_seconds
        self._running = trio.CancelScope()
        self.is_up = False
        """True while the leader answers."""

    def end(self) -> None:
        """Ends ``run``."""
        self._running.cancel()

    async def run(self) -> None:
        """Keeps up the connection, until cancelled or ended."""
        poll_every(self._daemon, self._spaces, self._poll_seconds)
        try:
            with self._running:
                while True:
                    await self._talk_once()
                    await trio.sleep(self._pause_seconds)
        finally:
            self._running = trio.CancelScope()  # it is run again after a defect

    async def _talk_once(self) -> None:
        """Connects, and reports until the connection is lost."""
        reason: Exception | str | None = None
        try:
            link, hello = await self._dial()
            with closing(link):
                reports = Reports(link, self._take_hint)
                await reports.run(hello, partial(report_of, self._daemon, self._spaces), self._take)
                reason = reports.farewell
        except (OSError, trio.TooSlowError, DataspaceError) as error:
            reason = error
        finally:  # also where it is cancelled
            was_up, self.is_up = self.is_up, False
            if was_up:
                poll_every(self._daemon, self._spaces, self._poll_seconds)
            self._note_lost(reason, was_up=was_up)

    @abstractmethod
    async def _dial(self) -> tuple[Link, p.Hello]:
        """Connects to the leader, and returns the hello for it as well; raises as ``open_link``."""

    @abstractmethod
    def _note_answer(self, answer: Map, *, is_first: bool) -> None:
        """Takes what an answer of the leader says beside its epochs."""

    @abstractmethod
    def _note_moved(self) -> None:
        """Notes that another daemon may lead a space of this leader by now."""

    @abstractmethod
    def _note_lost(self, reason: Exception | str | None, *, was_up: bool) -> None:
        """Notes why the leader does not answer, or not any more; None where ``run`` ends."""

    def _take(self, answer: Map) -> None:
        is_first, self.is_up = not self.is_up, True
        if is_first:
            poll_every(self._daemon, self._spaces, self._hinted_seconds)
        self._note_answer(answer, is_first=is_first)
        epochs = numbers(answer.get("epochs"))
        for name in self._spaces:
            self._take_epoch(name, epochs.get(name, 0))

    def _take_hint(self, hint: p.Reached) -> None:
        if not hint.streams:
            self._note_moved()
        for number in hint.streams:
            if number == 0 and (beside := self._daemon.disk_part.following) is not None:
                beside.hint()
            elif 0 < number <= len(self._spaces):
                self._take_epoch(self._spaces[number - 1], hint.epoch)

    def _take_epoch(self, space: str, epoch: int) -> None:
        """Notes the newest epoch of a space that its leader has on disk; a later one is looked for."""
        hosted = self._daemon.spaces.get(space)
        if hosted is None:  # it was given back, and this connection is about to end
            return
        hosted.leader.newest.add(epoch, trio.current_time())
        if not hosted.role.leads:
            hosted.role.commits.expect(epoch)


class Reports:
    """What is said on one such connection; ``hinted`` is called with each ``Reached``."""

    def __init__(self, link: Link, hinted: Callable[[p.Reached], None]) -> None:
        self._link = link
        self._hinted = hinted
        self._session = Session(Role.CLIENT)
        self._heard: list[p.Packet] = []
        self.farewell = CLOSED
        """Why the session is over."""

    async def run(self, hello: p.Hello, report: Callable[[], Map], take: Callable[[Map], None]) -> None:
        """Reports again and again, and passes each answer on; returns when the leader says goodbye.

        Raises ``OSError`` for a lost connection, ``Refused`` where the leader does not take reports,
        ``ProtocolError`` for a broken protocol and ``trio.TooSlowError`` for an answer that is overdue.
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
            await send_whole(self._link, self._session.send(packet))
            return await self._hear()

    async def _hear(self) -> p.Packet | None:
        """Returns the next packet that is no hint; None at the end."""
        while True:
            while not self._heard:
                chunk = await self._link.receive()
                if not chunk:
                    raise ConnectionResetError(CLOSED)
                self._heard += self._session.feed(chunk)
            packet = self._heard.pop(0)
            if isinstance(packet, p.Bye):
                self.farewell = packet.text or self.farewell
                return None
            if isinstance(packet, p.Reached):
                self._hinted(packet)
            elif not isinstance(packet, p.Ping):  # the next report answers it
                return packet


def report_of(daemon: DaemonState, spaces: Sequence[str]) -> Map:
    """Returns the report of a daemon to the leader of these spaces."""
    hosted = daemon.spaces.items()
    return Map(
        {
            "name": daemon.here.name,
            "url": daemon.here.url,
            "web": daemon.here.web,
            "hints": tuple(spaces),
            "stand_by": daemon.home.stands_by,
            "epochs": Map({name: each.commits.durable for name, each in hosted}),
            "lag": Map({name: round(1000 * lag_of(each).seconds) for name, each in hosted}),
        }
    )


def said_of(daemon: DaemonState) -> str:
    """Returns what a daemon says of itself, as JSON: its clients, and how far it is behind in what it
    follows."""
    lag = {
        name: [(behind := lag_of(each)).epochs, round(1000 * behind.seconds)]
        for name, each in daemon.spaces.items()
        if not each.leads
    }
    clients = sum([not each.trusted for each in daemon.parts[PEERS].values()])
    return json.dumps({"clients": clients, "lag": lag})


def poll_every(daemon: DaemonState, spaces: Iterable[str], seconds: float) -> None:
    """Looks at the followed logs of these spaces now, and so often from now on; with ``main`` at topics."""
    found: list[Polled] = []
    for name in spaces:
        role = None if (hosted := daemon.spaces.get(name)) is None else hosted.role
        if role is not None and not role.leads:
            found.append(role.commits)
    if MAIN in spaces and (beside := daemon.disk_part.following) is not None:
        found.append(beside)
    for each in found:
        each.poll = seconds
        each.hint()


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
