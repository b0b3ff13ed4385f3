"""Followers: daemons that follow the log of a leader on the same machine, and how the two know each other.

A leader listens on a socket within its data directory, where who may open the directory may connect.  A
follower says there who it is and how far it has come, again and again, and is told where clients find the
leader.  When a group of epochs is on disk, the leader sends each follower a datagram, which says no more than
that there is something to read.

Always: what a follower shows it has read from the log; a datagram that is lost costs a pause and nothing
else; a follower is counted while its connection stands.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import DataspaceError, ProtocolError, Refused
from dataspace.transport.addresses import MAX_PATH, Address, on_this_machine
from dataspace.wire import packets as p
from dataspace.wire.arguments import text
from dataspace.wire.session import Role, Session
from index.values.values import Map, Record, Value
from relay.following.following import Following
from server.connections.listeners import Listener, open_listener
from server.spaces.measures import lag_of
from server.spaces.space import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dataspace.transport.sockets import Link
    from relay.following.polling import Polled
    from server.monitoring.state import DaemonState
    from server.sessions.peer import Peer

logger = logging.getLogger("dataspace")

SOCKET: Final = "leader.sock"
"""The name of a leader's socket in its data directory."""

REPORT_SECONDS: Final = 0.5
"""How often a follower reports, and learns where the leader is."""

ANSWER_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.1
"""Seconds until an answer is overdue, and between two attempts to find a leader."""

HINTED_SECONDS: Final = 0.1
"""How often a follower looks at the log beside the hints that it gets."""


class Directory:
    """A data directory, whose files are reached by a short path however long its own is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def place(self, name: str) -> str:
        """Returns the path of a file in the directory, short enough for a Unix socket."""
        plain = str(self._path.absolute() / name)
        if len(os.fsencode(plain)) <= MAX_PATH:
            return plain
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}/{name}"

    def close(self) -> None:
        """Forgets the directory."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@dataclass(slots=True)
