"""How a daemon that follows knows its leaders: by their rows in the store, and from themselves.

The store says who leads.  To each leader there is a connection, as of a client, on which this daemon reports
(``reports``), and which brings a hint for each group of epochs on disk.  While it stands, this daemon is
content with what its own renewals say of the store; where it cannot be made, it looks at the store often.
One look is for all spaces and topics: a log is read only where more was written.

Always: the store decides which daemon leads; when a connection is lost, the store is asked at once.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from dataspace.client.session.uplink import open_link
from dataspace.transport.addresses import parse_url
from dataspace.transport.credentials import Credentials, Tls
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from relay.store.errors import LogFailed
from server.cluster.database.looks import CALM_SECONDS, LOOK_SECONDS
from server.cluster.database.store import TOPICS, StoreHome
from server.cluster.reports import LeaderConnection, lag_facts, lags

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from dataspace.transport.sockets import Link
    from index.values.values import Map, Record
    from relay.following.polling import Polled
    from relay.store.postgres.members import Standing
    from server.config.model import ServerTls
    from server.sessions.state import DaemonState

logger = logging.getLogger("dataspace")

POLL_SECONDS: Final = 0.05
"""How often a follower looks whether there is something new, while no hints come."""

SELDOM_SECONDS: Final = 3600.0
"""How often a log is read that nothing is new of."""

CONNECT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.25
"""Seconds that an attempt to connect may take, and until the next one."""

HEARTBEAT_SECONDS: Final = 5.0
"""Half of the seconds without a report after which a leader gives a follower up."""


class KnownLeader(NamedTuple):
    """A daemon that leads some spaces which are followed here."""

    nonce: UUID
    name: str
    url: str
    spaces: tuple[str, ...]


class StoreContact:
    """What a follower learns of its leaders from the store, and the connections to them."""

    def __init__(self, daemon: DaemonState, home: StoreHome) -> None:
        self._daemon = daemon
        self._home = home
        self.is_up = False
        """True while each space that is followed has a leader."""
        self._terms: dict[str, int] = {}
        self._written: Mapping[str, str | None] = {}
        """What the latest look has seen of each log, and of topics."""
        self._connections: dict[KnownLeader, StoreLeader] = {}
        self._running = trio.CancelScope()

    def end(self) -> None:
        self._running.cancel()

    async def run(self) -> None:
        self._running, self._connections = trio.CancelScope(), {}
        with self._running:
            async with trio.open_nursery() as nursery:
                while True:
                    has_hints = self.is_up and all(each.is_up for each in self._connections.values())
                    await self._look(nursery, CALM_SECONDS if has_hints else POLL_SECONDS)
                    await self._home.looks.pause(LOOK_SECONDS if has_hints else POLL_SECONDS)

    async def _look(self, nursery: trio.Nursery, within: float) -> None:
        """Looks who leads, and connects to these daemons; reads the logs to which something was added."""
        try:
            view = await self._home.view(within)
            standings = view.standings
            for space in self._daemon.spaces:
                await self._expect_start(space, standings[space].term)
        except LogFailed as failure:
            logger.warning("%s; the leader is not known", failure)
            self._leaders({})  # hints go on, as the connections to the leaders do
            self.is_up = False
            return
        self._read_on(view.written)
        leaders = self._leaders(standings)
        self.is_up = all(each.leads or each.leader.url for each in self._daemon.spaces.values())
        for each, connection in list(self._connections.items()):
            if each not in leaders:
                connection.end()
                del self._connections[each]
        for each in leaders:
            if each not in self._connections:
                self._connections[each] = connection = StoreLeader(self._daemon, self._home, each)
                nursery.start_soon(connection.run)

    def _read_on(self, written: Mapping[str, str | None]) -> None:
        """Has the logs read of which something else was written than at the look before."""
        followed: dict[str, Polled] = {}
        for name, hosted in self._daemon.spaces.items():
            if not (role := hosted.role).leads:
                followed[name] = role.commits
        if (beside := self._daemon.disk_part.following) is not None:
            followed[TOPICS] = beside
        for name, each in followed.items():
            each.poll = SELDOM_SECONDS
            if written.get(name) != self._written.get(name):
                each.hint()
        self._written = written

    async def _expect_start(self, space: str, term: int) -> None:
        """Moves a followed space on to the number with which its leader has begun."""
        hosted = self._daemon.spaces.get(space)  # none that was given back
        role = None if hosted is None else hosted.role
        if term != self._terms.get(space, 0) and role is not None and not role.leads:
            start = await trio.to_thread.run_sync(role.log.newest_start)
            role.commits.expect(start - 1)
            self._terms[space] = term

    def _leaders(self, standings: Mapping[str, Standing]) -> list[KnownLeader]:
        """Returns the daemons that lead what is followed here, and notes their addresses."""
        found: dict[UUID, KnownLeader] = {}
        for name, hosted in self._daemon.spaces.items():
            if hosted.leads:
                continue
            standing, url = standings.get(name), ""
            nonce = None if standing is None or standing.nonce == self._home.nonce else standing.nonce
            if standing is not None and standing.url == self._daemon.here.url:
                nonce = None  # an earlier life of this daemon, whose lease has not ended
            if standing is not None and standing.lives and standing.url and nonce is not None:
                url = standing.url
                if hosted.leader.url != url:
                    logger.info("space %s: following %s at %s", name, standing.name, url)
                hosted.leader.web = standing.web or ""
                before = found.get(nonce) or KnownLeader(nonce, standing.name or "", url, ())
                found[nonce] = before._replace(spaces=(*before.spaces, name))
            hosted.leader.url = url
            if not url:
                hosted.leader.web = ""
        return list(found.values())


class StoreLeader(LeaderConnection):
    """The connection to a daemon that leads some spaces, as the store says."""

    def __init__(self, daemon: DaemonState, home: StoreHome, leader: KnownLeader) -> None:
        super().__init__(
            daemon,
            leader.spaces,
            pause_seconds=RETRY_SECONDS,
            poll_seconds=SELDOM_SECONDS,
            hinted_seconds=SELDOM_SECONDS,
        )
        self._home = home
        self._leader = leader
        self._identity = f"~follower-{token_hex(8)}"
        self._has_said = False
        """True once it was logged that there are no hints."""
        self._stated: dict[Record, int] = {}
        """Facts about followers of this leader, with their handles."""

    async def _dial(self) -> tuple[Link, p.Hello]:
        token, space = self._home.proof_for(self._leader.nonce), self._leader.spaces[0]
        wanted = Wanted(heartbeat=HEARTBEAT_SECONDS, space=space, token=token, leader=True)
        hello = p.Hello(p.VERSION, self._identity, "follower", wanted.packed())
        credentials = Credentials("", tls_of_follower(self._daemon.config.tls))
        return await open_link(parse_url(self._leader.url), credentials, timeout=CONNECT_SECONDS), hello

    def _note_answer(self, answer: Map, *, is_first: bool) -> None:
        if is_first:
            self._has_said = False
            logger.info("%s at %s brings hints", self._leader.name, self._leader.url)
        self._daemon.system.replace(self._stated, lag_facts(lags(answer.get("lags"))))

    def _note_moved(self) -> None:
        self._home.looks.hasten()

    def _note_lost(self, reason: Exception | str | None, *, was_up: bool) -> None:
        self._daemon.system.replace(self._stated, frozenset())
        if reason is None:
            return
        text = str(reason) or "it does not answer"
        if was_up:
            logger.info("%s brings no hints any more: %s", self._leader.name, text)
            self._home.looks.hasten()
        elif not self._has_said:
            logger.warning(
                "%s at %s brings no hints, so the store is polled: %s",
                *(self._leader.name, self._leader.url, text),
            )
        self._has_said = True  # if it was up, its address is right, so it has ended or is cut off


def tls_of_follower(own: ServerTls | None) -> Tls:
    """Returns what a follower shows and trusts: as a client of this environment, or its own certificate."""
    tls = Tls.default()
    if tls.certificate is None and own is not None:
        return replace(tls, certificate=own.certificate, key=own.key)
    return tls
