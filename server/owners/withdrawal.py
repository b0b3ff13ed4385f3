"""Withdrawing: the request that retracts what an owner claims and a pattern matches.

A claim is ended by its handle, which only the client that made it knows.  Here the daemon finds the handles,
so that an operator or a later run can take back what an earlier one has asserted.

Always: only claims of an owner that the bearer may speak for, on facts that it may observe; what is retracted
was claimed when the turn began, and where it is more than one turn takes, turns follow one another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from dataspace.errors import Refused
from dataspace.kernel.actions import RETRACT
from dataspace.steps import Steps, batched
from dataspace.wire.arguments import text
from index.patterns.patterns import matcher
from index.values.values import Map, Value
from server.owners.bearers import LEASE, Bearer

if TYPE_CHECKING:
    from dataspace.kernel.actions import Action
    from dataspace.kernel.epochs import Epoch, Origin
    from server.lane import Lane
    from server.owners.accounts import Account
    from server.owners.leases import Leases
    from server.owners.turn_numbers import Client

STEP: Final = 512
"""Claims that are compared with the pattern in one step, in about a millisecond."""

TURN: Final = 4_096
"""Claims that one turn retracts: others wait for it."""


class Disk(Protocol):
    """What is known of epochs on their way to the disk."""

    async def wait_durable(self, epoch: int) -> None:
        """Waits until an epoch is on disk."""

    def note_origin(self, number: int, time: int, origin: Origin) -> None:
        """Has the log say where the next turn comes from, after the epoch of this number and time."""


class NumberedSession(Protocol):
    """The session of the connection."""

    @property
    def client(self) -> Client:
        """Its identity, which says where its turns come from."""


class NumberedSpace(Protocol):
    """The facts and their owners, and the newest epoch."""

    @property
    def epoch(self) -> int:
        """Its number."""

    @property
    def time(self) -> int:
        """Its time, in microseconds."""

    def claims(self, owner: str) -> Mapping[int, Value]:
        """Returns what an owner claims, by handle."""


class ClaimsSpace(Protocol):
    """The space in which owners claim facts."""

    @property
    def space(self) -> NumberedSpace:
        """The facts and their owners."""

    @property
    def leases(self) -> Leases:
        """The leases of the space."""

    @property
    def lane(self) -> Lane:
        """Where background work has its turns."""

    @property
    def commits(self) -> Disk:
        """The state of epochs on their way to the disk."""

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        *,
        client: Client | None = None,
        sequence: int = 0,
        account: Account | None = None,
        on_durable: Callable[[Epoch], None] | None = None,
    ) -> Epoch:
        """Commits one turn."""

    def finish_ending(self, owner: str) -> None:
        """Ends what an owner claimed before it ended."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


class WithdrawingPeer(Protocol):
    """The connection that asks."""

    @property
    def own(self) -> NumberedSession:
        """Its session."""

    @property
    def home(self) -> ClaimsSpace:
        """The space that the session is about."""

    @property
    def bearer(self) -> Bearer:
        """Who the client is, and what it may do."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""


async def _withdraw(peer: WithdrawingPeer, arguments: Map) -> Value:
    """Retracts what an owner claims and a pattern matches; returns how much it was, and the epochs."""
    if "pattern" not in arguments:
        raise Refused("bad-request", "a pattern is needed, of the facts to retract")
    home, pattern = peer.home, arguments["pattern"]
    peer.bearer.permit.check_observe(pattern)
    owner = peer.bearer.owner(text(arguments, "owner"))
    if owner.startswith(LEASE):
        home.leases.renew(owner)
    home.finish_ending(owner)
    asker: Hashable = peer.bearer.principal
    found = await home.lane.work(asker).do(_finding(dict(home.space.claims(owner)), pattern))
    epochs: list[int] = []
    count = 0
    for part in batched(found, TURN):
        claims = home.space.claims(owner)  # some of them may have ended meanwhile
        actions = [(RETRACT, handle) for handle, value in part if claims.get(handle) is value]
        if actions:
            if (origin := peer.own.client.origin) is not None:  # the turn is of a request, and has no number
                home.commits.note_origin(home.space.epoch, home.space.time, origin._replace(client=""))
            epochs.append(home.commit(owner, actions, account=peer.account).number)
            count += len(actions)
            home.flush()
            await home.commits.wait_durable(epochs[-1])
    return Map({"retracted": count, "epochs": tuple(epochs)})


def _finding(claims: Mapping[int, Value], pattern: Value) -> Steps[list[tuple[int, Value]]]:
    """Returns the claims whose facts match, in steps."""
    matches = matcher(pattern)
    found: list[tuple[int, Value]] = []
    for part in batched(claims.items(), STEP):
        found += [(handle, value) for handle, value in part if matches(value) is not None]
        yield
    return found


VERBS: Final[Mapping[str, Callable[[WithdrawingPeer, Map], Awaitable[Value]]]] = {"withdraw": _withdraw}
