"""The members of groups that one connection has: each is a stream of deliveries.

``Deliveries`` is what waits behind such a stream.  The client asks for more as its program takes items, so
the credit of the stream says how many were taken; the deadline of an item begins there.

Always: a member keeps its deliveries while its session may come back; a stream that its client ends gives
them back at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from dataspace.codec import pack
from dataspace.errors import Refused, UsageError
from dataspace.wire.consuming import OPTIONS, ConsumeOptions
from index.values.values import Map, Value
from relay.delivery.outbox import OutStream
from relay.groups.members import JobDelivery
from relay.groups.state import END, At
from relay.store.errors import LogFailed
from server.config.rights import Permit
from server.groups.space.definitions import joined
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.part import GROUPS
from server.groups.space.settling import check_source
from server.sessions.feeding import Feeder
from server.sessions.peer import FeederKey, Peer

if TYPE_CHECKING:
    from server.groups.space.groups import SpaceGroups

GROUP_OPTIONS: Final = tuple(
    sorted(OPTIONS - {"kind", "space", "group", "pattern", "topic", "in_flight", "holding", "quiet"})
)
"""Options of the group, and not of a member: what whoever makes the group may say."""

LOOK_SECONDS: Final = 1.0
"""Seconds after which a member that waits for its group looks whether that cannot read on."""


def may_divide(permit: Permit, topic: str, pattern: Value) -> bool:
    """True if a bearer may have the items of a group: subscribe to its topic, or observe its pattern."""
    return permit.open or (
        permit.allows_topic("subscribe", topic) if topic else permit.allows_observe(pattern)
    )


def given(group: WorkGroup, delivery: JobDelivery) -> tuple[Value, ...]:
    """Returns a delivery as it is on the wire."""
    item = delivery.item
    row = group.matches(item.value)
    return (*item.at, item.time, delivery.token, delivery.attempt, item.kind, row)


class Deliveries:
    """What waits behind the stream of a member: packed values, in order."""

    __slots__ = ("_first", "_sent", "_waiting", "failure", "group", "member", "used")

    def __init__(self, first: int) -> None:
        """``first`` is how many values the client asked for when it had taken none."""
        self._first = first
        self._waiting: deque[bytes] = deque()
        self._sent: deque[int] = deque()
        """Tokens of the values that the program has not taken yet, 0 for a mark."""
        self.used = 0
        self.failure: Refused | None = None
        self.group: WorkGroup | None = None
        self.member: StreamMember | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, value: Value, token: int = 0) -> None:
        """Adds a value: a delivery with its token, or a mark."""
        packed = pack(value)
        self._waiting.append(packed)
        self._sent.append(token)
        self.used += len(packed)

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Removes up to ``count`` values of about ``size`` bytes; returns how many, and their wire form."""
        taken: list[bytes] = []
        while self._waiting and len(taken) < count and size > 0:
            packed = self._waiting.popleft()
            size -= len(packed)
            self.used -= len(packed)
            taken.append(packed)
        return len(taken), b"".join(taken)

    def taken(self, asked: int) -> list[int]:
        """Returns the tokens that the program has taken since, now that the client asks for so many."""
        count = min(asked - self._first, len(self._sent))
        self._first += max(0, count)
        return [self._sent.popleft() for _ in range(count)]


