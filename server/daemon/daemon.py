"""The daemon: its spaces, and the connections that it serves.

Always: after the end of a connection, what its retractions gave other connections to send is flushed; a
connection without a hello counts as unauthenticated.
"""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.transport.sockets import Link
from dataspace.version import __version__, compiled_parts
from dataspace.wire.features import MAIN
from dataspace.wire.forms import Form
from dataspace.wire.packets import Bye
from dataspace.wire.session import Role, Session
from index.values.values import Map, Value
from relay.delivery.followers import Delivery
from relay.delivery.memory import MemoryBudget
from relay.journal.journal import Journal
from relay.journal.writer import TopicWriter
from relay.log.log import Log
from relay.log.writer import GroupCommit
from relay.store.durations import Durations
from server.claims import leases, owners, withdrawal
from server.config.model import Config, Limits, SpaceConfig
from server.config.principals import Principal
from server.config.rights import Permit
from server.config.tokens import Keys
from server.daemon.draining import Draining, drain_verb
from server.daemon.memory import Memory, resident_bytes, waiting_limit
from server.hosting.actors import HostedActors
from server.hosting.loading import made_flow
from server.hosting.verbs import hosting_verbs
from server.lane import Lane
from server.monitoring.counts import Counts
from server.monitoring.loop import BOUNDS
from server.monitoring.pages import AdminPages
from server.monitoring.rates import Rates
from server.monitoring.readiness import Readiness
from server.monitoring.sessions import session_verbs
from server.monitoring.watch import Watch
from server.owners.accounts import CONNECTION_BYTES, Account, Accounts
from server.publication import verbs as publication
from server.sessions.connection import Connection, Verb
from server.sessions.flushing import Flushing
from server.sessions.house import Guest, Stranger
from server.sessions.listeners import Listener
from server.spaces.space import HostedSpace, now
from server.spaces.statuses import no_space
from server.streams import attribution, verbs as past
from server.system import SystemSpace
from server.topics.catalogue import Topics
from server.topics.durable import DurableTopics
from server.topics.verbs import TopicVerbs
from server.tracing.tracing import Tracing

_numbers = itertools.count(1)

QUESTIONS: Final = frozenset(["status", "index", "actors", "rules"])
"""Verbs whose answers are made at once: a thousand of them would delay all others, so they take turns."""

INSPECTED: Final = frozenset(
    ["addresses", "process", "spaces", "data", "readers", "costliest_rule", "principals"]
)
"""The parts of the status that are shown only to bearers that may inspect the daemon."""

REPLAY_BYTES: Final = 256 << 10
"""About what a replay holds while it reads."""

PATIENCE: Final = 0.25
"""Seconds after which a connection without a hello makes room for another one, where there is none."""


