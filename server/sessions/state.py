"""The state of a daemon that its peers and features share: spaces, limits, memory, connections, its role.

What a feature keeps is under a key of its own in ``parts``.

Always: the spaces are there before the first peer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from dataspace.transport.reactor import Reactor
from dataspace.wire.features import MAIN
from relay.delivery.memory import MemoryBudget
from relay.delivery.queue_members import Delivery
from server.config.model import own_name
from server.config.principals import MEMBER, Principal
from server.config.rights import Keys, Permit, permit_of_follower
from server.lane import Lane
from server.owners.accounts import CONNECTION_BYTES, Account, Accounts
from server.owners.bearers import Bearer
from server.parts import DiskPart, Parts
from server.sessions.counts import Counts
from server.sessions.flushing import Flushing, Surety
from server.sessions.guests import Guests
from server.sessions.memory import Memory, resident_bytes, waiting_limit
from server.sessions.watch import Watch
from server.spaces.measures import memory_parts
from server.spaces.space import HostedSpace, no_space, now
from server.spaces.traces import Recorder
from server.system import SystemSpace

if TYPE_CHECKING:
    from index.values.values import Value
    from relay.space_registers import KnownSession
    from relay.store.group_writer import GroupWriter
    from server.config.model import Config, Limits
    from server.home import Home, LeaderContact

REPLAY_BYTES: Final = 256 << 10
"""About what a replay holds while it reads."""


STARTING: Final = "the daemon is starting"
STOPPING: Final = "the daemon is stopping"


class Readiness:
    """Why no clients should be sent to the daemon now; nothing while they should.

    Always: a daemon that has begun to end is not ready again.

    >>> readiness = Readiness()
    >>> readiness.begin(); readiness.reason
    ''
    >>> readiness.end("draining"); readiness.begin(); readiness.reason
    'draining'
    """

    def __init__(self) -> None:
        self.reason = STARTING
        self._over = False

    def begin(self) -> None:
        """Notes that clients are admitted; does nothing after ``end``."""
        if not self._over:
            self.reason = ""

    def end(self, reason: str = STOPPING) -> None:
        """Notes that no more clients should come, for good; the first reason stays."""
        if not self._over:
            self._over, self.reason = True, reason


@dataclass(slots=True)
class Here:
    """How other daemons name this one, and where clients reach it once it listens."""

    name: str
    url: str = ""
    web: str = ""


class DaemonState:
    """The spaces and connections of a daemon, and what all of them use."""

    peers: trio.Nursery
    """Runs connections, and all other tasks that end before the logs are closed."""

    link: LeaderContact
    """How it keeps in touch with its leader, while it follows; the feature for clusters sets it."""

    has_ended = False
    """True once no task of a peer can begin any more."""

    def __init__(self, config: Config, home: Home, counts: Counts, recorder: Recorder | None = None) -> None:
        """The daemon adds the spaces before the first peer comes."""
        self.config = config
        self.home: Final = home
        self.here = Here(config.cluster.name or own_name())
        self.readiness = Readiness()
        self.parts: Final = Parts()
        """What features keep."""
        self.disk_part = DiskPart()
        """What is on disk beside the logs of spaces."""
        self.limits: Limits = config.limits
        self.keys = Keys(config.keys)
        """The tokens that are valid now."""
        self.spaces: dict[str, HostedSpace] = {}
        self.memory = Memory(config.limits.memory, resident_bytes(), self.memory_parts)
        self.accounts = Accounts(config.quotas, self.memory.admit, config.quotas_of_tokens())
        self.guests = Guests(self.accounts, counts, lambda: self.limits)
        """The connections."""
        self.recorder = recorder
        """Where turns are traced; None where they are not."""
        self.flushing: Final = Flushing(None if recorder is None else recorder.flushed)
        """Writes to the sockets what connections have to send."""
        self.surety = Surety(home.is_sure, config.cluster.lease)
        """Holds what clients are sent while another daemon may lead: see ``Home``."""
        self.reactor: Reactor | None = None
        """Where sockets are read without tasks, once the daemon runs; None where they are not."""
        budget = MemoryBudget(waiting_limit(config.limits.waiting_bytes, self.memory.limit))
        self.delivery = Delivery(budget)
        """The memory in which changes wait for observers, and the costs of slow observers."""
        self.lane = Lane()
        """Where replays and other background work have their turns."""
        self.replays = trio.Semaphore(config.limits.all_replays)
        """Replays that may hold a part of the log in memory at once; the others wait for their turn."""
        self.system = SystemSpace(now, self.flushing.flush)
        """The space in which the daemon describes itself."""
        self.counts = counts
        self.watch = Watch(counts, config.logging.slow)
        """Where refusals, goodbyes and slow turns are reported."""

    @property
    def main(self) -> HostedSpace:
        """The space of a peer before its hello; whoever leads it leads the topics."""
        return self.spaces[MAIN]

    @property
    def place(self) -> str:
        """The path of the data, which no client is shown."""
        return str(self.config.data)

    def find_space(self, name: str) -> HostedSpace:
        """Returns the space of that name; raises ``Refused`` if there is none."""
        found = self.spaces.get(name)
        if found is None:
            raise no_space(name, self.spaces)
        return found

    # -- roles ----------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True if this daemon writes its log, rather than following the log of another one."""
        return self.main.leads

    def follows(self, space: str) -> bool:
        """True if another daemon takes the turns of a space of this name."""
        hosted = self.spaces.get(space)
        return hosted is not None and not hosted.leads

    def check_leads(self, space: str) -> None:
        """Raises ``Refused``, with the address of the leader, if turns of a space are made elsewhere."""
        self.spaces[space].check_leads()

    def leader_web(self, space: str) -> str:
        """Where the leader of a space serves HTTP; empty if it does not, or none is known."""
        return self.spaces.get(space, self.main).leader.web

    def writers(self) -> list[tuple[str, GroupWriter[Any]]]:
        """Returns all writers to the disk, by name; none in a daemon that follows."""
        written: list[tuple[str, GroupWriter[Any]]] = [
            (f"the log of space {name}", hosted.leading.commits)
            for name, hosted in self.spaces.items()
            if hosted.leads
        ]
        if (beside := self.disk_part.writer) is not None:
            written.append((beside.NAME, beside))
        return written

    # -- connections ----------------------------------------------------------------------------------

    async def permit_of_follower(self, token: Value) -> Permit | None:
        """Returns the permit of a daemon that follows this one, by the proof in place of its token.

        Returns None for all others: at once where it is no proof, so that their hello waits for nothing.
        """
        if not isinstance(token, str) or not token.startswith(MEMBER):
            return None
        name = await self.home.follower(token)
        return None if name is None else permit_of_follower(name)

    def returning(self, known: KnownSession) -> tuple[Bearer, Account] | None:
        """Returns what a session of an earlier daemon belongs to; None if its client would not be admitted
        now."""
        principal = Principal.read(known.principal)
        permit = self.keys.returning(principal)
        return None if permit is None else (Bearer(permit, principal), self.accounts.of(principal))

    def memory_parts(self) -> Counter[str]:
        """Returns about how many bytes each part has in use, beside the code.

        O(spaces, connections and topics).
        """
        parts = Counter(
            waiting=self.delivery.budget.used + self.delivery.budget.states,
            replays=REPLAY_BYTES * (self.limits.all_replays - self.replays.value),
            connections=CONNECTION_BYTES * len(self.guests),
        )
        parts.update(self.parts.sizes())
        for each in self.spaces.values():
            parts.update(memory_parts(each))
        return parts
