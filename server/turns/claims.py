"""Requests about what owners claim: leases, the owners of facts, and withdrawal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from dataspace.codec import pack
from dataspace.kernel.actions import RETRACT
from dataspace.kernel.handles import handle_at
from dataspace.kernel.space import Space
from dataspace.steps import Steps, batched
from dataspace.wire.verbs import Arguments
from index.patterns.events import Captures
from index.patterns.patterns import matcher
from index.values.positions import MISSING
from index.values.values import Map, Value
from server.features import Feature
from server.owners.bearers import LEASE, parted
from server.sessions.peer import Peer
from server.sessions.requests import Unwritten, Verb

if TYPE_CHECKING:
    from server.lane import Work

SIZE: Final = 1 << 20
"""Bytes of facts in one answer, about."""

STEP: Final = 32
"""Claims that are compared in one step: some 30 µs for most patterns, some milliseconds for the largest."""

TURN: Final = 4_096
"""Claims that one turn retracts: others wait for it."""


async def _lease(holder: Peer, arguments: Arguments) -> Value:
    """Grants or renews a lease; the answer is whether it is a new one, without facts."""
    owner = holder.bearer.lease(arguments["owner"])
    return Map({"fresh": holder.hosted.leases.grant(owner, holder.account)})


async def _renew(holder: Peer, arguments: Arguments) -> Value:
    """Renews a lease; denied if it has ended."""
    holder.hosted.leases.renew(holder.bearer.own(arguments["owner"]))
    return None


async def _release(holder: Peer, arguments: Arguments) -> Unwritten:
    """Ends a lease and retracts what it owned; answered once that is on disk, as a retraction is.

    Else a daemon that dies has the fact again that a client knows to be retracted, until the lease is over.
    """
    hosted = holder.hosted
    hosted.leases.release(holder.bearer.own(arguments["owner"]))
    return Unwritten(partial(hosted.commits.wait_durable, hosted.space.epoch))


async def _owners(peer: Peer, arguments: Arguments) -> Value:
    """Returns the claims on facts that match a pattern, with the owner, the bearer and the stamp of each.

    O(claims), in slices of the lane; at most ``most`` claims, and about a mebibyte of facts.  Nothing is
    copied before the request has its turn.

    The daemon chooses what the name of an owner ends with (``bearers``), so the bearer and the stamp that it
    shows are not what a client said of itself, and no other bearer can have them.

    Always: an asker sees owners only of facts that it may observe itself.
    """
    pattern = arguments["pattern"]
    permit = peer.bearer.permit
    permit.check_inspect("the owners of facts")
    permit.check_observe(pattern)
    return await peer.build(_claims(peer.hosted.space, pattern, arguments["most"]))


def _claims(space: Space, pattern: Value, most: int) -> Steps[Value]:
    """Returns claims on facts that match, in steps; owners that come meanwhile are left out."""
    matches, found, size = matcher(pattern), list[Value](), 0
    for owner in space.owners():
        for sought in look(space, owner, matches):
            if sought is None:
                yield
                continue
            found.append(Map({"fact": sought.value, **said_of(owner)}))
            size += len(pack(sought.value))
            if len(found) >= most or size >= SIZE:
                return tuple(found)
    return tuple(found)


def said_of(owner: str) -> dict[str, Value]:
    """Returns what the name of an owner says: the name that was stated, the bearer, and its stamp.

    >>> said_of("session:1.2 @ token:gateway/kitchen by=sensor-7")["stamp"]
    Map((('by', 'sensor-7'),))
    """
    own, end = parted(owner)
    bearer, *stamps = end.split(" ")
    stamp = Map(dict([each.split("=", 1) for each in stamps]))
    return {"owner": own, "bearer": bearer, "stamp": stamp}


async def _withdraw(peer: Peer, arguments: Arguments) -> Value:
    """Retracts what an owner claims and a pattern matches; returns how much it was, and the epochs.

    A claim is ended by its handle, which only the client that made it knows.  Here the daemon finds the
    handles, so that an operator or a later run can take back what an earlier one has asserted.  The search
    runs in the lane and copies nothing before its turn there, and of one owner one request searches at a
    time: waiting requests hold their own bytes and nothing else.

    Always: only claims of an owner that the bearer may speak for, on facts that it may observe.  A claim that
    matches is retracted if it stood when the request's turn came; a later claim stays, unless it took the
    handle of a claim that ended meanwhile.  The found claims are retracted in one epoch, or one epoch after
    the other if they are more than one turn takes.
    """
    hosted, pattern = peer.hosted, arguments["pattern"]
    peer.bearer.permit.check_observe(pattern)
    owner = peer.bearer.owner(arguments["owner"])
    async with hosted.searches.lock(owner), hosted.lane.work(peer.bearer.principal) as work:
        if owner.startswith(LEASE):
            hosted.leases.renew(owner)
        hosted.finish_ending(owner)
        count, epochs = await _retract_found(peer, owner, matcher(pattern), work)
    if epochs:
        await hosted.commits.wait_durable(epochs[-1])
    return Map({"retracted": count, "epochs": tuple(epochs)})


async def _retract_found(
    peer: Peer, owner: str, matches: Callable[[Value], Captures | None], work: Work
) -> tuple[int, list[int]]:
    """Retracts what is found, in slices of the lane; returns how many claims it was, and the epochs."""
    hosted, count, epochs, found = peer.hosted, 0, list[int](), list[Sought]()
    most = min(TURN, hosted.space.limits.actions_per_turn)

    def retract() -> None:
        nonlocal count
        actions = [
            (RETRACT, handle_at(each.place)) for each in found if still_claims(hosted.space, owner, each)
        ]
        found.clear()
        if actions:
            # The turn is of a request, and has no number.
            commits, space = hosted.leading.commits, hosted.space
            peer.own.client.say_origin_of_request(commits, space.epoch, space.time)
            epochs.append(hosted.commit(owner, actions, account=peer.account).number)
            count += len(actions)
            hosted.flush()

    for sought in look(hosted.space, owner, matches):
        if sought is not None:
            found.append(sought)
            if len(found) == most:
                retract()
                work.leave()
                await hosted.commits.wait_room()
                await work.enter()
        elif work.is_over:
            await work.pass_on()
    retract()
    return count, epochs


class Sought(NamedTuple):
    """A claim that matches: its place, and its fact."""

    place: Hashable
    value: Value


def look(space: Space, owner: str, matches: Callable[[Value], Captures | None]) -> Iterator[Sought | None]:
    """Yields each claim of an owner that matches, and None after each step.

    The space may change whenever something is yielded.

    An owner may claim everything that is in a space.  To copy its claims with their facts takes as long as 50
    turns, and a request that held such a copy while it waits would keep facts in memory that nobody claims
    any more.  So a look takes the places of the claims alone, once it has its turn in the lane, and reads
    each claim when its place comes: 8 bytes for each claim, 1.5 ms for 300 000 of them.

    Always: a claim is yielded that stood from the first step to the last and matches; none that has ended;
    none that was made since, unless under a handle that was claimed at the first step.
    """
    for part in batched(list(space.places(owner)), STEP):
        for place in part:
            value = space.places(owner).get(place, MISSING)
            if value is not MISSING and matches(value) is not None:  # type: ignore[arg-type]  # a value then
                yield Sought(place, value)  # type: ignore[arg-type]  # as above
        yield None


def still_claims(space: Space, owner: str, sought: Sought) -> bool:
    """True if a claim that was found has not ended since."""
    return space.places(owner).get(sought.place, MISSING) is sought.value


VERBS: Final[Mapping[str, Verb]] = {
    "lease": _lease,
    "renew": _renew,
    "release": _release,
    "owners": _owners,
    "withdraw": _withdraw,
}

FEATURE: Final = Feature(name="claims", verbs=lambda _: VERBS)
