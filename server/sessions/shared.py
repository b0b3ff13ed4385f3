"""What all peers share: the spaces, the limits, the memory, and the places of silent connections.

Apart from the daemon, which extends it, so that peers and features can name its class: they stand below the
doors, and the daemon above them.

Always: a connection is counted from its admission until ``left``, and as a stranger until ``greeted``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.errors import Refused
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
from server.sessions.memory import Memory, resident_bytes, waiting_limit
from server.sessions.watch import Watch
from server.spaces.leader import no_space
from server.spaces.measures import memory_parts
from server.spaces.sessions import NUMBERS
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

PATIENCE: Final = 0.25
"""Seconds after which a connection without a hello makes room for another one, where there is none."""


_numbers = itertools.count(1)


class Guest(Protocol):
    """A connection as it is counted: a peer, or a connection of HTTP."""

    @property
    def number(self) -> int:
        """The number of the connection."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def since(self) -> float:
        """The time since which the connection has said nothing, on trio's clock."""

    def dismiss(self, code: str, text: str, url: str = "") -> None:
        """Ends the connection; ``url`` is where to connect instead."""


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
        self.guests: dict[int, Guest] = {}
        """All connections by number."""
        self.strangers: dict[int, Guest] = {}
        """The connections without a hello by number, in the order in which they came."""
        self.streams = 0
        """Streams that are open, of all connections."""
        self.memory = Memory(config.limits.memory, resident_bytes(), self.memory_parts)
        self.accounts = Accounts(config.quotas, self.memory.admit, config.quotas_of_tokens())
        self.recorder = recorder
        """Where turns are traced; None where they are not."""
        self.flushing = flushing = Flushing(None if recorder is None else recorder.flushed)
        self.leads_each = False
        """True if each space is led by itself, so that topics may be led by another daemon than a space."""
        self.surety = Surety(always, 0.0)
        """Holds what clients are sent while another daemon may lead: see ``Home``."""
        self.follower: Callable[[str], Awaitable[str | None]] = no_follower
        """Returns the name of the daemon that follows this one and shows a proof: see ``Home``."""
        self.first_number = 0
        """The number before the first connection's."""
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

    def new_number(self) -> int:
        """Returns the number of the next connection."""
        return self.first_number + next(_numbers)

    def begin_term(self, term: int) -> None:
        """Numbers connections beyond all earlier terms, so that no two sessions have one number."""
        self.first_number = max(self.first_number, term * NUMBERS)

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

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for a connection of a peer, and counts that; empty if there is."""
        reason = self._refusal(peer)
        self.counts.turned_away += bool(reason)
        return reason

    def _refusal(self, peer: str) -> str:
        """Returns why there is no room for a connection of a peer; empty if there is.

        Among the connections without a hello, a connection whose time is over makes room: of the same
        principal if it has too many, else of the principal with most.
        """
        limits, account = self.limits, self.accounts.of(Principal.of_peer(peer))
        if (count := len(self.guests)) >= limits.connections:
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

    def enter(self, guest: Guest) -> None:
        """Counts a connection until ``left``."""
        self.guests[guest.number] = guest

    def admit(self, guest: Guest) -> None:
        """Counts a connection as one without a hello, the latest of them."""
        self.strangers[guest.number] = guest
        # Checked by ``refusal`` before, and a connection that the daemon trusts has no bound.
        guest.account.give("strangers", -1)

    def greeted(self, guest: Guest) -> None:
        """Notes that a connection has sent hello, or has lost its place as a stranger."""
        if self.strangers.pop(guest.number, None) is not None:
            guest.account.give("strangers")

    def left(self, guest: Guest) -> None:
        """Notes that a connection has ended."""
        self.guests.pop(guest.number, None)
        self.greeted(guest)

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
