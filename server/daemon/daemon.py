"""The daemon: its spaces, and the connections that it serves.

Always: after the end of a connection, what its retractions gave other connections to send is flushed; a
connection without a hello counts as unauthenticated; nothing of HTTP is loaded without an address for it.
"""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import trio

from dataspace.kernel.handles import Handles
from dataspace.kernel.space import Space
from dataspace.steps import emptying
from dataspace.transport.sockets import Link, SocketLink
from dataspace.version import __version__, compiled_parts
from dataspace.wire.packets import Bye
from dataspace.wire.session import Form, Role, Session
from dataspace.wire.verbs import VERBS, Arguments, Subject
from index.values.values import Map, Value
from relay.following.following import FollowedLog
from relay.following.polling import Polled
from relay.log.log import Log
from server.config.functions import load_functions
from server.config.model import Config, SpaceConfig
from server.config.rights import Permit
from server.connections.connection import Connection, SocketReader
from server.connections.dispatch import SERVED, ClientDoor, ClientPeer, Served, serve_through
from server.connections.listeners import TRUSTED, Doorkeeper, Listener, accept, url_of, web_url_of
from server.daemon.anew import fence_role
from server.daemon.draining import Draining, drain_verb
from server.daemon.features import FEATURES, PACKETS, PARTS, STREAMS, routes
from server.features import DaemonTask
from server.home import Home
from server.hosting.guardian import SERVE
from server.hosting.loading import made_flow
from server.logs import Throttle
from server.monitoring.pages import AdminPages
from server.sessions.counts import Counts
from server.sessions.memory import resident_bytes
from server.sessions.peer import PEERS, Peer
from server.sessions.requests import Unread, Unwritten, Verb, timed
from server.sessions.state import DaemonState
from server.spaces.keeping import DAEMON, keep
from server.spaces.measures import hosted_limits, status_of
from server.spaces.roles import FilledSpace
from server.spaces.rules import HostedFlows
from server.spaces.space import HostedSpace, Surroundings, now
from server.tracing.tracing import TRACING, Tracing, traced_publish

QUESTIONS: Final = frozenset(["status", "index", "actors", "rules"])
"""Verbs whose answers are made at once: a thousand of them would delay all others, so they take turns."""

FOLLOWING: Final = "following"
"""What an audit line calls the work of a follower."""

INSPECTED: Final = frozenset(
    [
        "addresses",
        "leader",
        "process",
        "spaces",
        "data",
        "readers",
        "costliest_rule",
        "principals",
        "memory_parts",
    ]
).union(*[feature.inspected for feature in FEATURES])
"""The parts of the status that are shown only to bearers that may inspect the daemon."""


@contextmanager
def much_made() -> Iterator[None]:
    """Has the collector of cycles look at little at once, while millions of objects are made that stay.

    It would look at all of them together again and again: for a second and more, while no thread goes on.  At
    the end it forgets all objects that there are, as after a start; a cycle among them is not found later.
    """
    before = gc.get_threshold()
    gc.set_threshold(10_000, 1_000_000, 1_000_000)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*before)


