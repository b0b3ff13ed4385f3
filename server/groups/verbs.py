"""Requests about groups: give jobs back, list groups, and what operators do to them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import trio

from dataspace.errors import DeliveryLost, Refused
from dataspace.kernel.changes import time_of
from dataspace.steps import Steps, at_once, batched
from dataspace.wire.consuming import (
    BACKOFF_ALLOWED,
    LONGEST_SECONDS,
    MOST_ATTEMPTS,
    MOST_OUT,
    MOST_RATE,
    ConsumeOptions,
    is_backoff,
)
from dataspace.wire.verbs import Arguments
from index.patterns.patterns import matcher
from index.patterns.text import unparse_pattern
from index.values.values import Map, Value
from relay.groups.members import GroupMember, GroupOptions, JobDelivery
from relay.groups.state import Item
from server.groups.consuming import GROUP_OPTIONS, given, may_divide
from server.groups.space.dead import retrying
from server.groups.space.definitions import alter, backoff_of, delete, joined, seek
from server.groups.space.group import StreamMember, WorkGroup, check_disk, stated
from server.groups.space.part import GROUPS
from server.groups.space.settling import check_source
from server.sessions.peer import Peer

if TYPE_CHECKING:
    from server.groups.space.groups import SpaceGroups
    from server.sessions.requests import Verb

FEW: Final = 32
"""Deliveries that end in one step, without a turn of the lane."""

SHOWN: Final = 10_000
"""Deliveries in the answer to one request about groups."""

STEP: Final = 32
"""Deliveries that are shown in one step of the lane."""

MOST_WINDOW: Final = 100_000

MOST_WHY: Final = 500
"""Characters of why a group is paused."""


async def _settle(peer: Peer, arguments: Arguments) -> Value:
    """Gives jobs back (``again``), makes them dead letters (``dead``), or begins their deadlines anew.

    Denied with ``not-yours`` if one of them is not this client's, and then nothing has happened.
    """
    await trio.lowlevel.checkpoint()
    groups = peer.hosted.parts[GROUPS]
    group = groups.find(_named(peer, arguments))
    check_source(peer.permit, group.options.topic, group.pattern)
    done = tuple(chain.from_iterable(arguments["done"]))
    settled = groups.judge([(group.name, done)], peer.principal) if done else ()
    wanted = {verb: _deliveries(peer, group, arguments[verb]) for verb in ("again", "dead", "extend")}
    if settled or wanted["dead"] or (wanted["again"] and groups.is_stuck()):
        check_disk(peer.hosted)
    if settled:
        for note in groups.notes(settled):
            peer.hosted.queue_note(note)
        groups.settled(settled)
    epoch = peer.hosted.space.epoch
    ends = _ends(groups, group, wanted, _Given(*[arguments[name] for name in ("reason", "after", "blame")]))
    if sum(map(len, wanted.values())) <= FEW:
        at_once(ends)
    else:
        await peer.work().do(ends)
    groups.touched(group)
    groups.deliver(group)
    if settled:
        await peer.hosted.commits.wait_durable(epoch)
    return epoch


@dataclass(frozen=True, slots=True)
class _Given:
    """How jobs are given back."""

    reason: str
    after: float
    blame: bool


def _ends(
    groups: SpaceGroups, group: WorkGroup, wanted: Mapping[str, list[JobDelivery]], how: _Given
) -> Steps[None]:
    """Ends deliveries, or gives them more time, in steps.

    Deliveries that are lost between two steps are passed over.
    """
    for delivery in wanted["extend"]:
        if delivery.token in group.core.out:
            groups.took(group, delivery)
        yield
    for delivery in reversed(wanted["again"]):
        if delivery.token in group.core.out:
            group.core.counts.again += 1
            groups.heard(group, delivery.member)
            groups.fail(group, delivery, reason=how.reason, after=how.after, blame=how.blame)
        yield
    for delivery in wanted["dead"]:
        if delivery.token in group.core.out:
            groups.bury(group, delivery, how.reason)
        yield


async def _take(peer: Peer, arguments: Arguments) -> Value:
    """Returns items for a client without a stream; waits until there is one, or the time is over.

    They end by their deadlines alone, which begin now.
    """
    groups = peer.hosted.parts[GROUPS]
    options = _taking(_named(peer, arguments), arguments)
    most = options.in_flight
    check_source(peer.permit, options.topic, options.pattern)
    group = await joined(groups, options, peer.account, peer.permit)
    jobs: list[Value] = []
    came = trio.Event()

    def give(group: WorkGroup, delivery: JobDelivery) -> None:
        jobs.append(given(group, delivery))
        groups.took(group, delivery)
        came.set()

    holder = ("request", came)
    member = StreamMember(holder, most, peer.principal, give, lambda _mark: None, peer.session_id)
    member.is_brief = True
    groups.join(group, member, "", ())
    is_answered = False
    try:
        groups.deliver(group)
        with trio.move_on_after(arguments["wait"] / 1000):
            await came.wait()
        while member.credit > 0 and groups.is_touched(group):  # more than one step may hand out
            await trio.lowlevel.checkpoint()
            groups.deliver(group)
        is_answered = True
    finally:
        member.is_ending = True  # it keeps the items that are answered, and gets no more
        if not (is_answered and member.out):
            groups.leave(group, member)
    return Map({"names": group.names, "ack_within": group.options.ack_within, "jobs": tuple(jobs)})


def _taking(group: str, arguments: Arguments) -> ConsumeOptions:
    """Returns the options of who takes; raises ``Refused`` for an option that a group has not."""
    wanted: Map = arguments["options"] or Map()
    unknown = [str(name) for name in wanted if name not in GROUP_OPTIONS]
    if unknown:
        known = ", ".join(GROUP_OPTIONS)
        raise Refused("bad-request", f"a group has no option {unknown[0]!r:.60}, known are {known}")
    spec: dict[Value, Value] = dict(wanted.pairs())
    spec |= {"group": group, "pattern": arguments["pattern"], "in_flight": arguments["most"]}
    return ConsumeOptions.read(Map(spec | ({"topic": arguments["topic"]} if arguments["topic"] else {})))


def _named(peer: Peer, arguments: Arguments) -> str:
    """Returns the name of a group that the client may use; raises ``Refused`` for any other."""
    name: str = arguments["group"]
    peer.permit.check_group(name)
    return name


def _deliveries(peer: Peer, group: WorkGroup, stated: tuple[tuple[int, int, int], ...]) -> list[JobDelivery]:
    """Returns deliveries by epoch, position and token; raises ``DeliveryLost`` for others' deliveries."""
    found: list[JobDelivery] = []
    lost: list[tuple[int, int]] = []
    for epoch, position, token in stated:
        at = epoch, position
        delivery = group.core.out.get(token)
        if delivery is None or delivery.item.at != at or delivery.member.principal != peer.principal:
            lost.append(at)
        else:
            found.append(delivery)
    if lost:
        named = ", ".join([f"{epoch}.{position}" for epoch, position in lost[:8]])
        said = Map({"group": group.name, "lost": tuple(lost)})
        raise DeliveryLost("not-yours", f"group {group.name!r}: {named} is not out to this client", said)
    return found


