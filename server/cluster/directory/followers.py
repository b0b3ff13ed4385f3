"""Followers: daemons that follow the log of a leader, and how the two know each other.

The leader of a directory listens on a socket there; each process that may open the directory may connect.  A
follower reports on it who it is and how far it has come (``server/cluster/reports``), and is told where
clients find the leader.  When a group of epochs is on disk, the leader sends each follower a datagram, whose
meaning is that there is something to read.  Over a store, followers report on connections like
a client's, and get a ``Reached`` there.

Always: a follower shows only epochs that it has read from the log; a hint that is lost costs a pause and
nothing else; a follower is counted while its connection stands; a follower that reads no hints delays
nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import DataspaceError, Refused
from dataspace.transport.addresses import MAX_PATH, Address, on_this_machine
from dataspace.wire import packets as p
from dataspace.wire.verbs import Arguments
from index.values.values import Map, Record, Value
from server.cluster.reports import HINTED_SECONDS, LagRow, Reports, lag_facts, numbers, report_of, take_epoch
from server.connections.listeners import Listener, open_listener
from server.spaces.space import now
from server.topics.part import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dataspace.transport.sockets import Link
    from relay.following.polling import Polled
    from server.sessions.peer import Peer
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")

SOCKET: Final = "leader.sock"
"""The name of a leader's socket in its data directory."""

RETRY_SECONDS: Final = 0.1
"""Seconds between two attempts to find a leader."""

MOST_REPORTING: Final = 256
"""Followers of one daemon: each costs it a packet or a datagram for each group of epochs on disk."""