class Daemon(DaemonState):
    """Its state, with the spaces filled from their logs, and what serves and ends peers."""

    def __init__(
        self,
        config: Config,
        logs: Sequence[tuple[SpaceConfig, Log | FollowedLog]],
        home: Home,
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__(config, home, Counts(), None if tracing is None else tracing.recorder)
        self.started = now()
        self.listeners: list[Listener] = []
        self.draining = Draining()
        self.throttles: Sequence[Throttle] = ()
        """What keeps lines of its logs from repeating."""
        self.pages = AdminPages(self, FEATURES)
        """The answers to operators over HTTP; the listener for them is in ``monitoring/admin.py``."""
        peers = dict[int, Peer]()
        self.parts.add(PEERS, peers, lambda: sum([each.sending.unheard for each in peers.values()]))
        self.parts.add(SERVE, self.serve_hosted)
        self.parts.add(TRUSTED, self.serve_trusted)
        if tracing is not None:
            self.parts.add(TRACING, tracing)
        self._surroundings = Surroundings(
            self.home,
            [each.name for each, _ in logs],
            load_functions(config.functions),
            self.flushing.flush,
            self.lane,
            self.system,
            self.memory.admit,
            self.memory.admit_reader,
            self.delivery.budget,
            self.returning,
            self.recorder,
            PARTS,
        )
        for each, log in logs:
            self.spaces[each.name] = self._hosted(each, log)
            self.guests.begin_term(self.home.numbering(log))
        for feature in FEATURES:
            feature.make(self)
        for hosted in self.spaces.values():
            self._join(hosted)
        self._leading: dict[str, trio.CancelScope] = {}
        """What runs for the spaces that are led."""
        if self.leads:
            self.disk_part.prepare().lead()
        else:
            self.disk_part.follow()
        verbs: Mapping[str, Verb] = {
            "status": _status_of(self),
            "drain": drain_verb(self, self.draining),
            **{name: verb for feature in FEATURES for name, verb in feature.verbs(self).items()},
        }
        timed_verbs = {
            name: timed(self.watch, name, _in_turn(verb) if name in QUESTIONS else verb)
            for name, verb in verbs.items()
        }
        timed_verbs |= {
            name: _of_leader(verb)
            for name, verb in timed_verbs.items()
            if VERBS[name].subject is Subject.LEADER
        }
        if tracing is not None:
            timed_verbs["publish"] = traced_publish(timed_verbs["publish"], tracing.recorder)
        self.parts.add(SERVED, Served(timed_verbs, STREAMS, PACKETS))

    @property
    def addresses(self) -> list[str]:
        """The addresses that the daemon listens on."""
        return [listener.name for listener in self.listeners]

    def note_addresses(self) -> None:
        """Notes where clients reach the daemon, once it listens."""
        stated = self.config.cluster
        self.here.url = stated.advertise or url_of(self.listeners)
        self.here.web = stated.web or web_url_of(self.listeners)
        self.home.tell(self.here.url, self.here.web, self.config)

    # -- roles ----------------------------------------------------------------------------------------

    @property
    def followed(self) -> list[str]:
        """The spaces that other daemons lead."""
        return [name for name, hosted in self.spaces.items() if not hosted.leads]

    def begin(self) -> None:
        """Leads some spaces, and follows the others, in touch with their leader."""
        self.begin_leading([each for each in self.spaces.values() if each.leads])
        for name in self.followed:
            self._expect_skips(self.spaces[name])
        followings: list[Polled | None] = [self.spaces[name].followed.commits for name in self.followed]
        for each in filter(None, [*followings, self.disk_part.following]):
            self.peers.start_soon(fence_role, FOLLOWING, each.run)
        if self.followed:
            self.peers.start_soon(keep, DAEMON, "the link to its leader", self.link.run)
        self.peers.start_soon(keep, DAEMON, "held packets", self.surety.run)
        for feature in FEATURES:
            self._begin_tasks(feature.tasks(self))

    def _expect_skips(self, hosted: HostedSpace) -> None:
        hosted.leader.send_away = partial(self._send_away, hosted)
        hosted.leader.most_lag = self.config.follow.most_lag

    async def follow(self, hosted: HostedSpace, held: ExitStack) -> None:
        """Replaces a led space by a follower of it; its old peers stay with the old one.

        The log is read in a thread, and closed with ``held``; facts are taken over in slices of the lane.
        """
        log = await trio.to_thread.run_sync(self.home.follow_log, hosted.name, held)
        held.callback(log.close)
        with much_made():
            state = await trio.to_thread.run_sync(log.recover)
            space = Space(hosted.name, limits=hosted.settings.limits)
            async with self.lane.work(self) as work:
                await work.go_on(space.restoring(state.owners, state.epoch, state.time))
                for claims in state.owners.values():
                    await work.go_on(emptying(claims.places if isinstance(claims, Handles) else claims))
        follower = self._hosted(hosted.settings, log, (space, state))
        was_leading_all = not self.followed
        self._join(follower)
        self.spaces[hosted.name] = follower
        self._expect_skips(follower)
        self.peers.start_soon(fence_role, FOLLOWING, follower.followed.commits.run)
        if was_leading_all:
            self.peers.start_soon(keep, DAEMON, "the link to its leader", self.link.run)

    def end_leading(self, hosted: HostedSpace) -> None:
        """Ends what ``begin_leading`` has begun for one space other than ``main``."""
        self._leading.pop(hosted.name).cancel()

    def begin_leading(self, spaces: Sequence[HostedSpace]) -> None:
        """Runs what a leader of these spaces does by itself."""
        for hosted in spaces:
            hosted.leader.here = self.here.url
            scope = self._leading[hosted.name] = trio.CancelScope()
            self.peers.start_soon(_run, hosted, scope)
        for feature in FEATURES:
            self._begin_tasks(feature.leads(self, spaces))

    def _begin_tasks(self, tasks: Iterable[DaemonTask]) -> None:
        for task in tasks:
            self.peers.start_soon(keep, task.space, task.name, task.run)

    def _send_away(self, hosted: HostedSpace) -> None:
        """Ends the connections about a space that has skipped epochs: they come back, here or elsewhere."""
        for peer in list(self.parts[PEERS].values()):
            if peer.hosted is hosted:
                peer.dismiss("behind", "this follower was too far behind its leader", hosted.leader.url)

    def _hosted(
        self, space: SpaceConfig, log: Log | FollowedLog, filled: FilledSpace | None = None
    ) -> HostedSpace:
        config = self.config
        flows = {each.title: made_flow(each) for each in config.flows if each.space == space.name}
        return HostedSpace(space, log, config.limits, self._surroundings, HostedFlows(flows), filled)

    def _join(self, hosted: HostedSpace) -> None:
        """Adds to a space what features do there."""
        for feature in FEATURES:
            feature.joins(self, hosted)

    # -- connections ----------------------------------------------------------------------------------

    def serve_hosted(self, link: Link) -> ClientPeer:
        """Serves the process of an actor that this daemon hosts: its turns may be as large as the turns of
        actors in the daemon."""
        limits = hosted_limits(self.limits)
        door: ClientDoor
        if self.reactor is None or not isinstance(link, SocketLink):
            door = Connection(link, limits)
        else:
            door = SocketReader(link, limits, self.reactor)
        return serve_through(self, door, trusted=True, hosted_limits=limits)

    def serve(self, link: Link, *, trusted: bool = False, form: Form | None = None) -> ClientPeer:
        """Serves the client at the other end of a link, which writes frames, or as its ``form`` says."""
        if self.reactor is None or form is not None or not isinstance(link, SocketLink):
            return serve_through(self, Connection(link, self.limits, form), trusted=trusted)
        return serve_through(self, SocketReader(link, self.limits, self.reactor), trusted=trusted)

    def serve_trusted(self, link: Link) -> object:
        """Serves a process that may open the data directory, and needs no token."""
        return self.serve(link, trusted=True)

    async def accept_on(self, listener: Listener) -> None:
        """Accepts the peers of a listener until the daemon is drained, or a reload closes the listener."""
        with listener.accepting:
            self.draining.accepting.append(listener.accepting)
            if listener.share is not None:
                listener.share.served = self.guests
            await accept(self._doorkeeper(listener), listener)

    def _doorkeeper(self, listener: Listener) -> Doorkeeper:
        """Returns what admits and serves the connections of a listener."""
        if not listener.address.web:
            return self
        from server.web.connection import WebDoor  # a daemon without HTTP does not load it
        from server.web.routes.app import application

        app = application(self, routes(), self.pages.answer, self.config.web.origins)
        return WebDoor(self, self.serve, listener, self.config.web, app, self.peers)

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for a connection of a peer; empty if there is."""
        return self.guests.refusal(peer)

    def turned_away(self, refusal: str) -> bytes:
        """Returns the bytes for a connection that finds no room."""
        return Session(Role.SERVER).send(Bye("limit", refusal))

    # -- status ---------------------------------------------------------------------------------------

    def status(self, hosted: HostedSpace, permit: Permit) -> Map:
        """Returns what ``dataspace status`` shows: counts, bytes and times in microseconds.

        Paths, names and numbers of the system are ``INSPECTED``, which this permit may have or not.
        """

        self.memory.refresh()
        resident = resident_bytes()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux updates it with a delay
        status: dict[str, object] = {
            **status_of(hosted),
            **{name: row for feature in FEATURES for name, row in feature.status(self, hosted).items()},
            "disk_bytes": sum(self.home.sizes(hosted.name).values()),
            "durability": self.home.durability(),
            "rights": permit.whole,
            "version": __version__,
            "compiled": tuple(compiled_parts()),
            "spaces": Map({name: len(each.space.index) for name, each in self.spaces.items()}),
            "addresses": self.addresses,
            "process": os.getpid(),
            "loop": "task" if self.reactor is None else "reader",
            "started": self.started,
            "now": now(),
            "sessions": len(self.parts[PEERS]),
            "principals": Map(
                {each.name: Map(used) for each in self.accounts if (used := each.everything())}
            ),
            "streams": self.guests.streams,
            "waiting_bytes": self.delivery.budget.used,
            "replays_reading": self.config.limits.all_replays - self.replays.value,
            "slow_conflated_epochs": self.delivery.counts.conflated,
            "slow_dropped_changes": self.delivery.counts.dropped,
            "slow_failed_streams": self.delivery.counts.failed,
            "slow_fallen_behind": self.delivery.counts.fallen_behind,
            "memory_bytes": resident,
            "memory_accounted_bytes": self.memory.used,
            "memory_parts": Map(self.memory.parts),
            "memory_limit": self.memory.limit,
            "memory_peak_bytes": max(peak, resident),
        }
        if not permit.inspects:
            status = {name: row for name, row in status.items() if name not in INSPECTED}
        return Map(status)


async def _run(hosted: HostedSpace, scope: trio.CancelScope) -> None:
    with scope:
        await keep(hosted.name, "the tasks of the space", hosted.run)


def _of_leader(verb: Unread) -> Unread:
    """Returns a verb that a daemon refuses while it follows, with the address of the leader."""

    async def asked(peer: Peer, arguments: Map) -> Value | Unwritten:
        peer.hosted.check_leads()
        return await verb(peer, arguments)

    return asked


def _in_turn(verb: Verb) -> Verb:
    """Returns a verb whose requests take turns in the lane."""

    async def asked(peer: Peer, arguments: Arguments) -> Value | Unwritten:
        async with peer.work():
            return await verb(peer, arguments)

    return asked


def _status_of(daemon: Daemon) -> Verb:
    async def status(peer: Peer, _arguments: Arguments) -> Value:
        await trio.lowlevel.checkpoint()
        return daemon.status(peer.hosted, peer.permit)

    return status