class Daemon:
    """What all connections share."""

    peers: trio.Nursery
    """Runs connections, and all other tasks that end before the logs are closed."""

    def __init__(
        self, config: Config, logs: Sequence[tuple[SpaceConfig, Log]], tracing: Tracing | None = None
    ) -> None:
        self.config = config
        self.tracing: Final = tracing
        self.data = str(config.data)
        self.limits: Limits = config.limits
        self.started = now()
        self.listeners: list[Listener] = []
        self.connections: dict[int, Connection] = {}
        self.guests: dict[int, Stranger] = {}
        """The connections without a session, such as HTTP connections, by number."""
        self.strangers: dict[int, Stranger] = {}
        """The connections without a hello by number, in the order in which they came."""
        self.memory = Memory(config.limits.memory, resident_bytes(), self._accounted)
        self.accounts = Accounts(config.quotas, self.memory.admit, config.quotas_of_tokens())
        self.streams = 0
        """Streams that are open, of all connections."""
        self.flushing = Flushing() if tracing is None else tracing.flushing
        self.touch = self.flushing.touch
        self.flush = self.flushing.flush
        room = MemoryBudget(waiting_limit(config.limits.waiting_bytes, self.memory.limit))
        self.delivery = Delivery(room)
        self.draining = Draining()
        self.lane = Lane()
        """Where replays and other background work have their turns."""
        self.replays = trio.Semaphore(config.limits.all_replays)
        """Replays that may hold a part of the log in memory at once; the others wait for their turn."""
        self.keys = Keys(config.keys)
        self.system = SystemSpace(now)
        self.topics = Topics(now, self.system, self.memory.admit, retained=config.limits.retained_bytes)
        self.durable_topics = DurableTopics(
            self.topics, Journal(config.data, accept_damage=config.accept_damage), self.flush
        )
        self.durable_topics.recover(accept_damage=config.accept_damage)
        self.counts = Counts()
        self.watch = (Watch if tracing is None else tracing.watch)(self.counts, config.logging.slow)
        self.readiness = Readiness()
        self.rates = Rates()
        self.loop_lag = Durations(BOUNDS)
        """How late the event loop was."""
        self.pages = AdminPages(self)
        """The answers to operators over HTTP; the listener for them is in ``monitoring/admin.py``."""
        self.spaces: dict[str, HostedSpace] = {}
        names = [each.name for each, _ in logs]
        for each, log in logs:
            self.spaces[each.name] = HostedSpace(
                each,
                log,
                limits=config.limits,
                flows={flow.title: made_flow(flow) for flow in config.flows if flow.space == each.name},
                flush=self.flush,
                names=names,
                lane=self.lane,
                system=self.system,
                admit=self.memory.admit,
                writer=GroupCommit if tracing is None else tracing.writer,
            )
        self.main = self.spaces[MAIN]
        self.hosting = HostedActors(config, self.spaces, partial(self.serve, trusted=True), self.flush)
        verbs: Mapping[str, Verb] = {
            "status": _status_of(self),
            "drain": drain_verb(self),
            **past.VERBS,
            **attribution.VERBS,
            **publication.VERBS,
            **leases.VERBS,
            **owners.VERBS,
            **withdrawal.VERBS,
            **hosting_verbs(self.hosting),
            **session_verbs(self),
            **TopicVerbs(self.topics, self.durable_topics).table(),
        }
        self.verbs = {
            name: self.watch.timed(name, _in_turn(verb) if name in QUESTIONS else verb)
            for name, verb in verbs.items()
        }
        if tracing is not None:
            tracing.begin(self.spaces.values(), self.verbs)

    @property
    def addresses(self) -> list[str]:
        """The addresses that the daemon listens on."""
        return [listener.name for listener in self.listeners]

    @property
    def traces(self) -> bool:
        """True if spans are made of turns."""
        return self.tracing is not None

    @property
    def spans(self) -> tuple[int, int]:
        """The counts of spans that the collector has taken, and of dropped spans."""
        return (0, 0) if self.tracing is None else (self.tracing.sent, self.tracing.dropped)

    @property
    def topic_writer(self) -> TopicWriter:
        """What writes durable topics to the disk."""
        return self.durable_topics.writer

    @property
    def writers(self) -> list[tuple[str, GroupCommit | TopicWriter]]:
        """All writers to the disk, by name."""
        logs: list[tuple[str, GroupCommit | TopicWriter]] = [
            (f"the log of space {name}", home.commits) for name, home in self.spaces.items()
        ]
        return [*logs, (TopicWriter.NAME, self.topic_writer)]

    @property
    def directories(self) -> dict[str, Path]:
        """The directory of each space."""
        return {name: home.settings.data for name, home in self.spaces.items()}

    def find_space(self, name: str) -> HostedSpace:
        """Returns the space of that name; raises ``Refused`` if there is none."""
        found = self.spaces.get(name)
        if found is None:
            raise no_space(name, self.spaces)
        return found

    # -- connections ----------------------------------------------------------------------------------

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for a connection of a peer, and counts that; empty if there is."""
        reason = self._refusal(peer)
        self.counts.turned_away += bool(reason)
        return reason

    def _refusal(self, peer: str) -> str:
        """Returns why there is no room for a connection of a peer; empty if there is.

        Among the connections without a hello, a connection whose time is over makes room: of the same
        principal if that has too many, else of the principal with most.
        """
        limits, account = self.limits, self.accounts.of(Principal.of_peer(peer))
        if (count := len(self.connections) + len(self.guests)) >= limits.connections:
            return f"{count} connections, the limit is limits.connections={limits.connections}"
        try:
            account.check("strangers")
        except Refused as refusal:
            return "" if self._make_room(account) else refusal.text
        if len(self.strangers) < limits.strangers:
            return ""
        most = max(
            [each.account for each in self.strangers.values()], key=lambda each: each.used("strangers")
        )
        if self._make_room(most):
            return ""
        said = f"{len(self.strangers)} connections without a hello"
        return f"{said}, the limit is limits.strangers={limits.strangers}"

    def _make_room(self, account: Account) -> bool:
        """Ends the oldest connection of an account without a hello, if that has had its time."""
        for each in self.strangers.values():
            if each.account is account:
                if trio.current_time() - each.since < PATIENCE:
                    return False
                self.greeted(each)
                each.dismiss("limit", "others wait for the place of this connection, which has sent no hello")
                return True
        return False

    def serve(self, link: Link, *, trusted: bool = False, form: Form | None = None) -> Connection:
        """Serves a peer in a task of its own; a peer that the daemon started itself needs no token.

        It writes and reads packets as frames, or as its ``form`` says.
        """
        connection = Connection(self, link, self.new_number(), self.verbs, trusted=trusted, form=form)
        if self.tracing is not None:
            connection.acting = self.tracing.peer(connection)
        self.connections[connection.number] = connection
        self.counts.connections += 1
        self.admit(connection)
        self.peers.start_soon(connection.run)
        return connection

    def turned_away(self, refusal: str) -> bytes:
        """Returns what is sent to a connection for which there is no room."""
        return Session(Role.SERVER).send(Bye("limit", refusal))

    def new_number(self) -> int:
        """Returns the number of the next connection."""
        return next(_numbers)

    def admit(self, guest: Stranger) -> None:
        """Counts a connection as one without a hello, the latest of them."""
        self.strangers[guest.number] = guest
        # Checked by ``refusal`` before, and a connection that the daemon trusts has no bound.
        guest.account.give("strangers", -1)

    def enter(self, guest: Stranger) -> None:
        """Counts a connection that is no session."""
        self.guests[guest.number] = guest

    def greeted(self, connection: Guest) -> None:
        """Notes that a connection has sent hello, or has lost its place as a stranger."""
        if self.strangers.pop(connection.number, None) is not None:
            connection.account.give("strangers")

    def left(self, connection: Guest) -> None:
        """Notes that a connection has ended."""
        ended = self.connections.pop(connection.number, None)
        if ended is not None:
            self.counts.left(ended)
        self.guests.pop(connection.number, None)
        self.greeted(connection)

    def _accounted(self) -> int:
        """Returns about how many bytes are in use beside the code; O(spaces, topics and connections)."""
        replays = REPLAY_BYTES * (self.limits.all_replays - self.replays.value)
        room, connections = self.delivery.room, self.connections.values()
        waiting = room.used + room.states + sum([each.sending.unheard for each in connections])
        spaces = sum([each.accounted_bytes for each in self.spaces.values()])
        return (
            spaces
            + self.topics.bytes
            + waiting
            + replays
            + CONNECTION_BYTES * (len(self.connections) + len(self.guests))
        )

    # -- status ---------------------------------------------------------------------------------------

    def status(self, home: HostedSpace, permit: Permit) -> Map:
        """Returns what ``dataspace status`` shows: counts, bytes and times in microseconds.

        Paths, names and numbers of the system are ``INSPECTED``, which this permit may have or not.
        """

        self.memory.refresh()
        resident = resident_bytes()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux updates it with a delay
        status = {
            **home.status(),
            "rights": permit.whole,
            "version": __version__,
            "compiled": tuple(compiled_parts()),
            "spaces": Map({name: len(each.space.index) for name, each in self.spaces.items()}),
            "addresses": self.addresses,
            "process": os.getpid(),
            "started": self.started,
            "now": now(),
            "sessions": len(self.connections),
            "principals": Map(
                {each.name: Map(used) for each in self.accounts if (used := each.everything())}
            ),
            "topics": len(self.topics),
            "streams": self.streams,
            "waiting_bytes": self.delivery.room.used,
            "replays_reading": self.config.limits.all_replays - self.replays.value,
            "slow_conflated_epochs": self.delivery.counts.conflated,
            "slow_dropped_changes": self.delivery.counts.dropped,
            "slow_failed_streams": self.delivery.counts.failed,
            "slow_fallen_behind": self.delivery.counts.fallen_behind,
            "memory_bytes": resident,
            "memory_accounted_bytes": self.memory.used,
            "memory_limit": self.memory.limit,
            "memory_peak_bytes": max(peak, resident),
        }
        inspects = permit.inspects
        return Map(status if inspects else {name: status[name] for name in status if name not in INSPECTED})


def _in_turn(verb: Verb) -> Verb:
    """Returns a verb whose requests take turns in the lane."""

    async def asked(connection: Connection, arguments: Map) -> Value:
        async with connection.work():
            return await verb(connection, arguments)

    return asked


def _status_of(daemon: Daemon) -> Verb:
    async def status(connection: Connection, _arguments: Map) -> Value:
        await trio.lowlevel.checkpoint()
        return daemon.status(connection.home, connection.permit)

    return status