class FollowerReport:
    """A follower as its leader knows it."""

    number: int
    """The number of its connection."""
    name: str
    url: str
    web: str
    stand_by: bool
    hints: str
    """The path of its socket for datagrams; empty without one."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The newest epoch of each space that it has applied."""
    lag: dict[str, int] = field(default_factory=dict)
    """How far it is behind in each space, in milliseconds, as it says."""
    at: int = 0
    """When it reported, in microseconds since 1970."""

    @property
    def fact(self) -> Record:
        """The fact that states it in the space ``system``."""
        return Record("follower", self.name, self.url, self.web, self.stand_by)

    @property
    def late(self) -> set[Record]:
        """The facts that state where it is a second behind or more, in whole seconds."""
        lags = self.lag.items()
        return {Record("follower-lag", self.name, space, lag // 1000) for space, lag in lags if lag >= 1000}

    def status(self, epochs: Mapping[str, int], at: int) -> Map:
        """Returns what ``status`` shows of it at a time, where these epochs of spaces are on disk."""
        behind = {name: max(0, epoch - self.epochs.get(name, 0)) for name, epoch in epochs.items()}
        return Map(
            {
                "url": self.url,
                "web": self.web,
                "stand_by": self.stand_by,
                "heard": at - self.at,
                "lag_epochs": Map(behind),
                "lag_seconds": Map({name: lag / 1000 for name, lag in self.lag.items()}),
            }
        )


class Followers:
    """The followers of this daemon, while it leads."""

    def __init__(self, daemon: DaemonState, serve: Callable[[Link], object]) -> None:
        """``serve`` serves a follower at the other end of a link."""
        self._daemon = daemon
        self.serve: Final = serve
        data = daemon.config.data
        self._directory = Directory(data) if isinstance(data, Path) else None
        self._known: dict[int, FollowerReport] = {}
        self._hints: socket.socket | None = None
        self._listener: Listener | None = None

    def listen(self) -> Listener | None:
        """Returns the socket for followers in the data directory; None if it has none.

        Raises ``CannotListen``.
        """
        if self._directory is None:
            return None
        self._hints = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._listener = open_listener(Address(path=self._directory.place(SOCKET)), None)
        return self._listener

    def close(self) -> None:
        """Closes the sockets."""
        if self._listener is not None:
            self._listener.close()
        if self._hints is not None:
            self._hints.close()
        if self._directory is not None:
            self._directory.close()

    # -- as a doorkeeper ------------------------------------------------------------------------------

    def refusal(self, peer: str) -> str:
        """Returns nothing: every process that can open the directory may follow."""
        return ""

    def turned_away(self, refusal: str) -> bytes:
        """Returns nothing: there is always room."""
        return b""

    # -- what they ask --------------------------------------------------------------------------------

    async def follow(self, peer: Peer, arguments: Map) -> Value:
        """Notes how far a follower is, and returns where clients find this daemon."""
        await trio.lowlevel.checkpoint()
        if not peer.trusted:
            raise Refused("not-allowed", f"followers report on the socket {SOCKET} in the data directory")
        known = self._known.get(peer.number)
        if known is None:
            known = self._enter(peer, arguments)
        before = known.late
        known.epochs, known.lag = _numbers(arguments.get("epochs")), _numbers(arguments.get("lag"))
        known.at = now()
        self._daemon.system.state([*known.late - before], [*before - known.late])
        daemon = self._daemon
        return Map(
            {
                "url": daemon.url,
                "web": daemon.web_url,
                "epochs": Map(_epochs(daemon)),
            }
        )

    def status(self) -> Map:
        """Returns what ``status`` shows of all followers, by name."""
        epochs, at = _epochs(self._daemon), now()
        return Map({each.name: each.status(epochs, at) for each in self._known.values()})

    def _enter(self, peer: Peer, arguments: Map) -> FollowerReport:
        hints = os.path.basename(text(arguments, "hints", ""))
        known = self._known[peer.number] = FollowerReport(
            peer.number,
            text(arguments, "name")[:256],
            text(arguments, "url", ""),
            text(arguments, "web", ""),
            arguments.get("stand_by") is True,
            self._directory.place(hints) if hints and self._directory is not None else "",
        )
        self._daemon.system.state([known.fact], [])
        for hosted in self._daemon.spaces.values():
            hosted.hint = self.hint
            hosted.show_durable()
        self._daemon.durable_topics.hint = self.hint
        self._daemon.watch.acted("followed", f"{known.name} follows, at {known.url or 'no address'}")
        peer.start(self._keep, known)
        return known

    async def _keep(self, known: FollowerReport) -> None:
        """Counts a follower until its connection ends."""
        try:
            await trio.sleep_forever()
        finally:
            del self._known[known.number]
            if not self._known:
                for hosted in self._daemon.spaces.values():
                    hosted.hint = None
                self._daemon.durable_topics.hint = None
            self._daemon.system.state([], [known.fact, *known.late])
            self._daemon.watch.acted("left", f"{known.name} follows no longer")

    def hint(self) -> None:
        """Tells all followers that there is something to read; O(followers)."""
        for each in self._known.values():
            if each.hints and self._hints is not None:
                with suppress(OSError):  # its queue is full: it has hints to read
                    self._hints.sendto(b"", each.hints)


class LeaderLink:
    """The connection of a follower to its leader."""

    def __init__(self, daemon: DaemonState, followings: Sequence[Polled], directory: Path) -> None:
        self._daemon = daemon
        self._followings = followings
        self._directory = Directory(directory)
        self._name = f"follower-{os.getpid()}.sock"
        self.is_up = False
        """True while the leader answers."""
        self._running = trio.CancelScope()

    def end(self) -> None:
        """Ends ``run``."""
        self._running.cancel()

    async def run(self) -> None:
        """Keeps in touch with the leader, until cancelled."""
        place = self._directory.place(self._name)
        with suppress(FileNotFoundError):
            os.unlink(place)
        hints = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            with hints:
                await hints.bind(place)
                async with trio.open_nursery() as nursery:
                    self._running = nursery.cancel_scope
                    nursery.start_soon(self._take_hints, hints)
                    nursery.start_soon(self._keep_in_touch)
        finally:
            with suppress(OSError):
                os.unlink(place)
            self._directory.close()

    async def _take_hints(self, hints: trio.socket.SocketType) -> None:
        while True:
            await hints.recv(1)
            for following in self._followings:
                following.hint()

    async def _keep_in_touch(self) -> None:
        while True:
            try:
                stream = await trio.open_unix_socket(self._directory.place(SOCKET))
            except OSError:
                await trio.sleep(RETRY_SECONDS)
                continue
            try:
                async with stream:
                    await _Reports(stream, self._report).run(self._take)
            except (trio.BrokenResourceError, trio.TooSlowError, DataspaceError) as error:
                logger.warning("the leader of %s does not answer: %s", self._daemon.config.data, error)
            finally:
                self._lose()
            await trio.sleep(RETRY_SECONDS)

    def _report(self) -> Map:
        daemon = self._daemon
        return Map(
            {
                "name": daemon.name,
                "url": daemon.url,
                "web": daemon.web_url,
                "hints": self._name,
                "stand_by": daemon.home.stands_by,
                "epochs": Map(_epochs(daemon)),
                "lag": Map(
                    {name: round(1000 * lag_of(each).seconds) for name, each in daemon.spaces.items()}
                ),
            }
        )

    def _take(self, answer: Map) -> None:
        """Takes over what the leader says."""
        if not self.is_up:
            logger.info("following %s", answer.get("url"))
        self.is_up = True
        epochs, at = _numbers(answer.get("epochs")), trio.current_time()
        for name, hosted in self._daemon.spaces.items():
            hosted.leader.url, hosted.leader.web = str(answer.get("url", "")), str(answer.get("web", ""))
            hosted.leader.beats.add(epochs.get(name, 0), at)
            if isinstance(hosted.commits, Following):
                hosted.commits.expect(epochs.get(name, 0))
        for following in self._followings:
            following.poll = HINTED_SECONDS

    def _lose(self) -> None:
        self.is_up = False
        for hosted in self._daemon.spaces.values():
            hosted.leader.url = hosted.leader.web = ""
        for following in self._followings:
            following.expect_no_hints()


class _Reports:
    """The session on which a follower reports."""

    def __init__(self, stream: trio.SocketStream, report: Callable[[], Map]) -> None:
        self._stream = stream
        self._report = report
        self._session = Session(Role.CLIENT)
        self._heard: list[p.Packet] = []

    async def run(self, take: Callable[[Map], None]) -> None:
        """Reports again and again, and passes each answer on; returns when the leader hangs up."""
        hello = p.Hello(p.VERSION, f"~follower-{os.getpid()}", "follower", Map())
        if await self._ask(hello) is None:
            return
        number = 0
        while True:
            number += 1
            answer = await self._ask(p.Request(number, "follow", self._report()))
            if answer is None:
                return
            if not isinstance(answer, p.Answer) or not isinstance(answer.value, Map):
                raise ProtocolError("unexpected", f"{answer!r:.200} in answer to a follower")
            take(answer.value)
            with trio.move_on_after(REPORT_SECONDS):
                if await self._hear() is None:  # only a goodbye may come
                    return

    async def _ask(self, packet: p.Packet) -> p.Packet | None:
        with trio.fail_after(ANSWER_SECONDS):
            await self._stream.send_all(self._session.send(packet))
            return await self._hear()

    async def _hear(self) -> p.Packet | None:
        """Returns the next packet; None at the end."""
        while not self._heard:
            chunk = await self._stream.receive_some()
            if not chunk:
                return None
            self._heard += self._session.feed(bytes(chunk))
        packet = self._heard.pop(0)
        if isinstance(packet, p.Bye):
            return None
        return packet


def _epochs(daemon: DaemonState) -> dict[str, int]:
    """Returns the newest epoch of each space that is on disk."""
    return {name: hosted.commits.durable for name, hosted in daemon.spaces.items()}


def _numbers(value: Value) -> dict[str, int]:
    """Returns numbers by name, as far as a value has some."""
    pairs = value.pairs() if isinstance(value, Map) else ()
    return {str(name): each for name, each in pairs if isinstance(each, int)}


def url_of(listeners: Iterable[Listener]) -> str:
    """Returns the address by which clients on this machine reach a daemon; empty if there is none."""
    return next((on_this_machine(each.address).url for each in listeners if not each.address.web), "")


def web_url_of(listeners: Iterable[Listener]) -> str:
    """Returns the same for HTTP."""
    return next((on_this_machine(each.address).http for each in listeners if each.address.web), "")