OF_TOPICS: Final = ""
"""The space that stands for durable topics where hints are meant."""


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

    peer: Peer
    """Its connection."""
    name: str
    url: str
    web: str
    stand_by: bool
    hints: str
    """The path of its socket for datagrams; empty without one."""
    places: dict[str, int]
    """The stream of the hints of each space, on its connection; empty where it gets datagrams."""
    due: dict[int, int] = field(default_factory=dict)
    """Hints that wait for its connection: the newest epoch by stream."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The newest epoch of each space that it has applied."""
    lag: dict[str, int] = field(default_factory=dict)
    """How far it is behind in each space of its leader, in milliseconds, as it says."""
    at: int = 0
    """When it reported, in microseconds since 1970."""

    @property
    def facts(self) -> Iterable[Record]:
        """The facts in the space ``system``: it is there, and where it is a second behind or more."""
        yield Record("follower", self.name, self.url, self.web, self.stand_by)
        yield from lag_facts(self.lags)

    @property
    def lags(self) -> Iterable[LagRow]:
        """Yields where it is a second behind or more, in steps of doubled seconds: few changes tell of it."""
        for space, lag in self.lag.items():
            if lag >= 1000:
                yield self.name, space, 1 << (lag // 1000).bit_length() - 1

    def tell(self) -> None:
        """Queues the hints that are due, unless it has not read earlier packets."""
        if self.due and not self.peer.sending.is_blocked():
            for stream, epoch in self.due.items():
                self.peer.say(p.Reached(epoch, (stream,)))
            self.due.clear()

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
        self._stated: dict[Record, int] = {}
        """Facts about followers, with their handles."""
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

    async def follow(self, peer: Peer, arguments: Arguments) -> Value:
        """Notes how far a follower is, and returns where clients find this daemon."""
        await trio.lowlevel.checkpoint()
        if not peer.trusted:
            said = (
                f"followers report on the socket {SOCKET} in the data directory, or as members of the store"
            )
            raise Refused("not-allowed", said)
        known = self._known.get(peer.number)
        if known is None:
            known = self._enter(peer, arguments)
        led = self._led()
        known.epochs, lag = numbers(arguments["epochs"]), numbers(arguments["lag"])
        known.lag = {name: lag[name] for name in led if name in lag}
        known.at = now()
        self._state()
        known.tell()
        daemon = self._daemon
        return Map(
            {
                "url": daemon.here.url,
                "web": daemon.here.web,
                "epochs": Map(led),
                "lags": tuple([row for each in self._known.values() for row in each.lags]),
            }
        )

    @property
    def stands_by(self) -> bool:
        """True if one of them leads once this daemon has ended."""
        return any(each.stand_by for each in self._known.values())

    def status(self) -> Map:
        """Returns what ``status`` shows of all followers, by name."""
        epochs, at = self._led(), now()
        return Map({each.name: each.status(epochs, at) for each in self._known.values()})

    def _enter(self, peer: Peer, arguments: Arguments) -> FollowerReport:
        if len(self._known) >= MOST_REPORTING:
            raise Refused("limit", f"{len(self._known)} followers, no more are possible")
        wanted = arguments["hints"]
        places = self._places(wanted) if isinstance(wanted, tuple) else {}
        hints = "" if places else os.path.basename(str(wanted))
        known = self._known[peer.number] = FollowerReport(
            peer,
            arguments["name"][:256],
            arguments["url"],
            arguments["web"],
            arguments["stand_by"],
            self._directory.place(hints) if hints and self._directory is not None else "",
            places,
        )
        for name, hosted in self._daemon.spaces.items():
            hosted.hint = partial(self.hint, name, hosted)
            hosted.show_durable()
        self._daemon.parts[TOPICS].durable.hint = partial(self.hint, OF_TOPICS)
        self._daemon.watch.acted("followed", f"{known.name} follows, at {known.url or 'no address'}")
        peer.start(self._keep, known)
        return known

    async def _keep(self, known: FollowerReport) -> None:
        """Counts a follower until its connection ends."""
        try:
            await trio.sleep_forever()
        finally:
            del self._known[known.peer.number]
            if not self._known:
                for hosted in self._daemon.spaces.values():
                    hosted.hint = None
                self._daemon.parts[TOPICS].durable.hint = None
            self._state()
            self._daemon.watch.acted("left", f"{known.name} follows no longer")

    def hint(self, space: str, hosted: HostedSpace | None = None) -> None:
        """Tells all followers of a space that there is something to read; O(followers)."""
        for each in self._known.values():
            if each.hints and self._hints is not None:
                with suppress(OSError):  # its queue is full: it has hints to read
                    self._hints.sendto(b"", each.hints)
            elif space in each.places:
                each.due[each.places[space]] = 0 if hosted is None else hosted.commits.durable
                each.tell()

    def _led(self) -> dict[str, int]:
        """Returns the newest epoch on disk of each space that this daemon leads."""
        return {name: each.commits.durable for name, each in self._daemon.spaces.items() if each.leads}

    def _state(self) -> None:
        """States in the space ``system`` what is known of the followers."""
        facts = {fact for each in self._known.values() for fact in each.facts}
        self._daemon.system.replace(self._stated, facts)

    def _places(self, spaces: tuple[Value, ...]) -> dict[str, int]:
        """Returns the stream of the hints of each space that a follower lists, and of durable topics."""
        wanted = {str(name): at for at, name in enumerate(spaces, 1)}
        return {OF_TOPICS: 0} | {name: wanted[name] for name in self._daemon.spaces if name in wanted}


class LeaderLink:
    """The connection of a follower to its leader."""

    def __init__(self, daemon: DaemonState, followings: Sequence[Polled], directory: Path) -> None:
        self._daemon = daemon
        self._followings = followings
        self._directory = Directory(directory)
        self._name = f"follower-{os.getpid()}.sock"
        self.is_up = False
        """True while the leader answers."""
        self._resets = 0
        """How often the connection broke since the leader last answered."""
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
                    hello = p.Hello(p.VERSION, f"~follower-{os.getpid()}", "follower", Map())
                    reports = Reports(stream.send_all, stream.receive_some)
                    await reports.run(hello, partial(report_of, self._daemon, self._name), self._take)
            except trio.BrokenResourceError as error:  # it ended, and may be there again in a moment
                self._resets += 1
                self._note_silent(error, logging.INFO if self._resets == 1 else logging.WARNING)
            except (trio.TooSlowError, DataspaceError) as error:
                self._note_silent(error, logging.WARNING)
            finally:
                self._lose()
            await trio.sleep(RETRY_SECONDS)

    def _note_silent(self, error: Exception, level: int) -> None:
        logger.log(level, "the leader of %s does not answer: %s", self._daemon.config.data, error)

    def _take(self, answer: Map) -> None:
        """Takes over what the leader says."""
        if not self.is_up:
            logger.info("following %s", answer.get("url"))
        self.is_up = True
        self._resets = 0
        epochs = numbers(answer.get("epochs"))
        for name, hosted in self._daemon.spaces.items():
            hosted.leader.url, hosted.leader.web = str(answer.get("url", "")), str(answer.get("web", ""))
            take_epoch(hosted, epochs.get(name, 0))
        for following in self._followings:
            following.poll = HINTED_SECONDS

    def _lose(self) -> None:
        self.is_up = False
        for hosted in self._daemon.spaces.values():
            hosted.leader.url = hosted.leader.web = ""
        for following in self._followings:
            following.expect_no_hints()


def url_of(listeners: Iterable[Listener]) -> str:
    """Returns the address by which clients on this machine reach a daemon; empty if there is none."""
    return next((on_this_machine(each.address).url for each in listeners if not each.address.web), "")


def web_url_of(listeners: Iterable[Listener]) -> str:
    """Returns the same for HTTP."""
    return next((on_this_machine(each.address).http for each in listeners if each.address.web), "")
