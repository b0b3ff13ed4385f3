"""How a daemon that follows knows its leaders: by their rows in the store, and from themselves.

The store says who leads.  To each leader there is a connection, as of a client, on which this daemon reports
(``reports``), and which brings a hint for each group of epochs on disk.  Where it cannot be made, this daemon
looks at the store more often.

Always: the store decides which daemon leads; when a connection is lost, the store is asked at once.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from dataspace.client.session.uplink import open_link, send_whole
from dataspace.errors import DataspaceError
from dataspace.transport.addresses import parse_url
from dataspace.transport.credentials import Credentials, Tls
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, Wanted
from relay.store.errors import LogFailed
from server.cluster.database.store import StoreHome
from server.cluster.reports import HINTED_SECONDS, Reports, lag_facts, lags, numbers, report_of, take_epoch
from server.topics.part import TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from index.values.values import Map, Record
    from relay.following.polling import Polled
    from relay.store.postgres.members import Standing
    from server.config.model import ServerTls
    from server.sessions.state import DaemonState

logger = logging.getLogger("dataspace")

LOOK_SECONDS: Final = 0.25
"""How often a follower looks who leads."""

POLL_SECONDS: Final = 0.05
"""How often it looks whether there is something new, while no hints come."""

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

    def __init__(self, daemon: DaemonState, followings: Sequence[Polled]) -> None:
        home = daemon.home
        assert isinstance(home, StoreHome)  # by ``contact_of``
        self._daemon = daemon
        self._followings = followings
        self._home = home
        self.is_up = False
        """True while each space that is followed has a leader."""
        self._terms: dict[str, int] = {}
        self._connections: dict[KnownLeader, LeaderConnection] = {}
        self._running = trio.CancelScope()

    def end(self) -> None:
        self._running.cancel()

    async def run(self) -> None:
        for each in self._followings:
            each.poll = POLL_SECONDS
        self._running, self._connections = trio.CancelScope(), {}
        with self._running:
            async with trio.open_nursery() as nursery:
                while True:
                    await self._look(nursery)
                    await self._home.pause(LOOK_SECONDS)

    async def _look(self, nursery: trio.Nursery) -> None:
        """Asks the store who leads, and connects to these daemons."""
        try:
            standings = await trio.to_thread.run_sync(self._home.look, abandon_on_cancel=True)
            for space, standing in standings.items():
                await self._expect_start(space, standing.term)
        except LogFailed as failure:
            logger.warning("%s; the leader is not known", failure)
            self._leaders({})  # hints go on, as the connections to the leaders do
            self.is_up = False
            return
        leaders = self._leaders(standings)
        self.is_up = all(each.leads or each.leader.url for each in self._daemon.spaces.values())
        for each, connection in list(self._connections.items()):
            if each not in leaders:
                connection.end()
                del self._connections[each]
        for each in leaders:
            if each not in self._connections:
                self._connections[each] = connection = LeaderConnection(self._daemon, self._home, each)
                nursery.start_soon(connection.run)

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


class LeaderConnection:
    """The connection to one leader, made again for as long as the store says that it leads."""

    def __init__(self, daemon: DaemonState, home: StoreHome, leader: KnownLeader) -> None:
        self._daemon = daemon
        self._home = home
        self._leader = leader
        self._running = trio.CancelScope()
        self._identity = f"~follower-{token_hex(8)}"
        self._is_up = False
        self._has_said = False
        """True once it was logged that there are no hints."""
        self._stated: dict[Record, int] = {}
        """Facts about followers of this leader, with their handles."""

    def end(self) -> None:
        """Ends ``run``."""
        self._running.cancel()

    async def run(self) -> None:
        """Keeps up the connection; when it is lost, this daemon looks at once who leads."""
        self._poll(POLL_SECONDS)
        with self._running:
            while True:
                try:
                    reason = await self._talk()
                except (OSError, trio.TooSlowError, DataspaceError) as error:
                    reason = str(error) or "it does not answer"
                was_up, self._is_up = self._is_up, False
                if was_up:
                    self._has_said = True  # its address is right, so it has ended or is cut off
                    logger.info("%s brings no hints any more: %s", self._leader.name, reason)
                    self._poll(POLL_SECONDS)
                    self._home.hasten()
                elif not self._has_said:
                    self._has_said = True
                    logger.warning(
                        "%s at %s brings no hints, so the store is polled: %s",
                        *(self._leader.name, self._leader.url, reason),
                    )
                await trio.sleep(RETRY_SECONDS)

    async def _talk(self) -> str:
        """Reports until the connection is lost; returns why."""
        tls = tls_of_follower(self._daemon.config.tls)
        address = parse_url(self._leader.url)
        link = await open_link(address, Credentials("", tls), timeout=CONNECT_SECONDS)
        try:
            reports = Reports(partial(send_whole, link), link.receive, self._take_hint)
            await reports.run(self._hello(), self._report, self._take)
            return reports.farewell
        finally:
            link.close()
            self._daemon.system.replace(self._stated, frozenset())

    def _hello(self) -> p.Hello:
        token, space = self._home.proof_for(self._leader.nonce), self._leader.spaces[0]
        wanted = Wanted(heartbeat=HEARTBEAT_SECONDS, space=space, token=token, leader=True)
        return p.Hello(p.VERSION, self._identity, "follower", wanted.packed())

    def _report(self) -> Map:
        return report_of(self._daemon, self._leader.spaces)

    def _take(self, answer: Map) -> None:
        """Takes over what the leader says."""
        if not self._is_up:
            self._is_up, self._has_said = True, False
            logger.info("%s at %s brings hints", self._leader.name, self._leader.url)
            self._poll(HINTED_SECONDS)
        self._daemon.system.replace(self._stated, lag_facts(lags(answer.get("lags"))))
        epochs = numbers(answer.get("epochs"))
        for name in self._leader.spaces:
            take_epoch(self._daemon.spaces[name], epochs.get(name, 0))

    def _take_hint(self, hint: p.Reached) -> None:
        for number in hint.streams:
            if number == 0 and (topics := self._daemon.parts[TOPICS].durable.following) is not None:
                topics.hint()
            elif 0 < number <= len(self._leader.spaces):
                take_epoch(self._daemon.spaces[self._leader.spaces[number - 1]], hint.epoch)

    def _poll(self, seconds: float) -> None:
        """Sets how often the logs of this leader are polled, and polls once now."""
        found: list[Polled] = []
        for name in self._leader.spaces:
            role = self._daemon.spaces[name].role
            found += [] if role.leads else [role.commits]
        if (
            MAIN in self._leader.spaces
            and (topics := self._daemon.parts[TOPICS].durable.following) is not None
        ):
            found.append(topics)
        for each in found:
            each.poll = seconds
            each.hint()


def tls_of_follower(own: ServerTls | None) -> Tls:
    """Returns what a follower shows and trusts: as a client of this environment, or its own certificate."""
    tls = Tls.default()
    if tls.certificate is None and own is not None:
        return replace(tls, certificate=own.certificate, key=own.key)
    return tls