async def _groups(peer: Peer, arguments: Arguments) -> Value:
    """Returns the groups that the client may observe, or one of them; with ``out`` what is out, by item.

    Of jobs that are out it shows at most ``SHOWN`` in all, and whose they are to bearers that may inspect.
    """
    groups = peer.hosted.parts[GROUPS]
    name = arguments["group"]
    wanted = [groups.find(name)] if name else list(groups.by_name.values())
    return await peer.build(_statuses(peer, wanted, SHOWN if arguments["out"] else None))


def _statuses(peer: Peer, wanted: list[WorkGroup], most: int | None) -> Generator[None, None, Value]:
    """Returns the status of groups, with up to ``most`` deliveries in all, in steps of the lane."""
    found: list[Value] = []
    for group in wanted:
        if may_divide(peer.permit, group.options.topic, group.pattern):
            status = _status(peer, group)
            if most is not None:
                some = list(islice(group.core.out.values(), most))
                most -= len(some)
                shown: list[Value] = []
                for start in range(0, len(some), STEP):
                    shown += [_shown(peer, each) for each in some[start : start + STEP]]
                    yield
                status["deliveries"] = tuple(shown)
            found.append(Map.of(status.items()))
        yield
    return tuple(found)


def _status(peer: Peer, group: WorkGroup) -> dict[str, Value]:
    core, groups = group.core, peer.hosted.parts[GROUPS]
    status: dict[str, Value] = {
        "group": group.name,
        "pattern": unparse_pattern(group.pattern),
        "options": stated(group.options),
        "members": len(core.members),
        "out": len(core.out),
        "undone": len(group.state.undone),
        "oldest_seconds": group.oldest_seconds,
        "behind": group.behind,
        "dead": group.dead,
        "paused": bool(group.options.paused),
        "counts": Map(asdict(core.counts)),
    }
    if (topic := group.options.topic) and groups.topics.standing(topic, group.state.topic) is None:
        status["topic_ended"] = True
    if group.cannot_read:
        status["cannot_read"] = group.cannot_read
    return status


