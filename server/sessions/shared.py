"""What all peers share: the spaces, the limits, the memory, and the places of silent connections.

Apart from the daemon, which extends it, so that peers and features can name its class: they stand below the
doors, and the daemon above them.

Always: the spaces are there before the first peer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import trio

from dataspace.transport.reactor import Reactor
from relay.delivery.followers import Delivery
from relay.delivery.memory import MemoryBudget
from server.config.principals import MEMBER, Principal
from server.config.rights import Keys, Permit, permit_of_follower
from server.lane import Lane
from server.owners.accounts import CONNECTION_BYTES, Account, Accounts
from server.owners.bearers import Bearer
from server.sessions.counts import Counts
from server.sessions.flushing import Flushing, Surety
from server.sessions.guests import Guests
from server.sessions.memory import Memory, resident_bytes, waiting_limit
from server.sessions.watch import Watch
from server.spaces.leader import no_space
from server.spaces.measures import memory_parts
from server.spaces.space import HostedSpace, now
from server.spaces.traces import Recorder
from server.system import SystemSpace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from index.values.values import Value
    from relay.log.notes import KnownSession
    from server.config.model import Config, Limits

REPLAY_BYTES: Final = 256 << 10
"""About what a replay holds while it reads."""


def always() -> bool:
    """Returns True."""
    return True


async def no_follower(proof: str) -> str | None:
    """Returns None: no daemon follows this one."""
    await trio.lowlevel.checkpoint()
    return None


class Shared:
    """The parts of the daemon that each peer uses."""

    main: HostedSpace
    """The space of a peer before its hello."""

    peers: trio.Nursery
    """Runs connections, and all other tasks that end before the logs are closed."""

    has_ended = False
    """True once no task of a peer can begin any more."""

    def __init__(self, config: Config, counts: Counts, recorder: Recorder | None = None) -> None:
        """The daemon adds the spaces before the first peer comes."""
        self.config = config
        self.data = str(config.data)
        """The path of the daemon's data, which no client is shown."""
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
        self.flushing = flushing = Flushing(None if recorder is None else recorder.flushed)
        self.leads_each = False
        """True if each space is led by itself, so that topics may be led by another daemon than a space."""
        self.surety = Surety(always, 0.0)
        """Holds what clients are sent while another daemon may lead: see ``Home``."""
        self.follower: Callable[[str], Awaitable[str | None]] = no_follower
        """Returns the name of the daemon that follows this one and shows a proof: see ``Home``."""
        self.reactor: Reactor | None = None
        """Where sockets are read without tasks, once the daemon runs; None where they are not."""
        self.touch = flushing.touch
        """Includes a queue in the next flush."""
        self.flush = flushing.flush
        """Writes to the sockets what connections have to send."""
        room = MemoryBudget(waiting_limit(config.limits.waiting_bytes, self.memory.limit))
        self.delivery = Delivery(room)
        """The memory in which changes wait for observers, and the costs of slow observers."""
        self.lane = Lane()
        """Where replays and other background work have their turns."""
        self.replays = trio.Semaphore(config.limits.all_replays)
        """Replays that may hold a part of the log in memory at once; the others wait for their turn."""
        self.system = SystemSpace(now)
        """The space in which the daemon describes itself."""
        self.counts = counts
        self.watch = Watch(counts, config.logging.slow)
        """Where refusals, goodbyes and slow turns are reported."""

    def find_space(self, name: str) -> HostedSpace:
        """Returns the space of that name; raises ``Refused`` if there is none."""
        found = self.spaces.get(name)
        if found is None:
            raise no_space(name, self.spaces)
        return found

    # -- connections ----------------------------------------------------------------------------------

    async def permit_of_follower(self, token: Value) -> Permit | None:
        """Returns the permit of a daemon that follows this one, by the proof in place of its token.

        Returns None for all others: at once where it is no proof, so that their hello waits for nothing.
        """
        if not isinstance(token, str) or not token.startswith(MEMBER):
            return None
        name = await self.follower(token)
        return None if name is None else permit_of_follower(name)

    def returning(self, known: KnownSession) -> tuple[Bearer, Account] | None:
        """Returns what a session of an earlier daemon belongs to; None if its client would not be admitted
        now."""
        principal = Principal.read(known.principal)
        permit = self.keys.returning(principal)
        return None if permit is None else (Bearer(permit, principal), self.accounts.of(principal))

    def memory_parts(self) -> Counter[str]:
        """Returns about how many bytes each part has in use, beside the code; O(spaces)."""
        parts = Counter(
            waiting=self.delivery.room.used + self.delivery.room.states,
            replays=REPLAY_BYTES * (self.limits.all_replays - self.replays.value),
            connections=CONNECTION_BYTES * len(self.guests),
        )
        for each in self.spaces.values():
            parts.update(memory_parts(each))
        return parts