class Consuming(Feeder):
    """The members of groups of one connection."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._streams: dict[int, OutStream] = {}

    @property
    def _groups(self) -> SpaceGroups:
        return self._peer.hosted.parts[GROUPS]

    def open(self, stream: OutStream, spec: Map) -> None:
        """Begins to feed a stream; raises ``Refused`` or ``UsageError`` for a spec that cannot be served."""
        peer, hosted = self._peer, self._peer.hosted
        name = spec.get("space", self._peer.hosted.name)
        hosted.check_space(name if isinstance(name, str) else repr(name))
        if peer.own.follows or not hosted.leads:
            raise hosted.leader.refusal()
        options = ConsumeOptions.read(spec)
        peer.permit.check_group(options.group)
        check_source(peer.permit, options.topic, options.pattern)
        stream.backlog = Deliveries(stream.items)
        self._streams[stream.number] = stream
        peer.start(self._begin, stream, options)

    async def _begin(self, stream: OutStream, options: ConsumeOptions) -> None:
        peer = self._peer
        try:
            group = await joined(self._groups, options, peer.account, peer.permit)
            if options.holding:
                newest = max((epoch, at) for epoch, at, _ in options.holding)
                await _wait_read(self._groups, group, newest, lambda: stream.ended or peer.gone)
            if stream.ended or peer.gone:
                return
            self._join(stream, group, options)
        except Refused as refusal:
            peer.fail(stream, refusal.code, refusal.text, refusal.url)
        except LogFailed as failure:
            peer.hosted.check_not_of_log(failure)
            peer.fail(stream, failure.code, str(failure))
        except UsageError as error:
            peer.fail(stream, "bad-request", str(error))
        peer.hosted.flush()

    def _join(self, stream: OutStream, group: WorkGroup, options: ConsumeOptions) -> None:
        peer, deliveries = self._peer, stream.backlog
        assert isinstance(deliveries, Deliveries)  # as ``open`` has made it

        def give(group: WorkGroup, delivery: JobDelivery) -> None:
            deliveries.put(given(group, delivery), delivery.token)
            peer.wake(stream)

        def mark(value: Value) -> None:
            deliveries.put(value)
            peer.wake(stream)

        owner = peer.own.owner
        holder = (owner, stream.number)
        member = StreamMember(holder, options.in_flight, peer.principal, give, mark, peer.session_id)
        kept = self._groups.join(group, member, owner, options.holding)
        deliveries.group, deliveries.member = group, member
        mark(("held", group.pattern, group.options.ack_within, tuple(kept)))
        if not options.quiet and not group.options.topic:
            peer.own.announce(stream.number, group.pattern)
        self._groups.deliver(group)

    def asked(self, stream: OutStream) -> None:
        """Notes which deliveries the program has taken, by what its stream asks for."""
        deliveries = stream.backlog
        if not isinstance(deliveries, Deliveries):
            return
        group, member = deliveries.group, deliveries.member
        if group is None or member is None:
            return
        self._groups.heard(group, member)
        for token in deliveries.taken(stream.items):
            delivery = member.out.get(token)
            if delivery is not None and not delivery.is_taken:
                self._groups.took(group, delivery)
        self._groups.deliver()

    def close(self, stream: OutStream) -> None:
        """Gives back what the member of a stream has, since its client has ended the stream."""
        if self._streams.pop(stream.number, None) is None:
            return
        deliveries = stream.backlog
        if (
            isinstance(deliveries, Deliveries)
            and deliveries.group is not None
            and deliveries.member is not None
        ):
            self._groups.leave(deliveries.group, deliveries.member)
            self._groups.deliver()

    def end(self, _reason: str) -> None:
        """Feeds nothing more: members keep what they have until their session ends."""
        for stream in self._streams.values():
            if isinstance(stream.backlog, Deliveries) and stream.backlog.member is not None:
                stream.backlog.member.is_ending = True
        self._streams.clear()


async def _wait_read(groups: SpaceGroups, group: WorkGroup, at: At, is_over: Callable[[], bool]) -> None:
    """Waits until a group has read an item that a member has come back with, cannot read on, or all is over.

    Such a group is read before others, and hands out nothing meanwhile: no longer than until it has read what
    is on disk now, whatever item the client names.
    """
    claimed, at = groups.awaited.claimed, min(at, (_durable(groups, group), END))
    claimed[group] = claimed.get(group, 0) + 1
    try:
        while group.state.read < at and not is_over() and _may_read_more(groups, group):
            with trio.move_on_after(LOOK_SECONDS):
                await groups.moved.park()
    finally:
        claimed[group] -= 1
        if not claimed[group]:
            del claimed[group]
            if groups.by_name.get(group.name) is group:
                groups.touched(group)
            groups.wake()


def _durable(groups: SpaceGroups, group: WorkGroup) -> int:
    """Returns the newest epoch on disk of what a group divides."""
    if not group.options.topic:
        return groups.hosted.commits.durable
    step_log = groups.topics.standing(group.options.topic, group.state.topic)
    return 0 if step_log is None else step_log.completed_durable


def _may_read_more(groups: SpaceGroups, group: WorkGroup) -> bool:
    """True if a group is behind, and nothing keeps it from reading."""
    is_over = groups.by_name.get(group.name) is not group or group.failure or group.cannot_read
    if is_over or group.is_full or group.state.is_live:
        return False
    if not group.options.topic:
        return True
    step_log = groups.topics.standing(group.options.topic, group.state.topic)
    return step_log is not None and (bool(group.pending) or group.pending_to < step_log.completed_durable)


def _forget(peer: Peer, number: int) -> None:
    """Ends the member of a stream."""
    peer.hosted.parts[GROUPS].forget(peer.own.owner, number)


CONSUMING: Final = FeederKey(Consuming, OPTIONS, _forget)