async def _peek(peer: Peer, arguments: Arguments) -> Value:
    """Returns the status of a group, and up to ``most`` jobs that it has: those that are out come first."""
    group = peer.hosted.parts[GROUPS].find(arguments["group"])
    check_source(peer.permit, group.options.topic, group.pattern)
    return await peer.build(_peeked(peer, group, arguments["most"]))


def _peeked(peer: Peer, group: WorkGroup, most: int) -> Generator[None, None, Value]:
    """Looks through what is out, then through the other undone items in their order, in steps of the lane."""
    core = group.core
    status = _status(peer, group) | {"postponed": core.postponed, "names": group.names}
    status["next_due"] = None if (due := core.next_due) is None else time_of(due)
    out, undone = list(islice(core.out.values(), most)), list(core.state.undone.values())
    jobs: list[Value] = []
    for some in batched(out, STEP):
        jobs += [_seen(peer, group, each.item) for each in some]
        yield
    for others in batched(undone, STEP):
        if len(jobs) == most:
            break
        waiting = [item for item in others if not item.token]
        jobs += [_seen(peer, group, item) for item in waiting[: most - len(jobs)]]
        yield
    return Map.of((status | {"jobs": tuple(jobs)}).items())


def _seen(peer: Peer, group: WorkGroup, item: Item) -> Value:
    """Returns an item as a peek shows it; the value of a parked one is in the log alone."""
    seen: dict[str, Value] = {"epoch": item.at[0], "position": item.at[1], "attempts": item.attempts}
    seen |= (
        {"captures": None} if item.is_parked else {"kind": item.kind, "captures": group.matches(item.value)}
    )
    delivery = group.core.out.get(item.token)
    if delivery is not None:
        who = _name_of(delivery.member, is_whole=peer.permit.inspects)
        seen |= {"state": "out", "member": who, "seconds_left": _seconds_left(delivery)}
    elif item.due:
        seen |= {"state": "postponed", "due": time_of(item.due)}
    else:
        seen["state"] = "waiting"
    return Map.of(seen.items())


def _seconds_left(delivery: JobDelivery) -> float | None:
    """Returns the seconds to the deadline of a delivery; None if its member has not taken it."""
    return max(0.0, delivery.deadline - trio.current_time()) if delivery.is_taken else None


def _shown(peer: Peer, delivery: JobDelivery) -> Value:
    item = delivery.item
    taken = _seconds_left(delivery)
    who = _name_of(delivery.member, is_whole=peer.permit.inspects)
    return (*item.at, delivery.token, delivery.attempt, who, taken, item.value)


