"""Withdrawing: the request that retracts what an owner claims and a pattern matches.

A claim is ended by its handle, which only the client that made it knows.  Here the daemon finds the handles,
so that an operator or a later run can take back what an earlier one has asserted.  The search runs in the
lane and copies nothing before its turn there, and of one owner one request searches at a time: waiting
requests hold their own bytes and nothing else.

Always: only claims of an owner that the bearer may speak for, on facts that it may observe.  A claim that
matches is retracted if it stood when the request's turn came; a later claim stays, unless it took the handle
of a claim that ended meanwhile.  The found claims are retracted in one epoch, or one epoch after the other if
they are more than one turn takes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from dataspace.errors import Refused
from dataspace.kernel.actions import RETRACT
from dataspace.kernel.handles import handle_at
from dataspace.wire.arguments import text
from index.patterns.events import Captures
from index.patterns.patterns import matcher
from index.values.values import Map, Value
from server.owners.bearers import LEASE
from server.owners.looking import Sought, look, still_claims
from server.sessions.peer import Peer

if TYPE_CHECKING:
    from server.lane import Work

TURN: Final = 4_096
"""Claims that one turn retracts: others wait for it."""


async def _withdraw(peer: Peer, arguments: Map) -> Value:
    """Retracts what an owner claims and a pattern matches; returns how much it was, and the epochs."""
    if "pattern" not in arguments:
        raise Refused("bad-request", "a pattern is needed, of the facts to retract")
    home, pattern = peer.home, arguments["pattern"]
    peer.bearer.permit.check_observe(pattern)
    owner = peer.bearer.owner(text(arguments, "owner"))
    async with home.withdrawals.of(owner), home.lane.work(peer.bearer.principal) as work:
        if owner.startswith(LEASE):
            home.leases.renew(owner)
        home.finish_ending(owner)
        count, epochs = await _retract_found(peer, owner, matcher(pattern), work)
    if epochs:
        await home.commits.wait_durable(epochs[-1])
    return Map({"retracted": count, "epochs": tuple(epochs)})


async def _retract_found(
    peer: Peer, owner: str, matches: Callable[[Value], Captures | None], work: Work
) -> tuple[int, list[int]]:
    """Retracts what is found, in slices of the lane; returns how many claims it was, and the epochs."""
    home, count, epochs, found = peer.home, 0, list[int](), list[Sought]()
    most = min(TURN, home.space.limits.actions_per_turn)

    def retract() -> None:
        nonlocal count
        actions = [
            (RETRACT, handle_at(each.place)) for each in found if still_claims(home.space, owner, each)
        ]
        found.clear()
        if actions:
            if (origin := peer.own.client.origin) is not None:  # the turn is of a request, and has no number
                home.commits.note_origin(home.space.epoch, home.space.time, origin._replace(client=""))
            epochs.append(home.commit(owner, actions, account=peer.account).number)
            count += len(actions)
            home.flush()

    for each in look(home.space, owner, matches):
        if each is not None:
            found.append(each)
            if len(found) == most:
                retract()
                work.leave()
                await home.commits.wait_room()
                await work.enter()
        elif work.is_over:
            await work.pass_on()
    retract()
    return count, epochs


VERBS: Final[Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]] = {"withdraw": _withdraw}
