"""Followers as their leader knows them: who they are, how far they are, and what they are told.

The leader of a directory listens on a socket there; each process that may open the directory may connect.
Over a store, followers connect where clients do.  What is said is the same (``server/cluster/reports``).

Always: a follower is counted while its connection stands; a follower that reads no hints delays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import Refused
from dataspace.wire import packets as p
from dataspace.wire.verbs import Arguments
from index.values.values import Map, Record, Value
from server.cluster.directory.contact import SOCKET, LeaderSocket
from server.cluster.reports import LagRow, lag_facts, numbers
from server.connections.listeners import TRUSTED, Listener, accept, open_listener
from server.parts import PartKey
from server.spaces.space import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from server.sessions.peer import Peer
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

MOST_REPORTING: Final = 256
"""Followers of one daemon: each costs it a packet for each group of epochs on disk."""


BESIDE: Final = ""
"""The space that stands for durable topics where hints are meant."""


@dataclass(slots=True)
class FollowerReport:
    """A follower as its leader knows it."""

    peer: Peer
    """Its connection."""
    name: str
    url: str
    web: str
    stand_by: bool
    places: dict[str, int]
    """The stream of the hints of each space."""
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
            self.peer.sending.flush()  # before observers here, who may be many

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

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        self.serve: Final = daemon.parts[TRUSTED]
        data = daemon.config.data
        self._socket = LeaderSocket(data) if isinstance(data, Path) else None
        self._known: dict[int, FollowerReport] = {}
        self._stated: dict[Record, int] = {}
        """Facts about followers, with their handles."""

    def listen(self) -> None:
        """Listens in the data directory, if there is one, for as long as peers are served.

        Raises ``CannotListen``.
        """
        if self._socket is not None:
            listener = open_listener(self._socket.address, None)
            self._daemon.peers.start_soon(self._accept, self._socket, listener)

    async def _accept(self, socket: LeaderSocket, listener: Listener) -> None:
        try:
            await accept(self, listener)
        finally:
            listener.close()
            socket.close()

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
            reason = (
                f"followers report on the socket {SOCKET} in the data directory, or as members of the store"
            )
            raise Refused("not-allowed", reason)
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

    def status(self) -> Map:
        """Returns what ``status`` shows of all followers, by name."""
        epochs, at = self._led(), now()
        return Map({each.name: each.status(epochs, at) for each in self._known.values()})

    def _enter(self, peer: Peer, arguments: Arguments) -> FollowerReport:
        if len(self._known) >= MOST_REPORTING:
            raise Refused("limit", f"{len(self._known)} followers, no more are possible")
        known = self._known[peer.number] = FollowerReport(
            peer,
            arguments["name"][:256],
            arguments["url"],
            arguments["web"],
            arguments["stand_by"],
            self._places(arguments["hints"]),
        )
        for name, hosted in self._daemon.spaces.items():
            hosted.hint = partial(self.hint, name, hosted)
            hosted.show_durable()
        self._daemon.disk_part.hint_with(partial(self.hint, BESIDE))
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
                self._daemon.disk_part.hint_with(None)
            self._state()
            self._daemon.watch.acted("left", f"{known.name} follows no longer")

    def hint(self, space: str, hosted: HostedSpace | None = None) -> None:
        """Tells all followers of a space that there is something to read; O(followers)."""
        for each in self._known.values():
            if space in each.places:
                each.due[each.places[space]] = 0 if hosted is None else hosted.commits.durable
                each.tell()

    def tell_moved(self) -> None:
        """Tells all followers that another daemon may lead a space by now."""
        for each in self._known.values():
            each.peer.say(p.Reached(0, ()))
            each.peer.sending.flush()

    def _led(self) -> dict[str, int]:
        """Returns the newest epoch on disk of each space that this daemon leads."""
        return {name: each.commits.durable for name, each in self._daemon.spaces.items() if each.leads}

    def _state(self) -> None:
        """States in the space ``system`` what is known of the followers."""
        facts = {fact for each in self._known.values() for fact in each.facts}
        self._daemon.system.replace(self._stated, facts)
        self._daemon.home.has_stand_by = any(each.stand_by for each in self._known.values())

    def _places(self, spaces: Value) -> dict[str, int]:
        """Returns the stream of the hints of each space that a follower lists, and of durable topics.

        A text in place of a list is of an earlier version, which looks at the log by itself.
        """
        wanted = {str(name): at for at, name in enumerate(spaces, 1)} if isinstance(spaces, tuple) else {}
        return {BESIDE: 0} | {name: wanted[name] for name in self._daemon.spaces if name in wanted}


FOLLOWERS: Final = PartKey[Followers]("followers")