def _name_of(member: GroupMember, *, is_whole: bool) -> str:
    """Returns a member as its session is named elsewhere, ``session:0.5``: ``system`` has the number.

    A name that is not whole has no principal.
    """
    assert isinstance(member, StreamMember)  # as all that join are
    match member.holder:
        case ("request", _):
            who = f" of {member.principal}" if is_whole and member.principal is not None else ""
            return f"request {member.session}{who}"
        case _:
            return f"session:{member.session}"


async def _alter(peer: Peer, arguments: Arguments) -> Value:
    """Pauses a group, resumes it, changes its options, moves its read position, has it try dead letters
    again, or deletes it."""
    groups = peer.hosted.parts[GROUPS]
    name, what = _named(peer, arguments), arguments["what"]
    if name in groups.failed and what == "delete" and peer.permit.open:
        await delete(groups, name)
        return None
    group = groups.find(name)
    check_source(peer.permit, group.options.topic, group.pattern)
    if what in ("pause", "resume"):
        why = (arguments["why"][:MOST_WHY] or "paused") if what == "pause" else ""
        await alter(groups, group, lambda options: replace(options, paused=why))
    elif what == "alter":
        wanted = arguments["options"]
        await alter(groups, group, lambda options: _altered(options, wanted))
    elif what == "retry":
        return await _retry(peer, group, arguments["pattern"])
    elif what == "delete":
        await delete(groups, name)
    else:
        return await seek(groups, group, arguments["to"])
    return None


async def _retry(peer: Peer, group: WorkGroup, pattern: Value) -> int:
    """Retries dead letters of a group; returns how many."""
    hosted, groups = peer.hosted, peer.hosted.parts[GROUPS]
    match = matcher(pattern) if pattern is not None else lambda _value: ()
    check_disk(hosted)
    async with groups.changing():
        groups.find(group.name)  # else it was deleted meanwhile
        try:
            count = await peer.work().do(retrying(groups, group, match))
        finally:  # some may be undone again already
            groups.touched(group)
            groups.deliver()
        epoch = hosted.space.epoch
    await hosted.commits.wait_durable(epoch)
    return count


_ALTERABLE: Final[Mapping[str, tuple[float, float, str]]] = {
    "ack_within": (0.001, LONGEST_SECONDS, "seconds"),
    "attempts": (0, MOST_ATTEMPTS, "attempts"),
    "window": (1, MOST_WINDOW, "items"),
    "most_out": (0, MOST_OUT, "items"),
    "rate": (0, MOST_RATE, "items a second"),
}
_OTHERS: Final = ("backoff", "exclusive")
"""The options of a group that change: the least and the greatest value, and the unit."""


def _altered(options: GroupOptions, wanted: Value) -> GroupOptions:
    if not isinstance(wanted, Map):
        raise Refused("bad-request", f"options are a map, got {wanted!r:.60}")
    changed: dict[str, Any] = {}
    for name, value in wanted.pairs():
        if name == "backoff":
            if value is None or not is_backoff(value):
                raise Refused("bad-request", f"backoff is {BACKOFF_ALLOWED}, got {value!r:.60}")
            changed |= backoff_of(value)
            continue
        if name == "exclusive":
            if not isinstance(value, bool):
                raise Refused("bad-request", f"exclusive is true or false, got {value!r:.60}")
            changed["exclusive"] = value
            continue
        if name not in _ALTERABLE:
            names = ", ".join([*_ALTERABLE, *_OTHERS])
            raise Refused("bad-request", f"{name!r:.40} is no option that changes, there are {names}")
        least, most, unit = _ALTERABLE[str(name)]
        kind = type(getattr(options, str(name)))
        is_number = isinstance(value, int) or (kind is float and isinstance(value, float))
        if isinstance(value, bool) or not is_number or not least <= value <= most:  # type: ignore[operator]  # a number
            raise Refused("bad-request", f"{name!s} is {least:g} to {most:g} {unit}, got {value!r:.60}")
        changed[str(name)] = kind(value)
    return replace(options, **changed)


VERBS: Final[Mapping[str, Verb]] = {
    "take": _take,
    "settle": _settle,
    "groups": _groups,
    "peek": _peek,
    "group-alter": _alter,
}
